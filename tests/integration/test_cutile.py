"""cuTile's kernels: built without a GPU, compared with the export of cuda-tile, and launched without cuda-tile.

The tests run where aotcuda[cutile] is installed. It has a separate environment, since its compiler needs another
version of CUDA than the other front ends.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aotcuda.binary import cubin, fatbin
from aotcuda.binary.elf import Elf
from aotcuda.errors import FallbackWarning
from integration import projects
from integration.projects import build_wheel, content, manifest_of

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


pytest.importorskip("cuda.tile", reason="cuda-tile is not installed (extra cutile)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(projects.copy("cutilekernels", tmp_path_factory.mktemp("cutile") / "project"))


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    return content(wheel)


class TestTheWheel:
    def test_wheel_is_for_one_system(self, wheel: Path, files: dict[str, bytes]) -> None:
        assert wheel.name.startswith("cutilekernels-1.0-py3-none-linux_")
        manifest = manifest_of(files, "cutilekernels.kernels")
        assert [(image["arch"], image["kind"]) for image in manifest["fatbins"][0]["images"]] == [
            ("sm_80", "sass"),
            ("sm_90a", "sass"),
        ]
        assert manifest["frontend"] == "cutile"
        assert manifest["by_grid"] is True
        assert manifest["toolchain"]["nvidia-cuda-tileiras"].startswith(manifest["toolchain"]["cuda"])

    def test_a_kernel_has_a_variant_for_each_constant_and_specialisation(self, files: dict[str, bytes]) -> None:
        kernels = {item["name"]: item for item in manifest_of(files, "cutilekernels.kernels")["kernels"]}
        assert [item["signature"] for item in kernels["add"]["overloads"]] == [
            f"void({', '.join([f'float32[::1]{hint}'] * 3)}; TILE={tile})"
            for tile in (256, 1024)
            for hint in (":16:16", ":16", "")
        ]
        assert [item["name"] for item in kernels["add"]["arguments"]] == ["x", "y", "out", "TILE"]
        assert kernels["scale"]["doc"] == "Scale an array with any strides, in place."

    def test_machine_code_is_what_cuda_tile_itself_exports(self, files: dict[str, bytes], tmp_path: Path) -> None:
        """A build assembles the kernels of a module together, cuda-tile one by one."""
        entries = fatbin.read(files["cutilekernels/kernels.aotcuda/kernels.fatbin"], "kernels")
        packaged_images = {entry.arch: entry.content for entry in entries}
        done = subprocess.run(
            [sys.executable, "-c", REFERENCE, str(projects.PACKAGES / "cutilekernels"), str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"CUDA_TILE_CACHE_DIR": "0"},
        )
        assert done.returncode == 0, done.stderr
        names = done.stdout.split()
        assert len(names) == 6
        for name in names:
            symbol, arch = name.split("-")
            exported = (tmp_path / name).read_bytes()
            images = (Elf(data, machine=190) for data in (packaged_images[arch], exported))
            packaged_code, exported_code = (image.content(f".text.{symbol}") for image in images)
            assert packaged_code == exported_code != b"", name
            (wanted,) = cubin.read(exported, name).kernels
            (packaged,) = [item for item in cubin.read(packaged_images[arch], arch).kernels if item.name == symbol]
            assert packaged == wanted


REFERENCE = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import cuda.tile as ct
from cuda.tile import compilation
from cutilekernels import _kernels

def array(dtype, ndim, divisor, extents, several=True):
    contiguous = [1 if axis == ndim - 1 else None for axis in range(ndim)]
    return compilation.ArrayConstraint(
        dtype, ndim, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=["all"] if several else [],
        may_alias_internally=False, stride_constant=contiguous, base_addr_divisible_by=divisor,
        stride_divisible_by=[1 if one else max(divisor * 8 // dtype.bitwidth, 1) for one in contiguous],
        shape_divisible_by=extents,
    )

def export(symbol, kernel, parameters):
    convention = compilation.CallingConvention.cutile_python_v2()
    for code in ("80", "90"):
        signature = compilation.KernelSignature(parameters, convention, symbol=symbol)
        name = f"{symbol}-sm_{code}{'a' if code == '90' else ''}"
        file = str(Path(sys.argv[2], name))
        compilation.export_kernel(kernel, [signature], file, gpu_code=f"sm_{code}", output_format="cubin")
        print(name)

export("add__1_0", _kernels.add, [array(ct.float32, 1, 16, 16)] * 3 + [1024])
export("add__0_2", _kernels.add, [array(ct.float32, 1, 1, 1)] * 3 + [256])
export("softmax__0_1", _kernels.softmax, [array(ct.float32, 2, 16, 1, several=False)] * 2 + [1024])
"""


@pytest.fixture(params=["9.0"])
def k(cuda, wheel: Path, request: pytest.FixtureRequest) -> ModuleType:
    """Return the packaged kernels, on a stand-in driver that knows the sizes of the parameters of `add`."""
    cuda.set(devices=request.param)
    cuda.install(wheel)
    cuda.set(sizes=",".join(["8,4,4"] * 3))
    return importlib.import_module("cutilekernels.kernels")


def arrays_and_block(cuda) -> tuple[list[Any], bytes]:
    """Return arguments of `add`, and the parameters that the driver gets for them."""
    arrays = [cuda.array(np.zeros(64, "<f4")) for _ in range(3)]
    return arrays, b"".join(np.uint64(x.address).tobytes() + np.array([64, 1], "<i4").tobytes() for x in arrays)


def test_the_driver_chooses_the_blocks(cuda, k) -> None:
    arrays, block = arrays_and_block(cuda)
    for _ in range(3):
        k.add[3, 2](*arrays, TILE=256)
        call = cuda.launches()[-1]
        assert (call["kernel"], call["grid"], call["block"], call["shared"]) == ("add__0_0", [3, 2, 1], [1, 1, 1], 0)
        assert cuda.parameters() == block


@pytest.mark.parametrize("k", ["10.0"], indirect=True)
def test_cuda_tile_compiles_for_a_gpu_without_an_image(
    cuda, k, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    arrays, block = arrays_and_block(cuda)
    with pytest.warns(FallbackWarning, match=r"cutilekernels\.kernels, all of it"):
        k.add[1](*arrays, 256)
    assert cuda.parameters() == block
    (image,) = (tmp_path / "cache").rglob("kernels.cubin")
    assert cubin.read(image.read_bytes(), "cached").arch == "sm_100a"


def test_example_launches_packaged_code(cuda, tmp_path: Path) -> None:
    cuda.set(devices="8.0")
    cuda.install(build_wheel(projects.example("cutile", tmp_path / "project"), AOTCUDA_ARCH="sm_80"))
    cuda.set(sizes=",".join(["8,4,4"] * 3))
    importlib.import_module("tiles").add(*(cuda.array(np.zeros(1000, "<f4")) for _ in range(3)))
    assert cuda.launches()[-1]["grid"] == [4, 1, 1]
