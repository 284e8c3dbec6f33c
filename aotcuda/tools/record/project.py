"""Find the project of a recorded command: its folder, its pyproject.toml and its modules."""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from aotcuda.common import foreign, project_file
from aotcuda.common.project_file import FILE_NAME, strings, table
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEST_FILES = ("test_*.py", "*_test.py", "conftest.py")
_TEST_FOLDERS = ("test", "tests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project.

    Attributes:
        root: Its folder.
        text: The text of its pyproject.toml; None if it has none.
        data: The content.
        packages: The installed packages whose kernels go into a pack.
    """

    root: Path
    text: str | None
    data: dict[str, Any] = field(default_factory=dict)
    packages: tuple[str, ...] = ()

    @property
    def pyproject(self) -> Path:
        """Return the path of its pyproject.toml, which may not exist."""
        return self.root / FILE_NAME

    @property
    def aotcuda(self) -> dict[str, Any]:
        """Return `[tool.aotcuda]`, or an empty table."""
        return table(self.data, "tool", "aotcuda")

    def import_roots(self) -> list[Path]:
        """Return the folders from which its packages are imported."""
        where = strings(table(self.data, "tool", "setuptools", "packages", "find").get("where"))
        folders = strings([*table(self.data, "tool", "setuptools", "package-dir").values()])
        packages = strings(table(self.data, "tool", "hatch", "build", "targets", "wheel").get("packages"))
        names = ["src", ".", *where, *folders, *(str(PurePosixPath(package).parent) for package in packages)]
        return list(dict.fromkeys(path for path in (self.root / name for name in names) if path.is_dir()))

    def file_of(self, module: str) -> Path | None:
        """Return the source file of a module of the project; None for another module."""
        for root in self.import_roots():
            base = root.joinpath(*module.split("."))
            for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
                if path.is_file():
                    return path
        return None


def find(start: Path) -> Project:
    """Return the project of the nearest folder upwards with a pyproject.toml, else of the folder itself.

    Raises:
        ConfigError: The pyproject.toml cannot be read, or is not valid TOML.
    """
    start = Path(os.path.realpath(start))  # pathlib raises for links in a circle
    folders = (start, *start.parents)
    root = next((folder for folder in folders if os.path.isfile(folder / FILE_NAME)), start)  # noqa: PTH113 (as above)
    return read(root)


def read(root: Path) -> Project:
    """Return the project in a folder.

    Raises:
        ConfigError: As for `find`.
    """
    path = root / FILE_NAME
    try:
        found = project_file.read(path)
    except foreign.UnreadableError as error:
        message = f"{path} {error}; the file was not changed"
        raise ConfigError(message) from None
    if found is None:
        return Project(root=root, text=None)
    text, data = found
    for name in ("build-system", "project", "tool"):
        if not isinstance(data.get(name, {}), dict):
            message = f"{path} has {name} that is not a table; the file was not changed"
            raise ConfigError(message)
    return Project(root=root, text=text, data=data)


def is_test(file: str) -> bool:
    """Return True if a file is a test, by pytest's naming rules."""
    path = PurePosixPath(file)
    return path.parts[0] in _TEST_FOLDERS or any(fnmatch.fnmatch(path.name, pattern) for pattern in _TEST_FILES)


def python_files(project: Project) -> Iterator[tuple[str, Path]]:
    """Yield the modules of a project except tests, each with its file."""
    seen: set[Path] = set()
    for root in project.import_roots():
        inside = (file for package in _packages(project, root) for file in sorted(package.rglob("*.py")))
        for path in [*sorted(root.glob("*.py")), *inside]:
            names = path.relative_to(root).with_suffix("").parts
            test = is_test(path.relative_to(project.root).as_posix())
            if path not in seen and not test and all(name.isidentifier() for name in names):
                seen.add(path)
                yield ".".join(names).removesuffix(".__init__"), path


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
