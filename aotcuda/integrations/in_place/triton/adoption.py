"""Adopt the kernels that packs have code for, when both the pack and the module of the kernels are imported.

The first launch of a kernel decides if the pack serves it (`packs`).
"""

from __future__ import annotations

import functools
import sys

from ....common import after_import, object_path
from .. import sources
from . import pack_index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


_packed: dict[str, dict[str, list[pack_index.Packed]]] = {}
"""The kernels of imported packs, by module and path."""


def use(name: str) -> None:
    """Implement `aotcuda.packs.use`."""
    if sources.is_switched_off():
        return
    for packed in pack_index.read(name):
        _packed.setdefault(packed.source, {}).setdefault(packed.path, []).append(packed)
    for source in list(_packed):
        after_import.call(source, functools.partial(adopt, source))


def packaged_kernels() -> dict[str, dict[str, list[pack_index.Packed]]]:
    """Return the kernels of packs by module and path."""
    return _packed


def adopt(source: str, module: ModuleType) -> None:
    """Adopt the kernels of a module for which packs have code; `source` is the name of the module."""
    if "triton" not in sys.modules:
        return
    from . import bases, functions, private_parts  # noqa: PLC0415 (they import Triton)

    if not private_parts.are_known() or bases.runtime.interpret:
        return
    functions.adopt_autotuners()
    for path, packed in _packed[source].items():
        layers = functions.adopt_existing(object_path.walk(module, object_path.split(path)))
        if layers:
            layers[-1].serve(pack_index.Served(layers, packed))
