"""The build cache: complete builds and results of code generators, in a folder."""
