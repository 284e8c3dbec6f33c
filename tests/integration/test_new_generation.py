"""Apply the example "a new GPU generation" of CONTRIBUTING.md to a copy of the package, and build with the copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import aotcuda
from aotcuda import registry

CAPABILITY = """\
    Capability(
        (13, 0),
        "Feynman",
        first_cuda=(14, 0),
        limits=Limits(1536, 100, 99),
        examples=("F100",),
        names="NVIDIA F100",
    ),
)
"""
BRANCH = '  { cuda = "14.0", branch = 640, first = "640.10" },\n'

FACTS = """\
import json
from aotcuda import gpus, registry
from aotcuda.common import gpu_facts

print(json.dumps([
    registry.DEFAULT_TARGETS,
    gpus.default_targets((14, 0)),
    gpu_facts.first_branch((14, 0)),
]))
"""
SOURCE = """\
from numba import cuda


@cuda.jit("void(float32[::1])")
def first(x):
    x[cuda.grid(1)] = 1
"""
PYPROJECT = '[project]\nname = "pkg"\nversion = "1"\n'


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the package that knows the generation."""
    folder = tmp_path_factory.mktemp("generation")
    shutil.copytree(Path(aotcuda.__file__).parent, folder / "aotcuda", ignore=shutil.ignore_patterns("__pycache__"))
    gpus = folder / "aotcuda" / "gpus.py"
    head, end, tail = gpus.read_text().partition("CAPABILITIES = (\n")[2].partition("\n)\n")
    text = gpus.read_text().replace(f"{head}{end}{tail}", f"{head}\n{CAPABILITY}{tail}")
    assert text != gpus.read_text()
    gpus.write_text(text)
    drivers = folder / "aotcuda" / "common" / "drivers.toml"
    head, newest, tail = drivers.read_text().partition(" branch = 615 },\n")
    assert newest
    text = f"{head}{newest}{BRANCH}{tail}"
    drivers.write_text(text)
    return folder


def run(copy: Path, *arguments: str, folder: Path | None = None) -> str:
    environment = os.environ | {"PYTHONPATH": str(copy), "AOTCUDA_PROGRESS": "0"}
    command = [sys.executable, "-W", "ignore", *arguments]
    done = subprocess.run(command, cwd=folder or copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tables_accept_a_new_generation(copy: Path) -> None:
    new_project, with_cuda_14, branch = json.loads(run(copy, "-c", FACTS))
    assert tuple(new_project) == registry.DEFAULT_TARGETS, "the pinned toolkit cannot build for it"
    assert [target for target in with_cuda_14 if target not in new_project] == ["sm_130"]
    assert branch[0] == 640


def test_targets_of_a_new_project_are_built(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "_k.py").write_text(SOURCE)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    run(copy, "-m", "aotcuda", "init", str(tmp_path))
    table = tomllib.loads((tmp_path / "pyproject.toml").read_text())["tool"]["aotcuda"]
    written = run(copy, "-m", "aotcuda", "build", str(tmp_path))
    (manifest,) = [Path(line) for line in written.splitlines() if line.endswith("manifest.json")]
    document = json.loads(manifest.read_text())
    images = [image["arch"] for fatbin in document["fatbins"] for image in fatbin["images"]]
    assert sorted(images) == sorted(table["arch"])
