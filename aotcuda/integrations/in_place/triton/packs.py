"""Find the code of packs for an adopted kernel, by the digest of the source that was compiled."""

from __future__ import annotations

import os
from importlib import metadata

from .... import manifest as manifests
from ....common import kernel_digest
from ....common.heuristics import computed_arguments
from ....errors import AotcudaError, StaleBuildError
from ....runtime.jit import compile as jit_compile
from ....runtime.jit import fallback
from .. import sources
from . import bases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..sources import InPlaceModule
    from .kernel import InPlaceKernel
    from .pack_index import Packed, Served

_modules: dict[str, InPlaceModule | None] = {}
"""The modules of packs, by data folder; None for a damaged module."""

_warned: set[tuple[str, str]] = set()
"""Packs, each with a package whose kernels differ."""


def find(function: Any) -> InPlaceKernel | None:
    """Return the packaged kernel of an adopted function; None, with one warning for a package, if Triton compiles it.

    Raises:
        StaleBuildError: No pack has this kernel, and nothing may be compiled here.
    """
    served: Served = function._pack  # noqa: SLF001 (of our subclass)
    reasons: list[tuple[Packed, str]] = []
    for packed in served.packed:
        reason = difference(served.layers, packed)
        module = _module(packed) if reason is None else None
        if module is not None:
            kernel: Any = module.kernels[packed.name]
            kernel.function = function
            return kernel  # type: ignore[no-any-return]
        if reason is not None:
            reasons.append((packed, reason))
    if reasons:
        _warn_of_difference(*reasons[-1])
    return None


def difference(layers: Sequence[Any], packed: Packed) -> str | None:
    """Return the reason for which a pack's code was not compiled from a kernel, or None.

    Args:
        layers: The objects of decorators around the kernel, the outermost first, and the JITFunction.
        packed: The kernel of the pack.
    """
    release = bases.triton.__version__
    if release.partition("+")[0] != packed.triton.partition("+")[0]:
        return f"it was compiled by Triton {packed.triton}, and Triton {release} is installed"
    try:
        digest = kernel_digest.digest(layers[-1], computed_arguments(layers, bases.Heuristics))
    except kernel_digest.UndescribableError as error:
        return str(error)
    if digest != packed.digest:
        return "its source, a function that it calls or a global that it reads has changed"
    return None


def problem(layers: Sequence[Any], packed: Packed) -> str | None:
    """Return the reason for which a kernel does not launch a pack's code: a difference, or damage; else None."""
    reason = difference(layers, packed)
    return "the pack is damaged" if reason is None and _module(packed) is None else reason


def installed_version(packed: Packed) -> str | None:
    """Return the installed version of a kernel's package, or None."""
    try:
        return metadata.version(packed.distribution)
    except metadata.PackageNotFoundError:
        return None


def _module(packed: Packed) -> InPlaceModule | None:
    """Return the module that holds a kernel; None, with a warning, if it is damaged."""
    if packed.folder not in _modules:
        _modules[packed.folder] = None
        try:
            path = os.path.join(packed.folder, manifests.IN_PLACE)
            module = sources.Source(packed.module, {}, path).modules()[0]
            if not os.path.isfile(os.path.join(packed.folder, manifests.PARTS)):
                for fatbin in module.manifest["fatbins"]:
                    manifests.read_file(packed.folder, fatbin["file"])
            _modules[packed.folder] = module
        except (AotcudaError, OSError, LookupError) as error:
            jit_compile.warn(f"{packed.pack}: {error}, so Triton compiles the kernels of {packed.source}")
    return _modules[packed.folder]


def _warn_of_difference(packed: Packed, reason: str) -> None:
    """Warn once that Triton compiles kernels of a package.

    Raises:
        StaleBuildError: Nothing may be compiled here.
    """
    version = installed_version(packed) or "of unknown version"
    what = (
        f"{packed.pack} was made from {packed.distribution} {packed.version} by Triton {packed.triton}, and "
        f"{packed.distribution} {version} with Triton {bases.triton.__version__} is installed: it does not serve "
        f"{packed.source}.{packed.path}, since {reason}"
    )
    module = _module(packed)
    if not fallback.is_allowed(module.manifest["fallback"] if module is not None else "jit"):
        message = f"{what}, and nothing may be compiled here"
        raise StaleBuildError(message)
    if (packed.pack, packed.distribution) not in _warned:
        _warned.add((packed.pack, packed.distribution))
        jit_compile.warn(f"{what}, so Triton compiles it; `aotcuda check {packed.pack}` lists all such kernels")
