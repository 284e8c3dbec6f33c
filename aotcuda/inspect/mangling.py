"""C++ names as people write them."""

from __future__ import annotations


def demangled(symbol: str) -> str | None:
    """`scale(float*, int)` for `_Z5scalePfi`; None for a name that is not mangled, or where nothing can tell."""
    if not symbol.startswith("_Z"):
        return None
    try:
        import cxxfilt  # noqa: PLC0415 (only mangled names need it; it looks for the C++ library, which takes 50 ms)

        found: str = cxxfilt.demangle(symbol)
    except ImportError:
        return None
    except cxxfilt.Error:  # no C++ library on this machine, or another mangling
        return None
    return found
