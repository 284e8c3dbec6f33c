"""Triton modules that are packaged in place: `aotcuda.triton` for them.

`entry` decides for each importing module if it gets Triton itself or the module that `facade` makes. `functions` has
the subclasses of Triton's classes that decorators return, `kernel` the packaged kernel that they launch (`find` looks
it up), `tuning` the configs that autotuners take without timing any. `private_parts` lists what all of them use of
Triton's private parts. `without_triton` has light classes in the place of Triton's where that is not installed.
"""
