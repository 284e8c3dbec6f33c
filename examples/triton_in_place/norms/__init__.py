"""Normalisation of rows, by a Triton kernel that is packaged in place."""
