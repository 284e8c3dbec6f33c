"""NVRTC, nvJitLink and nvFatbin, and the checks before them."""
