"""Make the texts of `help` and `inspect.signature` for a kernel: docstring, parameters, signatures."""

from __future__ import annotations

from inspect import Parameter, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ...manifest import Argument, Kernel
    from ...manifest import Parameter as Described


def doc(record: Kernel) -> str:
    """Return the text for `help`: launch expressions, docstring and packaged signatures."""
    name, overloads = record["name"], record["overloads"]
    if "arguments" in record:
        configuration = "grid"
        arguments = [f"{item['name']}{'=...' if item.get('keyword') else ''}" for item in record["arguments"]]
        calls = {", ".join(arguments): None}
    else:
        configuration = "grid, block"
        calls = dict.fromkeys(", ".join(item["name"] for item in overload["parameters"]) for overload in overloads)
    parts = ["\n".join(f"{name}[{configuration}]({call})" for call in calls)]
    if record.get("doc"):
        parts.append(record["doc"])
    parts.append("Packaged for::")  # a literal block for Sphinx, to which C++'s and Triton's * would mean emphasis
    parts.append("\n".join(f"    {overload['signature']}" for overload in overloads))
    return "\n\n".join(parts)


def signature(record: Kernel) -> Signature:
    """Return the signature of a kernel; `*args` if its overloads name parameters differently, or as Python cannot.

    Kernels that are launched by their grid accept arguments by name; other kernels accept only positional arguments.
    """
    names = {tuple(item["name"] for item in overload["parameters"]) for overload in record["overloads"]}
    if len(names) == 1:
        columns = zip(*[overload["parameters"] for overload in record["overloads"]], strict=True)
        try:
            if "arguments" in record:
                return Signature([_argument(*pair) for pair in zip(record["arguments"], columns, strict=True)])
            return Signature([_parameter(column[0]["name"], Parameter.POSITIONAL_ONLY, column) for column in columns])
        except ValueError:  # a name that is no identifier in Python
            pass
    return Signature([Parameter("args", Parameter.VAR_POSITIONAL)])


def _argument(argument: Argument, column: Sequence[Described]) -> Parameter:
    """Return a parameter with its default: the default of the source, or None for the variant's own value."""
    kind = Parameter.KEYWORD_ONLY if argument.get("keyword") else Parameter.POSITIONAL_OR_KEYWORD
    default = None if all(item.get("optional") for item in column) else Parameter.empty
    return _parameter(argument["name"], kind, column).replace(default=argument.get("default", default))


def _parameter(name: str, kind: Any, column: Sequence[Described]) -> Parameter:
    types = [repr(item["value"]) if item["kind"] == "constant" else item["type"] for item in column]
    return Parameter(name, kind, annotation=" | ".join(dict.fromkeys(types)))
