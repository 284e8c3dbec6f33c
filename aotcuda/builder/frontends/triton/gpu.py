"""Stand in for Triton's GPU driver during a build, for a GPU of the target.

Sources query Triton's active driver during their import, and kernels query it by `tl.target_info` during their
compilation. The build machine may have no driver, or a driver for another GPU, so a stand-in answers. Functions of the
driver that launch or measure raise the errors that Triton raises on a machine without a GPU.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from aotcuda.builder.frontends import gpu_queries
from aotcuda.builder.frontends.gpu_queries import MISSING, gpu
from aotcuda.stand_ins import triton as stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aotcuda.arch import Target
    from aotcuda.builder.frontends.protocol import GpuQuery

gpu_queries.is_caller(__file__)


@contextmanager
def importing(target: Target, triton_target: object, root: str) -> Iterator[dict[GpuQuery, None]]:
    """Answer for a GPU of a target in the block, and yield the recorded queries in order and without duplicates.

    Args:
        target: The target.
        triton_target: The `GPUTarget` that Triton uses for the target.
        root: The project's folder. The places of queries are relative to it.
    """
    with gpu.importing(target.capability, root, ("triton",)) as queries, _active(triton_target):
        yield queries


@contextmanager
def compiling(target: Target, triton_target: object) -> Iterator[None]:
    """Answer the queries of a kernel that this block compiles for a target, and record none of them."""
    with gpu.answering(target.capability), _active(triton_target):
        yield


@contextmanager
def _active(triton_target: object) -> Iterator[None]:
    import triton  # noqa: PLC0415 (imported at the first use)

    config = triton.runtime.driver
    previous = getattr(config, "_active", None)
    config.set_active(_Driver(triton_target))
    try:
        yield
    finally:
        config.set_active(previous)


class _Driver(stand_in.Driver):
    """Stand in for the driver of a GPU that launches nothing."""

    def __init__(self, triton_target: object) -> None:
        super().__init__(gpu, triton_target)
        self.utils = _Utilities(gpu)

    def __getattr__(self, name: str) -> NoReturn:
        raise _query_error(name)


class _Utilities(stand_in.Utilities):
    def __getattr__(self, name: str) -> NoReturn:
        raise _query_error(name)


def _query_error(name: str) -> Exception:
    if name.startswith("_"):
        return AttributeError(name)
    gpu.answered(f"Triton's {name}", MISSING, is_error=True)
    return RuntimeError(f"{name}: {MISSING}")
