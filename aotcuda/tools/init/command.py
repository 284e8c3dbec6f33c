"""`aotcuda init`: add the tables for packaging its kernels to a project."""

from __future__ import annotations

import ast
import configparser
import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import registry
from aotcuda.common import foreign, project_file, uninstalled_hook
from aotcuda.errors import ConfigError
from aotcuda.tools.init import cuda_cpp_files, sources
from aotcuda.tools.record import pyproject, source_files, tables
from aotcuda.tools.record.project import Project, sources_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aotcuda.tools.init.sources import Content, JitFunction
    from aotcuda.tools.record.pyproject import Editor
    from aotcuda.tools.record.source_files import Trees

_COMMENT = "aotcuda record --write -- COMMAND adds the signatures that COMMAND launches"
_TOOL = ("tool", "aotcuda")
_HATCHLING = ("hatchling", "hatchling.build")
_SETUPTOOLS = ("setuptools>=64", "setuptools.build_meta")
_SETUPTOOLS_FILES = ("setup.py", "setup.cfg")
_WITHOUT_TABLE = "setuptools.build_meta:__legacy__"
"""The back end of a project without a pyproject.toml (PEP 517). Its setup.py may import modules of its folder."""

_IN_PLACE = {"numba-cuda": "numba", "numba-cuda-mlir": "numba_cuda_mlir"}
"""The package whose names a module that is packaged in place imports from aotcuda, by front end."""

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
    project = Project.read(Path(os.path.realpath(folder)))
    if project.text is None and any((project.root / name).is_file() for name in _SETUPTOOLS_FILES):
        project = replace(project, text="")  # setuptools needs no pyproject.toml; this command writes one
    if project.text is None:
        message = f"{project.pyproject} does not exist; name a folder with a pyproject.toml, setup.cfg or setup.py"
        raise ConfigError(message)
    trees, unreadable = source_files.parse(project)
    contents = _read(trees, unreadable)
    for line in unreadable:
        foreign.show(f"not read: {line}")
    modules = [
        Source(module=name, file=trees[name][0], functions=functions)
        for name, functions in sources.mark_device_functions(contents).items()
        if functions
    ]
    texts = cuda_cpp_files.compiled_texts(trees)
    files = cuda_cpp_files.unpackaged(project)
    if texts or files or project.modules or any(source.kernels for source in modules):
        _write_tables(project, modules, trees, has_cuda_cpp=bool(texts or files))
    else:
        foreign.show(
            f"no kernel was found in {project.root}: the modules of its packages have no function with "
            "@cuda.jit or @triton.jit"
        )
    for line in [*texts, *sources.describe_makers(contents, trees), *_other_functions(modules)]:
        foreign.show(line)
    if files:
        foreign.show(f"{len(files)} file{'s' * (len(files) > 1)} with kernels in CUDA C++, for a table:")
    for file in files:
        foreign.show(f"  {file}")
    if hook := uninstalled_hook.state(str(project.root)):
        foreign.show(hook)


def _read(trees: Trees, unreadable: list[str]) -> dict[str, Content]:
    """Return the contents of modules; add a line to `unreadable` for each module that cannot be read."""
    contents = {}
    for name, (file, tree) in trees.items():
        try:
            contents[name] = sources.read(tree)
        except RecursionError as error:
            unreadable.append(f"{file}{source_files.describe_error(error)}")
    return contents


def _write_tables(project: Project, modules: list[Source], trees: Trees, *, has_cuda_cpp: bool) -> None:
    """Add the missing entries to pyproject.toml, and print them and the kernels without a signature.

    Args:
        project: The project.
        modules: Its modules with kernels or device functions.
        trees: The parsed modules.
        has_cuda_cpp: It has kernels in CUDA C++ without a table.
    """
    before = project.text or ""
    editor = pyproject.Editor(before)
    with_kernels = (source.module for source in modules if source.kernels)
    required = source_files.requirements(project, trees, with_kernels)
    front_ends = {item.frontend for source in modules for item in source.kernels}
    front_ends |= {project.front_end(module) for module in project.modules.values()} & registry.BUILT_IN.keys()
    front_ends |= {"cuda-cpp"} if has_cuda_cpp else set()
    lines = [*_add_build_system(editor, project, front_ends, required), *_add_dependency(editor, project)]
    pyproject.add_targets(editor)
    for source in modules:
        for front_end in sorted({item.frontend for item in source.kernels} - sources.RECORDED_FRONT_ENDS):
            lines += _add_module(editor, project, source, front_end, _generated_name(source, trees))
    text = editor.text()
    if text != before:
        pyproject.write(project.pyproject, text)
    foreign.show(f"{project.pyproject}: {_changes(before, text)}")
    for line in lines:
        foreign.show(line)
    known, project = project.modules, replace(project, data=editor.get(()))
    for line in [
        *_describe_ways(known, project.modules),
        *_imports_to_change(project, trees),
        *_tables_without_kernels(project),
    ]:
        foreign.show(line)
    if any(source.kernels for source in modules):
        _print_unsigned(project, modules)


def _add_build_system(editor: Editor, project: Project, front_ends: set[str], required: list[str]) -> list[str]:
    """Add the build requirements and the hook of hatchling, and return the remaining steps."""
    compilers = [registry.requirement(name) for name in sorted(front_ends)]
    system = editor.get(("build-system",))
    if system is None:
        requirement, back_end = _SETUPTOOLS if _uses_setuptools(project) else _HATCHLING
        if not project.text:
            back_end = _WITHOUT_TABLE
        values = {"requires": [requirement, *compilers, *required], "build-backend": back_end}
        editor.add_table(("build-system",), values)
    else:
        back_end = str(system.get("build-backend", "setuptools.build_meta"))
        listed = {*map(source_files.distribution, project_file.strings(system.get("requires")))}
        missing = [] if "aotcuda" in listed else compilers
        missing += [item for item in required if source_files.distribution(item) not in listed]
        if missing:
            _extend(editor, ("build-system", "requires"), missing)
    if back_end.startswith("hatchling"):
        return _add_hook(editor, str(project.root))
    if back_end.startswith("setuptools"):
        return []
    advice = "let it run `aotcuda build`, or build with hatchling or setuptools"
    return [f"to do: {back_end} has no hook of aotcuda; {advice}"]


def _add_hook(editor: Editor, folder: str) -> list[str]:
    if uninstalled_hook.enabled_table(folder) is not None:
        return []
    if uninstalled_hook.table_to_add(folder) != uninstalled_hook.TABLE:
        return [f"to do: the hook: add an empty table {uninstalled_hook.table_to_add(folder)}"]
    editor.add_table(_HOOK, {})
    return []


def _uses_setuptools(project: Project) -> bool:
    return "setuptools" in project.data.get("tool", {}) or any(
        (project.root / name).is_file() for name in _SETUPTOOLS_FILES
    )


def _add_dependency(editor: Editor, project: Project) -> list[str]:
    """Add the run time to the project's dependencies, and return the remaining steps."""
    metadata = editor.get(("project",))
    if metadata is None or "dependencies" in project_file.strings(metadata.get("dynamic")):
        cfg = configparser.RawConfigParser()
        with contextlib.suppress(configparser.Error, foreign.UnreadableError, UnicodeDecodeError):
            cfg.read_string(foreign.content(project.root / "setup.cfg").decode())
        listed = cfg.get("options", "install_requires", fallback=None)
        if _has_aotcuda((listed or "").splitlines()):
            return []
        where = "the project's dependencies" if listed is None else "install_requires in setup.cfg"
        return [f'to do: the wheel needs the run time: add "aotcuda" to {where}']
    if not _has_aotcuda(project_file.strings(metadata.get("dependencies"))):
        _extend(editor, ("project", "dependencies"), ["aotcuda"])
    return []


def _extend(editor: Editor, keys: tuple[str, ...], items: list[str]) -> None:
    if editor.get(keys) is None:
        editor.add_keys(keys[:-1], {keys[-1]: items})
    else:
        editor.extend(keys, items)


def _has_aotcuda(requirements: list[str]) -> bool:
    return "aotcuda" in map(source_files.distribution, requirements)


def _generated_name(source: Source, trees: Trees) -> str | None:
    """Return the name of a generated module for a source, or None if the source is packaged in place.

    A private module such as `mypkg._kernels`, which launches none of its kernels and which no module of the project
    imports, becomes the generated module `mypkg.kernels`: no import has to change.
    """
    package, dot, name = source.module.rpartition(".")
    public = f"{package}{dot}{name.lstrip('_')}"
    is_changed = any(
        isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "aotcuda"
        for node in ast.walk(trees[source.module][1])
    )
    kernels = {item.path for item in source.kernels}
    is_launched = any(
        isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in kernels
        for node in ast.walk(trees[source.module][1])
    )
    is_public = not name.startswith("_") or not name.strip("_") or public in trees
    if is_public or is_changed or is_launched or source_files.is_imported(source.module, trees):
        return None
    return public


def _describe_ways(before: Mapping[str, object], after: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return a line for each way in which new modules are packaged; it names the other way."""
    new = {name: sources_of(item) for name, item in after.items() if name not in before}
    in_place = [name for name, of in new.items() if name in of]
    generated = [f"{name} from {of[0]}" for name, of in new.items() if name not in of]
    lines = []
    if in_place:
        lines.append(
            f"in place: {', '.join(in_place)}; each keeps its name, and one of its imports changes. The other way is a "
            "generated module: kernels in a private module, such as mypkg._kernels, whose users import mypkg.kernels"
        )
    if generated:
        lines.append(
            f"generated: {', '.join(generated)}; no import changes, and users launch from the new module. The other "
            "way is in place: name the table after its source, and change one import there"
        )
    return lines


def _add_module(editor: Editor, project: Project, source: Source, front_end: str, generated: str | None) -> list[str]:
    """Add the table of a source if it is missing, and the kernels with signatures in their decorators.

    Args:
        editor: The editor of pyproject.toml.
        project: The project.
        source: The source.
        front_end: The front end of the kernels to add.
        generated: The name of a generated module for a new table; None for a table in place.

    Returns:
        Lines with the kernels that were written, and the remaining steps.
    """
    module = next(
        (
            name
            for name, item in project.modules.items()
            if source.module in sources_of(item) and project.front_end(item) == front_end
        ),
        None,
    )
    keys = (*_TOOL, "modules", module or generated or source.module)
    new_module = editor.get(keys) is None
    if module is None and not new_module:
        return [f"to do: {source.file}: kernels of {front_end} need a module of another name"]
    if new_module:
        is_default = project.front_end({}) == front_end
        editor.add_table(keys, {"source": source.module, **({} if is_default else {"frontend": front_end})})
    listed = _listed_kernels(editor.get((*keys, "kernels")), source.module)
    values: dict[str, Any] = {}
    for item in source.kernels_of(front_end):
        if item.signatures and item.path not in listed:
            name = tables.key_for(item.path, {*listed.values(), *values})
            texts = list(dict.fromkeys(item.signatures))
            python = f"{source.module}:{item.path}" if "." in item.path else item.path
            values[name] = texts if name == item.path else {"python": python, "signatures": texts}
    if editor.get((*keys, "kernels")) is None:
        if values or new_module:
            others = replace(project, data=editor.get(())).modules.values()
            first = not any("kernels" in other for other in others)
            editor.add_table((*keys, "kernels"), values, {"": [_COMMENT]} if first else {})
    elif values:
        editor.add_keys((*keys, "kernels"), values)
    return [f'wrote tool.aotcuda.modules."{keys[-1]}".kernels.{pyproject.quote_key(name)}' for name in values]


def _listed_kernels(kernels: object, source: str) -> dict[str, str]:
    """Return the Python names and keys of the kernels in a table."""
    return {
        str(value.get("python", name) if isinstance(value, dict) else name).removeprefix(f"{source}:"): name
        for name, value in (kernels.items() if isinstance(kernels, dict) else ())
    }


def _imports_to_change(project: Project, trees: Trees) -> list[str]:
    """Return a line for each import of Numba in a module that is packaged in place."""
    lines = []
    for name, module in project.modules.items():
        package = _IN_PLACE.get(project.front_end(module))
        if name not in sources_of(module) or name not in trees or package is None:
            continue
        file, tree = trees[name]
        write = f"write from aotcuda.{package} import"
        lines += [
            f"to do: {file}:{node.lineno}: {write} {', '.join(map(ast.unparse, node.names))}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == package and not node.level
        ]
        lines += [
            f"to do: {file}:{node.lineno}: {write} cuda, and use cuda in place of {item.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for item in node.names
            if item.name in (package, f"{package}.cuda")
        ]
    return lines


def _tables_without_kernels(project: Project) -> list[str]:
    """Return a line with the modules whose kernels `aotcuda record` has to add before a build."""
    empty = [
        name for name, module in project.modules.items() if module.get("kernels") == {} and not module.get("functions")
    ]
    if not empty:
        return []
    return [f"to do before a build: record the kernels of {', '.join(empty)}; a module without kernels is not built"]


def _print_unsigned(project: Project, modules: list[Source]) -> None:
    """Print the kernels without a signature."""
    listed = {
        (source, path)
        for module in project.modules.values()
        for source in sources_of(module)
        for path in map(tables.kernel_path, _listed_kernels(module.get("kernels"), source))
    }
    missing = [
        (source, item) for source in modules for item in source.kernels if (source.module, item.path) not in listed
    ]
    if not missing:
        foreign.show("every kernel has a signature")
        return
    foreign.show(f"{len(missing)} kernel{'s have' if len(missing) != 1 else ' has'} no signature yet:")
    for source, item in missing:
        reason = " (its decorator's signatures are computed)" if item.has_computed_signatures else ""
        foreign.show(f"  {source.file}:{item.line}: {item.path}{reason}")
    foreign.show("record them from anything that launches them, such as the tests, with a GPU or without:")
    foreign.show("  aotcuda record --write -- python -m pytest")


def _other_functions(modules: list[Source]) -> list[str]:
    """Return lines on kernels inside functions, and on device functions."""
    lines = [
        f"left out: {source.file}:{item.line}: {item.path} is made inside {item.enclosing}(); a build finds it under a "
        "name of the module"
        for source in modules
        for item in source.functions
        if item.enclosing and not item.device
    ]
    devices = sum(item.device for source in modules for item in source.functions)
    if devices == 1:
        lines.append("1 device function: it comes along with the kernels that call it")
    elif devices:
        lines.append(f"{devices} device functions: they come along with the kernels that call them")
    return lines


def _changes(before: str, after: str) -> str:
    if before == after:
        return "nothing to add"
    lines = len(after.splitlines()) - len(before.splitlines())
    return f"{lines} line{'s' * (lines != 1)} added"
