"""Call a kernel with a configuration: `kernel[grid, block]` returns a `Launcher`."""

from __future__ import annotations

from .. import errors
from . import config_key
from .general_path import GeneralPath
from .launch_config import Configuration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Self

    from ..images.images import Images
    from .launch_config import Dimensions


class ProcessLocal:
    """A base of objects that belong to one process: a copy is the object itself, and pickling is refused."""

    __slots__ = ()

    def _describe(self) -> tuple[str, str]:
        """Return the name of the object, and the expression that makes it in another process."""
        raise NotImplementedError

    def with_stream(self, stream: object) -> Self:
        """Return a launcher like this one that also keeps alive the stream object, whose handle this one has."""
        return LauncherWithStream(self, stream)  # type: ignore[return-value]  # it has all attributes of this launcher

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Refuse to be pickled: the stream and the specializations belong to this process.

        Raises:
            TypeError: Always.
        """
        name, expression = self._describe()
        message = f"{name} belongs to its process; send the kernel, and write {expression} where it is launched"
        raise TypeError(message)


class Launcher(ProcessLocal, GeneralPath):
    """A kernel with a launch configuration; call it with the kernel's arguments."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **_none: Any) -> None:
            """Launch the kernel; the class in a stub has the kernel's parameters."""

    else:

        def __call__(self, *args: object, **named: object) -> None:
            """Launch the kernel; it runs asynchronously, as every CUDA kernel does.

            Raises:
                ArgumentError: No packaged signature accepts the arguments, or some are given by name.
                LaunchError: The configuration is not possible on the GPU.
                RuntimeUnavailableError: There is no driver, no GPU, or no image for this GPU.
                StaleBuildError: The package is installed as editable and its sources were edited after the build.
                ForkError: The process forked after CUDA was started.
                CallbackError: A setup callback raised; the module is unloaded again, and the next launch starts anew.
                CudaError: The driver reports an error.
            """
            if named:
                self._refuse_names(named)
            self.launch(args)

    def missed(self, *args: object) -> None:
        """Raise the error of a launch for which the fast path has no overload.

        Raises:
            ArgumentError: As for a call.
        """
        self.launch(args)

    def _describe(self) -> tuple[str, str]:
        """Implement ProcessLocal._describe."""
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
        """Return the handle of the stream, 0 for the default stream; None for the current stream of each launch."""
        return self.configuration.stream

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory for each block."""
        return self.configuration.shared

    def _refuse_names(self, named: dict[str, object]) -> NoReturn:
        from .arguments import explain  # noqa: PLC0415 (only errors come here)

        record = self._images.kernels.get(self.name)
        raise explain.keyword_error(self.where, f"{self.name}[grid, block]", record, named)

    def __repr__(self) -> str:
        stream = f", stream {self.stream:#x}" if self.stream is not None else ""
        shared = f", {errors.short_repr(self.shared)} bytes of shared memory" if self.shared else ""
        grid, block = errors.short_repr(self.grid), errors.short_repr(self.block)
        return f"<{self.where} with grid {grid}, block {block}{stream}{shared}>"


def make_configured(launcher_class: type[Launcher], images: Images, name: str, where: str) -> Callable[[object], Any]:
    """Return the function that makes the launchers of a kernel without the extension, as `configured` does in C."""

    def configured(parts: Any) -> Any:
        owner = None
        if type(parts) is tuple and 2 < len(parts) < 5 and parts[2] is not None and type(parts[2]) is not int:
            owner = parts[2]
            read = config_key.readers.get(type(owner))
            if read is None:
                return None
            try:
                parts = (*parts[:2], read(owner), *parts[3:])
            except Exception:  # noqa: BLE001 (the caller then reads the stream again, and raises the error)
                return None
        configuration = Configuration.of(parts)
        if configuration is None:
            return None
        launcher = launcher_class(images, name, where, configuration, None)
        return launcher if owner is None else LauncherWithStream(launcher, owner)

    return configured


class LauncherWithStream(ProcessLocal):
    """A launcher with the stream object of its stream, which it keeps alive: the object owns the stream.

    Attributes:
        owner: The stream object.
    """

    # A call finds the slot `__call__` in the class, and calls its value, the launcher. A method would be slower,
    # because reading an attribute takes long in a class with `__getattr__`.
    __slots__ = ("__call__", "owner")

    owner: object

    def __init__(self, launcher: ProcessLocal, owner: object) -> None:
        self.__call__ = launcher
        self.owner = owner

    def __reduce__(self) -> str | tuple[Any, ...]:
        launcher: object = self.__call__
        return launcher.__reduce__()

    def __getattr__(self, name: str) -> object:
        if name in LauncherWithStream.__slots__:  # a slot without a value
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
        return getattr(self.__call__, name)

    def __repr__(self) -> str:
        return repr(self.__call__)
