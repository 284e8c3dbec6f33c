"""Answer the GPU queries of sources and kernels to Triton for a GPU of the target.

Sources query Triton's active driver during their import, and kernels by `tl.target_info` during their compilation. A
build has no driver, or the driver of the machine's GPU, so a stand-in answers. Answers that depend on the compute
capability are marked, and the build imports the sources once for each capability. Other queries are refused, as Triton
refuses them on a machine without a GPU.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from aotcuda.builder.frontends.protocol import Question
from aotcuda.builder.frontends.triton import torch_questions
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
def importing(target: Target, gpu: object, root: str) -> Iterator[dict[Question, None]]:
    """Answer for a GPU of a target in the block; yield the queries.

    Args:
        target: The target.
        gpu: Its `GPUTarget`.
        root: The project's folder; places in reports are relative to it.
    """
    import triton  # noqa: PLC0415 (as late as in every front end)

    questions: dict[Question, None] = {}
    package = f"{Path(triton.__file__).parent}/"

    def note(asked: str, answer: object, **kind: bool) -> None:
        question = Question(place=_place(package, root), asked=asked, answer=str(answer), **kind)
        questions.setdefault(question)

    def refusal(name: str) -> Exception:
        return _refusal(name, note, "PyTorch's")

    with _active(_Driver(target, gpu, note)), torch_questions.answering(target, note, refusal):
        yield questions


def compiling(target: Target, gpu: object) -> AbstractContextManager[None]:
    """Answer the queries of a kernel that is compiled for one target in this block, without recording them."""
    return _active(_Driver(target, gpu, lambda *_, **__: None))


@contextmanager
def _active(driver: _Driver) -> Iterator[None]:
    import triton  # noqa: PLC0415 (as late as in every front end)

    config = triton.runtime.driver
    before = getattr(config, "_active", None)
    config.set_active(driver)
    try:
        yield
    finally:
        config.set_active(before)


class _Driver:
    """Stand for the driver of a GPU of which only the compute capability is known."""

    def __init__(self, target: Target, gpu: object, note: Any) -> None:
        self._target = target
        self._gpu = gpu
        self._note = note
        self.utils = _Utilities(target, note)

    def get_current_target(self) -> object:
        self._note("Triton's current target", f"sm_{self._target.number}", depends=True)
        return self._gpu

    def get_current_device(self) -> int:
        self._note("Triton's current device", 0, mere=True)
        return 0

    def __getattr__(self, name: str) -> NoReturn:
        raise _refusal(name, self._note)


class _Utilities:
    def __init__(self, target: Target, note: Any) -> None:
        self._target = target
        self._note = note

    def get_device_properties(self, device: int) -> _Properties:
        del device
        return _Properties(self._target, self._note)

    def __getattr__(self, name: str) -> NoReturn:
        raise _refusal(name, self._note)


class _Properties:
    """Stand for the dictionary of properties of a GPU."""

    def __init__(self, target: Target, note: Any) -> None:
        self._target = target
        self._note = note

    def __getitem__(self, name: str) -> int:
        if name in _SHARED_BY_ALL:
            self._note(name, _SHARED_BY_ALL[name])
            return _SHARED_BY_ALL[name]
        row = BY_NUMBER.get(self._target.capability)
        if name == "max_shared_mem" and row is not None and row.limits is not None:
            found = row.limits.shared_block
            self._note(name, found, depends=True)
            return found
        raise _refusal(name, self._note)

    def get(self, name: str, default: object = None) -> int:
        """Return a property; an unknown one has no default and is refused."""
        del default
        return self[name]


def _refusal(name: str, note: Any, whose: str = "Triton's") -> Exception:
    if name.startswith("__"):
        return AttributeError(name)
    note(f"{whose} {name}", MISSING, refused=True)
    return RuntimeError(f"{name}: {MISSING}")


def _place(package: str, root: str) -> str:
    """Return file and line of the query, outside of Triton."""
    frame = sys._getframe(2)  # noqa: SLF001 (its documented use)
    own = (package, __file__, torch_questions.__file__, "<frozen ")
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    file = frame.f_code.co_filename
    inside = os.path.relpath(file, root) if file.startswith(f"{root}/") else file
    return f"{inside}:{frame.f_lineno}"
