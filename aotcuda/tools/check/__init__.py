"""`aotcuda check`: predict which GPUs and drivers run a packaged module.

`gpus` finds a GPU by the name that somebody wrote, `predict` tells what a pair of a GPU and a driver takes from a
module, `check` is the command. Nothing here needs a GPU, a driver or a compiler.
"""
