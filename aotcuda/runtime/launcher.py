"""A kernel with a configuration, to be called with arguments: what `kernel[grid, block]` is.

Of a launch it has what is known before there is a driver. The way of its first launch, and of each that no fast path
takes, is in `aotcuda.runtime.general_path`, which is imported while the driver starts.
"""

from __future__ import annotations

import aotcuda

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Self, TypeVar

    from aotcuda.runtime.arguments.overloads import Group, PackedOverload, Selection
    from aotcuda.runtime.fast import Records
    from aotcuda.runtime.fast.python import FastPath
    from aotcuda.runtime.general_path import GeneralPath
    from aotcuda.runtime.launch_config import Configuration, Dimensions
    from aotcuda.runtime.loaded import Loaded
    from aotcuda.runtime.loader import Loader

    T = TypeVar("T")

_ATTEMPTS = 30
"""Of a launch whose images other threads, or its own arguments, unload again and again."""


def again(launch: Callable[[tuple[object, ...]], T], args: tuple[object, ...]) -> T:
    """Launch, and begin anew where the images are unloaded meanwhile: who raises UnloadedError has launched nothing."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return launch(args)
        except aotcuda.errors.UnloadedError:
            continue
    return launch(args)


class OfThisProcess:
    """What belongs to its process: a copy of it is itself, and it is not pickled."""

    __slots__ = ()

    def _written(self) -> tuple[str, str]:
        """What it is, and what is written to have it in another process."""
        raise NotImplementedError

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Refuse: its stream, and what it has learnt, are this process's.

        Raises:
            TypeError: Always.
        """
        what, written = self._written()
        message = f"{what} belongs to its process; send the kernel, and write {written} where it is launched"
        raise TypeError(message)


class Launcher(OfThisProcess):
    """A kernel with a launch configuration; call it with the kernel's arguments.

    Attributes:
        name: The kernel's name.
        where: The same with its module's.
        configuration: The configuration.
        quick: The fast path that took the last arguments: what it makes of these, the driver's code, or less than 0.
    """

    __slots__ = ("_general", "_loader", "_records", "configuration", "name", "quick", "where")

    def __init__(
        self, loader: Loader, name: str, where: str, configuration: Configuration, records: Records | None
    ) -> None:
        """Of a kernel that `loader` has; `records` is what the extension has learnt of it, None to go without."""
        self.name = name
        self.where = where
        self.configuration = configuration
        self.quick: FastPath = _decline
        self._loader = loader
        self._records = records
        self._general: GeneralPath | None = None

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **_none: Any) -> None:
            """To type checkers: what a stub's class narrows down to the kernel's parameters."""

    else:

        def __call__(self, *args: object, **named: object) -> None:
            """Launch the kernel; it runs asynchronously, as every CUDA kernel does.

            Raises:
                ArgumentError: No packaged signature takes the arguments, or some are given by name.
                LaunchError: The GPU cannot take the configuration.
                RuntimeUnavailableError: There is no driver, no GPU, or no image for this GPU.
                StaleBuildError: The package is installed as editable and its sources were edited after the build.
                ForkError: The process forked after CUDA was started.
                CallbackError: A setup callback raised; the module is unloaded again, and the next launch starts anew.
                CudaError: The driver reports an error.
            """
            if named:
                self._refuse_names(named)
            code = self.quick(args)
            if code:
                if code > 0:
                    self.fail(code, args)
                else:
                    self.launch(args)

    def _written(self) -> tuple[str, str]:
        """See OfThisProcess."""
        return f"{self.where} with a configuration", "kernel[grid, block]"

    @property
    def grid(self) -> Dimensions:
        """Blocks of the grid in x, y and z."""
        return self.configuration.grid

    @property
    def block(self) -> Dimensions:
        """Threads of a block in x, y and z."""
        return self.configuration.block

    @property
    def stream(self) -> int | None:
        """The handle of the stream, 0 for the default one; None for the one that is current at the launch."""
        return self.configuration.stream

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory for each block."""
        return self.configuration.shared

    def launch(self, args: tuple[object, ...]) -> None:
        """As a call, where the fast path that took the last arguments does not take these."""
        if self._general is None and self._loader.current is None:
            self._loader.ready()
        quick = again(self._path().launch, args)
        if quick is not None:
            self.quick = quick

    def submit(self, loaded: Loaded, selection: Selection) -> None:
        """See GeneralPath."""
        self._path().submit(loaded, selection)

    def settle(self, loaded: Loaded, group: Group, overload: PackedOverload, args: tuple[object, ...]) -> None:
        """See GeneralPath."""
        quick = self._path().settle(loaded, group, overload, args)
        if quick is not None:
            self.quick = quick

    def fail(self, code: int, args: tuple[object, ...]) -> None:
        """See GeneralPath; where images were unloaded meanwhile, launch once more."""
        try:
            self._path().fail(code, args)
        except aotcuda.errors.UnloadedError:
            pass
        else:
            return
        self.launch(args)

    def _path(self) -> GeneralPath:
        return self._general or self._make_path()

    def _make_path(self) -> GeneralPath:
        from aotcuda.runtime.general_path import GeneralPath  # noqa: PLC0415 (which was imported while the driver started)

        # Of threads that come here at once each has its own for this launch. One stays, and what the others have
        # learnt is learnt again.
        self._general = made = GeneralPath(self._loader, self.name, self.where, self.configuration, self._records)
        return made

    def _refuse_names(self, named: dict[str, object]) -> NoReturn:
        from aotcuda.runtime.arguments import mismatch  # noqa: PLC0415 (only errors come here)

        record = self._loader.kernels.get(self.name)
        raise mismatch.by_name(self.where, f"{self.name}[grid, block]", record, named)

    def __repr__(self) -> str:
        stream = f", stream {self.stream:#x}" if self.stream is not None else ""
        shared = f", {aotcuda.errors.shown(self.shared)} bytes of shared memory" if self.shared else ""
        grid, block = aotcuda.errors.shown(self.grid), aotcuda.errors.shown(self.block)
        return f"<{self.where} with grid {grid}, block {block}{stream}{shared}>"


def _decline(_args: tuple[object, ...]) -> int:
    """The fast path of a launcher that has none."""
    return -1
