"""Read the items that Python code links by `declare_device(link=...)` and `@cuda.jit(link=[...])`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends.protocol import Callbacks, LinkInput
from aotcuda.builder.link import inputs as link_inputs
from aotcuda.errors import CompileError, ConfigError
from aotcuda.manifest import linkable

if TYPE_CHECKING:
    from pathlib import Path

    from aotcuda.builder.frontends.protocol import External


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The link inputs, callbacks and foreign functions of one unit."""

    inputs: tuple[LinkInput, ...]
    callbacks: tuple[Callbacks, ...]
    externals: tuple[External, ...]


GRID_GROUP = LinkInput(
    kind="cu",
    name="grid_group.cu",
    internal=True,
    data=b"""#include <cooperative_groups.h>
extern "C" __device__ unsigned long long cudaCGGetIntrinsicHandle(enum cudaCGScope) { return 1; }
extern "C" __device__ cudaError_t cudaCGSynchronize(unsigned long long, unsigned int)
{
    cooperative_groups::this_grid().sync();
    return cudaSuccess;
}
""",
)
"""The functions behind `cuda.cg.this_grid()`, in place of libcudadevrt.a. That library is machine code, which cannot be
inlined and cannot become PTX. The toolkit's header has the same barrier in CUDA C++."""


def link_input(item: Any, root: Path) -> LinkInput:
    """Return a file name or a LinkableCode object as a link input; paths are relative to `root`.

    Raises:
        CompileError: The item cannot be linked.
    """
    if isinstance(item, str):
        try:
            return link_inputs.from_file(root / item, root, f"it links {item}")
        except ConfigError as error:
            raise CompileError(str(error)) from None
    kind = linkable.CLASSES.get(type(item).__name__)
    if kind is None:
        message = (
            f"it links a {type(item).__name__}, which is neither a file name nor one of {', '.join(linkable.CLASSES)}"
        )
        raise CompileError(message)
    if item.nrt:
        message = f"it links {item.name} with nrt=True; Numba's memory allocation on the device cannot be packaged"
        raise CompileError(message)
    data = item.data
    return LinkInput(kind=kind, name=item.name, data=data.encode() if isinstance(data, str) else bytes(data))


def callbacks(item: Any) -> tuple[Callbacks, ...]:
    """Return the callbacks of a LinkableCode object, by name.

    Raises:
        SourceError: A callback cannot be imported by its name.
    """
    if isinstance(item, str):
        return ()
    # The code of a packaged module has this attribute; see aotcuda.integrations.interop.packaged.
    packaged = getattr(item, "aotcuda_callbacks", None)
    if packaged is not None:
        return tuple(Callbacks(**names) for names in packaged)
    names = {
        kind: link_inputs.importable_name(function, kind) if function is not None else None
        for kind, function in (("setup", item.setup_callback), ("teardown", item.teardown_callback))
    }
    if not any(names.values()):
        return ()
    return (Callbacks(setup=names["setup"], teardown=names["teardown"], origin=item.name),)
