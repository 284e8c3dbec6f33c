"""Ship GPU code in ordinary wheels: Python kernels compiled ahead of time, loaded and launched without a compiler.

Every packaged module imports this one, so it imports nothing: `__getattr__` imports the module of a name at its first
use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .errors import (
        AllocatorError,
        AotcudaError,
        ArgumentError,
        BuildError,
        CallbackError,
        CallError,
        CompileError,
        ConfigError,
        CudaError,
        DependencyError,
        DeviceError,
        DriverTooOldError,
        FallbackWarning,
        ForkError,
        HostArrayWarning,
        ImageError,
        LaunchError,
        LinkError,
        ManifestError,
        NoDeviceError,
        NoDriverError,
        NoImageError,
        RuntimeUnavailableError,
        SourceError,
        StaleBuildError,
        TargetError,
        ToolchainError,
    )
    from .runtime.device_function import DeviceFunction, DeviceFunctionGroup
    from .runtime.kernel import Kernel
    from .runtime.launch.execute import Launcher
    from .runtime.launch.for_all import ForAll
    from .runtime.launch.grid_kernel import GridKernel, GridLauncher
    from .runtime.module import Module, load
    from .version import __version__ as __version__

__all__ = [
    "AllocatorError",
    "AotcudaError",
    "ArgumentError",
    "BuildError",
    "CallError",
    "CallbackError",
    "CompileError",
    "ConfigError",
    "CudaError",
    "DependencyError",
    "DeviceError",
    "DeviceFunction",
    "DeviceFunctionGroup",
    "DriverTooOldError",
    "FallbackWarning",
    "ForAll",
    "ForkError",
    "GridKernel",
    "GridLauncher",
    "HostArrayWarning",
    "ImageError",
    "Kernel",
    "LaunchError",
    "Launcher",
    "LinkError",
    "ManifestError",
    "Module",
    "NoDeviceError",
    "NoDriverError",
    "NoImageError",
    "RuntimeUnavailableError",
    "SourceError",
    "StaleBuildError",
    "TargetError",
    "ToolchainError",
    "load",
]


def __getattr__(name: str) -> object:
    if name == "errors":  # most launches raise none, and the module makes thirty classes
        import sys  # noqa: PLC0415 (as below)

        # `from . import errors` would call this function again if another thread has imported the module and not set
        # the attribute yet.
        __import__(f"{__name__}.errors")
        return sys.modules[f"{__name__}.errors"]
    if name not in __all__ and name != "__version__":
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    if name in ("Module", "load"):
        from .runtime import module as home  # noqa: PLC0415 (imported at the first use; see above)
    elif name in ("DeviceFunction", "DeviceFunctionGroup"):
        from .runtime import device_function as home  # type: ignore[no-redef]  # noqa: PLC0415
    elif name == "__version__":
        from . import version as home  # type: ignore[no-redef]  # noqa: PLC0415
    elif name == "ForAll":
        from .runtime.launch import for_all as home  # type: ignore[no-redef]  # noqa: PLC0415
    elif name == "Kernel":
        from .runtime import kernel as home  # type: ignore[no-redef]  # noqa: PLC0415
    elif name == "Launcher":
        from .runtime.launch import execute as home  # type: ignore[no-redef]  # noqa: PLC0415
    elif name in ("GridKernel", "GridLauncher"):
        from .runtime.launch import grid_kernel as home  # type: ignore[no-redef]  # noqa: PLC0415
    else:
        from . import errors as home  # type: ignore[no-redef]  # noqa: PLC0415
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
