"""The stub of a generated module, for type checkers and editors: a class for each kernel, with its parameters.

What a launch checks of an argument is more than a type can say, and a stub must never refuse what a launch takes of the
types that `aotcuda.typing` names. So the stub knows numbers by their family and arrays as arrays, and of several
overloads whose arguments it cannot tell apart it has the widest.
"""

from __future__ import annotations

import keyword
from typing import TYPE_CHECKING

from aotcuda import manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

_FAMILIES = ("_t.Integer", "_t.Real", "_t.Complex")  # each takes what those before it do
_TYPES = {
    "complex": "_t.Complex",
    "pointer": "_t.Pointer",
    "datetime": "_t.NumPyScalar",
    "array": "_t.DeviceArray",
    "record": "_t.DeviceArray",
    "elements": "_t.DeviceArray",
    "buffer": "_t.DeviceArray",
}


def render(whole: manifest.Manifest, mark: str) -> str:
    """The stub's text, which begins with the line `mark`."""
    lines: list[str] = []
    for kernel in whole["kernels"]:
        lines += ["", *(_by_grid(kernel) if whole.get("by_grid") else _kernel(kernel))]
    if whole["functions"]:
        lines += [""]
    for function in whole["functions"]:
        lines += [f"{function['name']}: aotcuda.DeviceFunction", *_docstring([function["prototype"]])]
    for name, functions in manifest.overloaded(whole).items():
        lines += [f"{name}: aotcuda.DeviceFunctionGroup", *_docstring([item["signature"] for item in functions])]
    imports = ["import aotcuda"]
    if whole["kernels"]:
        imports = ["import typing", "", *imports, "from aotcuda import typing as _t"]
    return "\n".join([mark, *imports, "", "__aotcuda__: aotcuda.Module", *lines]) + "\n"


def _kernel(kernel: manifest.Kernel) -> list[str]:
    name = kernel["name"]
    launcher, over, own = f"_{name}_launcher", f"_{name}_forall", f"_{name}_kernel"
    calls = _calls(kernel["overloads"])
    told = [*kernel.get("doc", "").splitlines(), *[item["signature"] for item in kernel["overloads"]]]
    return [
        f"class {launcher}(aotcuda.Launcher):",
        *calls,
        f"class {over}(aotcuda.ForAll):",
        *calls,
        f"class {own}(aotcuda.Kernel):",
        *(f"    {line}" if line else "" for line in _docstring(told)),
        f"    def __getitem__(self, configuration: _t.Configuration) -> {launcher}: ...",
        "    def forall(",
        "        self, n: typing.SupportsIndex, block: int | None = ..., stream: _t.Stream = ..., shared: int = ...",
        f"    ) -> {over}: ...",
        "    def configure(",
        "        self,",
        "        grid: _t.Dimensions,",
        "        block: _t.Dimensions,",
        "        *,",
        "        stream: _t.Stream = ...,",
        "        shared: int = ...,",
        "        cluster: _t.Dimensions | None = ...,",
        "        cooperative: bool = ...,",
        "        dependent: bool = ...,",
        "        priority: int | None = ...,",
        "        carveout: int | None = ...,",
        "        **unknown: typing.Never,",
        f"    ) -> {launcher}: ...",
        "",
        f"{name}: {own}",
    ]


def _by_grid(kernel: manifest.Kernel) -> list[str]:
    """The classes of a kernel that is launched by its grid, with arguments by position or by name."""
    name = kernel["name"]
    launcher, own = f"_{name}_launcher", f"_{name}_kernel"
    told = [*kernel.get("doc", "").splitlines(), *[item["signature"] for item in kernel["overloads"]]]
    parameters = ["self"]
    for at, argument in enumerate(kernel["arguments"]):
        types = dict.fromkeys(_type(overload["parameters"][at]) for overload in kernel["overloads"])
        if argument.get("keyword") and "*" not in parameters:
            parameters.append("*")
        parameters.append(f"{argument['name']}: {' | '.join(types)}{' = ...' if _may_be_left_out(kernel, at) else ''}")
    return [
        f"class {launcher}(aotcuda.GridLauncher):",
        f"    def __call__({', '.join(parameters)}) -> None: ...",
        f"class {own}(aotcuda.GridKernel):",
        *(f"    {line}" if line else "" for line in _docstring(told)),
        # Its brackets hold something else than a Kernel's, which it is in all other ways.
        f"    def __getitem__(self, grid: _t.Grid) -> {launcher}: ...  # type: ignore[override]",
        "    def configure(  # type: ignore[override]",
        "        self, grid: _t.Grid, block: None = ..., *, stream: _t.Stream = ..., **others: typing.Never",
        f"    ) -> {launcher}: ...",
        "",
        f"{name}: {own}",
    ]


def _may_be_left_out(kernel: manifest.Kernel, at: int) -> bool:
    """Whether an argument, and each positional one after it, has a default or is what the variant has."""
    arguments = kernel["arguments"]
    has = "default" in arguments[at] or all(
        overload["parameters"][at].get("optional") for overload in kernel["overloads"]
    )
    last = at + 1 == len(arguments) or arguments[at].get("keyword") or arguments[at + 1].get("keyword")
    return has and (bool(last) or _may_be_left_out(kernel, at + 1))


def _calls(overloads: Sequence[manifest.Overload]) -> list[str]:
    """The methods `__call__` that take what the overloads do."""
    rows = [[(item["name"], _type(item)) for item in overload["parameters"]] for overload in overloads]
    widest: list[list[tuple[str, str]]] = []
    for row in rows:
        if any(_covers(other, row) for other in widest):
            continue
        widest = [other for other in widest if not _covers(row, other)] + [row]
    head = ["    @typing.overload"] if len(widest) > 1 else []
    return [line for row in widest for line in (*head, f"    def __call__({', '.join(_parameters(row))}) -> None: ...")]


def _parameters(row: Sequence[tuple[str, str]]) -> list[str]:
    """The parameters of a method, by position alone; a name that cannot be one becomes the argument's number."""
    taken: set[str] = {"self"}
    found = ["self"]
    for number, (name, type_) in enumerate(row, 1):
        fits = name.isidentifier() and not keyword.iskeyword(name) and name not in taken
        shown = name if fits else f"argument_{number}"
        taken.add(shown)
        found.append(f"{shown}: {type_}")
    return [*found, "/"] if row else found


def _type(parameter: manifest.Parameter) -> str:
    """The type of a parameter's arguments, as the stub writes it."""
    kind = parameter["kind"]
    if kind == "tuple":
        return f"tuple[{', '.join(map(_type, parameter['members'])) or '()'}]"
    if kind in ("scalar", "number"):
        return "_t.Real" if parameter["format"] in "efd" else "_t.Integer"
    return _TYPES.get(kind, "typing.Any")


def _covers(wide: Sequence[tuple[str, str]], narrow: Sequence[tuple[str, str]]) -> bool:
    """Whether a row of parameters takes all that another one does."""
    return len(wide) == len(narrow) and all(
        _takes(left, right) for (_, left), (_, right) in zip(wide, narrow, strict=True)
    )


def _takes(wide: str, narrow: str) -> bool:
    if wide in _FAMILIES and narrow in _FAMILIES:
        return _FAMILIES.index(wide) >= _FAMILIES.index(narrow)
    return wide == narrow


def _docstring(lines: Sequence[str]) -> list[str]:
    """Lines as a docstring, raw where they have backslashes."""
    text = [line.replace('"""', "'''") for line in lines]
    quotes = 'r"""' if any("\\" in line for line in text) else '"""'
    if len(text) == 1 and not text[0].endswith('"'):
        return [f'{quotes}{text[0]}"""']
    return [f"{quotes}{text[0]}", *text[1:], '"""']
