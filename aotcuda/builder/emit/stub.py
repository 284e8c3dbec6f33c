"""Write the stub of a generated module, for type checkers and editors: a class for each kernel.

A launch checks more of an argument than a type can express, and a stub must never refuse arguments that a launch
accepts. The stub therefore has one type for each family of numbers and one for arrays. If several overloads
take the same Python types, the stub has the widest.
"""

from __future__ import annotations

import keyword
from typing import TYPE_CHECKING

from aotcuda import manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FAMILIES = ("Integer", "Real", "Complex")  # each accepts the arguments of the previous ones
_BUILTINS = ("bool", "int", "tuple")
_TYPES = {
    "complex": "Complex",
    "small": "Real",
    "pointer": "Pointer",
    "datetime": "NumPyScalar",
    "array": "DeviceArray",
    "record": "DeviceArray",
    "elements": "DeviceArray",
    "buffer": "DeviceArray",
}


class _Names:
    """Names of imports and builtins in a stub, changed where the module exports the usual ones."""

    def __init__(self, exported: Iterable[str]) -> None:
        self._names = {*exported}
        self.typing, self.t = self.unique("typing"), self.unique("_t")
        alias = "" if self.typing == "typing" else f" as {self.typing}"
        self.imports = [f"import typing{alias}", "", "import aotcuda", f"from aotcuda import typing as {self.t}"]
        self._builtins = ""
        if not self._names.isdisjoint(_BUILTINS):
            self._builtins = self.unique("_builtins")
            self.imports.insert(0, f"import builtins as {self._builtins}")

    def unique(self, name: str) -> str:
        """Return `name`, with underscores added until it is unique."""
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def builtin(self, name: str) -> str:
        """Return the name of one of `_BUILTINS`."""
        return f"{self._builtins}.{name}" if self._builtins else name


def render(document: manifest.Manifest, mark: str) -> str:
    """Return the stub's text, which begins with the line `mark`."""
    lines: list[str] = []
    groups = manifest.overload_groups(document)
    names = _Names([*(item["name"] for item in (*document["kernels"], *document["functions"])), *groups])
    for kernel in document["kernels"]:
        lines += [
            "",
            *(_grid_kernel_classes(kernel, names) if document.get("by_grid") else _kernel_classes(kernel, names)),
        ]
    if document["functions"]:
        lines += [""]
    for function in document["functions"]:
        lines += [f"{function['name']}: aotcuda.DeviceFunction", *_docstring([function["prototype"]])]
    for name, functions in groups.items():
        lines += [f"{name}: aotcuda.DeviceFunctionGroup", *_docstring([item["signature"] for item in functions])]
    imports = names.imports if document["kernels"] else ["import aotcuda"]
    return "\n".join([mark, *imports, "", "__aotcuda__: aotcuda.Module", *lines]) + "\n"


def _kernel_classes(kernel: manifest.Kernel, names: _Names) -> list[str]:
    name = kernel["name"]
    launcher, for_all, kernel_class = (names.unique(f"_{name}_{kind}") for kind in ("launcher", "forall", "kernel"))
    t, boolean, integer = names.t, names.builtin("bool"), names.builtin("int")
    index = f"{names.typing}.SupportsIndex"
    calls = _call_methods(kernel["overloads"], names)
    return [
        f"class {launcher}(aotcuda.Launcher):",
        *calls,
        f"class {for_all}(aotcuda.ForAll):",
        *calls,
        f"class {kernel_class}(aotcuda.Kernel):",
        *_kernel_docstring(kernel),
        f"    def __getitem__(self, configuration: {t}.Configuration) -> {launcher}: ...",
        "    def forall(",
        f"        self, n: {index}, block: {integer} | None = ..., stream: {t}.Stream = ..., shared: {integer} = ...",
        f"    ) -> {for_all}: ...",
        "    def configure(",
        "        self,",
        f"        grid: {t}.Dimensions,",
        f"        block: {t}.Dimensions,",
        "        *,",
        f"        stream: {t}.Stream = ...,",
        f"        shared: {integer} = ...,",
        f"        cluster: {t}.Dimensions | None = ...,",
        f"        cooperative: {boolean} = ...,",
        f"        dependent: {boolean} = ...,",
        f"        priority: {integer} | None = ...,",
        f"        carveout: {integer} | None = ...,",
        f"        **unknown: {names.typing}.Never,",
        f"    ) -> {launcher}: ...",
        "",
        f"{name}: {kernel_class}",
    ]


def _grid_kernel_classes(kernel: manifest.Kernel, names: _Names) -> list[str]:
    """Return the classes of a kernel that is launched by its grid, with arguments by position or by name."""
    name = kernel["name"]
    launcher, kernel_class = (names.unique(f"_{name}_{kind}") for kind in ("launcher", "kernel"))
    t = names.t
    parameters = ["self"]
    names_by_position = {argument["name"] for argument in kernel["arguments"] if not argument.get("keyword")}
    for at, argument in enumerate(kernel["arguments"]):
        if argument.get("keyword") and argument["name"] in names_by_position:
            continue  # a parameter with the name of an option accepts both
        types = dict.fromkeys(_type(overload["parameters"][at], names) for overload in kernel["overloads"])
        if argument.get("keyword") and "*" not in parameters:
            parameters.append("*")
        parameters.append(f"{argument['name']}: {' | '.join(types)}{' = ...' if _is_optional(kernel, at) else ''}")
    return [
        f"class {launcher}(aotcuda.GridLauncher):",
        f"    def __call__({', '.join(parameters)}) -> None: ...",
        f"class {kernel_class}(aotcuda.GridKernel):",
        *_kernel_docstring(kernel),
        # Only the type in the brackets differs from a Kernel's.
        f"    def __getitem__(self, grid: {t}.Grid) -> {launcher}: ...  # type: ignore[override]",
        "    def configure(  # type: ignore[override]",
        f"        self, grid: {t}.Grid, block: None = ..., *, stream: {t}.Stream = ..., **others: {names.typing}.Never",
        f"    ) -> {launcher}: ...",
        "",
        f"{name}: {kernel_class}",
    ]


def _is_optional(kernel: manifest.Kernel, at: int) -> bool:
    """Return True if an argument and each positional one after it may be left out."""
    arguments = kernel["arguments"]
    has_default = not arguments[at].keys().isdisjoint(("default", "is_none", "is_not_none")) or all(
        overload["parameters"][at].get("optional") for overload in kernel["overloads"]
    )
    last = at + 1 == len(arguments) or arguments[at].get("keyword") or arguments[at + 1].get("keyword")
    return has_default and (bool(last) or _is_optional(kernel, at + 1))


def _call_methods(overloads: Sequence[manifest.Overload], names: _Names) -> list[str]:
    """Return `__call__` methods for the overloads."""
    rows = [[(item["name"], _type(item, names)) for item in overload["parameters"]] for overload in overloads]
    widest: list[list[tuple[str, str]]] = []
    for row in rows:
        if any(_covers(wider, row) for wider in widest):
            continue
        widest = [wider for wider in widest if not _covers(row, wider)] + [row]
    head = [f"    @{names.typing}.overload"] if len(widest) > 1 else []
    return [line for row in widest for line in (*head, f"    def __call__({', '.join(_parameters(row))}) -> None: ...")]


def _parameters(row: Sequence[tuple[str, str]]) -> list[str]:
    """Return positional-only parameters; a name that Python cannot have becomes the argument's number."""
    names: set[str] = {"self"}
    parameters = ["self"]
    for number, (name, type_) in enumerate(row, 1):
        fits = name.isidentifier() and not keyword.iskeyword(name) and name not in names
        text = name if fits else f"argument_{number}"
        names.add(text)
        parameters.append(f"{text}: {type_}")
    return [*parameters, "/"] if row else parameters


def _type(parameter: manifest.Parameter, names: _Names) -> str:
    """Return the type of a parameter's arguments in the stub."""
    kind = parameter["kind"]
    if kind == "tuple":
        members = ", ".join(_type(member, names) for member in parameter["members"])
        return f"{names.builtin('tuple')}[{members or '()'}]"
    if kind in ("scalar", "number"):
        return f"{names.t}.{'Real' if parameter['format'] in 'efd' else 'Integer'}"
    return f"{names.t}.{_TYPES[kind]}" if kind in _TYPES else f"{names.typing}.Any"


def _covers(wide: Sequence[tuple[str, str]], narrow: Sequence[tuple[str, str]]) -> bool:
    """Return True if a row of parameters accepts all arguments of another row."""
    return len(wide) == len(narrow) and all(
        _accepts(left, right) for (_, left), (_, right) in zip(wide, narrow, strict=True)
    )


def _accepts(wide: str, narrow: str) -> bool:
    families = [text.rpartition(".")[2] for text in (wide, narrow)]
    if all(family in _FAMILIES for family in families):
        return _FAMILIES.index(families[0]) >= _FAMILIES.index(families[1])
    return wide == narrow


def _kernel_docstring(kernel: manifest.Kernel) -> list[str]:
    """Return the docstring of a kernel's class: the source's docstring, and the signatures."""
    lines = _docstring([*kernel.get("doc", "").splitlines(), *(item["signature"] for item in kernel["overloads"])])
    return [f"    {line}" if line else "" for line in lines]


def _docstring(lines: Sequence[str]) -> list[str]:
    """Return lines as a docstring, raw if they have backslashes."""
    text = [line.replace('"""', "'''") for line in lines]
    quotes = 'r"""' if any("\\" in line for line in text) else '"""'
    if len(text) == 1 and not text[0].endswith('"'):
        return [f'{quotes}{text[0]}"""']
    return [f"{quotes}{text[0]}", *text[1:], '"""']
