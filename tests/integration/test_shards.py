"""Shards fill one build cache, and a build from that cache alone gives the files of one build on one machine."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder import api
from aotcuda.errors import AotcudaError
from integration import projects

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aotcuda.builder.built import Output

KERNELS = [f"k{number}" for number in range(5)]
SOURCE = """\
import os
from pathlib import Path

from numba import cuda

FACTOR = int(Path(__file__).with_name("factor.txt").read_text()) + int(os.environ.get("PKG_FACTOR", "0"))


def doubled(x):
    return 2 * x

""" + "\n".join(
    f"""
@cuda.jit
def {name}(x):
    x[cuda.grid(1)] = doubled(x[0]) * FACTOR + {number}
"""
    for number, name in enumerate(KERNELS)
)
USER = """\
from numba import cuda

pkg_doubled = cuda.declare_device("pkg_doubled", "float32(float32)", abi="c")


@cuda.jit
def use(x):
    x[cuda.grid(1)] = pkg_doubled(x[0])
"""
TABLE = """\
[tool.aotcuda]
arch = ["sm_80", "sm_90"]

[tool.aotcuda.modules."pkg.user"]
source = "pkg._user"
link = [{ module = "pkg.kernels" }]
kernels.use = "void(float32[::1])"

[tool.aotcuda.modules."pkg.kernels"]
source = "pkg._kernels"
functions = { pkg_doubled = { python = "doubled", signature = "float32(float32)" } }

[tool.aotcuda.modules."pkg.kernels".kernels]
""" + "".join(f'{name} = "void(float32[::1])"\n' for name in KERNELS)


def build(root: Path, cache: Path | str, *, shard: tuple[int, int] | None = None, only: bool = False) -> Output:
    """Build in this process with this build cache."""
    table = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["aotcuda"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTCUDA_BUILD_CACHE", str(cache))
        return api.build(table, root, shard=shard, from_cache_only=only)


def outcome(built: Output) -> tuple[object, ...]:
    return built.files, built.notes, dict(built.needed), built.package_root, built.sbom


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards").resolve() / "project"
    files = {"__init__.py": "", "_kernels.py": SOURCE, "_user.py": USER, "factor.txt": "3"}
    return projects.put(root, {"pyproject.toml": TABLE, **{f"pkg/{name}": text for name, text in files.items()}})


@pytest.fixture(scope="module")
def filled(project: Path) -> Path:
    """Return the cache that two shards have filled."""
    cache = project.parent / "cache"
    for index in (1, 2):
        build(project, cache, shard=(index, 2))
    return cache


def test_merged_shards_have_the_files_of_one_build(project: Path, filled: Path, tmp_path: Path) -> None:
    one = build(project, "0")
    copy = shutil.copytree(project, tmp_path.resolve() / "elsewhere")
    merged = build(copy, shutil.copytree(filled, tmp_path / "cache"), only=True)
    assert outcome(merged) == outcome(one)
    assert not [step.title for step in merged.summary.steps if step.work and not step.cached], "units were compiled"


def edit(path: str, before: str, after: str) -> Callable[[Path, Path], None]:
    def edited(root: Path, cache: Path) -> None:
        del cache
        assert before in (root / path).read_text()
        (root / path).write_text((root / path).read_text().replace(before, after))

    return edited


def remove(*titles: str) -> Callable[[Path, Path], None]:
    """Remove the entries with these words in their titles from the cache."""

    def removed(root: Path, cache: Path) -> None:
        del root
        for path in cache.glob("v1/*/*.aotcuda/entry.json"):
            if any(title in json.loads(path.read_bytes())["record"]["about"] for title in titles):
                shutil.rmtree(path.parent)

    return removed


def damage(root: Path, cache: Path) -> None:
    del root
    for path in cache.glob("v1/*/*.aotcuda/value"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")


FAULTS = {
    "no shard": (
        lambda _, cache: shutil.rmtree(cache),
        r"lacks 6 of 6 .*pkg\.kernels\.k0.* and no shard of this project; run aotcuda build --shard I/N",
    ),
    "an entry": (remove("pkg.kernels.k3 void"), r"lacks 1 of 6 .*; build the shards again with this cache"),
    "machine code": (
        remove("machine code for sm_80"),
        r"lacks the machine code of pkg\.kernels\.k.*AOTCUDA_CACHE_SIZE",
    ),
    "damage": (damage, "lacks 6 of 6"),
    "a file that a source reads": (edit("pkg/factor.txt", "3", "4"), r"another state \(pkg/factor\.txt\)"),
    "the table": (edit("pyproject.toml", "sm_80", "sm_86"), r"another state \(\[tool\.aotcuda\]\)"),
    "a variable": (lambda *_: os.environ.update(PKG_FACTOR="5"), r"another state \(\$PKG_FACTOR\)"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_missing_results_give_one_line(
    name: str, project: Path, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil, message = FAULTS[name]
    root = shutil.copytree(project, tmp_path.resolve() / "project")
    cache = shutil.copytree(filled, tmp_path / "cache")
    monkeypatch.setenv("PKG_FACTOR", "")
    monkeypatch.delenv("PKG_FACTOR")
    spoil(root, cache)
    with pytest.raises(AotcudaError, match=message) as error:
        build(root, cache, only=True)
    assert "\n" not in str(error.value)


def test_shard_without_a_usable_cache_is_refused(project: Path, tmp_path: Path) -> None:
    with pytest.raises(AotcudaError, match="needs the build cache, and there is none; set AOTCUDA_BUILD_CACHE"):
        build(project, "0", shard=(1, 2))
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    with pytest.raises(AotcudaError, match=r"cannot store its results: .*cache"):
        build(project, cache, shard=(1, 2))


def test_command_line_builds_shards_with_a_report(project: Path, filled: Path, tmp_path: Path) -> None:
    cache = str(shutil.copytree(filled, tmp_path / "cache"))
    report = tmp_path / "report.json"
    given = ("build", "--shard", "2/2", "--report", report)
    assert "shard 2 of 2: " in projects.aotcuda(project, *given, AOTCUDA_BUILD_CACHE=cache).err
    found = {unit["symbol"]: unit for unit in json.loads(report.read_bytes())["units"]}
    assert found.keys() < {*KERNELS, "pkg_doubled", "use"}
    assert all(target["cached"] for unit in found.values() for target in unit["targets"].values())
    only = {"AOTCUDA_FROM_CACHE_ONLY": "1", "AOTCUDA_BUILD_CACHE": cache}
    projects.aotcuda(project, "build", "--out", str(tmp_path / "out"), "--report", report, **only)
    whole = json.loads(report.read_bytes())
    assert {unit["symbol"] for unit in whole["units"]} == {*KERNELS, "pkg_doubled", "use"}
    assert all(unit["seconds"] > 0 for unit in whole["units"]), "the shards' seconds"
    assert {image["target"] for image in whole["images"]} == {"sm_80", "sm_90", "compute_80"}
    assert (tmp_path / "out" / "pkg" / "kernels.aotcuda" / "kernels.fatbin").is_file()
    projects.aotcuda(project, "build", "--shard", "2/3", "--costs", str(report), AOTCUDA_BUILD_CACHE=cache)
    for option, status, message in (
        (("--shard", "3/2"), 2, "'3/2' is no shard; write I/2 with I from 1 to 2"),
        (("--shard", "2/3", "--costs", "pyproject.toml"), 1, "pyproject.toml: it is no report of a build"),
    ):
        done = projects.forked_run(project, sys.executable, "-m", "aotcuda", "build", *option)
        assert (done.status, message in done.err) == (status, True), done.err


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["mixed", "tritonkernels", "cudacpp", "features"])
def test_merged_shards_of_each_front_end(name: str, tmp_path: Path) -> None:
    root = projects.copy(name, tmp_path.resolve() / "project")
    for index in (1, 2, 3):
        build(root, tmp_path / "cache", shard=(index, 3))
    assert outcome(build(root, tmp_path / "cache", only=True)) == outcome(build(root, "0"))
