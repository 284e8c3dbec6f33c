"""The layout of a project, the content of its wheel, and the modules that it links."""
