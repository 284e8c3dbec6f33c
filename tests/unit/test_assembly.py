"""Test the output of a shard, and the inputs from which the JIT fallback builds a packaged module again."""

from __future__ import annotations

import dataclasses
import tomllib
from types import SimpleNamespace

import pytest

from aotcuda.builder.cache.stamps import Project
from aotcuda.builder.compile.job import BuiltModule, Result
from aotcuda.builder.compile.telemetry import Step
from aotcuda.builder.config import parser
from aotcuda.builder.emit import assembly
from aotcuda.builder.plan import plan


def test_the_summary_of_a_shard_counts_the_units_and_steps_of_all_workers():
    steps = [Step("one", 1.0), Step("two", 2.0)]
    first = Result(part=(2, 5), reused=3, made=1, warnings=("w", "again"), problems=("p",), steps=(steps[0],))
    second = Result(part=(1, 3), reused=0, made=4, warnings=("again",), problems=("p", "q"), steps=(steps[1],))
    output = assembly.shard_output((1, 4), [first, second], seconds=1.26)
    assert output.notes == (
        "shard 1 of 4: 3 of 8 kernels and device functions are in the build cache; 5 steps in 1.3 s, 3 from the cache",
    )
    assert output.warnings == ("w", "again", "p", "q")
    summary = dataclasses.asdict(output.summary)
    counts = {"modules": 0, "kernels": 3, "functions": 0, "targets": 0, "size": 0, "reused": 3, "made": 5}
    assert {name: summary[name] for name in counts} == counts
    assert (output.files, output.package_root, output.summary.steps) == ({}, "", tuple(steps))


TABLE = """
arch = ["sm_90", "sm_80", "sm_90"]
watch = ["data/*.txt", "../other/*", "src/pkg/*.json", "/opt/*.h"]
[modules."pkg.k"]
source = "pkg._k"
kernels.one = "void(int32)"
link = ["csrc/a.cu", "../shared/b.cu", { path = "../more/c.cu", callbacks = [] }, { module = "pkg.m" }]
[modules."pkg.m"]
source = "pkg._m"
kernels.two = "void(int32)"
functions.three = "int32(int32)"
"""
LINK = ["csrc/a.cu", "outside/1/b.cu", {"path": "outside/0/c.cu", "callbacks": []}, {"module": "pkg.m"}]


@pytest.fixture
def rebuild(tmp_path):
    """Return a function that returns the inputs of `pkg.k`, whose package is in `src`."""
    root = (tmp_path / "app").resolve()
    file = root / "csrc" / "a.cu"
    file.parent.mkdir(parents=True)
    file.write_text("code")
    project = Project(root=root, package_root=root / "src", names=("pkg.k", "pkg.m"), tops=frozenset({"pkg"}))
    table = tomllib.loads(TABLE)
    plain = {**table, "modules": {name: {**each, "link": []} for name, each in table["modules"].items()}}
    plans = plan.make(parser.parse(plain, environ={}))
    built = BuiltModule(plan=plans[0], images=(), kernels=(), carried=(("csrc/a.cu", str(file)),))
    return lambda *, editable: assembly._rebuild(table, plans, built, project, editable=editable)


def test_a_wheel_names_the_copies_that_it_holds(rebuild):
    made = rebuild(editable=False)
    assert made["root"] == "pkg/k.aotcuda/sources"
    assert made["table"]["arch"] == ["sm_80", "sm_90"]
    assert made["table"]["watch"] == ["pkg/*.json", "/opt/*.h"]
    assert [*made["table"]["modules"]] == ["pkg.k"]
    assert made["table"]["modules"]["pkg.k"]["link"] == LINK
    assert made["names"] == {"pkg.k": ["one"], "pkg.m": ["two", "three"]}
    assert [(each["path"], each["bytes"]) for each in made["files"]] == [("csrc/a.cu", 4)]


def test_an_editable_install_names_the_files_of_the_project(rebuild):
    made, table = rebuild(editable=True), tomllib.loads(TABLE)
    assert made["root"] == ".."
    assert made["table"] == {**table, "arch": ["sm_80", "sm_90"], "modules": {"pkg.k": table["modules"]["pkg.k"]}}


@pytest.mark.parametrize(
    ("frontend", "in_place", "has_jit"),
    [("triton", True, True), ("triton", False, False), ("numba-cuda", True, False), ("no-such", True, False)],
)
def test_the_jit_of_a_compiler_that_takes_all_types_serves_its_modules_in_place(frontend, in_place, has_jit):
    assert assembly._has_compiler_jit(SimpleNamespace(frontend=frontend, in_place=in_place)) is has_jit


def test_modules_have_a_part_for_each_toolkit():
    parts = [(SimpleNamespace(plan=SimpleNamespace(config=SimpleNamespace(name=name)))) for name in ("a", "b", "a")]
    first, second = Result(modules=tuple(parts[:2])), Result(modules=(parts[2],))
    found = assembly.parts_by_module([first, second])
    assert found == {"a": [(first, parts[0]), (second, parts[2])], "b": [(first, parts[1])]}
