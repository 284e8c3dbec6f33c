"""`aotcuda.errors`, imported when the first error is raised: most launches raise none, and it makes thirty classes.

What a first launch imports writes `from aotcuda import lazy_errors as errors`, and then `raise errors.LaunchError`; an
`except` asks for its classes when something was raised, too.
"""

# ruff: noqa: PLC0414 (a name imported `as` itself is one that this module hands on, to mypy)

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.errors import AotcudaError as AotcudaError
    from aotcuda.errors import ArgumentError as ArgumentError
    from aotcuda.errors import CallbackError as CallbackError
    from aotcuda.errors import ConfigError as ConfigError
    from aotcuda.errors import CudaError as CudaError
    from aotcuda.errors import DriverTooOldError as DriverTooOldError
    from aotcuda.errors import ForkError as ForkError
    from aotcuda.errors import GeneralOnlyError as GeneralOnlyError
    from aotcuda.errors import LaunchError as LaunchError
    from aotcuda.errors import ManifestError as ManifestError
    from aotcuda.errors import NoDeviceError as NoDeviceError
    from aotcuda.errors import NoDriverError as NoDriverError
    from aotcuda.errors import NoImageError as NoImageError
    from aotcuda.errors import RuntimeUnavailableError as RuntimeUnavailableError
    from aotcuda.errors import StaleBuildError as StaleBuildError
    from aotcuda.errors import UnloadedError as UnloadedError
    from aotcuda.errors import UnreadableError as UnreadableError
    from aotcuda.errors import describe as describe
    from aotcuda.errors import shown as shown
    from aotcuda.errors import text_of as text_of
else:

    def __getattr__(name: str) -> object:
        from aotcuda import errors  # noqa: PLC0415 (see above)

        value = globals()[name] = getattr(errors, name)
        return value
