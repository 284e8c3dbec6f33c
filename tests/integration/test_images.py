"""Test the content of images with NVIDIA's tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import cubin, fatbin
from integration import cuda_cpp, projects
from support import front_ends
from support.images import cuobjdump, resource_usage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aotcuda.manifest import Manifest, Overload, Parameter

pytestmark = pytest.mark.usefixtures("front_end")
MLIR_ALONE = pytest.mark.front_end(front_ends.MLIR)

FOLDER = "features/kernels.aotcuda"
SASS = ["sm_75", "sm_90a", "sm_100f"]
PTX = ["compute_75", "compute_90a"]


@pytest.fixture
def kernels(features: dict[str, bytes]) -> bytes:
    return features[f"{FOLDER}/kernels.fatbin"]


@pytest.fixture
def manifest(features: dict[str, bytes]) -> Manifest:
    return projects.manifest_of(features, "features.kernels")


@pytest.fixture
def overloads(manifest: Manifest) -> dict[str, Overload]:
    """Return every overload by its symbol."""
    return {overload["symbol"]: overload for kernel in manifest["kernels"] for overload in kernel["overloads"]}


def image(data: bytes, arch: str) -> bytes:
    """Return an image of a fatbin, unpacked."""
    return next(entry.content for entry in fatbin.read(data, "the fatbin") if entry.arch == arch)


@pytest.fixture
def ptx(kernels: bytes) -> dict[str, str]:
    """Return the kernels' PTX for compute_75, by name."""
    return cuda_cpp.entries(image(kernels, "compute_75").decode())


def test_there_is_one_image_for_each_target_and_no_other(kernels: bytes, manifest: Manifest) -> None:
    listed = cuobjdump(kernels, "--list-elf"), cuobjdump(kernels, "--list-ptx")
    assert [listing.count("file") for listing in listed] == [len(SASS), len(PTX)]
    assert cuobjdump(kernels).count("compressed") == len(SASS) + len(PTX)
    archs = re.findall(r"^arch = (\S+)", cuobjdump(kernels), re.MULTILINE)
    assert archs == [*SASS, *(name.replace("compute", "sm") for name in PTX)]
    assert [image["arch"] for image in manifest["fatbins"][0]["images"]] == [*SASS, *PTX]


@pytest.mark.parametrize("arch", SASS)
def test_every_overload_is_an_entry_point_of_every_image(
    arch: str, kernels: bytes, overloads: dict[str, Overload]
) -> None:
    symbols = cuobjdump(image(kernels, arch), "--dump-elf-symbols")
    entries = re.findall(r"^STT_FUNC\s+STB_GLOBAL\s+STO_ENTRY\s+(\w+)$", symbols, re.MULTILINE)
    assert sorted(entries) == sorted(overloads)


@pytest.mark.parametrize("arch", SASS)
def test_resources_are_those_that_cuobjdump_reads(arch: str, kernels: bytes, overloads: dict[str, Overload]) -> None:
    usage = resource_usage(image(kernels, arch))
    for symbol, overload in overloads.items():
        assert overload["resources"][arch]["registers"] == int(usage[symbol]["REG"]), symbol


def test_ptx_has_its_target_and_the_toolkits_version(kernels: bytes, manifest: Manifest) -> None:
    # PTX ISA, "Release History": the version of CUDA 13.0, and for CUDA 12 the version of 12.0.
    isa = {"13.0": "9.0", "12.9": "8.0"}[manifest["toolchain"]["cuda"]]
    for arch in PTX:
        text = image(kernels, arch).decode()
        assert re.findall(r"^\.target (\w+)", text, re.MULTILINE) == [arch.replace("compute", "sm")]
        assert re.findall(r"^\.version (\S+)", text, re.MULTILINE) == [isa]
        assert sorted(cuda_cpp.entries(text)) == sorted(
            overload["symbol"] for kernel in manifest["kernels"] for overload in kernel["overloads"]
        )


def test_ptx_has_no_external_functions(ptx: dict[str, str], kernels: bytes) -> None:
    assert ptx
    for arch in PTX:
        externals = re.findall(r"\.extern \.func.*?(\w+)\s*$", image(kernels, arch).decode(), re.MULTILINE)
        assert set(externals) <= {"vprintf"}  # the driver defines it


def test_kernels_of_a_module_have_separate_shared_memory(kernels: bytes) -> None:
    usage = resource_usage(image(kernels, "sm_75"))
    static = {"reverse": 256, "rotate": 256, "histogram": 1024, "times_two": 0, "reverse_dynamic": 0}
    assert {name: int(usage[name]["SHARED"]) for name in static} == static


def test_closures_with_one_name_have_their_own_values(ptx: dict[str, str]) -> None:
    constants = {name: set(re.findall(r"\b100[23]\b", text)) for name, text in ptx.items()}
    assert constants["times_two"] == {"1002"}
    assert constants["times_three"] == {"1003"}
    assert constants["both_closures"] == {"1002", "1003"}


def test_decorator_and_table_options_reach_the_code(
    ptx: dict[str, str], overloads: dict[str, Overload], kernels: bytes
) -> None:
    assert re.findall(r"^\.(?:max|min)\w+ .*", ptx["decorated"], re.MULTILINE) == [
        ".maxntid 128, 1, 1",
        ".minnctapersm 2",
        ".maxnreg 32",
    ]
    assert re.findall(r"^\.(?:max|min)\w+ .*", ptx["bounded"], re.MULTILINE) == [
        ".maxntid 256, 1, 1",
        ".minnctapersm 2",
    ]
    assert ".maxntid" not in ptx["asked_cooperative"]
    cooperative = [symbol for symbol, overload in overloads.items() if overload["cooperative"]]
    assert cooperative == ["grid_sync", "asked_cooperative"]
    assert overloads["decorated"]["launch_bounds"] == [128, 2]
    assert overloads["decorated"]["carveout"] == 100
    assert overloads["bounded"]["launch_bounds"] == [256, 2]
    assert int(resource_usage(image(kernels, "sm_75"))["decorated"]["REG"]) <= 32


def test_fast_math_applies_only_where_requested(features: dict[str, bytes], ptx: dict[str, str]) -> None:
    assert ".approx" in ptx["decorated"]
    assert ".rn" in ptx["helpers__1"]
    fast = features["features/sub/fast.aotcuda/kernels.fatbin"]
    assert "div.approx.ftz.f32" in cuda_cpp.entries(image(fast, "compute_75").decode())["divide"]
    options = projects.manifest_of(features, "features.sub.fast")["options"]
    assert (options["fastmath"], options["max-registers"]) == (True, 24)
    assert all(int(usage["REG"]) <= 24 for usage in resource_usage(image(fast, "sm_75")).values())


# Declarations in CUDA C++ of kernels of the package; an array has seven words or more.
CPP_KERNELS = """
struct Complex64 { float real, imag; };
struct Complex128 { double real, imag; };
extern "C" {
__global__ void scalars(bool, signed char, unsigned char, short, unsigned short, int, unsigned, long long,
    unsigned long long, unsigned short, float, double, float*, ARRAY, long long, long long) {}
__global__ void nested(float, signed char, signed char, double, COMPLEX64, COMPLEX128,
    ARRAY, long long, long long) {}
__global__ void helpers__0(ARRAY, long long, long long, ARRAY, long long, long long) {}
__global__ void scratch(ARRAY, long long, long long, int) {}
}
"""
# The first parameters of an array, and those of complex numbers.
CPP_TYPES = {
    front_ends.NUMBA: ("void*, void*, long long, long long, void*", "float, float", "double, double"),
    front_ends.MLIR: ("void*, void*, long long", "Complex64", "Complex128"),
}

SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "e": 2, "i": 4, "I": 4, "f": 4, "q": 8, "Q": 8, "d": 8}


def parameter_words(parameters: list[Parameter], front_end: str) -> Iterator[tuple[int, int]]:
    """Yield offset and size of each machine-level parameter that the manifest describes."""
    for parameter in parameters:
        offset = parameter["offset"]
        if parameter["kind"] == "tuple":
            yield from parameter_words(parameter["members"], front_end)
        elif parameter["kind"] == "array":
            yield from ((offset + 8 * index, 8) for index in range(len(parameter["words"])))
        else:
            size = 8 if parameter["kind"] == "pointer" else SIZES[parameter["format"]]
            if parameter["kind"] != "complex":
                yield offset, size
            elif front_end == front_ends.NUMBA:
                yield from ((offset, size), (offset + size, size))
            else:
                yield offset, 2 * size


@pytest.mark.parametrize("symbol", ["scalars", "nested", "helpers__0", "scratch"])
def test_parameter_offsets_match_cuda_cpp(symbol: str, overloads: dict[str, Overload], front_end: str) -> None:
    macros = zip(("ARRAY", "COMPLEX64", "COMPLEX128"), CPP_TYPES[front_end], strict=True)
    source = "".join(f"#define {name} {text}\n" for name, text in macros) + CPP_KERNELS
    compiled = cubin.read(cuda_cpp.compile_source(source, "CUBIN", "-arch=sm_75"), "the C++ kernels")
    reference = next(kernel for kernel in compiled.kernels if kernel.name == symbol)
    assert list(parameter_words(overloads[symbol]["parameters"], front_end)) == [
        (offset, size) for _, offset, size in sorted(reference.parameters)
    ]
    assert overloads[symbol]["parameter_bytes"] == reference.parameter_bytes


def test_manifest_describes_parameters_of_every_kind(overloads: dict[str, Overload]) -> None:
    parameters = overloads["scalars"]["parameters"]
    assert [item["kind"] for item in parameters] == ["scalar"] * 12 + ["pointer", "array"]
    assert "".join(item["format"] for item in parameters[:12]) == "?bBhHiIqQefd"
    arrays = overloads["layouts"]["parameters"]
    assert [(item["dtype"], item["ndim"], item["layout"], item["readonly"]) for item in arrays] == [
        ("<f4", 2, "C", False),
        ("<f4", 2, "F", False),
        ("<f4", 2, "A", False),
        ("<f4", 1, "C", True),
        ("<f4", 2, "C", False),
    ]
    tree = overloads["nested"]["parameters"][0]
    assert [member["kind"] for member in tree["members"]] == ["scalar", "tuple", "scalar"]


def test_debug_build_has_line_information_without_paths(tmp_path: Path) -> None:
    project = projects.copy("flat", tmp_path / "flat")
    config = project / "pyproject.toml"
    config.write_text(config.read_text() + "\n[tool.aotcuda.options]\ndebug = true\n")
    files = projects.content(projects.build_wheel(project, AOTCUDA_ARCH="sm_80"))
    data = image(files["flat/kernels.aotcuda/kernels.fatbin"], "sm_80")
    assert b".debug_info" in data
    assert b"_kernels.py" in data
    assert str(tmp_path).encode() not in data
    assert projects.manifest_of(files, "flat.kernels")["options"]["opt-level"] == 0


BOTH = """
from numba import cuda, float32

def both(x):
    fixed = cuda.shared.array(64, float32)
    given = cuda.shared.array(0, float32)
    i = cuda.threadIdx.x
    fixed[i] = x[i]
    given[i] = x[i]
    cuda.syncthreads()
    x[i] = fixed[63 - i] + given[63 - i]
"""


@MLIR_ALONE
def test_dynamic_shared_memory_follows_static(tmp_path: Path) -> None:
    # Without aotcuda the compiler makes an array of one byte for dynamic memory, before or after the static array.
    project = projects.write(tmp_path / "project", BOTH, module='kernels.both = "void(float32[::1])"')
    environ = {"AOTCUDA_ARCH": "sm_80;sm_100;compute_80;compute_100"}
    data = projects.content(projects.build_wheel(project, **environ))["pkg/k.aotcuda/kernels.fatbin"]
    for arch in ("sm_80", "sm_100"):
        usage = resource_usage(image(data, arch))["both"]
        assert int(usage["SHARED"]) % 1024 == 256  # GPUs from 8.0 on reserve 1024 bytes
    for arch in ("compute_80", "compute_100"):
        text = image(data, arch).decode()
        assert ".extern .shared" in text
