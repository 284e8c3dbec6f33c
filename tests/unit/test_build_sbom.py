"""Check the SBOM of a wheel, which the library of CycloneDX validates."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from aotcuda.builder.compile.job import BuiltModule, LinkedItem, Result
from aotcuda.builder.emit import sbom
from aotcuda.builder.plan import toolkits
from support.toolkits import toolkit

if TYPE_CHECKING:
    from pathlib import Path

ISC = "ISC License"
FILE = LinkedItem(name="csrc/table.cu", sha256="5" * 64, licence="MIT OR Apache-2.0")


def result_of(*items: LinkedItem, cuda: str = "13.0", **versions: str) -> tuple[Result, BuiltModule]:
    """Return the result of a toolkit for one module."""
    module = BuiltModule(plan=None, images=(), kernels=(), linked=items)  # type: ignore[arg-type]
    toolchain = {"cuda": cuda, "nvjitlink": cuda, "python": "3.11", **versions}
    return Result(toolchain=toolchain, modules=(module,), sources=(), warnings=()), module


def read(data: bytes) -> dict[str, Any]:
    """Return the components of an SBOM by their references, and their dependencies."""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(data.decode()) is None
    document = json.loads(data)
    components = {item["bom-ref"]: item for item in document["components"]}
    assert len(components) == len(document["components"])
    return {"components": components, "uses": {item["ref"]: item["dependsOn"] for item in document["dependencies"]}}


@pytest.fixture
def installed(tmp_path: Path) -> tuple[toolkits.Toolkit, ...]:
    """Return both toolkits, in a folder."""
    toolkit(tmp_path, 12, "12.9.86")
    toolkit(tmp_path, 13, "13.0.88", linker="13.5.4")
    return toolkits.installed([str(tmp_path)])


def test_compilers_have_their_versions_and_licences(installed: tuple[toolkits.Toolkit, ...]) -> None:
    parts = {"pkg.k": [result_of(**{"numba-cuda": version("numba-cuda"), "nvvm": "2.0.3.1"})]}
    bom = read(sbom.make(parts, installed))
    compiler = bom["components"][f"pkg:pypi/numba-cuda@{version('numba-cuda')}"]
    assert compiler["licenses"] == [{"expression": "BSD-2-Clause"}]
    assert compiler["properties"] == [{"name": "aotcuda:role", "value": "compiler"}]
    assert bom["uses"]["module:pkg.k"] == [
        compiler["bom-ref"],
        "pkg:pypi/nvidia-cuda-nvrtc@13.0.88",
        "pkg:pypi/nvidia-nvjitlink@13.5.4",
    ]
    wide_bom = read(sbom.make({"pkg.k": [result_of(), result_of(cuda="12.9")]}, installed))
    compilers = {"pkg:pypi/nvidia-cuda-nvrtc@13.0.88", "pkg:pypi/nvidia-cuda-nvrtc-cu12@12.9.86"}
    assert compilers <= {*wide_bom["uses"]["module:pkg.k"]}


def test_linked_files_have_digest_and_licence() -> None:
    parts = {"pkg.k": [result_of(FILE, LinkedItem(name="a.o", sha256="6" * 64))]}
    files = [item for item in read(sbom.make(parts, ()))["components"].values() if item["type"] == "file"]
    assert [(item["name"], item["hashes"], item.get("licenses")) for item in files] == [
        ("a.o", [{"alg": "SHA-256", "content": "6" * 64}], None),
        ("csrc/table.cu", [{"alg": "SHA-256", "content": "5" * 64}], [{"expression": "MIT OR Apache-2.0"}]),
    ]


def test_linked_module_is_a_component_of_its_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "Other_Kernels-2.0+local.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: Other_Kernels\nVersion: 2.0+local\nLicense: zlib\n")
    (about / "RECORD").write_text("otherpkg/__init__.py,,\n")
    (tmp_path / "otherpkg").mkdir()
    (tmp_path / "otherpkg" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    items = [LinkedItem(name=name, sha256="7" * 64, module=name) for name in ("pkg.f", "otherpkg.k", "nowhere.k")]
    bom = read(sbom.make({"pkg.k": [result_of(*items)], "pkg.f": [result_of()]}, ()))
    assert bom["uses"]["module:pkg.k"] == [
        "cuda-toolkit@13.0",
        "module:nowhere.k",
        "module:pkg.f",
        "pkg:pypi/other-kernels@2.0%2Blocal",
    ]
    assert bom["components"]["pkg:pypi/other-kernels@2.0%2Blocal"]["licenses"] == [{"license": {"name": "zlib"}}]


@pytest.mark.parametrize(
    ("metadata", "licences"),
    [
        ("License-Expression: MIT\nLicense: other\n", [{"expression": "MIT"}]),
        (f"License: {'Redistribution and use. ' * 9}\n", []),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: ISC License\n", [{"license": {"name": ISC}}]),
        ("", []),
    ],
)
def test_licences_come_from_the_metadata(
    metadata: str, licences: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "somecompiler-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: somecompiler\nVersion: 1.0\n{metadata}")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    bom = read(sbom.make({"pkg.k": [result_of(somecompiler="1.0")]}, ()))
    assert bom["components"]["pkg:pypi/somecompiler@1.0"].get("licenses", []) == licences
