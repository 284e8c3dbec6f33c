"""Record the comparisons that a compilation makes with its target: its code serves all targets with equal results.

Numba's compilers pass the compute capability through many functions, and rarely read it. If they do, they compare it
with a constant ("7.5 or later?"). The comparison is recorded, and few targets of a project differ in its result. Any
other use of a capability is recorded as a read of its value, in which all targets differ.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Query = Callable[[tuple[int, int]], object]
    """A function from a compute capability to its answer; an exception is an answer, too."""


@dataclass(slots=True)
class Watch:
    """The queries of one compilation.

    Attributes:
        capability: The compute capability of the target.
        name: The name of the target. Several targets may have one capability (`sm_90`, `sm_90a`).
        answers: The queries with their answers.
        name_is_read: True if code has read the name of the target.
    """

    capability: tuple[int, int]
    name: str = ""
    answers: list[tuple[Query, object]] = field(default_factory=list)
    name_is_read: bool = False

    def run(self, query: Query) -> Any:
        """Run a query for this capability; record and return its answer."""
        self.answers.append((query, _outcome(query, self.capability)))
        return query(self.capability)

    def serves(self, capability: tuple[int, int], name: str = "") -> bool:
        """Return True if a target of `capability` gives all recorded answers."""
        if self.name_is_read and name != self.name:
            return False
        return capability == self.capability or all(
            _outcome(query, capability) == outcome for query, outcome in self.answers
        )


def _outcome(query: Query, capability: tuple[int, int]) -> tuple[str, object]:
    try:
        return ("answered", query(capability))
    except Exception as error:  # noqa: BLE001 (the code that queries may catch it)
        return ("raised", type(error))


_watch: Watch | None = None


@contextmanager
def watching(capability: tuple[int, int], name: str = "") -> Iterator[Watch]:
    """Answer for a target of `capability` in the block, and yield the record of the queries."""
    global _watch  # noqa: PLW0603 (a process compiles one unit at a time)
    before, _watch = _watch, Watch(capability, name)
    try:
        yield _watch
    finally:
        _watch = before


def current_watch() -> Watch | None:
    """Return the record of the current compilation; None if there is none."""
    return _watch


def whole_capability(capability: tuple[int, int]) -> tuple[int, int]:
    """Return the compute capability itself: the query of code that reads its value."""
    return capability


class Capability(tuple[int, int]):
    """A compute capability for a compiler, which records comparisons with it.

    C code such as `"sm_%d%d" % capability` reads a tuple's items without calling these methods, so only code that does
    not format capabilities may get this class. A comparison of two objects of this class is not recorded, because both
    have the target's value, or one was made outside of compilations.
    """

    __slots__ = ()

    @property
    def plain(self) -> tuple[int, int]:
        """Return the plain value, without recording a read."""
        major, minor = tuple.__iter__(self)
        return (major, minor)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Capability):
            return self.plain == other.plain
        return bool(self._record_comparison(operator.eq, other))

    def __hash__(self) -> int:
        return hash(_run(self, whole_capability))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce_ex__(self, _: Any) -> Any:
        return (tuple, (_run(self, whole_capability),))

    def _record_comparison(self, comparison: Callable[[Any, Any], Any], other: Any) -> Any:
        return _run(self, partial(_compare, comparison, other))


def _compare(comparison: Callable[[Any, Any], Any], other: Any, capability: tuple[int, int]) -> Any:
    return comparison(capability, other)


def _run(capability: Capability, query: Query) -> Any:
    # A capability that was made outside of compilations, while a compiler's modules were imported, uses its own value.
    if _watch is None or capability.plain != _watch.capability:
        return query(capability.plain)
    return _watch.run(query)


def _comparison_method(comparison: Callable[[Any, Any], Any]) -> Any:
    return lambda self, other: bool(self._record_comparison(comparison, other))


for _operator in (operator.lt, operator.le, operator.gt, operator.ge):
    setattr(Capability, f"__{_operator.__name__}__", _comparison_method(_operator))


def _recording_method(name: str) -> Any:
    def method(self: Capability, *args: Any) -> Any:
        return getattr(_run(self, whole_capability), name)(*args)

    return method


for _name in (
    *("__getitem__", "__iter__", "__contains__", "__repr__", "__str__", "__format__"),
    *("__add__", "__mul__", "__rmul__", "__getnewargs__", "count", "index"),
):
    setattr(Capability, _name, _recording_method(_name))
