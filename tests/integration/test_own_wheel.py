"""aotcuda's own wheel: with the fast path in C where it can be compiled, and without it everywhere else."""

from __future__ import annotations

import json
import re
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from integration import projects
from integration.projects import BUILD, HATCHLING, succeed

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTENSION = "aotcuda/runtime/fast/_launch"
THEN = {"SOURCE_DATE_EPOCH": "1700000000"}
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
SUFFIX = ".abi3.so" if STABLE else sysconfig.get_config_var("EXT_SUFFIX")
TELL = "from aotcuda.runtime import fast as extension; print(extension.why_not(), extension.in_use())"

COUNTED = """
import sys
from aotcuda.runtime import fast as extension
module = extension.in_use()
module.ArgumentLayout(8, (), b"", b"")
before = sys.getrefcount(None)
for _ in range(100):
    module.set_torch_stream(None)
print(sys.getrefcount(None) - before)
"""

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None or not Path(sysconfig.get_path("include"), "Python.h").is_file(),
    reason="needs a C compiler and Python's headers",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the sdist of this checkout, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    succeed(projects.CHECKOUT, *BUILD, "--sdist", "--outdir", folder, ".")
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder / packed.name.removesuffix(".tar.gz")


def extensions(wheel: Path) -> list[str]:
    """Return the files of a wheel that were compiled or are to be."""
    return [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".so", ".c"))]


def built(source: Path, out: Path, **environ: str) -> tuple[Path, str]:
    """Return the wheel of a source tree, and what its build said."""
    said = projects.forked_run(source, *HATCHLING, "-d", str(out), **environ)
    assert said.status == 0, said.err
    (wheel,) = out.glob("*.whl")
    return wheel, f"{said.out}{said.err}"


@pytest.fixture(scope="module")
def compiled(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the wheel with the extension, and what its build said."""
    return built(source, tmp_path_factory.mktemp("compiled"), AOTCUDA_EXTENSION="1", **THEN)


@needs_compiler
def test_a_compiler_gives_the_extension_for_every_python(compiled: tuple[Path, str], tmp_path: Path) -> None:
    wheel, said = compiled
    assert extensions(wheel) == [f"{EXTENSION}{SUFFIX}"]
    *_, tags = parse_wheel_filename(wheel.name)
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    interpreters = {("cp311", "abi3")} if STABLE else {(version, f"{version}t")}
    assert {(tag.interpreter, tag.abi) for tag in tags} == interpreters
    assert tags & {*sys_tags()}
    assert "not compiled" not in said
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    told = succeed(tmp_path, sys.executable, "-P", "-S", "-c", TELL, PYTHONPATH="site", AOTCUDA_EXTENSION="")
    assert told.out.startswith("None <module 'aotcuda.runtime.fast._launch' from ")


@pytest.mark.matrix  # CI compiles with the headers of its own Python
@needs_compiler
@pytest.mark.skipif(not STABLE, reason="is for the stable ABI alone")
def test_newer_headers_give_code_for_older_pythons(source: Path, tmp_path: Path) -> None:
    """Build the stable ABI with what later headers have.

    To those of Python 3.12 None is immortal; those of 3.13 do not say any more of which size sizes in calls are; those
    of 3.15 have a slot for every stable ABI, and what goes into it for newer ones alone.
    """
    names = ("PyArg_ParseTuple", "Py_RETURN_NONE", "Py_RETURN_TRUE", "Py_RETURN_FALSE")
    lines = ["#define PY_SSIZE_T_CLEAN", "#include <Python.h>", *(f"#undef {name}" for name in names)]
    lines += [f"#define Py_RETURN_{name.upper()} return Py_{name}" for name in ("None", "True", "False")]
    lines += ["PyAPI_FUNC(int) PyArg_ParseTuple(PyObject *, const char *, ...);"]
    lines += ["#ifndef Py_mod_gil", "#define Py_mod_gil 4", "#endif"]
    (tmp_path / "later.h").write_text("\n".join([*lines, ""]))
    wheel, _ = built(source, tmp_path / "dist", AOTCUDA_EXTENSION="1", CFLAGS=f"-include {tmp_path / 'later.h'}")
    assert extensions(wheel) == [f"{EXTENSION}.abi3.so"]
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    told = succeed(tmp_path, sys.executable, "-P", "-S", "-c", COUNTED, PYTHONPATH="site", AOTCUDA_EXTENSION="")
    assert int(told.out) > -50


@pytest.mark.matrix  # a release builds it twice
@needs_compiler
def test_the_same_source_gives_the_same_bytes(source: Path, compiled: tuple[Path, str], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "of another name"
    shutil.copytree(source, elsewhere)
    wheel, _ = built(elsewhere, tmp_path / "dist", **THEN)
    assert wheel.read_bytes() == compiled[0].read_bytes()


def test_its_bill_of_materials_says_that_it_needs_nothing(source: Path, tmp_path: Path) -> None:
    wheel, _ = built(source, tmp_path, AOTCUDA_EXTENSION="0")
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/sboms/aotcuda.cdx.json"))
    text = archive.read(name).decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    made = bill["metadata"]["component"]
    assert made["version"] == wheel.name.split("-")[1]
    assert bill["dependencies"] == [{"ref": made["purl"], "dependsOn": []}]
    (metadata,) = (entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
    needed = re.findall(r"^Requires-Dist: (.*)$", archive.read(metadata).decode(), re.MULTILINE)
    assert [line for line in needed if "extra ==" not in line] == []


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"CC": "/nonexistent"}, "/nonexistent cannot be run: No such file or directory"),
        ({"CC": "true"}, "true reported a file that does not exist"),
        ({"CC": "gcc '-O2"}, """CC is "gcc '-O2", which cannot be split like a shell command: No closing quotation"""),
        ({"LDFLAGS": "'"}, """LDFLAGS is "'", which cannot be split like a shell command: No closing quotation"""),
        ({"CFLAGS": "-include nowhere.h"}, "fatal error: nowhere.h: No such file or directory"),
        ({"AOTCUDA_EXTENSION": "0"}, None),
    ],
)
def test_without_a_compiler_it_is_the_pure_wheel(
    source: Path, tmp_path: Path, environ: dict[str, str], reason: str | None
) -> None:
    if "CFLAGS" in environ and shutil.which("gcc") is None:
        pytest.skip("needs gcc, whose words these are")
    wheel, said = built(source, tmp_path, **environ)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert extensions(wheel) == []
    warnings = [line for line in said.splitlines() if "not compiled" in line]
    assert len(warnings) == (reason is not None)
    assert reason is None or reason in warnings[0]
    assert reason is None or warnings[0].startswith("aotcuda: the fast path was not compiled, because ")


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        (
            {"AOTCUDA_EXTENSION": "1", "CC": "/nonexistent"},
            "aotcuda: the fast path was not compiled, because /non",
        ),
        ({"AOTCUDA_EXTENSION": "yes"}, "aotcuda: AOTCUDA_EXTENSION is 'yes'; write '0' for the pure wheel"),
    ],
)
def test_required_extension_without_compiler_is_an_error(
    source: Path, tmp_path: Path, environ: dict[str, str], reason: str
) -> None:
    done = projects.forked_run(source, *HATCHLING, "-d", str(tmp_path), **environ)
    assert done.status != 0
    assert reason in f"{done.out}{done.err}"
    assert not [*tmp_path.glob("*.whl")]


class TestEditable:
    """An editable install has the extension beside its source."""

    @pytest.fixture
    def tree(self, source: Path, tmp_path: Path) -> Iterator[Path]:
        shutil.copytree(source, tmp_path / "tree")
        return tmp_path / "tree"

    def build(self, tree: Path, **environ: str) -> list[str]:
        """Build it as editable; the extensions that the tree has then."""
        done = projects.forked_run(tree, *HATCHLING[:-1], "wheel:editable", **environ)
        assert done.status == 0, done.err
        return sorted(path.name for path in (tree / "aotcuda" / "runtime" / "fast").glob("_launch*"))

    @needs_compiler
    def test_editable_extension_is_replaced_and_never_packaged(self, tree: Path) -> None:
        place = tree / f"{EXTENSION}{SUFFIX}"
        place.write_bytes(b"of another state")
        wheel, _ = built(tree, tree / "out", AOTCUDA_EXTENSION="0")
        assert extensions(wheel) == []
        succeed(tree, *BUILD, "--sdist", "--outdir", tree / "out", ".")
        (packed,) = (tree / "out").glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            assert [entry for entry in archive.getnames() if entry.endswith(".so")] == []
        assert self.build(tree) == [place.name]
        assert place.read_bytes().startswith(b"\x7fELF")
        assert self.build(tree, CC="/nonexistent") == []
