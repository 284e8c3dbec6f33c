"""The conformance suite: small kernels whose results a front end that compiles Python has to get right.

`cases` is the table, `reference` computes what each case must leave in its arrays, `project` makes wheels of the cases,
and `outcome` runs one case and compares. `bench/conformance.py` runs all of them on a GPU.
"""
