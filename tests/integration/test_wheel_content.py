"""Test that builds import the packages that the back end packs, and that sdists have all files of the table."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import pytest

from integration import projects

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("build_cache")

KERNELS = "from numba import cuda\n\n@cuda.jit\ndef f(x):\n    x[0] = 1\n"
FUNCTION = 'extern "C" __device__ int g() { return 1; }'
HATCHLING = """\
[build-system]
requires = ["hatchling", "aotcuda[cu13]"]
build-backend = "hatchling.build"

[project]
name = "other-name"
version = "1.0"
dependencies = ["aotcuda"]

[tool.hatch.build.targets.wheel.hooks.aotcuda]
"""
SETUPTOOLS = """\
[build-system]
requires = ["setuptools", "aotcuda[cu13]"]
build-backend = "setuptools.build_meta"

[project]
name = "other-name"
version = "1.0"
dependencies = ["aotcuda"]
"""
WHEEL = "[tool.hatch.build.targets.wheel]\n"
MODULE = 'tool.aotcuda.modules."ripple.k"'


def write(folder: Path, back_end: str, choice: str, *, location: str, source: str = "ripple._kernels") -> Path:
    """Write a project with its package in the folder `location`. `choice` selects the files of the wheel."""
    table = f'[tool.aotcuda]\narch = ["sm_80"]\n\n[{MODULE}]\nsource = "{source}"\nkernels.f = "void(float32[::1])"\n'
    head = HATCHLING if back_end == "hatchling" else SETUPTOOLS
    files = {
        "pyproject.toml": f"{head}\n{choice}\n{table}",
        f"{location}/__init__.py": "",
        f"{location}/_kernels.py": KERNELS,
    }
    return projects.put(folder / "project", files)


@pytest.fixture
def select(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that selects the back end of the test."""

    def select(back_end: str) -> None:
        monkeypatch.setattr(projects.BackEnd, "name", back_end)
        if back_end == "setuptools":
            monkeypatch.setenv("PYTHONPATH", str(request.getfixturevalue("setuptools")("")))

    return select


CHOICES = {
    "sources without packages": ("hatchling", f'{WHEEL}sources = ["src"]\nonly-include = ["src/ripple"]', "src/ripple"),
    "sources and include": ("hatchling", f'{WHEEL}sources = ["lib"]\ninclude = ["lib/ripple/**"]', "lib/ripple"),
    "a removed prefix": (
        "hatchling",
        f'{WHEEL}only-include = ["a/b"]\nsources = {{ "a/b" = "" }}',
        "a/b/ripple",
    ),
    "force-include": (
        "hatchling",
        f'{WHEEL}bypass-selection = true\n[tool.hatch.build.targets.wheel.force-include]\n"deep/er/ripple" = "ripple"',
        "deep/er/ripple",
    ),
    "package-dir": (
        "setuptools",
        '[tool.setuptools]\npackages = ["ripple"]\npackage-dir = { "" = "lib" }',
        "lib/ripple",
    ),
    "find where": ("setuptools", '[tool.setuptools.packages.find]\nwhere = ["code"]', "code/ripple"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_build_imports_the_package_that_the_back_end_packs(
    name: str, select: Callable[[str], None], tmp_path: Path
) -> None:
    back_end, choice, location = CHOICES[name]
    select(back_end)
    files = projects.content(projects.build_wheel(write(tmp_path, back_end, choice, location=location)))
    assert {"ripple/__init__.py", "ripple/_kernels.py", "ripple/k.py", "ripple/k.aotcuda/manifest.json"} <= {*files}


NAME = "ripple._kernels"
REFUSED = {
    "hatchling packs another folder": (
        ("hatchling", f'{WHEEL}only-include = ["other"]', "src/ripple", NAME),
        (
            f'{MODULE}: the package ripple is missing from the wheel; add "src/ripple" to '
            "tool.hatch.build.targets.wheel.packages"
        ),
    ),
    "setuptools packs another one": (
        ("setuptools", '[tool.setuptools]\npackages = ["other"]', "ripple", NAME),
        (
            f'{MODULE}: the package ripple is missing from the wheel; let setuptools find "ripple", for '
            "example by tool.setuptools.packages.find.where"
        ),
    ),
    "a source by the name of its folder": (
        ("hatchling", f'{WHEEL}packages = ["src/ripple"]', "src/ripple", "src.ripple._kernels"),
        f'{MODULE}.source: the wheel has src.ripple._kernels as ripple._kernels; write source = "ripple._kernels"',
    ),
    "a package that is renamed": (
        ("hatchling", f'{WHEEL}only-include = ["src/a"]\nsources = {{ "src/a" = "ripple" }}', "src/a", NAME),
        (
            f"{MODULE}: the wheel has src/a/__init__.py as ripple/__init__.py, and a build imports modules by "
            "their folders; name the folder ripple"
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_package_missing_from_the_wheel_is_refused(name: str, select: Callable[[str], None], tmp_path: Path) -> None:
    (back_end, choice, location, source), message = REFUSED[name]
    select(back_end)
    project = write(tmp_path, back_end, choice, location=location, source=source)
    projects.put(project, {"other/__init__.py": ""})
    done = projects.refused(project)
    assert [line for line in done.err.splitlines() if "aotcuda" in line] == [f"aotcuda: {message}"]


def sdist(project: Path, back_end: str) -> set[str]:
    """Make an sdist, which compiles nothing. Return its file names, without the top folder."""
    if back_end == "hatchling":
        command = (*projects.HATCHLING[:-1], "sdist")
    else:
        command = (*projects.SETUPTOOLS[:-1], "from setuptools import build_meta; build_meta.build_sdist('dist')")
    done = projects.forked_run(project, *command, AOTCUDA_ARCH="a target that no build accepts")
    assert done.status == 0, done.err
    (path,) = (project / "dist").glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


@pytest.mark.parametrize("packer", ["hatchling", "setuptools"])
def test_sdist_has_files_of_the_table_and_no_records(
    packer: str, select: Callable[[str], None], tmp_path: Path
) -> None:
    choice = "" if packer == "hatchling" else '[tool.setuptools.packages.find]\nwhere = ["src"]'
    select(packer)
    project = write(tmp_path, packer, choice, location="src/ripple")
    config = project / "pyproject.toml"
    linked = ["csrc/a.cu", "csrc/b.ptx", "csrc/c.o", "out/d.ltoir"]
    keys = 'watch = ["data/*.h5", "../outside.h", "/etc/hostname"]\nprelude = "_prelude"'
    text = config.read_text().replace("targets.wheel.hooks", "hooks")
    text = text.replace("[tool.aotcuda]", f"[tool.aotcuda]\n{keys}")
    config.write_text(f"{text}link = {linked}\noptions.include-dirs = ['inc']\n")
    read = ["csrc/a.h", "lib/b.tpp", "lib/deep/c", "lib/d.h", "inc/deep/x.cuh", "_prelude.py", "data/a.h5"]
    projects.put(project, dict.fromkeys([*linked, *read, "../outside.h", ".aotcuda-record.json"], ""))
    includes = ["a.h", "link.h", "../lib/b.tpp", "../../outside.h"]
    projects.put(project, {"csrc/a.cu": "\n".join(f'#include "{name}"' for name in includes)})
    projects.put(project, {"lib/b.tpp": '#include "deep/c"'})
    (project / "csrc/link.h").symlink_to("../lib/d.h")
    projects.put(project, {".gitignore": "*.ptx\n*.o\nout/\ninc/\nlib/\n.aotcuda-record.json\n"})
    (project / ".git").mkdir()
    names = sdist(project, packer)
    assert {*linked, *read, "csrc/link.h", "src/ripple/_kernels.py"} <= names
    assert not [name for name in names if "outside" in name or "hostname" in name or name.startswith("src/ripple/k")]
    assert ".aotcuda-record.json" not in names
    (project / ".gitignore").unlink()
    (project / "dist").rename(project.parent / "dist")
    assert ".aotcuda-record.json" not in sdist(project, packer)


def test_wheel_hook_refuses_sdists_with_other_files(tmp_path: Path) -> None:
    project = write(tmp_path, "hatchling", "", location="ripple")
    config = project / "pyproject.toml"
    text = config.read_text().replace('name = "other-name"', 'name = "ripple"')
    config.write_text(text.replace('source = "ripple', 'link = ["f.cu"]\nsource = "ripple'))
    (project / ".git").mkdir()
    projects.put(project, {"f.cu": FUNCTION, ".gitignore": "*.cu\n", ".aotcuda-record.json": "{}"})
    message = (
        "pyproject.toml: an sdist of this project lacks f.cu and has .aotcuda-record.json; write "
        "[tool.hatch.build.hooks.aotcuda] in place of [tool.hatch.build.targets.wheel.hooks.aotcuda], which leaves "
        "sdists to hatchling"
    )
    assert projects.refused(project).err == f"aotcuda: {message}\n"
    assert f"aotcuda: warning: {message}" in projects.back_end(project, editable=True).err
    config.write_text(config.read_text().replace("targets.wheel.hooks", "hooks"))
    assert "an sdist" not in projects.back_end(project, editable=True).err
