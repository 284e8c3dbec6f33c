"""Compare published Triton packages, in which only imports are changed, with Triton's JIT: kernels, first results.

1. `prepare` unpacks wheels, changes the imports of modules with kernels to `from aotcuda.triton import triton, tl`, and
   makes a project of each package.
2. `record` runs a program for each package (`triton_programs.py`) by Triton's JIT, under `aotcuda record --write`, on a
   machine with a GPU. It keeps digests of all results.
3. `build` builds a wheel of each project, without a build cache; it needs no GPU. `compile` compiles the same variants
   by Triton, one after the other.
4. `run` runs the programs with the installed wheels, each in a fresh process with an empty cache of Triton's. It counts
   compilations and timings, and compares the results with those of `record`, bit by bit. `jit` runs them once more by
   Triton's JIT, to compare first results (without imports) on one machine.
5. `table` writes the table of docs/results.

    pip download --no-deps liger-kernel==0.8.5 fla-core==0.6.0 flash-linear-attention==0.6.0 ...
    python bench/triton_packages.py prepare /tmp/packages *.whl
    python bench/triton_packages.py record /tmp/packages     # with a GPU, Triton and PyTorch
    python bench/triton_packages.py build /tmp/packages
    python bench/triton_packages.py run /tmp/packages        # with a GPU
    python bench/triton_packages.py table /tmp/packages
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton_programs
import triton_releases

if TYPE_CHECKING:
    from collections.abc import Iterator

_HERE = Path(__file__).resolve()
_PARTS = {"fla-core": ("fla_core", "flash_linear_attention", "einops")}
"""Wheels that make one project; others are a project each."""

_PRELUDES = {"bitsandbytes": "import torch\n\nvars(torch._C).setdefault('_cuda_getCurrentRawStream', None)\n"}
"""Code that a build runs first, where PyTorch is a build for the processor alone."""

_PROJECT = """
[build-system]
requires = ["hatchling", "aotcuda[triton]"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "{version}"
dependencies = ["aotcuda"]

[tool.hatch.build.targets.wheel]
packages = [{packages}]

[tool.hatch.build.hooks.aotcuda]

[tool.aotcuda]
arch = ["sm_90"]
"""
_IMPORTS = (
    (re.compile(r"^(\s*)import triton( *#.*)?$", re.MULTILINE), r"\1from aotcuda.triton import triton"),
    (re.compile(r"^(\s*)import triton\.language as tl( *#.*)?$", re.MULTILINE), r"\1from aotcuda.triton import tl"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "step", choices=("prepare", "record", "build", "compile", "jit", "run", "table", "one", "serial")
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("items", nargs="*", help="wheels for `prepare`, names of packages for the others")
    parser.add_argument("--out", type=Path, help="the file that `one` writes")
    parser.add_argument("--threads", type=int, default=0, help="threads in which autotuners compile before they time")
    parser.add_argument("--limit", type=int, default=560, help="seconds for each program")
    arguments = parser.parse_args()
    names = arguments.items or [name for name in triton_programs.PROGRAMS if (arguments.folder / name).is_dir()]
    if arguments.step == "prepare":
        prepare(arguments.folder, [Path(item) for item in arguments.items])
    elif arguments.step == "one":
        one(names[0], arguments.out, arguments.threads)
    elif arguments.step == "serial":
        serial(arguments.folder)
    elif arguments.step == "table":
        table(arguments.folder, names)
    else:
        step = {"record": record, "build": build, "compile": compile_all, "jit": jit, "run": run}[arguments.step]
        return max((step(arguments.folder / name, name, arguments) for name in names), default=0)
    return 0


def prepare(folder: Path, wheels: list[Path]) -> None:
    """Make a project of each package."""
    for name in triton_programs.PROGRAMS:
        stems = _PARTS.get(name, (name.replace("-", "_"),))
        found = [wheel for stem in stems for wheel in wheels if wheel.name.startswith(f"{stem}-")]
        if not found:
            continue
        root = folder / name
        root.mkdir(parents=True, exist_ok=True)
        for wheel in found:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(root, [item for item in archive.namelist() if item.endswith((".py", ".json"))])
        changed = 0
        for file in root.rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            if "triton.jit" in text and "gluon" not in text:
                for pattern, instead in _IMPORTS:
                    text = pattern.sub(instead, text)
                file.write_text(text, encoding="utf-8")
                changed += 1
        packages = ", ".join(f'"{path.parent.name}"' for path in sorted(root.glob("*/__init__.py")))
        version = found[0].name.split("-")[1]
        text = _PROJECT.format(name=name, version=version, packages=packages)
        if name in _PRELUDES:
            (root / "_prelude.py").write_text(_PRELUDES[name])
            text += 'prelude = "_prelude"\n'
        (root / "pyproject.toml").write_text(text)
        print(f"{name} {version}: imports of {changed} modules changed")


def record(root: Path, name: str, arguments: argparse.Namespace) -> int:
    """Run a program by Triton's JIT, and record it."""
    begin = [sys.executable, "-m", "aotcuda", "record", "--write", "--"]
    return run_program(root, name, root / "jit.json", arguments, [root], begin)


def build(root: Path, name: str, arguments: argparse.Namespace) -> int:
    """Build a wheel."""
    del name, arguments
    start, before = time.perf_counter(), os.times()
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        root / "dist",
        root,
    ]
    environ = {**os.environ, "AOTCUDA_BUILD_CACHE": "0"}
    status = subprocess.run(command, check=False, env=environ).returncode
    wheels = list((root / "dist").glob("*.whl"))
    seconds, after = time.perf_counter() - start, os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    sizes = [path.stat().st_size for path in wheels]
    (root / "build.json").write_text(json.dumps({"seconds": seconds, "processor": processor, "bytes": sizes}))
    print(f"{root.name}: {seconds:.0f} s, {wheels}")
    return status


def compile_all(root: Path, name: str, arguments: argparse.Namespace) -> int:
    """Compile every recorded variant by Triton, one after the other in one process, for the time of `build`."""
    del arguments
    with tempfile.TemporaryDirectory() as cache:
        environ = {**os.environ, "TRITON_CACHE_DIR": cache, "AOTCUDA_BUILDING": "1", "PYTHONPATH": str(root)}
        command = [sys.executable, "-W", "ignore", str(_HERE), "serial", str(root), name]
        return subprocess.run(command, check=False, cwd=root, env=environ).returncode


def serial(root: Path) -> None:
    """Compile in this process; imports do not count."""
    seconds, count = 0.0, 0
    if root.name in _PRELUDES:
        exec(_PRELUDES[root.name])
    for file in sorted(root.rglob("*.variants.json")):
        content = json.loads(file.read_text())
        module = importlib.import_module(content["source"])
        for key, kernel in content["kernels"].items():
            function = getattr(module, kernel.get("python", key))
            for variant in kernel["variants"]:
                begin = time.perf_counter()
                triton_releases.compile_variant(function, variant, 90)
                seconds += time.perf_counter() - begin
                count += 1
    (root / "serial.json").write_text(json.dumps({"seconds": seconds, "variants": count}))
    print(f"{root.name}: Triton compiled {count} variants in {seconds:.1f} s")


def jit(root: Path, name: str, arguments: argparse.Namespace) -> int:
    """Run a program of an installed wheel by Triton's JIT, for first results in the same session as `run`."""
    with _installed(root) as site:
        return run_program(root, name, root / "jit.json", arguments, [site], ["env", "AOTCUDA_IN_PLACE=0"])


def run(root: Path, name: str, arguments: argparse.Namespace) -> int:
    """Run a program with the packaged kernels, and compare its results."""
    with _installed(root) as site:
        status = run_program(root, name, root / "packaged.json", arguments, [site], [])
    if status == 0:
        by_jit, packaged = (json.loads((root / f"{way}.json").read_text()) for way in ("jit", "packaged"))
        same, stable = same_bits(by_jit, packaged)
        print(
            f"{name}: {packaged['compilations']} compilations ({by_jit['compilations']} by the JIT), "
            f"{packaged['timings']} timings ({by_jit['timings']}), "
            f"first result {packaged['first']:.2f} s ({by_jit['first']:.2f} s), "
            f"{same} of {stable} results have the same bits"
        )
    return status


def same_bits(by_jit: dict[str, Any], packaged: dict[str, Any]) -> tuple[int, int]:
    """Return how many results have the same bits, and how many the JIT itself repeats."""
    stable = [key for key, digests in by_jit["digests"].items() if len(set(digests)) == 1]
    return sum(packaged["digests"][key][0] == by_jit["digests"][key][0] for key in stable), len(stable)


@contextlib.contextmanager
def _installed(root: Path) -> Iterator[Path]:
    """Unpack a project's wheel."""
    with tempfile.TemporaryDirectory() as site:
        for wheel in (root / "dist").glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(site)
        yield Path(site)


def run_program(
    root: Path, name: str, out: Path, arguments: argparse.Namespace, paths: list[Path], begin: list[str]
) -> int:
    with tempfile.TemporaryDirectory() as cache:
        path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
        environ = {**os.environ, "TRITON_CACHE_DIR": cache, "PYTHONPATH": path}
        command = [*begin, sys.executable, "-W", "ignore", str(_HERE), "one", str(root), name, "--out", str(out)]
        command += ["--threads", str(arguments.threads)]
        try:
            return subprocess.run(command, check=False, cwd=root, env=environ, timeout=arguments.limit).returncode
        except subprocess.TimeoutExpired:
            print(f"{name}: not finished in {arguments.limit} s")
            return 1


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
        found = triton_programs.PROGRAMS[name](torch)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin - imports.pop())
        imports.append(0.0)
        for key, tensor in found.items():
            data = tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
            digests.setdefault(key, []).append(hashlib.sha256(data).hexdigest()[:16])
    result = {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "ready": ready - start,
        "first": seconds[0],
        "next": seconds[1:],
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


def table(folder: Path, names: list[str]) -> None:
    """Write the figures as JSON, and print a table in Markdown."""
    seen = {name: _seen(folder / name) for name in names}
    head = ("package", "kernels launched, packaged", "first result: JIT, packaged", "compilations", "timings")
    rows = [(*head, "same bits", "build, Triton's compiles"), ("---",) * 7]
    rows += [(name, *_figures(found)) for name, found in seen.items()]
    for row in rows:
        print(f"| {' | '.join(row)} |")
    out = _HERE.parent.parent / "docs" / "results" / "triton_packages.json"
    out.write_text(json.dumps(seen, indent=1) + "\n")


def _seen(root: Path) -> dict[str, Any]:
    def read(name: str) -> Any:
        return json.loads((root / name).read_text()) if (root / name).exists() else None

    recorded = read(".aotcuda-record.json") or {"functions": []}
    kernels = [item for item in recorded["functions"] if item["kind"] == "kernel" and item["launches"]]
    launched = {(item["module"], item["function"]) for item in kernels}
    files = [json.loads(path.read_text()) for path in root.rglob("*.variants.json")]
    return {
        **{way: read(f"{way}.json") for way in ("jit", "packaged", "build", "serial")},
        "launched": len(launched),
        "kernels": sum(len(file["kernels"]) for file in files),
        "variants": sum(len(kernel["variants"]) for file in files for kernel in file["kernels"].values()),
    }


def _figures(found: dict[str, Any]) -> list[str]:
    by_jit, packaged, built, serial_ = (found[way] for way in ("jit", "packaged", "build", "serial"))
    same, stable = same_bits(by_jit, packaged)
    return [
        f"{found['launched']}, {found['kernels']} ({found['variants']} variants)",
        f"{by_jit['first']:.1f} s, {packaged['first']:.2f} s",
        f"{by_jit['compilations']}, {packaged['compilations']}",
        f"{by_jit['timings']}, {packaged['timings']}",
        f"{same} of {stable}",
        f"{built['seconds']:.0f} s, {serial_['seconds']:.0f} s" if built and serial_ else "",
    ]


if __name__ == "__main__":
    sys.exit(main())
