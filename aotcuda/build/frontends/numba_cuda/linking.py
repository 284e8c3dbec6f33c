"""What compiled functions need beside their own code: files and objects to link, their callbacks, foreign functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llvmlite import ir as llvm
from numba.cuda import compiler as cuda_compiler
from numba.cuda.core import config
from numba.cuda.cuda_paths import get_cuda_paths
from numba.cuda.cudadrv import nvrtc

from aotcuda.build import links
from aotcuda.build.frontends import Callbacks, External, LinkInput
from aotcuda.build.frontends.numba_cuda import adapt
from aotcuda.errors import CompileError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.build.frontends import CType

# Functions of Numba's own that it links as CUDA C++ when they are used (numba.cuda.dispatcher._Kernel.__init__).
_RESHAPE = re.compile(r'declare [^\n]*@"?(nocopy_empty_reshape|numba_attempt_nocopy_reshape)"?')
_NRT = re.compile(r'declare [^\n]*@"?NRT_\w+"?')

# What Numba calls for `cuda.cg.this_grid()`, which it finds in libcudadevrt.a. That library is machine code: it cannot
# be inlined, nor become PTX. The toolkit's header has the same barrier for compilers, in CUDA C++.
_GRID_GROUP = b"""#include <cooperative_groups.h>
extern "C" __device__ unsigned long long cudaCGGetIntrinsicHandle(enum cudaCGScope) { return 1; }
extern "C" __device__ cudaError_t cudaCGSynchronize(unsigned long long, unsigned int)
{
    cooperative_groups::this_grid().sync();
    return cudaSuccess;
}
"""

# What NVVM, libdevice and the device side of the driver define.
_PROVIDED = re.compile(r"llvm\.|__nv_|nvvm|vprintf$|__assertfail$|malloc$|free$|memcpy$|memset$|___numba_")

_KINDS = {
    "PTXSource": "ptx",
    "CUSource": "cu",
    "Fatbin": "fatbin",
    "Cubin": "cubin",
    "Archive": "library",
    "Object": "object",
    "LTOIR": "ltoir",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one unit needs."""

    inputs: tuple[LinkInput, ...]
    callbacks: tuple[Callbacks, ...]
    externals: tuple[External, ...]


def needs(library: Any, irs: list[str], given: Iterable[Any], root: str) -> Needs:
    """What the compiled `library` needs; `given` are the items of `@cuda.jit(link=...)`.

    Raises:
        CompileError: An item cannot be linked, or the code needs what a packaged kernel cannot have.
        SourceError: A callback cannot be found by name.
    """
    items = list(dict.fromkeys([*library._linking_files, *given]))
    if any(_RESHAPE.search(text) for text in irs):
        items.append(str(Path(cuda_compiler.__file__).with_name("reshape_funcs.cu")))
    if any(_NRT.search(text) for text in irs):
        message = "it allocates memory on the device (Numba's NRT), which a packaged kernel cannot do"
        raise CompileError(message)
    inputs = [_input(item, Path(root)) for item in items]
    if library.use_cooperative:
        inputs.append(LinkInput(kind="cu", name="grid_group.cu", data=_GRID_GROUP, internal=True))
    callbacks = [found for item in items if (found := _callbacks(item)) is not None]
    return Needs(inputs=tuple(inputs), callbacks=tuple(callbacks), externals=_externals(library))


def include_dirs() -> list[str]:
    """Folders for CUDA C++ sources beside the toolkit's: Numba's own, and the extra ones that Numba is told of."""
    package = Path(cuda_compiler.__file__).parent
    extra = config.CUDA_NVRTC_EXTRA_SEARCH_PATHS
    given = get_cuda_paths()["include_dir"].info
    return [
        *(path for path in extra.split(":") if path),
        str(package / "include" / str(nvrtc._get_nvrtc_version()[0])),
        str(package / "memory_management"),
        *([str(given)] if given else []),
    ]


def _input(item: Any, root: Path) -> LinkInput:
    if shim := adapt.shim(item):
        name, heading, pieces = shim
        parts = tuple((key, text.encode()) for key, text in pieces.items())
        return LinkInput(kind="cu", name=name, data=heading.encode() + b"\n", pieces=parts, internal=True)
    if isinstance(item, str):
        try:
            found = links.from_file(root / item, root, f"it links {item}")
        except ConfigError as error:
            raise CompileError(str(error)) from None
        own = Path(item).parent == Path(cuda_compiler.__file__).parent
        return LinkInput(kind=found.kind, name=found.name, data=found.data, folder=found.folder, internal=own)
    kind = _KINDS.get(type(item).__name__)
    if kind is None:
        message = f"it links a {type(item).__name__}, which is neither a file name nor one of {', '.join(_KINDS)}"
        raise CompileError(message)
    data = item.data
    if item.nrt:
        message = f"it links {item.name} with nrt=True; Numba's memory allocation on the device cannot be packaged"
        raise CompileError(message)
    return LinkInput(kind=kind, name=item.name, data=data.encode() if isinstance(data, str) else bytes(data))  # type: ignore[arg-type]


def _callbacks(item: Any) -> Callbacks | None:
    if isinstance(item, str) or adapt.shim(item):
        return None
    names = {
        which: links.importable_name(function, which) if function is not None else None
        for which, function in (("setup", item.setup_callback), ("teardown", item.teardown_callback))
    }
    if not any(names.values()):
        return None
    return Callbacks(setup=names["setup"], teardown=names["teardown"], origin=item.name)


def _externals(library: Any) -> tuple[External, ...]:
    functions = [function for module in library.modules for function in module.functions]
    defined = {function.name for function in functions if not function.is_declaration}
    wanted: dict[str, External] = {}
    for function in functions:
        if function.name in defined or _PROVIDED.match(function.name) or isinstance(function, llvm.InlineAsm):
            continue
        kind = function.ftype
        wanted.setdefault(
            function.name,
            External(
                name=function.name,
                result=_c_type(kind.return_type),
                parameters=tuple(_c_type(argument) for argument in kind.args),
            ),
        )
    return tuple(wanted.values())


def _c_type(ty: Any) -> CType:
    if isinstance(ty, llvm.VoidType):
        return "void"
    if isinstance(ty, llvm.IntType):
        return f"int{max(ty.width, 8)}"
    for kind, name in ((llvm.FloatType, "float32"), (llvm.DoubleType, "float64"), (llvm.HalfType, "float16")):
        if isinstance(ty, kind):
            return name
    return "pointer" if isinstance(ty, llvm.PointerType) else "struct"
