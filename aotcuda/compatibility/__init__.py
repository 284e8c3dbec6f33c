"""What packaged images run on: facts of GPUs, drivers and toolkits (data.toml), and what they say of a wheel.

`tables` reads the facts, `gpus` finds a GPU by the name that somebody wrote, `predict` tells what a pair of a GPU and a
driver takes from a module, `check` is the command. Nothing here needs a GPU, a driver or a compiler.
"""
