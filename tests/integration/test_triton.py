"""Triton's kernels: built without a GPU, held against what Triton itself compiles, and launched without Triton."""

from __future__ import annotations

import importlib
import os
import struct
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aotcuda.binary import fatbin
from aotcuda.errors import ArgumentError, FallbackWarning
from integration import projects
from integration.projects import content, manifest_of

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the wheel, and what its build printed beside its own output."""
    project = projects.copy("tritonkernels", tmp_path_factory.mktemp("triton") / "project")
    said = projects.back_end(project).err
    (wheel,) = (project / "dist").glob("*.whl")
    return wheel, said


@pytest.fixture(scope="module")
def wheel(built: tuple[Path, str]) -> Path:
    return built[0]


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    return content(wheel)


class TestTheWheel:
    def test_build_prints_only_lines_of_aotcuda(self, built: tuple[Path, str]) -> None:
        """Triton's bindings list objects at exit if a process still refers to some."""
        wheel, said = built
        assert [line for line in said.splitlines() if not line.startswith("aotcuda")] == [f"dist/{wheel.name}"]

    def test_a_kernel_has_a_variant_for_each_set_and_specialisation(self, files: dict[str, bytes]) -> None:
        manifest = manifest_of(files, "tritonkernels.kernels")
        assert [image["arch"] for image in manifest["images"]] == ["sm_80", "sm_90a", "compute_80"]
        kernels = {item["name"]: item for item in manifest["kernels"]}
        assert [item["signature"] for item in kernels["add"]["overloads"]] == [
            f"void({types}; BLOCK={block}, num_warps=4, num_stages=3)"
            for block in (128, 1024)
            for types in (
                "*fp32:16, *fp32:16, *fp32:16, i32:16",
                "*fp32:16, *fp32:16, *fp32:16, i32",
                "*fp32, *fp32, *fp32, i32",
            )
        ]
        assert [item["name"] for item in kernels["add"]["arguments"]] == [
            *("x", "y", "out", "n", "BLOCK"),
            *("num_warps", "num_ctas", "num_stages"),
        ]
        assert {item["launches"]["sm_80"]["threads"] for item in kernels["scale"]["overloads"]} == {64, 128}

    def test_machine_code_is_what_triton_itself_makes(self, files: dict[str, bytes], tmp_path: Path) -> None:
        """Byte for byte, by each kernel's section: a module's kernels are assembled together, Triton's one by one."""
        found = {}
        for module in ("kernels", "tensor_cores"):
            entries = fatbin.read(files[f"tritonkernels/{module}.aotcuda/kernels.fatbin"], module)
            manifest = manifest_of(files, f"tritonkernels.{module}")
            symbols = {
                item["symbol"]: item["launches"] for kernel in manifest["kernels"] for item in kernel["overloads"]
            }
            for entry in entries:
                if entry.kind != "sass":
                    continue
                sections = sections_of(entry.content)
                for symbol, launches in symbols.items():
                    found[symbol, entry.arch] = sections[f".text.{symbol}"], launches[entry.arch]["shared"]
        wanted = subprocess.run(
            [sys.executable, "-c", REFERENCE, str(projects.PACKAGES / "tritonkernels"), str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "TRITON_DISABLE_LINE_INFO": "1"},
        )
        assert wanted.returncode == 0, wanted.stderr
        for line in wanted.stdout.splitlines():
            symbol, arch, name, shared = line.split()
            own = sections_of((tmp_path / f"{symbol}-{arch}").read_bytes())[f".text.{name}"]
            assert found[symbol, arch] == (own, int(shared)), (symbol, arch)


REFERENCE = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from tritonkernels import _kernels, _tensor_cores

def compiled(symbol, function, types, values, hints, capabilities=(80, 90), **options):
    names = [parameter.name for parameter in function.params]
    plain = dict(zip([name for name in names if name not in values], types))
    signature = {name: plain.get(name, "constexpr") for name in names}
    signature |= {name: "constexpr" for name in plain if plain[name] == "one"}
    values |= {name: 1 for name in plain if plain[name] == "one"}
    constants = {(names.index(name),): value for name, value in values.items()}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in hints}
    for capability in capabilities:
        source = ASTSource(function, signature, constants, attributes)
        fused = {"enable_fp_fusion": True}
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={**options, **fused})
        arch = f"sm_{capability}" + ("a" if capability >= 90 else "")
        Path(sys.argv[2], f"{symbol}-{arch}").write_bytes(made.asm["cubin"])
        print(symbol, arch, made.metadata.name, made.metadata.shared)

fp32 = ["*fp32", "*fp32", "*fp32", "i32"]
compiled("add__0_0", _kernels.add, fp32, {"BLOCK": 128}, ["x", "y", "out", "n"])
compiled("add__1_2", _kernels.add, fp32, {"BLOCK": 1024}, [])
compiled("softmax__0_0", _kernels.softmax, ["*fp32", "*fp32", "i32", "i32", "i32"], {"BLOCK": 1024},
         ["out", "x", "out_stride", "stride", "columns"], num_warps=8)
compiled("matmul__0_0", _tensor_cores.matmul,
         ["*fp16"] * 3 + ["i32", "i32", "i32", "i32", "one", "i32", "one", "i32", "one"],
         {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, ["a", "b", "c", "m", "n", "k", "am", "bk", "cm"],
         capabilities=(90,), num_warps=8)
"""


def sections_of(image: bytes) -> dict[str, bytes]:
    """Return the sections of an ELF file by name, as its specification has them."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, table + size * at) for at in range(count)]
    text = headers[names][4]
    return {
        image[text + name : image.index(b"\0", text + name)].decode(): image[offset : offset + length]
        for name, _, _, _, offset, length in headers
    }


ARRAY = """
import sys
import aotcuda.runtime.driver
from tritonkernels import kernels

class Array:
    def __init__(self, address):
        self.__cuda_array_interface__ = {
            "version": 3, "data": (address, False), "shape": (4096,), "typestr": "<f4", "strides": None}
"""


class TestLaunches:
    """In an interpreter with nothing installed; tests/unit/test_runtime_grid.py has the rules."""

    @pytest.fixture
    def launch(self, cuda, wheel: Path):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(cuda.packages)

        def run(code: str, **environ: str) -> list[dict]:
            said = "print({'triton', 'torch', 'numpy'} & {*sys.modules})"
            assert cuda.run(ARRAY + code + said, **environ) == "set()\n"
            return cuda.launches()

        return run

    def test_launch_selects_the_variant_of_tritons_rule(self, cuda, launch) -> None:
        x, y, out = (cuda.allocate(4 * 4096) for _ in range(3))
        code = "".join(
            f"kernels.add[({-(-n // block)},)](Array({x}), Array({y}), Array({out + shift}), {n}, BLOCK={block})\n"
            for n, block, shift in [(4096, 128, 0), (4095, 1024, 0), (4096, 1024, 4)]
        )
        found = launch(code)
        assert [(call["kernel"], call["grid"], call["block"]) for call in found] == [
            ("add__0_0", [32, 1, 1], [128, 1, 1]),
            ("add__1_1", [4, 1, 1], [128, 1, 1]),
            ("add__1_2", [4, 1, 1], [128, 1, 1]),
        ]
        assert bytes.fromhex(found[1]["parameters"]) == struct.pack("<QQQi4xQQ", x, y, out, 4095, 0, 0)

    def test_tensor_cores_have_the_shared_memory_that_triton_says(self, cuda, launch, files: dict[str, bytes]) -> None:
        q = cuda.allocate(4 * 65536)
        code = (
            "from tritonkernels import tensor_cores as k\n"
            f"a = Array({q}); a.__cuda_array_interface__['typestr'] = '<f2'\n"
            "k.matmul[(2, 2)](a, a, a, 256, 256, 64, 64, 1, 256, 1, 256, 1, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64)\n"
            "k.attention[(4, 1)](a, a, a, a, 0.125, 256, BLOCK_M=64, BLOCK_N=64, HEAD=64)\n"
        )
        found = launch(code)
        manifest = manifest_of(files, "tritonkernels.tensor_cores")
        wanted = [kernel["overloads"][0]["launches"]["sm_90a"] for kernel in manifest["kernels"]]
        assert [{"threads": call["block"][0], "shared": call["shared"]} for call in found] == wanted
        assert wanted[0]["shared"] > 48 << 10
        assert wanted[0]["threads"] == 256


def test_another_gpu_gets_what_triton_compiles_for_it(
    cuda, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(cuda.packages)
    importlib.invalidate_caches()
    cuda.set(devices="7.5")
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    try:
        kernels = importlib.import_module("tritonkernels.kernels")
        x = cuda.array(np.zeros(4096, "<f4"))
        with pytest.warns(FallbackWarning, match=r"tritonkernels\.kernels, all of it"):
            kernels.scale[lambda meta: (4096 // meta["BLOCK"],)](x, 0.5, 4096)
        (call,) = cuda.launches()
        assert (call["kernel"], call["grid"], call["block"]) == ("scale__0_0", [64, 1, 1], [64, 1, 1])
        (image,) = (tmp_path / "cache").rglob("kernels.cubin")
        assert ".text.scale__0_0" in sections_of(image.read_bytes())
        with pytest.raises(ArgumentError, match=r"no packaged signature of .*scale accepts these arguments"):
            kernels.scale[1](cuda.array(np.zeros(4096)), 0.5, 4096)
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "tritonkernels"]:
            del sys.modules[name]
