"""Test that aotcuda's own wheel has the fast path in C if a compiler is found, and is a pure wheel otherwise."""

from __future__ import annotations

import json
import re
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from integration import projects
from integration.projects import HATCHLING, succeed

EXTENSION = "aotcuda/runtime/launch/fast/_launch"
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
SUFFIX = ".abi3.so" if STABLE else sysconfig.get_config_var("EXT_SUFFIX")
PRINT_EXTENSION = "from aotcuda.runtime.launch import fast as extension; print(extension.why_not(), extension.in_use())"

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or not Path(sysconfig.get_path("include"), "Python.h").is_file(),
    reason="needs a C compiler and Python's headers",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the sdist of this checkout, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    packed = sdist(projects.CHECKOUT, folder)
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder / packed.name.removesuffix(".tar.gz")


def sdist(source: Path, out: Path) -> Path:
    """Make the sdist of a source tree."""
    done = projects.forked_run(source, *HATCHLING[:-1], "sdist", "-d", str(out))
    assert done.status == 0, done.err
    (packed,) = out.glob("*.tar.gz")
    return packed


def extensions(wheel: Path) -> list[str]:
    """Return the compiled files and the C files of a wheel."""
    return [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".so", ".c"))]


def build(source: Path, out: Path, **environ: str) -> tuple[Path, str]:
    """Build the wheel of a source tree; return the wheel and the output of its build."""
    done = projects.forked_run(source, *HATCHLING, "-d", str(out), **environ)
    assert done.status == 0, done.err
    (wheel,) = out.glob("*.whl")
    return wheel, f"{done.out}{done.err}"


@needs_compiler
def test_compiler_gives_the_extension_for_every_python(source: Path, tmp_path: Path) -> None:
    wheel, output = build(source, tmp_path / "dist", AOTCUDA_EXTENSION="1")
    assert extensions(wheel) == [f"{EXTENSION}{SUFFIX}"]
    *_, tags = parse_wheel_filename(wheel.name)
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    interpreters = {("cp311", "abi3")} if STABLE else {(version, f"{version}t")}
    assert {(tag.interpreter, tag.abi) for tag in tags} == interpreters
    assert tags & {*sys_tags()}
    assert "not compiled" not in output
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    done = succeed(tmp_path, sys.executable, "-P", "-S", "-c", PRINT_EXTENSION, PYTHONPATH="site", AOTCUDA_EXTENSION="")
    assert done.out.startswith("None <module 'aotcuda.runtime.launch.fast._launch' from ")


def test_bill_of_materials_has_no_dependencies(source: Path, tmp_path: Path) -> None:
    wheel, _ = build(source, tmp_path, AOTCUDA_EXTENSION="0")
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/sboms/aotcuda.cdx.json"))
    text = archive.read(name).decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    component = bill["metadata"]["component"]
    assert component["version"] == wheel.name.split("-")[1]
    assert bill["dependencies"] == [{"ref": component["purl"], "dependsOn": []}]
    (metadata,) = (entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
    needed = re.findall(r"^Requires-Dist: (.*)$", archive.read(metadata).decode(), re.MULTILINE)
    assert [line for line in needed if "extra ==" not in line] == []


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"CC": "no-such-compiler"}, "no-such-compiler cannot be run: No such file or directory"),
        ({"CC": "true"}, "true reported success and wrote no file"),
        ({"CC": "gcc '-O2"}, """CC is "gcc '-O2", which cannot be split like a shell command: No closing quotation"""),
        ({"CFLAGS": "-include nowhere.h"}, "fatal error: nowhere.h: No such file or directory"),
        ({"AOTCUDA_EXTENSION": "0"}, None),
    ],
)
def test_wheel_without_a_compiler_is_pure(source, tmp_path, environ, reason):
    if "CFLAGS" in environ and shutil.which("gcc") is None:
        pytest.skip("needs gcc, which writes this message")
    wheel, output = build(source, tmp_path, **environ)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert extensions(wheel) == []
    warnings = [line for line in output.splitlines() if "not compiled" in line]
    assert len(warnings) == (reason is not None)
    assert reason is None or reason in warnings[0]
    assert reason is None or warnings[0].startswith("aotcuda: the fast path was not compiled, because ")


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        (
            {"AOTCUDA_EXTENSION": "1", "CC": "no-such-compiler"},
            "aotcuda: the fast path was not compiled, because no-such-compiler ",
        ),
        ({"AOTCUDA_EXTENSION": "yes"}, "aotcuda: AOTCUDA_EXTENSION is 'yes'; write '0' for the pure wheel"),
    ],
)
def test_required_extension_without_compiler_is_an_error(source, tmp_path, environ, reason):
    done = projects.forked_run(source, *HATCHLING, "-d", str(tmp_path), **environ)
    assert done.status != 0
    assert reason in f"{done.out}{done.err}"
    assert not [*tmp_path.glob("*.whl")]


@needs_compiler
def test_editable_extension_is_replaced_and_never_packaged(source: Path, tmp_path: Path) -> None:
    tree = Path(shutil.copytree(source, tmp_path / "tree"))
    extension = tree / f"{EXTENSION}{SUFFIX}"
    extension.write_bytes(b"old")
    wheel, _ = build(tree, tree / "out", AOTCUDA_EXTENSION="0")
    assert extensions(wheel) == []
    with tarfile.open(sdist(tree, tree / "out")) as archive:
        assert [entry for entry in archive.getnames() if entry.endswith(".so")] == []
    editable = (*HATCHLING[:-1], "wheel:editable")
    assert projects.forked_run(tree, *editable, CFLAGS="-O0").status == 0
    assert extension.read_bytes().startswith(b"\x7fELF")
    assert projects.forked_run(tree, *editable, CC="no-such-compiler").status == 0
    assert not extension.exists()
