"""Compare published Triton packages by Triton's JIT with packs of them: compilations, bits, GPU time, first results.

The packages stay unchanged. `programs.py` has a small program for each. Without a GPU, in an environment with
the GPU machine's Python, PyTorch and Triton:

    pip download --no-deps torchao==0.18.0 gemlite==0.6.0.post2 flash-kmeans==0.3.1 liger-kernel==0.8.5 \
        xformers==0.0.35 flag-gems==5.0.2 mamba-ssm==2.3.2.post1 einops==0.8.2 spconv-triton==1.0.0
    pip wheel --no-deps gemlite-*.tar.gz
    python bench/packages.py prepare /tmp/packages *.whl mamba*.tar.gz
    python bench/packages.py record /tmp/packages       # dry, with three sizes
    python bench/packages.py build /tmp/packages        # a pack for each package; --exact: without general variants
    python bench/packages.py builds /tmp/packages       # write what the builds cost, lowering and ptxas apart
    python bench/packages.py export /tmp/packages liger torchao gemlite
    python bench/packages.py check /tmp/packages        # the variants of all launches, in dry runs with the packs

On a machine with a GPU, each prints a table and writes a part of docs/results/packages.json:

    python bench/packages.py tables /tmp/packages       # compilations, timings, exceptions, bits, warm-ups
    python bench/packages.py general /tmp/packages      # GPU time of general variants beside the JIT's own code
    python bench/packages.py firsts /tmp/packages liger # first results from the start of a process
    python bench/packages.py cold /tmp/packages         # load the packs, with general variants and without
    python bench/packages.py cached /tmp/packages liger # the exported cache with Triton itself
    python bench/packages.py launches /tmp/packages     # host time of plain, heuristic and autotuned launches
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import machine
from programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable

_HERE = Path(__file__).resolve()
_CACHES = Path("/tmp/aotcuda-triton-cache")  # Triton stores absolute paths, so both machines use this one
_LAUNCHED = "launched"
_ENVIRONMENT = {"GEMS_VENDOR": "nvidia"}
PROJECT = """
[build-system]
requires = ["hatchling", "aotcuda[triton]"]
build-backend = "hatchling.build"

[project]
name = "{name}-pack"
version = "1"
dependencies = ["aotcuda"]

[tool.hatch.build.targets.wheel]
packages = ["{pack}"]

[tool.hatch.build.targets.wheel.hooks.aotcuda]

[tool.aotcuda]
arch = ["sm_90"]
"""
_SOURCE = """
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (128, 256)]

@triton.jit
def plain(a, x0, x1, x2, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x0 + i, mask=i < n) + tl.load(x1 + i, mask=i < n) + tl.load(x2 + i, mask=i < n)
    tl.store(x0 + i, a * total, mask=i < n)

@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def heuristic(a, x0, x1, x2, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n if not EVEN else i < n + BLOCK
    total = tl.load(x0 + i, mask=mask) + tl.load(x1 + i, mask=mask) + tl.load(x2 + i, mask=mask)
    tl.store(x0 + i, a * total, mask=mask)

@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def autotuned(a, x0, x1, x2, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x0 + i, mask=i < n) + tl.load(x1 + i, mask=i < n) + tl.load(x2 + i, mask=i < n)
    tl.store(x0 + i, a * total, mask=i < n)
"""
MEASURES = """
import os, resource
from aotcuda.common import after_import

def cost():
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in found)

def measured(function):
    def call(*args, **named):
        before = cost()
        try:
            return function(*args, **named)
        finally:
            with open(os.environ["COMPILER_SECONDS"], "a") as file:
                file.write(f"{cost() - before}\\n")
    return call

def measure(module):
    for each in ("compile_variant", "assemble"):
        setattr(module, each, measured(getattr(module, each)))

after_import.call("aotcuda.builder.frontends.triton.compilation", measure)
"""
"""A `sitecustomize` that measures the processor time of lowering and ptxas in the workers of a build."""
_DTYPES = {
    "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32",
    "fp64": "float64", "i1": "bool", **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}" for n in (8, 16, 32, 64)},
}  # fmt: skip
_LOOP = r"""
#include <time.h>
double loop(int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                          void **), void *kernel, void **parameters, int count)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < count; i++)
        if (launch(kernel, 8, 1, 1, 128, 1, 1, 0, 0, parameters, 0))
            return -1;
    clock_gettime(CLOCK_MONOTONIC, &end);
    return end.tv_sec - begin.tv_sec + 1e-9 * (end.tv_nsec - begin.tv_nsec);
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("items", nargs="*", help="names of programs; wheels for `prepare`")
    parser.add_argument("--out", type=Path, default=machine.RESULTS, help="the folder of packages.json (%(default)s)")
    parser.add_argument("--exact", action="store_true", help="build without general variants")
    parser.add_argument("--seconds", type=float, default=240, help="the time after which nothing more is started")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    arguments.out = arguments.out.resolve()
    arguments.until = time.monotonic() + arguments.seconds
    if arguments.step == "child":
        options = json.loads(arguments.items[0])
        (load_cold if options["way"] == "cold" else child)(options)
        return 0
    if arguments.step != "prepare" and not arguments.items:
        arguments.items = [name for name in PROGRAMS if (arguments.folder / name).is_dir()]
    return STEPS[arguments.step](arguments) or 0


# ------------------------------------------------------------------------------------------------------- without a GPU


def prepare(arguments: argparse.Namespace) -> None:
    """Unpack the packages without machine code, and make the project of each pack."""
    site = arguments.folder / "site"
    for item in map(Path, arguments.items):
        if item.suffix == ".whl":
            with zipfile.ZipFile(item) as archive:
                archive.extractall(site, [name for name in archive.namelist() if not name.endswith(".so")])
        else:
            _unpack_source(item, site)
    (site / _LAUNCHED).mkdir(exist_ok=True)
    (site / _LAUNCHED / "__init__.py").write_text(_SOURCE.lstrip())
    _describe(site, _LAUNCHED, "1")
    for name in [*PROGRAMS, _LAUNCHED]:
        pack = f"{name}_pack"
        (arguments.folder / name / pack).mkdir(parents=True, exist_ok=True)
        (arguments.folder / name / pack / "__init__.py").write_text(
            "from aotcuda import packs\n\npacks.use(__name__)\n"
        )
        text = PROJECT.format(name=name.replace("_", "-"), pack=pack)
        (arguments.folder / name / "pyproject.toml").write_text(text)


def _unpack_source(path: Path, site: Path) -> None:
    """Unpack the Triton files of mamba-ssm, whose own `__init__` imports machine code."""
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            name = member.name.partition("/")[2]
            if member.isfile() and name.startswith(("mamba_ssm/ops/", "mamba_ssm/utils/")):
                (site / name).parent.mkdir(parents=True, exist_ok=True)
                (site / name).write_bytes(archive.extractfile(member).read())  # type: ignore[union-attr]
    number = re.search(r"-([^-]+)\.tar", path.name)[1]  # type: ignore[index]
    (site / "mamba_ssm/__init__.py").write_text(f'__version__ = "{number}"\n')
    _describe(site, "mamba_ssm", number)


def _describe(site: Path, name: str, version: str) -> None:
    """Write the metadata of an installed distribution, which packs need."""
    metadata = site / f"{name}-{version}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    files = "".join(f"{file.relative_to(site)},,\n" for file in sorted((site / name).rglob("*.py")))
    (metadata / "RECORD").write_text(files)


def record(arguments: argparse.Namespace) -> int:
    """Record each program with its three sizes, in a dry run."""
    status = 0
    for name in arguments.items:
        packages = PROGRAMS[name].packages if name in PROGRAMS else _LAUNCHED
        command = [sys.executable, "-m", "aotcuda", "record", "--dry", "--gpu", "H200", "--write"]
        command += ["--packages", packages, "--"]
        failed, found = _run(arguments, command, name, cwd=arguments.folder / name, way="jit", shapes="recorded")
        for size, error in found["errors"].items():
            print(f"{name}, {size}: {error}; what follows is not recorded")
        status |= failed or bool(found["errors"])
    return status


def build(arguments: argparse.Namespace) -> int:
    """Build a pack of each program, and write wall time, processor time, sizes and numbers of variants."""
    status = 0
    for name in arguments.items:
        root, out = arguments.folder / name, arguments.folder / ("exact" if arguments.exact else "packs")
        project = root / "pyproject.toml"
        text = project.read_text()
        if arguments.exact:
            project.write_text(text.replace("\npack = true", "\npack = true\ngeneral = false"))
        measures, seconds = arguments.folder / "measures" / "sitecustomize.py", root / "seconds"
        measures.parent.mkdir(exist_ok=True)
        measures.write_text(MEASURES)
        seconds.write_text("")
        environ = {
            **os.environ,
            **_ENVIRONMENT,
            "PYTHONPATH": os.pathsep.join([str(measures.parent), str(arguments.folder / "site")]),
            "AOTCUDA_BUILD_CACHE": "0",
            "COMPILER_SECONDS": str(seconds),
        }
        begin, before = time.perf_counter(), os.times()
        command = [sys.executable, "-m", "build", "-nxw", "-o", str(out), str(root)]
        status |= subprocess.run(command, check=False, env=environ).returncode
        project.write_text(text)
        after = os.times()
        wheel = next(out.glob(f"{name}_pack-*.whl"), None)
        if wheel is None:
            continue
        figures = {
            "seconds": time.perf_counter() - begin,
            "processor": after.children_user + after.children_system - before.children_user - before.children_system,
            "compilers": sum(map(float, seconds.read_text().split())),
            "bytes": wheel.stat().st_size,
            **variants(wheel),
        }
        figures["ratio"] = figures["processor"] / figures["compilers"]
        (root / ("exact.json" if arguments.exact else "build.json")).write_text(json.dumps(figures))
        print(f"{name}: {figures}", flush=True)
    return status


def builds(arguments: argparse.Namespace) -> int:
    """Write the figures of builds that `build` has left, with general variants and without."""
    found = {}
    for name in arguments.items:
        files = {"general": arguments.folder / name / "build.json", "exact": arguments.folder / name / "exact.json"}
        found[name] = {kind: json.loads(file.read_text()) for kind, file in files.items() if file.is_file()}
    keys = ("exact", "general", "bytes", "processor", "compilers", "ratio")
    rows = [
        (name, kind, *(figures.get(key, 0) for key in keys))
        for name, by_variants in found.items()
        for kind, figures in by_variants.items()
    ]
    machine.table(
        ("pack", "variants", "exact", "general", "bytes", "processor, s", "lowering and ptxas, s", "ratio"), rows
    )
    return _write(arguments, "builds", found)


def variants(wheel: Path) -> dict[str, int]:
    """Return the numbers of kernels and of exact and general variants of a pack."""
    kernels = []
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith("/manifest.json"):
                kernels += json.loads(archive.read(name))["kernels"]
    overloads = [overload for kernel in kernels for overload in kernel["overloads"]]
    general = sum(overload.get("general", False) for overload in overloads)
    return {"kernels": len(kernels), "exact": len(overloads) - general, "general": general}


def export(arguments: argparse.Namespace) -> int:
    """Export Triton's cache of each program."""
    status = 0
    for name in arguments.items:
        out = arguments.folder / "caches" / name
        command = [sys.executable, "-m", "aotcuda", "export", "triton-cache", str(arguments.folder / name)]
        command += ["--out", str(out), "--at", str(_CACHES / name)]
        environ = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": str(arguments.folder / "site")}
        status |= subprocess.run(command, check=False, env=environ).returncode
    return status


def check(arguments: argparse.Namespace) -> int:
    """Print the variants that launches with recorded and other sizes find in the packs, in dry runs."""
    _install(arguments.folder)
    rows = []
    for name in arguments.items:
        for shapes in ("recorded", "other"):
            with tempfile.TemporaryDirectory() as folder:
                begin = [sys.executable, "-m", "aotcuda", "record", "--dry", "--gpu", "H200", "--out"]
                begin += [f"{folder}/record.json", "--packages", PROGRAMS[name].packages, "--"]
                found = _run(arguments, begin, name, cwd=Path(folder), way="dry", shapes=shapes)[1]
            counts = found.get("counts", {})
            rows.append(
                (name, shapes, *(counts.get(key, 0) for key in ("exact", "general", "missed")), found["errors"])
            )
            for miss, count in found.get("misses", {}).items():
                print(f"  {name}, {shapes}: {count} times {miss}"[:600])
    machine.table(("program", "sizes", "exact", "general", "missed", "errors"), rows)
    return int(any(row[4] for row in rows if row[1] == "recorded"))


# --------------------------------------------------------------------------------------------------------- with a GPU


def tables(arguments: argparse.Namespace) -> int:
    """Run each program by the JIT twice and with the pack, with recorded and other sizes, and warm its kernels up."""
    _install(arguments.folder)
    keys = [(name, shapes) for name in arguments.items for shapes in ("recorded", "other")]
    with ThreadPoolExecutor(16) as pool:
        found_by_key = dict(zip(keys, pool.map(lambda key: _tables_of(arguments, *key), keys), strict=True))
    done = {name: {shapes: found_by_key[name, shapes] for shapes in ("recorded", "other")} for name in arguments.items}
    rows = []
    for name, by_shapes in done.items():
        for shapes, found in by_shapes.items():
            packed, jit = found["pack"], found["jit"]
            counts = packed.get("counts", {})
            figures = [counts.get(key, "-") for key in ("compiled", "timed", "by_jit", "exact", "general")]
            rows.append((name, shapes, *figures, len(packed["errors"]), f"{found['same']}/{found['stable']}"))
            for way, errors in (("JIT", jit["errors"]), ("pack", packed["errors"])):
                for size, error in errors.items():
                    print(f"  {name}, {shapes}, {size}, {way}: {error}"[:300])
            for line in [f"{kernel} compiled {count}" for kernel, count in packed.get("compiled", {}).items()]:
                print(f"  {name}, {shapes}: {line}")
            for line in found["different"]:
                print(f"  {name}, {shapes}: other bits: {line}")
    header = ("program", "sizes", "compiled", "timed", "by JIT", "exact", "general", "errors", "same bits")
    machine.table(header, rows)
    warm = {name: by_shapes["recorded"]["pack"].get("warm", {}) for name, by_shapes in done.items()}
    machine.table(
        ("warm-ups", "kernels", "compiled", "errors"),
        [
            (name, found.get("kernels", 0), found.get("compiled", "-"), len(found.get("errors", ())))
            for name, found in warm.items()
        ],
    )
    for name, found in warm.items():
        for error in found.get("errors", ()):
            print(f"  {name}: {error}"[:300])
    return _write(arguments, "tables", done)


def _tables_of(arguments: argparse.Namespace, name: str, shapes: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as empty:
        for way, key, folder in (("pack", "pack", empty), ("jit", "jit", cache), ("jit", "again", cache)):
            more: dict[str, Any] = {"AOTCUDA_TUNE": "first", "TRITON_CACHE_DIR": folder}
            found[key] = _run(arguments, [], name, way=way, shapes=shapes, first=True, warms=True, **more)[1]
    one, other, packed = (found[key].get("digests", {}) for key in ("jit", "again", "pack"))
    stable = [key for key in one if one[key] == other.get(key)]
    same = [key for key in stable if one[key] == packed.get(key)]
    return {**found, "stable": len(stable), "same": len(same), "different": sorted({*stable} - {*same})}


def general(arguments: argparse.Namespace) -> int:
    """Time each launch that a general variant serves beside the code that the JIT compiles for it.

    Recorded sizes are also launched with packs whose exact variants are hidden: "hidden" in the result.
    """
    _install(arguments.folder)
    _hide_exact(arguments.folder)
    rows = []
    with contextlib.ExitStack() as stack:
        processes = {}
        for name in arguments.items:
            for shapes in ("recorded", "other", "hidden"):
                work = stack.enter_context(tempfile.TemporaryDirectory())
                more: dict[str, Any] = {"AOTCUDA_TUNE": "first", "TRITON_CACHE_DIR": work, "first": True}
                command, environ = _child(
                    arguments.folder, name, way="general", shapes=shapes, out=f"{work}/found.json", **more
                )
                processes[name, shapes, work] = subprocess.Popen(
                    command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
        for process in processes.values():  # they compile at the same time, and use the GPU one after the other
            process.stdout.readline()  # type: ignore[union-attr]
        for (name, shapes, work), process in processes.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate("\n", timeout=max(1, arguments.until - time.monotonic()))
            process.kill()
            path = Path(work, "found.json")
            found: Any = {"errors": {"process": "not finished"}}
            if path.exists():
                found = json.loads(path.read_text())
            rows += [{"program": name, "sizes": shapes, **each} for each in found.get("timed", ())]
            for size, error in found["errors"].items():
                print(f"  {name}, {shapes}, {size}: {error}"[:300])
    machine.table(
        ("kernel", "program", "sizes", "size", "general, us", "JIT, us", "ratio"),
        [
            (r["kernel"], r["program"], r["sizes"], r["size"], r["general"], r["jit"], r["ratio"])
            for r in sorted(rows, key=lambda r: r["ratio"])
        ],
    )
    for title, chosen in (
        ("sizes that were not recorded", [row for row in rows if row["sizes"] != "hidden"]),
        ("recorded sizes without their exact variants", [row for row in rows if row["sizes"] == "hidden"]),
    ):
        ratios = [row["ratio"] for row in chosen] or [0.0]
        kernels = len({row["kernel"] for row in chosen})
        text = f"{len(chosen)} launches of {kernels} kernels: median {median(ratios):.3f}, worst {max(ratios):.3f}"
        print(f"{title}: {text}")
    for each in rows:
        if each["ratio"] > 1.1:
            print(f"  {each['kernel']}: {each['chosen']}\n    the JIT's: {each['own']}")
    return _write(arguments, "general", rows)


def _hide_exact(folder: Path) -> None:
    """Write the packs to `hidden` with their general variants alone."""
    hidden = folder / "hidden"
    if hidden.exists():
        return
    shutil.copytree(folder / "installed", hidden)
    for path in hidden.rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        for kernel in manifest["kernels"]:
            kernel["overloads"] = [each for each in kernel["overloads"] if each.get("general")] or kernel["overloads"]
        path.write_text(json.dumps(manifest))
        mark = path.with_name("in-place")
        first, line = mark.read_text().splitlines()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        mark.write_text(f"{first}\n{line.partition(' ')[0]} {digest}\n")


_FIRSTS = (("jit", "JIT"), ("jit", "warm cache"), ("jit", "exported cache"), ("pack", "pack"))


def firsts(arguments: argparse.Namespace) -> int:
    """Measure the seconds from the start of a process to its first result; the ways of a round run at the same time."""
    _install(arguments.folder)
    seconds: dict[str, dict[str, list[float]]] = {}
    for name in arguments.items:
        with tempfile.TemporaryDirectory() as warm, ThreadPoolExecutor(len(_FIRSTS)) as pool:
            _run(arguments, [], name, way="jit", shapes="one", TRITON_CACHE_DIR=warm)  # also fills the page cache
            ways = [item for item in _FIRSTS if item[1] != "exported cache" or _place_cache(arguments.folder, name)]
            for _ in range(arguments.rounds):
                if time.monotonic() > arguments.until:
                    break
                first = functools.partial(_first, arguments, name, warm)
                for (_, label), found in zip(ways, pool.map(first, ways), strict=True):
                    for key, value in found.items():
                        seconds.setdefault(name, {}).setdefault(label + key, []).append(value)
    rows: list[tuple[object, ...]] = [
        (name, label, len(each), median(each), min(each), max(each))
        for name, by_label in seconds.items()
        for label, each in by_label.items()
    ]
    machine.table(("program", "seconds from the start of the process", "n", "median", "least", "most"), rows)
    return _write(arguments, f"firsts_{'_'.join(arguments.items)}", seconds)


def _first(arguments: argparse.Namespace, name: str, warm: str, item: tuple[str, str]) -> dict[str, float]:
    """Return the seconds from the start of a process to the end of its imports and to its first result."""
    way, label = item
    with tempfile.TemporaryDirectory() as empty:
        cache = {"warm cache": warm, "exported cache": str(_CACHES / name)}.get(label, empty)
        more: dict[str, Any] = {"TRITON_CACHE_DIR": cache, **({"AOTCUDA_TUNE": "first"} if way == "pack" else {})}
        begin = time.time()
        found = _run(arguments, [], name, way=way, shapes="one", **more)[1]
        return {} if found["errors"] else {"": found["at"] - begin, ", imports": found["imported"] - begin}


def cold(arguments: argparse.Namespace) -> int:
    """Load the packs in fresh processes, with general variants and without; add the figures of their builds."""
    _install(arguments.folder)
    _install(arguments.folder, "exact")
    result: dict[str, Any] = {}
    for round_ in range(arguments.rounds):
        for name in arguments.items:
            for variants, packs, build in (("general", "installed", "build"), ("exact", "installed-exact", "exact")):
                file = arguments.folder / name / f"{build}.json"
                if not file.is_file():
                    continue
                found = _run(arguments, [], name, way="cold", packs=packs)[1]
                if not round_:
                    result.setdefault(name, {})[variants] = {"build": json.loads(file.read_text())}
                for key, value in found.get("cold", {}).items():
                    result[name][variants].setdefault(key, []).append(value)
                for error in found["errors"].values():
                    print(f"  {name}, {variants}: {error}")
    rows = []
    for name, by_variants in result.items():
        for variants, found in by_variants.items():
            built = found["build"]
            figures = [built["exact"], built["general"], built["bytes"] / 1e3, built["processor"], built["seconds"]]
            loads = [1e3 * median(found.get(key, [0.0])) for key in ("import", "load", "kernels")]
            rows.append((name, variants, *figures, *loads))
    header = ("pack", "variants", "exact", "general", "kB", "processor, s", "build, s")
    machine.table((*header, "import, ms", "load, ms", "all kernels, ms"), rows)
    return _write(arguments, "cold", result)


def cached(arguments: argparse.Namespace) -> int:
    """Run programs by Triton itself with an exported cache: hits, misses, runs of compilers, bits."""
    _install(arguments.folder)
    names = [name for name in arguments.items if _place_cache(arguments.folder, name)]
    with ThreadPoolExecutor(8) as pool:
        result = dict(zip(names, pool.map(lambda name: _cached_of(arguments, name), names), strict=True))
    rows = []
    for name, found in result.items():
        for label in ("exported", "empty"):
            counts = found[label].get("counts", {})
            figures = [counts.get(key, "-") for key in ("hits", "misses", "ptxas", "gcc")]
            bits = f"{found['same']}/{found['stable']}"
            rows.append((name, label, *figures, len(found[label]["errors"]), bits, found[label].get("all", 0.0)))
        for kernel in found["exported"].get("missed", ()):
            print(f"  {name}: missed {kernel}")
    machine.table(("program", "cache", "hits", "misses", "ptxas", "gcc", "errors", "same bits", "seconds"), rows)
    return _write(arguments, "cached", result)


def _cached_of(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    run = functools.partial(_run, arguments, [], name, way="jit", shapes="recorded", first=True)
    with tempfile.TemporaryDirectory() as empty:
        exported = run(TRITON_CACHE_DIR=str(_CACHES / name))[1]
        own, again = (run(TRITON_CACHE_DIR=empty)[1] for _ in range(2))
    digests = own.get("digests", {})
    stable = [key for key in digests if again.get("digests", {}).get(key) == digests[key]]
    same = sum(exported.get("digests", {}).get(key) == digests[key] for key in stable)
    return {"exported": exported, "empty": own, "same": same, "stable": len(stable)}


def launches(arguments: argparse.Namespace) -> int:
    """Measure the host time of launches of three kernels over that of C, by the pack and by Triton, in turns."""
    _install(arguments.folder)
    processes = {}
    for way in ("pack", "jit"):
        command, environ = _child(arguments.folder, _LAUNCHED, way=way, shapes="launches", AOTCUDA_TUNE="first")
        processes[way] = subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
    samples: dict[str, list[float]] = {}
    for process in processes.values():
        print(process.stdout.readline().strip())  # type: ignore[union-attr]
    for _ in range(25):
        for way, process in processes.items():
            process.stdin.write("\n")  # type: ignore[union-attr]
            for name, microseconds in json.loads(process.stdout.readline()).items():  # type: ignore[union-attr]
                samples.setdefault(f"{way}: {name}", []).append(microseconds)
    for process in processes.values():
        process.stdin.close()  # type: ignore[union-attr]
        process.wait()
    medians = {name: median(values) for name, values in samples.items()}
    over = {name: value - medians[f"{name.partition(':')[0]}: C"] for name, value in medians.items()}
    names = [name.partition(": ")[2] for name in over if name.startswith("pack: ") and not name.endswith(": C")]
    rows: list[tuple[object, ...]] = [
        (name, over[f"pack: {name}"], over[f"jit: {name}"], over[f"pack: {name}"] / over[f"jit: {name}"])
        for name in names
    ]
    print(f"C: {medians['pack: C']:.2f} and {medians['jit: C']:.2f} us")
    machine.table(("us over C", "pack", "Triton", "ratio"), rows)
    return _write(arguments, "launches", {"microseconds": samples, "over_c": over})


def _write(arguments: argparse.Namespace, name: str, figures: Any) -> int:
    path = arguments.out / "packages.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = json.loads(path.read_text()) if path.is_file() else {}
    parts[name] = {"machine": machine.describe(), "peers": machine.peers(), "figures": figures}
    path.write_text(json.dumps(parts, indent=1) + "\n")
    return 0


def _install(folder: Path, packs: str = "packs") -> None:
    """Unpack the packs of a folder: `exact` to `installed-exact`."""
    for wheel in sorted((folder / packs).glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / ("installed" if packs == "packs" else f"installed-{packs}"))


def _place_cache(folder: Path, name: str) -> bool:
    """Copy an exported cache to the folder for which it was made; return False if there is none."""
    source = folder / "caches" / name
    if source.is_dir() and not (_CACHES / name).is_dir():
        shutil.copytree(source, _CACHES / name)
    return source.is_dir()


def _child(folder: Path, name: str, **options: Any) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a process that runs a program; capital options are variables."""
    variables = {key: value for key, value in options.items() if key.isupper()}
    if "TRITON_CACHE_DIR" in variables:  # flag_gems keeps modules that it writes, and configs, in a folder of its own
        variables["FLAGGEMS_CACHE_DIR"] = str(Path(variables["TRITON_CACHE_DIR"], "flag_gems"))
    options = {key: value for key, value in options.items() if not key.isupper()}
    packs = options.get("packs", "hidden" if options.get("shapes") == "hidden" else "installed")
    path = [str(folder / "site"), str(folder / packs), os.environ.get("PYTHONPATH", "")]
    environ = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(path), **variables}
    return [
        sys.executable,
        "-W",
        "ignore",
        str(_HERE),
        "child",
        str(folder),
        json.dumps({"name": name, **options}),
    ], environ


def _run(
    arguments: argparse.Namespace, begin: list[str], name: str, *, cwd: Path | None = None, **options: Any
) -> tuple[int, Any]:
    """Run a program in a process of its own; return its exit status and what it found."""
    with tempfile.TemporaryDirectory() as work:
        out = Path(work, "found.json")
        command, environ = _child(arguments.folder, name, out=str(out), **options)
        limit = max(1, arguments.until - time.monotonic())
        try:
            done = subprocess.run(
                [*begin, *command], cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return 1, {"errors": {"process": "not finished"}}
        if begin and (done.returncode or options["way"] == "jit"):
            print(done.stdout[-2000:] + done.stderr)
        if not out.exists():
            return done.returncode or 1, {"errors": {"process": done.stderr[-600:]}}
        return done.returncode, json.loads(out.read_text())


# ------------------------------------------------------------------------------------------------------- one process


def child(options: dict[str, Any]) -> None:
    """Run a program in this process."""
    if options["way"] == "dry":
        _use_stand_in()
    import torch
    import triton  # noqa: F401

    name, way = options["name"], options["way"]
    if way in ("pack", "general", "dry"):
        importlib.import_module(f"{name}_pack")
    if options["shapes"] == "launches":
        _time_launches(torch, way)
        return
    program = PROGRAMS.get(name) or _Launched
    found: dict[str, Any] = {"errors": {}, "counts": {}, "digests": {}}
    counts = _Counts(found)
    if options.get("first"):
        _take_first_config()
    size, general_launches = [0], list[Any]()
    if way == "general":
        _keep_general(general_launches, size)
    if way == "dry":
        _count_variants(found)
    if options["shapes"] == "one":
        _note_imports(torch, found)
    sizes = {"other": program.other, "one": program.recorded[-1:]}.get(options["shapes"], program.recorded)
    begin = time.perf_counter()
    for n in sizes:
        size[0] = n
        try:
            _run_once(torch, program, n, found, keeps=options["shapes"] != "one")
        except Exception as error:  # noqa: BLE001 (each fault is a figure)
            found["errors"][n] = f"{type(error).__name__}: {error}"[:300]
    found["all"] = time.perf_counter() - begin
    counts.finish()
    found = json.loads(json.dumps(found))  # warm-ups count apart
    if way == "general":
        print(len(general_launches), flush=True)
        sys.stdin.readline()
        found["timed"] = [_timed(torch, *each) for each in general_launches]
    if options.get("warms") and way == "pack":
        found["warm"] = counts.warm_up()
    if "out" in options:
        Path(options["out"]).write_text(json.dumps(found))


def _run_once(torch: Any, program: Any, n: int, found: dict[str, Any], *, keeps: bool) -> None:
    """Run a program with a size, and keep the time of its end and digests of its results."""
    torch.manual_seed(n)
    results = program.run(torch, n)
    if _is_dry():
        return
    torch.cuda.synchronize()
    found["at"] = time.time()
    for key, tensor in results.items() if keeps else ():
        data = tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
        found["digests"][f"{n}: {key}"] = hashlib.sha256(data).hexdigest()[:16]


def _note_imports(torch: Any, found: dict[str, Any]) -> None:
    """Keep the time at which a program makes its first tensor, after all imports."""
    randn = torch.randn

    def first(*args: Any, **named: Any) -> Any:
        found["imported"], torch.randn = time.time(), randn
        return randn(*args, **named)

    torch.randn = first


def load_cold(options: dict[str, Any]) -> None:
    """Measure the seconds to import a pack, to load its images, and to load each of its kernels."""
    from aotcuda import manifest
    from aotcuda.integrations.in_place import sources
    from aotcuda.integrations.in_place.triton import adoption

    def modules() -> list[Any]:
        packed = [each for paths in adoption.packaged_kernels().values() for every in paths.values() for each in every]
        names = {each.folder: each.module for each in packed}
        marks = [(module, f"{folder}/{manifest.IN_PLACE}") for folder, module in sorted(names.items())]
        return [sources.Source(module, {}, mark).modules()[0] for module, mark in marks]

    importlib.import_module(f"{_LAUNCHED}_pack")  # makes the context
    for module in modules():
        module.preload()
    times = [time.perf_counter()]
    importlib.import_module(f"{options['name']}_pack")
    found = [module for module in modules() if not module.manifest["module"].startswith(_LAUNCHED)]
    times.append(time.perf_counter())
    for module in found:
        module._images.ready().library.load_all()
    times.append(time.perf_counter())
    for module in found:
        module.preload()
    times.append(time.perf_counter())
    seconds = {key: times[at + 1] - times[at] for at, key in enumerate(("import", "load", "kernels"))}
    Path(options["out"]).write_text(json.dumps({"errors": {}, "cold": seconds}))


def _is_dry() -> bool:
    return "AOTCUDA_RECORD_FOLDER" in os.environ


class _Launched:
    packages = _LAUNCHED
    recorded = other = (1000,)

    @staticmethod
    def run(torch: Any, n: int) -> dict[str, Any]:
        launched = importlib.import_module(_LAUNCHED)
        tensors = [torch.zeros(n, device="cuda") for _ in range(3)]
        launched.plain[(8,)](2.0, *tensors, n, BLOCK=128)
        launched.heuristic[(8,)](2.0, *tensors, n, BLOCK=128)
        launched.autotuned[(8,)](2.0, *tensors, n)
        return {"x": tensors[0]}


class _Counts:
    """Count compilations, timings, launches by the JIT, cache hits and runs of compilers in this process."""

    def __init__(self, found: dict[str, Any]) -> None:
        import triton
        from triton.runtime.autotuner import Autotuner, Heuristics
        from triton.runtime.jit import JITFunction

        self.found = found
        self.counts = found["counts"]
        self.counts |= dict.fromkeys(("compiled", "timed", "by_jit", "hits", "misses", "ptxas", "gcc"), 0)
        self.calls: dict[Any, tuple[Any, ...]] = {}
        found["compiled"], found["missed"] = {}, []
        counts = self.counts

        @functools.wraps(JITFunction._do_compile)
        def compiled(self: Any, *args: Any, **named: Any) -> Any:
            counts["compiled"] += 1
            key = f"{self.fn.__module__}.{self.fn.__qualname__}"
            found["compiled"][key] = found["compiled"].get(key, 0) + 1
            return do_compile(self, *args, **named)

        @functools.wraps(Autotuner._bench)
        def timed(self: Any, *args: Any, **named: Any) -> Any:
            counts["timed"] += 1
            return bench(self, *args, **named)

        @functools.wraps(JITFunction.run)
        def run(self: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> Any:
            counts["by_jit"] += not warmup
            return run_by_jit(self, *args, grid=grid, warmup=warmup, **named)

        def listen(*, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
            del metadata, metadata_group, times
            counts["hits" if cache_hit else "misses"] += 1
            if not cache_hit:
                found["missed"].append(getattr(src, "name", str(src)))

        def audit(event: str, arguments: Any) -> None:
            if event == "subprocess.Popen":
                command = (
                    [os.fspath(part) for part in arguments[1]] if not isinstance(arguments[1], str) else [arguments[1]]
                )
                program = Path(str(command[0])).name
                counts["ptxas"] += program.startswith("ptxas") and "--version" not in command
                counts["gcc"] += program in ("gcc", "cc", "clang")

        def keep_calls(kind: Any) -> None:
            inner = kind.run

            @functools.wraps(inner)
            def run(wrapper: Any, *args: Any, **named: Any) -> Any:
                self.calls.setdefault(id(wrapper), (wrapper, args, named))
                return inner(wrapper, *args, **named)

            kind.run = run

        keep_calls(Autotuner)
        keep_calls(Heuristics)
        do_compile, JITFunction._do_compile = JITFunction._do_compile, compiled
        bench, Autotuner._bench = Autotuner._bench, timed
        if not _is_dry():
            run_by_jit, JITFunction.run = JITFunction.run, run
            triton.knobs.compilation.listener = listen
            sys.addaudithook(audit)

    def finish(self) -> None:
        """Add up the launches of all packaged kernels."""
        for function in self._packaged():
            served = function.served
            if served is not None:
                for key in ("exact", "general"):
                    self.counts[key] = self.counts.get(key, 0) + getattr(served, key)

    def _packaged(self) -> list[Any]:
        functions = sys.modules.get("aotcuda.integrations.in_place.triton.functions")
        if functions is None:
            return []
        import gc

        return [item for item in gc.get_objects() if type(item) is functions.JITFunction and item._is_found]

    def warm_up(self) -> dict[str, Any]:
        """Warm up each packaged variant of the pack that its kernel lists, as vLLM does at its start."""
        before, errors, kernels = self.counts["compiled"], [], 0
        for function in self._packaged():
            kernel = function.packaged()
            if kernel is None:
                continue
            for overload in kernel.record()["overloads"]:
                kernels += 1
                try:
                    args, named = _mock_arguments(function, overload)
                    for result in (
                        function.run(*args, grid=(1,), warmup=True, **named),
                        function.warmup(*args, grid=(1,), **named),
                    ):
                        assert hasattr(result, "loads"), _problem(function, tuple(args), named)  # a packaged variant
                        assert result.n_regs > 0 and result.n_spills >= 0 and result.kernel and result.asm["cubin"]
                except Exception as error:  # noqa: BLE001 (each fault is a figure)
                    errors.append(f"{function.fn.__qualname__}: {type(error).__name__}: {error}"[:300])
        for wrapper, args, named in [*self.calls.values()]:
            kernels += 1
            others = {key: value for key, value in named.items() if key != "warmup"}
            try:
                result = wrapper.run(*args, **others, warmup=True)
                assert result is None or result.n_regs > 0
                wrapper.warmup(*args, **others)
            except Exception as error:  # noqa: BLE001 (each fault is a figure)
                errors.append(f"{type(wrapper).__name__}: {type(error).__name__}: {error}"[:300])
        return {"kernels": kernels, "compiled": self.counts["compiled"] - before, "errors": errors}


def _mock_arguments(function: Any, overload: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments of a warm-up for a variant: dtypes, integers with its hints, constants."""
    import torch
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    def value(parameter: Any) -> Any:
        if parameter["kind"] == "constant":
            given = parameter["value"]
            if isinstance(given, str) and given.startswith("tl."):
                return getattr(tl, given[3:])
            if isinstance(given, str) and given.startswith("torch."):
                return getattr(torch, given[6:])
            return given
        if parameter["kind"] == "elements":
            dtype = dtypes[parameter["type"].partition(":")[0].lstrip("*k")]
            flat = torch.zeros(64, device="cuda", dtype=torch.uint8).view(dtype)
            return flat if "divisor" in parameter else flat[1:]
        if parameter["kind"] == "descriptor":
            dtype = dtypes[parameter["type"].partition("<")[2].partition("[")[0]]
            return TensorDescriptor.from_tensor(
                torch.zeros(parameter["block"], dtype=dtype, device="cuda"), parameter["block"]
            )
        if parameter["format"] in "fd?":
            return True if parameter["format"] == "?" else 0.5
        return (2**40 if parameter["format"] in "qQ" else 32) + ("divisor" not in parameter)

    dtypes = {short: getattr(torch, name) for short, name in _DTYPES.items()}
    parameters = overload["parameters"]
    count = len(function.arg_names)
    options = {each["name"]: each["value"] for each in parameters[count:] if each["value"] is not None}
    return [value(each) for each in parameters[:count]], options


def _take_first_config() -> None:
    """Let autotuners take the first pruned config that launches, so that results compare."""
    from triton.runtime.autotuner import Autotuner

    bench = Autotuner._bench
    taken: dict[str, Any] = {}

    @functools.wraps(bench)
    def first(self: Any, *args: Any, config: Any, **named: Any) -> Any:
        if taken.get("of") is not self.nargs:
            taken.update(of=self.nargs, done=False)
        if taken["done"]:
            return [float("inf")] * 3
        before = self.__dict__.get("do_bench")
        self.__dict__["do_bench"] = lambda launch, **_: (launch(), [0.0] * 3)[1]
        try:
            times = bench(self, *args, config=config, **named)
            taken["done"] = times[0] == 0.0
            return times
        finally:
            self.__dict__.pop("do_bench")
            if before is not None:
                self.__dict__["do_bench"] = before

    Autotuner._bench = first


def _keep_general(rows: list[Any], size: list[int]) -> None:
    """Keep each launch of a packaged kernel by a general variant, once for each pair of variants, with the JIT's."""
    from aotcuda.integrations.in_place.triton import bases, compiled, functions

    inner, seen = functions.JITFunction._launcher, set()

    def launcher(self: Any, grid: Any) -> Any:
        launch = inner(self, grid)
        if launch is None:
            return None

        def call(*args: Any, **named: Any) -> Any:
            before = self.served.general
            result = launch(*args, **named)
            if self.served.general > before:
                variant: Any = compiled.find(self, args, named, allows_misses=False)
                own: Any = bases.JITFunction.run(self, *args, grid=grid, warmup=True, **named)
                own._init_handles()
                key = variant._record["signature"], own.hash
                if key not in seen:
                    seen.add(key)
                    grids = grid({**dict(zip(self.arg_names, args, strict=False)), **named}) if callable(grid) else grid
                    ways = (
                        functools.partial(inner(self, grids), *args, **named),
                        functools.partial(bases.JITFunction.run, self, *args, grid=grids, warmup=False, **named),
                    )
                    kinds = {name: kind for name, kind in own.src.signature.items() if kind != "constexpr"}
                    hints = {self.arg_names[key[0]] for key, value in own.src.attrs.items() if value}
                    ones = {self.arg_names[key[0]]: value for key, value in own.src.constants.items()}
                    row = {
                        "kernel": self.fn.__qualname__,
                        "size": size[0],
                        "registers": [variant.n_regs, own.n_regs],
                        "chosen": variant._record["signature"],
                        "own": f"{kinds} :16 {sorted(hints)} constants {ones}",
                    }
                    rows.append((row, ways))
            return result

        return call

    functions.JITFunction._launcher = launcher  # type: ignore[method-assign]


def _timed(torch: Any, row: dict[str, Any], ways: Any) -> dict[str, Any]:
    ours, theirs = _gpu_times(torch, *ways)
    return {**row, "general": ours, "jit": theirs, "ratio": ours / theirs}


def _gpu_times(torch: Any, *ways: Callable[[], object]) -> list[float]:
    """Return the microseconds on the GPU of a launch by each way, from graphs of launches that take turns."""
    graphs = []
    stream = torch.cuda.Stream()
    for way in ways:
        with torch.cuda.stream(stream):
            for _ in range(3):
                way()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(20):
                way()
        graphs.append(graph)
    times: list[list[float]] = [[] for _ in ways]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for turn in range(12):
        for graph, found in zip(graphs, times, strict=True):
            torch.cuda.synchronize()
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if turn > 1:
                found.append(begin.elapsed_time(end) / 20 * 1e3)
    return [median(found) for found in times]


def _time_launches(torch: Any, way: str) -> None:
    """Answer each line of standard input with the microseconds of launches of each kernel, and of C."""
    launched = importlib.import_module(_LAUNCHED)
    x0, x1, x2 = (torch.zeros(1000, device="cuda") for _ in range(3))
    arguments = "2.0, x0, x1, x2, 1000"
    calls = {
        "plain": f"k.plain[(8,)]({arguments}, BLOCK=128)",
        "plain, positional": f"k.plain[(8,)]({arguments}, 128)",
        "heuristic": f"k.heuristic[(8,)]({arguments}, BLOCK=128)",
        "autotuned": f"k.autotuned[(8,)]({arguments})",
    }
    batches = {"C": _c_batch(launched, (x0, x1, x2))}
    for name, call in calls.items():
        space = {"k": launched, "x0": x0, "x1": x1, "x2": x2, "now": time.perf_counter}
        text = f"def run(count):\n    begin = now()\n    for _ in range(count):\n        {call}\n"
        text += "    return now() - begin\n"
        exec(text, space)
        batches[name] = space["run"]
    for batch in batches.values():
        batch(20)
    served = {name: str(getattr(getattr(launched, name), "served", None)) for name in ("plain",)}
    print(f"{way}: {served}", flush=True)
    for _ in sys.stdin:
        samples = {}
        for name, batch in batches.items():
            torch.cuda.synchronize()
            samples[name] = batch(500) / 500 * 1e6
        torch.cuda.synchronize()
        print(json.dumps(samples), flush=True)


def _c_batch(launched: Any, tensors: tuple[Any, ...]) -> Callable[[int], float]:
    """Return a loop in C over launches of the code of `plain`."""
    kernel = launched.plain.warmup(2.0, *tensors, 1000, BLOCK=128, grid=(8,))
    kernel._init_handles()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "loop.c").write_text(_LOOP)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", f"{folder}/loop.so", f"{folder}/loop.c"], check=True)
        run = ctypes.CDLL(f"{folder}/loop.so").loop
    run.restype = ctypes.c_double
    driver = ctypes.CDLL("libcuda.so.1")
    values: list[Any] = [
        ctypes.c_float(2.0),
        *(ctypes.c_uint64(each.data_ptr()) for each in tensors),
        ctypes.c_int(1000),
    ]
    values += [ctypes.c_uint64(0), ctypes.c_uint64(0)]  # Triton's scratch memory
    parameters = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
    function = ctypes.c_void_p(kernel.function)

    def batch(count: int) -> float:
        seconds: float = run(ctypes.cast(driver.cuLaunchKernel, ctypes.c_void_p), function, parameters, count)
        assert seconds >= 0, values
        return seconds

    return batch


# ------------------------------------------------------------------------------------------ a dry run with the packs


def _use_stand_in() -> None:
    """Let packs serve a dry run, over the stand-in driver of the tests."""
    work = Path(tempfile.mkdtemp())
    source = _HERE.parents[1] / "tests" / "support" / "fake_libcuda.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", work / "libcuda.so.1", source, "-lpthread"], check=True)
    os.environ.update(FAKE_CUDA_DEVICES="9.0", AOTCUDA_IN_PLACE="1")
    from aotcuda.runtime import driver

    driver.LIBRARY = str(work / "libcuda.so.1")


def _count_variants(found: dict[str, Any]) -> None:
    """Count how the packs would serve each launch, before the recorder sees it."""
    from aotcuda.integrations.in_place.triton import bases, compiled, functions

    counts, misses = found["counts"], found.setdefault("misses", {})
    inner = bases.JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        variant = compiled.find(self, args, named, allows_misses=False) if self.packaged() is not None else None
        kind = "missed" if variant is None else "general" if variant._record.get("general") else "exact"
        counts[kind] = counts.get(kind, 0) + 1
        if variant is None:
            problem = _problem(self, args, named)
            misses[problem] = misses.get(problem, 0) + 1
        return inner(self, *args, grid=grid, warmup=warmup, **named)

    def launcher(self: Any, grid: Any) -> Any:
        return functools.partial(run, self, grid=grid, warmup=False)

    functions.JITFunction.run = run  # type: ignore[method-assign]
    functions.JITFunction.__getitem__ = launcher  # type: ignore[method-assign]


def _problem(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> str:
    from aotcuda.integrations.in_place.triton import compiled

    name: str = function.fn.__qualname__
    if function.packaged() is None:
        return f"{name}: not packaged"
    try:
        function.packaged().variant(*compiled.as_launched(function, args, named))
    except Exception as error:  # noqa: BLE001 (the text is the result)
        return f"{name}: {error}".replace("\n", " ")
    return name


STEPS: dict[str, Any] = {
    each.__name__: each
    for each in (prepare, record, build, builds, export, check, tables, general, firsts, cold, cached, launches)
} | {"child": child}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
