#!/usr/bin/env python3
"""Run the unit tests of the run time with other Pythons, each in a new environment, and write a report.

    python tools/pythons.py --python python3.14 --python python3.14t --out docs/results/pythons.json
    python tools/pythons.py --python python3.13 tests/unit/test_runtime_threads.py

The tests run in a copy of the committed state. Each Python compiles the extension in C and runs the tests twice: with
`AOTCUDA_EXTENSION` unset, and with `AOTCUDA_EXTENSION=0`. The exit status is 0 if all passed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from environments import ROOT, check_machine, environment
from matrix import outcome

NEEDS = ("numpy", "nvidia-cuda-cuobjdump==13.4.*", "pytest", "hypothesis", "platformdirs")
COMPILERS = {True: "[cu13]", False: "[inspect]"}
"""The extra of aotcuda for Pythons with and without the GIL; tests that need Numba are skipped without the GIL."""

PART = ("runtime_*", "kept_wheels", "manifest", "system", "cache*", "small_floats")
"""Patterns of the test files in `tests/unit` for code that runs in users' processes."""

_PATHS = {"fast path in C": None, "general path": "0"}
"""The launch paths by name, and the value of `AOTCUDA_EXTENSION` for each."""

_DESCRIBE = """
import json, platform, sys
from importlib.metadata import version
import numpy
from aotcuda.runtime.launch import fast
gil = getattr(sys, "_is_gil_enabled", lambda: True)()
print(json.dumps({
    "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
    "python": platform.python_version() + ("" if gil else " without the GIL"),
    "made_by": platform.python_compiler(),
    "numpy": version("numpy"),
    "extension": fast.why_not() or "in use",
}))
"""


def main() -> None:
    """Run the tests that the command line requests, and write the report after each Python."""
    check_machine()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="an interpreter; the option may be repeated")
    parser.add_argument(
        "--path", action="append", choices=[*_PATHS], help="only this launch path; the option may be repeated"
    )
    parser.add_argument("--out", type=Path, help="the report, JSON; its other runs stay")
    parser.add_argument("tests", nargs="*", help="arguments of pytest, in place of the tests of the run time")
    arguments = parser.parse_args()
    runs: list[dict[str, object]] = []
    if arguments.out and arguments.out.is_file():
        runs = json.loads(arguments.out.read_text(encoding="utf-8"))["runs"]
    failed = False
    for python in arguments.python or [sys.executable]:
        print(f"== {python}", flush=True)
        with tempfile.TemporaryDirectory(prefix="aotcuda-pythons-") as folder:
            new = test(python, arguments.path or [*_PATHS], arguments.tests, Path(folder))
        print(json.dumps(new, indent=1), flush=True)
        failed = failed or any(run["failed"] for run in new)
        keys = [(run["python"], run["what"]) for run in new]
        runs = sorted([run for run in runs if (run["python"], run["what"]) not in keys] + new, key=_order)
        if arguments.out:
            arguments.out.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")
    sys.exit(failed)


def run_time_tests() -> list[str]:
    """Return the files with tests of the run time."""
    return sorted(str(path.relative_to(ROOT)) for name in PART for path in ROOT.glob(f"tests/unit/test_{name}.py"))


def test(python: str, paths: list[str], tests: list[str], folder: Path) -> list[dict[str, object]]:
    """Install the committed state for `python` in `folder`, run the tests by each launch path, and return the runs."""
    interpreter, tree = folder / "environment" / "bin" / "python", folder / "tree"
    commit = _output("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, tree], check=True)  # noqa: S607 (found on PATH)
    variables = {**environment(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    variables.pop("AOTCUDA_EXTENSION", None)
    pip = (str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([python, "-m", "venv", str(folder / "environment")], check=True, env=variables)
    gil_option = _output(str(interpreter), "-c", "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED'))")
    extra = COMPILERS[gil_option != "1"]
    subprocess.run([*pip, *NEEDS, "--editable", f"{tree}{extra}"], check=True, env=variables)
    subprocess.run([interpreter, "-m", "compileall", "-q", tree / "aotcuda"], check=True, env=variables)
    description = json.loads(_output(str(interpreter), "-P", "-c", _DESCRIBE, env=variables))
    files = tests or run_time_tests()
    runs: list[dict[str, object]] = []
    for path in paths:
        value, results = _PATHS[path], folder / "results.xml"
        options = ("-q", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin", f"--junitxml={results}")
        environ = variables if value is None else {**variables, "AOTCUDA_EXTENSION": value}
        command = [str(interpreter), "-m", "pytest", *options, *files]
        done = subprocess.run(command, check=False, env=environ, cwd=tree)
        if not results.is_file():
            sys.exit(f"{python}: pytest ended with exit status {done.returncode} and wrote no results")
        amount = "some unit tests" if tests else "unit tests"
        run = {**description, "what": f"{amount} of the run time, {path}", **outcome(results)}
        failures: Any = run["failed"]
        run |= {"failed": sum(failure["tests"] for failure in failures), "failures": failures, "tests": files}
        run |= {"why_skipped": _why_skipped(results), "date": datetime.now(UTC).date().isoformat(), "commit": commit}
        runs.append(run)
        results.unlink()
    return runs


def _why_skipped(results: Path) -> dict[str, int]:
    """Count the skipped tests by reason."""
    skipped = ET.parse(results).getroot().iter("skipped")  # noqa: S314 (pytest has just written it)
    return dict(Counter(re.sub(r"^.*Skipped: ", "", item.get("message") or "") for item in skipped).most_common())


def _output(*command: str, env: dict[str, str] | None = None) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout.strip()


def _order(run: dict[str, object]) -> tuple[object, ...]:
    return ([int(number) for number in re.findall(r"\d+", str(run["python"]))], run["python"], run["what"])


if __name__ == "__main__":
    main()
