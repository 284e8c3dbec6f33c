"""One question in place of many for PyTorch's tensors: whether all that was asked of some holds of these, too.

What a launch asks of a tensor takes PyTorch some 50 ns each time, six times for each tensor; only its address changes
from launch to launch in most programs. PyTorch's compiler has a question in C that tells of several tensors at once
whether they are of the types, dtypes, dispatch keys, GPU, sizes and strides that others had. It has no public name, so
it is tried out on tensors of which the answer is known, and left alone where it says anything else.
"""

from __future__ import annotations

import sys
from _operator import itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Check = Callable[..., bool]

_MOST_MISSES = 1024

_tried: list[Guards | None] = []


class Guards:
    """Makes such questions.

    It compares dispatch keys as operators would see them in this thread. So that nobody who has told PyTorch to leave
    lazy views alone makes one pass for a plain tensor, each question is asked of a lazy one as well (`lazy`).

    Attributes:
        lazy: A tensor that is to be told behind all others.
        kinds: The classes of tensors that they are for; others may change what is asked.
    """

    __slots__ = ("_alike", "_kind", "_views", "kinds", "lazy")

    def __init__(self, torch: Any) -> None:
        """Of this PyTorch; whatever is raised means that it has none."""
        self._kind = torch._C._dynamo.guards.TensorGuards  # noqa: SLF001 (there is no public name)
        plain = torch.ones(2, dtype=torch.complex64, device="cpu")
        conjugate, negative = plain.conj(), torch._neg_view(plain)  # noqa: SLF001 (likewise)
        self._alike = torch.ones(2, dtype=torch.complex64, device="cpu"), plain
        self._views = conjugate, negative, torch._neg_view(conjugate)  # noqa: SLF001
        self.lazy = self._views[-1]
        self.kinds: tuple[type, ...] = torch.Tensor, torch.nn.Parameter

    def works(self, torch: Any) -> bool:
        """Whether the answers are what they are to be."""
        f4 = torch.float32

        def made(*shape: int, dtype: object = f4, device: str = "cpu") -> Any:
            return torch.ones(shape, dtype=dtype, device=device)

        tensor, double = made(3, 4), made(3, 4, dtype=torch.float64)
        check, both = self._check(tensor), self._check(tensor, double)
        others = [
            double,
            made(3, 4, dtype=torch.int32),
            made(3, 4, device="meta"),
            made(3, 4, 1),
            made(12),
            made(),
            made(3, 5),
            made(2, 4),
            made(4, 3).t(),
            made(3, 8)[:, ::2],
            torch._neg_view(tensor),  # noqa: SLF001 (as above)
            torch.nn.Parameter(tensor, requires_grad=False),
            None,
        ]
        same = check(tensor) is True and check(made(4, 4)[1:]) is True and both(tensor, double) is True
        swapped = both(tensor, tensor) is False and both(double, tensor) is False
        return same and swapped and all(check(other) is False for other in others) and self._tells_lazy()

    def make(self, tensors: tuple[Any, ...]) -> Check | None:
        """What tells whether others are as these tensors; None where it cannot be told in this thread now.

        It takes as many, and `lazy`.
        """
        if not self._tells_lazy():
            return None
        firsts = [min(at for at, other in enumerate(tensors) if other is tensor) for tensor in tensors]
        check = self._check(*[tensors[at] for at in sorted(set(firsts))], self.lazy)
        if len(set(firsts)) == len(tensors):
            return check
        return _of_distinct(check, firsts)  # it refuses a tensor that is there twice

    def _check(self, *tensors: Any) -> Check:
        sizes = [list(tensor.shape) for tensor in tensors]
        strides = [list(tensor.stride()) for tensor in tensors]
        check: Check = self._kind(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        return check

    def _tells_lazy(self) -> bool:
        check = self._check(self._alike[0])
        return check(self._alike[1]) is True and not any(map(check, self._views))


def _of_distinct(check: Check, firsts: list[int]) -> Check:
    """The same question where some of the tensors were one; `firsts` says for each where it was met first."""
    same = [(at, first) for at, first in enumerate(firsts) if at != first]
    pick = itemgetter(*[at for at, first in enumerate(firsts) if at == first], len(firsts))

    def of_distinct(*tensors: Any) -> bool:
        for at, first in same:
            if tensors[at] is not tensors[first]:
                return False
        return check(*pick(tensors))

    return of_distinct


def usable() -> Guards | None:
    """What makes them, None with a PyTorch whose answers are others."""
    if not _tried:
        found = None
        try:
            torch: Any = sys.modules["torch"]
            guards = Guards(torch)
            found = guards if guards.works(torch) else None
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 (another PyTorch: all of this is its own affair)
            found = None
        _tried[:] = [found]
    return _tried[0]


def never(*_tensors: object) -> bool:
    """The question before there is one."""
    return False


class Renewal:
    """When the question of one fast function is made anew: at once, and then where it has not held for long enough.

    A program whose tensors have other sizes each time would otherwise have it made for every launch.
    """

    __slots__ = ("_guards", "_left", "_wait")

    def __init__(self, guards: Guards) -> None:
        self._guards = guards
        self._wait = 4
        self._left = 0

    def renewed(self, *tensors: Any) -> Check | None:
        """The question for these tensors, for which the last one did not hold; None if it is not time yet."""
        if self._left:
            self._left -= 1
            return None
        self._left = self._wait = min(self._wait * 2, _MOST_MISSES)
        try:
            return self._guards.make(tensors)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 (a tensor of its own kind: it is asked)
            return None
