"""Raise several errors of a build as one: the first in full, and below it a line for each other."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from aotcuda.errors import AotcudaError, SourceError, ToolchainError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager


@contextmanager
def gather() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Yield a context manager for attempts, `with attempt():`, and raise their errors together at the end.

    Raises:
        AotcudaError: `join` of the errors of all attempts.
    """
    errors: list[AotcudaError] = []

    @contextmanager
    def attempt() -> Iterator[None]:
        try:
            yield
        except AotcudaError as error:
            errors.append(error)

    yield attempt
    if errors:
        raise join(errors)


def join(errors: Sequence[AotcudaError]) -> AotcudaError:
    """Return one error for several, at least one; errors with the same fault or the same first line are counted."""
    first = errors[0]
    groups: dict[str, dict[str, AotcudaError]] = {}
    for error in errors:
        line = str(error).partition("\n")[0]
        groups.setdefault(getattr(error, "fault", "") or line, {}).setdefault(line, error)
    lines: list[str] = []
    for lines_of_group in groups.values():
        line, error = next(iter(lines_of_group.items()))
        text = line if lines else str(first)
        repetitions = len(lines_of_group) - 1
        nouns = {SourceError: "module", ToolchainError: "front end"}
        noun = next((f"{name}{'s' * (repetitions > 1)}" for kind, name in nouns.items() if isinstance(error, kind)), "")
        noun = noun or "of its variants and targets"
        lines.append(f"{text}; the same error occurs for {repetitions} more {noun}" if repetitions else text)
    return first if lines == [str(first)] else type(first)("\n".join(lines))
