"""A debug build: what its kernels raise is raised on the host."""
