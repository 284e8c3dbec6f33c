"""The JIT fallback: what it builds from, its cache, and when an entry is still good."""
