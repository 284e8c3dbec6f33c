"""`[tool.aotcuda]`: its tables, what each key takes, and what can be wrong between keys."""
