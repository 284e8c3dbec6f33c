"""Kernels that stand beside the code that launches them: what `aotcuda.numba` is where the package was built.

`entry` decides, for each source that imports it, whether that gets Numba itself or what stands for it here. What stands
for it is light: `functions` is what `@cuda.jit` makes, `deferred` what is Numba's own and is had when it is needed,
`gpus` what the driver answers. A kernel finds its packaged one when it is first launched (`sources`, `kernel`).
"""
