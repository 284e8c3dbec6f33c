"""Test that `aotcuda doctor` finds installed modules and their images, and reports no secrets."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from aotcuda import cli
from aotcuda.common import variables
from aotcuda.tools import doctor, installed_modules
from support import manifests, modules

if TYPE_CHECKING:
    from pathlib import Path


def install(site: Path, name: str, files: list[Path], **metadata: str) -> None:
    """Install a distribution in `site`: its metadata, with a list of these files."""
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "RECORD").write_text("".join(f"{path.relative_to(site).as_posix()},sha256=x,1\n" for path in files))
    for file, text in metadata.items():
        (folder / f"{file}.json").write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder; no other folder has installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    modules.contents()  # compiles the images while the compilers can be imported
    monkeypatch.setattr(sys, "path", [str(folder), *(path for path in sys.path if "site-packages" not in path)])
    monkeypatch.setattr(doctor, "_RELEASE", str(tmp_path / "none"))
    return folder


def install_wheel(site: Path) -> Path:
    """Install `mypkg` as from a wheel; return the data folder of its module."""
    package = modules.write_package(site)
    install(site, "mypkg", [path for path in package.rglob("*") if path.is_file()])
    return package / "kernels.aotcuda"


def run_doctor(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Run `aotcuda doctor`; return the lines of its report by their first words."""
    assert cli.main(["doctor"]) == 0
    return {
        name: text.strip() for name, _, text in (line.partition("  ") for line in capsys.readouterr().out.splitlines())
    }


def test_modules_of_wheels_are_found_by_their_file_lists(site: Path) -> None:
    install_wheel(site)
    (module,) = installed_modules.find()
    assert module.packaged is not None
    assert (module.name, module.distribution, module.editable) == ("mypkg.kernels", "mypkg 1.0", False)
    assert module.problem == ""


def test_modules_of_editable_installs_are_found_by_their_tables(site: Path, tmp_path: Path) -> None:
    project = tmp_path / "a project"
    modules.write_package(project)
    (project / "pyproject.toml").write_text(
        '[tool.aotcuda.modules."mypkg.kernels"]\n[tool.aotcuda.modules."mypkg.more"]\n'
    )
    origin = {"url": project.as_uri(), "dir_info": {"editable": True}}
    install(site, "mypkg", [], direct_url=json.dumps(origin))
    sys.path.insert(0, str(project))  # the fixture restores the path
    built, missing = installed_modules.find()
    assert (built.name, built.editable, built.problem) == ("mypkg.kernels", True, "")
    assert (missing.name, missing.packaged) == ("mypkg.more", None)
    assert missing.problem.startswith("the package mypkg has no module more")


@pytest.mark.parametrize("name", ["mypkg.kernels", "mypkg.sub.kernels"])
def test_editable_module_that_is_out_of_date_is_reported(name, site, tmp_path, capsys):
    project = tmp_path / "project"
    source = project / "mypkg" / "_kernels.py"
    source.parent.mkdir(parents=True)
    source.write_text("before")
    sources = [{"path": "mypkg/_kernels.py", "sha256": hashlib.sha256(b"before").hexdigest()}]
    manifests.write(project, [manifests.kernel("axpy", "void(float32)")], name=name, editable=True, sources=sources)
    (project / "pyproject.toml").write_text(f'[tool.aotcuda.modules."{name}"]\n')
    install(site, "mypkg", [], direct_url=json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}}))
    sys.path.insert(0, str(project))  # the fixture restores the path
    assert "out of date" not in run_doctor(capsys)["module"]
    source.write_text("after")
    assert run_doctor(capsys)["module"] == (
        f"{name} (mypkg 1.0, editable): out of date: it was built before {source} was edited; "
        "build it again: pip install -e ."
    )
    assert cli.main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["modules"][0]["changed"] == f"{source} was edited"


def test_image_of_each_gpu_is_named(cuda, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install_wheel(site)
    lines = run_doctor(capsys)
    assert lines["driver"] == "for CUDA 13.0"
    assert lines["module"].startswith("mypkg.kernels (mypkg 1.0): GPU ")
    assert "takes sm_90: machine code for exactly this compute capability" in lines["module"]
    assert cli.main(["doctor", "--json"]) == 0
    (module,) = json.loads(capsys.readouterr().out)["modules"]
    first = module["takes"][0]
    assert (first["gpu"], first["takes"], first["image"]) == (0, "exact", "sm_90")


def test_images_are_named_without_a_driver(site, monkeypatch, capsys):
    monkeypatch.setattr("aotcuda.runtime.driver._driver", None)
    monkeypatch.setattr("aotcuda.runtime.driver.LIBRARY", "libnowhere.so.1")
    install_wheel(site)
    assert run_doctor(capsys)["module"] == (
        "mypkg.kernels (mypkg 1.0): has images for sm_75, sm_90, compute_75; this machine has no driver"
    )


def test_damaged_module_is_reported(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fatbin = install_wheel(site) / "kernels.fatbin"
    fatbin.write_bytes(b"altered")
    text = run_doctor(capsys)["module"]
    assert text.startswith(f"mypkg.kernels (mypkg 1.0): {fatbin} has 7 bytes where the manifest says ")
    assert text.endswith("; install the package again")


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        ("s3://name:password@store/cache?token=secret", "s3://store/cache"),
        ("s3://name:pass@word@[store/cache#secret", "s3://[store/cache"),
    ],
)
def test_report_has_no_user_name_and_no_password(value, reported, monkeypatch, capsys, tmp_path):
    for home in ("HOME", "USERPROFILE"):  # Windows has the second one
        monkeypatch.setenv(home, str(tmp_path))
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("SOME_TOKEN", "secret")
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert str(tmp_path) not in text
    assert "pass" not in text
    assert "secret" not in text
    assert f"AOTCUDA_BUILD_CACHE={reported}\n" in text
    assert f"AOTCUDA_CACHE_DIR=~{os.sep}cache\n" in text
    assert "CUDA_VISIBLE_DEVICES=\n" in text


def test_unknown_variables_are_marked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    remarks = {
        "AOTCUDA_ARCHS": " (nothing reads this; did you mean AOTCUDA_ARCH?)",
        "AOTCUDA_CACHE_DIRECTORY": " (nothing reads this; did you mean AOTCUDA_CACHE_DIR?)",
        "AOTCUDA_XYZ": " (nothing reads this)",
        **{name: "" for name in variables.OWN if name != "AOTCUDA_CACHE_SIZE"},
    }
    values = {name: variables.VALUES.get(name, ("0",))[0] for name in remarks}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert [name for name, remark in remarks.items() if f"{name}={values[name]}{remark}\n" not in text] == []
