"""Read the index of a pack, `pack.json`: the kernels of other packages that it holds, each with its digest."""

from __future__ import annotations

import json
import os
import sys
from typing import NamedTuple

from ....common import data_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Packed(NamedTuple):
    """One kernel of a pack.

    Attributes:
        pack: The pack.
        folder: The data folder of `module`.
        module: The pack's module that holds it.
        name: Its name in `module`.
        source: The module that defines it.
        path: The attributes that lead from `source` to it.
        digest: Its digest; see `aotcuda.common.kernel_digest`.
        distribution, version: The package of `source`.
        triton: The release of Triton that compiled it.
    """

    pack: str
    folder: str
    module: str
    name: str
    source: str
    path: str
    digest: str
    distribution: str
    version: str
    triton: str


class Served(NamedTuple):
    """An adopted kernel: the objects of its decorators, the outermost first, and its entries in packs."""

    layers: list[Any]
    packed: list[Packed]


_used: set[str] = set()
"""The indexes that were read."""


def read(name: str) -> list[Packed]:
    """Return the kernels of an imported pack; none, with a warning, if its index is damaged."""
    kernels: list[Packed] = []
    for folder in getattr(sys.modules[name], "__path__", ()):
        path = os.path.join(folder, f"__init__{data_folder.FOLDER_SUFFIX}", data_folder.PACK)
        if path in _used or not os.path.isfile(path):
            continue
        _used.add(path)
        try:
            with open(path, encoding="utf-8") as file:
                kernels += _index(name, folder, json.load(file))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            _warn(f"{path} was altered, so Triton compiles its kernels; install the pack again")
    return kernels


def _index(name: str, folder: str, index: Any) -> list[Packed]:
    """Return the kernels of an index; a damaged index raises errors of several classes."""
    if index["format"] != "aotcuda pack" or index["version"] != 1:
        raise ValueError
    kernels = []
    for module in index["modules"]:
        last = module["module"].rpartition(".")[2]
        versions = [module[key] for key in ("distribution", "version", "triton")]
        for kernel, (path, digest) in module["kernels"].items():
            data = os.path.join(folder, last + data_folder.FOLDER_SUFFIX)
            kernels.append(Packed(name, data, module["module"], kernel, module["source"], path, digest, *versions))
    if not all(isinstance(value, str) for packed in kernels for value in packed):
        raise TypeError
    return kernels


def _warn(text: str) -> None:
    from ....runtime.jit.compile import warn  # noqa: PLC0415 (few packs are damaged)

    warn(text)
