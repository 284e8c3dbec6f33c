"""The numba-cuda front end: Python functions to LTOIR with Numba-CUDA, with no GPU and no driver."""

from aotcuda.build.frontends.numba_cuda.compiler import (
    compile_function,
    compile_kernel,
    include_dirs,
    merge_functions,
    prepare,
    resolve,
)

__all__ = ["compile_function", "compile_kernel", "include_dirs", "merge_functions", "prepare", "resolve"]
