"""Entry points of builds: build back ends, `aotcuda build`, and the JIT fallback."""
