"""Check that kernels that are compiled in groups and then linked equal those that are linked in one step."""

from __future__ import annotations

import functools
import re

import pytest

from aotcuda.arch import Target, parse
from aotcuda.binary import cubin
from aotcuda.builder.compile import kernel_groups
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import nvjitlink, nvrtc
from support import images

KERNELS = {
    "divided": "extern __C__ __global__ void divided(double *x, double y) { x[0] = x[1] / y + sqrt(y); }",
    "angles": "extern __C__ __global__ void angles(double *x, double y) { x[0] = sin(y) * tan(y); }",
    "tiled": "extern __C__ __global__ void tiled(float *x) { __shared__ float t[64]; t[threadIdx.x] = x[threadIdx.x]; "
    "__syncthreads(); x[threadIdx.x] = t[63 - threadIdx.x]; }",
    "looked_up": "static __constant__ float t[4] = {1, 2, 3, 4}; "
    "extern __C__ __global__ void looked_up(float *x, int n) { x[n] = t[n & 3]; }",
}
"""Subroutines of ptxas's own; tables of the mathematical library; shared memory; constants."""

Linked = tuple[bytes, dict[str, int]]

NOT_GROUPED = {
    "recursive": "static __device__ __noinline__ int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2) * n; } "
    "extern __C__ __global__ void k(int *x) { *x = f(*x); }",
    "dynamic shared memory": "extern __shared__ float d[]; extern __C__ __global__ void k(float *x) "
    "{ d[threadIdx.x] = *x; __syncthreads(); *x = d[7 - threadIdx.x]; }",
}


@functools.cache
def ltoir(source: str, target: str, options: Options) -> LinkInput:
    item = LinkInput(kind="cu", name="k.cu", data=source.replace("__C__", '"C"').encode())
    return LinkInput(kind="ltoir", name="k", data=nvrtc.compile_source(item, parse(target), options, [], lto=True))


@functools.cache
def in_one_step(target: str, options: Options) -> Linked:
    code = [ltoir(source, target, options) for source in KERNELS.values()]
    return nvjitlink.link("m", code, parse(target), options, [])


@functools.cache
def both_ways(target: str, options: Options, size: int) -> tuple[Linked, Linked]:
    """Return the kernels linked in one step and in groups of a size, with the bytes of their spilled registers."""
    code = [ltoir(source, target, options) for source in KERNELS.values()]
    groups = [code[start : start + size] for start in range(0, len(code), size)]
    objects = [nvjitlink.relocatable("m", group, parse(target), options, []) for group in groups]
    assert all(data for data, _ in objects)
    image, _ = nvjitlink.link(
        "m", [LinkInput(kind="cubin", name="k", data=data) for data, _ in objects], parse(target), options, []
    )
    return in_one_step(target, options), (image, {name: size for _, spills in objects for name, size in spills.items()})


@pytest.mark.parametrize(
    ("target", "options", "size"),
    [
        *((target, Options(), 2) for target in ("sm_75", "sm_100f")),
        *(("sm_90", options, 2) for options in (Options(max_registers=24), Options(opt_level=0))),
        ("sm_120", Options(), 1),
    ],
)
def test_groups_take_the_same_resources_as_one_link(target: str, options: Options, size: int) -> None:
    (expected, spilled), (image, spilled_in_groups) = both_ways(target, options, size)
    assert spilled_in_groups == spilled
    assert spilled.keys() >= KERNELS.keys()
    assert images.resource_usage(image) == images.resource_usage(expected)
    assert cubin.read(image, "image").arch == cubin.read(expected, "image").arch == target
    kernels = [{kernel.name: kernel for kernel in cubin.read(data, "image").kernels} for data in (expected, image)]
    assert kernels[0].keys() == kernels[1].keys() == KERNELS.keys()
    for name, kernel in kernels[0].items():
        assert kernels[1][name].parameters == kernel.parameters


@pytest.mark.parametrize(("target", "size"), [("sm_75", 2), ("sm_120", 1)])
def test_code_without_tables_in_memory_is_the_same(target: str, size: int) -> None:
    """The addresses of tables come from a constant bank when a program is whole, and from the loader otherwise."""
    listings = [instructions(data) for data, _ in both_ways(target, Options(), size)]
    assert listings[0].keys() == listings[1].keys()
    differences = {name for name in listings[0] if listings[0][name] != listings[1][name]}
    assert differences <= {"angles", "looked_up"}


def instructions(data: bytes) -> dict[str, list[str]]:
    """Return the instructions of each function, as cuobjdump has them."""
    _, *functions = images.cuobjdump(data, "-sass").split("Function : ")
    return {text.split()[0]: re.findall(r"/\*[0-9a-f]{4,}\*/\s+(\S.*?;)", text) for text in functions}


@pytest.mark.parametrize("source", NOT_GROUPED.values(), ids=NOT_GROUPED)
@pytest.mark.parametrize("target", ["sm_75", "sm_120"])
def test_kernels_that_a_second_link_makes_worse_are_not_grouped(target: str, source: str) -> None:
    assert nvjitlink.relocatable("m", [ltoir(source, target, Options())], parse(target), Options(), [])[0] == b""


@pytest.mark.parametrize(("target", "is_grouped"), [("sm_75", False), ("sm_120", True)])
def test_kernels_that_call_functions_for_instructions_are_not_grouped(target: str, is_grouped: bool) -> None:
    source = "extern __C__ __global__ void k(int *x) { x[threadIdx.x] = __shfl_down_sync(x[99], *x, 1); }"
    item = ltoir(source, target, Options())
    assert bool(nvjitlink.relocatable("m", [item], parse(target), Options(), [])[0]) == is_grouped


def test_line_information_outlives_the_second_link() -> None:
    options = Options(lineinfo=True)
    tables = [images.cuobjdump(data, "-elf").count(".debug_line") for data, _ in both_ways("sm_90", options, 2)]
    assert tables[0] == tables[1] > 0


@pytest.mark.parametrize(("kernels", "targets", "jobs"), [(0, 1, 2), (1, 5, 2), (50, 5, 2)])
def test_every_group_is_in_one_share(kernels: int, targets: int, jobs: int) -> None:
    archs = [parse(f"sm_{number}") for number in (75, 80, 90, 100, 120)][:targets]
    modules: list[dict[tuple[tuple[str, ...], Target], list[LinkInput]]] = [
        {((f"k{number}",), target): [] for target in archs} for number in range(kernels)
    ]
    shares = kernel_groups.divide_among(modules, jobs)
    assert sorted(f"{key}" for share in shares for key in share) == sorted(
        f"{key}" for module in modules for key in module
    )
    assert len(shares) >= min(jobs, kernels * targets)


@pytest.mark.parametrize("kernels", [0, 1, 4, 50])
def test_groups_have_each_kernel_once_in_the_modules_order(kernels: int) -> None:
    names = [f"k{number}" for number in range(kernels)]
    groups = kernel_groups.divide(names)
    assert [name for group in groups for name in group] == names
    assert all(kernel_groups.LEAST <= len(group) <= kernel_groups.MOST for group in groups[:-1])
    assert not groups or 1 <= len(groups[-1]) <= kernel_groups.MOST
