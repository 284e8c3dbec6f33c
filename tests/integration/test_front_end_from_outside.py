"""Test a front end of another distribution, `examples/frontend`, which compiles formulas."""

from __future__ import annotations

import importlib
import re
import struct
import sys
import tomllib
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aotcuda import registry
from aotcuda.builder.config import schema
from aotcuda.errors import ArgumentError, FallbackWarning, ToolchainError
from integration import projects
from integration.projects import content, manifest_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = 'tool.aotcuda.modules."elementwise.kernels"'


@pytest.fixture(scope="module")
def site(wheel_of_example: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the front end's distribution is installed."""
    return projects.unpacked(wheel_of_example("frontend"), tmp_path_factory.mktemp("front_end"))


@pytest.fixture(scope="module")
def wheel(site: Path, wheel_of: Callable[..., Path]) -> Path:
    return wheel_of("elementwise", PYTHONPATH=str(site))


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    return content(wheel)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return projects.copy("elementwise", tmp_path / "project")


@pytest.fixture
def kernels(cuda, wheel, monkeypatch):
    """Return a function that imports the packaged module, in a process without the front end."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(cuda.packages)
    importlib.invalidate_caches()
    yield lambda: importlib.import_module("elementwise.kernels")
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("elementwise")]:
        del sys.modules[name]


@pytest.fixture
def fallback(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the front end on the path, for compilation by the fallback; return the folder of the cache."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


class TestTheWheel:
    def test_manifest_names_front_end_and_sources(self, files: dict[str, bytes]) -> None:
        manifest = manifest_of(files, "elementwise.kernels")
        assert manifest["frontend"] == "elementwise"
        assert manifest["toolchain"]["nvrtc"].startswith("13.")
        assert [image["arch"] for image in manifest["fatbins"][0]["images"]] == ["sm_80", "sm_90", "compute_80"]
        assert [source["path"] for source in manifest["sources"]] == ["basic.formulas"]
        origins = [f"basic.formulas:{name}" for name in ("axpy", "square", "fill")]
        assert [kernel["origin"] for kernel in manifest["kernels"]] == origins
        signatures = [overload["signature"] for overload in manifest["kernels"][0]["overloads"]]
        assert signatures == [f"void({each}[...], {each}, {each}[...], {each}[...])" for each in ("float32", "float64")]

    def test_source_file_is_packaged_for_the_fallback(self, files: dict[str, bytes]) -> None:
        assert "elementwise/kernels.aotcuda/sources/basic.formulas" in files


class TestLaunches:
    def test_arguments_have_the_layout_of_c(self, cuda, kernels) -> None:
        out, x, y = (cuda.array(np.zeros((2, 4), "<f4")) for _ in range(3))
        x.interface["data"] = (x.address, True)
        kernels().axpy[1, 8](out, 2.5, x, y)
        assert cuda.parameters() == struct.pack("<Qf4xQQq", out.address, 2.5, x.address, y.address, 8)
        assert "elementwise_frontend" not in sys.modules

    def test_other_types_are_refused_with_packaged_signatures(self, cuda, kernels, monkeypatch) -> None:
        monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
        with pytest.raises(ArgumentError, match=r"packaged: void\(float32\[\.\.\.\], float32\[\.\.\.\]\)"):
            kernels().square[2, 32](cuda.array(np.zeros(8, "<f8")), cuda.array(np.zeros(8, "<f8")))

    def test_fallback_compiles_packaged_sources_for_another_gpu(self, cuda, kernels, fallback) -> None:
        cuda.set(devices="7.5")
        out, x = cuda.array(8), cuda.array(8)
        with pytest.warns(FallbackWarning, match=r"elementwise\.kernels, all of it"):
            kernels().square[2, 32](out, x)
        assert cuda.parameters() == struct.pack("<QQq", out.address, x.address, 8)
        (image,) = fallback.rglob("kernels.cubin")
        assert b"square_float32" in image.read_bytes()


EDITS = {
    "another front end": (
        "pyproject.toml",
        'frontend = "elementwise"',
        'frontend = "elementwize"',
        r'\.frontend: expected .* or "elementwise", found the string "elementwize"; did you mean "elementwise"\?',
    ),
    "functions": (
        "pyproject.toml",
        "kernels.square =",
        'functions.f = "int32()"\nkernels.square =',
        r"\.functions: the front end elementwise has no functions; remove the key",
    ),
    "an error in the file": ("basic.formulas", "x * x", "x * z", r"(?s).*basic\.formulas does not compile for sm_80"),
}


class TestErrors:
    @pytest.mark.parametrize("name", EDITS)
    def test_error_names_the_key(self, name: str, project: Path, site: Path) -> None:
        file, old, new, message = EDITS[name]
        text = (project / file).read_text()
        assert old in text
        (project / file).write_text(text.replace(old, new, 1))
        done = projects.refused(project, PYTHONPATH=str(site))
        assert re.match(message, done.message.removeprefix(KEY))

    def test_without_its_distribution_the_name_is_unknown(self, project: Path) -> None:
        names = " or ".join(f'"{name}"' for name in registry.BUILT_IN)
        done = projects.refused(project)
        assert done.message.startswith(f"{KEY}.frontend: expected {names}, found the string")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("FRONT_END = 3", "is no aotcuda.registry.Registration of that name; mend its entry point"),
            ("import nowhere", r"cannot be imported \(No module named 'nowhere'\); install its distribution again"),
        ],
    )
    def test_invalid_registration_is_refused(self, tmp_path: Path, monkeypatch, content: str, message: str) -> None:
        folder = tmp_path / "broken-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
        (folder / "entry_points.txt").write_text("[aotcuda.frontends]\nbroken = broken_front_end:FRONT_END\n")
        (tmp_path / "broken_front_end.py").write_text(content)
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(
            ToolchainError, match=f"^the front end broken, registered as broken_front_end:FRONT_END, {message}"
        ):
            registry.find("broken")
        sys.modules.pop("broken_front_end", None)


def test_schema_accepts_tables_of_the_front_end(site: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    table = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["aotcuda"]
    assert not jsonschema.Draft7Validator(schema.tool_schema("aotcuda")).is_valid(table)
    monkeypatch.syspath_prepend(str(site))
    validator = jsonschema.Draft7Validator(schema.tool_schema("aotcuda"))
    assert validator.is_valid(table)
    table["modules"]["elementwise.kernels"]["kernels"]["square"] = 3
    assert not validator.is_valid(table)
    for name in [name for name in sys.modules if name.startswith("elementwise_frontend")]:
        monkeypatch.delitem(sys.modules, name)
