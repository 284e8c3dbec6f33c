"""The numba-cuda-mlir front end: Python functions to LTOIR with Numba-CUDA-MLIR, with no GPU and no driver."""

from aotcuda.builder.frontends.numba.units import sources
from aotcuda.builder.frontends.numba_cuda_mlir.compiler import (
    compile_function,
    compile_kernel,
    merge_functions,
    prepare,
    resolve,
)
from aotcuda.builder.frontends.numba_cuda_mlir.linking import include_dirs
from aotcuda.builder.frontends.python_source import load

__all__ = [
    "compile_function",
    "compile_kernel",
    "include_dirs",
    "load",
    "merge_functions",
    "prepare",
    "resolve",
    "sources",
]
