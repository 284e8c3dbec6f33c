"""Formulas as kernels, for aotcuda. This module is imported for the name alone; the others by builds."""

from aotcuda.registry import Registration

FRONT_END = Registration(
    "elementwise",
    tables="elementwise_frontend.tables",
    compiler="elementwise_frontend.compiler",
    requires="elementwise-frontend",
    distributions=("elementwise_frontend",),
    kernel_abi="c",
)
