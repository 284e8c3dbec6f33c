"""The packaged kernel of a source that is packaged in place: launches have Numba's semantics.

Numbers have the types that Numba gives them (the manifest has `exact`), a launch without a stream uses the default
stream, and NumPy's arrays are copied to the GPU and back, with Numba's warning.
"""

from __future__ import annotations

import os
import sys
import warnings

from ...errors import HostArrayWarning, RuntimeUnavailableError
from ...runtime.kernel import Kernel as PackagedBase
from ...runtime.launch.arguments import host_arrays
from ...runtime.launch.execute import Launcher
from ...runtime.launch.for_all import ForAll
from .argument_annotations import is_annotation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, SupportsIndex

    from ... import typing as types
    from ...runtime.images.images import Images
    from ...runtime.images.kernel_table import KernelTable

_WARNING = "Host array used in CUDA kernel will incur copy overhead to/from device."

_categories: dict[tuple[type[Warning], ...], type[Warning]] = {}
"""Classes of `_category`, by their base classes."""


class PackagedKernel(PackagedBase):
    """A packaged kernel whose calls have Numba's semantics."""

    def __getitem__(self, configuration: object) -> Any:
        """Return a launcher as `aotcuda.Kernel` does; without a stream it uses the default stream."""
        if isinstance(configuration, tuple) and 2 <= len(configuration) <= 4:
            grid, block, stream, shared = (*configuration, 0, 0)[:4]
            return super().__getitem__((grid, block, stream or 0, shared))
        return super().__getitem__(configuration)  # type: ignore[index]  # this raises an error with the right form

    def forall(self, n: SupportsIndex, block: int | None = None, stream: types.Stream = 0, shared: int = 0) -> ForAll:
        """Return a launcher as `aotcuda.Kernel` does; a block of 0 means the block of highest occupancy."""
        return super().forall(n, block or None, stream or 0, shared)

    def _for_all(self, n: Any, block: Any, stream: Any, shared: Any) -> ForAll:
        return _ForAll(self, self._images, n, block, stream, self._shared(shared))

    def _launcher_class(self) -> type[Launcher]:
        return _Launcher

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return _unpickle, (self.__module__, self.__name__)


class _Launcher(Launcher):
    """A launcher that copies NumPy's arrays; the fast path declines them."""

    __slots__ = ()

    def launch(self, args: tuple[object, ...]) -> None:
        """Implement Launcher.launch."""
        try:
            self._launch_as_numba(args)
        except RuntimeUnavailableError as error:
            from . import gpus  # noqa: PLC0415 (only errors come here)

            raise gpus.add_numba_class(error) from error

    def _launch_as_numba(self, args: tuple[object, ...]) -> None:
        if not any(map(_is_copied, args)):
            super().launch(args)
            return
        stream = self.stream or 0
        self._images.use(self._launch_with_copies, stream, args)

    def _launch_with_copies(self, kernel_table: KernelTable, stream: int, args: tuple[object, ...]) -> None:
        with _Copies.make(self._images, kernel_table, args, stream, self.where) as copies:
            self._launch(kernel_table, copies.args)
            copies.copy_back(stream)


class _ForAll(ForAll):
    """A launcher by number of elements that copies NumPy's arrays."""

    __slots__ = ()

    def _launch(self, kernel_table: KernelTable, args: tuple[object, ...]) -> None:
        if self._n == 0:
            return  # Numba does not check the arguments of an empty launch
        if not any(map(_is_copied, args)):
            super()._launch(kernel_table, args)
            return
        stream = self.stream or 0
        with _Copies.make(self._images, kernel_table, args, stream, self.where) as copies:
            super()._launch(kernel_table, copies.args)
            copies.copy_back(stream)


class _Copies(host_arrays.Copies):
    """Copies of NumPy arrays for one launch, with Numba's warning."""

    @classmethod
    def make(
        cls, images: Images, kernel_table: KernelTable, args: tuple[object, ...], stream: int, where: str
    ) -> _Copies:
        """Make a context current, and copy the arrays of a launch on a stream to the GPU."""
        images.enter(kernel_table, (), [stream], where)
        values = tuple([arg.value if is_annotation(arg) else arg for arg in args])
        numbers = [number for number, value in enumerate(values, 1) if host_arrays.is_numpy(value)]
        copies = cls(values, numbers, kernel_table.library.driver, where)
        copies._inputs = [arg.value for arg in args if is_annotation(arg) and type(arg).__name__ == "In"]
        return copies

    _inputs: list[object]

    def copy_back(self, stream: int) -> None:
        """Wait for the kernel, copy the arrays back, and warn as Numba does.

        The warning comes last, since a filter may make it an error.

        Raises:
            CudaError: The kernel or a copy failed.
        """
        synchronize = self._driver.call["cuStreamSynchronize"]
        self._driver.check(synchronize(stream), f"{self._where} failed")
        for array, copy in self._copies:
            if not any(array is item for item in self._inputs):
                copy.copy_back()
        if self._numbers and os.environ.get("NUMBA_CUDA_WARN_ON_IMPLICIT_COPY", "1") != "0":
            message = f"{_WARNING} ({self._where} was given it)"
            warnings.warn(message, _category(), stacklevel=host_arrays.caller_depth())


def _is_copied(arg: object) -> bool:
    return host_arrays.is_numpy(arg) or is_annotation(arg)


def _category() -> type[Warning]:
    """Return the warning's class, which is also Numba's if Numba is imported."""
    numba_classes = [
        module.NumbaPerformanceWarning
        for name in ("numba.core.errors", "numba.cuda.core.errors", "numba_cuda_mlir.numba_cuda.core.errors")
        if (module := sys.modules.get(name)) is not None
    ]
    classes = tuple(dict.fromkeys([HostArrayWarning, *numba_classes]))
    if classes not in _categories:
        _categories[classes] = classes[0] if len(classes) == 1 else type("HostArrayWarning", classes, {})
    return _categories[classes]


def _unpickle(module: str, name: str) -> object:
    """Return the packaged kernel of a name in a module."""
    __import__(module)
    source: Any = sys.modules[module]
    return source.__aotcuda__.kernels[name]
