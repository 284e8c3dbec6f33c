"""A front end of another distribution (`tests/packages/cudacpp_frontend`): built, inspected, launched; kept apart.

It compiles CUDA C++ kernels whose parameters stand in the table. Nothing in aotcuda knows of it.
"""

from __future__ import annotations

import importlib
import json
import re
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import aotcuda
from aotcuda import frontends
from aotcuda.builder.config import schema
from aotcuda.errors import ArgumentError, FallbackWarning, ToolchainError
from integration import projects
from integration.projects import build_wheel, content, manifest_of

OWN = '"numba-cuda" or "numba-cuda-mlir" or "triton"'
KEY = 'tool.aotcuda.modules."cudacpp.raw"'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the front end's distribution is installed."""
    folder = tmp_path_factory.mktemp("front_end")
    wheel = build_wheel(projects.copy("cudacpp_frontend", folder / "project"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def wheel(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = projects.copy("cudacpp", tmp_path_factory.mktemp("cudacpp") / "project")
    return build_wheel(project, PYTHONPATH=str(site))


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    return content(wheel)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return projects.copy("cudacpp", tmp_path / "project")


@pytest.fixture
def raw(cuda, wheel, monkeypatch):
    """The packaged module, in a process that has no such front end."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(cuda.packages)
    importlib.invalidate_caches()
    yield lambda: importlib.import_module("cudacpp.raw")
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("cudacpp")]:
        del sys.modules[name]


@pytest.fixture
def fallback(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The front end is installed where the fallback compiles; the folder of the cache."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_nothing_in_aotcuda_knows_it() -> None:
    assert frontends.find("cuda-cpp") is None
    folder = Path(aotcuda.__file__).parent
    assert not [path for path in folder.rglob("*.py") if re.search(r"cuda.?cpp", path.read_text(), re.IGNORECASE)]


class TestTheWheel:
    def test_the_manifest_names_it_and_what_it_was_built_from(self, files: dict[str, bytes]) -> None:
        manifest = manifest_of(files, "cudacpp.raw")
        assert manifest["frontend"] == "cuda-cpp"
        assert manifest["toolchain"]["nvrtc"].startswith("13.")
        assert [image["arch"] for image in manifest["images"]] == ["sm_80", "sm_90", "compute_80"]
        assert [source["path"] for source in manifest["sources"]] == ["csrc/include/factor.h", "csrc/raw.cu"]
        assert [kernel["origin"] for kernel in manifest["kernels"]] == ["csrc/raw.cu:scale", "csrc/raw.cu:copy"]
        signatures = [kernel["overloads"][0]["signature"] for kernel in manifest["kernels"]]
        assert signatures[0] == "void(float32, float32[::1], int32)"

    def test_the_file_is_carried_for_the_fallback_with_its_headers(self, files: dict[str, bytes]) -> None:
        folder = "cudacpp/raw.aotcuda/sources/csrc/"
        carried = {name.removeprefix(folder) for name in files if name.startswith(folder)}
        assert carried == {"raw.cu", "include/factor.h"}

    def test_the_same_bytes_come_out_again(self, wheel: Path, site: Path, project: Path) -> None:
        assert build_wheel(project, PYTHONPATH=str(site)).read_bytes() == wheel.read_bytes()

    def test_inspect_reads_it_with_the_front_end_and_without(self, wheel: Path, site: Path) -> None:
        command = (sys.executable, "-m", "aotcuda", "inspect", "--json", wheel)
        found = [
            {(item["name"], item["abi"]) for item in json.loads(done.out)["modules"][0]["symbols"]}
            for done in (
                projects.succeed(wheel.parent, *command),
                projects.succeed(wheel.parent, *command, PYTHONPATH=str(site)),
            )
        ]
        assert found == [{("scale", "cuda-cpp"), ("copy", "cuda-cpp")}, {("scale", "c"), ("copy", "c")}]

    def test_an_editable_build_depends_on_the_file(self, project: Path, site: Path) -> None:
        projects.succeed(
            project, sys.executable, "-m", "hatchling", "build", "-t", "wheel:editable", PYTHONPATH=str(site)
        )
        manifest = json.loads((project / "cudacpp/raw.aotcuda/manifest.json").read_text())
        paths = {source["path"] for source in manifest["sources"]}
        assert {"csrc/raw.cu", "csrc/include/factor.h", "pyproject.toml#tool.aotcuda"} <= paths


class TestLaunches:
    def test_arguments_lie_where_c_has_them(self, cuda, raw) -> None:
        array = cuda.array(np.zeros(8, "<f4"))
        raw().scale[2, 32](2.5, array, 8)
        assert cuda.parameters() == struct.pack("<f4xQi", 2.5, array.address, 8)
        assert "cudacpp_frontend" not in sys.modules

    def test_other_types_are_refused_with_what_is_packaged(self, cuda, raw, monkeypatch) -> None:
        monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
        with pytest.raises(ArgumentError, match=r"float32\[::1\]"):
            raw().scale[2, 32](2.5, cuda.array(np.zeros(8, "<f8")), 8)
        source = cuda.array(np.zeros(8, "<f8"))
        source.interface["data"] = (source.address, True)
        with pytest.raises(ArgumentError):
            raw().copy[1, 8](source, source, 8)

    def test_the_fallback_compiles_what_is_carried_for_another_gpu(self, cuda, raw, fallback) -> None:
        cuda.set(devices="7.5")
        array = cuda.array(np.zeros(8, "<f4"))
        with pytest.warns(FallbackWarning, match=r"cudacpp\.raw, all of it"):
            raw().scale[2, 32](2.5, array, 8)
        assert cuda.parameters() == struct.pack("<f4xQi", 2.5, array.address, 8)
        (image,) = fallback.rglob("kernels.cubin")
        assert b"scale" in image.read_bytes()

    def test_the_fallback_says_that_there_are_no_other_types(self, cuda, raw, fallback) -> None:
        with (
            pytest.warns(FallbackWarning),
            pytest.raises(ArgumentError, match="a kernel in CUDA C\\+\\+ takes what it declares"),
        ):
            raw().scale[2, 32](2.5, cuda.array(np.zeros(8, "<f8")), 8)


EDITS = {
    "another front end": (
        "pyproject.toml",
        'frontend = "cuda-cpp"',
        'frontend = "cuda-cp"',
        f'{KEY}.frontend: expected {OWN} or "cuda-cpp", found the string "cuda-cp"; did you mean "cuda-cpp"?',
    ),
    "a Python module": (
        "pyproject.toml",
        '"csrc/raw.cu"',
        '"cudacpp._raw"',
        f'{KEY}.source: expected the path of a .cu file, found the string "cudacpp._raw"',
    ),
    "no parameter": (
        "pyproject.toml",
        '"int n"',
        '"integer n"',
        f'{KEY}.kernels.scale.parameters[2]: "integer n" is no parameter;',
    ),
    "an unknown key": (
        "pyproject.toml",
        "kernels.scale = { parameters",
        "kernels.scale = { params",
        f"{KEY}.kernels.scale.params: unknown key; did you mean parameters?",
    ),
    "functions": (
        "pyproject.toml",
        "kernels.scale =",
        'functions.f = "int32()"\nkernels.scale =',
        f"{KEY}.functions: the front end cuda-cpp has no functions; remove them",
    ),
    "no such file": (
        "pyproject.toml",
        "csrc/raw.cu",
        "csrc/row.cu",
        f"{KEY}.kernels.scale: csrc/row.cu cannot be read (No such file or directory)",
    ),
    "no such kernel": (
        "csrc/raw.cu",
        "void scale(",
        "void scaled(",
        f"{KEY}.kernels.scale: csrc/raw.cu declares no kernel scale;",
    ),
    "other parameters": (
        "csrc/raw.cu",
        "float *x, int n)",
        "float *x, long n)",
        f"{KEY}.kernels.scale: csrc/raw.cu declares scale with other parameters than (float a, float * x, int n)",
    ),
    "an error in the file": ("csrc/raw.cu", "x[i] *=", "y[i] *=", f"{KEY}.kernels.scale: csrc/raw.cu does not compile"),
}


class TestErrors:
    @pytest.mark.parametrize("name", EDITS)
    def test_they_name_the_key(self, name: str, project: Path, site: Path) -> None:
        file, old, new, said = EDITS[name]
        text = (project / file).read_text()
        assert old in text
        (project / file).write_text(text.replace(old, new, 1))
        done = projects.refused(project, PYTHONPATH=str(site))
        assert done.said.startswith(said)

    def test_without_its_distribution_the_name_is_unknown(self, project: Path) -> None:
        done = projects.refused(project)
        assert done.said.startswith(f"{KEY}.frontend: expected {OWN}, found the string")

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("FRONT_END = 3", "is no aotcuda.frontends.Registration of that name; mend its entry point"),
            ("import nowhere", r"cannot be imported \(No module named 'nowhere'\); install its distribution again"),
        ],
    )
    def test_a_registration_that_is_none_is_said(self, tmp_path: Path, monkeypatch, content: str, said: str) -> None:
        folder = tmp_path / "broken-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
        (folder / "entry_points.txt").write_text("[aotcuda.frontends]\nbroken = broken_front_end:FRONT_END\n")
        (tmp_path / "broken_front_end.py").write_text(content)
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(
            ToolchainError, match=f"^the front end broken, registered as broken_front_end:FRONT_END, {said}"
        ):
            frontends.find("broken")
        sys.modules.pop("broken_front_end", None)


def test_the_schema_has_what_it_takes(site: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    import tomllib

    table = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["aotcuda"]
    assert not jsonschema.Draft7Validator(schema.tool_schema("aotcuda")).is_valid(table)
    monkeypatch.syspath_prepend(str(site))
    validator = jsonschema.Draft7Validator(schema.tool_schema("aotcuda"))
    assert validator.is_valid(table)
    table["modules"]["cudacpp.raw"]["kernels"]["scale"]["parameters"][0] = 3
    assert not validator.is_valid(table)
    for name in [name for name in sys.modules if name.startswith("cudacpp_frontend")]:
        monkeypatch.delitem(sys.modules, name)


def test_a_name_in_the_table_costs_no_look_at_entry_points() -> None:
    code = (
        "import sys; import aotcuda.runtime.module, aotcuda.runtime.jit.compile; from aotcuda import frontends; "
        "frontends.find('numba-cuda'), frontends.calling('numba.cuda.dispatcher'); "
        "print('importlib.metadata' in sys.modules)"
    )
    environ = {"PYTHONPATH": str(Path(aotcuda.__file__).parents[1])}
    assert projects.succeed(Path.cwd(), sys.executable, "-S", "-c", code, **environ).out == "False\n"
