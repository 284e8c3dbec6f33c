"""The JIT fallback of modules by either front end: which compiler it asks for, and that its layout is launched."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from aotcuda import manifest as manifests
from aotcuda.cache import compilers
from aotcuda.common.jit_build import Request
from aotcuda.errors import ArgumentError, FallbackWarning, NoImageError
from aotcuda.runtime.jit import cache_key
from aotcuda.runtime.jit import compile as jit_compile
from support import late
from support.manifests import kernel

SAXPY = "void(float32, float32[::1])"
OLD, NEW = "numba-cuda", "numba-cuda-mlir"
PACKAGES = {OLD: "numba_cuda", NEW: "numba_cuda_mlir"}
EXTRAS = {OLD: "jit-cu13", NEW: "jit-mlir-cu13"}


def table(**choice: str) -> dict[str, object]:
    """Return a project's table with a front end of the `project`, of the `module`, or of both."""
    module = {
        "source": "mypkg._kernels",
        "kernels": {},
        **({"frontend": choice["module"]} if "module" in choice else {}),
    }
    return {
        "arch": ["sm_80"],
        "modules": {"mypkg.kernels": module, "mypkg.other": {"frontend": "of another module"}},
        **({"frontend": choice["project"]} if "project" in choice else {}),
    }


WAYS = {
    "by default": (OLD, {}),
    "the project's": (NEW, {"project": NEW}),
    "the module's own": (NEW, {"module": NEW}),
    "the module's before the project's": (OLD, {"project": NEW, "module": OLD}),
    "and the other way round": (NEW, {"project": OLD, "module": NEW}),
}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


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
def package(cuda, builder, way, monkeypatch):
    """Write and import a packaged module of a front end; late builds answer with that front end's parameters."""
    front_end, choice = way
    made = in_memrefs if front_end == NEW else lambda record: record
    monkeypatch.setattr(late, "kernel", lambda *args: made(kernel(*args)))
    monkeypatch.setattr(
        jit_compile, "_is_importable", lambda _: True
    )  # the builder compiles nothing, and needs no compiler
    builder.changes = {"frontend": front_end}

    def make(*kernels, **options):
        builder.whole = [made(record) for record in kernels]
        rebuild = {**late.rebuild(), "table": table(**choice)}
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


def test_other_types_are_launched_as_the_front_end_lays_them_out(cuda, package, builder, way):
    front_end, choice = way
    module = package(kernel("axpy", SAXPY))
    array = cuda.array(np.zeros(8, "<f8"))
    with pytest.warns(FallbackWarning, match=r"axpy for void\(int64, float64\[::1\]\): it is compiled"):
        module.axpy[1, 32](2, array)
    (request,) = builder.requests
    assert request.table == table(**choice)
    assert cuda.parameters() == np.int64(2).tobytes() + described(array, front_end)


def test_another_gpu_gets_the_module_as_the_front_end_lays_it_out(cuda, package, builder, way):
    front_end, choice = way
    module = package(kernel("axpy", SAXPY), targets=("sm_80",))
    array = cuda.array(8)
    with pytest.warns(FallbackWarning):
        module.axpy[1, 32](2.0, array)
    (request,) = builder.requests
    assert (request.table, request.kernel, request.target) == (table(**choice), None, "sm_90")
    assert cuda.parameters() == np.float32(2).tobytes() + bytes(4) + described(array, front_end)


@pytest.mark.parametrize("case", ["types", "gpu"])
def test_the_extra_of_the_missing_front_end_is_named_whatever_else_is_there(
    cuda, package, builder, monkeypatch, way, case
):
    front_end, _ = way
    other = PACKAGES[NEW if front_end == OLD else OLD]
    monkeypatch.setattr(compilers, "installed", lambda *_: {other: "1.0"})
    monkeypatch.setattr(jit_compile, "_is_importable", lambda package: package == other)
    module = package(kernel("axpy", SAXPY), targets=("sm_80",) if case == "gpu" else ("sm_90",))
    with pytest.raises(NoImageError if case == "gpu" else ArgumentError) as caught:
        module.axpy[1, 32](2.0, cuda.array(np.zeros(8, "<f4" if case == "gpu" else "<f8")))
    assert (
        f"compiling it here needs {front_end}, which is not installed: pip install 'aotcuda[{EXTRAS[front_end]}]'"
        in str(caught.value).partition("\n")[0]
    )
    assert builder.requests == []


@pytest.mark.parametrize("broken", [3, {"mypkg.kernels": 3}, {"mypkg.kernels": {"frontend": None}}, {}])
def test_a_table_that_is_wrong_is_left_for_the_build_to_refuse(broken):
    assert Request("mypkg.kernels", {"modules": broken}, "/", "/").frontend == OLD


def test_the_key_names_the_front_end_and_its_version(tmp_path, monkeypatch, way):
    front_end, choice = way
    texts = []
    monkeypatch.setattr(manifests, "digest", lambda data: texts.append(data) or "key")
    for version in ("98", "99"):
        for package in PACKAGES.values():
            (tmp_path / version / f"{package}-{version}.dist-info").mkdir(parents=True)
        monkeypatch.setattr(sys, "path", [str(tmp_path / version)])
        cache_key.key(Request("mypkg.kernels", table(**choice), "/", "/").case("k", "void(int32)", (9, 0), (13, 0)))
    assert [json.loads(text)["frontend"] for text in texts] == [[front_end, "98"], [front_end, "99"]]


@pytest.mark.parametrize("front_end", PACKAGES.values())
def test_the_front_end_understands_the_signature_of_every_argument(cuda, front_end):
    if find_spec(front_end) is None:
        pytest.skip(f"{front_end} is not installed")
    from importlib import import_module

    from aotcuda.runtime.arguments import signature as signatures

    types = import_module(f"aotcuda.builder.frontends.{front_end}.types")
    read_only = cuda.array(np.zeros(4, "f4"))
    read_only.interface["data"] = (read_only.address, True)
    values = (
        True,
        1,
        2**63,
        1.0,
        1j,
        np.float16(1),
        np.float32(1),
        np.complex64(1),
        (1, 2),
        (1, (2.0, True)),
        read_only,
    )
    arrays = [np.zeros(3, "?"), np.zeros((), "u1"), np.zeros((2, 3), "c8").T, np.zeros(8, "f2")[::2], np.zeros((4, 4))]
    signature = signatures.from_arguments((*values, *map(cuda.array, arrays)))
    args, result = types.notation.parse(signature, {})
    assert str(result) == "none"
    names = [f"x{number}" for number in range(len(values) + len(arrays))]
    parameters = types.convention.layout("here", names, args).parameters
    assert [parameter["name"] for parameter in parameters] == names
    assert [parameter["kind"] for parameter in parameters[-5:]] == ["array"] * 5
