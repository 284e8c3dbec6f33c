"""The front end for Triton: `@triton.jit` kernels, compiled by Triton itself down to machine code."""
