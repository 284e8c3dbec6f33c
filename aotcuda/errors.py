"""The classes of aotcuda's errors and warnings.

A message has the place (file, key, function, target), the fact and the remedy. The build hook and the command line
print only the message; `AOTCUDA_DEBUG=1` adds the traceback.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SHORT = 100
"""The most characters of a value in a message."""


def text_of(error: BaseException) -> str:
    """Return the text of another library's exception, also if its `__str__` raises."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 (any code may run here)
        return f"its text cannot be made ({type(another).__name__})"


def describe(value: object) -> str:
    """Return a value with its type in at most one line, for a message."""
    kind = type(value)
    if value is None:
        return "None"
    if kind is str:
        return f"str {value[:20]!r}"  # type: ignore[index]
    return f"{kind.__name__} {short_repr(value)}" if kind in (bool, int, float) else kind.__name__


def quoted(value: object) -> str:
    """Return a misplaced value for a message: its `repr` if that is a short line, else its type.

    For an array on a GPU it is the type: `repr` would copy the array, which ends the capture of a CUDA graph.
    """
    try:
        if hasattr(type(value), "__cuda_array_interface__"):
            return describe(value)
        if isinstance(value, tuple | list):
            if len(value) > _SHORT:
                return describe(value)
            items = ", ".join(map(quoted, value))
            text = f"[{items}]" if isinstance(value, list) else f"({items}{',' * (len(value) == 1)})"
        else:
            text = short_repr(value)
    except Exception:  # noqa: BLE001 (any code may run here)
        return describe(value)
    return text if len(text) <= _SHORT and len(text.splitlines()) == 1 else describe(value)


def short_repr(value: object) -> str:
    """Return the `repr` of a number or a tuple; for a number with too many digits a power of two."""
    if isinstance(value, tuple):
        return f"({', '.join(map(short_repr, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, int) and int.bit_length(value) > 80:
        return f"{'-' if value < 0 else ''}2**{int.bit_length(value) - 1} and more"
    return repr(value)


class AotcudaError(Exception):
    """Base of all errors that aotcuda raises on purpose."""


class ConfigError(AotcudaError):
    """A value under `[tool.aotcuda]` or of an `AOTCUDA_*` variable is missing, unknown or wrong."""


class BuildError(AotcudaError):
    """The build cannot go on; no file of the wheel has been written."""


class SourceError(BuildError):
    """The module that holds the functions cannot be imported, or lacks a function that the configuration names.

    Attributes:
        fault: The reason of a failed import; a fault of several modules is reported once.
    """

    fault: str = ""


class CompileError(BuildError):
    """A front end refused a function for one signature and one target.

    Attributes:
        fault: The fault in the source, if it is known; a fault of several signatures and targets is reported once.
    """

    fault: str = ""


class LinkError(BuildError):
    """Compiled parts could not be linked into one image."""


class ToolchainError(BuildError):
    """A compiler, linker or packer is missing, or does not support a request.

    Attributes:
        fault: The unsupported request; a request that several front ends refuse is reported once.
    """

    fault: str = ""


class ManifestError(AotcudaError):
    """A manifest, or a file that it names, is missing, truncated or altered, or needs another version of aotcuda."""


class ImageError(AotcudaError):
    """A fatbin or cubin cannot be read: it is truncated, altered or of an unknown kind."""


class TargetError(AotcudaError):
    """The target of a command does not exist, holds nothing that aotcuda built, or has a problem."""


class RuntimeUnavailableError(AotcudaError):
    """Nothing can be launched on this machine; subclasses name what is missing."""


class NoDriverError(RuntimeUnavailableError):
    """The CUDA driver library (`libcuda.so.1`) is not installed or cannot be loaded."""


class NoDeviceError(RuntimeUnavailableError):
    """The driver works, and finds no GPU."""


class DriverTooOldError(RuntimeUnavailableError):
    """The driver is older than the packaged images need."""


class NoImageError(RuntimeUnavailableError):
    """No packaged image can run on this GPU."""


class StaleBuildError(AotcudaError):
    """The sources of an editable install were edited after the build, so its images have the old code."""


class CudaError(AotcudaError):
    """A driver call failed.

    Attributes:
        name: The driver's name of the error, such as `CUDA_ERROR_INVALID_VALUE`.
        code: Its number (`CUresult`).
    """

    def __init__(self, message: str, *, name: str, code: int) -> None:
        super().__init__(message)
        self.name = name
        self.code = code


class UnloadedError(CudaError):
    """Images were unloaded that a call needs; a launch starts again with new images."""

    @classmethod
    def for_kernel(cls, name: str) -> UnloadedError:
        """Return the error for the images of a module or a kernel."""
        message = f"the images of {name} were unloaded in the meantime, by another thread or by code that a launch runs"
        return cls(message, name="CUDA_ERROR_INVALID_HANDLE", code=400)


class LaunchError(AotcudaError, ValueError):
    """A launch configuration (grid, block, shared memory) is impossible on the GPU."""


class CallError(LaunchError, TypeError):
    """A kernel was called without a configuration, or the host called a device function."""


class ArgumentError(AotcudaError, TypeError):
    """No packaged signature accepts the arguments of a launch."""


class MissingVariantError(ArgumentError):
    """No variant of an exact kernel is packaged for the arguments; Triton's JIT may compile one.

    The text is made when it is read.
    """

    def __init__(self, problem: str | Callable[[], str]) -> None:
        super().__init__()
        self._problem = problem

    def __str__(self) -> str:
        if not isinstance(self._problem, str):
            self._problem = self._problem()
        return self._problem

    def __reduce__(self) -> tuple[type[MissingVariantError], tuple[str]]:
        return type(self), (str(self),)


class AlignmentError(ArgumentError):
    """An array does not begin, or does not continue, at the addresses that the kernel's loads need."""


class CallbackError(AotcudaError):
    """A setup or teardown callback raised an exception, which is chained."""


class AllocatorError(AotcudaError, RuntimeError):
    """A kernel needs global memory for a launch, and the program has set no function that allocates it."""


class DependencyError(AotcudaError):
    """A package that is needed at run time is not installed; the message has the command that installs it."""


class DeviceError(AotcudaError):
    """A debug kernel raised an exception whose class is not built into Python."""


class ForkError(AotcudaError):
    """A process forked after CUDA was initialised, so the child cannot use CUDA."""


class FallbackWarning(UserWarning):
    """A kernel is compiled on the user's machine because the wheel has no suitable image."""


class HostArrayWarning(UserWarning):
    """A launch copied arrays from the host's memory to the GPU and back."""


class UnreadableError(Exception):
    """An argument cannot be read: its description is impossible, or reading it raised an exception.

    The text continues after the argument's name: "has a mask". Users do not see this error:
    `aotcuda.runtime.launch.arguments.overloads` converts it to an ArgumentError that names the kernel and the argument.
    """

    @classmethod
    def from_error(cls, error: Exception) -> UnreadableError:
        """Make the error for an argument whose attribute raised `error`."""
        text = text_of(error).partition("\n")[0]
        return cls(f"cannot be read: {type(error).__name__}{f': {text}' if text else ''}")


def _use_installed(errors: dict[str, Any]) -> None:
    """Replace the classes of a private copy by an installed aotcuda's: one `except` catches errors of both run times.

    A class that the installed aotcuda does not have is derived from its classes.

    Args:
        errors: The names in this module, with their values.
    """
    from importlib import import_module  # noqa: PLC0415 (an installed aotcuda does not come here)

    try:
        installed = vars(import_module("aotcuda.errors"))
    except ImportError:
        return
    classes: dict[str, type] = {}
    for name, kind in errors.items():
        if isinstance(kind, type) and issubclass(kind, BaseException) and kind.__module__ == __name__:
            other = installed.get(name)
            if not isinstance(other, type):
                bases = tuple(classes.get(base.__name__, base) for base in kind.__bases__)
                other = type(name, bases, {**vars(kind)})
            classes[name] = other
    errors.update(classes)


if __name__ != "aotcuda.errors":  # the private copy of a wheel
    _use_installed(globals())
