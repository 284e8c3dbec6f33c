"""`aotcuda init`: write the first tables of a project from its sources."""
