"""The JIT fallback of modules by either front end: which compiler it asks for, and that its layout is launched."""

from __future__ import annotations

import re
from importlib.util import find_spec

import numpy as np
import pytest

from aotcuda.cache import compilers
from aotcuda.errors import ArgumentError, FallbackWarning
from aotcuda.runtime.jit import compile as jit_compile
from support import late
from support.manifests import kernel

SAXPY = "void(float32, float32[::1])"
OLD, NEW = "numba-cuda", "numba-cuda-mlir"
PACKAGES = {OLD: "numba_cuda", NEW: "numba_cuda_mlir"}
EXTRAS = {OLD: "jit-cu13", NEW: "jit-mlir-cu13"}


def table(**choice: str) -> dict[str, object]:
    """Return a project's table that names a front end for the `project`, the `module`, both or none."""
    module = {"source": "mypkg._kernels", "kernels": {}}
    whole: dict[str, object] = {
        "arch": ["sm_80"],
        "modules": {"mypkg.kernels": module, "mypkg.other": {"frontend": "of another module"}},
    }
    for name, part in (("module", module), ("project", whole)):
        if name in choice:
            part["frontend"] = choice[name]
    return whole


CHOICES = {
    "by default": (OLD, {}),
    "the project's": (NEW, {"project": NEW}),
    "the module's before the project's": (OLD, {"project": NEW, "module": OLD}),
}


@pytest.fixture(params=CHOICES)
def choice(request):
    """Return a front end, and the table's keys that choose it."""
    return CHOICES[request.param]


def in_memrefs(record):
    """Return a kernel as numba-cuda-mlir's manifests have it, whose arrays are described by other words, and fewer."""
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
    """Write and import a packaged module of a front end; late builds answer with that front end's parameters."""
    front_end, keys = choice
    made = in_memrefs if front_end == NEW else lambda record: record
    monkeypatch.setattr(late, "kernel", lambda *args: made(kernel(*args)))
    monkeypatch.setattr(
        jit_compile, "_is_importable", lambda _: True
    )  # the builder compiles nothing, and needs no compiler
    builder.changes = {"frontend": front_end}

    def make(*kernels, **options):
        builder.whole = [made(record) for record in kernels]
        rebuild = {**late.rebuild(), "table": table(**keys)}
        changes = {"fallback": "jit", "rebuild": rebuild, "frontend": front_end, **options}
        return cuda.package(*builder.whole, **changes)

    return make


def described(array, front_end):
    """Return the words of a contiguous array of one dimension, as the front end's own documentation has them."""
    size, itemsize = array.shape[0], np.dtype(array.interface["typestr"]).itemsize
    words = (
        [0, 0, size, itemsize, array.address, size, itemsize]
        if front_end == OLD
        else [array.address, array.address, 0, size, 1]
    )
    return np.array(words, "<i8").tobytes()


@pytest.mark.parametrize("whole", [False, True], ids=["other types", "another GPU"])
def test_compiled_kernels_have_the_front_ends_layout(cuda, package, builder, choice, whole):
    front_end, keys = choice
    module = package(kernel("axpy", SAXPY), targets=("sm_80",) if whole else ("sm_90",))
    array = cuda.array(np.zeros(8, "<f4" if whole else "<f8"))
    with pytest.warns(FallbackWarning):
        module.axpy[1, 32](2, array)
    (request,) = builder.requests
    assert (request.table, request.kernel) == (table(**keys), None if whole else "axpy")
    number = np.float32(2).tobytes() + bytes(4) if whole else np.int64(2).tobytes()
    assert cuda.parameters() == number + described(array, front_end)


def test_the_extra_of_the_missing_front_end_is_named(cuda, package, builder, monkeypatch, choice):
    front_end, _ = choice
    other = PACKAGES[NEW if front_end == OLD else OLD]
    monkeypatch.setattr(compilers, "installed", lambda *_: {other: "1.0"})
    monkeypatch.setattr(jit_compile, "_is_importable", lambda package: package == other)
    module = package(kernel("axpy", SAXPY))
    advice = f"needs {front_end}, which is not installed: pip install 'aotcuda[{EXTRAS[front_end]}]'"
    with pytest.raises(ArgumentError, match=re.escape(advice)):
        module.axpy[1, 32](2.0, cuda.array(np.zeros(8, "<f8")))
    assert builder.requests == []


@pytest.mark.parametrize("front_end", PACKAGES.values())
def test_the_front_end_understands_the_signature_of_every_argument(cuda, front_end):
    if find_spec(front_end) is None:
        pytest.skip(f"{front_end} is not installed")
    from importlib import import_module

    from aotcuda.runtime.arguments import signature as signatures

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
