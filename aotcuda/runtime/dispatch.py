"""Which overload the arguments of a launch select, or why none does.

1. The number of arguments must be the overload's.
2. An array must have the parameter's dtype and number of dimensions, and a layout that it accepts: a C or F parameter
   takes an array that is contiguous in that order, any other takes any strides. A read-only array fits only a
   parameter that was compiled as read-only.
3. Scalars adopt the parameter's type, within its range (see `aotcuda.runtime.scalars`). Tuples are taken apart.
4. Of several overloads that fit, the nearest in its scalars is taken; of equals, the first in the configuration.
5. What the JIT fallback has compiled is taken for arguments of the types that it was compiled for, and only where
   nothing that is packaged fits.

The order of the candidates depends on nothing but the arguments' Python types, so it is kept for each tuple of types.
Where candidates differ in an array's dtype or number of dimensions, they are kept in groups by these, found by one
look-up: a kernel of many overloads takes no longer than a kernel of two.
"""

from __future__ import annotations

import struct

from aotcuda.runtime import arrays
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.plan import Plan, converter, rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.manifest import Kernel, Parameter
    from aotcuda.runtime.driver import Mark
    from aotcuda.runtime.plan import Slot
    from aotcuda.runtime.scalars import Convert
    from aotcuda.runtime.specialise import Bind

    Candidate = tuple[Plan, tuple[Convert, ...]]
    Selection = tuple[Plan, Slot, list[object], list[object]]
    Late = Callable[[tuple[object, ...], int], Selection | None]

_MOST_KEPT = 1024


class Group:
    """The overloads that arguments of some types, and arrays of some dtypes and dimensions, may fit; best first.

    Attributes:
        candidates: The overloads, each with its converters.
        quick: What `aotcuda.runtime.specialise` made for them; None before it was asked.
        blocks: The block of most occupancy for each amount of dynamic shared memory, where there is one overload.
        live: As `Dispatch.live`, of the loaded images that the overloads are of.
    """

    __slots__ = ("blocks", "candidates", "live", "quick")

    def __init__(self, candidates: list[Candidate], live: Mark) -> None:
        self.candidates = candidates
        self.live = live
        self.quick: list[Bind] | None = None
        self.blocks: dict[int, int] = {}

    def is_only(self, plan: Plan) -> bool:
        """Whether `plan` is all that is in the group."""
        return len(self.candidates) == 1 and self.candidates[0][0] is plan

    def is_of(self, plan: Plan) -> bool:
        """Whether `plan` is in the group, and all others in it are for arrays of the same dtypes and dimensions."""
        plans = [candidate for candidate, _ in self.candidates]
        return plan in plans and all(other.forms == plan.forms for other in plans)


class _Ranked:
    """The overloads that arguments of some types may fit, in groups by what the deciding arrays are."""

    __slots__ = ("_candidates", "_deciding", "_groups", "_live")

    def __init__(self, candidates: list[Candidate], live: Mark) -> None:
        self._candidates = candidates
        self._live = live
        self._groups: dict[object, Group] = {None: Group(candidates, live)}
        count = len(candidates[0][0].parameters)
        self._deciding = [at for at in range(count) if len({plan.forms[at] for plan, _ in candidates}) > 1]

    def group(self, args: tuple[object, ...]) -> Group:
        if not self._deciding:
            return self._groups[None]
        key = tuple([arrays.identity(args[at]) for at in self._deciding])
        found = self._groups.get(key)
        if found is None:
            if None in key or len(self._groups) >= _MOST_KEPT:
                return self._groups[None]
            wanted = [(arrays.element(name), ndim) for name, ndim in filter(None, key)]
            fitting = [
                candidate
                for candidate in self._candidates
                # A parameter that takes arrays and is none, a record, decides for itself.
                if all(candidate[0].forms[at] in (None, form) for at, form in zip(self._deciding, wanted, strict=True))
            ]
            found = self._groups[key] = Group(fitting, self._live)
        return found


class Dispatch:
    """The overloads of one kernel.

    Attributes:
        plans: One for each overload, in the configuration's order.
        live: Holds one item until the images are unloaded or the process forks; quick launches look at it.
    """

    __slots__ = ("_late", "_late_plans", "_nested", "_ranked", "_where", "live", "plans")

    def __init__(self, kernel: Kernel, where: str, late: Late | None = None) -> None:
        self._where = where
        self._late = late
        self.live = drivers.live_mark()
        self.plans = [Plan(overload, where, self.live) for overload in kernel["overloads"]]
        self._nested = any(map(_has_tuple, self.plans))
        self._late_plans: dict[object, list[Plan]] = {}
        self._ranked: dict[object, _Ranked] = {}

    def group(self, args: tuple[object, ...]) -> Group | None:
        """The overloads that the arguments may fit, None if there are none."""
        key = self._key(args)
        ranked = self._ranked.get(key) or self._rank(key, args)
        return ranked.group(args) if ranked is not None else None

    def select(self, args: tuple[object, ...], stream: int, group: Group | None = None) -> Selection:
        """The plan that the arguments select, a slot that holds them packed, their numbers, and what is pending.

        `pending` is described in `aotcuda.runtime.arrays`. The caller gives the slot back.

        Args:
            args: The arguments.
            stream: The launch's stream.
            group: What `group` gives for these arguments, if it was asked already.

        Raises:
            ArgumentError: No overload takes these arguments.
        """
        group = group or self.group(args)
        selection = _fit(group, args, stream) if group else None
        if selection is None and self._late is not None:  # the JIT fallback may have an overload for them
            selection = self._late(args, stream)
            if selection is not None:
                self._keep(args, selection[0])
        if selection is not None:
            return selection
        from aotcuda.runtime.refusal import refusal  # noqa: PLC0415 (only errors come here)

        raise refusal(self._where, self.plans, args)

    def retire(self) -> None:
        """Make every quick path of this kernel decline from now on: its images are being unloaded."""
        drivers.retire(self.live)

    def is_idle(self) -> bool:
        """Whether no launch is under way; it stays so once it is retired."""
        return not any(self.live.flights) and all(plan.is_idle() for plan in self.plans)

    def _key(self, args: tuple[object, ...]) -> object:
        return _types(args) if self._nested else tuple(map(type, args))

    def _keep(self, args: tuple[object, ...], plan: Plan) -> None:
        """From now on find an overload that was compiled late without asking for it again."""
        if not all(map(_is_exact, plan.parameters, args)):
            return
        if not self._nested and _has_tuple(plan):
            self._nested = True
            self._ranked.clear()
        key = self._key(args)
        if len(self._late_plans) >= _MOST_KEPT and key not in self._late_plans:
            return
        kept = self._late_plans.setdefault(key, [])
        if plan not in kept:
            kept.append(plan)
            self._ranked.pop(key, None)

    def _rank(self, key: object, args: tuple[object, ...]) -> _Ranked | None:
        """The overloads that arguments of these types may fit, best first; None if there are none."""
        found = []
        for index, plan in enumerate((*self.plans, *self._late_plans.get(key, ()))):
            if len(args) != len(plan.parameters):
                continue
            pairs = list(zip(plan.parameters, args, strict=True))
            ranks = [rank(parameter, arg) for parameter, arg in pairs]
            if None not in ranks:
                converters = tuple([converter(parameter, arg) for parameter, arg in pairs])
                nearness = sum(part or 0 for part in ranks)
                found.append((index >= len(self.plans), nearness, index, plan, converters))
        if not found:
            return None
        found.sort(key=lambda item: item[:3])
        if len(self._ranked) >= _MOST_KEPT:
            self._ranked.clear()
        ranked = self._ranked[key] = _Ranked([item[3:] for item in found], self.live)
        return ranked


def _fit(group: Group, args: tuple[object, ...], stream: int) -> Selection | None:
    """The first overload of a group that takes the arguments, and the arguments packed for it."""
    for plan, converters in group.candidates:
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
            except BaseException:  # of an argument's own
                plan.slots.append(slot)
                raise
            return plan, slot, values, pending
    return None


def _is_exact(parameter: Parameter, arg: object) -> bool:
    """Whether all that a late overload's parameter takes of this argument's type would be compiled for that parameter.

    What was compiled before must not decide what a launch gets: a parameter for any strides would take contiguous
    arrays too, and one for large ints the small ones.
    """
    kind = parameter["kind"]
    if kind == "tuple":
        assert isinstance(arg, tuple)  # noqa: S101 (it was compiled for it)
        return all(map(_is_exact, parameter["members"], arg))
    if kind == "array":
        return parameter["layout"] == "C" and not parameter.get("readonly", False)
    return kind != "scalar" or parameter["format"] != "Q" or hasattr(arg, "dtype")


def _has_tuple(plan: Plan) -> bool:
    return any(parameter["kind"] == "tuple" for parameter in plan.parameters)


def _types(args: tuple[object, ...]) -> tuple[object, ...]:
    """The arguments' types, tuples taken apart."""
    return tuple([(type(arg), _types(arg)) if isinstance(arg, tuple) else type(arg) for arg in args])
