"""Unusual tensors of a PyTorch that was built for CUDA: refused or launched as they are in memory, on both paths.

The stand-in driver launches, so a GPU is not needed, but PyTorch has to make CUDA tensors: on a machine with a GPU, or
over stub libraries of CUDA. Elsewhere the tests are skipped.
"""

from __future__ import annotations

import struct
import warnings

import pytest

from aotcuda.errors import ArgumentError
from aotcuda.runtime.launch import fast as extension
from aotcuda.runtime.launch.execute import Launcher
from support.manifests import kernel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")
    from support import tensors

pytestmark = [
    pytest.mark.filterwarnings("default"),  # PyTorch warns of parts that are in beta
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA tensors"),
]
SIGNATURES = ("void(float32[::1])", "void(float32[:])", "void(float32[:,:])", "void(complex64[:])")
REFUSED = {
    **{name: make for name, (make, _) in tensors.REFUSED.items()},
    "wrapper without storage": lambda device: torch.Tensor._make_wrapper_subclass(
        tensors.Wrapper, (4,), dtype=torch.float32, device=device
    ),
    "meta": lambda _: torch.ones(4, device="meta"),
    "host": lambda _: torch.ones(4),
    "float8": lambda device: torch.empty(4, dtype=torch.float8_e5m2, device=device),
}


@pytest.fixture(params=["general", "extension"])
def k(request, monkeypatch, cuda):
    """Return a kernel that was launched with plain tensors before, by one of the paths."""
    module = request.getfixturevalue("extension_module") if request.param == "extension" else None
    monkeypatch.setattr(extension, "_module", [module])
    if module is None:
        monkeypatch.setattr(Launcher, "settle", lambda *_args: None)
    k = cuda.package(kernel("k", *SIGNATURES)).k
    plain = [torch.ones(4), torch.ones(8)[::2], torch.ones(3, 2), torch.ones(4, dtype=torch.complex64)]
    for _ in range(3):
        for tensor in plain:
            k[1, 1](tensor.cuda())
    return k


def assert_launched(cuda, k, tensor):
    k[1, 1](tensor)
    words = struct.unpack(f"<{5 + 2 * tensor.dim()}q", cuda.parameters())
    itemsize = tensor.element_size()
    assert words[2:5] == (tensor.numel(), itemsize, tensor.data_ptr())
    assert words[5 : 5 + tensor.dim()] == tuple(tensor.shape)
    if tensor.numel() and 1 not in tensor.shape:
        assert words[5 + tensor.dim() :] == tuple(itemsize * step for step in tensor.stride())


@pytest.mark.parametrize("name", REFUSED)
def test_unusual_tensors_are_refused(cuda, k, name):
    before = len(cuda.launches())
    tensor = REFUSED[name]("cuda")
    for _ in range(3):
        with pytest.raises(ArgumentError, match=r"k: argument 1, a|no packaged signature"):
            k[1, 1](tensor)
    assert len(cuda.launches()) == before


@pytest.mark.parametrize("name", tensors.LAUNCHED)
def test_tensors_are_launched_as_they_are_in_memory(cuda, k, general, request, name):
    tensor = tensors.LAUNCHED[name]("cuda")
    for _ in range(4):
        general.clear()
        assert_launched(cuda, k, tensor)
    assert bool(general) is ("general" in request.node.callspec.id)


@pytest.mark.parametrize("transform", ["vmap", "functionalize", "grad"])
def test_tensors_of_function_transforms_are_refused(cuda, k, transform):
    before = len(cuda.launches())

    def launch(tensor):
        with pytest.raises(ArgumentError):
            k[1, 1](tensor)
        return tensor.new_zeros(())

    getattr(torch.func, transform)(launch)(torch.ones((2, 3) if transform == "vmap" else 3).cuda())
    assert len(cuda.launches()) == before


@pytest.mark.parametrize("kind", ["dispatch", "function"])
def test_modes_of_pytorch_change_no_launch(cuda, k, kind):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, _types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    made_before = [torch.ones(count).cuda() for count in (5, 6, 7)]
    with Dispatch() if kind == "dispatch" else Function():
        for tensor in made_before * 2:
            assert_launched(cuda, k, tensor)
