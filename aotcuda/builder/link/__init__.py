"""Everything that NVIDIA's tools make of compiled parts: NVRTC, nvJitLink, nvFatbin, and the checks before them."""
