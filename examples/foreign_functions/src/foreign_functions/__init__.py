"""Python kernels that call CUDA C++, compiled together when the wheel is built."""
