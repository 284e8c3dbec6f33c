"""Small modules that the builder, the run time and the tools share."""
