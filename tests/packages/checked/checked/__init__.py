"""A debug build: exceptions of its kernels are raised on the host."""
