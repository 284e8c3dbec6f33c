"""Answer the GPU queries of sources while a build imports them, for a GPU of the target, and record the queries.

The answers are those of `aotcuda record --dry` for the GPU of the target: `aotcuda.stand_ins` gives both. A front end
replaces its compiler's driver; libraries that a source imports are replaced here. If an answer depends on
the target, its record says so, and the build imports the sources once for each compute capability.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import stand_ins
from aotcuda.builder.frontends.protocol import GpuQuery
from aotcuda.common import after_import
from aotcuda.gpus import FIRST_CURRENT, describe
from aotcuda.stand_ins import cupy
from aotcuda.stand_ins.gpu import Gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

MISSING = "this needs a GPU, and a build has none; do it in a function that is called later"
_STAND_INS = (*(f"{folder}/" for folder in stand_ins.__path__), f"{cupy.FOLDER}/")


class TargetGpu(Gpu):
    """The GPU of the target, which records the queries of sources."""

    def __init__(self) -> None:
        super().__init__(describe(FIRST_CURRENT))
        self._queries: dict[GpuQuery, None] | None = None
        self._root = ""
        self._compilers: tuple[str, ...] = ()

    @property
    def is_importing(self) -> bool:
        """Return True while sources are imported."""
        return self._queries is not None

    @contextmanager
    def importing(
        self, capability: tuple[int, int], root: str, compilers: Iterable[str] = ()
    ) -> Iterator[dict[GpuQuery, None]]:
        """Answer for a GPU of `capability` in the block, and yield the recorded queries in order, without duplicates.

        Args:
            capability: The compute capability.
            root: The project's folder. The places of queries are relative to it.
            compilers: Packages; a query of their code is recorded at the line of the source that called it.
        """
        queries: dict[GpuQuery, None] = {}
        with self.answering(capability), _with_libraries():
            self._queries, self._root = queries, root
            folders = [folder for name in compilers for folder in getattr(sys.modules.get(name), "__path__", ())]
            self._compilers = tuple(f"{folder}/" for folder in folders)
            yield queries

    @contextmanager
    def answering(self, capability: tuple[int, int]) -> Iterator[None]:
        """Answer for a GPU of `capability` in the block, and record no queries."""
        before = dict(self.__dict__)
        Gpu.__init__(self, describe(capability))
        self._queries = None
        try:
            yield
        finally:
            self.__dict__.update(before)

    def answered(
        self,
        query: str,
        answer: Any,
        *,
        depends_on_target: bool = False,
        presence: bool = False,
        is_error: bool = False,
    ) -> Any:
        """Record a query of the imported code, unless a library makes it itself; return the answer."""
        place = self._place() if self._queries is not None else None
        if place is not None and self._queries is not None:
            found = GpuQuery(
                place=place,
                query=query,
                answer=str(answer),
                depends_on_target=depends_on_target,
                is_presence_only=presence,
                is_error=is_error,
            )
            self._queries.setdefault(found)
        return answer

    def _place(self) -> str | None:
        """Return file and line of the code that queries; None for a query of a compiler or of PyTorch itself."""
        torch = getattr(sys.modules.get("torch"), "__file__", None)
        of_torch = f"{Path(torch).parent}/" if torch else None
        frame = sys._getframe()  # noqa: SLF001 (its documented use)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith((__file__, "<frozen ", *_STAND_INS, *_OWN_FILES)) or file.endswith("/contextlib.py"):
                pass
            elif of_torch and file.startswith(of_torch):
                return None
            elif not file.startswith(self._compilers or ("\0",)):
                inside = os.path.relpath(file, self._root) if file.startswith(f"{self._root}/") else file
                return f"{inside}:{frame.f_lineno}"
            if frame.f_back is None:
                return None
            frame = frame.f_back
        return None


_OWN_FILES: list[str] = []
"""The files of front ends that call `TargetGpu.answered`."""

gpu = TargetGpu()
"""The GPU that sources see. There is one in a process, since PyTorch is replaced for the whole process."""


def is_caller(file: str) -> None:
    """Exempt a front end's file from the places of queries."""
    _OWN_FILES.append(file)


def _replace_cupy(module: ModuleType) -> None:
    if module.__spec__ is not None and str(module.__spec__.origin).startswith(_STAND_INS):
        module.__dict__["cuda"]._Chosen.gpu = gpu  # noqa: SLF001 (the stand-in for CuPy)


def _replace_pytorch(module: ModuleType) -> None:
    from aotcuda.stand_ins import pytorch  # noqa: PLC0415 (most sources import no PyTorch)

    pytorch.install_once(module, gpu)


def _replace_cuda_core(module: ModuleType) -> None:
    from aotcuda.stand_ins import cuda_core  # noqa: PLC0415 (most sources import no cuda.core)

    cuda_core.install(module, gpu)


_INSTALL: dict[str, Callable[[ModuleType], None]] = {
    "cuda.core": _replace_cuda_core,
    "cupy": _replace_cupy,
    "torch": _replace_pytorch,
}
"""Functions that replace the queries of libraries, for the rest of the process."""


@contextmanager
def _with_libraries() -> Iterator[None]:
    """Replace what PyTorch, CuPy and cuda.core query as soon as the block imports them."""
    for name in _INSTALL.keys() & sys.modules.keys():
        _INSTALL[name](sys.modules[name])
    finders: list[Any] = [after_import.Finder(_INSTALL.get), cupy.Finder()]
    sys.meta_path[:0] = finders
    try:
        yield
    finally:
        for finder in finders:
            sys.meta_path.remove(finder)
