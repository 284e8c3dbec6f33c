"""The numba-cuda front end: Python functions to LTOIR with Numba-CUDA, with no GPU and no driver."""

# Puts numba-cuda in the place of the numba.cuda that numba has of its own. Its .pth file does the same, but only in
# folders where Python reads such files.
import _numba_cuda_redirector  # type: ignore[import-untyped]  # noqa: F401

from aotcuda.builder.frontends.numba.units import sources
from aotcuda.builder.frontends.numba_cuda.compiler import NumbaCuda
from aotcuda.builder.frontends.numba_cuda.linking import include_dirs

_front_end = NumbaCuda()

prepare = _front_end.prepare
importing = _front_end.importing
load = _front_end.load
settled = _front_end.settled
resolve = _front_end.resolve
compile_kernel = _front_end.compile_kernel
compile_function = _front_end.compile_function
merge_functions = _front_end.merge_functions

__all__ = [
    "compile_function",
    "compile_kernel",
    "importing",
    "include_dirs",
    "load",
    "merge_functions",
    "prepare",
    "resolve",
    "settled",
    "sources",
]
