"""Unusual tensors of PyTorch, made on a device: those that launches refuse, and those that they accept."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[[str], torch.Tensor]


class Wrapper(torch.Tensor):
    """A subclass that implements operators itself."""

    @classmethod
    def __torch_dispatch__(cls, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


class Plain(torch.Tensor):
    """A subclass that changes nothing."""


def resized(tensor: torch.Tensor) -> torch.Tensor:
    """Free the memory of a tensor, which keeps its shape."""
    tensor.untyped_storage().resize_(0)
    return tensor


def _fake(device: str) -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(4, device=device)


def _nested(device: str, **options: Any) -> torch.Tensor:
    rows = [torch.ones(2, device=device), torch.ones(3, device=device)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(rows, **options)


def _sparse_rows(device: str) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ones(2, 2, device=device).to_sparse_csr()


def _inference(device: str) -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(4, device=device)


def complexes(device: str) -> torch.Tensor:
    return torch.ones(4, dtype=torch.complex64, device=device)


SUBCLASS = "a subclass of torch.Tensor with __torch_dispatch__"
REFUSED: dict[str, tuple[Make, str]] = {
    "nested": (_nested, r"is a tensor with no strides \(nested\)"),
    "jagged": (lambda device: _nested(device, layout=torch.jagged), f"is a NestedTensor, {SUBCLASS}"),
    "fake": (_fake, f"is a FakeTensor, {SUBCLASS}"),
    "wrapper": (lambda device: torch.ones(4, device=device).as_subclass(Wrapper), f"is a Wrapper, {SUBCLASS}"),
    "sparse": (
        lambda device: torch.ones(2, 2, device=device).to_sparse(),
        r"is a tensor with no strides \(torch.sparse_coo\)",
    ),
    "sparse rows": (_sparse_rows, r"is a tensor with no strides \(torch.sparse_csr\)"),
    "conjugate": (lambda device: complexes(device).conj(), "a lazy conjugate; call resolve_conj"),
    "zero": (
        lambda device: torch._efficientzerotensor((4,), device=device),  # type: ignore[attr-defined]
        r"has shape \(4,\) and no memory: its address is 0",
    ),
    "resized": (lambda device: resized(torch.ones(9, device=device)), r"has shape \(9,\) and no memory"),
    "resized view": (lambda device: resized(torch.ones(9, device=device)[3:]), r"has shape \(6,\) and no memory"),
    "resized rows": (
        lambda device: resized(torch.ones(9, 9, device=device)[3:, ::2]),
        r"has shape \(6, 5\) and no memory",
    ),
    "uninitialized": (
        lambda device: torch.nn.parameter.UninitializedParameter(device=device, dtype=torch.float32),
        "cannot be read",
    ),
}
"""Functions that make a tensor that is not plain memory, each with the message of the refusal."""

LAUNCHED: dict[str, Make] = {
    "tensor": lambda device: torch.ones(4, device=device),
    "view": lambda device: torch.ones(9, device=device)[3:7],
    "strided": lambda device: torch.ones(9, device=device)[1::2],
    "rows": lambda device: torch.ones(4, 6, device=device)[1:, ::3],
    "transposed": lambda device: torch.ones(4, 6, device=device).T,
    "broadcast": lambda device: torch.ones(1, 6, device=device).expand(4, 6),
    "empty": lambda device: torch.ones(0, device=device),
    "emptied": lambda device: resized(torch.ones(9, device=device))[:0],
    "parameter": lambda device: torch.nn.Parameter(torch.ones(4, device=device)),
    "gradient": lambda device: torch.ones(4, device=device).requires_grad_(),
    "result of a gradient": lambda device: torch.ones(4, device=device).requires_grad_() * 2,
    "subclass": lambda device: torch.ones(4, device=device).as_subclass(Plain),
    "copied when written to": lambda device: torch._lazy_clone(torch.ones(4, device=device)),  # type: ignore[attr-defined]
    "negated": lambda device: complexes(device).conj().imag,
    "inference": _inference,
}
"""Functions that make a tensor that is launched as it is in memory."""
