"""The run time: load -> choose -> select -> launch, with the standard library alone; docs/design.md draws the ways.

An import with `load = "first-use"` reads `module` alone; other modules are imported where they are first needed.
"""

# module              what a generated module calls: `load`, and `Module` with what it exports
# module_registry     `aotcuda.load(name)`: modules by their names; of a tree that was never built, made from it
# module_attributes   what a module tells of itself: what its GPUs take, and why
# kernel              what users index and call: `kernel[grid, block](...)`; for_all: `kernel.forall(n)(...)`
# launcher            a kernel with its configuration; stream_objects: what keeps a stream besides
# general_path        one launch, from the arguments to the driver; specialize: what the fast path is taught of it
# launch_problems     what stands against a launch, and what is said of one that has failed
# config_key          the key of a launcher: the configuration as it was written
# launch_config       grid, block, stream and shared memory: as written, as allowed, as the driver takes them
# kernel_attributes   what the driver and the disassembler tell of a kernel; help_text: what `help` shows
# framework_checks    checks of a kernel that is handed to another library; xla_call: launches of XLA's programs
# device_function     exported device functions, for kernels of Numba's compilers (`aotcuda.integrations.interop`)
# loader              which images are launched now: loading and replacing them
# kernel_table        the kernels of loaded images: overloads, and what launches have learnt of them
# image_source        where images come from: a wheel, an editable install, a source tree that was never built
# staleness           compares an editable install's images with its sources; unloading: how images leave the driver
# library             images in the driver; device_kernel: an overload on a GPU
# driver              libcuda; driver_errors: what its errors mean
# streams             streams of every library, their order; `AOTCUDA_SYNCHRONIZE`: launches that wait
#
# arguments/          what an argument means, written once; the package itself: how one is read, by its type alone
#     arrays, dlpack  device arrays of every library; array_view: what any of them may say of itself
#     scalars         which Python values count as scalars, and which parameters take them; other_values: all else
#     parameter_kinds what each kind of parameter takes; other_kinds: those beside numbers and arrays
#     overloads       which overload the arguments select; argument_layout: how they lie in its parameter block
#     signature       the signature that arguments ask for, which the JIT fallback compiles
#     host_arrays     `AOTCUDA_HOST_ARRAYS`: copies for one launch
#     errors          why no overload fits; parameter_errors: of one parameter; type_names: what types are called
# fast/               the fast path in C; specializations: what it is told
# foreign_names       the private names of other libraries that launches use
# images/             what only some images need: choice: which one a GPU takes, and why; subset; callbacks;
#                     debug_exceptions: what debug kernels raise
# jit/                fallback: compiled images, and what could not be compiled; compile: from the cache or the builder;
#                     overloads: kernels for more signatures or GPUs; build_inputs: what to build from;
#                     cache_key: names entries and decides whether one is current; cache, cache_lock

from __future__ import annotations

import os
from _thread import RLock
from weakref import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_locks: set[ref[RLock]] = set()


def new_lock() -> RLock:
    """Return a reentrant lock that is free in a forked process, whichever thread of the parent held it."""
    lock = RLock()
    if not _locks and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_renew_locks)
    _locks.add(ref(lock, _locks.discard))
    return lock


def module_of(kind: type) -> str:
    """Return the name of a class's module; empty if the class has none, or its `__module__` is no string."""
    found: object = getattr(kind, "__module__", "")
    return found if isinstance(found, str) else ""


def integer(value: object) -> int | None:
    """Return an integer of any type as Python's int; None for other objects, and where `__index__` raises."""
    from operator import index  # noqa: PLC0415 (an import of a package needs none)

    try:
        return int.__index__(index(value))  # type: ignore[arg-type]  # which is to be found out
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 (arrays have `__index__`, and raise; so may anybody's)
        return None


def _renew_locks() -> None:
    for each in list(_locks):
        lock: Any = each()
        if lock is not None and not lock._is_owned():  # noqa: SLF001 (as logging and threading do it)
            lock._at_fork_reinit()  # noqa: SLF001
