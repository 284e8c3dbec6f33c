"""`aotcuda check`: predict which GPUs and drivers run a packaged module.

`gpus` finds a GPU by name, `predict` predicts the image of a module for a pair of a GPU and a driver, `check` is the
command. Nothing here needs a GPU, a driver or a compiler.
"""
