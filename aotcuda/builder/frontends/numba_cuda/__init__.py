"""The front end numba-cuda: compile Python functions to LTOIR by Numba-CUDA, without GPU and driver."""

# Replaces the module numba.cuda of Numba by Numba-CUDA's. Its .pth file does the same, but only in folders where Python
# reads such files.
import _numba_cuda_redirector  # type: ignore[import-untyped]  # noqa: F401
import numba.cuda  # noqa: F401  # before all submodules of this package
