"""Compare packaged machine code of Triton kernels with Triton's own, byte for byte, for several releases of Triton.

Each variant of a project's variants files is packaged, and compiled by `triton.compile` for the same targets; the
sections with a kernel's code are compared. The project is `tests/packages/tritoninplace` with kernels for tensor cores
and with variants that have other options. A variant that Triton refuses for a target has to be left out for it.

    python bench/triton_releases.py                                     # the installed Triton; needs no GPU
    python bench/triton_releases.py --release 3.6.0 --release 3.9.0     # these releases, which pip downloads
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_PACKAGES = Path(__file__).resolve().parent.parent / "tests" / "packages"
_TARGETS = ["sm_80", "sm_90", "sm_120"]
_OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_warps": 1, "num_stages": 1},
    {"num_warps": 8, "num_stages": 4},
    {"maxnreg": 64},
    {"enable_fp_fusion": True},
    {"enable_fp_fusion": False},
    {"launch_pdl": True},
    {"launch_cooperative_grid": True},
    {"num_ctas": 2},
    {"num_ctas": 2, "maxnreg": 128, "enable_fp_fusion": False, "launch_pdl": True, "launch_cooperative_grid": True},
]
"""Options of variants; clusters are refused below 9.0."""

_AGAIN = 8
"""The number of times that Triton compiles a variant again if the packaged code differs."""

_TENSOR_CORES: dict[str, Any] = {
    "matmul": {
        "parameters": [*"abcmnk", "am", "ak", "bk", "bn", "cm", "cn", "BLOCK_M", "BLOCK_N", "BLOCK_K"],
        "variants": [
            {
                "types": ["*fp16:16"] * 3 + ["i32:16"] * 4 + ["i32:1", "i32:16"] * 2 + ["i32:1"],
                "constexprs": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32},
            }
        ],
    },
    "attention": {
        "parameters": ["q", "k", "v", "out", "scale", "length", "BLOCK_M", "BLOCK_N", "HEAD"],
        "variants": [
            {
                "types": ["*fp16:16"] * 4 + ["fp32", "i32:16"],
                "constexprs": {"BLOCK_M": 64, "BLOCK_N": 64, "HEAD": 64},
            }
        ],
    },
}


def main() -> int:
    parser = machine.parser(__doc__, "triton_releases")
    parser.add_argument("--release", action="append", default=[], help="a release of Triton, once or several times")
    arguments = parser.parse_args()
    here = machine.describe()
    rows = [_by_release(release) for release in arguments.release] or [_compare()]
    keys = ("triton", "variants", "compared", "equal", "left_out", "varying", "differing")
    machine.table(keys, [tuple(row[key] for key in keys) for row in rows])
    machine.write(arguments.out, here, targets=_TARGETS, options=_OPTIONS, releases=rows)
    return int(any(row["differing"] for row in rows))


def _by_release(release: str) -> dict[str, Any]:
    """Compare in a process with another release of Triton."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", folder, f"triton=={release}"], check=True)
        path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        out = Path(folder, "out.json")
        subprocess.run(
            [sys.executable, __file__, "--out", str(out)], check=False, env={**os.environ, "PYTHONPATH": path}
        )
        (row,) = json.loads(out.read_text())["releases"]
    assert row["triton"] == release, row
    return row  # type: ignore[no-any-return]


def _compare() -> dict[str, Any]:
    """Compare by the installed Triton."""
    import triton

    with tempfile.TemporaryDirectory() as temporary:
        project, out = Path(temporary, "project"), Path(temporary, "own")
        _prepare(project)
        build = [sys.executable, "-m", "aotcuda", "build", str(project), "--out", str(out)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "AOTCUDA_PROGRESS": "0"})
        reference = run_reference(project, Path(temporary, "reference"))
        own = {key: code for manifest in out.rglob("manifest.json") for key, code in packaged(manifest.parent)}
        differing = [key for key, code in reference.items() if own.get(key) != code]
        varying = _varying(project, Path(temporary, "again"), differing) if differing else []
    return {
        "triton": triton.__version__,
        "variants": len({key[:3] for key in reference}),
        "compared": sum(code is not None for code in reference.values()),
        "equal": sum(own.get(key) == code for key, code in reference.items() if code is not None),
        "left_out": sum(code is None and key not in own for key, code in reference.items()),
        "varying": [" ".join(map(str, key)) for key in varying],
        "differing": [" ".join(map(str, key)) for key in differing if key not in varying],
    }


def _varying(project: Path, folder: Path, keys: list[Key]) -> list[Key]:
    """Return the variants for which Triton's own code differs between processes."""
    runs = [run_reference(project, folder / str(run), keys) for run in range(_AGAIN)]
    return [key for key in keys if len({run[key] for run in runs}) > 1]


def _prepare(project: Path) -> None:
    """Copy the project, with more variants."""
    shutil.copytree(_PACKAGES / "tritoninplace", project, ignore=shutil.ignore_patterns("dist", "__pycache__"))
    package = project / "tritoninplace"
    shutil.copyfile(_PACKAGES / "tritonkernels" / "tritonkernels" / "_tensor_cores.py", package / "_cores.py")
    config = project / "pyproject.toml"
    text = config.read_text().partition("kernels.add")[0].partition("[tool.aotcuda]")[0]
    table = f'[tool.aotcuda]\narch = {json.dumps([*_TARGETS, "compute_80"])}\nfrontend = "triton"\n'
    for name, source in (("norm", "norm"), ("cores", "_cores")):
        table += f'[tool.aotcuda.modules."tritoninplace.{name}"]\nsource = "tritoninplace.{source}"\n'
        table += f'variants = "tritoninplace/{source}.variants.json"\n'
    config.write_text(text + table)
    variants = json.loads((package / "norm.variants.json").read_text())
    add = {"types": ["*fp32:16"] * 3 + ["i32:16"], "constexprs": {"BLOCK": 1024}}
    variants["kernels"]["add"] = {"parameters": ["x", "y", "out", "n", "BLOCK"], "variants": [add]}
    for source, kernels in (("norm", variants["kernels"]), ("_cores", _TENSOR_CORES)):
        more = {name: {**kernel, "variants": [*_more(kernel["variants"])]} for name, kernel in kernels.items()}
        content = {**variants, "source": f"tritoninplace.{source}", "kernels": more}
        (package / f"{source}.variants.json").write_text(json.dumps(content))


def _more(variants: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield variants as they are, and the first one with other options."""
    yield from variants
    yield from (made for options in _OPTIONS if (made := variants[0] | options) not in variants)


_SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
"""Triton prints the variants that it cannot compile."""

Key = tuple[str, str, int, str]
"""Source module, kernel, number of the variant and target."""


def packaged(folder: Path) -> Iterator[tuple[Key, bytes]]:
    """Yield the machine code of each variant in a module's data folder."""
    from aotcuda.binary import fatbin

    manifest = json.loads((folder / "manifest.json").read_text())
    (source,) = {kernel["origin"].partition(":")[0] for kernel in manifest["kernels"]}
    symbols = {item["symbol"]: kernel["name"] for kernel in manifest["kernels"] for item in kernel["overloads"]}
    for entry in fatbin.read((folder / manifest["fatbins"][0]["file"]["path"]).read_bytes(), str(folder)):
        for symbol, code in _codes(entry.content) if entry.kind == "sass" else ():
            number = int(symbol.removeprefix(f"{symbols[symbol]}__").partition("_")[0])
            yield (source, symbols[symbol], number, entry.arch), code


def _codes(image: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the kernels of a cubin with their machine code."""
    import io

    from elftools.elf.elffile import ELFFile

    for section in ELFFile(io.BytesIO(image)).iter_sections():
        if section.name.startswith(".text."):
            yield section.name.removeprefix(".text."), section.data()


def run_reference(project: Path, folder: Path, only: Collection[Key] = ()) -> dict[Key, bytes | None]:
    """Compile variants by Triton itself in another process; return the machine code, or None if Triton refuses."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "only.json").write_text(json.dumps([*only]))
    environment = {
        "AOTCUDA_BUILDING": "1",  # sources in place get Triton itself
        "PYTHONPATH": os.pathsep.join([str(project), os.environ.get("PYTHONPATH", "")]),
        "TRITON_CACHE_DIR": str(folder / "cache"),
        "TRITON_DISABLE_LINE_INFO": "1",
    }
    command = [sys.executable, __file__, "reference", str(project), str(folder)]
    subprocess.run(command, check=True, env={**os.environ, **environment}, **_SILENT)
    keys = json.loads((folder / "keys.json").read_text())
    found: dict[Key, bytes | None] = {}
    for at, (*key, symbol) in enumerate(keys):
        codes = dict(_codes((folder / str(at)).read_bytes())) if symbol else {}
        found[tuple(key)] = codes[symbol] if symbol else None
    return found


def reference(project: Path, folder: Path) -> int:
    """Compile all variants by Triton itself; write the cubins, and `keys.json` with the variant of each."""
    only = json.loads((folder / "only.json").read_text())
    table = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["aotcuda"]
    capabilities = [int(target[3:]) for target in table["arch"] if target.startswith("sm_")]
    keys: list[list[Any]] = []
    for path in sorted(project.rglob("*.variants.json")):
        content = json.loads(path.read_text())
        for name, kernel in content["kernels"].items():
            function = getattr(importlib.import_module(content["source"]), name)
            for number, variant in enumerate(kernel["variants"]):
                wanted = [int(target[3:]) for target in variant.get("arch", [])] or capabilities
                for capability in wanted:
                    key = [content["source"], name, number, f"sm_{capability}{'a' * (capability >= 90)}"]
                    if not only or key in only:
                        try:
                            symbol, cubin = compile_variant(function, variant, capability)
                        except Exception:  # noqa: BLE001 (of any class)
                            symbol, cubin = "", b""
                        (folder / str(len(keys))).write_bytes(cubin)
                        keys.append([*key, symbol])
    (folder / "keys.json").write_text(json.dumps(keys))
    return 0


def compile_variant(function: Any, variant: dict[str, Any], capability: int) -> tuple[str, bytes]:
    """Compile a variant of a variants file by Triton itself; return its symbol and cubin."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    while not hasattr(function, "params"):
        function = function.fn  # below autotuners and heuristics
    types = iter(variant["types"])
    signature, values, hints = {}, {}, {}
    for at, parameter in enumerate(function.params):
        kind, _, hint = ("constexpr" if parameter.is_constexpr else next(types)).partition(":")
        if kind in ("constexpr", "none") or hint == "1":
            value = 1 if hint == "1" else variant["constexprs"].get(parameter.name)
            values[(at,)] = getattr(tl, value["dtype"]) if isinstance(value, dict) else value
            kind = "constexpr"
        elif hint:
            hints[(at,)] = [["tt.divisibility", 16]]
        signature[parameter.name] = kind
    options = {name: value for name, value in variant.items() if name not in ("types", "constexprs", "arch")}
    options = {"enable_fp_fusion": True} | options  # as aotcuda has it: newer releases warn without
    source = ASTSource(function, signature, values, hints)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return compiled.metadata.name, compiled.asm["cubin"]


if __name__ == "__main__":
    if sys.argv[1:2] == ["reference"]:
        sys.exit(reference(*map(Path, sys.argv[2:])))
    sys.exit(main())
