"""Record kernels in CUDA C++ that a program compiles and launches by another library.

A record has a kernel's source text, its name with the arguments of a template, and the options of its compiler.
"""

from __future__ import annotations

import hashlib

from aotcuda_recorder import dry, functions, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def record(
    text: str,
    name: str,
    arguments: tuple[object, ...],
    *,
    options: Sequence[str] = (),
    made: str = "",
    cooperative: bool = False,
    parameters: Mapping[str, str] | None = None,
) -> None:
    """Record a launch that is not executed.

    Args:
        text: The source text.
        name: The kernel's name, or the instance of a template.
        arguments: The arguments.
        options: The options of NVRTC.
        made: `file:line` of the program where it passes the text to a library.
        cooperative: True for a launch of which all blocks run at once.
        parameters: The types or sizes that the table of the kernel needs, by parameter.
    """
    with log.guard("the arrays of a launch cannot be read"):
        dry.mark_arrays_written(arguments)
    facts: dict[str, object] = {
        "kind": "cuda-cpp",
        "digest": hashlib.sha256("\n".join(text.splitlines()).encode()).hexdigest(),
        "name": name,
        "options": list(options),
        "types": [_type(value) for value in arguments],
        "made": made,
        "cooperative": cooperative,
        "parameters": dict(parameters or {}),
    }
    log.entry(facts, lambda: {"site": functions.site(), "text": text}).count(dry.LABEL, dry.LABEL.__str__)


def _type(value: object) -> str:
    """Return the type of an argument by NumPy's name; `[]` marks an array."""
    name = str(getattr(getattr(value, "dtype", None), "name", None) or type(value).__name__)
    is_array = hasattr(value, "__cuda_array_interface__") or hasattr(value, "untyped_storage")
    return f"{name.rpartition('.')[2]}[]" if is_array else name
