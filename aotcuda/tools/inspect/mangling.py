"""Demangle C++ names.

The C++ library's demangler takes names as they come: one of 300 characters can represent a text of gigabytes. So it
runs in a process of its own, with limits of time and memory; this file is that process's program, too.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 4096
"""Longer names, mangled or not, stay mangled."""

_SECONDS = 1
_MEMORY = 256 << 20


def demangled(symbols: Iterable[str]) -> dict[str, str]:
    """Return the C++ names of mangled symbols: `scale(float*, int)` for `_Z5scalePfi`."""
    mangled = [name for name in dict.fromkeys(symbols) if name.startswith("_Z") and _is_plain(name)]
    mangled.sort(key=lambda name: (name.count("S"), len(name)))  # what may take too much comes last
    if not mangled:
        return {}
    try:
        found = subprocess.run(
            [sys.executable, "-P", __file__],
            input="\n".join(mangled).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=10 * _SECONDS,  # of a machine that is busy: its limit is one of processor time
            check=False,
        ).stdout
    except OSError:
        return {}
    except subprocess.TimeoutExpired as error:
        found = error.stdout or b""
    # What it had found when a name took too much is worth having; a line that it could not finish is not.
    lines = found.decode(errors="replace").split("\n")[:-1]
    return {name: line for name, line in zip(mangled, lines, strict=False) if line}


def _is_plain(name: str) -> bool:
    return len(name) <= _LONGEST and name.isascii() and name.isprintable()


def _main() -> None:
    """Print a line for each name on standard input, an empty one if it cannot be demangled."""
    import cxxfilt  # noqa: PLC0415 (an extra; it looks for the C++ library, which takes 50 ms)

    _limit()
    for name in sys.stdin.read().split("\n"):
        try:
            found = cxxfilt.demangle(name)
        except (cxxfilt.Error, UnicodeDecodeError, MemoryError):
            found = name
        sys.stdout.write((found if found != name and len(found) <= _LONGEST and "\n" not in found else "") + "\n")
        sys.stdout.flush()


def _limit() -> None:
    try:
        import resource  # noqa: PLC0415 (Windows has none)
    except ImportError:
        return
    limits = ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CPU, _SECONDS), (resource.RLIMIT_CORE, 0))
    for which, most in limits:
        soft, hard = resource.getrlimit(which)
        resource.setrlimit(which, (min(limit for limit in (most, soft, hard) if limit >= 0), hard))


if __name__ == "__main__":
    _main()
