"""Compare the fast path with the general path over the stand-in driver; no GPU is needed.

    python bench/fuzz_arguments.py                          # 200,000 tuples of arguments
    python bench/fuzz_arguments.py --jobs 8                 # on so many cores
    python bench/fuzz_arguments.py --sanitize               # with the extension built under ASan and UBSan
    python bench/fuzz_arguments.py --seed 17 --seeds 1      # one seed again

`tests/support/argument_fuzz.py` generates the arguments. Each seed is one run of hypothesis with so many cases of 25
tuples, and gives the same cases again with the same versions of hypothesis and Python. `--sanitize` starts this script
anew with the sanitizers' libraries loaded first, since Python is not built with them; a finding ends the process. The
report names the seeds, the differences, and the launches of each path: a path with few launches was not tested.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import machine

ROOT = Path(__file__).parents[1]
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g"]
_CASES = 400
_MOST_SHOWN = 20


def main() -> int:
    parser = machine.parser(__doc__, "fuzz_arguments")
    parser.add_argument("--tuples", type=int, default=200_000, help="of arguments, at least")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--seeds", type=int, default=0, help="how many, whatever the number of tuples")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with other seeds")
    parser.add_argument("--sanitize", action="store_true", help="build the extension under ASan and UBSan")
    arguments = parser.parse_args()
    if arguments.jobs > 1:
        return _in_parallel(arguments)
    if arguments.sanitize and "AOTCUDA_FUZZ_SANITIZED" not in os.environ:
        return _sanitized()
    sys.path.insert(0, str(ROOT / "tests"))
    with tempfile.TemporaryDirectory() as folder:
        return _run(arguments, Path(folder))


def _run(arguments: Any, folder: Path) -> int:
    from hypothesis import HealthCheck, Phase, given, seed, settings

    from support import argument_fuzz

    fuzz = _fuzz(folder, sanitize=arguments.sanitize)
    differences: list[str] = []
    seeds: list[int] = []
    begin = time.monotonic()
    limits = settings(
        max_examples=_CASES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def run(case: Any) -> None:
        try:
            fuzz.run(case)
        except argument_fuzz.DifferenceError as difference:
            differences.append(f"seed {seeds[-1]}: {difference}")
            if len(differences) <= _MOST_SHOWN:
                print(f"\n{differences[-1]}", flush=True)

    with argument_fuzz.patched():
        while len(seeds) < arguments.seeds if arguments.seeds else fuzz.tuples < arguments.tuples:
            seeds.append(arguments.seed + len(seeds))
            seed(seeds[-1])(limits(given(argument_fuzz.cases())(run)))()
            print(f"seed {seeds[-1]}: {fuzz.tuples:,} tuples, {len(differences)} differences", flush=True)
    launches = {path: fuzz.launches[path] for path in argument_fuzz.PATHS}
    print(f"refused {fuzz.errors:,}; launches by kernel, and by the path that took them: {launches}")
    machine.write(
        arguments.out,
        machine.describe(),
        sanitized=arguments.sanitize,
        hypothesis=importlib.import_module("hypothesis").__version__,
        seconds=round(time.monotonic() - begin),
        seeds={"first": seeds[0], "last": seeds[-1], "cases": _CASES},
        tuples=fuzz.tuples,
        refused=fuzz.errors,
        launches=launches,
        differences=len(differences),
        first_differences=differences[:_MOST_SHOWN],
    )
    return 1 if differences else 0


def _in_parallel(arguments: Any) -> int:
    """Run this script in several processes, and join their reports."""
    here = machine.describe()
    each = arguments.seeds or -(-arguments.tuples // (_CASES * 25 * arguments.jobs)) + 1
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        reports = [Path(folder, f"{job}.json") for job in range(arguments.jobs)]
        command = [sys.executable, __file__, f"--seeds={each}", *(["--sanitize"] if arguments.sanitize else [])]
        processes = [
            subprocess.Popen([*command, f"--seed={arguments.seed + each * job}", f"--out={report}"])
            for job, report in enumerate(reports)
        ]
        codes = [process.wait() for process in processes]
        found = [json.loads(report.read_text(encoding="utf-8")) for report in reports if report.is_file()]
    launches = {
        path: {by: sum(report["launches"][path][by] for report in found) for by in report_by}
        for path, report_by in (found[0]["launches"].items() if found else ())
    }
    machine.write(
        arguments.out,
        here,
        sanitized=arguments.sanitize,
        hypothesis=found[0]["hypothesis"] if found else "",
        seconds=round(time.monotonic() - begin),
        seeds={"first": arguments.seed, "last": arguments.seed + each * arguments.jobs - 1, "cases": _CASES},
        processes={"started": arguments.jobs, "ended without a report": arguments.jobs - len(found)},
        tuples=sum(report["tuples"] for report in found),
        refused=sum(report["refused"] for report in found),
        launches=launches,
        differences=sum(report["differences"] for report in found),
        first_differences=[text for report in found for text in report["first_differences"]][:_MOST_SHOWN],
    )
    return 1 if any(codes) else 0


def _fuzz(folder: Path, *, sanitize: bool) -> Any:
    """Return the fuzz over a packaged module of the stand-in driver."""
    from aotcuda.runtime import driver
    from support import argument_fuzz, manifests

    library = folder / "libcuda.so.1"
    _compile([ROOT / "tests" / "support" / "fake_libcuda.c"], library, ["-lpthread"])
    compiled = folder / "_launch.so"
    stable = [] if sysconfig.get_config_var("Py_GIL_DISABLED") else ["-DPy_LIMITED_API=0x030B0000"]
    options = [*stable, f"-I{sysconfig.get_path('include')}", *(_SANITIZERS if sanitize else [])]
    _compile(sorted((ROOT / "aotcuda" / "runtime" / "launch" / "fast").glob("*.c")), compiled, options)
    spec = importlib.util.spec_from_file_location("aotcuda.runtime.launch.fast._launch", compiled)
    assert spec is not None
    assert spec.loader is not None
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    driver.LIBRARY = str(library)
    manifests.write(folder, [manifests.kernel("k", "void()")])
    sys.path.insert(0, str(folder))
    packaged = importlib.import_module("mypkg.kernels")
    packaged.k[1, 1]()
    return argument_fuzz.Fuzz(packaged.__aotcuda__, ctypes.CDLL(str(library)), extension)


def _compile(sources: list[Path], library: Path, options: list[str]) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        sys.exit("this needs a C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, *sources, *options], check=True)


def _sanitized() -> int:
    """Run this script again, with the sanitizers' run time loaded first."""
    names = ("libasan.so", "libubsan.so")
    found = [
        subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
        for name in names
    ]
    environment = {
        **os.environ,
        "AOTCUDA_FUZZ_SANITIZED": "1",
        "LD_PRELOAD": ":".join(found),
        "PYTHONMALLOC": "malloc",  # so that each object is one allocation
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",  # Python frees little memory at exit
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
