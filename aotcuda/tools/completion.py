"""`aotcuda completion`: print a script for a shell to complete commands, options and files."""

from __future__ import annotations

import argparse

from aotcuda.errors import ToolchainError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_FILES = ("TARGET", "OLD", "NEW", "FILE", "WHEEL")
_FOLDERS = ("PROJECT", "DIR")
"""The arguments for which shells complete files or folders, by their names in the help."""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell.

    Raises:
        ToolchainError: shtab, which writes the script, is not installed (the extra `completion`).
    """
    try:
        import shtab  # noqa: PLC0415 (an extra)
    except ImportError as error:
        message = "shtab, which writes the script, is not installed; run: pip install 'aotcuda[completion]'"
        raise ToolchainError(message) from error
    for action in _actions(parser):
        if action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return shtab.complete(parser, shell=shell)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of all its commands."""
    for action in parser._actions:  # noqa: SLF001 (argparse lists them nowhere else)
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from _actions(command)
