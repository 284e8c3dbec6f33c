"""The front end for CUDA C++: kernels and device functions in `.cu` files, compiled by NVRTC.

What a kernel takes is not parsed here: NVRTC compiles the files with debug information, which says what each parameter
is (`declarations`), and the table may say more (`parameters`).
"""
