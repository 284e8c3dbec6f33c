"""What compiled functions need beside their own code: files and objects to link, their callbacks, foreign functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_cuda_mlir.numba_cuda.core import config

from aotcuda.builder.frontends.numba import link_items
from aotcuda.builder.frontends.numba.link_items import Needs
from aotcuda.builder.frontends.numba_cuda_mlir import llvm_ir

if TYPE_CHECKING:
    from collections.abc import Iterable


# The library behind grid synchronisation; `items.GRID_GROUP` takes its place.
_DEVICE_RUNTIME = "cudadevrt"


def needs(given: Iterable[Any], text: str, root: str, *, cooperative: bool) -> Needs:
    """What a unit needs that reached the link items `given`, and that is `text` in LLVM IR.

    Raises:
        CompileError: An item cannot be linked.
        SourceError: A callback cannot be found by name.
    """
    found = [item for item in given if not (isinstance(item, str) and _DEVICE_RUNTIME in Path(item).name)]
    inputs = [link_items.link_input(item, Path(root)) for item in found]
    if cooperative:
        inputs.append(link_items.GRID_GROUP)
    callbacks = [named for item in found for named in link_items.callbacks(item)]
    return Needs(inputs=tuple(inputs), callbacks=tuple(callbacks), externals=llvm_ir.externals(text))


def include_dirs() -> list[str]:
    """Folders for CUDA C++ sources beside the toolkit's: the extra ones that the compiler is told of."""
    extra = getattr(config, "CUDA_NVRTC_EXTRA_SEARCH_PATHS", "") or ""
    return [path for path in extra.split(":") if path]
