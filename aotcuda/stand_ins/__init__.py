"""Stand in for the GPU that is not there: one description, and libraries that answer by it.

Dry runs of `aotcuda record`, builds that import sources, and `aotcuda check` use these modules. They import the
standard library and each other alone: the recorder loads the folder in environments without aotcuda.
"""
