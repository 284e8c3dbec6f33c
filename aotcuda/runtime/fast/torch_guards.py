"""One question in place of many for PyTorch's tensors: whether all that was asked of some holds of these, too.

What a launch asks of a tensor takes PyTorch some 50 ns each time, six times for each tensor; only its address changes
from launch to launch in most programs. PyTorch's compiler has a question in C that tells of several tensors at once
whether they are of the types, dtypes, dispatch keys, GPU, sizes and strides that others had. It has no public name, so
it is tried out on tensors of which the answer is known, and left alone where it says anything else.
"""

from __future__ import annotations

import sys
from operator import itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Check = Callable[..., bool]

_MOST_MISSES = 64
_MOST_OTHERS = 1024

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
        check, both, form = self._check(tensor), self._check(tensor, double), self._check(tensor, any_sizes=True)
        others = [
            double,
            made(3, 4, dtype=torch.int32),
            made(3, 4, device="meta"),
            made(3, 4, 1),
            made(12),
            made(),
            torch._neg_view(tensor),  # noqa: SLF001 (as above)
            torch.nn.Parameter(tensor, requires_grad=False),
            None,
        ]
        sizes = [made(3, 5), made(2, 4), made(4, 3).t(), made(3, 8)[:, ::2], made(0, 1), made(1, 1).expand(3, 4)]
        same = check(tensor) is True and check(made(4, 4)[1:]) is True and both(tensor, double) is True
        swapped = both(tensor, tensor) is False and both(double, tensor) is False
        refused = all(check(other) is False for other in [*others, *sizes]) and not any(map(form, others))
        return same and swapped and refused and all(form(other) is True for other in sizes) and self._tells_lazy()

    def make(self, tensors: tuple[Any, ...]) -> tuple[Check, Check | None] | None:
        """What tells whether others are as these tensors, and the same whatever their sizes and strides.

        They take as many, and `lazy`. None where it cannot be told in this thread now; the second also where one tensor
        is there twice, since it refuses such, and would have to be a slow one.
        """
        if not self._tells_lazy():
            return None
        firsts = [min(at for at, other in enumerate(tensors) if other is tensor) for tensor in tensors]
        distinct = [*[tensors[at] for at in sorted(set(firsts))], self.lazy]
        check = self._check(*distinct)
        if len(distinct) > len(tensors):
            return check, self._check(*distinct, any_sizes=True)
        return _of_distinct(check, firsts), None

    def _check(self, *tensors: Any, any_sizes: bool = False) -> Check:
        sizes = [[None] * tensor.ndim if any_sizes else list(tensor.shape) for tensor in tensors]
        strides = [[None] * tensor.ndim if any_sizes else list(tensor.stride()) for tensor in tensors]
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
        except (MemoryError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 (another PyTorch: all of this is its own affair)
            found = None
        _tried[:] = [found]
    return _tried[0]


def never(*_tensors: object) -> bool:
    """The question before there is one."""
    return False


class Renewal:
    """When the questions of one fast function are made anew.

    At first at once, and then where tensors of the same sizes have come often enough for which the last one did not
    hold: in a program with other sizes each time it would be of no use, and in one with two in turn seldom.

    Attributes:
        due: Whether to ask for them (`renewed`).
    """

    __slots__ = ("_guards", "_last", "_left", "_others", "_patience", "_wait", "due")

    def __init__(self, guards: Guards) -> None:
        self._guards = guards
        self._wait = 2
        self._left = 0
        self._last: object = None
        self._others, self._patience = 0, 1
        self.due = True

    def renewed(self, *tensors: Any) -> tuple[Check, Check | None] | None:
        """`Guards.make` of these tensors."""
        self.due = False
        self._left = self._wait = min(self._wait * 2, _MOST_MISSES)
        try:
            return self._guards.make(tensors)
        except (MemoryError, RecursionError):
            raise
        except Exception:  # noqa: BLE001 (a tensor of its own kind: it is asked)
            return None

    def missed(self, facts: object) -> None:
        """Count a launch for which the question did not hold; `facts` is what the tensors said then."""
        if facts != self._last:
            self._last = facts
            self._left = self._wait
            return
        self._left -= 1
        self.due = self._left <= 0

    def other(self) -> None:
        """Count a launch whose tensors had to be asked for more than their sizes."""
        self._others += 1
        if self._others >= self._patience:
            self._others, self._patience = 0, min(self._patience * 4, _MOST_OTHERS)
            self.due = True
