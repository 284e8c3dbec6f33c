"""What stands twice in the sources, as pylint's similarity checker sees it: runs of six lines and more that are alike.

Imports, comments and docstrings do not count. Each tree is a checkout; pylint is whichever this Python has.

    pip install pylint
    python bench/similarity.py [TREE ...]      # by default this checkout; each is named by its commit in the result
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import machine

_PARTS = {"package": ("aotcuda", "hatch_plugin"), "tests and benches": ("tests", "bench")}
_LINES = 6
_PYLINT = ("--disable=all", "--enable=duplicate-code", f"--min-similarity-lines={_LINES}", "--score=n")
_SETTINGS = ("--ignore-comments=y", "--ignore-docstrings=y", "--ignore-imports=y", "--ignore-signatures=n")


def main() -> int:
    parser = machine.parser(__doc__, "similarity")
    parser.add_argument("trees", nargs="*", type=Path, default=[Path(__file__).resolve().parent.parent])
    arguments = parser.parse_args()
    here = machine.describe()
    figures = {}
    for tree in arguments.trees:
        commit = _output(["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]).strip()
        figures[commit] = {part: _found(tree, folders) for part, folders in _PARTS.items()}
    rows: list[tuple[object, ...]] = [
        (f"{commit}, {part}", found["modules"], len(found["alike"]), sum(item["lines"] for item in found["alike"]))
        for commit, parts in figures.items()
        for part, found in parts.items()
    ]
    machine.table(("", "modules", "places", "lines"), rows)
    for commit, parts in figures.items():
        for found in parts.values():
            for item in found["alike"]:
                print(f"{commit}: {item['lines']} lines in {' and '.join(item['modules'])}")
    machine.write(arguments.out, here, pylint=version("pylint"), least_lines=_LINES, figures=figures)
    return 0


def _found(tree: Path, folders: tuple[str, ...]) -> dict[str, Any]:
    """How many modules there are in the folders of a tree, and what stands in several of them."""
    report = _output([sys.executable, "-m", "pylint", *_PYLINT, *_SETTINGS, *folders], tree)
    alike = []
    for text in report.split("R0801")[1:]:
        places = re.findall(r"^==([\w.]+):\[(\d+):(\d+)\]$", text, re.MULTILINE)
        begin, end = map(int, places[0][1:])
        alike.append({"lines": end - begin, "modules": sorted(name for name, _, _ in places)})
    modules = sum(1 for folder in folders for _ in (tree / folder).rglob("*.py"))
    return {"modules": modules, "alike": sorted(alike, key=lambda item: item["modules"])}


def _output(command: list[str], folder: Path | None = None) -> str:
    """What a command prints; pylint's exit status says what it found."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.stderr.strip():
        sys.exit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
