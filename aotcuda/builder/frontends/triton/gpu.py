"""Stand in for Triton's GPU driver during a build, for a GPU of the target.

Sources query Triton's active driver during their import, and kernels query it by `tl.target_info` during their
compilation. The build machine may have no driver, or a driver for another GPU, so a stand-in answers. If an answer
depends on the compute capability, its record says so, and the build imports the sources once for each capability. Other
queries raise the errors that Triton raises on a machine without a GPU.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from aotcuda.builder.frontends.protocol import GpuQuery
from aotcuda.builder.frontends.triton import torch_queries
from aotcuda.gpus import BY_NUMBER, EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from aotcuda.arch import Target

MISSING = "this needs a GPU, and a build has none; do it in a function that is called later"

_SHARED_BY_ALL = {
    "warpSize": EVERYWHERE["WARP_SIZE"],
    "max_num_regs": EVERYWHERE["MAX_REGISTERS_PER_MULTIPROCESSOR"],
}
"""Limits that all GPUs share, by Triton's names."""


@contextmanager
def importing(target: Target, gpu: object, root: str) -> Iterator[dict[GpuQuery, None]]:
    """Answer for a GPU of a target in the block, and yield the recorded queries in order and without duplicates.

    Args:
        target: The target.
        gpu: The `GPUTarget` that Triton uses for the target.
        root: The project's folder. The places of queries are relative to it.
    """
    import triton  # noqa: PLC0415 (imported at the first use)

    queries: dict[GpuQuery, None] = {}
    package = f"{Path(triton.__file__).parent}/"

    def record(query: str, answer: object, **properties: bool) -> None:
        place = _querying_line(package, root)
        queries.setdefault(GpuQuery(place=place, query=query, answer=str(answer), **properties))

    def torch_error(name: str) -> Exception:
        return _query_error(name, record, "PyTorch's")

    with _active(_Driver(target, gpu, record)), torch_queries.answering(target, record, torch_error):
        yield queries


def compiling(target: Target, gpu: object) -> AbstractContextManager[None]:
    """Answer the queries of a kernel that this block compiles for a target, and record none of them."""
    return _active(_Driver(target, gpu, lambda *_, **__: None))


@contextmanager
def _active(driver: _Driver) -> Iterator[None]:
    import triton  # noqa: PLC0415 (imported at the first use)

    config = triton.runtime.driver
    previous = getattr(config, "_active", None)
    config.set_active(driver)
    try:
        yield
    finally:
        config.set_active(previous)


class _Driver:
    """Stand in for the driver of a GPU. Only the compute capability of the GPU is known."""

    def __init__(self, target: Target, gpu: object, record: Any) -> None:
        self._target = target
        self._gpu = gpu
        self._record = record
        self.utils = _Utilities(target, record)

    def get_current_target(self) -> object:
        self._record("Triton's current target", f"sm_{self._target.number}", depends_on_target=True)
        return self._gpu

    def get_current_device(self) -> int:
        self._record("Triton's current device", 0, is_presence_only=True)
        return 0

    def __getattr__(self, name: str) -> NoReturn:
        raise _query_error(name, self._record)


class _Utilities:
    def __init__(self, target: Target, record: Any) -> None:
        self._target = target
        self._record = record

    def get_device_properties(self, device: int) -> _Properties:
        del device
        return _Properties(self._target, self._record)

    def __getattr__(self, name: str) -> NoReturn:
        raise _query_error(name, self._record)


class _Properties:
    """Stand in for Triton's dictionary of the properties of a GPU."""

    def __init__(self, target: Target, record: Any) -> None:
        self._target = target
        self._record = record

    def __getitem__(self, name: str) -> int:
        if name in _SHARED_BY_ALL:
            self._record(name, _SHARED_BY_ALL[name])
            return _SHARED_BY_ALL[name]
        row = BY_NUMBER.get(self._target.capability)
        if name == "max_shared_mem" and row is not None and row.limits is not None:
            limit = row.limits.shared_block
            self._record(name, limit, depends_on_target=True)
            return limit
        raise _query_error(name, self._record)

    def get(self, name: str, default: object = None) -> int:
        """Return a property. An unknown property raises an error, even if there is a default."""
        del default
        return self[name]


def _query_error(name: str, record: Any, library: str = "Triton's") -> Exception:
    if name.startswith("__"):
        return AttributeError(name)
    record(f"{library} {name}", MISSING, is_error=True)
    return RuntimeError(f"{name}: {MISSING}")


def _querying_line(package: str, root: str) -> str:
    """Return file and line of the code that queries, which is outside of Triton and of this stand-in."""
    frame = sys._getframe()  # noqa: SLF001 (its documented use)
    skipped = (package, __file__, torch_queries.__file__, "<frozen ")
    while frame.f_back is not None and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back
    file = frame.f_code.co_filename
    inside = os.path.relpath(file, root) if file.startswith(f"{root}/") else file
    return f"{inside}:{frame.f_lineno}"
