"""Which overload the arguments of a launch select, or why none does.

1. The number of arguments must be the overload's.
2. An array must have the parameter's dtype and number of dimensions, and a layout that it accepts: a C or F parameter
   takes an array that is contiguous in that order, any other takes any strides. A read-only array fits only a
   parameter that was compiled as read-only.
3. Scalars adopt the parameter's type, within its range (see `aotcuda.runtime.scalars`). Tuples are taken apart.
4. Of several overloads that fit, the nearest in its scalars is taken; of equals, the first in the configuration.

The order of candidates depends on nothing but the arguments' Python types, so it is kept for each tuple of types.
"""

from __future__ import annotations

import struct

from aotcuda.runtime.plan import Plan, converter, rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Kernel
    from aotcuda.runtime.plan import Slot
    from aotcuda.runtime.scalars import Convert

    Candidate = tuple[Plan, tuple[Convert, ...]]
    Selection = tuple[Plan, Slot, list[object], list[object]]

_MOST_KEPT = 1024


class Dispatch:
    """The overloads of one kernel.

    Attributes:
        plans: One for each overload, in the configuration's order.
    """

    __slots__ = ("_candidates", "_nested", "_where", "plans")

    def __init__(self, kernel: Kernel, where: str) -> None:
        self._where = where
        self.plans = [Plan(overload, where) for overload in kernel["overloads"]]
        self._nested = any(part["kind"] == "tuple" for plan in self.plans for part in plan.parameters)
        self._candidates: dict[object, list[Candidate]] = {}

    def select(self, args: tuple[object, ...], stream: int) -> Selection:
        """The plan that the arguments select, a slot that holds them packed, their numbers, and what is pending.

        `pending` is described in `aotcuda.runtime.arrays`. The caller gives the slot back.

        Raises:
            ArgumentError: No overload takes these arguments.
        """
        key = _types(args) if self._nested else tuple(map(type, args))
        candidates = self._candidates.get(key)
        if candidates is None:
            candidates = self._rank(key, args)
        for plan, converters in candidates:
            values: list[object] = []
            pending: list[object] = []
            for convert, arg in zip(converters, args):  # noqa: B905 (checked when they were made; strict costs time)
                if not convert(arg, values, pending, stream):
                    break
            else:
                slot = plan.take()
                try:
                    plan.pack_into(slot[0], 0, *values)
                except (struct.error, OverflowError):  # a scalar is out of its parameter's range
                    plan.slots.append(slot)
                    continue
                return plan, slot, values, pending
        from aotcuda.runtime.refusal import refusal  # noqa: PLC0415 (only errors come here)

        raise refusal(self._where, self.plans, args)

    def _rank(self, key: object, args: tuple[object, ...]) -> list[Candidate]:
        """The overloads that arguments of these types may fit, best first."""
        ranked = []
        for index, plan in enumerate(self.plans):
            if len(args) != len(plan.parameters):
                continue
            pairs = list(zip(plan.parameters, args, strict=True))
            ranks = [rank(parameter, arg) for parameter, arg in pairs]
            if None not in ranks:
                converters = tuple([converter(parameter, arg) for parameter, arg in pairs])
                ranked.append((sum(part or 0 for part in ranks), index, plan, converters))
        ranked.sort(key=lambda item: item[:2])
        candidates = [(plan, converters) for _, _, plan, converters in ranked]
        if candidates:
            if len(self._candidates) >= _MOST_KEPT:
                self._candidates.clear()
            self._candidates[key] = candidates
        return candidates


def _types(args: tuple[object, ...]) -> tuple[object, ...]:
    """The arguments' types, tuples taken apart."""
    return tuple([(type(arg), _types(arg)) if isinstance(arg, tuple) else type(arg) for arg in args])
