"""Compare builds with the build cache and without, after an edit of every declared input of the build stamp.

`tests/support/stamp_inputs.py` is the list of inputs. For each front end one project depends on all of them. They are
edited one after the other. Before each edit, every kind of build (wheel, editable install, `--depfile`, JIT cache) has
to take what was built before, and after it none may. Then each kind builds with the cache and without, and both have to
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
    # Compilers of several CUDA versions need several environments: each adds its front ends to the file.
    earlier = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.is_file() else {}
    found: dict[str, dict[str, object]] = earlier.get("front_ends", {})
    failed = False
    for front_end in arguments.front_ends:
        package = stamp_inputs.PACKAGES.get(front_end, "aotcuda")
        if importlib.util.find_spec(package.partition(".")[0]) is None or importlib.util.find_spec(package) is None:
            print(f"left out: {front_end}: {package} is not installed")
            continue
        found[front_end] = _edited(front_end, arguments.inputs)
        failed |= bool(found[front_end]["problems"])
        machine.write(arguments.out, here, kinds=[*KINDS], front_ends=found)
    rows = [(name, item["inputs"], item["builds"], len(item["problems"])) for name, item in found.items()]  # type: ignore[arg-type]
    machine.table(("", "inputs", "pairs of builds", "problems"), rows)  # type: ignore[arg-type]
    return 1 if failed else 0


def _edited(front_end: str, inputs: list[str]) -> dict[str, object]:
    """Edit each input of a project; return the counts and what was wrong."""
    problems: dict[str, list[str]] = {}
    items = {name: item for name, item in stamp_inputs.of(front_end).items() if name in inputs}
    with tempfile.TemporaryDirectory() as temporary:
        project = Project(Path(temporary), front_end)
        project.build_all()
        for number, (name, item) in enumerate(items.items(), 1):
            if wrong := compare(project, name, item):
                problems[name] = wrong
            print(f"{front_end} {number}/{len(items)} {name}: {'; '.join(wrong) or 'equal'}", flush=True)
    return {"inputs": len(items), "builds": len(items) * len(KINDS), "problems": problems}


if __name__ == "__main__":
    sys.exit(main())
