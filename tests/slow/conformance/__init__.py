"""The conformance suite: small kernels that a front end for Python has to compile correctly.

`cases` is the table, `reference` computes the correct arrays of a case, `project` makes wheels of the cases, `outcome`
runs a case on a GPU and compares, and `host` runs a case on the CPU. `bench/conformance.py` runs all cases on a GPU.
"""
