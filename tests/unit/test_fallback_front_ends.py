"""Test that the JIT fallback compiles by the module's front end, and launches with that front end's layout."""

from __future__ import annotations

import re
from importlib.util import find_spec

import numpy as np
import pytest

from aotcuda.cache import compilers
from aotcuda.errors import ArgumentError, FallbackWarning
from aotcuda.runtime.jit import compile as jit_compile
from support import jit_builds
from support.front_ends import MLIR, NUMBA
from support.manifests import kernel

SAXPY = "void(float32, float32[::1])"
PACKAGES = {NUMBA: "numba_cuda", MLIR: "numba_cuda_mlir"}
EXTRAS = {NUMBA: "jit-cu13", MLIR: "jit-mlir-cu13"}


def table(**choice: str) -> dict[str, object]:
    """Return the table of a project. `choice` sets the front end of the `project` or of the `module`."""
    module = {"source": "mypkg._kernels", "kernels": {}}
    project: dict[str, object] = {
        "arch": ["sm_80"],
        "modules": {"mypkg.kernels": module, "mypkg.other": {"frontend": "of another module"}},
    }
    for name, part in (("module", module), ("project", project)):
        if name in choice:
            part["frontend"] = choice[name]
    return project


CHOICES = {
    "by default": (NUMBA, {}),
    "of the project": (MLIR, {"project": MLIR}),
    "of the module, not of the project": (NUMBA, {"project": MLIR, "module": NUMBA}),
}


@pytest.fixture(params=CHOICES)
def choice(request):
    """Return a front end, and the keys that choose it."""
    return CHOICES[request.param]


def with_memrefs(record):
    """Convert a manifest's kernel to the layout of numba-cuda-mlir, which passes an array as a memref."""
    for overload in record["overloads"]:
        shift = 0
        for parameter in overload["parameters"]:
            parameter["offset"] -= shift
            if parameter["kind"] == "array":
                axes = range(parameter["ndim"])
                words = ["data", "data", "zero", *(f"shape{axis}" for axis in axes), *(f"step{axis}" for axis in axes)]
                shift += 8 * (len(parameter["words"]) - len(words))
                parameter["words"] = words
        overload["parameter_bytes"] -= shift
    return record


@pytest.fixture
def package(cuda, builder, choice, monkeypatch):
    """Return a function that writes and imports a packaged module; JIT builds return that front end's layout too."""
    front_end, keys = choice
    convert = with_memrefs if front_end == MLIR else lambda record: record
    monkeypatch.setattr(jit_builds, "kernel", lambda *args: convert(kernel(*args)))
    monkeypatch.setattr(jit_compile, "_is_importable", lambda _: True)  # the fake builder needs no compiler
    builder.changes = {"frontend": front_end}

    def make(*kernels, **options):
        builder.module_kernels = [convert(record) for record in kernels]
        rebuild = {**jit_builds.rebuild(), "table": table(**keys)}
        changes = {"fallback": "jit", "rebuild": rebuild, "frontend": front_end, **options}
        return cuda.package(*builder.module_kernels, **changes)

    return make


def array_words(array, front_end):
    """Return the parameter words of a contiguous one-dimensional array, by the documentation of the front end."""
    size, itemsize = array.shape[0], np.dtype(array.interface["typestr"]).itemsize
    words = (
        [0, 0, size, itemsize, array.address, size, itemsize]
        if front_end == NUMBA
        else [array.address, array.address, 0, size, 1]
    )
    return np.array(words, "<i8").tobytes()


@pytest.mark.parametrize("for_other_gpu", [False, True], ids=["other types", "another GPU"])
def test_jit_compiled_kernel_is_launched_with_layout_of_its_front_end(cuda, package, builder, choice, for_other_gpu):
    front_end, keys = choice
    module = package(kernel("axpy", SAXPY), targets=("sm_80",) if for_other_gpu else ("sm_90",))
    array = cuda.array(np.zeros(8, "<f4" if for_other_gpu else "<f8"))
    with pytest.warns(FallbackWarning):
        module.axpy[1, 32](2, array)
    (request,) = builder.requests
    assert (request.table, request.kernel) == (table(**keys), None if for_other_gpu else "axpy")
    number = np.float32(2).tobytes() + bytes(4) if for_other_gpu else np.int64(2).tobytes()
    assert cuda.parameters() == number + array_words(array, front_end)


def test_missing_front_end_is_named_with_its_extra(cuda, package, builder, monkeypatch, choice):
    front_end, _ = choice
    other = PACKAGES[MLIR if front_end == NUMBA else NUMBA]
    monkeypatch.setattr(compilers, "installed", lambda *_: {other: "1.0"})
    monkeypatch.setattr(jit_compile, "_is_importable", lambda package: package == other)
    module = package(kernel("axpy", SAXPY))
    advice = f"needs {front_end}, which is not installed: pip install 'aotcuda[{EXTRAS[front_end]}]'"
    with pytest.raises(ArgumentError, match=re.escape(advice)):
        module.axpy[1, 32](2.0, cuda.array(np.zeros(8, "<f8")))
    assert builder.requests == []


@pytest.mark.parametrize("front_end", PACKAGES.values())
def test_front_end_parses_signatures_of_all_kinds_of_arguments(cuda, front_end):
    if find_spec(front_end) is None:
        pytest.skip(f"{front_end} is not installed")
    from importlib import import_module

    from aotcuda.runtime.launch.arguments import signature as signatures

    types = import_module(f"aotcuda.builder.frontends.{front_end}.types")
    read_only = cuda.array(np.zeros(4, "f4"))
    read_only.interface["data"] = (read_only.address, True)
    values = (True, 1, 2**63, 1.0, 1j, np.float16(1), np.float32(1), np.complex64(1), (1, (2.0, True)), read_only)
    arrays = [np.zeros(3, "?"), np.zeros((), "u1"), np.zeros((2, 3), "c8").T, np.zeros(8, "f2")[::2], np.zeros((4, 4))]
    signature = signatures.from_arguments((*values, *map(cuda.array, arrays)))
    args, result = types.notation.parse(signature, {})
    assert str(result) == "none"
    names = [f"x{number}" for number in range(len(values) + len(arrays))]
    parameters = types.convention.layout("here", names, args).parameters
    assert [parameter["name"] for parameter in parameters] == names
    assert [parameter["kind"] for parameter in parameters[-5:]] == ["array"] * 5
