"""The front end for CUDA C++: kernels and device functions in `.cu` files, compiled by NVRTC.

Declarations are not parsed here: NVRTC compiles the files with debug information, which describes each parameter
    (`declarations`), and the table may add to it (`parameters`).
"""
