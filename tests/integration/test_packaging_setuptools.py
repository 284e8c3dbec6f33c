"""Projects that setuptools builds gain what hatchling's gain, by every usual way to build or install one.

What is built is compared with hatchling's wheel of the same sources, byte for byte. The oldest setuptools that is
served, one that has no `bdist_wheel` of its own yet, and the newest build the same.
"""

from __future__ import annotations

import shutil
import signal
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.utils import parse_wheel_filename

from integration import projects
from integration.projects import BUILD, SETUPTOOLS, build_wheel, content, run, succeed
from integration.running import waiting
from integration.test_packaging_tools import GENERATED, PROOF, assert_is_for_this_system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.usefixtures("build_cache")  # but for tests of how builds run, which are `anew`

OLDEST = "==64.0.0" if sys.version_info < (3, 12) else "==66.1.0"  # which is the first that Python 3.12 runs
VERSIONS = {"oldest": OLDEST, "before 70.1": "==69.5.1", "newest": ""}
NEWEST = VERSIONS["newest"]
THEN = {"SOURCE_DATE_EPOCH": "1700000000"}  # setuptools takes the times of files without it, and those are the build's

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or not Path(sysconfig.get_path("include"), "Python.h").is_file(),
    reason="needs a C compiler and Python's headers",
)


@pytest.fixture(autouse=True)
def _made_for_setuptools(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Projects are, and are built by the newest setuptools where a test names no other."""
    monkeypatch.setattr(projects.BackEnd, "name", "setuptools")
    if "from_checkout" not in request.fixturenames:
        monkeypatch.setenv("PYTHONPATH", str(request.getfixturevalue("setuptools")(NEWEST)))


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    return projects.copy("flat", tmp_path / "flat")


SBOM = "flat-1.0.dist-info/sboms/aotcuda.cdx.json"


@pytest.fixture(scope="module")
def by_hatchling(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return what hatchling's wheel of `tests/packages/flat` gains."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projects.BackEnd, "name", "hatchling")
        files = content(build_wheel(projects.copy("flat", tmp_path_factory.mktemp("hatchling") / "flat")))
    return {name: files[name] for name in (*GENERATED, SBOM)}


def generated(project: Path) -> list[str]:
    return [name for name in projects.own(project) if name.startswith("flat/kernels")]


def gained(wheel: Path) -> dict[str, bytes]:
    return {name: data for name, data in content(wheel).items() if name.startswith("flat/kernels") or name == SBOM}


def edit(project: Path, old: str, new: str, file: str = "pyproject.toml") -> None:
    path = project / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    "version", [*(pytest.param(name, marks=pytest.mark.matrix) for name in ("oldest", "before 70.1")), "newest"]
)
def test_checkout_and_sdist_give_the_same_wheel(
    version: str, flat: Path, setuptools: Callable[[str], Path], by_hatchling: dict[str, bytes]
) -> None:
    environ = {"PYTHONPATH": str(setuptools(VERSIONS[version])), **THEN}
    wheel = build_wheel(flat, **environ)
    assert wheel.name == "flat-1.0-py3-none-any.whl"
    assert gained(wheel) == by_hatchling
    assert b"Root-Is-Purelib: true" in content(wheel)["flat-1.0.dist-info/WHEEL"]
    first = wheel.read_bytes()
    assert build_wheel(flat, **environ).read_bytes() == first  # in the same `build` folder
    assert build_wheel(flat, *BUILD, **environ).read_bytes() == first  # an sdist, then a wheel from it


def test_project_without_table_is_unaffected(flat: Path, setuptools: Callable[[str], Path], tmp_path: Path) -> None:
    config = flat / "pyproject.toml"
    config.write_text(config.read_text().partition("[tool.aotcuda]")[0])
    watched = "import atexit, sys; atexit.register(lambda: print('imported', *sorted(sys.modules)));"
    built = run(flat, sys.executable, "-W", "ignore", "-c", f"{watched}{SETUPTOOLS[-1]}", **THEN)
    with_plugin = (flat / "dist" / "flat-1.0-py3-none-any.whl").read_bytes()
    imported = {name for name in built.out.rpartition("imported")[2].split() if "aotcuda" in name}
    assert imported == {"setuptools_aotcuda", "setuptools_aotcuda.hooks"}
    alone = tmp_path / "alone"
    shutil.copytree(setuptools(NEWEST), alone, ignore=shutil.ignore_patterns("*aotcuda*"))
    assert build_wheel(flat, PYTHONPATH=str(alone), **THEN).read_bytes() == with_plugin


def test_host_abi_makes_a_wheel_for_this_system_alone(flat: Path) -> None:
    edit(flat, "[tool.aotcuda]\n", "[tool.aotcuda]\nhost-abi = true\n")
    assert_is_for_this_system(build_wheel(flat))


@pytest.mark.parametrize(
    ("options", "host_abi", "tag"),
    [
        pytest.param("plat-name = linux_x86_64", "true", "py3-none-linux_x86_64", id="a platform"),
        pytest.param("python-tag = py312", "false", "py312-none-any", id="a version of Python"),
        pytest.param("universal = 1", "false", "py3-none-any", id="Python 2 as well"),
    ],
)
def test_tag_of_the_project_is_kept(options: str, host_abi: str, tag: str, flat: Path) -> None:
    edit(flat, "[tool.aotcuda]\n", f"[tool.aotcuda]\nhost-abi = {host_abi}\n")
    (flat / "setup.cfg").write_text(f"[bdist_wheel]\n{options}\n")
    assert build_wheel(flat).name == f"flat-1.0-{tag}.whl"


@pytest.fixture
def native(tmp_path: Path) -> Path:
    return projects.copy("native", tmp_path / "native")


@pytest.mark.usefixtures("anew")
@needs_compiler
def test_package_with_extension_module_builds_from_sdist(native: Path) -> None:
    """Its sources import the module, its `build` has a list of steps of its own, its version is computed."""
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


@pytest.mark.matrix  # the next editable installs have no extension module, the test before is no editable install
@needs_compiler
def test_editable_install_with_extension_module_works(native: Path, with_build_tools: Path) -> None:
    install(native, with_build_tools, "strict")
    code = "import native.kernels as k; print(k.scale, k.__aotcuda__, k.__file__)"
    assert f"{native}/" in succeed(native.parent, with_build_tools, "-c", code).out


@pytest.fixture
def with_build_tools(environment: Path, setuptools: Callable[[str], Path]) -> Path:
    """Return an environment with the newest setuptools and aotcuda, and where this one's packages can be imported."""
    return tools(environment, setuptools(NEWEST))


def tools(environment: Path, home: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = succeed(environment.parent, environment, "-c", code).out
    Path(folder.strip(), "tools.pth").write_text(f"{home}\n{sysconfig.get_path('purelib')}\n")
    return environment


def install(project: Path, environment: Path, mode: str = "lenient") -> None:
    """Install a project as editable, with the tools that the environment has."""
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", environment, "install")
    settings = ("--config-settings", f"editable_mode={mode}")
    succeed(project, *pip, "--no-build-isolation", "--no-deps", *settings, "--editable", ".", PYTHONPATH="")


STATE = "import flat.kernels as k; k.axpy; print(k.__aotcuda__)"


def state(environment: Path) -> str:
    """Return what an installed `flat` says of itself."""
    return succeed(environment.parent, environment, "-c", STATE, PYTHONPATH="").out


@pytest.mark.matrix  # CI runs setuptools' editable builds, and installs one of hatchling's
@pytest.mark.parametrize(
    ("version", "mode", "layout"),
    [
        ("oldest", "lenient", "src"),
        ("before 70.1", "strict", "src"),
        ("newest", "lenient", "flat"),
        ("newest", "strict", "flat"),
        ("newest", "compat", "flat"),
    ],
)
def test_an_editable_install_of_each_mode_notices_edits(
    version: str, mode: str, layout: str, flat: Path, environment: Path, setuptools: Callable[[str], Path]
) -> None:
    root = flat
    if layout == "src":
        root = flat / "src"
        root.mkdir()
        (flat / "flat").rename(root / "flat")
    tools(environment, setuptools(VERSIONS[version]))
    install(flat, environment, mode)
    assert [name for name in projects.own(root) if name.startswith("flat/kernels")] == GENERATED
    first = succeed(flat.parent, environment, "-c", f"{PROOF}\nprint(k.__aotcuda__)", PYTHONPATH="").out
    assert "axpy" in first
    assert "out of date" not in first
    source = root / "flat" / "_kernels.py"
    text = source.read_text()
    source.write_text(f"{text}\n# edited\n")
    assert f"out of date: {source} was edited" in state(environment)
    source.write_text(text)
    if mode == "strict":  # the second install replaces its links
        install(flat, environment, mode)
        assert "out of date" not in state(environment)
    edit(flat, "float32[::1])", "float32[:])")
    assert "pyproject.toml" in state(environment).partition("out of date: ")[2]


@pytest.mark.matrix  # one more way to install
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the legacy of setuptools 64")
def test_the_legacy_editable_install_builds_too(flat: Path, setuptools: Callable[[str], Path], tmp_path: Path) -> None:
    (flat / "setup.py").write_text("import setuptools; setuptools.setup()")
    home = setuptools(VERSIONS["oldest"])
    site = tmp_path / "site"
    site.mkdir()
    develop = ("develop", "--no-deps", "--install-dir", str(site))
    done = run(flat, sys.executable, "-W", "ignore", "setup.py", *develop, PYTHONPATH=f"{home}:{site}")
    assert done.status == 0, done.err
    assert generated(flat) == GENERATED


@pytest.fixture
def solo(tmp_path: Path) -> Path:
    """Return a project of one module, with another one for the packaged code."""
    project = projects.copy("flat", tmp_path / "solo")
    (project / "flat" / "_kernels.py").rename(project / "solo.py")
    shutil.rmtree(project / "flat")
    config = (project / "pyproject.toml").read_text()
    config = config.replace('name = "flat"', 'name = "solo"').replace("flat._kernels", "solo")
    config = config.replace("[tool.aotcuda]\n", '[tool.setuptools]\npy-modules = ["solo"]\n\n[tool.aotcuda]\n')
    (project / "pyproject.toml").write_text(config.replace('"flat.kernels"', "solo_kernels"))
    return project


def test_single_module_project_gets_a_module_beside_it(solo: Path) -> None:
    assert {"solo.py", "solo_kernels.py", "solo_kernels.aotcuda/manifest.json"} <= content(build_wheel(solo)).keys()
    for _ in range(2):
        projects.back_end(solo, editable=True)
        assert {"solo_kernels.py", "solo_kernels.aotcuda/manifest.json"} <= projects.own(solo).keys()


@pytest.mark.parametrize("before", ["editable", "wheel"])
def test_wheel_has_no_files_of_earlier_builds(before: str, tmp_path: Path) -> None:
    """Setuptools keeps what it packs wheels from, and takes up whatever looks like a module of the source tree."""
    built = []
    for name in ("fresh", "used"):
        project = projects.copy("flat", tmp_path / name / "flat")
        edit(project, "[tool.aotcuda]\n", '[tool.setuptools.package-data]\nflat = ["**/*"]\n\n[tool.aotcuda]\n')
        if name == "used":
            projects.back_end(project, editable=before == "editable")
        edit(project, "flat.kernels", "flat.other")
        built.append(content(build_wheel(project, **THEN)))
    fresh, used = built
    assert sorted(used) == sorted(fresh)
    assert used == fresh


def test_files_with_generated_names_are_packaged(flat: Path, by_hatchling: dict[str, bytes]) -> None:
    """A module that another project's build made and this one carries along is what somebody wrote, too."""
    projects.back_end(flat, editable=True)
    edit(flat, "[tool.aotcuda]\n", '[tool.setuptools.package-data]\nflat = ["**/*"]\n\n[tool.aotcuda]\n')
    names = ["flat/editable.py", "flat/data.aotcuda/table.bin", "flat/built.aotcuda/manifest.json", "flat/kernels.txt"]
    ours = {name: data for name, data in by_hatchling.items() if name.startswith("flat/")}
    carried = {name.replace("kernels", "carried", 1): data for name, data in ours.items()}
    for name, data in {**dict.fromkeys(names, b"editable=True\n"), **carried}.items():
        (flat / name).parent.mkdir(exist_ok=True)
        (flat / name).write_bytes(data)
    files = content(build_wheel(flat))
    assert {*names} <= files.keys()
    assert {name: files.get(name) for name in carried} == carried


def test_clean_removes_what_was_generated_and_nothing_else(flat: Path) -> None:
    before = projects.own(flat)
    projects.back_end(flat, editable=True)
    assert generated(flat) == GENERATED
    succeed(flat, sys.executable, "-c", "import setuptools; setuptools.setup()", "clean")
    assert {name: data for name, data in projects.own(flat).items() if not name.startswith("dist/")} == before


def test_setup_py_project_needs_only_the_table(flat: Path, by_hatchling: dict[str, bytes]) -> None:
    config = flat / "pyproject.toml"
    head, _, table = config.read_text().partition("[project]")
    config.write_text(head + table[table.index("[tool.aotcuda]") :])
    call = 'setup(name="flat", version="1.0", packages=["flat"], install_requires={})'
    (flat / "setup.py").write_text(f"from setuptools import setup\n{call.format(['aotcuda'])}\n")
    assert gained(build_wheel(flat)) == by_hatchling
    (flat / "setup.py").write_text(f"from setuptools import setup\n{call.format(['aotcuda<0.1'])}\n")
    assert projects.refused(flat).said.startswith('install_requires: "aotcuda<0.1" allows no aotcuda that can read ')


OWN_COMMANDS = """
from setuptools.command.build import build
from setuptools.command.build_py import build_py


class Build(build):
    sub_commands = [("build_py", None)]


class BuildPy(build_py):
    pass
"""


def test_commands_that_pyproject_toml_replaces_are_extended_too(flat: Path, by_hatchling: dict[str, bytes]) -> None:
    (flat / "own_commands.py").write_text(OWN_COMMANDS)
    table = '[tool.setuptools]\npackages = ["flat"]\n[tool.setuptools.cmdclass]\n{}\n\n[tool.aotcuda]\n'
    edit(flat, "[tool.aotcuda]\n", table.format('build = "own_commands.Build"\nbuild_py = "own_commands.BuildPy"'))
    assert gained(build_wheel(flat)) == by_hatchling
    projects.back_end(flat, editable=True)
    assert generated(flat) == GENERATED


def test_a_package_in_a_folder_of_another_name_is_refused(flat: Path) -> None:
    (flat / "flat").rename(flat / "code")
    table = '[tool.setuptools]\npackages = ["flat"]\npackage-dir = { flat = "code" }\n\n[tool.aotcuda]\n'
    edit(flat, "[tool.aotcuda]\n", table)
    assert projects.refused(flat).said == (
        "tool.setuptools.package-dir: the package flat is in the folder code; a build imports it from there, so call "
        "the folder flat"
    )


def test_source_outside_the_wheel_is_refused(flat: Path) -> None:
    edit(flat, "[tool.aotcuda]\n", '[tool.setuptools]\npackages = ["flat"]\n\n[tool.aotcuda]\nhost-abi = true\n')
    (flat / "constants.py").write_text("STEP = 2\n")
    (flat / "flat" / "_kernels.py").write_text("import constants\n" + (flat / "flat" / "_kernels.py").read_text())
    assert projects.refused(flat).said == (
        "tool.aotcuda.fallback: constants.py is not in the wheel, and the JIT fallback would compile the kernels of "
        'flat.kernels from it; include it in the wheel, or set fallback = "error"'
    )
    assert not [*flat.glob("dist/*.whl")]
    edit(flat, "[tool.setuptools]\n", '[tool.setuptools]\npy-modules = ["constants"]\n')
    assert any(name.endswith("/constants.py") for name in content(build_wheel(flat)))


def test_packages_in_any_folder_are_found(flat: Path, by_hatchling: dict[str, bytes]) -> None:
    (flat / "python").mkdir()
    (flat / "flat").rename(flat / "python" / "flat")
    edit(flat, "[tool.aotcuda]\n", '[tool.setuptools.packages.find]\nwhere = ["python"]\n\n[tool.aotcuda]\n')
    assert {*gained(build_wheel(flat))} == {*by_hatchling}
    projects.back_end(flat, editable=True)
    assert (flat / "python" / "flat" / "kernels.aotcuda" / "manifest.json").is_file()
    succeed(flat, sys.executable, "-c", "import setuptools; setuptools.setup()", "clean")
    assert not [name for name in projects.own(flat) if "kernels.aotcuda" in name]


@pytest.mark.matrix  # one more version
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 runs no setuptools that is too old")
def test_a_setuptools_that_is_too_old_is_refused(flat: Path, setuptools: Callable[[str], Path]) -> None:
    done = projects.refused(flat, PYTHONPATH=str(setuptools("==63.4.3")))
    assert done.said == (
        'setuptools 63.4.3 is too old for the plugin aotcuda; write "setuptools>=64" into build-system.requires'
    )


FAILING = """
import os, select
import setuptools
from distutils.command.install_headers import install_headers


class Later(install_headers):  # which comes after all that is built
    def run(self):
        if "REACHED" not in os.environ:
            raise ValueError("it fails")
        os.write(os.open(os.environ["REACHED"], os.O_WRONLY), b"x")
        while True:  # handlers in Python are run between two instructions; `pause` might begin in between
            select.select([], [], [], 0.05)


setuptools.setup(cmdclass={"install_headers": Later}, headers=["pyproject.toml"])
"""


@pytest.fixture
def built_before(flat: Path) -> Iterator[Path]:
    """Return a project that was built as editable, was edited since, and whose next build does not come to its end."""
    edit(flat, "[tool.aotcuda]\n", '[tool.setuptools]\npackages = ["flat"]\n\n[tool.aotcuda]\n')
    projects.back_end(flat, editable=True)
    (flat / "setup.py").write_text(FAILING)
    edit(flat, "float32[::1])", "float32[:])")
    before = projects.own(flat)
    yield flat
    assert projects.own(flat) == before


def test_failed_editable_build_keeps_the_source_tree(built_before: Path) -> None:
    done = projects.forked_run(built_before, *projects.command(editable=True))
    assert done.status != 0
    assert "it fails" in done.err


@pytest.mark.matrix  # the test before ends a build there, test_stopped_builds sends signals
@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(
    ("number", "editable"), [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGINT, False)]
)
def test_signal_during_setuptools_leaves_nothing(
    number: signal.Signals, editable: bool, built_before: Path, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = projects.command(editable=editable)
    with waiting(built_before, command, tmp_path / "fifo", TMPDIR=str(temporary)) as build:
        assert build.stopped(number) == (1, "interrupted\n")  # as setuptools reports a KeyboardInterrupt
        assert build.is_gone()
    assert list(temporary.iterdir()) == []
