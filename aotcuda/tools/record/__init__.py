"""`aotcuda record`: run a command and record the kernels that it launches, as tables for pyproject.toml.

`inject/` runs in the recorded processes and imports only the standard library: they may run in another
environment than this one. The rest runs in the process of `aotcuda record`, and imports neither Numba nor the project.
"""
