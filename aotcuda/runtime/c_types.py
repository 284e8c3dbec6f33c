"""What the run time uses of ctypes, without the rest of it."""

# The package `ctypes` makes thirty types as it is imported, and looks at the byte order and at Python's own library:
# more than a millisecond of a first launch. What calls the driver is in its C half, `_ctypes`, and the few types that
# the driver's functions take are one line each. Where a program has imported ctypes already, or the C half has other
# names, it is ctypes itself. Types of the two do not mix: arguments of users are compared with those of ctypes.

# ruff: noqa: PLC0414 (a name imported `as` itself is one that this module hands on, to mypy)

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ctypes import CDLL as CDLL
    from ctypes import POINTER as POINTER
    from ctypes import Array as Array
    from ctypes import Structure as Structure
    from ctypes import addressof as addressof
    from ctypes import byref as byref
    from ctypes import c_char as c_char
    from ctypes import c_char_p as c_char_p
    from ctypes import c_int as c_int
    from ctypes import c_size_t as c_size_t
    from ctypes import c_uint as c_uint
    from ctypes import c_uint64 as c_uint64
    from ctypes import c_void_p as c_void_p
    from ctypes import create_string_buffer as create_string_buffer
    from ctypes import pointer as pointer
    from typing import Any

_NAMES = (
    "CDLL",
    "POINTER",
    "Array",
    "Structure",
    "addressof",
    "byref",
    "c_char",
    "c_char_p",
    "c_int",
    "c_size_t",
    "c_uint",
    "c_uint64",
    "c_void_p",
    "create_string_buffer",
    "pointer",
)


def _from_c() -> dict[str, Any]:
    """These names, made from `_ctypes`.

    Raises:
        ImportError: It has other names, as those of later Pythons may.
    """
    from _ctypes import (  # type: ignore[attr-defined, unused-ignore]  # noqa: PLC0415 (not where ctypes is there)
        FUNCFLAG_CDECL,
        POINTER,
        Array,
        CFuncPtr,
        Structure,
        _SimpleCData,
        addressof,
        byref,
        dlopen,
        pointer,
        sizeof,
    )

    def simple(name: str, code: str) -> Any:
        kind: Any = type(_SimpleCData)
        return kind(name, (_SimpleCData,), {"_type_": code, "__module__": __name__})

    c_char, c_int, c_ulong = simple("c_char", "c"), simple("c_int", "i"), simple("c_ulong", "L")
    if sizeof(c_ulong) != sizeof(c_pointer := simple("c_void_p", "P")) or sizeof(c_pointer) != 8:
        message = "a system with other sizes than Linux's"
        raise ImportError(message)

    class Function(CFuncPtr):
        _flags_ = FUNCFLAG_CDECL
        _restype_ = c_int

    class CDLL:
        """As ctypes.CDLL: a shared library, with its functions as attributes."""

        def __init__(self, name: str) -> None:
            self._name = name
            self._handle = dlopen(name, 0)  # RTLD_LOCAL

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") and name.endswith("__"):
                raise AttributeError(name)
            function: Any = Function((name, self))  # type: ignore[arg-type]
            function.__name__ = name
            setattr(self, name, function)
            return function

    def create_string_buffer(size: int) -> Any:
        return (c_char * size)()

    return {
        "CDLL": CDLL,
        "POINTER": POINTER,
        "Array": Array,
        "Structure": Structure,
        "addressof": addressof,
        "byref": byref,
        "c_char": c_char,
        "c_char_p": simple("c_char_p", "z"),
        "c_int": c_int,
        "c_size_t": c_ulong,
        "c_uint": simple("c_uint", "I"),
        "c_uint64": c_ulong,
        "c_void_p": c_pointer,
        "create_string_buffer": create_string_buffer,
        "pointer": pointer,
    }


def _found() -> dict[str, Any]:
    if "ctypes" not in sys.modules:
        try:
            return _from_c()
        except (ImportError, TypeError):
            pass
    import ctypes  # noqa: PLC0415 (see above)

    return {name: getattr(ctypes, name) for name in _NAMES}


globals().update(_found())
