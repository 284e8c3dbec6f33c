"""Test that shards fill a build cache, and that a build from this cache gives the files of a build without shards."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.entry import api
from aotcuda.errors import AotcudaError
from integration import projects

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aotcuda.builder.emit.built import Output
    from aotcuda.builder.emit.progress import Progress

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
halved = cuda.declare_device("halved", "float32(float32)", abi="c", link="pkg/halved.cu")


@cuda.jit
def use(x):
    x[cuda.grid(1)] = halved(pkg_doubled(x[0]))
"""
LINKED = 'extern "C" __device__ float halved(float x) { return 0.5f * x; }\n'
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


def build(
    root: Path,
    cache: Path | str,
    *,
    shard: tuple[int, int] | None = None,
    from_cache_only: bool = False,
    watcher: Progress | None = None,
) -> Output:
    """Build a project in this process."""
    table = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["aotcuda"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTCUDA_BUILD_CACHE", str(cache))
        return api.build(table, root, shard=shard, from_cache_only=from_cache_only, watcher=watcher)


def results(built: Output) -> tuple[object, ...]:
    """Return the parts of a build's output that do not depend on the build cache."""
    return built.files, built.notes, dict(built.needed), built.package_root, built.sbom


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards").resolve() / "project"
    files = {"__init__.py": "", "_kernels.py": SOURCE, "_user.py": USER, "halved.cu": LINKED, "factor.txt": "3"}
    return projects.put(root, {"pyproject.toml": TABLE, **{f"pkg/{name}": text for name, text in files.items()}})


@pytest.fixture(scope="module")
def filled_cache(project: Path) -> Path:
    """Return a build cache with the results of both shards."""
    cache = project.parent / "cache"
    for index in (1, 2):
        steps = projects.Steps()
        build(project, cache, shard=(index, 2), watcher=steps)
        steps.check()
    return cache


def test_merged_shards_have_the_files_of_one_build(project: Path, filled_cache: Path, tmp_path: Path) -> None:
    steps = projects.Steps()
    expected = build(project, "0", watcher=steps)
    assert {title for title, done, total in steps.shown if total and not done} == {"compiling"}
    steps.check(ends=True)
    copy = shutil.copytree(project, tmp_path.resolve() / "elsewhere")
    steps = projects.Steps()
    merged = build(copy, shutil.copytree(filled_cache, tmp_path / "cache"), from_cache_only=True, watcher=steps)
    steps.check()
    assert results(merged) == results(expected)
    assert not [step.title for step in merged.summary.steps if step.work and not step.cached]


def edit(path: str, before: str, after: str) -> Callable[[Path, Path], None]:
    """Return a function that replaces a text in a file of the project."""

    def apply(root: Path, _: Path) -> None:
        text = (root / path).read_text()
        assert before in text
        (root / path).write_text(text.replace(before, after))

    return apply


def remove(*titles: str) -> Callable[[Path, Path], None]:
    """Return a function that removes the cache entries whose title contains one of these words."""

    def apply(_: Path, cache: Path) -> None:
        for path in cache.glob("v1/*/*.aotcuda/entry.json"):
            if any(title in json.loads(path.read_bytes())["record"]["about"] for title in titles):
                shutil.rmtree(path.parent)

    return apply


def damage(_: Path, cache: Path) -> None:
    for path in cache.glob("v1/*/*.aotcuda/value"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")


FAULTS = {
    "empty cache": (
        lambda _, cache: shutil.rmtree(cache),
        r"lacks 6 of 6 .*pkg\.kernels\.k0.* and no shard of this project; run aotcuda build --shard I/N",
    ),
    "missing entry": (remove("pkg.kernels.k3 void"), r"lacks 1 of 6 .*; build the shards again with this cache"),
    "missing machine code": (
        remove("machine code for sm_80"),
        r"lacks the machine code of pkg\.kernels\.k.*AOTCUDA_CACHE_SIZE",
    ),
    "damaged entries": (damage, "lacks 6 of 6"),
    "edited file of a source": (edit("pkg/factor.txt", "3", "4"), r"another state \(pkg/factor\.txt\)"),
    "edited file that Python links": (
        edit("pkg/halved.cu", "0.5", "0.25"),
        r"lacks 1 of 1 .*\(pkg\.user\.use\): .*/halved\.cu was edited after they were compiled; build all shards",
    ),
    "edited table": (edit("pyproject.toml", "sm_80", "sm_86"), r"another state \(\[tool\.aotcuda\]\)"),
    "changed variable": (lambda *_: os.environ.update(PKG_FACTOR="5"), r"another state \(\$PKG_FACTOR\)"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_unusable_results_of_shards_give_one_line(
    name: str, project: Path, filled_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_project, message = FAULTS[name]
    root = shutil.copytree(project, tmp_path.resolve() / "project")
    cache = shutil.copytree(filled_cache, tmp_path / "cache")
    monkeypatch.setenv("PKG_FACTOR", "")
    monkeypatch.delenv("PKG_FACTOR")  # the fixture removes it after the test
    break_project(root, cache)
    with pytest.raises(AotcudaError, match=message) as error:
        build(root, cache, from_cache_only=True)
    assert "\n" not in str(error.value)


def test_shard_without_usable_cache_is_refused(project: Path, tmp_path: Path) -> None:
    with pytest.raises(AotcudaError, match="needs the build cache, and there is none; set AOTCUDA_BUILD_CACHE"):
        build(project, "0", shard=(1, 2))
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    with pytest.raises(AotcudaError, match=r"cannot store its results: .*cache"):
        build(project, cache, shard=(1, 2))


def test_command_line_builds_shards_with_a_report(project: Path, filled_cache: Path, tmp_path: Path) -> None:
    cache = str(shutil.copytree(filled_cache, tmp_path / "cache"))
    report = tmp_path / "report.json"
    done = projects.aotcuda(project, "build", "--shard", "2/2", "--report", report, AOTCUDA_BUILD_CACHE=cache)
    assert "shard 2 of 2: " in done.err
    units = {unit["symbol"]: unit for unit in json.loads(report.read_bytes())["units"]}
    assert units.keys() < {*KERNELS, "pkg_doubled", "use"}
    assert all(target["cached"] for unit in units.values() for target in unit["targets"].values())
    only = {"AOTCUDA_FROM_CACHE_ONLY": "1", "AOTCUDA_BUILD_CACHE": cache}
    projects.aotcuda(project, "build", "--out", str(tmp_path / "out"), "--report", report, **only)
    merged = json.loads(report.read_bytes())
    assert {unit["symbol"] for unit in merged["units"]} == {*KERNELS, "pkg_doubled", "use"}
    assert all(unit["seconds"] > 0 for unit in merged["units"]), "the shards report their seconds"
    assert {image["target"] for image in merged["images"]} == {"sm_80", "sm_90", "compute_80"}
    assert (tmp_path / "out" / "pkg" / "kernels.aotcuda" / "kernels.fatbin").is_file()
    projects.aotcuda(project, "build", "--shard", "2/3", "--costs", str(report), AOTCUDA_BUILD_CACHE=cache)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--shard", "3/2"], 2, "'3/2' is no shard; write I/2 with I from 1 to 2"),
        (["--shard", "٣/٤"], 2, "'٣/٤' is no shard; write I/N with I from 1 to N"),
        (["--shard", "2/3", "--costs", "pyproject.toml"], 1, "pyproject.toml: it is no report of a build"),
    ],
)
def test_invalid_shard_option_is_refused(project: Path, options: list[str], status: int, message: str) -> None:
    done = projects.forked_run(project, sys.executable, "-m", "aotcuda", "build", *options)
    assert done.status == status
    assert message in done.err


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["mixed", "tritonkernels", "cudacpp", "features"])
def test_merged_shards_of_each_front_end(name: str, tmp_path: Path) -> None:
    root = projects.copy(name, tmp_path.resolve() / "project")
    for index in (1, 2, 3):
        build(root, tmp_path / "cache", shard=(index, 3))
    merged = build(root, tmp_path / "cache", from_cache_only=True)
    assert results(merged) == results(build(root, "0"))
