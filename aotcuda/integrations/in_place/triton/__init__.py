"""Serve `aotcuda.triton` to Triton modules that are packaged in place.

`entry` decides for each importing module if it gets Triton itself or the module that `facade` makes. `functions` has
the subclasses of Triton's classes that decorators return. `find` finds the packaged kernel that they launch (`kernel`).
`tuning` chooses configs for autotuners from a table. `private_parts` lists the private parts of Triton that this
package uses. `without_triton` has light classes that replace Triton's where Triton is not installed.
"""
