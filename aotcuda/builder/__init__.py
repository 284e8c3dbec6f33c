"""The build: from `[tool.aotcuda]` to the files of a wheel. It imports packages of the extras with compilers."""
