"""Compare builds with the build cache and without, after an edit of every declared input of the build stamp.

`tests/support/stamp_inputs.py` is the list of inputs. For each front end one project depends on all of them. They are
edited one after the other. Before each edit, every kind of build (wheel, editable install, `--depfile`, JIT cache) has
to take the earlier build, and after it none may. Then each kind builds with the cache and without, and both have to
give the same files. If the front end's kernels depend on the input, the files have to differ from those before.

    python bench/differential.py                              # about 20 minutes for each front end on two idle cores
    python bench/differential.py --front-ends triton --inputs "a glob" "a linked file"
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support import stamp_inputs
from support.differential import KINDS, Project, compare


def main() -> int:
    parser = machine.parser(__doc__, "differential")
    parser.add_argument("--front-ends", nargs="*", default=stamp_inputs.ALL, choices=stamp_inputs.ALL)
    parser.add_argument("--inputs", nargs="*", default=[*stamp_inputs.INPUTS], choices=[*stamp_inputs.INPUTS])
    arguments = parser.parse_args()
    here = machine.describe()
    # Compilers of several CUDA versions need several environments: each run adds its results to the file.
    earlier = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.is_file() else {}
    found: dict[str, dict[str, list[str]]] = earlier.get("problems", {})
    for front_end in arguments.front_ends:
        package = stamp_inputs.PACKAGES.get(front_end, "aotcuda")
        if importlib.util.find_spec(package.partition(".")[0]) is None or importlib.util.find_spec(package) is None:
            print(f"left out: {front_end}: {package} is not installed")
            continue
        found[front_end] = found.get(front_end, {}) | _edited(front_end, arguments.inputs)
        counts = {
            name: {"inputs": len(item), "pairs of builds": len(item) * len(KINDS)} for name, item in found.items()
        }
        machine.write(arguments.out, here, kinds=[*KINDS], pairs_of_builds=counts, problems=found)
    rows = [(name, len(item), len(item) * len(KINDS), sum(map(bool, item.values()))) for name, item in found.items()]
    machine.table(("", "inputs", "pairs of builds", "problems"), rows)
    return 1 if any(any(item.values()) for item in found.values()) else 0


def _edited(front_end: str, inputs: list[str]) -> dict[str, list[str]]:
    """Edit each input of a project; return the problems by input."""
    problems: dict[str, list[str]] = {}
    items = {name: item for name, item in stamp_inputs.inputs_of(front_end).items() if name in inputs}
    with tempfile.TemporaryDirectory() as temporary:
        project = Project(Path(temporary), front_end)
        project.build_all()
        for number, (name, item) in enumerate(items.items(), 1):
            problems[name] = compare(project, name, item)
            print(f"{front_end} {number}/{len(items)} {name}: {'; '.join(problems[name]) or 'equal'}", flush=True)
    return problems


if __name__ == "__main__":
    sys.exit(main())
