"""Test that build tools and installers give the same package of a hatchling project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.constants import EDITABLES_REQUIREMENT
from packaging.requirements import Requirement

from integration import projects
from integration.projects import BUILD, HATCHLING, build_wheel, content, succeed
from integration.test_packaging_back_ends import GENERATED, SUMMARY, edit, editable, generated

pytestmark = pytest.mark.usefixtures("build_cache")  # tests of how builds run use `no_build_cache`

PROOF = """\
import sys
import flat.kernels as k
assert k.__aotcuda__.name == "flat.kernels", k.__aotcuda__
assert {"axpy", "fused"} <= set(dir(k)), dir(k)
assert not sys.modules.keys() & {"numba", "numpy", "cuda"}
print(k.axpy, k.fused)
"""
"""A program that has to work in an environment without a compiler."""


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    return projects.copy("flat", tmp_path / "flat")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the wheel that hatchling builds."""
    return build_wheel(projects.copy("flat", tmp_path_factory.mktemp("reference") / "flat")).read_bytes()


# Build tools and installers


@pytest.mark.matrix  # the next test builds in isolation
@pytest.mark.usefixtures("no_build_cache", "from_checkout")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("build", "--wheel", "--installer", "uv"), id="build"),
        pytest.param(("uv", "build", "--wheel", "--python", sys.executable), id="uv build"),
        pytest.param(("hatch", "build", "-t", "wheel"), id="hatch build"),
        pytest.param(("pip", "wheel", "-v", ".", "--no-deps", "--wheel-dir", "dist"), id="pip wheel"),
    ],
)
def test_each_build_tool_gives_the_same_wheel_in_isolation(command, flat, reference, tmp_path):
    config = tmp_path / "hatch.toml"
    config.touch()
    hatch = {"HATCH_CONFIG": str(config), "HATCH_DATA_DIR": str(tmp_path), "HATCH_CACHE_DIR": str(tmp_path)}
    done = succeed(flat, sys.executable, "-m", *command, **hatch, **projects.SHOWN)
    (wheel,) = (flat / "dist").glob("*.whl")
    assert wheel.read_bytes() == reference
    assert SUMMARY.search(done.out + done.err)


@pytest.mark.usefixtures("no_build_cache", "from_checkout")
def test_installed_package_needs_the_run_time_alone(flat: Path, environment: Path) -> None:
    succeed(flat, sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", environment, ".")
    assert generated(flat) == []
    (flat / "flat").rename(flat / "moved")
    assert "axpy" in succeed(flat, environment, "-c", PROOF).out
    listing = succeed(flat, sys.executable, "-m", "pip", "--python", environment, "list", "--format=freeze").out
    assert sorted(line.partition("==")[0] for line in listing.split()) == ["aotcuda", "flat"]


@pytest.mark.usefixtures("no_build_cache")
def test_editable_install_works_without_isolation(flat: Path, environment: Path) -> None:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = succeed(environment.parent, environment, "-c", code).out
    paths = [sysconfig.get_path("purelib"), projects.CHECKOUT, projects.CHECKOUT / "hatch_plugin" / "src"]
    Path(folder.strip(), "tools.pth").write_text("\n".join(map(str, paths)))
    install = ("install", "--no-build-isolation", "--no-deps", "--editable", ".")
    succeed(flat, sys.executable, "-m", "pip", "--python", environment, *install)
    assert generated(flat) == GENERATED
    assert "axpy" in succeed(flat.parent, environment, "-c", "import flat.kernels as k; print(k.axpy)").out


@pytest.mark.parametrize("extra", ["cu13", "mlir-cu13"])
def test_each_extra_requires_editables(extra: str) -> None:
    project = tomllib.loads((projects.CHECKOUT / "pyproject.toml").read_text())["project"]
    requirements = [Requirement(text) for text in project["optional-dependencies"][extra]]
    editables = Requirement(EDITABLES_REQUIREMENT)
    assert [item.specifier for item in requirements if item.name == editables.name] == [editables.specifier]


# hatchling


def test_wheel_from_sdist_is_equal_after_editable_build(flat: Path, reference: bytes) -> None:
    editable(flat)
    assert build_wheel(flat, *BUILD).read_bytes() == reference  # an sdist, then a wheel from it


@pytest.mark.usefixtures("no_build_cache")
def test_build_leaves_no_files_and_no_paths(flat: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    before = projects.tree(flat)
    wheel = build_wheel(flat, TMPDIR=str(temporary))
    assert projects.tree(flat).keys() - before.keys() == {"dist/flat-1.0-py3-none-any.whl"}
    assert list(temporary.iterdir()) == []
    for name, data in content(wheel).items():
        assert str(tmp_path).encode() not in data, name
        assert sys.prefix.encode() not in data, name


def test_missing_hook_is_reported_by_every_command(flat: Path) -> None:
    table = "[tool.hatch.build.targets.wheel.hooks.aotcuda]"
    edit(flat, table, "")
    wheel = build_wheel(flat)
    for command in (["inspect", str(wheel)], ["inspect", str(flat)], ["build"]):
        done = projects.forked_run(flat, sys.executable, "-m", "aotcuda", *command)
        assert done.status == (command != ["build"])
        assert table in done.err
        assert done.err.count("\n") == 1


def test_hook_for_all_targets_gives_the_same_wheel(flat: Path, reference: bytes) -> None:
    edit(flat, "tool.hatch.build.targets.wheel.hooks", "tool.hatch.build.hooks")
    assert build_wheel(flat).read_bytes() == reference
    edit(flat, "hooks.aotcuda]", 'hooks.aotcuda]\narch = ["sm_80"]')
    message = projects.forked_run(flat, *HATCHLING).message
    assert message.startswith("tool.hatch.build.hooks.aotcuda.arch: this table only enables the hook; ")


def test_editable_build_lists_files_that_git_should_ignore(flat: Path) -> None:
    hint = "git does not ignore them; add to .gitignore: "
    assert hint not in editable(flat)
    succeed(flat, "git", "init", "--quiet")
    (flat / ".gitignore").write_text("/flat/kernels.aotcuda/\n/flat/kernels.py\n")
    assert f"{hint}/flat/kernels.pyi\n" in editable(flat)
    (flat / ".gitignore").write_text("/flat/kernels.*\n")
    assert hint not in editable(flat)


def on_terminal(project: Path, *command: str | Path) -> str:
    """Run a command that succeeds on a terminal, and return its output with control sequences."""
    pty = pytest.importorskip("pty")
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", **projects.SHOWN}
    with subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL, stderr=child, env=environment) as process:
        os.close(child)
        shown = b""
        try:
            while chunk := os.read(parent, 4096):
                shown += chunk
        except OSError:  # the other side of the terminal is closed
            pass
        assert process.wait() == 0
    os.close(parent)
    return shown.decode()


@pytest.mark.usefixtures("no_build_cache")
def test_progress_is_removed_from_a_terminal_at_the_end(flat: Path) -> None:
    progress, begin, last = on_terminal(flat, *HATCHLING).rpartition("aotcuda: built ")
    assert re.search(r"━.* 1/\d+ ", progress)
    assert progress.endswith("\x1b[2K")
    assert SUMMARY.match(f"{begin}{last}".replace("\r\n", "\n"))
    assert last.endswith("\r\ndist/flat-1.0-py3-none-any.whl\r\n")


@pytest.mark.parametrize(
    ("environ", "output"),
    [
        ({"AOTCUDA_PROGRESS": "0"}, "dist/flat-1.0-py3-none-any.whl\n"),
        ({"AOTCUDA_PROGRESS": "", "HATCH_QUIET": "1"}, ""),
    ],
)
def test_quiet_build_prints_nothing(flat: Path, environ: dict[str, str], output: str) -> None:
    done = projects.forked_run(flat, *HATCHLING, **environ)
    assert (done.status, done.out + done.err) == (0, output)
