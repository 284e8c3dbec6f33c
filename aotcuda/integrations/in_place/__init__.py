"""Serve `aotcuda.numba` to source modules that are packaged in place, without Numba.

`entry` decides for each importing source if it gets Numba itself or `cuda_module`. `functions` has the results of
`@cuda.jit`, `numba_proxy` imports Numba when a program needs it, and `gpus` answers GPU queries with the driver. A
kernel finds its packaged overloads at its first launch (`lookup`, `sources`, `kernel`).
"""
