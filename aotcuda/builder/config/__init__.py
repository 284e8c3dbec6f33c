"""`[tool.aotcuda]`: its tables and keys, and checks of keys and of their combinations."""
