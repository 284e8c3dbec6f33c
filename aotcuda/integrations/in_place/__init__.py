"""Source modules that are packaged in place: `aotcuda.numba` for them, without Numba.

`entry` decides for each importing source if it gets Numba itself or the replacement here (`cuda_module`). `functions`
has the results of `@cuda.jit`, `numba_proxy` imports Numba when a program needs it, `gpus` answers GPU queries by the
driver. A kernel finds its packaged overloads at its first launch (`lookup`, `sources`, `kernel`).
"""
