"""Find the link inputs, callbacks and foreign functions that compiled functions need."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llvmlite import ir as llvm
from numba.cuda import compiler as cuda_compiler
from numba.cuda.core import config
from numba.cuda.cuda_paths import get_cuda_paths
from numba.cuda.cudadrv import nvrtc

from aotcuda.builder.frontends.numba import link_items
from aotcuda.builder.frontends.numba.link_items import Needs
from aotcuda.builder.frontends.numba_cuda import patches
from aotcuda.builder.frontends.protocol import External, LinkInput
from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.builder.frontends.protocol import CType

# Numba's own functions in CUDA C++, which it links if code calls them (numba.cuda.dispatcher._Kernel.__init__).
_RESHAPE = re.compile(r'declare [^\n]*@"?(nocopy_empty_reshape|numba_attempt_nocopy_reshape)"?')
_NRT = re.compile(r'declare [^\n]*@"?NRT_\w+"?')

# Functions of NVVM, libdevice and the driver's device runtime.
_PROVIDED = re.compile(r"llvm\.|__nv_|nvvm|vprintf$|__assertfail$|malloc$|free$|memcpy$|memset$|___numba_")


def needs(library: Any, irs: list[str], items: Iterable[Any], root: str) -> Needs:
    """Return the needs of the compiled `library`; `items` is the list in `@cuda.jit(link=...)`.

    Raises:
        CompileError: An item cannot be linked, or the code allocates memory on the device.
        SourceError: A callback cannot be imported by its name.
    """
    link_list = list(dict.fromkeys([*library._linking_files, *items]))
    if any(_RESHAPE.search(text) for text in irs):
        link_list.append(str(Path(cuda_compiler.__file__).with_name("reshape_funcs.cu")))
    if any(_NRT.search(text) for text in irs):
        message = "it allocates memory on the device (Numba's NRT), which a packaged kernel cannot do"
        raise CompileError(message)
    inputs = [_input(item, Path(root)) for item in link_list]
    if library.use_cooperative:
        inputs.append(link_items.GRID_GROUP)
    callbacks = [names for item in link_list if not patches.find_shim(item) for names in link_items.callbacks(item)]
    return Needs(inputs=tuple(inputs), callbacks=tuple(callbacks), externals=_externals(library))


def include_dirs() -> list[str]:
    """Return folders with headers in addition to the toolkit's: the folders of Numba, and of its settings."""
    package = Path(cuda_compiler.__file__).parent
    extra = config.CUDA_NVRTC_EXTRA_SEARCH_PATHS
    toolkit = get_cuda_paths()["include_dir"].info
    return [
        *(path for path in extra.split(":") if path),
        str(package / "include" / str(nvrtc._get_nvrtc_version()[0])),
        str(package / "memory_management"),
        *([str(toolkit)] if toolkit else []),
    ]


def _input(item: Any, root: Path) -> LinkInput:
    if shim := patches.find_shim(item):
        name, heading, pieces = shim
        parts = tuple((key, text.encode()) for key, text in pieces.items())
        return LinkInput(kind="cu", name=name, data=heading.encode() + b"\n", pieces=parts, internal=True)
    is_internal = isinstance(item, str) and Path(item).parent == Path(cuda_compiler.__file__).parent
    return replace(link_items.link_input(item, root), internal=is_internal)


def _externals(library: Any) -> tuple[External, ...]:
    functions = [function for module in library.modules for function in module.functions]
    defined = {function.name for function in functions if not function.is_declaration}
    externals: dict[str, External] = {}
    for function in functions:
        if function.name in defined or _PROVIDED.match(function.name) or isinstance(function, llvm.InlineAsm):
            continue
        externals.setdefault(
            function.name,
            External(
                name=function.name,
                result=_c_type(function.ftype.return_type),
                parameters=tuple(map(_c_type, function.ftype.args)),
            ),
        )
    return tuple(externals.values())


def _c_type(ty: Any) -> CType:
    if isinstance(ty, llvm.VoidType):
        return "void"
    if isinstance(ty, llvm.IntType):
        return f"int{max(ty.width, 8)}"
    for kind, name in ((llvm.FloatType, "float32"), (llvm.DoubleType, "float64"), (llvm.HalfType, "float16")):
        if isinstance(ty, kind):
            return name
    return "pointer" if isinstance(ty, llvm.PointerType) else "struct"
