"""Test the header and the code of exported device functions with NVIDIA's compiler and linker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import cubin
from integration import cuda_cpp, projects
from support import front_ends
from support.images import cuobjdump

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("front_end")

FOLDER = "features/kernels.aotcuda"
HEADER = "features_kernels.h"


@pytest.fixture
def header(features: dict[str, bytes]) -> str:
    return features[f"{FOLDER}/{HEADER}"].decode()


@pytest.fixture
def prototypes(features: dict[str, bytes]) -> dict[str, str]:
    return {item["name"]: item["prototype"] for item in projects.manifest_of(features, "features.kernels")["functions"]}


@pytest.fixture
def functions(features: dict[str, bytes]) -> bytes:
    return features[f"{FOLDER}/functions.fatbin"]


def user_of(statements: str, header: str, arch: str) -> bytes:
    """Return LTOIR of a C++ kernel that includes the header and runs `statements`."""
    source = f'#include "{HEADER}"\nextern "C" __global__ void user(long long *out, float *p) {{\n{statements}\n}}\n'
    options = (f"-arch=compute_{arch}", "-dlto", "-rdc=true", "-default-device")
    return cuda_cpp.compile_source(source, "LTOIR", *options, headers={HEADER: header})


def test_every_function_is_declared_as_the_manifest_says(header: str, prototypes: dict[str, str]) -> None:
    declared = re.findall(r"^AOTCUDA_DEVICE (.*;)$", header, re.MULTILINE)
    assert declared == list(prototypes.values())
    assert prototypes["wide"] == "unsigned long long wide(unsigned char a, short b, unsigned int c, long long d);"
    assert prototypes["store"] == "void store(int *pointer, int value);"
    assert prototypes["answer"] == "int answer(void);"


def test_functions_use_the_abi_of_cuda_cpp(header: str, prototypes: dict[str, str], functions: bytes) -> None:
    addresses = "\n".join(f"out[{index}] = (long long)&{name};" for index, name in enumerate(prototypes))
    linked = cuda_cpp.link(
        [("LTOIR", user_of(addresses, header, "75")), ("FATBIN", functions)], "-lto", "-ptx", "-arch=compute_75"
    )
    built = cuda_cpp.prototypes(linked.decode())
    bodies = {name: "{}" if text.startswith("void ") else "{ return {}; }" for name, text in prototypes.items()}
    definitions = [f'extern "C" __device__ {text[:-1]} {bodies[name]}' for name, text in prototypes.items()]
    source = "\n".join([f'#include "{HEADER}"', *definitions])
    options = ("-arch=compute_75", "-rdc=true")
    expected = cuda_cpp.prototypes(cuda_cpp.compile_source(source, "PTX", *options, headers={HEADER: header}).decode())
    assert {name: built[name] for name in prototypes} == {name: expected[name] for name in prototypes}


# How C passes a complex number to each front end's functions.
COMPLEX = {front_ends.NUMBA: "{}, {}", front_ends.MLIR: "{{{}, {}}}"}


@pytest.mark.parametrize("arch", ["75", "120"])
def test_packaged_functions_link_into_cpp_kernel(arch: str, header: str, functions: bytes, front_end: str) -> None:
    number = COMPLEX[front_end].format
    calls = f"""
    store((int *)out, answer());
    out[1] = wide(p[0], p[1], p[2], p[3]) + negate_i8(p[4]) + is_positive(p[5]);
    aotcuda_complex128 z = square_c128({number("p[6]", "p[7]")});
    p[8] = z.real + z.imag + square_c64({number("p[9]", "p[10]")}).imag + sum_pair(p[11], p[12]) + root(p[13]);
    p[9] = *second(p);
    """
    linked = cuda_cpp.link([("LTOIR", user_of(calls, header, arch)), ("FATBIN", functions)], "-lto", f"-arch=sm_{arch}")
    assert [kernel.name for kernel in cubin.read(linked, "the linked kernel").kernels] == ["user"]


def test_packaged_functions_compute_python_results(header: str, functions: bytes) -> None:
    calls = "out[0] = answer(); out[1] = negate_i8(100) ; out[2] = is_positive(-1); out[3] = wide(1, 2, 3, 4);"
    inputs = [("LTOIR", user_of(calls, header, "75")), ("FATBIN", functions)]
    text = cuda_cpp.link(inputs, "-lto", "-ptx", "-arch=compute_75").decode()
    stored = re.findall(r"st\.global\.u64\s+\[%\w+(?:\+(\d+))?\], %(\w+);", text)
    moved = dict(re.findall(r"mov\.u64\s+%(\w+), (-?\d+);", text))
    assert {int(offset or 0) // 8: int(moved[register]) for offset, register in stored} == {0: 42, 1: -100, 2: 0, 3: 10}


def test_functions_have_ltoir_for_each_gpu_and_lowest_ptx(features: dict[str, bytes], functions: bytes) -> None:
    archs = ["sm_75", "sm_90a", "sm_100f"]
    assert re.findall(r"^arch = (\S+)", cuobjdump(functions), re.MULTILINE) == [*archs, "sm_75"]
    listed = projects.manifest_of(features, "features.kernels")["ltoir"]
    assert [(item["arch"], item["kind"]) for item in listed] == [
        *((arch, "ltoir") for arch in archs),
        ("compute_75", "ptx"),
    ]


ADD = "def add(x, y):\n    return x + y\n"
NAMES = """
functions.add = "int32(int32, int32)"
functions.add_f32 = { python = "add", signature = "float32(float32, float32)" }
"""
B32 = (".b32", "")


@pytest.mark.front_end(front_ends.MLIR)
@pytest.mark.parametrize("arch", ["100", pytest.param("75", marks=pytest.mark.matrix)])
def test_functions_have_the_prototypes_of_the_mlir_documentation(arch: str, tmp_path: Path) -> None:
    """Its page "Compiling Python functions for use with other languages" has these two functions."""
    project = projects.write(tmp_path / "project", ADD, module=NAMES)
    files = projects.content(projects.build_wheel(project, AOTCUDA_ARCH=f"sm_{arch}"))
    header = files["pkg/k.aotcuda/pkg_k.h"].decode()
    assert "AOTCUDA_DEVICE int add(int x, int y);" in header
    assert "AOTCUDA_DEVICE float add_f32(float x, float y);" in header
    source = '#include "k.h"\nextern "C" __global__ void user(long long *out) { out[0] = (long long)&add; '
    source += "out[1] = (long long)&add_f32; }"
    options = (f"-arch=compute_{arch}", "-dlto", "-rdc=true", "-default-device")
    user = cuda_cpp.compile_source(source, "LTOIR", *options, headers={"k.h": header})
    inputs = [("LTOIR", user), ("FATBIN", files["pkg/k.aotcuda/functions.fatbin"])]
    linked = cuda_cpp.link(inputs, "-lto", "-ptx", f"-arch=compute_{arch}").decode()
    assert cuda_cpp.prototypes(linked) == {"add": ([B32], [B32, B32]), "add_f32": ([B32], [B32, B32])}


def test_module_without_functions_has_no_ltoir(features: dict[str, bytes]) -> None:
    folder = "features/sub/fast.aotcuda/"
    files = ["features_sub_fast.h", "kernels.fatbin", "manifest.json"]
    assert [name for name in features if name.startswith(folder)] == [f"{folder}{name}" for name in files]


def test_module_without_kernels_has_no_images(tmp_path: Path) -> None:
    project = projects.write(tmp_path / "project", "def f(x):\n    return x\n", module='functions.f = "int32(int32)"')
    files = projects.content(projects.build_wheel(project))
    generated = [name.rpartition("/")[2] for name in files if name.startswith("pkg/k.aotcuda/")]
    assert sorted(generated) == ["functions.fatbin", "manifest.json", "pkg_k.h"]
    manifest = projects.manifest_of(files, "pkg.k")
    assert (manifest["fatbins"], manifest["kernels"]) == ([], [])
