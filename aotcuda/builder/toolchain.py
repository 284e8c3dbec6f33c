"""The toolkit whose compilers a build uses: its version, and which GPUs it builds for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuda.bindings import nvrtc

from aotcuda.compatibility import tables
from aotcuda.errors import ToolchainError

if TYPE_CHECKING:
    from aotcuda.arch import Target


def toolkit_version() -> tuple[int, int]:
    """The CUDA version of the toolchain, `(major, minor)`."""
    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor


def supported_capabilities() -> tuple[tuple[int, int], ...]:
    """The compute capabilities that the toolchain builds for, in order."""
    _, numbers = nvrtc.nvrtcGetSupportedArchs()
    return tuple(sorted((number // 10, number % 10) for number in numbers))


def check_target(target: Target, where: str) -> None:
    """Refuse a target that the toolchain does not know.

    Raises:
        ToolchainError: It does not; the message lists what it knows.
    """
    known = supported_capabilities()
    # Architecture-specific code exists from 9.0 on, family-specific code from 10.0 on (CUDA C++ Programming Guide,
    # "Feature Set Compiler Targets").
    first = {"": (0, 0), "a": (9, 0), "f": (10, 0)}[target.suffix]
    if target.capability in known and target.capability >= first:
        return
    version = ".".join(map(str, toolkit_version()))
    kind = str(target).partition("_")[0]
    listed = ", ".join(f"{kind}_{major}{minor}{target.suffix}" for major, minor in known if (major, minor) >= first)
    message = f"{where}: {target} is not known to the CUDA {version} toolchain, which builds for {listed}"
    raise ToolchainError(message + (f"; {target} needs {other}" if (other := tables.builders(target)) else ""))
