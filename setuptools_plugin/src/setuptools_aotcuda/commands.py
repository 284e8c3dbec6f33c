"""Pass `[tool.aotcuda]` to `aotcuda.builder.entry.backend`, and the files of the build to setuptools' commands."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import setuptools
from setuptools import Command

from aotcuda.builder.compile import interrupt
from aotcuda.builder.emit import report, sbom
from aotcuda.builder.entry import backend
from aotcuda.builder.project import wheel_content
from aotcuda.builder.write import source_tree
from aotcuda.common import project_file
from aotcuda.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, NoReturn

    from setuptools import Distribution

    from aotcuda.builder.emit.built import Output

NAME = "build_aotcuda"
_OLDEST = 64
"""The first setuptools whose editable installs run the steps of a build."""


def extend(distribution: Distribution, root: str, pyproject: Mapping[str, object]) -> None:
    """Add the build step to the commands of a distribution.

    Commands are extended when setuptools requests them. The documented place, `cmdclass`, is replaced later by keys of
    setup.cfg or pyproject.toml, and a `build` command of the project may have another list of steps.
    """
    project = Project(distribution, Path(root), pyproject)
    original: Callable[[str], type[Command]] = distribution.get_command_class
    extended: dict[str, tuple[type[Command], type[Command]]] = {}

    def get_command_class(name: str) -> type[Command]:
        if name != NAME and name not in _EXTENSIONS:
            return original(name)
        base = BuildAotcuda if name == NAME else original(name)
        if name not in extended or extended[name][0] is not base:
            bases = (base,) if name == NAME else (_EXTENSIONS[name], base)
            extended[name] = base, type(base.__name__, bases, {"project": project, "__module__": base.__module__})
        return extended[name][1]

    distribution.get_command_class = get_command_class


class Project:
    """A project and the state of its build.

    Attributes:
        root: Its folder.
    """

    def __init__(self, distribution: Distribution, root: Path, pyproject: Mapping[str, object]) -> None:
        self.root = root
        self._distribution = distribution
        self._pyproject = pyproject
        self._undo: ExitStack | None = None
        self._built: Output | None = None

    def table(self) -> Mapping[str, object]:
        """Return `[tool.aotcuda]`.

        Raises:
            ConfigError: It is no table.
        """
        return backend.table(self._pyproject, "plugin")

    def tag(self) -> tuple[str, str, str]:
        """Return the tag of a wheel without extension modules."""
        with self._in_one_line():
            python, abi, system = (backend.tag(self.table()) or backend.PURE_TAG).split("-")
        return python, abi, system

    def files(self) -> list[str]:
        """Return the files that an sdist needs for the table."""
        with self._in_one_line():
            return backend.sdist_files(self.table(), self.root)

    def check_sdist(self) -> None:
        """Refuse an sdist that would lack files of the table."""
        with self._in_one_line():
            backend.check_sdist(self.table(), self.root)

    def build(self, extensions: Mapping[str, Path], *, editable: bool) -> Output:
        """Build the files that the wheel gains; see `aotcuda.builder.entry.backend.build`."""
        with self._in_one_line():
            self._check_version()
            table = self.table()
            backend.check_single_back_end(self._pyproject, self.root, "setuptools")
            built = backend.build(
                table,
                self.root,
                self.packages(),
                self._dependencies(),
                editable=editable,
                extensions=extensions,
                dependencies_key=self._dependencies_key(),
                content=wheel_content.packages_content(self._modules()),
                remedy='let setuptools find "{}", for example by tool.setuptools.packages.find.where',
            )
            self._built = None if editable else built
            _warn(built.warnings)
            _say(report.summary(built.summary))
        return built

    def assemble(self, built: Output, folder: Path, fresh: set[Path]) -> list[Path]:
        """Write the files of a wheel into the folder that setuptools packs."""
        with self._in_one_line():
            return backend.assemble(built, folder, fresh)

    def finish(self, metadata: Path) -> None:
        """Check the content of the wheel before its metadata is complete."""
        if self._built is None:
            return
        with self._in_one_line():
            packed: dict[str, Path] = {}
            for path in (path for path in metadata.parent.rglob("*") if path.is_file()):
                parts = path.relative_to(metadata.parent).parts
                # In a wheel for one system, pure modules are in `mypkg-1.0.data/purelib`.
                packed["/".join(parts[2:] if parts[0].endswith(".data") else parts)] = path
            backend.check_sources(self._built, packed, lambda name: packed[name].read_bytes())
        (metadata / "sboms").mkdir(exist_ok=True)
        (metadata / "sboms" / sbom.FILE_NAME).write_bytes(self._built.sbom)

    def check_size(self) -> None:
        """Check the size of the wheel that was made last."""
        wheels = [Path(file) for command, _, file in self._distribution.dist_files if command == "bdist_wheel"]
        if self._built is not None and wheels:
            _warn(backend.size_warnings(self._built, wheels[-1]))

    def install(self, built: Output) -> None:
        """Write the files of an editable build into the source tree; remove them if `packing` fails."""
        with self._in_one_line():
            if self._undo is None:  # the build step was run alone
                _warn(source_tree.install(built, self.root))
            else:
                _warn(self._undo.enter_context(source_tree.install_around(built, self.root)))

    @contextmanager
    def packing(self) -> Iterator[None]:
        """Restore the source tree if the block, which makes a wheel or an editable install, fails."""
        try:
            with interrupt.raise_interrupts(), ExitStack() as self._undo:  # a signal removes the files, too
                yield
        finally:
            self._undo = None

    def clean(self) -> None:
        """Remove the files of editable builds from the source tree."""
        with self._in_one_line():
            source_tree.clean(self.table(), self.root, self.packages())

    def packages(self) -> list[Path]:
        """Return the folders from which the project's packages and modules are imported.

        Raises:
            ConfigError: A package that the table names is in a folder with another name, so it cannot be imported.
        """
        distribution, folders = self._distribution, []
        build_py = distribution.get_command_obj("build_py")
        build_py.ensure_finalized()
        for name in sorted(distribution.packages or (), key=lambda name: name.count(".")):
            parts = name.split(".")
            folder = self.root / build_py.get_package_dir(name)
            if list(folder.parts[-len(parts) :]) == parts:
                folders.append(folder.parents[len(parts) - 1])
            elif folder.parts[-1] != parts[-1] and self._is_named(name):
                message = (
                    f"tool.setuptools.package-dir: the package {name} is in the folder "
                    f"{build_py.get_package_dir(name)}, and builds import it by the folder's name; rename the folder "
                    f"to {parts[-1]}"
                )
                raise ConfigError(message)
        if distribution.py_modules:
            folders.append(self.root / build_py.get_package_dir(""))
        return list(dict.fromkeys(folders))

    def _modules(self) -> Iterator[tuple[str, str, Path]]:
        """Yield package, file name and path of each Python file in the wheel; for a package itself, no file name."""
        build_py = self._distribution.get_command_obj("build_py")
        build_py.ensure_finalized()
        for package in self._distribution.packages or ():
            yield package, "", self.root / build_py.get_package_dir(package)
        for package, name, file in build_py.find_all_modules():
            yield package, f"{name}.py", self.root / file

    def _dependencies(self) -> list[str]:
        """Return the wheel's requirements; old versions of setuptools have conditional ones in `extras_require`."""
        distribution = self._distribution
        conditional = [
            f"{requirement}; {extra[1:]}"
            for extra, requirements in (distribution.extras_require or {}).items()
            if extra.startswith(":")
            for requirement in requirements
        ]
        return [*map(str, distribution.install_requires or ()), *conditional]

    def _dependencies_key(self) -> str:
        """Return the key of the dependencies in pyproject.toml, or in setup.py and setup.cfg."""
        has_key = "dependencies" in project_file.table(self._pyproject, "project")
        return "project.dependencies" if has_key else "install_requires"

    def _is_named(self, package: str) -> bool:
        """Return True if the table has a module or a source in a package."""
        modules = self.table().get("modules")
        names = [
            str(text)
            for name, module in (modules.items() if isinstance(modules, dict) else ())
            for source in [module.get("source", "") if isinstance(module, dict) else ""]
            for text in [name, *(source if isinstance(source, list) else [source])]
        ]
        return any(f"{name}.".startswith(f"{package}.") for name in names)

    def _check_version(self) -> None:
        """Check the version of setuptools.

        Raises:
            ConfigError: It is too old to run the build step.
        """
        if int(setuptools.__version__.partition(".")[0]) < _OLDEST:
            message = (
                f"setuptools {setuptools.__version__} is too old for the plugin aotcuda; write "
                f'"setuptools>={_OLDEST}" into build-system.requires'
            )
            raise ConfigError(message)

    @contextmanager
    def _in_one_line(self) -> Iterator[None]:
        with interrupt.end_in_one_line(_abort):
            yield


class BuildAotcuda(Command):  # type: ignore[misc]  # only later versions of setuptools have types
    """The step of the command `build`; see setuptools' `SubCommand`."""

    description = "compile the GPU code that [tool.aotcuda] names"
    user_options: tuple[tuple[str, str | None, str], ...] = ()
    command_name = NAME

    project: Project
    editable_mode = False

    def initialize_options(self) -> None:
        """Implement Command.initialize_options."""
        self.build_lib = ""
        self.editable_mode = False
        self._package_root = ""
        self._files: list[str] = []

    def finalize_options(self) -> None:
        """Implement Command.finalize_options."""
        if not self.build_lib:
            self.build_lib = self.get_finalized_command("build").build_lib

    def run(self) -> None:
        """Build, into `build_lib`, or into the source tree for an editable install."""
        folder = Path(self.build_lib).resolve()
        fresh = self._outputs_of_steps()
        extensions = {
            ".".join(path.relative_to(folder).with_name(path.name.partition(".")[0]).parts): path
            for path in fresh
            if path.name.endswith(tuple(EXTENSION_SUFFIXES)) and path.is_file() and path.is_relative_to(folder)
        }
        built = self.project.build(extensions, editable=self.editable_mode)
        self._files = list(built.files)
        if self.editable_mode:
            self._package_root = built.package_root
            self.project.install(built)
            self._add_single_modules()
        else:
            self.project.assemble(built, folder, fresh)

    def get_source_files(self) -> list[str]:
        """Return the files that an sdist needs."""
        return self.project.files()

    def get_outputs(self) -> list[str]:
        """Return the files that the build adds to a wheel."""
        return [str(Path(self.build_lib, name)) for name in self._files]

    def get_output_mapping(self) -> dict[str, str]:
        """Return, for an editable install, the files that a wheel would have, each with its file in the source tree."""
        return {
            str(Path(self.build_lib, name)): str(Path(self._package_root, name))
            for name in (self._files if self.editable_mode else ())
        }

    def _outputs_of_steps(self) -> set[Path]:
        """Return the files that the other steps of this build have written."""
        build = self.get_finalized_command("build")
        steps = [self.get_finalized_command(name) for name in build.get_sub_commands() if name != NAME]
        return {Path(name).resolve() for step in steps if hasattr(step, "get_outputs") for name in step.get_outputs()}

    def _add_single_modules(self) -> None:
        """Add modules without a package to `py_modules`, since editable installs find only the modules in it."""
        modules = {name.removesuffix(".py") for name in self._files if name.endswith(".py") and "/" not in name}
        listed = self.distribution.py_modules or []
        if missing := sorted(modules - {*listed}):
            self.distribution.py_modules = [*listed, *missing]


class _Extension:
    """A mix-in for a command of setuptools."""

    project: Project
    if TYPE_CHECKING:
        distribution: Distribution
        plat_name: str
        plat_name_supplied: bool
        python_tag: str
        root_is_pure: bool

        def __getattr__(self, name: str) -> Any: ...


class _Build(_Extension):
    def get_sub_commands(self) -> list[str]:
        return [*super().get_sub_commands(), NAME]  # type: ignore[misc]


class _BdistWheel(_Extension):
    """The command that makes a wheel, with the tag of the build unless the project has extensions or sets a tag."""

    def finalize_options(self) -> None:
        super().finalize_options()  # type: ignore[misc]
        self._has_tag_of_build = bool(self.root_is_pure)
        self.root_is_pure = self.root_is_pure and self.project.tag()[2] == "any"

    def get_tag(self) -> tuple[str, str, str]:
        if not self._has_tag_of_build:
            return super().get_tag()  # type: ignore[misc, no-any-return]
        python, abi, system = self.project.tag()
        if self.python_tag != f"py{sys.version_info.major}":
            python = self.python_tag
        if self.plat_name_supplied:
            system = self.plat_name.lower().replace("-", "_").replace(".", "_")
        return python, abi, system

    def write_wheelfile(self, wheelfile_base: str, *arguments: Any, **more: Any) -> None:
        """Finish the metadata folder after its last file, in every version of setuptools."""
        super().write_wheelfile(wheelfile_base, *arguments, **more)  # type: ignore[misc]
        self.project.finish(Path(wheelfile_base))

    def run(self) -> None:
        with self.project.packing():
            super().run()  # type: ignore[misc]
        self.project.check_size()


class _EditableWheel(_Extension):
    def run(self) -> None:
        with self.project.packing():
            super().run()  # type: ignore[misc]


class _Develop(_Extension):
    def install_for_development(self) -> None:
        """Run the build step in the legacy mode of setuptools before 80, which runs no build steps."""
        with self.project.packing():
            step = self.get_finalized_command(NAME)
            step.editable_mode = True
            self.run_command(NAME)
            super().install_for_development()  # type: ignore[misc]


class _Sdist(_Extension):
    def run(self) -> None:
        self.project.check_sdist()
        super().run()  # type: ignore[misc]


class _Clean(_Extension):
    def run(self) -> None:
        super().run()  # type: ignore[misc]
        self.project.clean()


_EXTENSIONS: dict[str, type[_Extension]] = {
    "build": _Build,
    "bdist_wheel": _BdistWheel,
    "editable_wheel": _EditableWheel,
    "develop": _Develop,
    "sdist": _Sdist,
    "clean": _Clean,
}


def _warn(texts: Iterable[str]) -> None:
    _say(f"warning: {text}" for text in texts)


def _say(texts: Iterable[str]) -> None:
    for text in texts:
        print(f"aotcuda: {text}", file=sys.stderr)


def _abort(message: str, code: int) -> NoReturn:
    """End the build as setuptools does for wrong options."""
    sys.stdout.flush()
    print(message, file=sys.stderr)
    raise SystemExit(code)
