"""Kernels of every front end in one wheel; each module is named after what it has, not after its compiler."""
