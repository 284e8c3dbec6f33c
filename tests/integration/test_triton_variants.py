"""A Triton module in place, built from a variants file without a GPU, and compared with Triton's code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.binary import fatbin
from integration import projects
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


def test_machine_code_is_what_triton_itself_makes(
    files: dict[str, bytes], project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bench/triton_releases.py` compares more variants, by several releases of Triton."""
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")  # the script sets it
    monkeypatch.syspath_prepend(str(projects.CHECKOUT / "bench"))
    import triton_releases

    sections = {}
    for entry in fatbin.read(files["tritoninplace/norm.aotcuda/kernels.fatbin"], "norm"):
        if entry.kind == "sass":
            sections |= {(name, entry.arch): code for name, code in sections_of(entry.content).items()}
    reference = triton_releases.run_reference(project, tmp_path)
    assert len(reference) == 5
    for (_, name, number, arch), code in reference.items():
        assert sections[f".text.{name}__{number}_0", arch] == code, (name, number, arch)


def with_clusters(folder: Path, incomplete: str) -> Path:
    """Return a copy of the project with a variant that needs clusters, which 8.0 and 8.6 lack."""
    copy = projects.copy("tritoninplace", folder / "project")
    variants = json.loads((copy / "tritoninplace/norm.variants.json").read_text())
    variants["kernels"]["norm"]["variants"] = [SHARED, {**SHARED, "num_ctas": 2}]
    variants["kernels"]["add"] = {"parameters": ["x"], "variants": [{"types": ["*i8"], "constexprs": {}}]}
    (copy / "tritoninplace/norm.variants.json").write_text(json.dumps(variants))
    table = (copy / "pyproject.toml").read_text().replace("compute_80", "sm_86")
    table = "\n".join(line for line in table.splitlines() if not line.startswith("kernels.add"))
    (copy / "pyproject.toml").write_text(
        table.replace("[tool.aotcuda]", f'[tool.aotcuda]\nincomplete = "{incomplete}"')
    )
    return copy


OTHER_PARAMETERS = (
    'tool.aotcuda.modules."tritoninplace.norm".variants: kernels.add: add has other parameters than when it was '
    "recorded: x, y, out, n, BLOCK; record it again: aotcuda record --write -- COMMAND"
)


def test_unsupported_variant_is_left_out_of_a_target(tmp_path: Path) -> None:
    copy = with_clusters(tmp_path, "warn")
    output = projects.back_end(copy).err
    reason = "num_ctas > 1 requires NVIDIA SM90+"
    for target in ("sm_80", "sm_86"):
        assert f"kernels.norm: 1 of its 2 variants is left out for {target}: " in output
    assert f"{OTHER_PARAMETERS}; its one variant is left out\n" in output
    (wheel,) = (copy / "dist").glob("*.whl")
    manifest = manifest_of(content(wheel), "tritoninplace.norm")
    assert [item["name"] for item in manifest["kernels"]] == ["norm"]
    assert [(note["kernel"], note["target"]) for note in manifest["left_out"]] == [("norm", "sm_80"), ("norm", "sm_86")]
    assert all(reason in note["reason"] for note in manifest["left_out"])
    (plain, special) = manifest["kernels"][0]["overloads"]
    assert [sorted(item["launches"]) for item in (plain, special)] == [["sm_80", "sm_86", "sm_90a"], ["sm_90a"]]
    for command in ("check", "inspect"):
        done = projects.aotcuda(tmp_path, command, "--json", wheel)
        (module,) = json.loads(done.out)["modules"]
        assert [(item["kernel"], item["target"], item["variants"]) for item in module["left_out"]] == [
            ("norm", "sm_80", 1),
            ("norm", "sm_86", 1),
        ]
        assert "left out" in projects.aotcuda(tmp_path, command, wheel).out


def test_changed_kernel_outside_in_place_is_refused(tmp_path: Path) -> None:
    copy = with_clusters(tmp_path, "warn")
    config = copy / "pyproject.toml"
    config.write_text(config.read_text().replace('modules."tritoninplace.norm"', 'modules."tritoninplace.k"'))
    assert projects.refused(copy).message == OTHER_PARAMETERS.replace("tritoninplace.norm", "tritoninplace.k")


def test_incomplete_error_ends_the_build(tmp_path: Path) -> None:
    done = projects.forked_run(with_clusters(tmp_path, "error"), *projects.command())
    assert done.status
    assert "kernels.norm: 1 of its 2 variants is left out for sm_80" in done.err
    assert 'or set incomplete = "warn"' in done.err
