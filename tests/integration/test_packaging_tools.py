"""Every usual way to build or install a project gives the same working package."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.constants import EDITABLES_REQUIREMENT
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from integration import projects
from integration.projects import BUILD, HATCHLING, build_wheel, content, run, succeed

pytestmark = pytest.mark.usefixtures("build_cache")  # but for tests of how builds run, which are `anew`

GENERATED = [
    "flat/kernels.aotcuda/flat_kernels.h",
    "flat/kernels.aotcuda/functions.fatbin",
    "flat/kernels.aotcuda/kernels.fatbin",
    "flat/kernels.aotcuda/manifest.json",
    "flat/kernels.py",
    "flat/kernels.pyi",
]

SUMMARY = re.compile(
    r"aotcuda: built 1 module: 1 kernel, 1 device function for 2 targets; [\d.]+ kB in [\d.]+ s"
    r"(; (all|\d+ of \d+ steps?) from the build cache)?\n"
)
"""What a build of the project says at its end."""

PROOF = """\
import sys
import flat.kernels as k
assert k.__aotcuda__.name == "flat.kernels", k.__aotcuda__
assert {"axpy", "fused"} <= set(dir(k)), dir(k)
assert not sys.modules.keys() & {"numba", "numpy", "cuda"}
print(k.axpy, k.fused)
"""
"""What has to work in an environment without a compiler."""


INSTALLERS = [
    pytest.param(("uv", "pip", "install", "--quiet", "--python", "PYTHON"), id="uv"),
    pytest.param(("pip", "--python", "PYTHON", "install"), id="pip", marks=pytest.mark.matrix),
]
"""Those that install into an environment other than their own, of the Python `PYTHON`."""


def install(installer: tuple[str, ...], project: Path, python: Path, *arguments: str) -> None:
    """Install a project into the environment of `python`."""
    command = [str(python) if word == "PYTHON" else word for word in installer]
    succeed(project, sys.executable, "-m", *command, *arguments, ".")


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    return projects.copy("flat", tmp_path / "flat")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the wheel that hatchling itself builds, as its bytes."""
    project = projects.copy("flat", tmp_path_factory.mktemp("reference") / "flat")
    return build_wheel(project).read_bytes()


def generated(project: Path) -> list[str]:
    return [name for name in projects.tree(project) if name.startswith("flat/kernels")]


def test_wheel_has_the_module_and_is_universal(flat: Path) -> None:
    wheel = build_wheel(flat)
    assert wheel.name == "flat-1.0-py3-none-any.whl"
    assert [name for name in sorted(content(wheel)) if name.startswith("flat/kernels")] == GENERATED
    assert b"Root-Is-Purelib: true" in content(wheel)["flat-1.0.dist-info/WHEEL"]
    assert b'"CycloneDX"' in content(wheel)["flat-1.0.dist-info/sboms/aotcuda.cdx.json"]


def test_host_abi_makes_a_wheel_for_this_system_alone(flat: Path) -> None:
    config = flat / "pyproject.toml"
    config.write_text(config.read_text().replace("[tool.aotcuda]\n", "[tool.aotcuda]\nhost-abi = true\n"))
    assert_is_for_this_system(build_wheel(flat))


def assert_is_for_this_system(wheel: Path) -> None:
    *_, tag = parse_wheel_filename(wheel.name)
    assert {(each.interpreter, each.abi) for each in tag} == {("py3", "none")}
    assert tag <= {*sys_tags()}  # pip would install it here
    assert {each.platform for each in tag} != {"any"}
    assert b"Root-Is-Purelib: false" in content(wheel)["flat-1.0.dist-info/WHEEL"]


@pytest.mark.usefixtures("anew")
def test_build_leaves_no_files_and_no_paths(flat: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    before = projects.tree(flat)
    wheel = build_wheel(flat, TMPDIR=str(temporary))
    after = projects.tree(flat)
    assert after.keys() - before.keys() == {"dist/flat-1.0-py3-none-any.whl"}
    assert list(temporary.iterdir()) == []
    for name, data in content(wheel).items():
        assert str(tmp_path).encode() not in data, name
        assert sys.prefix.encode() not in data, name


@pytest.mark.matrix  # the next test builds in isolation
@pytest.mark.usefixtures("anew")
@pytest.mark.usefixtures("from_checkout")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("build", "--wheel", "--installer", "uv"), id="build"),
        pytest.param(("uv", "build", "--wheel", "--python", sys.executable), id="uv build"),
        pytest.param(("hatch", "build", "-t", "wheel"), id="hatch build"),
        pytest.param(("pip", "wheel", "-v", ".", "--no-deps", "--wheel-dir", "dist"), id="pip wheel"),
    ],
)
def test_each_build_tool_gives_the_same_wheel_in_isolation(
    command: tuple[str, ...], flat: Path, reference: bytes, tmp_path: Path
) -> None:
    config = tmp_path / "hatch.toml"
    config.touch()
    hatch = {"HATCH_CONFIG": str(config), "HATCH_DATA_DIR": str(tmp_path), "HATCH_CACHE_DIR": str(tmp_path)}
    done = succeed(flat, sys.executable, "-m", *command, **hatch, **projects.SHOWN)
    (wheel,) = (flat / "dist").glob("*.whl")
    assert wheel.read_bytes() == reference
    assert SUMMARY.search(done.out + done.err)


@pytest.mark.usefixtures("anew")
@pytest.mark.usefixtures("from_checkout")
@pytest.mark.parametrize("installer", INSTALLERS)
def test_an_installed_package_needs_the_run_time_alone(
    installer: tuple[str, ...], flat: Path, environment: Path
) -> None:
    install(installer, flat, environment)
    assert generated(flat) == []
    (flat / "flat").rename(flat / "moved")
    assert "axpy" in succeed(flat, environment, "-c", PROOF).out
    pip = (sys.executable, "-m", "pip", "--python", environment)
    found = succeed(flat, *pip, "list", "--format=freeze").out
    assert sorted(line.partition("==")[0] for line in found.split()) == ["aotcuda", "flat"]


@pytest.mark.usefixtures("anew")
@pytest.mark.usefixtures("from_checkout")
@pytest.mark.matrix  # the next test has no isolation, and the one before is no editable install
@pytest.mark.parametrize("installer", INSTALLERS)
def test_an_editable_install_puts_the_module_into_the_source_tree(
    installer: tuple[str, ...], flat: Path, environment: Path
) -> None:
    install(installer, flat, environment, "--editable")
    assert generated(flat) == GENERATED
    assert "axpy" in succeed(flat, environment, "-c", PROOF).out
    assert "editable=True" in (flat / "flat" / "kernels.py").read_text()


@pytest.fixture
def with_build_tools(environment: Path) -> Path:
    """Return a new environment where this one's packages can be imported, as after `pip install aotcuda[cu13]`."""
    folder = succeed(
        environment.parent, environment, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"
    ).out
    paths = [sysconfig.get_path("purelib"), projects.CHECKOUT, projects.CHECKOUT / "hatch_plugin"]
    Path(folder.strip(), "tools.pth").write_text("\n".join(map(str, paths)))
    return environment


INSTALL = ("install", "--no-build-isolation", "--no-deps", "--editable", ".")


@pytest.mark.usefixtures("anew")
def test_editable_install_works_without_isolation(flat: Path, with_build_tools: Path) -> None:
    succeed(flat, sys.executable, "-m", "pip", "--python", with_build_tools, *INSTALL)
    assert generated(flat) == GENERATED
    assert "axpy" in succeed(flat.parent, with_build_tools, "-c", "import flat.kernels as k; print(k.axpy)").out


@pytest.mark.parametrize("extra", ["cu13", "mlir-cu13"])
def test_each_extra_requires_editables(extra: str) -> None:
    project = tomllib.loads((projects.CHECKOUT / "pyproject.toml").read_text())["project"]
    named = [Requirement(text) for text in project["optional-dependencies"][extra]]
    wanted = Requirement(EDITABLES_REQUIREMENT)
    assert [item.specifier for item in named if item.name == wanted.name] == [wanted.specifier]


def test_missing_hook_is_reported_by_every_command(flat: Path) -> None:
    config = flat / "pyproject.toml"
    table = "[tool.hatch.build.targets.wheel.hooks.aotcuda]"
    config.write_text(config.read_text().replace(table, ""))
    wheel = build_wheel(flat)
    for target in (wheel, flat):
        done = projects.forked_run(flat, sys.executable, "-m", "aotcuda", "inspect", str(target))
        assert done.status == 1
        assert table in done.err
        assert done.err.count("\n") == 1
    built = projects.aotcuda(flat, "build")
    assert table in built.err
    assert built.err.count("\n") == 1


def test_misspelt_hook_is_reported(flat: Path) -> None:
    config = flat / "pyproject.toml"
    config.write_text(config.read_text().replace("hooks.aotcuda]", "hooks.aot-cuda]"))
    done = projects.forked_run(flat, *HATCHLING)
    assert done.status != 0
    assert done.said.endswith(
        ": its table for a hook aot-cuda is misspelt, write [tool.hatch.build.targets.wheel.hooks.aotcuda]"
    )


def test_the_hook_may_be_turned_on_for_all_targets(flat: Path, reference: bytes) -> None:
    config = flat / "pyproject.toml"
    config.write_text(config.read_text().replace("tool.hatch.build.targets.wheel.hooks", "tool.hatch.build.hooks"))
    assert build_wheel(flat).read_bytes() == reference
    config.write_text(config.read_text().replace("hooks.aotcuda]", 'hooks.aotcuda]\narch = ["sm_80"]'))
    said = projects.forked_run(flat, *HATCHLING).said
    assert said.startswith("tool.hatch.build.hooks.aotcuda.arch: this table only enables the hook; ")


def editable(project: Path, folder: str = ".", **environ: str) -> str:
    """Make an editable wheel, as installers ask for it, of packages in `folder`; returns what was said."""
    config = project / "pyproject.toml"
    explicit = f'\n[tool.hatch.build]\ndev-mode-dirs = ["{folder}"]\n'  # otherwise hatchling needs one more package
    if explicit not in config.read_text():
        config.write_text(config.read_text() + explicit)
    return projects.back_end(project, editable=True, **environ).err


def test_an_editable_build_of_a_src_layout_writes_beside_the_package(flat: Path) -> None:
    (flat / "src").mkdir()
    (flat / "flat").rename(flat / "src/flat")
    editable(flat, "src")
    assert (flat / "src/flat/kernels.aotcuda/manifest.json").is_file()
    assert (flat / "src/flat/kernels.py").is_file()
    assert not (flat / "flat").exists()


def test_editable_build_lists_files_that_git_should_ignore(flat: Path) -> None:
    hint = "git does not ignore them; add to .gitignore: "
    assert hint not in editable(flat)
    succeed(flat, "git", "init", "--quiet")
    assert f"{hint}/flat/kernels.aotcuda/ /flat/kernels.py /flat/kernels.pyi\n" in editable(flat)
    (flat / ".gitignore").write_text("/flat/kernels.aotcuda/\n/flat/kernels.py\n")
    assert f"{hint}/flat/kernels.pyi\n" in editable(flat)
    (flat / ".gitignore").write_text("/flat/kernels.*\n")
    assert hint not in editable(flat)


def test_wheel_from_sdist_is_equal_after_editable_build(flat: Path, reference: bytes) -> None:
    editable(flat)
    assert build_wheel(flat, *BUILD).read_bytes() == reference  # an sdist, then a wheel from it


@pytest.mark.parametrize("change", ["another name", "artifacts"])
def test_wheel_has_no_files_of_an_earlier_editable_build(tmp_path: Path, change: str) -> None:
    """Where git does not ignore what that wrote: whatever the wheel's own build does not write over."""
    built = []
    for name in ("fresh", "used"):
        project = projects.copy("flat", tmp_path / name / "flat")
        if name == "used":
            editable(project)
            assert generated(project) == GENERATED
        config = project / "pyproject.toml"
        text = config.read_text().partition("\n[tool.hatch.build]\n")[0]
        if change == "another name":
            text = text.replace("flat.kernels", "flat.other")
        else:
            text = re.sub(r"\[.*\.functions\]\nfused = .*", "", text)
            text += '\n[tool.hatch.build]\nartifacts = ["*.fatbin"]\n'
        config.write_text(text)
        built.append(content(build_wheel(project)))
    fresh, used = built
    assert sorted(used) == sorted(fresh)
    assert used == fresh


def test_files_with_generated_names_are_packaged(flat: Path) -> None:
    editable(flat)
    names = ["flat/editable.py", "flat/data.aotcuda/table.bin", "flat/built.aotcuda/manifest.json", "flat/kernels.txt"]
    for name in names:
        (flat / name).parent.mkdir(exist_ok=True)
        (flat / name).write_text("editable=True\n")
    assert {*names} <= content(build_wheel(flat)).keys()


def test_an_editable_build_replaces_the_files_of_the_one_before(flat: Path) -> None:
    editable(flat)
    config = flat / "pyproject.toml"
    text = config.read_text()
    config.write_text(re.sub(r"\[.*\.functions\]\nfused = .*", "", text))
    editable(flat)
    assert generated(flat) == [
        "flat/kernels.aotcuda/flat_kernels.h",
        "flat/kernels.aotcuda/kernels.fatbin",
        "flat/kernels.aotcuda/manifest.json",
        "flat/kernels.py",
        "flat/kernels.pyi",
    ]


def renamed(project: Path) -> None:
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace("flat.kernels", "flat.other"))


@pytest.fixture
def inner(flat: Path) -> dict[str, bytes]:
    """Return the files of another project, installed as editable, in a folder of `flat`."""
    shutil.copytree(flat, flat.parent / "inner")
    editable(flat.parent / "inner")
    (flat.parent / "inner").rename(flat / "inner")
    return projects.tree(flat / "inner")


def test_editable_build_removes_renamed_module(flat: Path, inner: dict[str, bytes]) -> None:
    """It would be imported still, and ask at each launch for the build that was just made."""
    editable(flat)
    before = projects.tree(flat)
    renamed(flat)
    pipe = flat / "flat" / "other.pyi"
    os.mkfifo(pipe)
    with pytest.raises(AssertionError, match="is a pipe"):
        editable(flat)
    pipe.unlink()
    assert {name: data for name, data in projects.tree(flat).items() if name.startswith("flat/")} == {
        name: data for name, data in before.items() if name.startswith("flat/")
    }
    editable(flat)
    assert sorted(path.name for path in (flat / "flat").glob("*.*")) == [
        *("__init__.py", "_kernels.py", "other.aotcuda", "other.py", "other.pyi")
    ]
    assert projects.tree(flat / "inner") == inner


def test_hatch_clean_removes_renamed_module(flat: Path, inner: dict[str, bytes]) -> None:
    before = projects.tree(flat).keys()
    editable(flat)
    renamed(flat)
    assert projects.forked_run(flat, *HATCHLING, "--clean-only").status == 0
    assert {name for name in projects.tree(flat) if not name.startswith("dist/")} == before
    assert projects.tree(flat / "inner") == inner


def test_without_hooks_the_package_is_built_as_it_is(flat: Path) -> None:
    wheel = build_wheel(flat, HATCH_BUILD_NO_HOOKS="1")
    assert not [name for name in content(wheel) if name.startswith("flat/kernels")]


def test_a_project_of_one_module_gains_one_beside_it(tmp_path: Path, environment: Path, wheelhouse: Path) -> None:
    project = projects.copy("flat", tmp_path / "solo")
    (project / "flat" / "_kernels.py").rename(project / "solo.py")
    (project / "flat" / "__init__.py").unlink()
    config = (project / "pyproject.toml").read_text()
    config = config.replace('name = "flat"', 'name = "solo"').replace("flat._kernels", "solo")
    (project / "pyproject.toml").write_text(config.replace('"flat.kernels"', "solo_kernels"))
    wheel = build_wheel(project)
    assert {"solo.py", "solo_kernels.py", "solo_kernels.aotcuda/manifest.json"} <= content(wheel).keys()
    (archive,) = wheelhouse.glob("*.whl")
    succeed(tmp_path, sys.executable, "-m", "pip", "--python", environment, "install", "--no-index", wheel, archive)
    succeed(tmp_path, environment, "-c", "import solo_kernels as k; k.axpy; k.fused")


def test_the_environment_variable_replaces_the_list_of_targets(flat: Path) -> None:
    files = content(build_wheel(flat, AOTCUDA_ARCH="sm_90a, compute_75;sm_75"))
    manifest = projects.manifest_of(files, "flat.kernels")
    assert [(image["arch"], image["kind"]) for image in manifest["images"]] == [
        ("sm_75", "sass"),
        ("sm_90a", "sass"),
        ("compute_75", "ptx"),
    ]
    assert [image["arch"] for image in manifest["ltoir"]] == ["sm_75", "sm_90a", "compute_75"]


def on_terminal(project: Path, *command: str | Path, **environ: str) -> str:
    """Return what a command that succeeds shows on a terminal, control sequences and all."""
    pty = pytest.importorskip("pty")
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", **projects.SHOWN, **environ}
    with subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL, stderr=child, env=environment) as process:
        os.close(child)
        shown = b""
        try:
            while chunk := os.read(parent, 4096):
                shown += chunk
        except OSError:  # how a terminal ends whose other side was closed
            pass
        assert process.wait() == 0
    os.close(parent)
    return shown.decode()


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize("rich", [True, pytest.param(False, marks=pytest.mark.matrix)])
def test_progress_is_gone_from_a_terminal_at_the_end(flat: Path, tmp_path: Path, *, rich: bool) -> None:
    environ = {}
    if not rich:
        (tmp_path / "without").mkdir()
        (tmp_path / "without" / "rich.py").write_text("raise ImportError\n")
        environ["PYTHONPATH"] = str(tmp_path / "without")
    shown = on_terminal(flat, *HATCHLING, **environ)
    progress, begin, last = shown.rpartition("aotcuda: built ")
    if rich:
        assert re.search(r"━.* 1/\d+ ", progress)
        assert progress.endswith("\x1b[2K")
    else:
        assert "aotcuda [1/" in progress
        assert progress.endswith("\r\x1b[2K")
    assert SUMMARY.match(f"{begin}{last}".replace("\r\n", "\n"))
    assert last.endswith("\r\ndist/flat-1.0-py3-none-any.whl\r\n")


@pytest.mark.usefixtures("anew")
def test_build_ends_with_summary_and_slowest_steps(back_end: str, tmp_path: Path) -> None:
    flat = projects.copy("flat", tmp_path / "flat")
    done = projects.forked_run(flat, *projects.command(), **projects.SHOWN, AOTCUDA_VERBOSE="1")
    summary, *slowest = [line for line in done.err.splitlines(keepends=True) if not line.startswith("aotcuda ")]
    assert SUMMARY.fullmatch(summary)
    assert any(re.fullmatch(r"aotcuda: +[\d.]+ s  flat.kernels linked for sm_80\n", line) for line in slowest)


@pytest.mark.matrix  # test_progress has the warning
def test_wheel_near_the_index_limit_gives_a_warning(back_end: str, tmp_path: Path) -> None:
    flat = projects.copy("flat", tmp_path / "flat")
    config = flat / "pyproject.toml"
    config.write_text(f'{config.read_text()}\n[tool.setuptools.package-data]\nflat = ["*.bin"]\n')
    (flat / "flat" / "data.bin").write_bytes(random.Random(1).randbytes(90_000_000))
    done = projects.back_end(flat)
    (said,) = [line for line in done.err.splitlines() if "indexes" in line]
    assert said.startswith(
        "aotcuda: warning: flat-1.0-py3-none-any.whl takes 90.0 MB, and package indexes usually refuse wheels"
    )
    assert ": flat/data.bin 90.0 MB, flat" in said


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"AOTCUDA_PROGRESS": "0"}, "dist/flat-1.0-py3-none-any.whl\n"),
        ({"AOTCUDA_PROGRESS": "", "HATCH_QUIET": "1"}, ""),
    ],
)
def test_quiet_build_prints_nothing(flat: Path, environ: dict[str, str], said: str) -> None:
    done = run(flat, *HATCHLING, **environ)
    assert (done.status, done.out + done.err) == (0, said)
