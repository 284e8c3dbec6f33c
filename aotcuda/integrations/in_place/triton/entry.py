"""Decide if a module that imports `aotcuda.triton` gets packaged kernels or Triton itself."""

from __future__ import annotations

import os
from importlib.util import find_spec

from ....runtime.launch import scratch_memory
from .. import sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def attribute(name: str, namespace: dict[str, Any]) -> object:
    """Return the value of a name of `aotcuda.triton` for a module that uses it.

    Args:
        name: `triton`, `tl`, or a name of Triton.
        namespace: The names of the module.

    Raises:
        AttributeError: Triton has no such name.
        ModuleNotFoundError: Triton is not installed.
    """
    if name.startswith("__") and name != "__version__":
        message = f"module 'aotcuda.triton' has no attribute {name!r}"
        raise AttributeError(message, name=name)
    if not is_packaged(namespace):
        if name == "set_allocator" and find_spec("triton") is None:
            return scratch_memory.set_allocator
        return _named(_import_triton(namespace), name)
    from . import facade  # noqa: PLC0415 (it imports Triton)

    return _named(facade.module(), name)


def _named(triton: Any, name: str) -> object:
    return triton.language if name == "tl" else triton if name == "triton" else getattr(triton, name)


def is_packaged(namespace: dict[str, Any]) -> bool:
    """Return True if a module gets packaged kernels."""
    if sources.is_switched_off() or os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y"):
        return False
    if str(namespace.get("__name__")).partition(".")[0] == "triton":
        return False  # Triton's compiler resolves names of a kernel
    if not sources.is_packaged(namespace):
        return False
    from . import bases, private_parts  # noqa: PLC0415 (only packaged modules need it)

    return not bases.is_installed or (private_parts.are_known() and not bases.runtime.interpret)


def _import_triton(namespace: dict[str, Any]) -> Any:
    try:
        import triton  # noqa: PLC0415 (imported when a module requests it)
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        from ....common import uninstalled_hook  # noqa: PLC0415 (only errors come here)

        source = namespace.get("__name__")
        message = f"{source} imports aotcuda.triton, which needs Triton: pip install 'aotcuda[triton]'"
        if fault := uninstalled_hook.fault_of_package(str(source).partition(".")[0]):
            message += f"; {fault}"
        raise ModuleNotFoundError(message, name="triton") from None
    return triton
