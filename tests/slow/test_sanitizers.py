"""Run tests of launches with the fast path in C under AddressSanitizer and UndefinedBehaviorSanitizer.

    python3 tools/test.py -m matrix tests/slow/test_sanitizers.py

Other processes that the tests start use the extension with the sanitizers, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import launch_paths

ROOT = Path(__file__).parents[2]
OPTIONS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g"
FUZZ = "tests/slow/test_argument_fuzz.py"
UNITS = ("any_grid", "declines", "failed_allocations", "fast_path_limits", "runtime_*")
TESTS = {
    "argument fuzz": [FUZZ],
    "unit tests": [str(path) for name in UNITS for path in sorted(ROOT.glob(f"tests/unit/test_{name}.py"))],
}
IN_USE = "import sys; from aotcuda.runtime.launch import fast; sys.exit(fast.why_not())"


@pytest.mark.matrix
@pytest.mark.parametrize("tests", TESTS.values(), ids=TESTS)
def test_sanitizers_find_no_fault_in_the_extension(tests, tmp_path, extent, monkeypatch):
    monkeypatch.setenv("CFLAGS", OPTIONS)
    shutil.copytree(ROOT / "aotcuda", tmp_path / "aotcuda", ignore=shutil.ignore_patterns("__pycache__", "_launch*"))
    launch_paths.compile_extension(tmp_path / "aotcuda/runtime/launch/fast/_launch.so")
    libraries = [
        subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {
        **{
            name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")
        },  # a session of its own
        "LD_PRELOAD": ":".join(libraries),
        "PYTHONMALLOC": "malloc",  # so that each object is one allocation
        "PYTHONPATH": str(tmp_path),
        "PYTHONSAFEPATH": "1",  # the checkout comes later
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",  # Python frees little memory at exit
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    whole = [f"--whole={extent.folder}"] if extent.folder is not None and tests == [FUZZ] else []
    for command in (["-c", IN_USE], ["-m", "pytest", "-q", *whole, *tests]):
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
