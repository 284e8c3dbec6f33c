"""Compare unchanged Triton packages with a pack and without: first results, compilations and bits.

1. `prepare` unpacks wheels, unchanged, and makes the pack's project. With `--recorded FOLDER` the variants and choices
   come from projects that `triton_packages.py record` has recorded.
2. `record` records the programs (`triton_programs.py`) by `aotcuda record --packages`, on a machine with a GPU.
3. `build` builds the pack's wheel, without a build cache and without a GPU.
4. `run` runs the programs by Triton's JIT and with the pack, each in a fresh process with an empty cache of Triton's.
   It counts compilations and timings, and compares the results bit by bit.
5. `table` writes docs/results/packs.json.
6. `digests` writes the digest of each kernel of the packages in `site`, whether a program launches it or not. Run it in
   an environment for each release of Python and PyTorch, with one release of Triton. `compare` compares the digests of
   two environments, and writes docs/results/pack_digests.json. Both need no GPU.

    pip download --no-deps liger-kernel==0.8.5 fla-core==0.6.0 flash-linear-attention==0.6.0 einops==0.8.2 \
        conch-triton-kernels==1.3
    python bench/packs.py prepare /tmp/packs *.whl
    python bench/packs.py record /tmp/packs       # with a GPU, Triton and PyTorch
    python bench/packs.py build /tmp/packs
    python bench/packs.py run /tmp/packs          # with a GPU
    python bench/packs.py table /tmp/packs
    PYTHONPATH=. one/bin/python bench/packs.py digests /tmp/packs one.json
    PYTHONPATH=. other/bin/python bench/packs.py digests /tmp/packs other.json
    python bench/packs.py compare /tmp/packs one.json other.json
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import zipfile
from pathlib import Path
from typing import Any

import triton_packages
import triton_programs

_HERE = Path(__file__).resolve()
_NAMES = {"liger-kernel": "liger_kernel", "fla-core": "fla", "conch-triton-kernels": "conch"}
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
_HEXADECIMAL = 64
_INIT = "from aotcuda import packs\n\npacks.use(__name__)\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = {
        "prepare": prepare,
        "record": record,
        "build": build,
        "run": run,
        "table": table,
        "digests": digests,
        "compare": compare,
    }
    parser.add_argument("step", choices=steps)
    parser.add_argument("folder", type=Path)
    parser.add_argument("items", nargs="*", help="wheels, names of packages, or files of digests")
    parser.add_argument("--recorded", type=Path, help="projects that triton_packages.py has recorded")
    parser.add_argument("--threads", type=int, default=0, help="threads in which autotuners compile before they time")
    parser.add_argument("--limit", type=int, default=560, help="seconds for each program")
    arguments = parser.parse_args()
    return steps[arguments.step](arguments.folder.resolve(), arguments) or 0


def prepare(folder: Path, arguments: argparse.Namespace) -> int:
    """Unpack the packages, and make the pack's project."""
    site, project = folder / "site", folder / "pack"
    for wheel in arguments.items:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site, [name for name in archive.namelist() if not name.endswith(".so")])
    (project / _PACK).mkdir(parents=True, exist_ok=True)
    (project / _PACK / "__init__.py").write_text(_INIT)
    text = _PROJECT
    for file in sorted(arguments.recorded.rglob("*.variants.json")) if arguments.recorded else ():
        source = json.loads(file.read_text())["source"]
        if not (site / source.partition(".")[0]).is_dir():
            continue
        name = source.replace(".", "_")
        for end in ("variants", "tuning"):
            other = file.with_name(file.name.replace(".variants.", f".{end}."))
            if other.exists():
                (project / _PACK / f"{name}.{end}.json").write_bytes(other.read_bytes())
        text += f'\n[tool.aotcuda.modules."{_PACK}.{name}"]\nsource = "{source}"\nfrontend = "triton"\n'
        text += f'variants = "{_PACK}/{name}.variants.json"\npack = true\n'
    (project / "pyproject.toml").write_text(text)
    return 0


def record(folder: Path, arguments: argparse.Namespace) -> int:
    """Record each program by Triton's JIT into the pack's project."""
    begin = [sys.executable, "-m", "aotcuda", "record", "--write", "--packages", ",".join(_NAMES.values()), "--"]
    return max(_program(folder, name, "jit", arguments, begin, folder / "pack") for name in _chosen(folder, arguments))


def build(folder: Path, arguments: argparse.Namespace) -> int:
    """Build the pack's wheel in an environment with the packages."""
    project, site = folder / "pack", folder / "site"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return triton_packages.build(project, "pack", arguments)


def run(folder: Path, arguments: argparse.Namespace) -> int:
    """Run each program by the JIT and with the pack, and compare."""
    status = 0
    wheel = next((folder / "pack/dist").glob("*.whl"))
    (folder / "installed").mkdir(exist_ok=True)
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    begin = [sys.executable, "-m", "aotcuda", "run", "--packs", _PACK, "--"]
    for name in _chosen(folder, arguments):
        status |= _program(folder, name, "jit", arguments, [], folder)
        status |= _program(folder, name, "packed", arguments, begin, folder)
        by_jit, packed = (_seen(folder, name, way) for way in ("jit", "packed"))
        if by_jit and packed:
            print(f"{name}: {'; '.join(_figures(by_jit, packed))}", flush=True)
    return status


def _chosen(folder: Path, arguments: argparse.Namespace) -> list[str]:
    return arguments.items or [name for name, top in _NAMES.items() if (folder / "site" / top).is_dir()]


def _program(folder: Path, name: str, way: str, arguments: argparse.Namespace, begin: list[str], cwd: Path) -> int:
    out = folder / f"{name}.{way}.json"
    out.unlink(missing_ok=True)
    return triton_packages.run_program(cwd, name, out, arguments, [folder / "site", folder / "installed"], begin)


def _seen(folder: Path, name: str, way: str) -> Any:
    path = folder / f"{name}.{way}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _figures(by_jit: Any, packed: Any) -> list[str]:
    same, stable = triton_packages.same_bits(by_jit, packed)
    return [
        f"{by_jit['first']:.2f} s by the JIT, {packed['first']:.3f} s with the pack",
        f"1/{by_jit['first'] / packed['first']:.0f}",
        f"{by_jit['compilations']} -> {packed['compilations']} compilations",
        f"{by_jit['timings']} -> {packed['timings']} timings",
        f"{same} of {stable} results with the same bits",
    ]


def table(folder: Path, arguments: argparse.Namespace) -> int:
    """Write the figures as JSON, and print a table in Markdown."""
    programs = {}
    print("| package | first result | ratio | compilations | configs timed | same bits |\n|---|---|---|---|---|---|")
    for name in _chosen(folder, arguments):
        by_jit, packed = (_seen(folder, name, way) for way in ("jit", "packed"))
        if by_jit and packed:
            programs[name] = {"jit": by_jit, "packed": packed}
            print(f"| {name} | {' | '.join(_figures(by_jit, packed))} |")
    build_file = folder / "pack/build.json"
    built = {"build": json.loads(build_file.read_text())} if build_file.exists() else {}
    files = [json.loads(path.read_text()) for path in (folder / "pack" / _PACK).glob("*.variants.json")]
    counts = {
        "modules": len(files),
        "kernels": sum(len(file["kernels"]) for file in files),
        "variants": sum(len(kernel["variants"]) for file in files for kernel in file["kernels"].values()),
    }
    out = _HERE.parent.parent / "docs" / "results" / "packs.json"
    out.write_text(json.dumps({"pack": counts, **built, "programs": programs}, indent=1) + "\n")
    return 0


def digests(folder: Path, arguments: argparse.Namespace) -> int:
    """Write the digest of each kernel of each package, or the reason for which a kernel has none."""
    from triton.backends.compiler import GPUTarget

    from aotcuda import arch
    from aotcuda.builder.frontends.triton import gpu

    site = folder / "site"
    sys.path.insert(0, str(site))
    triton_programs.stand_in_for_transformers()
    found: dict[str, dict[str, str]] = {}
    skipped = {}
    with gpu.importing(arch.parse("sm_90"), GPUTarget("cuda", 90, 32), str(folder)):
        for top in sorted(path.parent.name for path in site.glob("*/__init__.py")):
            for name in _modules(site / top):
                try:
                    importlib.import_module(name)
                except Exception as error:  # noqa: BLE001 (many parts need packages that are not installed)
                    skipped[name] = f"{type(error).__name__}: {error}"
            kernels = _kernels(top)
            if kernels:
                found[top] = kernels
                print(f"{top}: {len(kernels)} kernels", flush=True)
    versions = {name: str(sys.modules[name].__version__) for name in ("torch", "triton")}
    document = {"python": platform.python_version(), **versions, "packages": found, "not imported": skipped}
    Path(arguments.items[0]).write_text(json.dumps(document, indent=1) + "\n")
    return 0


def _modules(package: Path) -> list[str]:
    """Return the names of the modules of a package that mention Triton, and of all packages in it."""
    files = [path for path in sorted(package.rglob("*.py")) if b"triton" in path.read_bytes()]
    names = [".".join(path.relative_to(package.parent).with_suffix("").parts) for path in files]
    return [name.removesuffix(".__init__") for name in names]


def _kernels(top: str) -> dict[str, str]:
    """Return the digests of all functions with `@triton.jit` in the imported modules of a package."""
    from triton.runtime import JITFunction
    from triton.runtime.autotuner import Heuristics

    from aotcuda.builder.frontends.triton import source_function
    from aotcuda.common.heuristics import computed_arguments

    found = {}
    for name, module in sorted(sys.modules.items()):
        for value in [*vars(module).values()] if name.partition(".")[0] == top else ():
            layers = [value]
            while not isinstance(layers[-1], JITFunction) and hasattr(layers[-1], "fn"):
                layers.append(layers[-1].fn)
            if isinstance(layers[-1], JITFunction) and layers[-1].fn.__module__.partition(".")[0] == top:
                computed = computed_arguments(layers, Heuristics)
                digest, problem = source_function.digest(layers[-1], computed)
                found[f"{layers[-1].fn.__module__}.{layers[-1].fn.__qualname__}"] = digest or problem
    return found


def compare(folder: Path, arguments: argparse.Namespace) -> int:
    """Compare the digests of two environments; the exit status is 1 if one differs."""
    del folder
    one, other = (json.loads(Path(item).read_text()) for item in arguments.items)
    if one["triton"] != other["triton"]:
        sys.exit(f"the environments have Triton {one['triton']} and {other['triton']}; a pack serves one release")
    packages, different = {}, []
    for top in sorted({*one["packages"]} & {*other["packages"]}):
        before, after = (each["packages"][top] for each in (one, other))
        both = sorted({*before} & {*after})
        equal = [name for name in both if before[name] == after[name]]
        without = [before[name] for name in both if len(before[name]) != _HEXADECIMAL]
        packages[top] = {"kernels": len(both), "equal": len(equal), "without a digest": without}
        different += [name for name in both if before[name] != after[name]]
    total = sum(each["kernels"] for each in packages.values())
    print(f"{total} kernels of {len(packages)} packages; {len(different)} digests differ: {different}")
    environments = [{key: each[key] for key in ("python", "torch", "triton")} for each in (one, other)]
    document = {"environments": environments, "packages": packages, "different": different}
    out = _HERE.parent.parent / "docs" / "results" / "pack_digests.json"
    out.write_text(json.dumps(document, indent=1) + "\n")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
