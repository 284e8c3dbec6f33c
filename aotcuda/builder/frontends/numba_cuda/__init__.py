"""The numba-cuda front end: Python functions to LTOIR with Numba-CUDA, with no GPU and no driver."""

# Puts numba-cuda in the place of the numba.cuda that numba has of its own. Its .pth file does the same, but only in
# folders where Python reads such files.
import _numba_cuda_redirector  # type: ignore[import-untyped]  # noqa: F401

from aotcuda.builder.frontends.numba_cuda import lazy_imports

with lazy_imports.left_out():
    import numba.cuda  # noqa: F401  # everything here imports it
