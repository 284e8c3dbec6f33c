"""The numba-cuda-mlir front end: Python functions to LTOIR with Numba-CUDA-MLIR, with no GPU and no driver."""
