"""Demangle C++ names.

The C++ library's demangler has no limits: a name of 300 characters can represent a text of gigabytes. It therefore runs
in a process of its own, with limits of time and memory. This file is also the program of that process.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 4096
"""The most characters of a mangled or demangled name. Longer names stay mangled."""

_SECONDS = 1
_MEMORY = 256 << 20


def demangle(symbols: Iterable[str]) -> dict[str, str]:
    """Return the C++ names of mangled symbols: `scale(float*, int)` for `_Z5scalePfi`."""
    mangled = [name for name in dict.fromkeys(symbols) if name.startswith("_Z") and _is_plain(name)]
    mangled.sort(key=lambda name: (name.count("S"), len(name)))  # costly names come last
    if not mangled:
        return {}
    try:
        output = subprocess.run(
            [sys.executable, "-P", __file__],
            input="\n".join(mangled).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=10 * _SECONDS,  # for a busy machine; the process limits its processor time
            check=False,
        ).stdout
    except OSError:
        return {}
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    # If a name was too costly, use the complete lines before it.
    lines = output.decode(errors="replace").split("\n")[:-1]
    return {name: line for name, line in zip(mangled, lines, strict=False) if line}


def _is_plain(name: str) -> bool:
    return len(name) <= _LONGEST and name.isascii() and name.isprintable()


def _main() -> None:
    """Print a line for each name on standard input, an empty one if it cannot be demangled."""
    import cxxfilt  # noqa: PLC0415 (an extra; it looks for the C++ library, which takes 50 ms)

    _limit()
    for name in sys.stdin.read().split("\n"):
        try:
            text = cxxfilt.demangle(name)
        except (cxxfilt.Error, UnicodeDecodeError, MemoryError):
            text = name
        sys.stdout.write((text if text != name and len(text) <= _LONGEST and "\n" not in text else "") + "\n")
        sys.stdout.flush()


def _limit() -> None:
    try:
        import resource  # noqa: PLC0415 (Windows has none)
    except ImportError:
        return
    limits = ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CPU, _SECONDS), (resource.RLIMIT_CORE, 0))
    for kind, most in limits:
        soft, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (min(limit for limit in (most, soft, hard) if limit >= 0), hard))


if __name__ == "__main__":
    _main()
