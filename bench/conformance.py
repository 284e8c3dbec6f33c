"""Compare kernels of each release of the compilers with right results: the suite `tests/slow/conformance`.

    python bench/conformance.py build FOLDER                     # wheels of all cases; needs no GPU
    python bench/conformance.py run FOLDER --out DIRECTORY       # on a GPU, with CuPy; needs no compiler

`build` makes a folder for each release, with a wheel and a file that names the kernels which the compiler refuses.
`run` writes one JSON file for each release. A kernel that ends the context ends a
process of its chain alone, and the next process goes on with the next case.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np  # noqa: E402

from slow.conformance import outcome, project  # noqa: E402
from slow.conformance.cases import CASES  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slow.conformance.case import Case

COMPILERS = ("numba-cuda", "numba-cuda-mlir")
SECOND = "numba-cuda"
"""The compiler whose results are the oracle of the cases in which Numba differs from Python on purpose."""
SILENCE = 60
"""The seconds that a case may take."""
CHUNK = 250
"""Cases of one chain of processes."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    builds = commands.add_parser("build")
    builds.add_argument("folder", type=Path)
    builds.add_argument("--release", action="append", metavar="NAME==VERSION", help="these releases alone")
    builds.add_argument("--every", type=int, default=1, metavar="N", help="every Nth case")
    runs = commands.add_parser("run")
    runs.add_argument("folder", type=Path)
    runs.add_argument("--out", type=Path, default=machine.RESULTS, help="the folder of the JSON files (%(default)s)")
    runs.add_argument("--processes", type=int, default=8, help="chains that run at a time (%(default)s)")
    chain = commands.add_parser("chain", help="a process of `run`, for cases of one wheel, named on standard input")
    chain.add_argument("site", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "build":
        return build(arguments.folder, arguments.release or releases(), arguments.every)
    if arguments.command == "chain":
        return run_chain(arguments.site)
    return run(arguments.folder, arguments.out, processes=arguments.processes)


# Wheels.


def releases() -> list[str]:
    """Return the last release of numba-cuda, and all accepted ones of the other compiler."""
    from aotcuda import registry

    tested = {name: registry.BUILT_IN[name].tested for name in COMPILERS}
    others = (f"{COMPILERS[1]}=={release}" for release in reversed(tested[COMPILERS[1]]))
    return [f"{SECOND}=={tested[SECOND][-1]}", *others]


def build(folder: Path, wanted: Sequence[str], every: int) -> int:
    """Build the wheel of each release."""
    from importlib.metadata import version

    cases = [*CASES.values()][::every]
    for text in wanted:
        name, _, release = text.partition("==")
        environment = {**os.environ, "AOTCUDA_PROGRESS": "0", "AOTCUDA_UNTESTED": "1"}
        environment.setdefault("AOTCUDA_BUILD_CACHE", str(folder.resolve() / "cache"))
        with tempfile.TemporaryDirectory() as temporary:
            if version(name) != release:
                overlay = Path(temporary, "overlay")
                pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps")
                subprocess.run([*pip, "--target", overlay, text], check=True)
                environment["PYTHONPATH"] = str(overlay)
            wheel, refused = project.build(Path(temporary, "project"), name, cases, environment)
            target = folder / f"{name}-{release}"
            target.mkdir(parents=True, exist_ok=True)
            (target / wheel.name).write_bytes(wheel.read_bytes())
        versions = {one: version(one) for one in ("numba", "llvmlite", "numpy", "cuda-bindings", "nvidia-nvvm")}
        about = {"compiler": name, "release": release, "beside": versions, "refused": refused}
        about["cases"] = [case.name for case in cases]
        (target / "built.json").write_text(json.dumps(about, indent=1) + "\n")
        print(
            f"{text}: {len(cases)} cases, {len(refused)} refused, {(target / wheel.name).stat().st_size} bytes",
            flush=True,
        )
    return 0


# One release after another, in chains of processes.


def run(folder: Path, out: Path, *, processes: int) -> int:
    """Run all wheels below a folder, and write a JSON file for each."""
    here = machine.describe()
    built = [json.loads(path.read_text()) | {"folder": path.parent} for path in sorted(folder.glob("*/built.json"))]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(processes) as pool:
        chains = []
        for item in built:
            site = Path(temporary, item["folder"].name)
            (wheel,) = item["folder"].glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)  # as pip installs a wheel of nothing but modules and data
            names = [name for name in item["cases"] if name not in item["refused"]]
            chunks = [names[start : start + CHUNK] for start in range(0, len(names), CHUNK)]
            chains.append([pool.submit(_chained, site, chunk) for chunk in chunks])
        found = [{name: result for chunk in chunks for name, result in chunk.result().items()} for chunks in chains]
    second = {item["compiler"]: results for item, results in zip(built, found, strict=True)}.get(SECOND, {})
    rows = []
    for item, results in zip(built, found, strict=True):
        failed = {name: text for name, result in results.items() if (text := _failure(CASES[name], result, second))}
        groups = _by_group(item, results, failed)
        path = out / f"conformance_{item['compiler']}_{item['release']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        report = {key: item[key] for key in ("compiler", "release", "beside")}
        report |= {
            "by": "GPU",
            "cases": len(results),
            "passed": len(results) - len(failed),
        }
        report |= {"groups": groups, "failed": failed, "refused": item["refused"], "covers": " ".join(item["cases"])}
        machine.write(path, here, **report)
        rows.append((f"{item['compiler']} {item['release']}", len(results), len(failed), len(item["refused"])))
    machine.table(("release", "cases", "wrong", "refused"), rows)
    return 0


def _failure(case: Case, result: dict[str, Any], second: dict[str, dict[str, Any]]) -> str:
    """Return the fault of a case, or an empty text."""
    if "error" in result:
        return str(result["error"])
    if case.oracle == "python":
        return "; ".join(result["wrong"])
    oracle = second.get(case.name, {})
    if "arrays" not in oracle:
        return ""
    found, wanted = (_arrays(case, one["arrays"]) for one in (result, oracle))
    return "; ".join(outcome.differences(case, found, wanted))


def _arrays(case: Case, given: dict[str, str]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, text in given.items():
        value = case.arguments[name]
        arrays[name] = np.frombuffer(bytes.fromhex(text), value.dtype).reshape(value.shape)
    return arrays


def _by_group(
    item: dict[str, Any], results: dict[str, dict[str, Any]], failed: dict[str, str]
) -> dict[str, dict[str, int]]:
    groups: dict[str, dict[str, int]] = {}
    for kind, names in (("cases", results), ("wrong", failed), ("refused", item["refused"])):
        for name in names:
            row = groups.setdefault(CASES[name].group, {"cases": 0, "wrong": 0, "refused": 0})
            row[kind] += 1
    return groups


def _chained(site: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Run cases in a chain of processes; after a case that ends its process, the next process runs the next case."""
    found: dict[str, dict[str, Any]] = {}
    while left := [name for name in names if name not in found]:
        before = len(found)
        for result in _results(site, left):
            found[result.pop("name")] = result
        if len(found) == before:
            found[left[0]] = {"error": "the process ends before the first case"}
    return found


def _results(site: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Return one process's result of each case; for the case in which it ends, the way it ended."""
    command = [sys.executable, __file__, "chain", str(site)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write("\n".join(names))
    process.stdin.close()
    errors: list[str] = []
    reader = threading.Thread(target=errors.extend, args=(process.stderr,))
    reader.start()
    left = iter(names)
    while True:
        watch = threading.Timer(SILENCE, process.kill)
        watch.start()
        line = process.stdout.readline()
        watch.cancel()
        if not line:
            break
        result = json.loads(line)
        next(left)
        yield result
        if result.get("sticky"):
            break
    process.kill()
    status = process.wait()
    reader.join()
    if not line and (name := next(left, None)) is not None:
        yield {"name": name, "error": f"the process ends with status {status}: {' '.join(errors)[-300:]}"}


# Inside of a process of a chain.


def run_chain(site: Path) -> int:
    """Run the cases that standard input names, and print a line of JSON for each."""
    import importlib

    sys.path.insert(0, str(site))
    names = sys.stdin.read().split()
    kernels: dict[str, Any] = {}
    for folder in sorted((site / project.PACKAGE).glob("*.aotcuda")):
        manifest = json.loads((folder / "manifest.json").read_text())
        module = importlib.import_module(f"{project.PACKAGE}.{folder.stem}")
        kernels |= {item["name"]: getattr(module, item["name"]) for item in manifest["kernels"]}
    cupy = importlib.import_module("cupy")
    for name in names:
        case = CASES[name]
        result: dict[str, Any] = {"name": name}
        try:
            arrays = outcome.run_on_gpu(case, kernels[case.kernel], cupy)
        except outcome.FaultError as error:
            result["error"] = str(error)
        except Exception as error:  # noqa: BLE001 (whatever the driver says is the result)
            result |= {"error": f"{type(error).__name__}: {str(error)[:300]}", "sticky": True}
        else:
            if case.oracle == "python":
                result["wrong"] = outcome.differences(case, arrays, outcome.expected(case))
            else:
                result["arrays"] = {key: value.tobytes().hex() for key, value in arrays.items()}
        print(json.dumps(result), flush=True)
        if result.get("sticky"):
            os._exit(1)  # the context is lost, so nothing can be freed
    return 0


if __name__ == "__main__":
    sys.exit(main())
