"""Look through the decorators around a `@triton.jit` function: autotuners and heuristics of Triton or of packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotcuda.common.heuristics import computed_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.common.heuristics import Question

_DEEPEST = 32
"""The most decorators around one function. The limit ends the search for an object that is its own `fn`."""


def layers(value: Any) -> tuple[list[Any], Any]:
    """Return the objects of decorators around a function, the outermost first, and the innermost object.

    The object of a decorator has the inner object as `fn` and a method `run`, as Triton's `KernelInterface`.
    """
    from triton.runtime import JITFunction  # noqa: PLC0415 (imported at the first use)

    objects: list[Any] = []
    while not isinstance(value, JITFunction) and hasattr(value, "fn") and hasattr(value, "run"):
        if len(objects) == _DEEPEST:
            break
        objects.append(value)
        value = value.fn
    return objects, value


def tuners(decorators: Sequence[Any]) -> list[Any]:
    """Return the autotuners among objects of decorators: objects whose `configs` have `kwargs`."""
    return [
        item
        for item in decorators
        if isinstance(getattr(item, "configs", None), list | tuple)
        and all(isinstance(getattr(config, "kwargs", None), dict) for config in item.configs)
    ]


def heuristics(decorators: Sequence[Any]) -> dict[str, Question | None]:
    """Return the result of `aotcuda.common.heuristics.computed_arguments` for objects of decorators."""
    from triton.runtime.autotuner import Heuristics  # noqa: PLC0415 (imported at the first use)

    return computed_arguments(decorators, Heuristics)
