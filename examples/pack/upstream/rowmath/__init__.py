"""A package of another project, with a Triton kernel."""
