"""The common part of the two caches on disk: the format of entries, their folder, and the check of its owner.

The key of an entry has the inputs that are known before the work; the entry lists the other inputs, and is used only
while these have not changed.

    runtime/jit         results of the JIT fallback
    builder/build_cache results of builds: whole modules, linked images, compiled units

The run time imports this package, so it imports only a few modules of the standard library.
"""
