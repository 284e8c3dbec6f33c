"""Write small projects, build them, and read their wheels."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.builder.emit.progress import Progress
from aotcuda.manifest import shared
from integration import forked
from support import front_ends

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGES = Path(__file__).parents[1] / "packages"
CHECKOUT = Path(__file__).parents[2]

HATCHLING = (sys.executable, "-m", "hatchling", "build", "-t", "wheel")
BUILD = (sys.executable, "-m", "build", "--no-isolation")
_BUILD_META = "import logging; logging.disable(); from setuptools import build_meta; build_meta.{}('dist')"
SETUPTOOLS = (sys.executable, "-W", "ignore", "-c", _BUILD_META.format("build_wheel"))
"""The build of a wheel by setuptools, without setuptools' own output."""


ARCH_OF_FEATURES = {"AOTCUDA_ARCH": "sm_75;sm_90a;sm_100f;compute_75;compute_90a"}
"""Targets of every kind, for the wheel of `tests/packages/features`."""


class FrontEnd:
    """The front end of new projects, which the fixture `front_end` sets."""

    name = "numba-cuda"


class BackEnd:
    """The back end of new projects, which the fixture `back_end` sets."""

    name = "hatchling"


def command(*, editable: bool = False) -> tuple[str, ...]:
    """Return the command by which the back end makes a wheel, without a build tool."""
    if BackEnd.name == "hatchling":
        return (*HATCHLING[:-1], "wheel:editable") if editable else HATCHLING
    return (*SETUPTOOLS[:-1], _BUILD_META.format("build_editable")) if editable else SETUPTOOLS


def for_setuptools(project: Path) -> Path:
    """Convert a project for hatchling into one for setuptools: change the build system, and remove the hook's table."""
    config = project / "pyproject.toml"
    text = config.read_text().replace('"hatchling"', '"setuptools"').replace("hatchling.build", "setuptools.build_meta")
    config.write_text(
        re.sub(r"^\[tool\.hatch\.build\.targets\.wheel\.hooks\.aotcuda\]\n+", "", text, flags=re.MULTILINE)
    )
    return project


def copy(name: str, folder: Path) -> Path:
    """Return a copy of the project `tests/packages/<name>`, in `folder`, to build in."""
    project = Path(shutil.copytree(PACKAGES / name, folder, ignore=shutil.ignore_patterns("__pycache__", "dist")))
    if BackEnd.name == "setuptools":
        for_setuptools(project)
    return project if FrontEnd.name == "numba-cuda" else front_ends.port(project, front_ends.refused_names(name))


def example(name: str, folder: Path) -> Path:
    """Return a copy of the project `examples/<name>`, in `folder`, to build in."""
    ignored = shutil.ignore_patterns("__pycache__", "dist")
    return Path(shutil.copytree(CHECKOUT / "examples" / name, folder, ignore=ignored))


def source(text: str) -> str:
    """Return the text of a module for numba-cuda, ported to the front end of new projects."""
    return text if FrontEnd.name == "numba-cuda" else front_ends.port_source(text)


MODULE = 'tool.aotcuda.modules."pkg.k"'
"""The key of the module that `write` configures."""


def write(folder: Path, source: str, *, aotcuda: str = "", module: str = "", hook: str = "", rest: str = "") -> Path:
    """Return a project in `folder`: the package `pkg`, whose `_k.py` is `source` and whose wheel gets `pkg.k`.

    Args:
        folder: The project's folder, which must not exist.
        source: The text of `_k.py`.
        aotcuda: Keys of `[tool.aotcuda]` besides `arch`.
        module: Keys of the module's table besides `source`.
        hook: Keys of the hook's table.
        rest: Further text at the end of pyproject.toml.
    """
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "_k.py").write_text(source)
    arch = "" if re.search(r"^arch\b", aotcuda, re.MULTILINE) else 'arch = ["sm_80"]'
    (folder / "pyproject.toml").write_text(
        f"""\
[build-system]
requires = ["hatchling", "aotcuda[cu13]"]
build-backend = "hatchling.build"

[project]
name = "pkg"
version = "1.0"
dependencies = ["aotcuda"]

[tool.hatch.build.targets.wheel.hooks.aotcuda]
{hook}

[tool.aotcuda]
{arch}
{aotcuda}

[{MODULE}]
source = "pkg._k"
{module}
{rest}
"""
    )
    if BackEnd.name == "setuptools":
        for_setuptools(folder)
    return folder if FrontEnd.name == "numba-cuda" else front_ends.port(folder)


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a command."""

    status: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """Return the first line that aotcuda wrote, without its prefix."""
        return next((line for line in self.err.splitlines() if line.startswith("aotcuda: ")), self.err)[9:]


class Steps(Progress):
    """A display of progress that collects the steps."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, int, int]] = []

    def show(self, step: str, done: int, total: int, slowest: str = "") -> None:
        del slowest
        self.shown.append((step, done, total))

    def check(self, *, ends: bool = False) -> None:
        """Check that each worker knows its total at its first step, and counts up to it.

        Args:
            ends: The last step is shown, as in builds that use no cache.
        """
        counted = [(done, total) for _, done, total in self.shown if total]
        starts = [number for number, (done, _) in enumerate(counted) if not done]
        assert starts
        for start, end in itertools.pairwise([*starts, len(counted)]):
            done, totals = zip(*counted[start:end], strict=True)
            assert len({*totals}) == 1
            assert list(done) == sorted(done)
            assert done[-1] <= totals[0]
            assert done[-1] == totals[0] or not ends


SHOWN = {"AOTCUDA_PROGRESS": "", "AOTCUDA_BUILD_CACHE": "0"}
"""Variables for `run`: show progress and summary, and use no build cache."""


def run(project: Path, *command: str | Path, **environ: str) -> Done:
    """Run `command` in the folder `project`, with more environment variables.

    Progress is not shown, because its lines depend on the speed of the machine.
    """
    done = subprocess.run(
        [str(item) for item in command],
        cwd=project,
        env=environment(environ),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def environment(environ: dict[str, str]) -> dict[str, str]:
    """Return the variables of this process, changed by `environ`."""
    return os.environ | {"AOTCUDA_PROGRESS": "0"} | environ


def _build(project: Path, words: tuple[str | Path, ...], environ: dict[str, str], *, editable: bool = False) -> Done:
    """Run a command, or without one a forked back end."""
    return run(project, *words, **environ) if words else forked_run(project, *command(editable=editable), **environ)


def succeed(project: Path, *command: str | Path, **environ: str) -> Done:
    """Run a command, which must succeed."""
    return _check(run(project, *command, **environ), command)


def back_end(project: Path, *, editable: bool = False, **environ: str) -> Done:
    """Make a wheel by a forked back end, which must succeed."""
    words = command(editable=editable)
    return _check(forked_run(project, *words, **environ), words)


def aotcuda(project: Path, *arguments: str | Path, **environ: str) -> Done:
    """Run `aotcuda` in a forked Python; the command must succeed."""
    words = (sys.executable, "-m", "aotcuda", *map(str, arguments))
    return _check(forked_run(project, *words, **environ), words)


def forked_run(project: Path, *command: str, **environ: str) -> Done:
    """Run a command by a forked Python, in tests that do not depend on Python's start."""
    result = forked.run(project, command, environment(environ))
    return Done(*result) if result else run(project, *command, **environ)


def _check(done: Done, command: tuple[str | Path, ...]) -> Done:
    assert done.status == 0, f"{' '.join(map(str, command))}\n{done.out}\n{done.err}"
    return done


def build_wheel(project: Path, *words: str | Path, **environ: str) -> Path:
    """Build a wheel into the project's `dist`, by a command or else by the back end; return its path."""
    shutil.rmtree(project / "dist", ignore_errors=True)
    _check(_build(project, words, environ), words or command())
    (wheel,) = (project / "dist").glob("*.whl")
    return wheel


def refused(project: Path, *words: str | Path, editable: bool = False, **environ: str) -> Done:
    """Build `project`, which must fail without a traceback and without writing a file."""
    before = project_files(project)
    done = _build(project, words, environ, editable=editable)
    assert done.status != 0, done.err
    assert "Traceback" not in done.out + done.err, done.err
    assert project_files(project) == before
    return done


def project_files(project: Path) -> dict[str, bytes]:
    """Return the files of a project with their content, without files that setuptools writes into every project."""
    return {
        name: content
        for name, content in tree(project).items()
        if name.split("/")[0] != "build" and ".egg-info/" not in name
    }


def lines_of(err: str) -> list[str]:
    """Return the lines of a build's error output that begin with a key."""
    lines = [line.removeprefix("aotcuda: ") for line in err.splitlines()]
    return [line for line in lines if line.startswith("tool.aotcuda")]


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files below `folder` with their content, without bytecode."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def content(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel with their content; a name must be unique."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names)), f"{wheel.name} holds a file twice"
        return {name: archive.read(name) for name in names}


def unpacked(wheel: Path, folder: Path) -> Path:
    """Unpack a wheel into `folder`, and return the folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def manifest_of(files: dict[str, bytes], module: str) -> dict:
    """Return the manifest of `module` from the files of a wheel or a build."""
    manifest = json.loads(files[f"{module.replace('.', '/')}.aotcuda/manifest.json"])
    shared.expand(manifest)
    return manifest


def put(root: Path, files: Mapping[str, str]) -> Path:
    """Write text files below `root`, by their paths; return `root`."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
