"""Builds of one project by the four kinds of build, with the build cache and without, after edits of its inputs."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
import tomllib
import warnings
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from aotcuda import manifest as manifests
from aotcuda.builder.entry import api, build_command
from aotcuda.builder.plan import stages
from aotcuda.common import stamp
from aotcuda.errors import FallbackWarning, NoImageError
from aotcuda.runtime.jit import build_inputs
from aotcuda.runtime.jit import compile as jit_compile
from slow import stamp_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aotcuda.common.stamp import Stamp
    from slow.stamp_inputs import Input

    Files = dict[str, bytes]


class CompiledError(Exception):
    """The build would start a worker."""


def _table(root: Path) -> dict[str, object]:
    return tomllib.loads((root / "pyproject.toml").read_text())["tool"]["aotcuda"]


def _wheel(root: Path, _: Path) -> Files:
    return api.build(_table(root), root).files


def _editable(root: Path, _: Path) -> Files:
    return api.build(_table(root), root, editable=True).files


def _depfile(root: Path, folder: Path) -> Files:
    """Build into the same folder each time, which the dependency file names."""
    out = root / "build" / "depfile"
    shutil.rmtree(out, ignore_errors=True)
    build_command.build_project(root, out, depfile=out / "k.d", quiet=True)
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def _jit(root: Path, folder: Path) -> Files:
    jit_compile._caches.clear()  # as in a new process
    jit_compile._warned.clear()
    request = build_inputs.project("pkg.k", str(root))
    assert request is not None
    with patch.dict(os.environ, AOTCUDA_CACHE_DIR=str(folder / "jit")), warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        request = request.case(None, None, (9, 0), (13, 0))
        result = jit_compile.obtain(request, "a GPU of compute capability 9.0", NoImageError("the wheel has no image"))
    return {"kernels.cubin": result.image, "manifest.json": manifests.dump(result.manifest)}


KINDS: dict[str, Callable[[Path, Path], Files]] = {
    "wheel": _wheel,
    "editable install": _editable,
    "--depfile": _depfile,
    "JIT cache": _jit,
}


@dataclass
class Project:
    """A project, the caches of its builds and its environment.

    Attributes:
        base: The folder of the project, its caches and an installed distribution.
        front_end: The project's front end.
        made: The files of the last build of each kind.
        environ: Environment variables that edits have changed.
        launched: The stamp of the editable install, as in a process that launches its kernels.
    """

    base: Path
    front_end: str
    made: dict[str, Files] = field(default_factory=dict)
    environ: dict[str, str | None] = field(default_factory=dict)
    launched: Stamp | None = None

    def __post_init__(self) -> None:
        self.environ |= stamp_inputs.variables()
        self.base = self.base.resolve()
        stamp_inputs.generate(self.root, self.front_end)

    @property
    def root(self) -> Path:
        return self.base / "project"

    def build(self, kind: str, *, cache: bool = True, may_compile: bool = True) -> Files:
        """Build, and return the files.

        Args:
            kind: A key of `KINDS`.
            cache: True to use the caches that the project's builds share, False for an empty JIT cache and no other.
            may_compile: True to allow a worker; False to raise CompiledError before one starts.
        """
        run = nullcontext() if may_compile else patch.object(stages, "run", side_effect=CompiledError)
        with tempfile.TemporaryDirectory(dir=self.base) as temporary, self._environment(), run:
            folder = self.base / "caches" if cache else Path(temporary)
            with patch.dict(os.environ, AOTCUDA_BUILD_CACHE=str(folder / "builds") if cache else "0"):
                return KINDS[kind](self.root, folder)

    def build_all(self) -> None:
        """Fill the caches by each kind of build."""
        (self.base / "caches").mkdir(mode=0o700, exist_ok=True)
        self.made = {kind: self.build(kind) for kind in KINDS}
        manifest = manifests.parse(self.made["editable install"]["pkg/k.aotcuda/manifest.json"], "pkg.k")
        self.launched = stamp.from_manifest(manifest, str(self.root))

    def is_current(self, kind: str) -> bool:
        """Return True if a build returns the files of the last build without a worker."""
        try:
            return self.build(kind, may_compile=False) == self.made[kind]
        except CompiledError:
            return False

    def is_launched(self) -> bool:
        """Return True if a launch of the editable install would use its images."""
        assert self.launched is not None
        with self._environment():
            return self.launched.changed() is None

    def edit(self, name: str, item: Input) -> None:
        """Change an input."""
        item.edit(item.folder(name, self.root))
        self.environ |= item.variables[1]

    @contextmanager
    def _environment(self) -> Iterator[None]:
        """Set the variables, and the folder of an installed distribution on the path."""
        installed = str(self.base / "site-packages" / stamp_inputs.tag("an installed distribution"))
        path = [installed, *sys.path]
        with ExitStack() as stack:
            stack.enter_context(patch.dict(os.environ))
            stack.enter_context(patch.object(sys, "path", path))
            for name, value in self.environ.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            importlib.invalidate_caches()
            yield


def compare(project: Project, name: str, item: Input, kinds: tuple[str, ...] = tuple(KINDS)) -> list[str]:
    """Edit an input of a built project, build with the caches and without, and return the problems."""
    problems = [f"{kind}: not taken from the cache before the edit" for kind in kinds if not project.is_current(kind)]
    project.edit(name, item)
    problems += [f"{kind}: the edit was not noticed" for kind in kinds if project.is_current(kind)]
    for kind in kinds:
        built, plain = project.build(kind), project.build(kind, cache=False)
        must_change = project.front_end in item.changes and not (kind == "JIT cache" and item.row == stamp_inputs.TABLE)
        if built != plain:
            differing = [file for file in {*built, *plain} if built.get(file) != plain.get(file)]
            problems.append(f"{kind}: builds with and without the cache differ: {', '.join(sorted(differing))}")
        if must_change and plain == project.made[kind]:
            problems.append(f"{kind}: the edit changed nothing")
        project.made[kind] = built
    return problems
