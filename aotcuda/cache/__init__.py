"""The common part of the two caches on disk: the format of entries, their folder, and the check of its owner.

The key of an entry is a digest of the inputs that are known before a build. The entry lists the inputs that the build
has found, and is used only while they have not changed.

    runtime/jit         results of the JIT fallback
    builder/build_cache results of builds: whole modules, linked images, compiled units

The run time imports this package, which therefore imports only a few modules of the standard library.
"""
