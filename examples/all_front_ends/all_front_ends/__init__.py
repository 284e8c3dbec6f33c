"""Kernels of every front end in one wheel; modules are named after their content, not after their compilers."""
