"""Stages have one front end each and follow the stages that they link."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from aotcuda.builder import plan, stages
from aotcuda.builder.config import parser
from aotcuda.builder.worker.job import Job, Result
from aotcuda.common.stamp import Stamp
from aotcuda.errors import AotcudaError, BuildError, CompileError

OLD, NEW = "numba-cuda", "numba-cuda-mlir"


def project(frontend: str = OLD, **modules: tuple[str, list[str]]) -> tuple[plan.ModulePlan, ...]:
    """The plans of modules with one function each, from their front end ("" for the project's) and what they link."""
    lines = ['arch = ["sm_80"]', f'frontend = "{frontend}"']
    for name, (own, links) in modules.items():
        lines += [f"[modules.{name}]", f'source = "pkg._{name}"', f'functions.of_{name} = "int32(int32)"']
        lines += [f'frontend = "{own}"'] if own else []
        items = ", ".join(f'{{ module = "{link}" }}' for link in links)
        lines += [f"link = [{items}]"]
    return plan.make(parser.parse(tomllib.loads("\n".join(lines)), environ={}))


def split(*args: str, **modules: tuple[str, list[str]]) -> list[tuple[str, str]]:
    """Front end and modules of each stage."""
    return [
        (stage[0].frontend, " ".join(item.config.name for item in stage))
        for stage in stages.split(project(*args, **modules))
    ]


@pytest.mark.parametrize(
    ("project_front_end", "modules", "expected"),
    [
        (OLD, {"a": ("", []), "b": (OLD, []), "c": ("", [])}, [(OLD, "a b c")]),
        (NEW, {"a": ("", []), "b": (OLD, []), "c": ("", [])}, [(NEW, "a c"), (OLD, "b")]),
        (OLD, {"a": ("", ["b"]), "b": ("", ["c"]), "c": ("", [])}, [(OLD, "c"), (OLD, "b"), (OLD, "a")]),
        (OLD, {"a": ("", ["b"]), "b": (NEW, ["c"]), "c": ("", [])}, [(OLD, "c"), (NEW, "b"), (OLD, "a")]),
        (OLD, {"a": ("", []), "b": (NEW, []), "c": ("", ["b"])}, [(NEW, "b"), (OLD, "a c")]),
    ],
)
def test_linked_modules_come_in_earlier_stages(
    project_front_end: str, modules: dict[str, tuple[str, list[str]]], expected: list[tuple[str, str]]
) -> None:
    assert split(project_front_end, **modules) == expected


class Workers:
    """Stand-in for worker processes, which builds everything but `failing`."""

    def __init__(self, *failing: str) -> None:
        self.failing = failing
        self.jobs: list[Job] = []

    def __call__(self, job: Job, watcher: object) -> Result:
        self.jobs.append(job)
        names = [item.config.name for item in job.plans]
        if failed := [name for name in names if name in self.failing]:
            message = f"{failed[0]} does not compile"
            raise CompileError(message)
        return Result(
            toolchain={"compiler": job.frontend},
            modules=(),
            sources=tuple({"path": f"/{name}.py", "sha256": name} for name in names),
            warnings=(),
            seen=Stamp({("file", name): name for name in names}) if job.product == "jit" else None,
            linkable={name: f"functions of {name}" for name in names if name in job.wanted},  # type: ignore[misc]
        )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    def run(workers: Workers, *, product: str = "wheel", **modules: tuple[str, list[str]]) -> list[Result]:
        monkeypatch.setattr(stages.process, "run", workers)
        plans = project(**modules)
        return stages.run(
            Job(root="/", import_roots=(), arch_key="", plans=plans, names=plan.names(plans), jobs=1, product=product)
        )

    return run


CHAIN = {"a": ("", ["b"]), "b": (NEW, ["c"]), "c": ("", []), "d": (NEW, [])}


def test_stage_receives_only_the_functions_that_it_links(run) -> None:
    workers = Workers()
    run(workers, **CHAIN)
    assert [job.frontend for job in workers.jobs] == [OLD, NEW, OLD]
    assert [dict(job.linkable) for job in workers.jobs] == [{}, {"c": "functions of c"}, {"b": "functions of b"}]
    assert {job.wanted for job in workers.jobs} == {("b", "c")}


def test_sources_of_linked_modules_belong_to_a_result(run) -> None:
    results = run(Workers(), product="jit", **CHAIN)
    assert [{source["sha256"] for source in result.sources} for result in results] == [{"c"}, {*"cbd"}, {*"cbda"}]
    assert [{path for _, path in result.seen.reads} for result in results] == [{"c"}, {*"cbd"}, {*"cbda"}]
    assert [result.toolchain["compiler"] for result in results] == [OLD, NEW, OLD]


def test_modules_that_link_a_failed_module_are_not_built(run) -> None:
    workers = Workers("c")
    with pytest.raises(AotcudaError, match=r"^c does not compile$"):
        run(workers, **CHAIN)
    assert [[item.config.name for item in job.plans] for job in workers.jobs] == [["c"], ["d"]]


def test_errors_of_both_front_ends_are_raised_together(run) -> None:
    with pytest.raises(CompileError) as caught:
        run(Workers("a", "b"), a=("", []), b=(NEW, []))
    assert str(caught.value).splitlines() == ["a does not compile", "b does not compile"]


def test_every_stage_gets_linkable_and_wanted_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a late build that compiled another package's functions, or that is asked for them."""
    workers = Workers()
    monkeypatch.setattr(stages.process, "run", workers)
    plans = project(**CHAIN)
    given = {"otherpkg.kernels": "functions of another package"}
    job = Job(root="/", import_roots=(), arch_key="", plans=plans, names={}, jobs=1, linkable=given, wanted=("a",))  # type: ignore[arg-type]
    stages.run(job)
    assert all(given.items() <= dict(item.linkable).items() for item in workers.jobs)
    assert all("a" in item.wanted for item in workers.jobs)


@pytest.mark.parametrize("key", ["root", "import_roots"])
def test_folder_whose_name_is_not_utf8_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.process, "run", Workers())
    plans = project(a=("", []))
    job = Job(root="/", import_roots=(), arch_key="", plans=plans, names={}, jobs=1)
    path = "/na\udcefve/ü"
    given = replace(job, root=path) if key == "root" else replace(job, import_roots=("/", path))
    with pytest.raises(BuildError, match=r"^/na\\xefve/ü has a name that is not UTF-8, .*; rename the folder$"):
        stages.run(given)
    assert stages.run(replace(job, root="/ü/\\xef"))
