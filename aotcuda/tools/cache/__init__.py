"""`aotcuda cache`: list the caches and fill the cache of the JIT fallback."""
