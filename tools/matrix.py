#!/usr/bin/env python3
"""Run tests of builds with every compiler release that the extras accept, each in a new environment.

    python tools/matrix.py --out docs/results/matrix.json                     # every release, with this Python
    python tools/matrix.py --ends --python python3.12 --python python3.13     # the first and the last, with others
    python tools/matrix.py --release numba-cuda==0.31.0 -- tests/integration  # a release that is not accepted yet

`aotcuda/registry.py` has the releases. Arguments after `--` are passed to pytest, in place of the tests in `PART`. Run
it with a Python that has uv (the extra `test` brings it), which shares the files of packages between environments. The
exit status is 0 if all tests passed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

from environments import ROOT, check_machine, environment

sys.path.insert(0, str(ROOT))

from aotcuda import registry

PART = (
    "tests/unit/test_frontend_private_parts.py",
    "tests/integration/test_images.py",
    "tests/integration/test_functions.py",
    "tests/integration/test_types_and_strings.py",
)
"""Tests of a compiler's code, parameter layouts, C prototypes and links; they take minutes for each release."""

_SELECTIONS = {"numba-cuda": "not mlir", "numba-cuda-mlir": "mlir"}
"""Arguments of pytest's `-k` that select the tests of each compiler."""
_REPORTED = ("numba", "llvmlite", "numpy", "cuda-core", "cuda-bindings")
"""Packages whose versions the report has."""


def main() -> None:
    """Run the requested releases, and write the report after each."""
    check_machine()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="an interpreter; the option may be repeated")
    parser.add_argument("--ends", action="store_true", help="only the first and the last release of each compiler")
    parser.add_argument("--release", action="append", metavar="NAME==VERSION", help="this release, tested or not")
    parser.add_argument("--out", type=Path, help="the report, JSON; its rows of other runs stay")
    parser.add_argument("tests", nargs="*", help="arguments of pytest")
    arguments = parser.parse_args()
    rows = _earlier_rows(arguments.out)
    for python in arguments.python or [sys.executable]:
        for name, release in select_releases(arguments.release, ends=arguments.ends):
            print(f"== {name} {release}, {python}", flush=True)
            with tempfile.TemporaryDirectory(prefix="aotcuda-matrix-") as folder:
                row = run(name, release, python, arguments.tests or list(PART), Path(folder))
            print(json.dumps(row, indent=1), flush=True)
            key = (row["compiler"], row["release"], row["python"])
            rows = [other for other in rows if (other["compiler"], other["release"], other["python"]) != key] + [row]
            if arguments.out:
                report = {"date": datetime.now(UTC).date().isoformat(), "rows": sorted(rows, key=_order)}
                arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(row["failed"] for row in rows))


def select_releases(requested: list[str] | None, *, ends: bool) -> list[tuple[str, str]]:
    """Return the names and releases of the requested compilers."""
    if requested:
        return [(name, release) for name, _, release in (text.partition("==") for text in requested)]
    selected = []
    for front_end in registry.BUILT_IN.values():
        tested = front_end.tested
        releases = dict.fromkeys((tested[0], tested[-1])) if ends and tested else tested
        selected += [(front_end.name, release) for release in releases]
    return selected


def run(name: str, release: str, python: str, tests: list[str], folder: Path) -> dict[str, object]:
    """Run the tests with a compiler's release, in an environment in `folder`, and return the outcome."""
    uv = (sys.executable, "-m", "uv")
    interpreter, results = folder / "environment" / "bin" / "python", folder / "results.xml"
    companion = registry.BUILT_IN[name].requirements_by_release.get(release)
    requirements = [f"{name}=={release}", *([companion] if companion else [])]
    variables = {**environment(), "AOTCUDA_UNTESTED": "1"}
    row: dict[str, object] = {"compiler": name, "release": release, "python": "", "tests": tests, "failed": []}
    for command in (
        (*uv, "venv", "--quiet", "--seed", "--python", python, folder / "environment"),
        (*uv, "pip", "install", "--quiet", "--python", interpreter, "--editable", f"{ROOT}[test]", *requirements),
    ):
        done = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, check=False, env=variables, cwd=ROOT
        )
        if done.returncode:
            return {**row, "failed": [{"why": " ".join(done.stderr.split())[:400], "tests": 0}]}
    command_line = [str(interpreter), "-c", _VERSIONS]
    row |= json.loads(subprocess.run(command_line, capture_output=True, text=True, check=True, env=variables).stdout)
    options = ("-q", "-p", "no:cacheprovider", "-m", "not gpu", "-k", _SELECTIONS[name], f"--junitxml={results}")
    done = subprocess.run([str(interpreter), "-m", "pytest", *options, *tests], check=False, env=variables, cwd=ROOT)
    if not results.is_file():
        return {**row, "failed": [{"why": f"pytest ended with exit status {done.returncode}", "tests": 0}]}
    return {**row, **outcome(results)}


_VERSIONS = f"""
import json, platform
from importlib.metadata import version
print(json.dumps({{"python": platform.python_version(), "beside": {{name: version(name) for name in {_REPORTED!r}}}}}))
"""


def outcome(results: Path) -> dict[str, object]:
    """Return the number of passed and skipped tests, and the failures with their messages."""
    suite = ET.parse(results).getroot()[0]  # noqa: S314 (pytest has just written it)
    failed: dict[str, list[str]] = {}
    skipped = 0
    for case in suite.iter("testcase"):
        skipped += case.find("skipped") is not None
        for kind in ("failure", "error"):
            if (failure := case.find(kind)) is not None:
                failed.setdefault(_reason(failure), []).append(f"{case.get('name')}")
    count = sum(map(len, failed.values()))
    return {
        "seconds": round(float(suite.get("time", "0"))),
        "passed": int(suite.get("tests", "0")) - skipped - count,
        "skipped": skipped,
        "failed": [{"why": why, "tests": len(names), "first": names[0]} for why, names in failed.items()],
    }


def _reason(failure: ET.Element) -> str:
    """Return aotcuda's message, or else pytest's first line."""
    message = re.search(r"^E\s+aotcuda: (.*)$", failure.text or "", re.MULTILINE)
    return (message[1] if message else (failure.get("message") or "").split("\n")[0])[:300]


def _earlier_rows(path: Path | None) -> list[dict[str, object]]:
    if path is None or not path.is_file():
        return []
    rows: list[dict[str, object]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def _order(row: dict[str, object]) -> tuple[object, ...]:
    numbers = tuple(int(part) for part in re.findall(r"\d+", f"{row['release']}.{row['python']}"))
    return (row["compiler"], numbers)


if __name__ == "__main__":
    main()
