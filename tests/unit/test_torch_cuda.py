"""Odd tensors of a PyTorch that was built for CUDA: refused or launched rightly, by both paths.

The stand-in driver launches, so a GPU is not needed, but PyTorch has to make CUDA tensors: on a machine with a GPU, or
over stub libraries of CUDA. Elsewhere the tests are skipped.
"""

from __future__ import annotations

import struct
import warnings

import numpy as np
import pytest

from aotcuda.errors import ArgumentError
from aotcuda.runtime import fast as extension
from aotcuda.runtime.general_path import GeneralPath
from support.manifests import kernel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.filterwarnings("default"),  # PyTorch warns of parts that are in beta
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA tensors"),
]
SIGNATURES = ("void(float32[::1])", "void(float32[:])", "void(float32[:,:])", "void(complex64[:])")


@pytest.fixture(params=["general", "extension"])
def k(request, monkeypatch, cuda):
    """Return a kernel that was launched with plain tensors before, by one of the paths."""
    module = request.getfixturevalue("extension_module") if request.param == "extension" else None
    monkeypatch.setattr(extension, "_found", [module])
    if module is None:
        monkeypatch.setattr(GeneralPath, "settle", lambda *_args: None)
    k = cuda.package(kernel("k", *SIGNATURES)).k
    for _ in range(3):
        for tensor in (ones(4), ones(8)[::2], ones(3, 2), ones(4, dtype=torch.complex64)):
            k[1, 1](tensor)
    return k


def ones(*shape, **options):
    return torch.ones(*shape, **options).cuda() if "device" not in options else torch.ones(*shape, **options)


def resized(tensor):
    tensor.untyped_storage().resize_(0)
    return tensor


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(4, device="cuda")


def undefined_parameter():
    return torch.nn.parameter.UninitializedParameter(device="cuda", dtype=torch.float32)


def inference():
    with torch.inference_mode():
        return ones(4)


class Plain(torch.Tensor):
    """A subclass that changes nothing."""


class Lying(torch.Tensor):
    """A subclass that says other things than its memory has; it says them consistently."""

    @property
    def shape(self):
        return torch.Size((2,))


class Raising(torch.Tensor):
    """A subclass that cannot be asked."""

    def data_ptr(self):
        raise ValueError


class Wrapper(torch.Tensor):
    """A subclass that does for itself what operators do."""

    @classmethod
    def __torch_dispatch__(cls, function, _types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def wrapping():
    """Return a wrapper subclass, which has no storage at all."""
    return torch.Tensor._make_wrapper_subclass(Wrapper, (4,), dtype=torch.float32, device="cuda")


REFUSED = {
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]).cuda(),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged).cuda(),
    "fake": fake,
    "wrapper": lambda: ones(4).as_subclass(Wrapper),
    "wrapper without storage": wrapping,
    "sparse": lambda: torch.sparse_coo_tensor(torch.zeros(1, 2, dtype=torch.int64).cuda(), ones(2), (4,)),
    "sparse rows": lambda: torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2), size=(2, 2), check_invariants=False
    ).cuda(),
    "conjugate": lambda: ones(4, dtype=torch.complex64).conj(),
    "zero": lambda: torch._efficientzerotensor((4,), device="cuda"),
    "resized": lambda: resized(ones(9)),
    "resized view": lambda: resized(ones(9)[3:]),
    "resized rows": lambda: resized(ones(9, 9)[3:, ::2]),
    "uninitialized": undefined_parameter,
    "meta": lambda: torch.ones(4, device="meta"),
    "host": lambda: torch.ones(4),
    "raising": lambda: ones(4).as_subclass(Raising),
    "float8": lambda: torch.empty(4, dtype=torch.float8_e5m2, device="cuda"),
}
LAUNCHED = {
    "tensor": lambda: ones(4),
    "view": lambda: ones(9)[3:7],
    "strided": lambda: ones(9)[1::2],
    "rows": lambda: ones(4, 6)[1:, ::3],
    "reversed axes": lambda: ones(4, 6).T,
    "broadcast": lambda: ones(1, 6).expand(4, 6),
    "empty": lambda: ones(0),
    "emptied": lambda: resized(ones(9))[:0],
    "parameter": lambda: torch.nn.Parameter(ones(4)),
    "buffer": lambda: torch.nn.Buffer(ones(4)) if hasattr(torch.nn, "Buffer") else ones(4),
    "gradient": lambda: ones(4).requires_grad_(),
    "result of a gradient": lambda: ones(4).requires_grad_() * 2,
    "detached": lambda: ones(4).requires_grad_().detach(),
    "subclass": lambda: ones(4).as_subclass(Plain),
    "copied when written to": lambda: torch._lazy_clone(ones(4)),
    "negated": lambda: ones(4, dtype=torch.complex64).conj().imag,
    "inference": inference,
}


@pytest.mark.parametrize("name", REFUSED)
def test_odd_tensors_are_refused(cuda, k, name):
    before = len(cuda.launches())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = REFUSED[name]()
    for _ in range(3):
        with pytest.raises(ArgumentError, match=r"k: argument 1, a|no packaged signature"):
            k[1, 1](tensor)
    assert len(cuda.launches()) == before


@pytest.mark.parametrize("name", LAUNCHED)
def test_tensors_are_launched_as_they_lie_in_memory(cuda, k, general, request, name):
    tensor = LAUNCHED[name]()
    for _ in range(4):
        general.clear()
        k[1, 1](tensor)
        words = struct.unpack(f"<{5 + 2 * tensor.dim()}q", cuda.parameters())
        itemsize = tensor.element_size()
        address = tensor.data_ptr()
        assert words[2:5] == (tensor.numel(), itemsize, address)
        assert words[5 : 5 + tensor.dim()] == tuple(tensor.shape)
        if tensor.numel() and 1 not in tensor.shape:
            assert words[5 + tensor.dim() :] == tuple(itemsize * step for step in tensor.stride())
    assert bool(general) is ("general" in request.node.callspec.id)


def test_a_subclass_that_lies_gets_one_consistent_reading(cuda, k):
    tensor = ones(4).as_subclass(Lying)
    for _ in range(3):
        k[1, 1](tensor)
        assert struct.unpack("<7q", cuda.parameters())[2:] == (2, 4, torch.Tensor.data_ptr(tensor), 2, 4)


@pytest.mark.parametrize("transform", ["vmap", "functionalize", "grad"])
def test_tensors_of_function_transforms_are_refused(cuda, k, transform):
    before = len(cuda.launches())

    def launch(tensor):
        with pytest.raises(ArgumentError):
            k[1, 1](tensor)
        return tensor.new_zeros(())

    if transform == "vmap":
        torch.func.vmap(launch)(ones(2, 3))
    elif transform == "functionalize":
        torch.func.functionalize(launch)(ones(3))
    else:
        torch.func.grad(launch)(ones(3))
    assert len(cuda.launches()) == before


@pytest.mark.parametrize("patched", ["shape", "data_ptr", "is_contiguous", "stride"])
def test_a_patched_class_is_launched_rightly_or_refused(cuda, k, monkeypatch, patched):
    tensor = ones(6)
    right = (6, 4, tensor.data_ptr(), 6, 4)
    lies = {
        "shape": property(lambda _self: None),
        "data_ptr": lambda _self: None,
        "is_contiguous": lambda _self: None,
        "stride": None,
    }
    monkeypatch.setattr(torch.Tensor, patched, lies[patched], raising=False)
    before = len(cuda.launches())
    try:
        k[1, 1](tensor)
    except ArgumentError:
        assert len(cuda.launches()) == before
    else:
        assert struct.unpack("<7q", cuda.parameters())[2:] == right


@pytest.mark.parametrize("mode", ["dispatch", "function"])
def test_modes_of_pytorch_change_no_launch(cuda, k, mode):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, _types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    tensors = [ones(5), ones(6), ones(7)]
    with Dispatch() if mode == "dispatch" else Function():
        for tensor in tensors * 2:
            k[1, 1](tensor)
            words = struct.unpack("<7q", cuda.parameters())
            assert words[2:] == (len(tensor), 4, tensor.data_ptr(), len(tensor), 4)
    assert np.all([launch["grid"] == [1, 1, 1] for launch in cuda.launches()])
