"""What the run time uses of ctypes, made of its C half alone, where a program has not imported ctypes itself.

The package `ctypes` makes thirty types as it is imported, and looks at the byte order and at Python's own library: more
than a millisecond of a first launch. What calls the driver is in its C half, `_ctypes`, and the few types that the
driver's functions take are one line each. `aotcuda.runtime` decides which of the two it is. Types of the two do not
mix: arguments of users are compared with those of ctypes.

Raises:
    ImportError: The C half has other names than those of CPython 3.11 to 3.15.
"""

from __future__ import annotations

# ruff: noqa: PLC0414 (a name imported `as` itself is one that this module hands on, to mypy)
from _ctypes import (  # type: ignore[attr-defined, unused-ignore]
    FUNCFLAG_CDECL,
    CFuncPtr,
    _SimpleCData,
    dlopen,
    sizeof,
)
from _ctypes import Array as Array
from _ctypes import Structure as Structure
from _ctypes import addressof as addressof
from _ctypes import byref as byref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _simple(name: str, code: str) -> Any:
    kind: Any = type(_SimpleCData)
    return kind(name, (_SimpleCData,), {"_type_": code, "__module__": __name__})


c_int = _simple("c_int", "i")
c_size_t = c_uint64 = _simple("c_ulong", "L")
c_void_p = _simple("c_void_p", "P")
if not sizeof(c_uint64) == sizeof(c_void_p) == 8:
    message = "a system with other sizes than Linux's"
    raise ImportError(message)


_RARE = {"c_char": "c", "c_char_p": "z", "c_uint": "I"}
"""Types that a first launch needs none of, with their codes."""

if TYPE_CHECKING:
    c_char: Any
    c_char_p: Any
    c_uint: Any


def __getattr__(name: str) -> Any:
    if name not in _RARE:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    if name in globals():
        return globals()[name]
    # Of threads that come here at once, all take what the first has made.
    return globals().setdefault(name, _simple(name, _RARE[name]))


class _Function(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL
    _restype_ = c_int


class CDLL:
    """As ctypes.CDLL: a shared library, with its functions as attributes; of None those that the process has."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._handle = dlopen(name, 0)  # type: ignore[arg-type, unused-ignore]  # RTLD_LOCAL; None is for what is there

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        function: Any = _Function((name, self))  # type: ignore[arg-type]
        function.__name__ = name
        setattr(self, name, function)
        return function


def create_string_buffer(size: int) -> Any:
    """As ctypes.create_string_buffer, of a size."""
    return (__getattr__("c_char") * size)()
