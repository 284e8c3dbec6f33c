"""Test that builds by setuptools and by hatchling generate the same files, byte for byte.

`test_packaging_back_ends` has the tests for both back ends.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.utils import parse_wheel_filename

from integration import projects
from integration.projects import BUILD, build_wheel, content, succeed
from integration.test_packaging_back_ends import GENERATED, TABLE, edit
from integration.test_packaging_tools import PROOF

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("build_cache")  # tests of how builds run use `no_build_cache`

OLDEST = "==64.0.0" if sys.version_info < (3, 12) else "==66.1.0"  # the first one that works with Python 3.12
VERSIONS = {"oldest": OLDEST, "before 70.1": "==69.5.1", "newest": ""}
NEWEST = VERSIONS["newest"]
THEN = {"SOURCE_DATE_EPOCH": "1700000000"}  # otherwise the wheel has the time of the build

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or not Path(sysconfig.get_path("include"), "Python.h").is_file(),
    reason="needs a C compiler and Python's headers",
)


@pytest.fixture(autouse=True)
def _use_setuptools(monkeypatch: pytest.MonkeyPatch, setuptools: Callable[[str], Path]) -> None:
    """Make projects for setuptools, and build them with its newest version unless a test names another one."""
    monkeypatch.setattr(projects.BackEnd, "name", "setuptools")
    monkeypatch.setenv("PYTHONPATH", str(setuptools(NEWEST)))


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    return projects.copy("flat", tmp_path / "flat")


SBOM = "flat-1.0.dist-info/sboms/aotcuda.cdx.json"


@pytest.fixture(scope="module")
def by_hatchling(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the generated files of hatchling's wheel of `tests/packages/flat`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projects.BackEnd, "name", "hatchling")
        files = content(build_wheel(projects.copy("flat", tmp_path_factory.mktemp("hatchling") / "flat")))
    return {name: files[name] for name in (*GENERATED, SBOM)}


def generated(wheel: Path) -> dict[str, bytes]:
    """Return the generated files of a wheel of `flat`."""
    return {name: data for name, data in content(wheel).items() if name.startswith("flat/kernels") or name == SBOM}


@pytest.mark.parametrize(
    "version", [*(pytest.param(name, marks=pytest.mark.matrix) for name in ("oldest", "before 70.1")), "newest"]
)
def test_checkout_and_sdist_give_the_same_wheel(version, flat, setuptools, by_hatchling):
    environ = {"PYTHONPATH": str(setuptools(VERSIONS[version])), **THEN}
    wheel = build_wheel(flat, **environ)
    assert wheel.name == "flat-1.0-py3-none-any.whl"
    assert generated(wheel) == by_hatchling
    assert b"Root-Is-Purelib: true" in content(wheel)["flat-1.0.dist-info/WHEEL"]
    first = wheel.read_bytes()
    assert build_wheel(flat, **environ).read_bytes() == first  # in the same `build` folder
    assert build_wheel(flat, *BUILD, **environ).read_bytes() == first  # an sdist, then a wheel from it


def test_project_without_table_is_unaffected(flat: Path, setuptools: Callable[[str], Path], tmp_path: Path) -> None:
    config = flat / "pyproject.toml"
    config.write_text(config.read_text().partition("[tool.aotcuda]")[0])
    with_plugin = build_wheel(flat, **THEN).read_bytes()
    alone = tmp_path / "alone"
    shutil.copytree(setuptools(NEWEST), alone, ignore=shutil.ignore_patterns("*aotcuda*"))
    assert build_wheel(flat, PYTHONPATH=str(alone), **THEN).read_bytes() == with_plugin


@pytest.mark.parametrize(
    ("options", "host_abi", "tag"),
    [
        pytest.param("plat-name = linux_x86_64", "true", "py3-none-linux_x86_64", id="a platform"),
        pytest.param("python-tag = py312", "false", "py312-none-any", id="a version of Python"),
    ],
)
def test_tag_of_the_project_is_kept(options: str, host_abi: str, tag: str, flat: Path) -> None:
    edit(flat, TABLE, f"{TABLE}host-abi = {host_abi}\n")
    (flat / "setup.cfg").write_text(f"[bdist_wheel]\n{options}\n")
    assert build_wheel(flat).name == f"flat-1.0-{tag}.whl"


@pytest.fixture
def native(tmp_path: Path) -> Path:
    return projects.copy("native", tmp_path / "native")


@pytest.mark.usefixtures("no_build_cache")
@needs_compiler
def test_package_with_extension_module_builds_from_sdist(native: Path) -> None:
    """Build `native`: sources import the extension, `build` has other steps, and the version is computed."""
    wheel = build_wheel(native, *BUILD)
    name, number, _, tag = parse_wheel_filename(wheel.name)
    assert (name, str(number)) == ("native", "1.5")
    assert {each.interpreter for each in tag} == {f"cp{sys.version_info.major}{sys.version_info.minor}"}
    files = content(wheel)
    assert {"native/data.txt", f"native/_factor{sysconfig.get_config_var('EXT_SUFFIX')}"} <= files.keys()
    manifest = projects.manifest_of(files, "native.kernels")
    assert [kernel["name"] for kernel in manifest["kernels"]] == ["scale"]
    linked = {"../csrc/scale.cu", "../csrc/include/scale.h"}
    assert {source["path"] for source in manifest["sources"]} == linked | {"native/__init__.py", "native/_kernels.py"}
    with tarfile.open(next((native / "dist").glob("*.tar.gz"))) as archive:
        assert {"native-1.5/csrc/scale.cu", "native-1.5/csrc/include/scale.h"} <= {*archive.getnames()}


@pytest.mark.matrix  # CI runs setuptools' editable builds, and installs one of hatchling's
@pytest.mark.parametrize(
    ("version", "mode", "layout"),
    [("oldest", "lenient", "src"), ("before 70.1", "strict", "src"), ("newest", "compat", "flat")],
)
def test_editable_install_of_each_mode_notices_edits(version, mode, layout, flat, environment, setuptools):
    root = flat
    if layout == "src":
        root = flat / "src"
        root.mkdir()
        (flat / "flat").rename(root / "flat")
    purelib = succeed(flat, environment, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").out.strip()
    tools = f"{setuptools(VERSIONS[version])}\n{sysconfig.get_path('purelib')}\n"
    Path(purelib, "tools.pth").write_text(tools)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", environment, "install")
    settings = ("--no-build-isolation", "--no-deps", "--config-settings", f"editable_mode={mode}")
    succeed(flat, *pip, *settings, "--editable", ".", PYTHONPATH="")
    assert [name for name in projects.project_files(root) if name.startswith("flat/kernels")] == GENERATED

    def shown() -> str:
        return succeed(flat.parent, environment, "-c", f"{PROOF}\nprint(k.__aotcuda__)", PYTHONPATH="").out

    assert "out of date" not in shown()
    source = root / "flat" / "_kernels.py"
    text = source.read_text()
    source.write_text(f"{text}\n# edited\n")
    assert f"out of date: {source} was edited" in shown()
    source.write_text(text)
    edit(flat, "float32[::1])", "float32[:])")
    assert "pyproject.toml" in shown().partition("out of date: ")[2]


def test_setup_py_project_needs_only_the_table(flat: Path, by_hatchling: dict[str, bytes]) -> None:
    config = flat / "pyproject.toml"
    head, _, table = config.read_text().partition("[project]")
    config.write_text(head + table[table.index("[tool.aotcuda]") :])
    call = 'setup(name="flat", version="1.0", packages=["flat"], install_requires={})'
    (flat / "setup.py").write_text(f"from setuptools import setup\n{call.format(['aotcuda'])}\n")
    assert generated(build_wheel(flat)) == by_hatchling
    (flat / "setup.py").write_text(f"from setuptools import setup\n{call.format(['aotcuda<0.1'])}\n")
    assert projects.refused(flat).message.startswith('install_requires: "aotcuda<0.1" allows no aotcuda that can read ')


def test_package_in_a_folder_with_another_name_is_refused(flat: Path) -> None:
    (flat / "flat").rename(flat / "code")
    table = '[tool.setuptools]\npackages = ["flat"]\npackage-dir = { flat = "code" }\n\n[tool.aotcuda]\n'
    edit(flat, TABLE, table)
    assert projects.refused(flat).message == (
        "tool.setuptools.package-dir: the package flat is in the folder code, and builds import it by the folder's "
        "name; rename the folder to flat"
    )


def test_source_outside_the_wheel_is_refused(flat: Path) -> None:
    edit(flat, TABLE, '[tool.setuptools]\npackages = ["flat"]\n\n[tool.aotcuda]\nhost-abi = true\n')
    (flat / "constants.py").write_text("STEP = 2\n")
    (flat / "flat" / "_kernels.py").write_text("import constants\n" + (flat / "flat" / "_kernels.py").read_text())
    assert projects.refused(flat).message == (
        "tool.aotcuda.fallback: constants.py is not in the wheel, and the JIT fallback would compile the kernels of "
        'flat.kernels from it; include it in the wheel, or set fallback = "error"'
    )
    assert not [*flat.glob("dist/*.whl")]
    edit(flat, "[tool.setuptools]\n", '[tool.setuptools]\npy-modules = ["constants"]\n')
    assert any(name.endswith("/constants.py") for name in content(build_wheel(flat)))


SETUP_THAT_FAILS = """
import setuptools
from distutils.command.install_headers import install_headers


class Later(install_headers):  # a build runs it last
    def run(self):
        raise ValueError("it fails")


setuptools.setup(cmdclass={"install_headers": Later}, headers=["pyproject.toml"])
"""


def test_failed_editable_build_keeps_the_source_tree(flat: Path) -> None:
    edit(flat, TABLE, f'[tool.setuptools]\npackages = ["flat"]\n\n{TABLE}')
    projects.back_end(flat, editable=True)
    (flat / "setup.py").write_text(SETUP_THAT_FAILS)
    edit(flat, "float32[::1])", "float32[:])")
    before = projects.project_files(flat)
    done = projects.forked_run(flat, *projects.command(editable=True))
    assert done.status != 0
    assert "it fails" in done.err
    assert projects.project_files(flat) == before
