"""Compare the build of a wheel of Triton kernels with Triton's JIT: seconds, processor seconds, bytes.

Triton compiles each variant that the wheel of `tests/packages/tritonkernels` has, in one process with an empty cache,
as its JIT does, one after the other. The times are of whole processes, imports included. A build after an edit of one
kernel takes the other kernels from the build cache.

    python bench/triton_build.py                      # where aotcuda, Triton and build are installed; needs no GPU
    python bench/triton_build.py --import torch --import fla.ops.gla.chunk --before TREE --out FILE

With `--import` the sources import these modules too, as packages do. `--before` also builds by another checkout.
"""

from __future__ import annotations

import ast
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path
from statistics import median
from typing import Any

import machine

_PROJECT = Path(__file__).resolve().parent.parent / "tests" / "packages" / "tritonkernels"
_TARGETS = {
    "one target": ["sm_90"],
    "four targets": ["sm_80", "sm_90", "sm_100", "sm_120"],
    "four targets and PTX": ["sm_80", "sm_90", "sm_100", "sm_120", "compute_80"],
}
_SHOWN = re.compile(r"void\((.*?); (.*?)\)(?: when .*)?")

_COMPILE = """
import importlib, json, sys

import triton_releases

variants, targets = json.load(sys.stdin)
for source, python, variant in variants:
    for target in targets:
        triton_releases.compile_variant(getattr(importlib.import_module(source), python), variant, target)
"""


def main() -> int:
    parser = machine.parser(__doc__, "triton_build")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--import", action="append", default=[], dest="modules", help="a module that the sources import"
    )
    parser.add_argument("--before", help="another checkout, in turn with this one")
    arguments = parser.parse_args()
    here = machine.describe()
    import triton

    figures: dict[str, Any] = {}
    for what, targets in [*_TARGETS.items()][: 1 if arguments.modules else None]:
        runs: dict[str, list[dict[str, float]]] = {}
        for _ in range(arguments.runs):
            if arguments.before:
                runs.setdefault("before", []).append(_build(targets, arguments.modules, arguments.before)[2])
            wheel, manifests, ours = _build(targets, arguments.modules)
            runs.setdefault("aotcuda", []).append(ours)
            variants = [variant for manifest in manifests for variant in _variants(manifest)]
            runs.setdefault("Triton", []).append(_compile(variants, targets, arguments.modules))
        figures[what] = {
            "targets": targets,
            "variants": len(variants),
            **{way: {name: median(run[name] for run in found) for name in found[0]} for way, found in runs.items()},
            "wheel_bytes": wheel,
        }
    machine.table(
        (
            "",
            "variants",
            "build, s",
            "edited, s",
            "processor, s",
            "Triton, s",
            "processor, s",
            "wheel, KB",
            "cubins, KB",
            "cache, KB",
        ),
        [
            (
                what,
                found["variants"],
                *(found["aotcuda"][name] for name in ("seconds", "edited_seconds", "processor_seconds")),
                *(found["Triton"][name] for name in ("seconds", "processor_seconds")),
                *(size / 1000 for size in (found["wheel_bytes"], found["Triton"]["cubin_bytes"])),
                found["Triton"]["cache_bytes"] / 1000,
            )
            for what, found in figures.items()
        ],
    )
    machine.write(arguments.out, here, triton=triton.__version__, imports=arguments.modules, figures=figures)
    return 0


def _build(
    targets: list[str], modules: list[str], tree: str = ""
) -> tuple[int, list[dict[str, Any]], dict[str, float]]:
    """Return the wheel's bytes, its manifests, and the times of a build and of one after an edit of one kernel."""
    with tempfile.TemporaryDirectory() as temporary:
        project = Path(shutil.copytree(_PROJECT, Path(temporary, "project"), ignore=shutil.ignore_patterns("dist")))
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check", str(project)]
        for source in project.glob("tritonkernels/_*.py"):
            source.write_text("".join(f"import {module}\n" for module in modules) + source.read_text())
        environment = {"AOTCUDA_ARCH": ";".join(targets), "PYTHONPATH": _path(tree)}
        times = _timed(command, "", **environment)
        environment["AOTCUDA_BUILD_CACHE"] = str(Path(temporary, "cache"))
        _timed(command, "", **environment)
        source = project / "tritonkernels" / "_kernels.py"
        source.write_text(source.read_text().replace("raised / tl.sum", "2 * raised / tl.sum"))
        times["edited_seconds"] = _timed(command, "", **environment)["seconds"]
        (wheel,) = project.glob("dist/*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".aotcuda/manifest.json")]
            return wheel.stat().st_size, [json.loads(archive.read(name)) for name in names], times


def _variants(manifest: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return source module, function and variant for each variant of a module's kernels."""
    table = tomllib.loads((_PROJECT / "pyproject.toml").read_text())["tool"]["aotcuda"]["modules"][manifest["module"]]
    found = []
    for kernel in manifest["kernels"]:
        for overload in kernel["overloads"]:
            shown = _SHOWN.fullmatch(overload["signature"])
            assert shown is not None, overload["signature"]
            constants = {name: ast.literal_eval(value) for name, value in re.findall(r"(\w+)=([^,]+)", shown[2])}
            options = {name: constants.pop(name) for name in ("num_warps", "num_stages")}
            variant = {"types": shown[1].split(", "), "constexprs": constants, **options}
            python = table["kernels"][kernel["name"]].get("python", kernel["name"])
            found.append((table["source"], python, variant))
    return found


def _path(*folders: str) -> str:
    return os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH", "")]))


def _compile(
    variants: list[tuple[str, str, dict[str, Any]]], targets: list[str], modules: list[str]
) -> dict[str, float]:
    """Compile variants by Triton for the targets with machine code; return its times and the bytes of its cache."""
    capabilities = [int(target[3:]) for target in targets if target.startswith("sm_")]
    with tempfile.TemporaryDirectory() as cache:
        environment = {"TRITON_CACHE_DIR": cache, "PYTHONPATH": _path(str(_PROJECT), str(Path(__file__).parent))}
        code = "".join(f"import {module}\n" for module in modules) + _COMPILE
        times = _timed([sys.executable, "-c", code], json.dumps([variants, capabilities]), **environment)
        files = [path for path in Path(cache).rglob("*") if path.is_file()]
        cubins = [path for path in files if path.suffix == ".cubin"]
        assert len(cubins) == len(variants) * len(capabilities), "Triton has compiled something else"
        return {
            **times,
            "cubin_bytes": sum(path.stat().st_size for path in cubins),
            "cache_bytes": sum(path.stat().st_size for path in files),
        }


def _timed(command: list[str], text: str, **environment: str) -> dict[str, float]:
    """Return the seconds of a command, and the processor seconds of its processes."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        command, check=True, input=text.encode(), stdout=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 3), "processor_seconds": round(processor, 3)}


if __name__ == "__main__":
    sys.exit(main())
