"""Small projects to build, the commands that build them, and what lies in the wheels that come out."""

from __future__ import annotations

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
"""What front ends ask setuptools for, in one process, without the lines that setuptools itself writes."""


ARCH_OF_FEATURES = {"AOTCUDA_ARCH": "sm_75;sm_90a;sm_100f;compute_75;compute_90a"}
"""Targets of every kind, for the wheel of `tests/packages/features` that several tests look into."""


class FrontEnd:
    """The front end that projects are made for; tests of the second one set it while they run."""

    name = "numba-cuda"


class BackEnd:
    """The back end that projects are made for; tests of the second one set it while they run."""

    name = "hatchling"


def command(*, editable: bool = False) -> tuple[str, ...]:
    """Return the command that has the back end make a wheel, without a front end around it."""
    if BackEnd.name == "hatchling":
        return (*HATCHLING[:-1], "wheel:editable") if editable else HATCHLING
    return (*SETUPTOOLS[:-1], _BUILD_META.format("build_editable")) if editable else SETUPTOOLS


def for_setuptools(project: Path) -> Path:
    """Make `project`, written for hatchling, one for setuptools: that is the build system, and no hook's table."""
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
    return project if FrontEnd.name == "numba-cuda" else front_ends.port(project, front_ends.absent(name))


def example(name: str, folder: Path) -> Path:
    """Return a copy of the project `examples/<name>`, in `folder`, to build in."""
    ignored = shutil.ignore_patterns("__pycache__", "dist")
    return Path(shutil.copytree(CHECKOUT / "examples" / name, folder, ignore=ignored))


def source(text: str) -> str:
    """The text of a Python module that was written for numba-cuda, for the front end that projects are made for."""
    return text if FrontEnd.name == "numba-cuda" else front_ends.ported(text)


MODULE = 'tool.aotcuda.modules."pkg.k"'
"""The key of the module that `write` configures."""


def write(folder: Path, source: str, *, aotcuda: str = "", module: str = "", hook: str = "", rest: str = "") -> Path:
    """Return a project in `folder`: package `pkg`, whose `_k.py` is `source` and whose wheel is to gain `pkg.k`.

    Args:
        folder: Where to write it.
        source: The functions.
        aotcuda: Keys of `[tool.aotcuda]` beside `arch`.
        module: Keys of the module's table beside `source`; inline tables, one a line.
        hook: Keys of the hook's own table.
        rest: Anything else at the end of pyproject.toml.
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
    def said(self) -> str:
        """Return the first line that aotcuda wrote, without what marks it as an error of the hook."""
        return next((line for line in self.err.splitlines() if line.startswith("aotcuda: ")), self.err)[9:]


SHOWN = {"AOTCUDA_PROGRESS": "", "AOTCUDA_BUILD_CACHE": "0"}
"""For `run`: progress and summary are shown, as they are by default, of a build that does all of its work."""


def run(project: Path, *command: str | Path, **environ: str) -> Done:
    """Run `command` in the folder `project`, with more environment variables.

    Progress is not shown: it is lines that come on a slow machine alone, among those that tests compare.
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
    """Return what a command gets: the variables of this process, and `environ`."""
    return os.environ | {"AOTCUDA_PROGRESS": "0"} | environ


def _built(project: Path, given: tuple[str | Path, ...], environ: dict[str, str], *, editable: bool = False) -> Done:
    """`run`, by the back end where no command is given: of its start nothing is tested then."""
    return run(project, *given, **environ) if given else forked_run(project, *command(editable=editable), **environ)


def succeed(project: Path, *command: str | Path, **environ: str) -> Done:
    """`run`, for a command that has to succeed."""
    return _succeeded(run(project, *command, **environ), command)


def back_end(project: Path, *, editable: bool = False, **environ: str) -> Done:
    """Have the back end make a wheel, which has to succeed; of its start nothing is tested."""
    made = command(editable=editable)
    return _succeeded(forked_run(project, *made, **environ), made)


def aotcuda(project: Path, *arguments: str | Path, **environ: str) -> Done:
    """Run `aotcuda` with these arguments, which has to succeed; of its start nothing is tested."""
    made = (sys.executable, "-m", "aotcuda", *map(str, arguments))
    return _succeeded(forked_run(project, *made, **environ), made)


def forked_run(project: Path, *command: str, **environ: str) -> Done:
    """Run a command by a forked Python, for tests that are not about its start."""
    served = forked.run(project, command, environment(environ))
    return Done(*served) if served else run(project, *command, **environ)


def _succeeded(done: Done, command: tuple[str | Path, ...]) -> Done:
    assert done.status == 0, f"{' '.join(map(str, command))}\n{done.out}\n{done.err}"
    return done


def build_wheel(project: Path, *given: str | Path, **environ: str) -> Path:
    """Build a wheel of `project` into its `dist`, by the back end unless a command is given; returns its path."""
    shutil.rmtree(project / "dist", ignore_errors=True)
    _succeeded(_built(project, given, environ), given or command())
    (wheel,) = (project / "dist").glob("*.whl")
    return wheel


def refused(project: Path, *given: str | Path, editable: bool = False, **environ: str) -> Done:
    """Build `project`, which must fail as a user is promised: no traceback, and nothing written anywhere."""
    before = own(project)
    done = _built(project, given, environ, editable=editable)
    assert done.status != 0, done.err
    assert "Traceback" not in done.out + done.err, done.err
    assert own(project) == before
    return done


def own(project: Path) -> dict[str, bytes]:
    """`tree`, without what setuptools writes into every project that it builds."""
    return {
        name: content
        for name, content in tree(project).items()
        if name.split("/")[0] != "build" and ".egg-info/" not in name
    }


def lines_of(err: str) -> list[str]:
    """Return the lines of a build's error that stand for a mistake each."""
    lines = [line.removeprefix("aotcuda: ") for line in err.splitlines()]
    return [line for line in lines if line.startswith("tool.aotcuda")]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` with its content; compiled Python apart."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def content(wheel: Path) -> dict[str, bytes]:
    """Return the files in a wheel, each of which is in there once."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names)), f"{wheel.name} holds a file twice"
        return {name: archive.read(name) for name in names}


def unpacked(wheel: Path, folder: Path) -> Path:
    """Unpack a wheel into `folder`, and return that."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def manifest_of(files: dict[str, bytes], module: str) -> dict:
    """Return the manifest of `module` among the files of a wheel or a build."""
    found = json.loads(files[f"{module.replace('.', '/')}.aotcuda/manifest.json"])
    shared.expand(found)
    return found


def put(root: Path, files: Mapping[str, str]) -> Path:
    """Return a project of these files, by their paths."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root
