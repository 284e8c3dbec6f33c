"""Ship GPU code in ordinary wheels: Python kernels compiled ahead of time, loaded and launched without a compiler.

Every packaged module imports this one, so it imports nothing: `__getattr__` imports the module of a name at its first
use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.errors import (
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
    from aotcuda.runtime.device_function import DeviceFunction, DeviceFunctionGroup
    from aotcuda.runtime.kernel import Kernel
    from aotcuda.runtime.launch.for_all import ForAll
    from aotcuda.runtime.launch.grid_kernel import GridKernel, GridLauncher
    from aotcuda.runtime.launch.launcher import Launcher
    from aotcuda.runtime.module import Module, load
    from aotcuda.version import __version__ as __version__

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

        import aotcuda.errors  # noqa: F401, PLC0415 (as below)

        # `import aotcuda.errors as errors` would call this function again if another thread has imported the module and
        # not set the attribute yet.
        return sys.modules["aotcuda.errors"]
    if name not in __all__ and name != "__version__":
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    if name in ("Module", "load"):
        import aotcuda.runtime.module as home  # noqa: PLC0415 (imported at the first use; see above)
    elif name in ("DeviceFunction", "DeviceFunctionGroup"):
        import aotcuda.runtime.device_function as home  # type: ignore[no-redef]  # noqa: PLC0415
    elif name == "__version__":
        import aotcuda.version as home  # type: ignore[no-redef]  # noqa: PLC0415
    elif name == "ForAll":
        import aotcuda.runtime.launch.for_all as home  # type: ignore[no-redef]  # noqa: PLC0415
    elif name == "Kernel":
        import aotcuda.runtime.kernel as home  # type: ignore[no-redef]  # noqa: PLC0415
    elif name == "Launcher":
        import aotcuda.runtime.launch.launcher as home  # type: ignore[no-redef]  # noqa: PLC0415
    elif name in ("GridKernel", "GridLauncher"):
        import aotcuda.runtime.launch.grid_kernel as home  # type: ignore[no-redef]  # noqa: PLC0415
    else:
        import aotcuda.errors as home  # type: ignore[no-redef]  # noqa: PLC0415
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
