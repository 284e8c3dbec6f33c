"""Test `aotcuda cache warm`: a fallback on a GPU finds the entries that a machine without a GPU compiled."""

from __future__ import annotations

import tomllib
import warnings

import pytest

from aotcuda import cli
from aotcuda.builder.entry import api, jit
from aotcuda.errors import NoImageError
from aotcuda.runtime.images.source import Packaged
from aotcuda.runtime.jit import compile as jit_compile
from integration import projects
from support.jit_builds import forget_cache


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a folder with the installed package `flat`, whose images are for sm_80 and compute_80."""
    project = projects.copy("flat", tmp_path_factory.mktemp("flat") / "project")
    table = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["aotcuda"]
    for path, data in api.build(table, project).files.items():
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_bytes(data)
    (project / "pyproject.toml").unlink()
    return project


@pytest.fixture
def warmed(installed, tmp_path, monkeypatch):
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(installed))
    forget_cache(monkeypatch)
    return installed


def test_fallback_finds_warmed_entry(warmed, monkeypatch, capsys):
    assert cli.main(["cache", "warm", "flat", "--arch", "sm_75", "sm_90"]) == 0
    output = capsys.readouterr().out
    assert "flat.kernels for sm_75: compiled, " in output
    assert "flat.kernels for sm_90: packaged, as compute_80\n" in output
    assert cli.main(["cache", "warm", "flat.kernels"]) == 0
    assert capsys.readouterr().out == "flat.kernels for sm_75: was compiled before\n", "all others take the PTX"

    def refuse(_):
        raise AssertionError

    monkeypatch.setattr(jit, "build", refuse)
    forget_cache(monkeypatch)
    path = str(warmed / "flat" / "kernels.aotcuda" / "manifest.json")
    inputs = Packaged("flat.kernels", path, None, str(warmed)).build_inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = jit_compile.obtain(inputs.case(None, None, (7, 5), (13, 0)), "GPU 0", NoImageError("there is none"))
    assert [image["arch"] for image in result.manifest["fatbins"][0]["images"]] == ["sm_75"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flat", "--arch", "sm_90a"], "--arch sm_90a: the JIT fallback compiles for one GPU; write sm_90"),
        (["flat", "--arch", "compute_75"], "write sm_75"),
        (["flat", "--arch", "fast"], "--arch fast: "),
        (["nothing_of_the_kind"], "nothing_of_the_kind"),
    ],
)
def test_invalid_warm_request_gives_one_line(warmed, capsys, arguments, message):
    assert cli.main(["cache", "warm", *arguments]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
