"""Test projects with files elsewhere: a package that is a symbolic link, and linked files outside of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda import manifest as manifests
from integration import projects

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SOURCE = """
from numba import cuda
from pkg.values import FACTOR

twice = cuda.declare_device("twice", "float32(float32)", abi="c")


def scale(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = FACTOR * twice(x[i])
"""
KERNEL = 'kernels.scale = "void(float32[::1])"'
TWICE = '#include "two.h"\nextern "C" __device__ float twice(float x) { return TWO * x; }\n'


def project(folder: Path, link: str) -> Path:
    """Return a project whose hook runs for sdists, too."""
    made = projects.write(folder / "project", SOURCE, module=f'link = ["{link}"]\n{KERNEL}')
    table = made / "pyproject.toml"
    table.write_text(table.read_text().replace("hatch.build.targets.wheel.hooks", "hatch.build.hooks"))
    (made / "pkg" / "values.py").write_text("FACTOR = 3\n")
    return made


def put_sources(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "twice.cu").write_text(TWICE)
    (folder / "two.h").write_text("#define TWO 2.0f\n")


def test_package_behind_a_symbolic_link_has_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of the same project without the link must not use what the cache has of the build with it."""
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path / "cache"))
    made = project(tmp_path, "csrc/twice.cu")
    put_sources(made / "csrc")
    (made / "pkg").rename(tmp_path / "elsewhere")
    (made / "pkg").symlink_to(tmp_path / "elsewhere")
    expected = ["csrc/twice.cu", "csrc/two.h", "pkg/__init__.py", "pkg/_k.py", "pkg/values.py"]
    linked = projects.content(projects.build_wheel(made))
    assert [item["path"] for item in projects.manifest_of(linked, "pkg.k")["sources"]] == expected

    (made / "pkg").unlink()
    (tmp_path / "elsewhere").rename(made / "pkg")
    plain = projects.content(projects.build_wheel(made))
    assert plain == linked


def test_wheel_has_copies_of_linked_files_outside_of_the_project(tmp_path: Path, build_cache: Path) -> None:
    made = project(tmp_path, "../shared/twice.cu")
    put_sources(tmp_path / "shared")
    files = projects.content(projects.build_wheel(made))
    manifest = projects.manifest_of(files, "pkg.k")
    copies = f"pkg/k.aotcuda/{manifests.SOURCES}/outside/0"
    assert files[f"{copies}/twice.cu"].decode() == TWICE
    assert f"{copies}/two.h" in files
    (module,) = manifest["rebuild"]["table"]["modules"].values()
    assert module["link"] == ["outside/0/twice.cu"]
    done = projects.refused(made, *projects.HATCHLING[:-1], "sdist")
    assert 'modules."pkg.k".link: ../shared/twice.cu is outside of the project' in done.err


def test_build_after_another_target_of_a_symbolic_link_has_new_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path / "cache"))
    made = project(tmp_path, "csrc/twice.cu")
    table = made / "pyproject.toml"
    table.write_text(table.read_text().replace(KERNEL, f'{KERNEL}\noptions.include-dirs = ["inc"]'))
    text = '#include "two.h"\n#include <one.h>\nextern "C" __device__ float twice(float x) { return TWO * x + ONE; }\n'
    files = {"a/one.cu": text, "a/2.h": "#define TWO 2.0f\n", "c/one.h": "#define ONE 1.0f\n"}
    files |= {"a/3.h": "#define TWO 3.0f\n", "b/one.h": "#define ONE 4.0f\n", "a/two.cu": text.replace("+", "-")}
    for name, content in files.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(content)
    (made / "csrc").mkdir()
    seen = set()
    links = {"a/two.h": "2.h", "inc": "c", "csrc/twice.cu": "../a/one.cu"}
    for name, target in [*links.items(), ("a/two.h", "3.h"), ("inc", "b"), ("csrc/twice.cu", "../a/two.cu")]:
        (made / name).unlink(missing_ok=True)
        (made / name).symlink_to(target)
        if (made / "csrc/twice.cu").exists():
            seen.add(projects.content(projects.build_wheel(made))["pkg/k.aotcuda/kernels.fatbin"])
    assert len(seen) == 4
