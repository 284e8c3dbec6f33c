"""Turn launches of kernels in CUDA C++ into `.cu` files and entries of tables: kernels, instances, options."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from aotcuda.common import foreign, project_file
from aotcuda.common.replacing import replacing
from aotcuda.errors import ConfigError
from aotcuda.tools.record import pyproject
from aotcuda.tools.record.project import is_test, sources_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aotcuda.tools.record.collect import CudaCppLaunches
    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.pyproject import Editor

_FOLDER = "csrc"
"""The folder for texts of programs."""

_SUFFIX = "_cuda"
"""The end of a module's name that is made from the name of the Python module with the text."""

_BY_DEFAULT = re.compile(r"-{1,2}std=c\+\+(11|14|17)")
"""The option for a standard that NVRTC's default, C++17, contains."""

_IGNORED = re.compile(r"-(G|lineinfo|I.*|-?generate-line-info|-?device-debug|-?gpu-architecture=.*|arch=.*)")
"""Options that builds set themselves, and folders of headers of the program's machine."""

_BYTES = re.compile(r"(const\s+)?((un)?signed\s+)?char\s*(const\s*)?\*|(const\s+)?u?int8_t\s*\*")
"""Pointers to bytes, which take arrays of truth values if the table says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCppAddition:
    """The missing entries of a table for one kernel.

    Attributes:
        module: The module.
        source: The `.cu` file.
        kernel: Its name.
        instances: The template instances that are missing; empty for a kernel that is no template.
        made: `file:line` of the program where it passes the text to a library; empty for a file of the project.
        text: The content of a new file; empty for a file of the project.
        options: The `options` of a new module.
        more: Further keys of a new kernel.
        surplus: The number of arguments that its launches pass beyond its parameters.
    """

    module: str
    source: str
    kernel: str
    instances: tuple[str, ...]
    made: str = ""
    text: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    surplus: int = 0

    @property
    def value(self) -> dict[str, Any]:
        """Return the value of a new kernel's key."""
        return ({"instances": list(self.instances)} if self.instances else {}) | self.more


def plan(launches: Iterable[CudaCppLaunches], project: Project) -> tuple[list[CudaCppAddition], list[str]]:
    """Return the missing entries, and a line for each kernel that belongs to tests or to other packages."""
    launches = list(launches)
    files: dict[str | None, str] = {}
    for file in project.cuda_files() if launches else ():
        files.setdefault(_digest(project, file), file)
    new: set[str] = set()
    modules: dict[tuple[str, tuple[str, ...]], tuple[str, str]] = {}
    groups: dict[tuple[str, str, str], list[CudaCppLaunches]] = {}
    left_out = []
    for item in launches:
        source = item.made.rpartition(":")[0]
        if item.digest not in files and (PurePosixPath(source).is_absolute() or is_test(source)):
            whose = "the tests" if is_test(source) else "another package"
            launched = f"({item.count} launch{'es' * (item.count != 1)})"
            left_out.append(f"{item.site}: {item.name}: its CUDA C++ belongs to {whose} {launched}")
            continue
        key = (item.digest, _kept(item.options))
        if item.digest not in files:
            files[item.digest] = _new_file(project, item.made, files.values())
            new.add(item.digest)
        if key not in modules:
            base = _base(project, item.made, files[item.digest], is_new=item.digest in new)
            modules[key] = _module(project, files[item.digest], item, base, modules.values()), files[item.digest]
        groups.setdefault((*modules[key], item.name.partition("<")[0].strip()), []).append(item)
    additions = (
        _addition(project, module, file, name, items, is_new=items[0].digest in new)
        for (module, file, name), items in sorted(groups.items(), key=lambda group: group[0])
    )
    return [item for item in additions if item is not None], left_out


def write_files(project: Project, additions: Iterable[CudaCppAddition]) -> list[str]:
    """Write the texts of new files, and return their paths. An existing file stays.

    Raises:
        ConfigError: A file cannot be written.
    """
    texts = {item.source: item.text for item in additions if item.text}
    for source, text in texts.items():
        path = project.root / source
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                partial.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
        except OSError as error:
            message = f"{path} cannot be written ({error.strerror}); pyproject.toml was not changed"
            raise ConfigError(message) from error
    return list(texts)


def add_kernels(editor: Editor, additions: Iterable[CudaCppAddition]) -> None:
    """Add the missing entries to the tables."""
    modules: dict[str, list[CudaCppAddition]] = {}
    for item in additions:
        modules.setdefault(item.module, []).append(item)
    for module, items in modules.items():
        keys = ("tool", "aotcuda", "modules", module)
        if editor.get(keys) is None:
            options = {"options": items[0].options} if items[0].options else {}
            editor.add_table(keys, {"source": items[0].source, "frontend": "cuda-cpp", **options})
        entries = project_file.table(editor.get((*keys, "kernels")))
        new = {item.kernel: item.value for item in items if item.kernel not in entries}
        pyproject.add_entries(editor, (*keys, "kernels"), new)
        for item in items:
            if "instances" in project_file.table(entries, item.kernel):
                editor.extend((*keys, "kernels", item.kernel, "instances"), list(item.instances))
            elif item.kernel in entries:
                editor.add_keys((*keys, "kernels", item.kernel), {"instances": list(item.instances)})


def describe(additions: Iterable[CudaCppAddition]) -> list[str]:
    """Return a line for each addition."""
    return [
        f'tool.aotcuda.modules."{item.module}".kernels.{pyproject.quote_key(item.kernel)}'
        f"{': ' if item.instances else ''}{', '.join(item.instances)}"
        for item in additions
    ]


def remaining_steps(additions: Sequence[CudaCppAddition]) -> list[str]:
    """Return a line for each place of the program that compiles a text which is packaged now."""
    places: dict[tuple[str, str], list[CudaCppAddition]] = {}
    for item in additions:
        if item.text:
            places.setdefault((item.made, item.module), []).append(item)
    return [
        f"to do: {made}: launch the kernels of {module}: import {module} as k, and write "
        f"k.{items[0].kernel}[grid, block](...)"
        + "".join(
            f"; {item.kernel} has {item.surplus} parameter{'s' * (item.surplus > 1)} less than its launches have "
            "arguments: leave the last ones out"
            for item in items
            if item.surplus
        )
        for (made, module), items in places.items()
    ]


def _kept(options: Iterable[str]) -> tuple[str, ...]:
    """Return the options that a table holds."""
    return tuple(word for word in options if not _BY_DEFAULT.fullmatch(word) and not _IGNORED.fullmatch(word))


def _settings(options: Sequence[str]) -> dict[str, Any]:
    """Return the `options` of a module for options of NVRTC."""
    settings: dict[str, Any] = {}
    words = iter(options)
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        if word.startswith(("-D", "--define-macro")):
            macro = next(words, "") if word in ("-D", "--define-macro") else word
            macro = macro.removeprefix("-D").removeprefix("--define-macro=")
            name, equals, value = macro.partition("=")
            settings.setdefault("defines", {})[name] = value if equals else "1"
        elif name in ("use_fast_math", "fmad") and value != "true":
            settings |= {"fastmath": True} if name == "use_fast_math" else {"fma": False}
        elif name == "maxrregcount" and value.isdigit():
            settings["max-registers"] = int(value)
        else:
            settings.setdefault("nvrtc-options", []).append(word)
    return settings


def _digest(project: Project, file: str) -> str | None:
    """Return the digest of a file's text, as the recorder computes it for a program's text."""
    try:
        text = foreign.content(project.root / file).decode()
    except (foreign.UnreadableError, UnicodeDecodeError):
        return None
    return hashlib.sha256("\n".join(text.splitlines()).encode()).hexdigest()


def _module(project: Project, file: str, item: CudaCppLaunches, base: str, taken: Iterable[tuple[str, str]]) -> str:
    """Return the module of a file with the options of a launch: one of the project, or a new one."""
    wanted = _settings(_kept(item.options)).get("defines", {})
    for name, module in project.modules.items():
        defines = project_file.table(module, "options", "defines")
        if sources_of(module) == [file] and {key: str(value) for key, value in defines.items()} == wanted:
            return name
    names = {*project.modules, *(name for name, _ in taken)}
    return next(name for name in _numbered(base) if name not in names)


def _base(project: Project, made: str, file: str, *, is_new: bool) -> str:
    """Return a name for a new module, after the Python module with the text or after a file of the project."""
    modules = {path: name for name, path in project.python_files()}
    python = made.rpartition(":")[0]
    inside = modules.get(project.root / python, "")
    if is_new and "." in inside:
        return inside + _SUFFIX
    packages = (name.partition(".")[0] for path, name in modules.items() if path.parent != project.root)
    stem = PurePosixPath(python).stem + _SUFFIX if is_new else PurePosixPath(file).stem
    return f"{next(packages, 'package')}.{stem}"


def _new_file(project: Project, made: str, taken: Iterable[str | None]) -> str:
    """Return the path for a text that a Python file has."""
    base = _base(project, made, "", is_new=True).removesuffix(_SUFFIX).replace(".", "/")
    paths = (f"{_FOLDER}/{name}.cu" for name in _numbered(base))
    used = {*taken}
    return next(path for path in paths if path not in used and not (project.root / path).exists())


def _numbered(name: str) -> Iterator[str]:
    """Yield a name, and the name with numbers from 2 on."""
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def _addition(
    project: Project, module: str, file: str, kernel: str, items: Sequence[CudaCppLaunches], *, is_new: bool
) -> CudaCppAddition | None:
    table = project_file.table(project.modules.get(module))
    entry = project_file.table(table, "kernels").get(kernel)
    listed = project_file.strings(project_file.table(entry).get("instances"))
    if isinstance(entry, list):
        listed = project_file.strings(entry)
    instances = {item.name for item in items if "<" in item.name}
    missing = tuple(sorted(instances - {*listed}))
    if entry is not None and not missing:
        return None
    declared = _declared(items[0].text, kernel)
    truth = {
        name: "bool[...]"
        for at, (type_, name) in enumerate(declared)
        if _BYTES.fullmatch(type_) and all(item.types[at : at + 1] == ("bool[]",) for item in items)
    }
    parameters = dict(items[0].parameters) | truth
    more = {"parameters": parameters} if parameters else {}
    return CudaCppAddition(
        module=module,
        source=file,
        kernel=kernel,
        instances=missing,
        made=items[0].made,
        text=items[0].text if is_new else "",
        options=_settings(_kept(items[0].options)),
        more=more | ({"cooperative": True} if items[0].cooperative else {}),
        surplus=max(0, max(len(item.types) for item in items) - len(declared)) if declared else 0,
    )


def _declared(text: str, kernel: str) -> list[tuple[str, str]]:
    """Return type and name of each parameter of a kernel, as its text has them; nothing for an unusual declaration."""
    name = re.escape(kernel.rpartition("::")[2])
    match = re.search(
        rf"__global__[^;{{}}]*?\b{name}\s*\(([^(){{}};]*)\)", re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    )
    if match is None:
        return []
    words = [re.sub(r"\b__restrict__\b", "", item).split("=")[0].strip() for item in match[1].split(",")]
    found = [re.fullmatch(r"(.+?[\s*&])(\w+)", " ".join(item.split())) for item in words]
    return [(item[1].strip(), item[2]) for item in found if item] if all(found) else []
