"""`aotcuda init`: add the tables for packaging its kernels to a project."""

from __future__ import annotations

import ast
import configparser
import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import registry
from aotcuda.common import foreign, project_file, uninstalled_hook
from aotcuda.errors import ConfigError
from aotcuda.tools.record import pyproject, source_files, source_kernels, tables
from aotcuda.tools.record.project import Project, sources_of
from aotcuda.tools.record.records import Record
from aotcuda.tools.record.tables import RecordedKernel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.tools.record.pyproject import Editor
    from aotcuda.tools.record.source_files import Trees
    from aotcuda.tools.record.source_kernels import Content

_HATCHLING = ("hatchling", "hatchling.build")
_SETUPTOOLS = ("setuptools>=64", "setuptools.build_meta")
_SETUPTOOLS_FILES = ("setup.py", "setup.cfg")
_WITHOUT_TABLE = "setuptools.build_meta:__legacy__"
"""The back end of a project without a pyproject.toml (PEP 517). Its setup.py may import modules of its folder."""

_IN_PLACE = {"numba-cuda": "numba", "numba-cuda-mlir": "numba_cuda_mlir"}
"""The package whose names a module that is packaged in place imports from aotcuda, by front end."""

_HOOK = ("tool", "hatch", "build", "targets", "wheel", "hooks", "aotcuda")


_COMPILING = frozenset(["RawKernel", "RawModule", "ElementwiseKernel", "Program"])
"""Names of CuPy and cuda.core that compile CUDA C++."""


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
    contents = source_kernels.find(trees, unreadable)
    for line in unreadable:
        foreign.show(f"not read: {line}")
    texts = _compiled_texts(trees)
    packaged = {source for module in project.modules.values() for source in sources_of(module)}
    files = [file for file in project.cuda_files() if file not in packaged]
    if texts or files or project.modules or any(content.kernels for content in contents.values()):
        _write_tables(project, contents, trees, has_cuda_cpp=bool(texts or files))
    else:
        foreign.show(
            f"no kernel was found in {project.root}: the modules of its packages have no function with "
            "@cuda.jit or @triton.jit"
        )
    for line in [*texts, *source_kernels.describe_makers(contents, trees), *_other_functions(contents, trees)]:
        foreign.show(line)
    if files:
        foreign.show(f"{len(files)} file{'s' * (len(files) > 1)} with kernels in CUDA C++, for a table:")
    for file in files:
        foreign.show(f"  {file}")
    if hook := uninstalled_hook.state(str(project.root)):
        foreign.show(hook)


def _kernels(contents: Mapping[str, Content], trees: Trees) -> list[RecordedKernel]:
    """Return the kernels of the sources. A kernel is declared if a build finds its signatures in the source."""
    return [
        RecordedKernel(
            source=module,
            frontend=item.frontend,
            path=item.path,
            records=(
                Record(
                    frontend=item.frontend,
                    kind="kernel",
                    module=module,
                    function=item.path,
                    file=trees[module][0],
                    line=item.line,
                    declared=item.has_signatures,
                ),
            ),
        )
        for module, content in contents.items()
        for item in content.kernels
    ]


def _write_tables(project: Project, contents: Mapping[str, Content], trees: Trees, *, has_cuda_cpp: bool) -> None:
    """Add the missing entries to pyproject.toml, and print them and the kernels without a signature.

    Args:
        project: The project.
        contents: The kernels of its modules.
        trees: The parsed modules.
        has_cuda_cpp: It has kernels in CUDA C++ without a table.
    """
    before = project.text or ""
    editor = pyproject.Editor(before)
    kernels = _kernels(contents, trees)
    sources = dict.fromkeys(kernel.source for kernel in kernels)
    front_ends = {kernel.frontend for kernel in kernels}
    front_ends |= {project.front_end(module) for module in project.modules.values()} & registry.BUILT_IN.keys()
    front_ends |= {"cuda-cpp"} if has_cuda_cpp else set()
    required = source_files.requirements(project, trees, sources)
    lines = [*_add_build_system(editor, project, front_ends, required), *_add_dependency(editor, project)]
    pyproject.add_targets(editor)
    new = [kernel for kernel in kernels if not tables.has_entry(kernel.source, kernel.path, project)]
    generated = {source: name for source in sources if (name := _generated_name(source, contents, trees))}
    # The tables of Triton need recorded values, so `aotcuda record` writes them.
    additions = tables.additions([kernel for kernel in new if kernel.frontend != "triton"], project, generated)
    pyproject.add_kernels(editor, additions, project.front_end({}))
    text = editor.text()
    if text != before:
        pyproject.write(project.pyproject, text)
    foreign.show(f"{project.pyproject}: {_changes(before, text)}")
    known, project = project.modules, replace(project, data=editor.get(()))
    for line in [
        *lines,
        *(f"wrote {item.place}" for item in additions if item.is_known),
        *_describe_ways(known, project.modules),
        *_imports_to_change(project, trees),
        *_tables_without_kernels(project),
    ]:
        foreign.show(line)
    if kernels:
        _print_unsigned([kernel for kernel in new if not kernel.records[0].declared])


def _add_build_system(editor: Editor, project: Project, front_ends: set[str], required: list[str]) -> list[str]:
    """Add the build requirements and the hook of hatchling, and return the remaining steps."""
    compilers = _compilers(front_ends)
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


def _compilers(front_ends: set[str]) -> list[str]:
    """Return one requirement for the compilers of front ends; the extras of Numba and Triton build CUDA C++, too."""
    others = front_ends - {"cuda-cpp"}
    extras = [registry.requirement(name).partition("[")[2].rstrip("]") for name in sorted(others or front_ends)]
    return [f"aotcuda[{','.join(extras)}]"] if extras else []


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


def _generated_name(source: str, contents: Mapping[str, Content], trees: Trees) -> str | None:
    """Return the name of a generated module for a source, or None if the source is packaged in place.

    A private module such as `mypkg._kernels`, which launches none of its kernels and which no module of the project
    imports, becomes the generated module `mypkg.kernels`: no import has to change.
    """
    package, dot, name = source.rpartition(".")
    public = f"{package}{dot}{name.lstrip('_')}"
    nodes = [*ast.walk(trees[source][1])]
    is_changed = any(
        isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "aotcuda" for node in nodes
    )
    kernels = {item.path for item in contents[source].kernels}
    is_launched = any(
        isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in kernels
        for node in nodes
    )
    is_public = not name.startswith("_") or not name.strip("_") or public in trees
    if is_public or is_changed or is_launched or source_files.is_imported(source, trees):
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


def _print_unsigned(kernels: Sequence[RecordedKernel]) -> None:
    """Print the kernels without a signature."""
    if not kernels:
        foreign.show("every kernel has a signature")
        return
    foreign.show(f"{len(kernels)} kernel{'s have' if len(kernels) != 1 else ' has'} no signature yet:")
    for kernel in kernels:
        foreign.show(f"  {kernel.records[0].place}: {kernel.path}")
    foreign.show("record them from anything that launches them, such as the tests, with a GPU or without:")
    foreign.show("  aotcuda record --write -- python -m pytest")


def _other_functions(contents: Mapping[str, Content], trees: Trees) -> list[str]:
    """Return lines on kernels inside functions, and on device functions."""
    lines = [
        f"left out: {trees[module][0]}:{item.line}: {item.path} is made inside {item.enclosing}(); a build finds it "
        "under a name of the module"
        for module, content in contents.items()
        for item in content.functions
        if item.enclosing and not item.device
    ]
    devices = sum(item.device for content in contents.values() for item in content.functions)
    if devices == 1:
        lines.append("1 device function: it comes along with the kernels that call it")
    elif devices:
        lines.append(f"{devices} device functions: they come along with the kernels that call them")
    return lines


def _compiled_texts(trees: Trees) -> list[str]:
    """Return lines on the places that pass CUDA C++ to CuPy or cuda.core, with the command that packages its text."""
    places = [
        f"  {file}:{node.lineno}: {name}"
        for file, tree in trees.values()
        if _imports_cupy_or_cuda_core(tree)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        if (name := ast.unparse(node.func)).rpartition(".")[2] in _COMPILING
    ]
    if not places:
        return []
    return [
        f"{len(places)} place{'s' * (len(places) > 1)} where CUDA C++ is compiled while the program runs:",
        *places,
        "record them from anything that launches the kernels; it writes the texts into .cu files:",
        "  aotcuda record --dry --write -- python -m pytest",
    ]


def _imports_cupy_or_cuda_core(tree: ast.Module) -> bool:
    names = [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [item.name for item in node.names])
    ]
    return any(name.partition(".")[0] == "cupy" or name.startswith("cuda.core") for name in names)


def _changes(before: str, after: str) -> str:
    if before == after:
        return "nothing to add"
    lines = len(after.splitlines()) - len(before.splitlines())
    return f"{lines} line{'s' * (lines != 1)} added"
