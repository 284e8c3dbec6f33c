"""Compare reads of 1,000 damaged cache entries with the rule that they write nothing else and run no code.

Each entry is a valid one, changed by a seed in its names, kinds and contents (`tests/support/hostile_entries.py`). It
is in a folder, or in an archive that a worker of an executor sends, and is read by a build, or by the JIT fallback and
`aotcuda cache list`, `inspect`, `doctor` and `cache clear`. Faults are files written outside of the cache and the
output folder, code that runs, and tracebacks. The exit status is 1 if there are any.

    python bench/hostile_entries.py                   # about five minutes
    python bench/hostile_entries.py --entries 100
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.hostile_entries import PLACES, Project, spoilt

ENTRIES = [*(("build", place) for place in PLACES), ("fallback", "folder")]
FAULTS = {"written": "files written outside", "code ran": "code run", "traceback": "tracebacks"}


def main() -> int:
    parser = machine.parser(__doc__, "hostile_entries")
    parser.add_argument("--entries", type=int, default=1000)
    arguments = parser.parse_args()
    counts: dict[str, Counter[str]] = {f"{kind}, {place}": Counter() for kind, place in ENTRIES}
    faults: Counter[str] = Counter(dict.fromkeys(FAULTS.values(), 0))
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder))
        for seed in range(arguments.entries):
            kind, place = ENTRIES[seed % len(ENTRIES)]
            read = getattr(project, f"read_{kind}")
            outcome = read(place, spoilt(seed, project.outside, kind, place))
            counts[f"{kind}, {place}"].update(["entries", outcome.result])
            for text in outcome.faults:
                faults[FAULTS.get(text.partition(":")[0], text)] += 1
                print(f"entry {seed} ({kind}, {place}): {text}")
    total = sum(counts.values(), Counter[str]())
    machine.table(("kind, place", *total), [(name, *(found[each] for each in total)) for name, found in counts.items()])
    print(", ".join(f"{what}: {count}" for what, count in faults.items()))
    machine.write(arguments.out, machine.describe(), entries=total, ways=counts, faults=faults)
    return 1 if any(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
