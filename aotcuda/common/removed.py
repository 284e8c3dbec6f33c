"""List what earlier versions of aotcuda had and this one refuses, each with what replaces it.

The error about a removed thing is one line. `tests/unit/test_removed.py` tries every row.
"""

from __future__ import annotations

COMMANDS = {
    "completion": "aotcuda --help and aotcuda COMMAND --help list the commands and options",
    "join": "keep the full wheel: aotcuda split does not change it",
}
"""Removed commands."""

OPTIONS = {
    ("build", "--expect"): "remove the option, and check the finished wheel: aotcuda inspect WHEEL lists its modules",
    ("build", "--rebuild-missing"): "remove the option, because the rule of --depfile with --stamp names all outputs",
    (
        "inspect",
        "--filter",
    ): "write aotcuda inspect WHEEL --summary | grep NAME",
    (
        "inspect",
        "--sort",
    ): "write aotcuda inspect WHEEL --summary | sort -n -k 2",
    ("record", "--execute"): "record with --dry, which executes no launch, or run the command on a machine with a GPU",
}
"""Removed options, by command."""

VALUES = {
    ("AOTCUDA_BUILD_CACHE", "://"): (
        "name a folder, and copy the folder before and after builds with actions/cache, aws s3 sync or rclone"
    ),
}
"""Removed values of environment variables, by the variable and a text that the values contain."""

SIMULATED = {
    "python": "launch the kernels of its source, {origins}, or package that module in place",
    "cuda-cpp": "unset NUMBA_ENABLE_CUDASIM",
}
"""The remedies for generated modules in Numba's simulator, by the language of their sources, the `origins`."""


def command_problem(command: str) -> str | None:
    """Return the error about a removed command; None for any other word."""
    return f"{command} was removed; {COMMANDS[command]}" if command in COMMANDS else None


def value_problem(variable: str, value: str) -> str | None:
    """Return the error about a removed value of an environment variable; None for any other value.

    The error does not show the value, because URLs may contain passwords.
    """
    for (name, part), replacement in VALUES.items():
        if name == variable and part in value:
            return f"{variable}: values with {part} were removed; {replacement}"
    return None
