"""The run time: load -> choose -> select -> launch, with the standard library alone; see docs/design.md.

An import with `load = "first-use"` imports `module` alone; other modules are imported when they are first needed.
"""

# module              `load` and `Module`, which a generated module uses
# module_registry     `aotcuda.load(name)`: modules by name, also in a source tree that was never built
# kernel              `kernel[grid, block](...)`
# symbol              device variables
# driver              libcuda through ctypes; driver_errors: its errors as exceptions
# streams             streams of every library, and their order
# device_function     exported device functions, for kernels of Numba's compilers
# reports/            answers to users: registers and machine code of a kernel, images of a module, documentation
# launch/             one launch: configuration, arguments, overload, the C extension
# images/             images: loads and unloads the images of a module, and waits for launches; source: where they come
#                     from (a wheel, an editable install, a source tree that was never built); choice: the image for a
#                     GPU, with the reason; library: images in the driver; device_kernel: a kernel on one GPU;
#                     kernel_table: overloads, specializations and launchers as long as the same images are loaded;
#                     callbacks; debug_exceptions; parts: split wheels; subset: part of a fatbin
# jit/                fallback: images that this machine compiled; compile: from the cache or the builder;
#                     overloads: kernels for more signatures or GPUs; build_inputs: the inputs of a build;
#                     cache_key: names cache entries, and checks if they are current; cache, cache_lock

from __future__ import annotations

import os
import sys
from _thread import RLock
from weakref import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .. import errors as errors
else:

    class _Errors:
        """The module of errors, imported at the first use: most launches raise none, and it makes thirty classes."""

        def __getattr__(self, name: str) -> object:
            with importing:
                from .. import errors  # noqa: PLC0415 (see above)

            return getattr(errors, name)

    errors = _Errors()

_locks: set[ref[RLock]] = set()

importing = RLock()
"""The lock for imports within functions that a launch calls before it finds that the process was forked.

A fork waits until it is free. In the child, an import that another thread of the parent had begun would never end.
"""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release)


def new_lock() -> RLock:
    """Return a reentrant lock that is free in a forked process, even if another thread of the parent held it."""
    lock = RLock()
    if not _locks and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_renew_locks)
    _locks.add(ref(lock, _locks.discard))
    return lock


def imported(name: str) -> Any:
    """Return the module `name` of this package if the program has imported it, else None."""
    return sys.modules.get(f"{__name__}.{name}")


def module_of(kind: type) -> str:
    """Return the name of a class's module; empty if the class has none, or if its `__module__` is no string."""
    name: object = getattr(kind, "__module__", "")
    return name if isinstance(name, str) else ""


def integer(value: object) -> int | None:
    """Return an integer of any type as Python's int; None for other objects, and where `__index__` raises."""
    from operator import index  # noqa: PLC0415 (the import of a package does not need it)

    try:
        return int.__index__(index(value))  # type: ignore[arg-type]  # any object is tried
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 (`__index__` of an array raises, and any class may define it)
        return None


def _renew_locks() -> None:
    for reference in list(_locks):
        lock: Any = reference()
        if lock is not None and not lock._is_owned():  # noqa: SLF001 (as logging and threading do it)
            lock._at_fork_reinit()  # noqa: SLF001
