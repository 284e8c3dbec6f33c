"""`aotcuda record`: run a command and record the kernels that it launches, as tables for pyproject.toml.

`inject/` runs in the recorded processes. It imports only the standard library, because aotcuda may not be installed in
their environment. The other modules run in the process of `aotcuda record`, and import neither Numba nor the project.
"""
