"""The front end for CUDA C++: kernels and device functions in `.cu` files, compiled by NVRTC.

NVRTC compiles the files with debug information, which describes each parameter (`declarations`). The table may add
facts about parameters (`parameters`).
"""
