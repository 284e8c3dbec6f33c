"""Test that build systems without a hook run `aotcuda build` as a step, with the code of docs/build-systems.md.

Each back end builds a project. Its build tool builds the project again after edits.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aotcuda
from integration import projects
from integration.projects import BUILD, Done, build_wheel, content, run, succeed, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BIN = Path(sys.prefix, "bin")

SOURCE = """\
from pathlib import Path

from numba import cuda

table = int((Path(__file__).parents[1] / "table.txt").read_text())
scaled = cuda.declare_device("scaled", "int32(int32)", abi="c")


@cuda.jit
def f(out):
    out[0] = scaled(out[0]) + table
"""
LINKED = """\
#include "factor.h"
extern "C" __device__ int scaled(int x) { return x * FACTOR; }
"""

PAGE = (projects.CHECKOUT / "docs" / "build-systems.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the page's blocks in a language, with the names of the tests' package and module."""
    texts = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text.replace("mypkg", "pkg").replace("kernels", "k") for text in texts]


def write(folder: Path, requires: str, backend: str, rest: str = "") -> Path:
    """Write a project for a build back end."""
    project = projects.write(folder, SOURCE, module='kernels.f = "void(int32[::1])"\nlink = ["csrc/scaled.cu"]')
    config = project / "pyproject.toml"
    text = config.read_text().replace("[tool.hatch.build.targets.wheel.hooks.aotcuda]\n", "")
    text = text.replace('"hatchling"', f'"{requires}"').replace('"hatchling.build"', f'"{backend}"')
    config.write_text(text.replace("[tool.aotcuda]\n", '[tool.aotcuda]\nfallback = "error"\n') + rest)
    (project / "csrc").mkdir()
    (project / "csrc" / "scaled.cu").write_text(LINKED)
    (project / "csrc" / "factor.h").write_text("#define FACTOR 3\n")
    (project / "table.txt").write_text("5\n")
    return project


class Built:
    """A built project, and the folder of its build tool.

    Attributes:
        project: The project.
        name: The name of its wheel.
        wheel: The files in the wheel.
        package: The package's folder below the folder of the build tool.
    """

    def __init__(self, project: Path, package: str) -> None:
        self.project = project
        wheel = build_wheel(project, *BUILD, "--skip-dependency-check", "--wheel", "-Cbuild-dir=tool")
        self.name = wheel.name
        self.wheel = content(wheel)
        self.package = project / "tool" / package

    def build(self) -> Done:
        return run(self.project / "tool", BIN / "ninja")

    def would_build(self) -> bool:
        """Return True if the build tool would build anything."""
        return "no work to do" not in succeed(self.project / "tool", BIN / "ninja", "-n").out

    def times(self) -> dict[str, int]:
        """Return the modification time of each file of the package, in nanoseconds."""
        return {path.name: path.stat().st_mtime_ns for path in self.package.rglob("*")}


def meson(folder: Path) -> Built:
    return Built(meson_project(folder / "project"), "pkg")


def meson_project(folder: Path) -> Path:
    project = write(folder, "meson-python", "mesonpy")
    for path, text in zip((project, project / "pkg"), blocks("meson"), strict=True):
        (path / "meson.build").write_text(text)
    return project


def scikit_build_core(folder: Path) -> Built:
    return Built(scikit_build_core_project(folder / "project"), "gpu_code/pkg")


def scikit_build_core_project(folder: Path) -> Path:
    (toml,) = [text for text in blocks("toml") if "[tool.scikit-build" in text]
    table = toml[toml.index("[tool.") :]
    project = write(folder, "scikit-build-core", "scikit_build_core.build", table)
    (text,) = blocks("cmake")
    (project / "CMakeLists.txt").write_text(text)
    return project


@pytest.fixture(
    scope="module",
    params=[meson, pytest.param(scikit_build_core, marks=pytest.mark.matrix)],  # the tests below run CMake, too
    ids=lambda make: make.__name__,
)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(BIN), prepend=":")
        yield request.param(tmp_path_factory.mktemp(request.param.__name__))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of a project after `aotcuda build`."""
    project = write(tmp_path_factory.mktemp("expected") / "project", "flit_core", "flit_core.buildapi")
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace('version = "1.0"', 'version = "1.0"\ndescription = "A package"'))
    projects.aotcuda(project, "build", "--out", ".")
    return tree(project)


def test_wheel_is_universal_and_has_the_built_files(built: Built, expected: dict[str, bytes]) -> None:
    assert built.name == "pkg-1.0-py3-none-any.whl"
    generated = {name: data for name, data in expected.items() if name.startswith("pkg/k.")}
    assert len(generated) == 5
    assert {name: data for name, data in built.wheel.items() if not name.startswith("pkg-1.0.")} == {
        **generated,
        "pkg/__init__.py": b"",
        "pkg/_k.py": SOURCE.encode(),
    }


@pytest.mark.parametrize("name", ["pkg/_k.py", "csrc/scaled.cu", "csrc/factor.h", "table.txt", "pyproject.toml"])
def test_touched_input_triggers_a_build(built: Built, name: str) -> None:
    path = built.project / name
    before = path.stat().st_mtime_ns
    assert not built.would_build()
    path.touch()
    assert built.would_build()
    os.utime(path, ns=(before, before))
    assert not built.would_build()


def test_edited_or_missing_files_are_built_again(built: Built) -> None:
    before = built.times()
    (built.project / "csrc" / "factor.h").write_text("#define FACTOR 4\n")
    assert built.build().status == 0
    after = built.times()
    assert [name for name in sorted(before) if name.startswith("k.") and before[name] == after[name]] == ["k.pyi"]
    assert before["kernels.fatbin"] != after["kernels.fatbin"]
    assert not built.would_build()
    files = tree(built.package)
    (built.package / "k.py").unlink()
    assert built.build().status == 0
    assert tree(built.package) == files
    assert not built.would_build()


def test_error_is_repeated_until_it_is_fixed(built: Built) -> None:
    config = built.project / "pyproject.toml"
    before, text = built.times(), config.read_text()
    config.write_text(text.replace('"pkg._k"', '"pkg._l"'))
    done = built.build()
    assert done.status != 0
    assert 'aotcuda: tool.aotcuda.modules."pkg.k".source: ' in done.out + done.err
    assert built.would_build()
    config.write_text(f'{text}\n[tool.other]\nkey = "value"\n')
    assert built.build().status == 0
    assert built.times() == before
    assert not built.would_build()


@pytest.mark.matrix  # CI packs wheels and builds them again
@pytest.mark.parametrize(
    ("hook", "settings"),
    [
        ("mesonpy", {"build-dir": "tool"}),
        ("scikit_build_core.build", {"build-dir": "tool", "editable.mode": "redirect"}),
        ("scikit_build_core.build", {"build-dir": "tool", "editable.mode": "redirect", "editable.rebuild": "true"}),
        ("scikit_build_core.build", {"editable.mode": "inplace"}),
    ],
    ids=["meson-python", "redirect", "rebuild", "inplace"],
)
def test_editable_install_builds_as_documented(hook, settings, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(BIN), prepend=":")
    make = meson_project if hook == "mesonpy" else scikit_build_core_project
    project = make(tmp_path / "project")
    in_place = settings.get("editable.mode") == "inplace"
    if in_place:
        (text,) = re.findall(r"`(aotcuda_build\(gpu_code DIRECTORY .*?\))`", PAGE)
        path = project / "CMakeLists.txt"
        path.write_text(re.sub("^aotcuda_build.*", text, path.read_text(), flags=re.MULTILINE))
    code = f"import {hook} as b; print(b.build_editable('..', {settings!r}))"
    wheel = tmp_path / succeed(project, sys.executable, "-c", code).out.split()[-1]
    site = projects.unpacked(wheel, tmp_path / "site")

    def python(text: str) -> Done:
        return run(site, sys.executable, "-c", f"import site; site.addsitedir({str(site)!r}); {text}")

    def image() -> bytes:
        module = python("import pkg.k; print(pkg.k.__file__)").out.split()[-1]
        return Path(module).with_suffix(".aotcuda").joinpath("kernels.fatbin").read_bytes()

    before = image()
    (project / "csrc" / "factor.h").write_text("#define FACTOR 4\n")
    assert (image() != before) == (hook == "mesonpy" or "editable.rebuild" in settings)
    if in_place:
        succeed(project, BIN / "cmake", "--build", ".")
        assert image() != before
    command = "from aotcuda.cli import main; import sys; sys.exit(main(['inspect', 'pkg.k']))"
    assert python(command).out.startswith("pkg.k\n")
    if hook == "mesonpy":
        (project / "csrc" / "scaled.cu").write_text("mistake\n")
        error = 'aotcuda: pkg cannot be looked for: rebuilding the "pkg" editable package failed\n'
        assert python(command) == Done(1, "", error)


@pytest.fixture
def cmake(tmp_path: Path) -> Callable[..., Done]:
    """Return a function that configures a project of CMake code with `aotcuda_DIR`, for make."""
    package = projects.aotcuda(tmp_path, "config", "--cmakedir").out.strip()

    def configure(text: str, version: str = "") -> Done:
        lines = f"""\
            cmake_minimum_required(VERSION 3.21)
            project(some LANGUAGES NONE)
            find_package(aotcuda {version} REQUIRED)
            {text}
            """
        (tmp_path / "CMakeLists.txt").write_text(textwrap.dedent(lines))
        settings = (f"-Daotcuda_DIR={package}", f"-DPython_EXECUTABLE={sys.executable}")
        return run(tmp_path, BIN / "cmake", "-G", "Unix Makefiles", "-S", ".", "-B", "tool", *settings)

    return configure


def test_cmake_installs_all_files_of_the_last_build(cmake: Callable[..., Done], tmp_path: Path) -> None:
    project = write(tmp_path / "project", "flit_core", "flit_core.buildapi")
    assert cmake("aotcuda_build(gpu PROJECT project DESTINATION lib)").status == 0
    install = (BIN / "cmake", "--install", "tool", "--prefix", "installed")
    assert "aotcuda_build(gpu): nothing was built; build before you install" in run(tmp_path, *install).err
    make = ("make", "-C", "tool")
    succeed(tmp_path, *make)
    folder = tmp_path / "tool" / "gpu"
    written = tree(folder)
    (folder / "pkg" / "renamed.py").write_text("old\n")
    succeed(tmp_path, *install)
    assert tree(tmp_path / "installed" / "lib") == written
    image = folder / "pkg" / "k.aotcuda" / "kernels.fatbin"
    image.unlink()
    done = run(tmp_path, *install)
    assert done.status != 0
    assert f"{image} is missing; build again" in " ".join(done.err.split())
    succeed(tmp_path, *make)
    assert tree(folder) == {**written, "pkg/renamed.py": b"old\n"}
    assert "Compiling" not in succeed(tmp_path, *make).out
    (project / "csrc" / "factor.h").write_text("#define FACTOR 4\n")
    assert "Compiling" in succeed(tmp_path, *make).out
    succeed(tmp_path, *make, "clean")
    assert not folder.exists()


def test_cmake_cleans_no_folder_that_others_may_use(cmake: Callable[..., Done], tmp_path: Path) -> None:
    project = write(tmp_path / "project", "flit_core", "flit_core.buildapi")
    assert cmake("aotcuda_build(gpu PROJECT project DIRECTORY ${CMAKE_SOURCE_DIR}/project)").status == 0
    succeed(tmp_path, "make", "-C", "tool")
    succeed(tmp_path, "make", "-C", "tool", "clean")
    assert (project / "pkg" / "_k.py").is_file()
    assert (project / "pkg" / "k.py").is_file()


def test_cmake_reports_errors_when_it_configures(cmake: Callable[..., Done], tmp_path: Path) -> None:
    def configure_error(text: str, version: str = "") -> str:
        done = cmake(text, version)
        assert done.status != 0
        return " ".join(done.err.split())

    assert f"aotcuda_build(gpu): {tmp_path} has no pyproject.toml; name its folder by PROJECT" in configure_error(
        "aotcuda_build(gpu)"
    )
    (tmp_path / "pyproject.toml").touch()
    assert "/bin/false has no aotcuda; name the Python that has it by PYTHON" in configure_error(
        "aotcuda_build(g PYTHON /bin/false)"
    )
    assert "aotcuda_build(g): unknown argument TARGETS" in configure_error("aotcuda_build(g TARGETS sm_90)")
    assert f"version: {aotcuda.__version__}" in configure_error("", "99.0")
    assert cmake("", aotcuda.__version__).status == 0


def test_flit_packs_files_that_were_built_before(expected: dict[str, bytes], tmp_path: Path) -> None:
    for name, data in expected.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    files = content(build_wheel(tmp_path, *BUILD, "--wheel"))
    assert {name: data for name, data in expected.items() if name.startswith("pkg/")}.items() <= files.items()
