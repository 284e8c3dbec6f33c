"""`aotcuda init`: add the tables for packaging its kernels to a project."""

from __future__ import annotations

import configparser
import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import registry
from aotcuda.common import foreign, project_file, uninstalled_hook
from aotcuda.errors import ConfigError
from aotcuda.tools.init import project_sources, sources
from aotcuda.tools.record import project, pyproject, tables

if TYPE_CHECKING:
    from aotcuda.tools.init.sources import JitFunction
    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.pyproject import Editor

_COMMENT = "aotcuda record --write -- COMMAND adds the signatures that COMMAND launches"
_TOOL = ("tool", "aotcuda")
_HATCHLING = ("hatchling", "hatchling.build")
_SETUPTOOLS = ("setuptools>=64", "setuptools.build_meta")
_WITHOUT_TABLE = "setuptools.build_meta:__legacy__"
"""The back end of a project without a pyproject.toml (PEP 517). Its setup.py may import modules of its folder."""

_HOOK = ("tool", "hatch", "build", "targets", "wheel", "hooks", "aotcuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A module of the project that defines kernels."""

    module: str
    file: str
    functions: tuple[JitFunction, ...]

    @property
    def kernels(self) -> list[JitFunction]:
        """Return the kernels that a name of the module refers to."""
        return [item for item in self.functions if not item.device and not item.enclosing]

    def kernels_of(self, frontend: str) -> list[JitFunction]:
        """Return the kernels of one front end."""
        return [item for item in self.kernels if item.frontend == frontend]


def run(folder: Path) -> None:
    """Write the tables for the project in `folder`, and print the changes and the remaining steps.

    Existing keys and tables stay. If nothing is missing, nothing is written.

    Raises:
        ConfigError: There is no pyproject.toml, or it cannot be read or extended; it is unchanged.
        DependencyError: A table must be extended, and tomlkit is not installed.
    """
    owner = project.read(Path(os.path.realpath(folder)))
    if owner.text is None and (owner.root / "setup.py").is_file():
        owner = replace(owner, text="")  # setuptools needs no pyproject.toml; this command writes one
    if owner.text is None:
        message = f"{owner.pyproject} does not exist; name a folder with a pyproject.toml"
        raise ConfigError(message)
    found, unreadable = _sources(owner)
    read = project_sources.trees(owner)
    for line in unreadable:
        foreign.show(f"not read: {line}")
    if not any(source.kernels for source in found):
        foreign.show(
            f"no kernel was found in {owner.root}: the modules of its packages have no function with "
            "@cuda.jit or @triton.jit"
        )
        _print_rest(found, project_sources.hiding(read))
        return
    editor = pyproject.Editor(owner.text)
    imported = project_sources.requirements(owner, read, (source.module for source in found if source.kernels))
    notes = [*_build_system(editor, owner, found, imported), *_dependency(editor, owner)]
    written = _modules(editor, found, owner)
    text = editor.text()
    if text != owner.text:
        pyproject.write(owner.pyproject, text)
    foreign.show(f"{owner.pyproject}: {_changes(owner.text, text)}")
    for line in [*notes, *written]:
        foreign.show(line)
    _print_unsigned(editor, found)
    _print_rest(found, project_sources.hiding(read))


def _sources(owner: Project) -> tuple[list[Source], list[str]]:
    files: dict[str, str] = {}
    read: dict[str, sources.Content] = {}
    unreadable = []
    for module, path in project.python_files(owner):
        file = path.relative_to(owner.root).as_posix()
        try:
            content = foreign.content(path)
            if b"jit" in content:
                files[module], read[module] = file, sources.read(content)
        except (foreign.UnreadableError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unreadable.append(f"{file}{_problem(error)}")
    found = sources.mark_device_functions(read)
    return [
        Source(module=name, file=files[name], functions=items) for name, items in found.items() if items
    ], unreadable


def _problem(error: Exception) -> str:
    """Return the reason that a file cannot be read, as text that follows its name."""
    if isinstance(error, SyntaxError):
        return f"{f':{error.lineno}' if error.lineno else ''}: {error.msg}"
    if isinstance(error, foreign.UnreadableError):
        return f": {error}"
    return f": {error}" if isinstance(error, ValueError) else ": it is nested too deeply"


def _build_system(editor: Editor, owner: Project, found: list[Source], imported: list[str]) -> list[str]:
    """Add the build requirements and the hook of hatchling, and return the remaining steps."""
    wanted = [
        registry.requirement(name) for name in sorted({item.frontend for source in found for item in source.kernels})
    ]
    system = editor.get(("build-system",))
    if system is None:
        requirement, back = _SETUPTOOLS if _uses_setuptools(owner) else _HATCHLING
        if not owner.text:
            back = _WITHOUT_TABLE
        editor.add_table(("build-system",), {"requires": [requirement, *wanted, *imported], "build-backend": back})
    else:
        back = str(system.get("build-backend", "setuptools.build_meta"))
        listed = project_file.strings(system.get("requires"))
        missing = [] if any(_is_for(item, "aotcuda") for item in listed) else wanted
        names = {project_sources.name_of(item) for item in listed if isinstance(item, str)}
        missing += [item for item in imported if project_sources.name_of(item) not in names]
        if missing:
            _extend(editor, ("build-system", "requires"), missing)
    if back.startswith("hatchling"):
        folder = str(owner.root)
        if uninstalled_hook.enabled_table(folder) is not None:
            return []
        if uninstalled_hook.table_to_add(folder) != uninstalled_hook.TABLE:
            return [f"to do: the hook: add an empty table {uninstalled_hook.table_to_add(folder)}"]
        editor.add_table(_HOOK, {})
        return []
    if back.startswith("setuptools"):
        return []
    advice = "let it run `aotcuda build`, or build with hatchling or setuptools"
    return [f"to do: {back} has no hook of aotcuda; {advice} (docs/howto.md)"]


def _uses_setuptools(owner: Project) -> bool:
    files = ("setup.py", "setup.cfg")
    return "setuptools" in owner.data.get("tool", {}) or any((owner.root / name).is_file() for name in files)


def _dependency(editor: Editor, owner: Project) -> list[str]:
    """Add the run time to the project's dependencies."""
    metadata = editor.get(("project",))
    if metadata is None or "dependencies" in project_file.strings(metadata.get("dynamic")):
        cfg = configparser.RawConfigParser()
        with contextlib.suppress(configparser.Error, foreign.UnreadableError, UnicodeDecodeError):
            cfg.read_string(foreign.content(owner.root / "setup.cfg").decode())
        listed = cfg.get("options", "install_requires", fallback=None)
        if any(_is_for(item.strip(), "aotcuda") for item in (listed or "").splitlines()):
            return []
        where = "the project's dependencies" if listed is None else "install_requires in setup.cfg"
        return [f'to do: the wheel needs the run time: add "aotcuda" to {where}']
    if not any(_is_for(item, "aotcuda") for item in project_file.strings(metadata.get("dependencies"))):
        _extend(editor, ("project", "dependencies"), ["aotcuda"])
    return []


def _extend(editor: Editor, keys: tuple[str, ...], items: list[str]) -> None:
    if editor.get(keys) is None:
        editor.add_keys(keys[:-1], {keys[-1]: items})
    else:
        editor.extend(keys, items)


def _is_for(requirement: object, name: str) -> bool:
    """Return True if a requirement is for the package `name`."""
    return isinstance(requirement, str) and project_sources.name_of(requirement) == name


def _modules(editor: Editor, found: list[Source], owner: Project) -> list[str]:
    """Add tables for sources without one, and kernels with signatures in their decorators."""
    pyproject.add_targets(editor)
    default = str(owner.aotcuda.get("frontend", registry.DEFAULT))
    lines = []
    for source in found:
        for frontend in sorted({item.frontend for item in source.kernels} - sources.RECORDED_FRONT_ENDS):
            module = _module_of(editor, source.module, frontend, default)
            if module is None:
                module = source.module if editor.get((*_TOOL, "modules", source.module)) is None else None
            if module is None:  # kernels of two compilers in one file
                lines.append(f"to do: {source.file}: kernels of {frontend} need a module of another name")
                continue
            lines += _kernels(editor, module, source, frontend, default)
    return lines


def _module_of(editor: Editor, source: str, frontend: str, default: str) -> str | None:
    """Return the module whose table names a source."""
    modules = editor.get((*_TOOL, "modules")) or {}
    for name, module in modules.items():
        named = module.get("source")
        if source in (named if isinstance(named, list) else [named]) and module.get("frontend", default) == frontend:
            return str(name)
    return None


def _kernels(editor: Editor, module: str, source: Source, frontend: str, default: str) -> list[str]:
    keys = (*_TOOL, "modules", module)
    new_module = editor.get(keys) is None
    if new_module:
        extra = {} if frontend == default else {"frontend": frontend}
        editor.add_table(keys, {"source": source.module, **extra})
    listed = _listed_kernels(editor.get((*keys, "kernels")) or {}, source.module)
    values: dict[str, Any] = {}
    for item in source.kernels_of(frontend):
        if item.signatures and item.path not in listed:
            name = tables.key_for(item.path, {*listed.values(), *values})
            texts = list(dict.fromkeys(item.signatures))
            python = f"{source.module}:{item.path}" if "." in item.path else item.path
            values[name] = texts if name == item.path else {"python": python, "signatures": texts}
    if editor.get((*keys, "kernels")) is None:
        if values or new_module:
            first = not any("kernels" in other for other in editor.get((*_TOOL, "modules")).values())
            editor.add_table((*keys, "kernels"), values, comment=_COMMENT if first else "")
    elif values:
        editor.add_keys((*keys, "kernels"), values)
    return [f'wrote tool.aotcuda.modules."{module}".kernels.{pyproject.quote_key(name)}' for name in values]


def _listed_kernels(kernels: dict[str, Any], source: str) -> dict[str, str]:
    """Return the Python names and keys of the kernels in a table."""
    return {
        str(value.get("python", name) if isinstance(value, dict) else name).removeprefix(f"{source}:"): name
        for name, value in kernels.items()
    }


def _print_unsigned(editor: Editor, found: list[Source]) -> None:
    """Print the kernels without a signature."""
    modules = editor.get((*_TOOL, "modules")) or {}
    named = {
        (source, path)
        for module in modules.values()
        for source in _as_list(module.get("source"))
        for path in map(tables.kernel_path, _listed_kernels(module.get("kernels", {}), source))
    }
    missing = [(source, item) for source in found for item in source.kernels if (source.module, item.path) not in named]
    if not missing:
        foreign.show("every kernel has a signature")
        return
    foreign.show(f"{len(missing)} kernel{'s have' if len(missing) != 1 else ' has'} no signature yet:")
    for source, item in missing:
        reason = " (its decorator's signatures are computed)" if item.has_computed_signatures else ""
        foreign.show(f"  {source.file}:{item.line}: {item.path}{reason}")
    foreign.show("record them from anything that launches them, such as the tests, with a GPU or without:")
    foreign.show("  aotcuda record --write -- python -m pytest")


def _print_rest(found: list[Source], hiding: list[str]) -> None:
    for line in hiding:
        foreign.show(line)
    for source in found:
        for item in source.functions:
            if item.enclosing and not item.device:
                where = f"{source.file}:{item.line}: {item.path}"
                advice = "a build finds it under a name of the module"
                foreign.show(f"left out: {where} is made inside {item.enclosing}(); {advice}")
    devices = sum(item.device for source in found for item in source.functions)
    if devices:
        they = "1 device function: it comes" if devices == 1 else f"{devices} device functions: they come"
        foreign.show(f"{they} along with the kernels that call {'it' if devices == 1 else 'them'}")


def _as_list(value: object) -> list[str]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]


def _changes(before: str, after: str) -> str:
    if before == after:
        return "nothing to add"
    lines = len(after.splitlines()) - len(before.splitlines())
    return f"{lines} line{'s' * (lines != 1)} added"
