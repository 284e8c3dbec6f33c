"""The build cache: whole builds and results of code generators, in a folder and at a URL."""
