"""The build: from `[tool.aotcuda]` to the files that a wheel gains. Heavy; its imports are those of build extras."""
