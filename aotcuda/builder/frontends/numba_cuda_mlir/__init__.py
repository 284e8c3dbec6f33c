"""The numba-cuda-mlir front end: Python functions to LTOIR with Numba-CUDA-MLIR, with no GPU and no driver."""

from aotcuda.builder.frontends.numba.units import sources
from aotcuda.builder.frontends.numba_cuda_mlir.compiler import NumbaCudaMlir
from aotcuda.builder.frontends.numba_cuda_mlir.linking import include_dirs

_front_end = NumbaCudaMlir()

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
