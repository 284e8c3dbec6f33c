"""Test wheels that two toolkits build together: CUDA 12.9 for old drivers, CUDA 13 for GPUs that 12.9 does not know.

The compilers of CUDA 12.9 are in a folder on PYTHONPATH, as in the overlay of an isolated build.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import fatbin
from aotcuda.binary.elf import Elf
from integration import cuda_cpp, projects
from integration.projects import build_wheel, content, manifest_of, write
from support.images import cuobjdump

if TYPE_CHECKING:
    from pathlib import Path

    from aotcuda.manifest import Manifest

pytestmark = pytest.mark.usefixtures("front_end")

SOURCE = """
from numba import cuda

scale = cuda.declare_device("scale", "float32(float32)", abi="c", link="scale.cu")


def total(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, 0, x[i])


def scaled(x):
    return scale(x) + 1
"""
USER = """
from numba import cuda

scaled = cuda.declare_device("scaled", "float32(float32)", abi="c")


def each(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = scaled(x[i])
"""
MODULES = """\
kernels.total = ["void(float32[::1], float32[::1])", "void(float64[::1], float64[::1])"]
functions.scaled = "float32(float32)"

[tool.aotcuda.modules."pkg.user"]
source = "pkg._user"
link = [{ module = "pkg.k" }]
kernels.each = "void(float32[::1])"
"""
SCALE = 'extern "C" __device__ float scale(float x) { return x * 3; }\n'
OLD = ("sm_75", "sm_90", "sm_120")
NEW = ("sm_88", "sm_110")
ARCH = ";".join((NEW[0], *OLD, NEW[1], "compute_75"))


def project(folder: Path) -> Path:
    root = write(folder / "project", SOURCE, module=MODULES)
    (root / "pkg" / "_user.py").write_text(projects.source(USER))
    (root / "scale.cu").write_text(SCALE)
    return root


@pytest.fixture(scope="module")
def wheel(front_end: str, cuda12: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(project(tmp_path_factory.mktemp("wide")), PYTHONPATH=cuda12, AOTCUDA_ARCH=ARCH)


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    return content(wheel)


@pytest.fixture(scope="module")
def manifest(files: dict[str, bytes]) -> Manifest:
    return manifest_of(files, "pkg.k")


def images(files: dict[str, bytes], module: str) -> dict[str, bytes]:
    data = files[f"pkg/{module}.aotcuda/kernels.fatbin"]
    return {entry.arch: entry.content for entry in fatbin.read(data, module)}


@pytest.mark.parametrize("module", ["k", "user"])
def test_oldest_suitable_toolkit_makes_each_image(files: dict[str, bytes], module: str) -> None:
    manifest = manifest_of(files, f"pkg.{module}")
    assert manifest["toolchain"]["cuda"] == manifest["toolchain"]["nvjitlink"] == "12.9"
    assert [other["versions"]["cuda"] for other in manifest["toolchains"]] == ["13.0"]
    assert {image["arch"]: image.get("linker") for image in manifest["fatbins"][0]["images"]} == {
        **dict.fromkeys((*OLD, "compute_75")),
        **dict.fromkeys(NEW, "13.0"),
    }
    contents = images(files, module)
    # The ELF ABI shows the assembler: 8 for images of CUDA 13, and for all GPUs from 10.0 on.
    abis = {arch: Elf(contents[arch], machine=190).abi_version for arch in (*OLD, *NEW)}
    assert abis == {"sm_75": 7, "sm_90": 7, "sm_120": 8, "sm_88": 8, "sm_110": 8}


def test_every_image_has_every_kernel(files: dict[str, bytes], manifest: Manifest) -> None:
    symbols = sorted(overload["symbol"] for kernel in manifest["kernels"] for overload in kernel["overloads"])
    assert len(symbols) == 2
    for arch in (*OLD, *NEW):
        listed = cuobjdump(images(files, "k")[arch], "--dump-elf-symbols")
        assert sorted(re.findall(r"^STT_FUNC\s+STB_GLOBAL\s+STO_ENTRY\s+(\w+)$", listed, re.MULTILINE)) == symbols
    for kernel in manifest["kernels"]:
        assert all(sorted(overload["resources"]) == sorted((*OLD, *NEW)) for overload in kernel["overloads"])


def test_drivers_from_525_on_can_load_the_wheel(files: dict[str, bytes], manifest: Manifest) -> None:
    assert manifest["min_driver"] == "525.60"
    lowest = dict.fromkeys(("sm_75", "sm_90", "compute_75"), "525.60") | {"sm_120": "570.26"}
    assert {image["arch"]: image["min_driver"] for image in manifest["fatbins"][0]["images"]} == lowest | dict.fromkeys(
        NEW, "580.65"
    )
    assert re.findall(rb"(?m)^\.version (.*)$", images(files, "k")["compute_75"]) == [b"8.0"]  # PTX ISA of CUDA 12.0
    packed = files["pkg/k.aotcuda/kernels.fatbin"]
    assert b"\x28\xb5\x2f\xfd" not in packed  # no Zstandard, which drivers before 550 do not read
    assert len(packed) < 0.7 * sum(image["bytes"] for image in manifest["fatbins"][0]["images"])


def test_functions_are_packaged_for_linkers_of_both(files: dict[str, bytes], manifest: Manifest) -> None:
    (other,) = manifest["toolchains"]
    assert other["functions"]["path"] == "functions_cu13.fatbin"
    assert [file["path"] for file in other["function_links"]] == ["link0_scale_cu13.fatbin"]
    assert [file["path"] for file in manifest["function_links"]] == ["link0_scale.fatbin"]
    capabilities = ("sm_75", "sm_88", "sm_90", "sm_110", "sm_120")
    assert [image["arch"] for image in other["ltoir"]] == [*capabilities, "compute_75"]
    for file in (other["functions"], *other["function_links"]):
        assert len(files[f"pkg/k.aotcuda/{file['path']}"]) == file["bytes"]
    # The linker here is CUDA 13.0's.
    kernel = 'extern "C" __device__ float scaled(float); extern "C" __global__ void g(float* x) { *x = scaled(*x); }'
    calls = cuda_cpp.compile_source(kernel, "LTOIR", "-arch=compute_80", "-dlto", "-rdc=true")
    files_of = [files[f"pkg/k.aotcuda/{name}"] for name in ("functions_cu13.fatbin", "link0_scale_cu13.fatbin")]
    linked = cuda_cpp.link([("LTOIR", calls), *(("FATBIN", data) for data in files_of)], "-arch=sm_80", "-lto")
    assert "FFMA" in cuobjdump(linked, "--dump-sass")


def test_functions_are_inlined_into_kernels_of_both(files: dict[str, bytes]) -> None:
    for arch in (*OLD, *NEW):
        code = cuobjdump(images(files, "user")[arch], "--dump-sass")
        assert "FFMA" in code, arch
        assert "CALL" not in code, arch


def test_commands_read_the_wheel(wheel: Path, tmp_path: Path) -> None:
    described = json.loads(projects.aotcuda(tmp_path, "inspect", wheel, "--json").out)["modules"][0]
    assert [item["cuda"] for item in described["toolchains"]] == ["13.0"]
    assert described["min_driver"] == "525.60"
    text = projects.aotcuda(tmp_path, "inspect", wheel).out
    assert re.search(r"^  sm_88 +sass +\d+ +\d+ +13\.0$", text, re.MULTILINE)
    assert re.search(r"^  compute_75 +ptx +\d+ +\d+ +12\.9$", text, re.MULTILINE)
    cells = json.loads(projects.aotcuda(tmp_path, "check", wheel, "--json").out)["modules"][0]["cells"]
    served = {(cell["capability"], cell["cuda"]): cell["takes"] for cell in cells if cell["supported"]}
    assert served["7.5", "12.0"] == served["9.0", "13.4"] == served["8.8", "13.0"] == served["11.0", "13.0"] == "exact"
    assert served["8.7", "12.0"] == "ptx"  # a Tegra GPU, which runs no machine code of other GPUs
    assert "nothing" not in served.values()
    projects.aotcuda(tmp_path, "check", wheel, "--require", "T4@525,H100@525,RTX 5090")
    folder = projects.unpacked(wheel, tmp_path / "unpacked") / "pkg" / "k.aotcuda"
    files = projects.aotcuda(tmp_path, "config", folder, "--files", "--cuda", "13").out
    assert re.findall(r"\w+\.fatbin", files) == ["functions_cu13.fatbin", "link0_scale_cu13.fatbin"]
