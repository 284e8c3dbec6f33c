"""Compare unchanged Triton packages with a pack and without: first results, compilations and bits.

1. `prepare` unpacks wheels, unchanged, and makes the pack's project.
2. `record` records a program for each package (`programs.py`) by `aotcuda record --packages`, with a GPU.
3. `build` builds the pack's wheel, without a build cache; it needs no GPU.
4. `run` runs the programs by Triton's JIT and with the pack in turn, each in a fresh process with an empty cache of
   Triton's. It counts compilations and timings, compares the results bit by bit, and writes docs/results/packages.json.

Without `--steps` all four run. Imports of the packages do not count, nor does the start of PyTorch (`ready`).

    pip download --no-deps liger-kernel==0.8.5 fla-core==0.6.0 flash-linear-attention==0.6.0 einops==0.8.2 \
        conch-triton-kernels==1.3
    python bench/packages.py /tmp/packages *.whl     # with a GPU, Triton and PyTorch
    python bench/packages.py /tmp/packages --steps run --runs 5
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import machine
import programs

_STEPS = ("prepare", "record", "build", "run")
_NAMES = {
    "liger-kernel": "liger_kernel",
    "fla-core": "fla",
    "conch-triton-kernels": "conch",
    "cut-cross-entropy": "cut_cross_entropy",
    "bitsandbytes": "bitsandbytes",
    "sageattention": "sageattention",
}
"""Packages of the pack -> the names by which they are imported."""

_PACK = "some_pack"
_PROJECT = f"""
[build-system]
requires = ["hatchling", "aotcuda[triton]"]
build-backend = "hatchling.build"

[project]
name = "some-pack"
version = "1"
dependencies = ["aotcuda"]

[tool.hatch.build.targets.wheel]
packages = ["{_PACK}"]

[tool.hatch.build.targets.wheel.hooks.aotcuda]

[tool.aotcuda]
arch = ["sm_90"]
"""
_INIT = "from aotcuda import packs\n\npacks.use(__name__)\n"


def main() -> int:
    parser = machine.parser(__doc__, "packages")
    parser.add_argument("folder", type=Path)
    parser.add_argument("wheels", type=Path, nargs="*")
    parser.add_argument("--steps", nargs="+", choices=_STEPS, default=_STEPS)
    parser.add_argument("--only", nargs="+", choices=_NAMES, default=[*_NAMES], help="these packages")
    parser.add_argument("--runs", type=int, default=5, help="of each program, each way (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="threads in which autotuners compile before they time")
    parser.add_argument("--limit", type=int, default=560, help="seconds for each program")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # the program of this process
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments.one, arguments.out, arguments.threads)
        return 0
    arguments.folder = arguments.folder.resolve()
    steps = {"prepare": prepare, "record": record, "build": build, "run": run}
    for step in arguments.steps:
        if status := steps[step](arguments.folder, arguments):
            return status
    return 0


def prepare(folder: Path, arguments: argparse.Namespace) -> int:
    """Unpack the packages, and make the pack's project."""
    for wheel in arguments.wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "site", [name for name in archive.namelist() if not name.endswith(".so")])
    (folder / "pack" / _PACK).mkdir(parents=True, exist_ok=True)
    (folder / "pack" / _PACK / "__init__.py").write_text(_INIT)
    (folder / "pack" / "pyproject.toml").write_text(_PROJECT)
    return 0


def record(folder: Path, arguments: argparse.Namespace) -> int:
    """Record each program by Triton's JIT into the pack's project."""
    begin = [sys.executable, "-m", "aotcuda", "record", "--write", "--packages", ",".join(_NAMES.values()), "--"]
    names = _chosen(folder, arguments)
    return max(not _program(folder, name, arguments, begin, folder / "pack") for name in names)


def build(folder: Path, _: argparse.Namespace) -> int:
    """Build the pack's wheel in an environment with the packages."""
    project = folder / "pack"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "site"), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    return subprocess.run([*command, "-w", project / "dist", project], check=False, env=environ).returncode


def run(folder: Path, arguments: argparse.Namespace) -> int:
    """Run each program by the JIT and with the pack, compare, and write the figures."""
    here = machine.describe()
    (wheel,) = (folder / "pack" / "dist").glob("*.whl")
    (folder / "installed").mkdir(exist_ok=True)
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    ways = {"jit": [], "pack": [sys.executable, "-m", "aotcuda", "run", "--packs", _PACK, "--"]}
    names = _chosen(folder, arguments)
    samples: dict[str, dict[str, list[Any]]] = {name: {way: [] for way in ways} for name in names}
    for _ in range(arguments.runs):
        for name in names:
            for way, begin in ways.items():
                if found := _program(folder, name, arguments, begin, folder):
                    samples[name][way].append(found)
    figures = {name: _figures(found) for name, found in samples.items() if all(found.values())}
    files = [json.loads(path.read_text()) for path in (folder / "pack" / _PACK).glob("*.variants.json")]
    pack = {
        "modules": len(files),
        "kernels": sum(len(file["kernels"]) for file in files),
        "variants": sum(len(kernel["variants"]) for file in files for kernel in file["kernels"].values()),
        "bytes": wheel.stat().st_size,
    }
    measures = {f"{name}: no compilation with the pack": not item["compilations"] for name, item in figures.items()}
    for name, item in figures.items():
        print(name, json.dumps(item))
    missing = {name: "a program failed" for name in names if name not in figures}
    return machine.report(
        arguments.out, here, measures, missing, peers=machine.peers(), pack=pack, figures=figures, samples=samples
    )


def _figures(found: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the seconds to the first results by both ways, and what the pack's runs compiled and changed."""
    reference, packed = found["jit"][0], found["pack"]
    stable = [key for key, digests in reference["digests"].items() if len({*digests}) == 1]
    same = [all(one["digests"][key][0] == reference["digests"][key][0] for one in packed) for key in stable]
    return {
        "first": {way: machine.summary([one["first"] for one in runs]) for way, runs in found.items()},
        "ready": {way: machine.summary([one["ready"] for one in runs]) for way, runs in found.items()},
        "compilations": max(one["compilations"] for one in packed),
        "timings": max(one["timings"] for one in packed),
        "same bits": sum(same),
        "results": len(stable),
    }


def _chosen(folder: Path, arguments: argparse.Namespace) -> list[str]:
    return [name for name in arguments.only if (folder / "site" / _NAMES[name]).is_dir()]


def _program(folder: Path, name: str, arguments: argparse.Namespace, begin: list[str], cwd: Path) -> Any:
    """Run a program in a process with an empty cache; return what it measured, or None if it failed."""
    with tempfile.TemporaryDirectory() as cache:
        out = Path(cache, "out.json")
        path = map(str, [folder / "site", folder / "installed", os.environ.get("PYTHONPATH", "")])
        environ = {**os.environ, "TRITON_CACHE_DIR": cache, "PYTHONPATH": os.pathsep.join(path)}
        command = [*begin, sys.executable, "-W", "ignore", __file__, str(folder), "--one", name, "--out", str(out)]
        command += ["--threads", str(arguments.threads)]
        try:
            subprocess.run(command, check=True, cwd=cwd, env=environ, timeout=arguments.limit)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{name}: {error}"[:300])
            return None
        return json.loads(out.read_text())


def one(name: str, out: Path, threads: int) -> None:
    """Run a program three times in this process, and write times, counts and digests."""
    start = time.perf_counter()
    import torch  # type: ignore[import-not-found]
    import triton
    from triton.runtime.autotuner import Autotuner

    counts = {"compilations": 0, "timings": 0}
    _count(counts, triton.compiler.compiler, "compile", "compilations")
    triton.compiler.compile = triton.compiler.compiler.compile
    triton.runtime.jit.compile = triton.compiler.compiler.compile
    _count(counts, Autotuner, "_bench", "timings")
    if threads:
        _compile_together(threads)
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    ready = time.perf_counter()
    digests: dict[str, list[str]] = {}
    seconds = []
    imports = _timed_imports()
    for _ in range(3):
        torch.manual_seed(1)
        begin = time.perf_counter()
        found = programs.PROGRAMS[name](torch)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin - imports.pop())
        imports.append(0.0)
        for key, tensor in found.items():
            data = tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
            digests.setdefault(key, []).append(hashlib.sha256(data).hexdigest()[:16])
    result = {
        "ready": round(ready - start, 3),
        "first": round(seconds[0], 4),
        "next": [round(value, 5) for value in seconds[1:]],
        **counts,
        # The first run of an autotuned kernel may be that of another config.
        "digests": {key: items[1:] for key, items in digests.items()},
    }
    out.write_text(json.dumps(result, indent=1))
    print(f"{name}: first result {seconds[0]:.2f} s, next {seconds[1]:.3f} s, {counts}", flush=True)


def _timed_imports() -> list[float]:
    """Return a list of one number, to which the seconds of all imports are added from now on."""
    spent, inner, depth = [0.0], builtins.__import__, [0]

    def timed(*args: Any, **named: Any) -> Any:
        depth[0] += 1
        begin = time.perf_counter()
        try:
            return inner(*args, **named)
        finally:
            depth[0] -= 1
            if not depth[0]:
                spent[-1] += time.perf_counter() - begin

    builtins.__import__ = timed
    return spent


def _count(counts: dict[str, int], holder: Any, name: str, what: str) -> None:
    inner = getattr(holder, name)

    def counted(*args: Any, **named: Any) -> Any:
        counts[what] += 1
        return inner(*args, **named)

    setattr(holder, name, counted)


def _compile_together(threads: int) -> None:
    """Let autotuners compile all their configs at once before they time them one after the other."""
    from triton.runtime._async_compile import AsyncCompileMode
    from triton.runtime.autotuner import Autotuner

    inner = Autotuner.prune_configs

    def prune_configs(self: Any, kwargs: dict[str, Any]) -> list[Any]:
        configs: list[Any] = inner(self, kwargs)
        if len(configs) > 1:
            with (
                contextlib.suppress(Exception),
                ThreadPoolExecutor(threads) as pool,
                AsyncCompileMode(pool, ignore_errors=True),
            ):
                for config in configs:
                    self.fn.run(**{**self.nargs, **kwargs, **config.all_kwargs(), "warmup": True})
        return configs

    Autotuner.prune_configs = prune_configs


if __name__ == "__main__":
    sys.exit(main())
