"""A front end of aotcuda that compiles formulas. Builds import the other modules; every lookup imports this one."""

from aotcuda.registry import Registration

FRONT_END = Registration(
    "elementwise",
    tables="elementwise_frontend.tables",
    compiler="elementwise_frontend.compiler:FRONT_END",
    requires="elementwise-frontend",
    distributions=("elementwise_frontend",),
    kernel_abi="c",
)
