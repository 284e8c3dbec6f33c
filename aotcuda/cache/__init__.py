"""The common part of caches on disk: the format of entries, their folder, and trust in it.

There are two, with the same design: an entry is named by what is known beforehand, and is taken only while all else
that it was made from is as it was.

    runtime/jit         what the JIT fallback compiled, one entry for each case
    builder/build_cache what builds made: whole modules, linked images, compiled units

The standard library alone, and little of it: the run time comes here.
"""
