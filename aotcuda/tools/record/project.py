"""Read the project of a command: its folder, its pyproject.toml, its Python files and its CUDA C++ files."""

from __future__ import annotations

import fnmatch
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from aotcuda import registry
from aotcuda.common import data_folder, foreign, project_file
from aotcuda.common.project_file import FILE_NAME, strings, table
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TEST_FILES = ("test_*.py", "*_test.py", "conftest.py")
_TEST_FOLDERS = ("test", "tests")
_OUTPUT_FOLDERS = {"build", "dist", "node_modules", "__pycache__"}
_CUDA_KERNEL = re.compile(rb"\b__global__\b")
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project.

    Attributes:
        root: Its folder.
        text: The text of its pyproject.toml; None if it has none.
        data: The content.
        packages: Installed packages whose kernels go into a pack (`--packages`).
    """

    root: Path
    text: str | None
    data: dict[str, Any] = field(default_factory=dict)
    packages: tuple[str, ...] = ()

    @classmethod
    def find(cls, start: Path) -> Project:
        """Return the project of the nearest folder upwards with a pyproject.toml, else of the folder itself.

        Raises:
            ConfigError: The pyproject.toml cannot be read, or is not valid TOML.
        """
        start = Path(os.path.realpath(start))  # pathlib raises for links in a circle
        folders = (start, *start.parents)
        root = next((folder for folder in folders if os.path.isfile(folder / FILE_NAME)), start)  # noqa: PTH113 (raises)
        return cls.read(root)

    @classmethod
    def read(cls, root: Path) -> Project:
        """Return the project in a folder.

        Raises:
            ConfigError: The pyproject.toml cannot be read, or is not valid TOML.
        """
        path = root / FILE_NAME
        try:
            content = project_file.read(path)
        except foreign.UnreadableError as error:
            message = f"{path} {error}; the file was not changed"
            raise ConfigError(message) from None
        if content is None:
            return cls(root=root, text=None)
        text, data = content
        for name in ("build-system", "project", "tool"):
            if not isinstance(data.get(name, {}), dict):
                message = f"{path} has {name} that is not a table; the file was not changed"
                raise ConfigError(message)
        return cls(root=root, text=text, data=data)

    @property
    def pyproject(self) -> Path:
        """Return the path of its pyproject.toml, which may not exist."""
        return self.root / FILE_NAME

    @property
    def aotcuda(self) -> dict[str, Any]:
        """Return `[tool.aotcuda]`, or an empty table."""
        return table(self.data, "tool", "aotcuda")

    @property
    def modules(self) -> dict[str, dict[str, Any]]:
        """Return the tables of `[tool.aotcuda.modules]` by name. The build reports values that are not tables."""
        return {name: item for name, item in table(self.aotcuda, "modules").items() if isinstance(item, dict)}

    @property
    def types(self) -> dict[str, str]:
        """Return the names for types in `[tool.aotcuda.types]`."""
        return {name: text for name, text in table(self.aotcuda, "types").items() if isinstance(text, str)}

    def without_kernels(self) -> Project:
        """Return the project with modules that package nothing."""
        modules = {
            name: {key: value for key, value in module.items() if key not in ("kernels", "functions")}
            for name, module in self.modules.items()
        }
        tool = {**table(self.data, "tool"), "aotcuda": {**self.aotcuda, "modules": modules}}
        return replace(self, data={**self.data, "tool": tool})

    def front_end(self, module: Mapping[str, Any]) -> str:
        """Return the front end of a module's table."""
        return str(module.get("frontend", self.aotcuda.get("frontend", registry.DEFAULT)))

    def import_roots(self) -> list[Path]:
        """Return the folders from which its packages are imported."""
        where = strings(table(self.data, "tool", "setuptools", "packages", "find").get("where"))
        folders = strings([*table(self.data, "tool", "setuptools", "package-dir").values()])
        packages = strings(table(self.data, "tool", "hatch", "build", "targets", "wheel").get("packages"))
        names = ["src", ".", *where, *folders, *(str(PurePosixPath(package).parent) for package in packages)]
        return list(dict.fromkeys(path for path in (self.root / name for name in names) if path.is_dir()))

    def own_packages(self) -> dict[str, Path]:
        """Return the folder from which each of its packages and modules outside packages is imported, by name."""
        roots = self.import_roots()
        names = {package.name: root for root in roots for package in _packages(self, root) if package.parent == root}
        modules = {path.stem: root for root in roots for path in root.glob("*.py") if root != self.root}
        return modules | names

    def file_of(self, module: str) -> Path | None:
        """Return the source file of a module of the project; None for another module."""
        for root in self.import_roots():
            base = root.joinpath(*module.split("."))
            for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
                if path.is_file():
                    return path
        return None

    def python_files(self) -> Iterator[tuple[str, Path]]:
        """Yield the modules of the project except tests, each with its file."""
        seen: set[Path] = set()
        for root in self.import_roots():
            inside = (file for package in _packages(self, root) for file in sorted(package.rglob("*.py")))
            for path in [*sorted(root.glob("*.py")), *inside]:
                names = path.relative_to(root).with_suffix("").parts
                test = is_test(path.relative_to(self.root).as_posix())
                if path not in seen and not test and all(name.isidentifier() for name in names):
                    seen.add(path)
                    yield ".".join(names).removesuffix(".__init__"), path

    def cuda_files(self) -> Iterator[str]:
        """Yield the `.cu` files with kernels outside tests, build folders and environments, relative to the project."""
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and not _has_outputs(name))
            if "pyvenv.cfg" in names:
                folders.clear()
                continue
            for path in sorted(Path(folder, name) for name in names if name.endswith(".cu")):
                file = path.relative_to(self.root).as_posix()
                if path.is_file() and not is_test(file) and _has_cuda_kernels(path):
                    yield file


def _has_outputs(name: str) -> bool:
    """Return True for the name of a folder that builds write; data folders hold copies of sources."""
    return name in _OUTPUT_FOLDERS or name.endswith(data_folder.FOLDER_SUFFIX)


def sources_of(module: Mapping[str, Any]) -> list[str]:
    """Return the value of `source` in a module's table, a string or a list of strings, as a list."""
    source = module.get("source")
    return strings(source if isinstance(source, list) else [source])


def is_test(file: str) -> bool:
    """Return True if a file is a test, by pytest's naming rules."""
    path = PurePosixPath(file)
    return path.parts[0] in _TEST_FOLDERS or any(fnmatch.fnmatch(path.name, pattern) for pattern in _TEST_FILES)


def _has_cuda_kernels(path: Path) -> bool:
    try:
        text = foreign.content(path)
    except foreign.UnreadableError:
        return False
    return _CUDA_KERNEL.search(_COMMENT.sub(b"", text)) is not None


def _packages(project: Project, root: Path) -> list[Path]:
    """Return the packages in a folder from which packages are imported.

    A package without `__init__.py` differs from folders such as `docs` or `examples` by its parent folder, which has
    only packages, or by its name in the project's build configuration.
    """
    setuptools = table(project.data, "tool", "setuptools")
    wheel = table(project.data, "tool", "hatch", "build", "targets", "wheel")
    find = table(setuptools, "packages", "find")
    where = [project.root / name for name in strings(find.get("where")) or ["."]]
    mapped = [project.root / name for name in strings([table(setuptools, "package-dir").get("")])]
    has_packages_alone = root in (project.root / "src", *where, *mapped) and root != project.root
    patterns = strings(find.get("include")) if root in where and find.get("namespaces", True) else []
    tops = [top for pattern in patterns if (top := pattern.partition(".")[0]).strip("*")]
    included = [project.root / name for name in strings(wheel.get("only-include"))]
    packed = [path for name in strings(wheel.get("packages")) if (path := project.root / name).parent == root]
    listed = [name.split(".") for name in strings(setuptools.get("packages"))]
    inside = [root.joinpath(*names) for names in listed if all(name.isidentifier() for name in names)]

    def is_package(path: Path) -> bool:
        may_lack_init = has_packages_alone or any(fnmatch.fnmatch(path.name, top) for top in tops)
        return (path / "__init__.py").is_file() or (may_lack_init and path.is_dir() and path.name not in _TEST_FOLDERS)

    named = [path for path in (*packed, *included, *inside) if root in path.parents and path.is_dir()]
    return [*(path for path in sorted(root.iterdir()) if is_package(path)), *named]
