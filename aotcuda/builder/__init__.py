"""The build: from `[tool.aotcuda]` to the files that a wheel gains. Heavy; its imports are the `cu13` extra."""
