"""What numba-cuda-mlir's own lowering leaves out for kernels that call packaged functions, put in by patching it.

`aotcuda/registry.py` has the releases that it was tested with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir import caching
from numba_cuda_mlir.mlir_lowering import MLIRLower

if TYPE_CHECKING:
    from collections.abc import Iterable

_LINKS = "aotcuda_links"
"""Under this name, what a kernel or helper links of packaged modules: in the metadata of its compilation, and as an
attribute of the linker that the compiler keeps for it."""


def bring(builder: Any, items: Iterable[Any]) -> None:
    """Let what `builder` lowers link `items`, and with LTO unless its author decided on that."""
    brought = builder.metadata.setdefault(_LINKS, [])
    for item in items:
        if not any(item is other for other in brought):
            brought.append(item)
        builder.link_external_item(item)  # takes each object once
    # The compiler's default is LTO where an LTOIR file is linked. It does not know that these fatbins hold LTOIR.
    options = builder.targetoptions
    if not any(options.get(name) for name in ("_lto_explicit", "_compile_output", "debug")):
        builder.targetoptions = {**options, "lto": True}


def _bring_from_helpers() -> None:
    # A helper that is not inlined is compiled by itself, and its caller takes over what the helper links if it is
    # LTOIR; all else would be missing in the link, and the callbacks would never run.
    create, record = MLIRLower._create_resolved_linker, MLIRLower._record_ltoirs_from_linker

    def create_resolved_linker(self: Any) -> Any:
        linker = create(self)
        setattr(linker, _LINKS, self.metadata.get(_LINKS, []))
        return linker

    def record_ltoirs_from_linker(self: Any, linker: Any) -> None:
        record(self, linker)
        if items := getattr(linker, _LINKS, None):
            bring(self, [*items])

    MLIRLower._create_resolved_linker = create_resolved_linker
    MLIRLower._record_ltoirs_from_linker = record_ltoirs_from_linker


def _keep_out_of_the_disk_cache() -> None:
    # What `cache=True` writes has neither the callbacks nor a sign of which wheel's code is in it.
    original = caching.MLIRCacheImpl.check_cachable

    def check_cachable(self: Any, cres: Any) -> bool:
        return not cres.metadata.get(_LINKS) and original(self, cres)

    caching.MLIRCacheImpl.check_cachable = check_cachable


_bring_from_helpers()
_keep_out_of_the_disk_cache()
