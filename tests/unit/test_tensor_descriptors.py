"""Kernels that take tensor descriptors, and kernels that need scratch memory, on both paths of a launch."""

from __future__ import annotations

import contextvars
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from aotcuda.errors import AllocatorError, ArgumentError
from aotcuda.integrations.in_place.triton.without_triton import TensorDescriptor
from aotcuda.runtime.launch import scratch_memory

pytestmark = pytest.mark.usefixtures("path")

MAP = {"element": 6, "bytes": 2, "swizzle": 3, "box": [32, 64], "padded": False}
SCRATCH = {"bytes": 256, "align": 128, "offset": 8}


def overload(symbol, block=(32, 64), dtype="<f2", arch="sm_90", tensor_map=MAP, flags=0, scratch=None):
    """Return a kernel with one argument: a tensor descriptor with a tensor map, or with flags; or an array."""
    rank = len(block)
    forms = ["128s"] if tensor_map else ["Q", *"q" * (2 * rank), *"?" * flags]
    places, end = [], 0
    for form in [*forms, *"i" * rank, *"q" * rank]:
        size = struct.calcsize(f"<{form}")
        places.append(end + -end % min(size, 64))
        end = places[-1] + size
    parameter = {"name": "x", "offset": 0, "dtype": dtype}
    if scratch:
        parameter |= {"type": "*fp16", "kind": "elements", "divisor": 16}
        end = 8
    else:
        parameter |= {"type": f"tensordesc<fp16{list(block)}>", "kind": "descriptor", "block": list(block)}
        parameter |= {"places": places, **({"tensor_map": tensor_map} if tensor_map else {})}
    return {
        "signature": f"void({parameter['type']}) on {arch}",
        "symbol": symbol,
        "parameters": [parameter],
        "parameter_bytes": end + 16,
        "cooperative": False,
        "launch_bounds": [],
        "carveout": None,
        "resources": {},
        "launches": {arch: {"threads": 128, "shared": 0, **({"scratch": scratch} if scratch else {})}},
        **({} if scratch else {"one_by_one": True, "reserved": [end, end + 8]}),
    }


@pytest.fixture(params=[True, False], ids=["exact", "table"])
def package(request, cuda):
    def make(*overloads):
        record = {"name": "k", "origin": "mypkg._k:k", "overloads": [*overloads], "arguments": [{"name": "x"}]}
        record |= {"exact": True} if request.param else {}
        starts = sorted([*overloads[0]["parameters"][0].get("places", ()), *overloads[0].get("reserved", ())])
        ends = [*starts[1:], overloads[0]["parameter_bytes"]]
        if starts:
            cuda.set(sizes=" ".join(str(end - start) for start, end in zip(starts, ends, strict=True)))
        return cuda.package(record, by_grid=True, frontend="triton").k

    return make


@pytest.fixture
def describe(cuda):
    """Return a function that makes a tensor descriptor of a new array."""

    def make(shape=(64, 128), block=(32, 64), dtype="<f2", shift=0, **named):
        array = cuda.array(np.zeros(shape, dtype))
        address = array.address + -array.address % 16
        array.interface["data"] = (address + shift, False)
        array.data_ptr = lambda: address
        strides = [int(np.prod(shape[at + 1 :])) for at in range(len(shape))]
        return TensorDescriptor(array, [*shape], strides, [*block], **named)

    return make


def encoded(given, *, word=(1 << 64) - 1, element=6, swizzle=3, fill=0, extents=(128, 64), box=(64, 32)):
    """Return the stand-in's tensor map."""
    head = struct.pack("<6B2xQQ", element, 2, 0, swizzle, 2, fill, word, given.base.interface["data"][0])
    sizes = struct.pack("<5Q4Q", *extents, 0, 0, 0, 2 * extents[0], 0, 0, 0)
    return head + sizes + struct.pack("<5I5B7x", *box, 0, 0, 0, 1, 1, 0, 0, 0)


SMALL = (1 << 64) - 1 - (1 << 21)


@pytest.mark.parametrize(
    ("version", "shape", "named", "expected"),
    [
        (13000, (64, 128), {}, {"word": SMALL}),
        (13020, (64, 128), {}, {}),
        (13020, (64, 128), {"padding": "nan"}, {"fill": 1}),
        (13020, (64, 128), {"round_f32_to_tf32": True}, {"element": 11}),
    ],
)
def test_descriptor_becomes_tensor_map_with_shape_and_strides(cuda, package, describe, version, shape, named, expected):
    cuda.set(version=version)
    k, given = package(overload("k")), describe(shape, **named)
    for _ in range(4):  # the fast path declines
        k[(2, 3)](given)
        map_, rest = cuda.parameters()[:128], cuda.parameters()[128:]
        assert map_ == encoded(given, **expected)
        assert rest == struct.pack("<2i2q16x", *shape, shape[1], 1)


def test_gpu_without_tensor_maps_gets_address_shape_and_strides(cuda, package, describe):
    k, given = package(overload("k", tensor_map=None, flags=2)), describe(padding="nan", round_f32_to_tf32=True)
    k[1](given)
    sizes = struct.pack("<4q", 64, 128, 128, 1)
    marks = struct.pack("<2?2x", True, True)
    rest = struct.pack("<2i4x2q16x", 64, 128, 128, 1)
    assert cuda.parameters() == struct.pack("<Q", given.base.interface["data"][0]) + sizes + marks + rest


def test_padded_elements_count_twice_in_tensor_map(cuda, package, describe):
    cuda.set(version=13020)
    k, given = package(overload("k", tensor_map={**MAP, "padded": True})), describe()
    k[1](given)
    stand_in = encoded(given, extents=(256, 64))
    assert cuda.parameters()[:128] == stand_in[:64] + struct.pack("<Q", 256) + stand_in[72:]
    assert cuda.parameters()[128:136] == struct.pack("<2i", 64, 128)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"block": (16, 64)}, r"tensordesc<fp16\[16, 64\]> where|elements and block shape \[16, 64\]"),
        ({"dtype": "<f4"}, r"tensordesc<fp32\[32, 64\]> where|<f4 elements and block shape"),
        (
            {"shape": (2, 64, 128), "block": (1, 32, 64)},
            r"tensordesc<fp16\[1, 32, 64\]> where|block shape \[1, 32, 64\]",
        ),
    ],
)
def test_descriptor_of_no_variant_is_refused(cuda, package, describe, changed, words):
    k = package(overload("k"), overload("other", (64, 64)))
    for given in (describe(**changed), describe(**changed).base):
        with pytest.raises(ArgumentError, match=words if isinstance(given, TensorDescriptor) else r"is packaged"):
            k[1](given)
    given = describe()
    given.block_shape = [64, 64]  # as a pre_hook sets it
    k[1](given)
    assert cuda.launches()[-1]["kernel"] == "other"


def test_descriptor_that_driver_refuses_is_named(package, describe):
    with pytest.raises(
        ArgumentError, match=r"x is a tensor descriptor with shape \[64, 128\].*which the driver refuses"
    ):
        package(overload("k"))[1](describe(shift=2))


@pytest.mark.parametrize(("devices", "symbol"), [("9.0", "new"), ("8.0", "old")])
def test_variant_of_machine_is_launched(cuda, package, describe, devices, symbol):
    cuda.set(devices=devices)
    variants = [overload("old", tensor_map=None, flags=1, arch="sm_80"), overload("new")]
    k = package(*(reversed(variants) if symbol == "new" else variants))
    k[1](describe())
    assert cuda.launches()[-1]["kernel"] == symbol


@pytest.mark.parametrize("where", ["own", "triton"])
def test_scratch_memory_comes_from_allocator_of_program(cuda, package, monkeypatch, where):
    requests = []

    def allocate(*request):
        requests.append(request)
        return SimpleNamespace(data_ptr=lambda: 0x7000)

    variable = contextvars.ContextVar("allocator", default=None)
    module = SimpleNamespace(_allocator=variable) if where == "triton" else None
    monkeypatch.setitem(sys.modules, "triton.runtime._allocation", module)
    package_name = "triton" if where == "triton" else r"aotcuda\.triton"
    k, x = package(overload("k", scratch=SCRATCH)), cuda.array(np.zeros(64, "<f2"))
    x.interface["data"] = (x.address + -x.address % 16, False)

    def launch():
        with pytest.raises(
            AllocatorError, match=rf"needs 256 bytes of global memory .* call {package_name}\.set_allocator"
        ):
            k[1](x)
        (variable.set if where == "triton" else scratch_memory.set_allocator)(allocate)
        for _ in range(4):  # the fast path declines
            k[(2, 3)](x)
            assert cuda.parameters() == struct.pack("<QQ8x", x.address, 0x7000)
        assert requests == [(6 * 256, 128, 0)] * 4
        (variable.set if where == "triton" else scratch_memory.set_allocator)(lambda *_: None)
        with pytest.raises(AllocatorError, match="the allocator returned None, which has no address"):
            k[1](x)

    contextvars.copy_context().run(launch)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"strides": [128, 2]}, "the last stride 1"),
        ({"block_shape": [64]}, "give one to five of each"),
        ({"padding": "one"}, "give zero or nan"),
    ],
)
def test_descriptor_without_triton_is_checked(describe, changed, words):
    given = describe()
    values = {"shape": given.shape, "strides": given.strides, "block_shape": given.block_shape, **changed}
    with pytest.raises(ArgumentError, match=words):
        TensorDescriptor(given.base, **values)
