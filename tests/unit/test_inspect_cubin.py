"""Test what is read out of cubins equals what NVIDIA's cuobjdump says of them; damaged cubins end in one line."""

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


@pytest.mark.parametrize("arch", images.ARCHS)
def test_resources_of_kernels_from_numba_equal_cuobjdumps(arch: str) -> None:
    data = images.numba_cubin(arch)
    assert {kernel.name for kernel in cubin.read(data, "image").kernels} == {"axpy", "tiled", "scratch"}
    assert_equals_cuobjdump(data)


@pytest.mark.parametrize("arch", TARGETS)
def test_resources_of_kernels_with_calls_recursion_and_spills_equal_cuobjdumps(arch: str) -> None:
    assert_equals_cuobjdump(images.cuda_cubin(arch, "-maxrregcount=32"))


@pytest.mark.parametrize("arch", images.ARCHS)
def test_resources_in_relocatable_and_in_linked_images_equal_cuobjdumps(arch: str) -> None:
    assert_equals_cuobjdump(images.cuda_cubin(arch, "-rdc=true"))
    assert_equals_cuobjdump(images.linked_cubin(arch))


@pytest.mark.parametrize("arch", images.ARCHS)
def test_kernels_functions_and_code_sizes_are_those_of_cuobjdumps_symbol_table(arch: str) -> None:
    data = images.linked_cubin(arch)
    table = images.cuobjdump(data, "-elf").partition(".section .symtab")[2].partition(".section")[0]
    # index, value, size, info, other, section, name; info 0x12 is a global function, other 0x10 a kernel
    rows = re.findall(r"^ 0x\w+ +\S+ +(\S+) +0x12 +(\S+) +\S+ +(\S+)$", table, re.MULTILINE)
    image = cubin.read(data, "image")
    kernels = {name: int(size, 16) for size, other, name in rows if other == "0x10"}
    assert len(kernels) == 6
    assert {kernel.name: kernel.code for kernel in image.kernels} == kernels
    assert image.functions == tuple(name for _, other, name in rows if other == "0") == ("exported",)


@pytest.mark.parametrize("arch", TARGETS)
def test_the_arch_is_the_one_that_the_image_was_built_for(arch: str) -> None:
    data = images.cuda_cubin(arch, "-maxrregcount=32")
    assert cubin.read(data, "image").arch == arch
    # cuobjdump drops the suffix of family-specific code
    assert f"sm={arch[3:].removesuffix('f')}," in images.cuobjdump(data, "-elf")


@pytest.mark.parametrize(("flags", "arch"), [(0x5A055A, "sm_90"), (0x5A0D5A, "sm_90a"), (0x4B054B, "sm_75")])
def test_the_header_that_cuda_12_writes_is_read_as_well(flags: int, arch: str) -> None:
    data = bytearray(images.numba_cubin("sm_90"))
    data[8] = 7
    struct.pack_into("<I", data, 48, flags)
    assert cubin.read(bytes(data), "image").arch == arch


@pytest.mark.parametrize("arch", images.ARCHS)
def test_launch_bounds_show(arch: str) -> None:
    bounds = {kernel.name: kernel.max_threads for kernel in cubin.read(images.numba_cubin(arch), "image").kernels}
    assert bounds == {"axpy": None, "scratch": None, "tiled": 128}


def parameter_block(image: cubin.Cubin, name: str) -> tuple[int, list[tuple[int, int, int]]]:
    """Return the size of a kernel's parameter block, and the ordinal, offset and size of each parameter in it."""
    (kernel,) = [kernel for kernel in image.kernels if kernel.name == name]
    return kernel.parameter_bytes, [*kernel.parameters]


@pytest.mark.parametrize("arch", images.ARCHS)
def test_the_parameter_block_is_numbas(arch: str) -> None:
    size, parameters = parameter_block(cubin.read(images.numba_cubin(arch), "image"), "axpy")
    words = [(ordinal, 8 * ordinal, 8) for ordinal in range(1, 15)]  # two arrays of seven words each
    assert (size, parameters) == (120, [(0, 0, 4), *words])


@pytest.mark.parametrize("arch", images.ARCHS)
def test_the_parameter_block_holds_structs_small_and_large(arch: str) -> None:
    image = cubin.read(images.cuda_cubin(arch, "-maxrregcount=32"), "image")
    assert parameter_block(image, "bounded") == (40, [(0, 0, 24), (1, 24, 1), (2, 32, 8)])
    large = [(0, 0, 20000), (1, 20000, 1), (2, 20004, 4), (3, 20008, 8)]
    assert parameter_block(image, "large") == (20016, large)
    assert parameter_block(image, "empty") == (0, [])


def test_every_truncation_is_an_error_that_names_the_file() -> None:
    data = images.numba_cubin("sm_75")
    for length in range(len(data)):
        with pytest.raises(ImageError, match=r"^the\.cubin (is not|cannot be read as) a cubin"):
            cubin.read(data[:length], "the.cubin")


def test_other_files_are_told_from_cubins() -> None:
    with pytest.raises(ImageError, match="is not a cubin: it is no 64-bit ELF file"):
        cubin.read(b"MZ" + bytes(100), "image")
    host = bytearray(images.numba_cubin("sm_90"))
    struct.pack_into("<H", host, 18, 62)  # EM_X86_64
    with pytest.raises(ImageError, match="is not a cubin: it is for ELF machine 62, not 190"):
        cubin.read(bytes(host), "image")
