"""What `help` and `inspect.signature` say of a kernel: its author's docstring, its parameters, its signatures."""

from __future__ import annotations

from inspect import Parameter, Signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Kernel


def doc(record: Kernel) -> str:
    """The text for `help`: how it is launched, what its author says, and what it is packaged for."""
    name, overloads = record["name"], record["overloads"]
    calls = dict.fromkeys(", ".join(item["name"] for item in overload["parameters"]) for overload in overloads)
    configuration = "grid" if "arguments" in record else "grid, block"
    parts = ["\n".join(f"{name}[{configuration}]({call})" for call in calls)]
    if record.get("doc"):
        parts.append(record["doc"])
    parts.append("\n".join(["Packaged for:", *(f"    {overload['signature']}" for overload in overloads)]))
    return "\n\n".join(parts)


def signature(record: Kernel) -> Signature:
    """The parameters of a kernel, by position alone; `*args` if its overloads name them differently."""
    names = {tuple(item["name"] for item in overload["parameters"]) for overload in record["overloads"]}
    if len(names) == 1:
        (row,) = names
        types = zip(
            *[[item["type"] for item in overload["parameters"]] for overload in record["overloads"]], strict=True
        )
        shown = [" | ".join(dict.fromkeys(column)) for column in types]
        try:
            return Signature(
                [
                    Parameter(name, Parameter.POSITIONAL_ONLY, annotation=text)
                    for name, text in zip(row, shown, strict=True)
                ]
            )
        except ValueError:  # another front end's names, which are none of Python's
            pass
    return Signature([Parameter("args", Parameter.VAR_POSITIONAL)])
