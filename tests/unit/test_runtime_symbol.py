"""Device variables of a packaged module: `Module.symbol`."""

from __future__ import annotations

import array

import numpy as np
import pytest

from aotcuda.errors import CudaError
from aotcuda.runtime import driver as drivers
from support.manifests import kernel


@pytest.fixture
def module(cuda):
    return cuda.package(kernel("k", "void(int32)")).__aotcuda__


@pytest.mark.parametrize("name", ["table", "physics::table", "_ZN7physics5tableE"])
@pytest.mark.parametrize(
    "host", [b"\x01\x02\x03\x04", bytearray(4), array.array("i", [7]), np.array([5], "<i4"), np.float32([2])]
)
def test_variable_is_copied_from_and_to_host_memory(module, name, host):
    symbol = module.symbol(name)
    symbol.copy_from(host)
    found = np.empty(1, "int32")
    symbol.copy_to(found)
    assert found.tobytes() == bytes(memoryview(host).cast("B"))
    assert (symbol.nbytes, symbol.address % 4) == (4, 0)


def test_copy_to_variable_is_complete_when_it_returns(cuda, module):
    """The driver may return before the GPU has all data of pageable memory, and other streams do not wait for it."""
    module.symbol("table").copy_from(b"1234")
    assert [call["stream"] for call in cuda.calls("cuStreamSynchronize")] == [0]


@pytest.mark.parametrize(("method", "copy"), [("copy_from", "cuMemcpyHtoD_v2"), ("copy_to", "cuMemcpyDtoH_v2")])
def test_copy_waits_for_kernels_on_all_streams(module, monkeypatch, method, copy):
    """The driver's copies wait for blocking streams alone."""
    symbol, call, names = module.symbol("table"), drivers.get().call, []
    assert symbol.nbytes == 4  # loads the images
    for name in ("cuCtxSynchronize", copy):
        function = call[name]
        monkeypatch.setitem(
            call, name, lambda *args, name=name, function=function: names.append(name) or function(*args)
        )
    getattr(symbol, method)(bytearray(4))
    assert names == ["cuCtxSynchronize", copy]


def test_name_in_namespace_finds_mangled_name(module):
    module.symbol("physics::table").copy_from(np.int32([3]))
    found = bytearray(4)
    module.symbol("_ZN7physics5tableE").copy_to(found)
    assert found == b"\3\0\0\0"


def test_variable_is_found_again_after_unload(module):
    symbol = module.symbol("table")
    before = symbol.nbytes
    module.unload()
    assert symbol.nbytes == before


@pytest.mark.parametrize(
    ("call", "host", "kind", "message"),
    [
        (
            "copy_from",
            b"12345",
            ValueError,
            "copy_from: the variable has 4 bytes, and the buffer 5; make them equal",
        ),
        (
            "copy_to",
            bytearray(3),
            ValueError,
            "copy_to: the variable has 4 bytes, and the buffer 3; make them equal",
        ),
        ("copy_from", 7, TypeError, "copy_from needs host memory, such as a NumPy array or bytes, and not int"),
        ("copy_to", b"1234", TypeError, "copy_to needs a writable, contiguous buffer; give a new array or a bytearray"),
        ("copy_to", np.empty((4, 2), "i1")[:, 0], TypeError, "copy_to needs a writable, contiguous buffer"),
    ],
)
def test_unsuitable_host_memory_is_refused(module, call, host, kind, message):
    with pytest.raises(kind) as caught:
        getattr(module.symbol("table"), call)(host)
    assert str(caught.value).removeprefix(f"{module.name}: symbol('table')").lstrip(".").startswith(message)


def test_unknown_variable_is_refused(module):
    for number in range(100):  # the stand-in driver has room for fewer names
        try:
            module.symbol(f"v{number}").address  # noqa: B018 (it is looked up)
        except CudaError as error:
            assert f"symbol('v{number}') is no variable of the loaded images" in str(error)  # noqa: PT017
            return
    pytest.fail("every name was found")
