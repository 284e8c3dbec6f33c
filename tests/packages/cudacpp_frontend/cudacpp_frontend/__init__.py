"""CUDA C++ kernels for aotcuda. This module is imported for the name alone; the others by builds."""

from aotcuda.frontends import Registration

FRONT_END = Registration(
    "cuda-cpp",
    tables="cudacpp_frontend.tables",
    compiler="cudacpp_frontend.compiler",
    requires="cudacpp-frontend",
    distributions=("cudacpp_frontend",),
    kernel_abi="c",
)
