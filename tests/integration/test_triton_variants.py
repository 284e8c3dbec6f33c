"""A Triton module in place, built from a variants file without a GPU, and compared with Triton's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.binary import fatbin
from integration import projects, triton_reference
from integration.projects import content, manifest_of
from integration.test_triton import sections_of

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

SHARED = {
    "types": ["*fp32:16", "none", "*fp32:16", "i32", "fp32"],
    "constexprs": {"HAS_BIAS": False, "EVEN": False, "BLOCK": 128, "DT": {"dtype": "float32"}},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return projects.copy("tritoninplace", tmp_path_factory.mktemp("variants") / "project")


@pytest.fixture(scope="module")
def files(project: Path) -> dict[str, bytes]:
    projects.back_end(project)
    (wheel,) = (project / "dist").glob("*.whl")
    return content(wheel)


def kernels(files: dict[str, bytes]) -> dict[str, Any]:
    return {item["name"]: item for item in manifest_of(files, "tritoninplace.norm")["kernels"]}


def test_wheel_gains_only_data(files: dict[str, bytes]) -> None:
    added = {name for name in files if "aotcuda/" in name and not name.startswith("tritoninplace-1.0")}
    data = ("in-place", "kernels.fatbin", "manifest.json", "tritoninplace_norm.h", "tuning.json")
    assert added == {
        "tritoninplace/__init__.aotcuda/in-place",
        *(f"tritoninplace/norm.aotcuda/{name}" for name in data),
    }
    assert "rebuild" not in manifest_of(files, "tritoninplace.norm"), "Triton's own JIT serves what is missing"


def test_kernels_record_exact_argument_binding(files: dict[str, bytes]) -> None:
    norm = kernels(files)["norm"]
    assert norm["exact"] is True
    assert norm["defined"] == "tritoninplace.norm:norm:12"
    assert norm["heuristics"] == ["HAS_BIAS", "EVEN"]
    arguments = {
        item["name"]: {key: value for key, value in item.items() if key != "name"} for item in norm["arguments"]
    }
    assert arguments["HAS_BIAS"] == {"is_not_none": "bias"}
    assert arguments["EVEN"] == arguments["BLOCK"] == arguments["eps"] == {}
    assert arguments["n"] == {"hints": "none"}
    assert arguments["maxnreg"] == {"default": None, "keyword": True}
    assert [parameter.get("divisor") for parameter in norm["overloads"][1]["parameters"][:4]] == [16, None, None, None]
    assert not any(parameter.get("optional") for item in norm["overloads"] for parameter in item["parameters"])


def test_variant_options_reach_code_and_launch(files: dict[str, bytes]) -> None:
    _, _, special = kernels(files)["norm"]["overloads"]
    assert special["launches"] == {"sm_90a": {"threads": 128, "shared": 8, "cluster": [2, 1, 1], "dependent": True}}
    assert special["cooperative"] is True
    assert special["resources"]["sm_90a"]["registers"] <= 64


def test_machine_code_is_what_triton_itself_makes(files: dict[str, bytes], project: Path, tmp_path: Path) -> None:
    sections = {}
    for entry in fatbin.read(files["tritoninplace/norm.aotcuda/kernels.fatbin"], "norm"):
        if entry.kind == "sass":
            sections |= {(name, entry.arch): code for name, code in sections_of(entry.content).items()}
    reference = triton_reference.run(project, tmp_path)
    assert len(reference) == 5
    for name, number, arch, symbol, cubin in reference:
        code = sections_of(cubin)[f".text.{symbol}"]
        assert sections[f".text.{name}__{number}_0", arch] == code, (name, number, arch)
