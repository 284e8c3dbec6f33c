"""Test that the facts read from cubins equal those of NVIDIA's cuobjdump."""

from __future__ import annotations

import re
import struct

import pytest

from aotcuda.binary import cubin
from aotcuda.errors import ImageError
from support import images

TARGETS = (*images.ARCHS, "sm_90a", "sm_100a", "sm_100f", "sm_120f")


def assert_equals_cuobjdump(data: bytes) -> None:
    expected = images.resource_usage(data)
    kernels = cubin.read(data, "image").kernels
    assert kernels
    for kernel in kernels:
        usage = expected[kernel.name]
        assert kernel.registers == int(usage["REG"]), kernel.name
        assert kernel.shared == int(usage["SHARED"]), kernel.name
        assert ("UNKNOWN" if kernel.local is None else str(kernel.local)) == usage["STACK"], kernel.name
        assert usage["LOCAL"] == "0"
        constants = [int(size) for bank, size in usage.items() if bank.startswith("CONSTANT[")]
        assert kernel.constant == sum(constants) + images.constant_arrays(data), kernel.name


@pytest.mark.parametrize("arch", TARGETS)
def test_resources_equal_those_of_cuobjdump(arch: str) -> None:
    """Compare kernels of Numba, and kernels with calls, recursion and spills, in relocatable and linked images too."""
    assert_equals_cuobjdump(images.cuda_cubin(arch, "-maxrregcount=32"))
    if arch in images.ARCHS:
        assert_equals_cuobjdump(images.numba_cubin(arch))
        assert_equals_cuobjdump(images.cuda_cubin(arch, "-rdc=true"))
        assert_equals_cuobjdump(images.linked_cubin(arch))


@pytest.mark.parametrize("arch", images.ARCHS)
def test_symbols_and_code_sizes_equal_those_of_cuobjdump(arch: str) -> None:
    data = images.linked_cubin(arch)
    table = images.cuobjdump(data, "-elf").partition(".section .symtab")[2].partition(".section")[0]
    # The columns are index, value, size, info, other, section, name. Info 0x12 is a global function; other 0x10 is a
    # kernel.
    rows = re.findall(r"^ 0x\w+ +\S+ +(\S+) +0x12 +(\S+) +\S+ +(\S+)$", table, re.MULTILINE)
    image = cubin.read(data, "image")
    kernels = {name: int(size, 16) for size, other, name in rows if other == "0x10"}
    assert len(kernels) == 6
    assert {kernel.name: kernel.code for kernel in image.kernels} == kernels
    assert image.functions == tuple(name for _, other, name in rows if other == "0") == ("exported",)


@pytest.mark.parametrize("arch", TARGETS)
def test_arch_is_the_target_of_the_compiler(arch: str) -> None:
    data = images.cuda_cubin(arch, "-maxrregcount=32")
    assert cubin.read(data, "image").arch == arch
    # cuobjdump omits the suffix of family-specific code.
    assert f"sm={arch[3:].removesuffix('f')}," in images.cuobjdump(data, "-elf")


@pytest.mark.parametrize(("flags", "arch"), [(0x5A055A, "sm_90"), (0x5A0D5A, "sm_90a"), (0x4B054B, "sm_75")])
def test_header_of_cuda_12_is_read(flags: int, arch: str) -> None:
    data = bytearray(images.numba_cubin("sm_90"))
    data[8] = 7
    struct.pack_into("<I", data, 48, flags)
    assert cubin.read(bytes(data), "image").arch == arch


@pytest.mark.parametrize("arch", images.ARCHS)
def test_launch_bounds_and_parameters_are_read(arch: str) -> None:
    numba = {kernel.name: kernel for kernel in cubin.read(images.numba_cubin(arch), "image").kernels}
    assert {name: kernel.max_threads for name, kernel in numba.items()} == {"axpy": None, "scratch": None, "tiled": 128}
    words = [(ordinal, 8 * ordinal, 8) for ordinal in range(1, 15)]  # two arrays of seven words each
    assert (numba["axpy"].parameter_bytes, [*numba["axpy"].parameters]) == (120, [(0, 0, 4), *words])
    cpp = {kernel.name: kernel for kernel in cubin.read(images.cuda_cubin(arch, "-maxrregcount=32"), "image").kernels}
    parameters = {name: (kernel.parameter_bytes, [*kernel.parameters]) for name, kernel in cpp.items()}
    assert parameters["bounded"] == (40, [(0, 0, 24), (1, 24, 1), (2, 32, 8)])
    assert parameters["large"] == (20016, [(0, 0, 20000), (1, 20000, 1), (2, 20004, 4), (3, 20008, 8)])
    assert parameters["empty"] == (0, [])


def test_files_of_other_kinds_are_refused() -> None:
    with pytest.raises(ImageError, match="is not a cubin: it is no 64-bit ELF file"):
        cubin.read(b"MZ" + bytes(100), "image")
    host = bytearray(images.numba_cubin("sm_90"))
    struct.pack_into("<H", host, 18, 62)  # EM_X86_64
    with pytest.raises(ImageError, match="is not a cubin: it is for ELF machine 62, not 190"):
        cubin.read(bytes(host), "image")
