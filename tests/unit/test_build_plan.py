"""Plan units, and divide plans into stages by front end and into shards."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotcuda.builder.compile import kernel_groups
from aotcuda.builder.compile.job import Job, Product, Result, Shared, Sources
from aotcuda.builder.config import parser
from aotcuda.builder.plan import plan, stages
from aotcuda.builder.shards import shards
from aotcuda.common.stamp import Stamp
from aotcuda.errors import AotcudaError, BuildError, CompileError, ConfigError

M = 'tool.aotcuda.modules."pkg.k"'


def make(text: str, arch: str = '["sm_80"]', **environ: str) -> tuple[plan.ModulePlan, ...]:
    table = tomllib.loads(f'arch = {arch}\n[modules."pkg.k"]\nsource = "pkg._k"\n{text}')
    return plan.make(parser.parse(table, environ=environ))


KERNELS = """
kernels.one = "void(int32)"
kernels.two = ["void(int32)", "void(int64)"]
kernels.three = { python = "other", signature = "void(int32)" }
functions.four = "int32(int32)"
functions.five = { python = "other", signature = "int32(int32)" }
"""


def test_symbols_are_numbered_for_several_signatures() -> None:
    (module_plan,) = make(KERNELS)
    assert [unit.symbol for unit in module_plan.kernels] == ["one", "two__0", "two__1", "three"]
    assert [unit.symbol for unit in module_plan.functions] == ["four", "five"]
    assert [unit.name for unit in module_plan.units] == ["one", "two", "two", "three", "four", "five"]
    assert [unit.python for unit in module_plan.units] == ["one", "two", "two", "other", "four", "other"]


def test_units_have_the_keys_of_the_table() -> None:
    (module_plan,) = make(KERNELS)
    assert [unit.signature_key for unit in module_plan.units] == [
        f"{M}.kernels.one",
        f"{M}.kernels.two[0]",
        f"{M}.kernels.two[1]",
        f"{M}.kernels.three.signature",
        f"{M}.functions.four",
        f"{M}.functions.five.signature",
    ]
    (list_plan,) = make('kernels.two = { signatures = ["void(int32)", "void(int64)"] }')
    assert [unit.signature_key for unit in list_plan.units] == [
        f"{M}.kernels.two.signatures[0]",
        f"{M}.kernels.two.signatures[1]",
    ]


def test_symbol_of_two_units_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        make('kernels.two = ["void(int32)", "void(int64)"]\nfunctions.two__1 = "int32(int32)"')
    assert str(caught.value) == (
        f"{M}.functions.two__1: its symbol two__1 is also that of {M}.kernels.two; rename one of the two"
    )


def test_code_is_compiled_once_for_each_capability() -> None:
    (module_plan,) = make(KERNELS, '["compute_90", "sm_90", "sm_90a", "compute_75", "sm_100f"]')
    assert list(map(str, module_plan.targets)) == ["sm_90", "sm_90a", "sm_100f", "compute_75", "compute_90"]
    assert list(map(str, module_plan.ltoir_targets)) == ["sm_75", "sm_90", "sm_90a", "sm_100f"]


def test_front_end_of_a_module_overrides_the_projects() -> None:
    table = tomllib.loads(
        f'arch = ["sm_80"]\nfrontend = "numba-cuda-mlir"\n[modules."pkg.k"]\nsource = "pkg._k"\n{KERNELS}'
    )
    (module_plan,) = plan.make(parser.parse(table, environ={}))
    assert (module_plan.frontend, module_plan.frontend_key) == ("numba-cuda-mlir", "tool.aotcuda.frontend")
    table["modules"]["pkg.k"]["frontend"] = "numba-cuda"
    (module_plan,) = plan.make(parser.parse(table, environ={}))
    assert (module_plan.frontend, module_plan.frontend_key) == ("numba-cuda", f"{M}.frontend")


def test_debug_build_of_kernels_refuses_ptx() -> None:
    with pytest.raises(ConfigError, match=r"^tool\.aotcuda\.arch: compute_80 is PTX, and .* debug = true"):
        make("options.debug = true\n" + KERNELS, '["sm_80", "compute_80"]')
    with pytest.raises(ConfigError, match=r"^AOTCUDA_ARCH: compute_90 is PTX"):
        make("options.debug = true\n" + KERNELS, AOTCUDA_ARCH="compute_90")
    make("options.debug = true\n" + KERNELS)
    make('options.debug = true\nfunctions.f = "int32(int32)"', '["compute_80"]')  # functions stay LTOIR


def test_module_that_is_its_own_source_is_in_place() -> None:
    table = tomllib.loads("""
arch = ["sm_80"]
[modules."pkg.k"]
source = "pkg.k"
kernels.one = "void(int32)"
[modules."pkg.other"]
source = "pkg.k"
kernels.one = "void(int32)"
[modules."pkg.mlir"]
frontend = "numba-cuda-mlir"
source = "pkg.mlir"
kernels.one = "void(int32)"
""")
    plans = plan.make(parser.parse(table, environ={}))
    assert [item.in_place for item in plans] == [True, False, True]
    assert plan.exported_names(plans) == {"pkg.other": ("one",)}


OLD, NEW = "numba-cuda", "numba-cuda-mlir"


def project(frontend: str = OLD, **modules: tuple[str, list[str]]) -> tuple[plan.ModulePlan, ...]:
    """Return plans of modules with one function each, by their front end ("" for the project's) and linked modules."""
    lines = ['arch = ["sm_80"]', f'frontend = "{frontend}"']
    for name, (front_end, links) in modules.items():
        lines += [f"[modules.{name}]", f'source = "pkg._{name}"', f'functions.of_{name} = "int32(int32)"']
        lines += [f'frontend = "{front_end}"'] if front_end else []
        items = ", ".join(f'{{ module = "{link}" }}' for link in links)
        lines += [f"link = [{items}]"]
    return plan.make(parser.parse(tomllib.loads("\n".join(lines)), environ={}))


def split(*args: str, **modules: tuple[str, list[str]]) -> list[tuple[str, str]]:
    """Return front end and modules of each stage."""
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
    """Stand in for worker processes, and fail for the modules `failing`."""

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
            seen=Stamp({("file", name): name for name in names}) if job.product.kind == "jit" else None,
            linkable={name: f"functions of {name}" for name in names if name in job.others.wanted},  # type: ignore[misc]
        )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    def run(workers: Workers, *, product: str = "wheel", **modules: tuple[str, list[str]]) -> list[Result]:
        monkeypatch.setattr(stages.process, "run", workers)
        plans = project(**modules)
        return stages.run(
            Job(
                root="/",
                arch_key="",
                plans=plans,
                names=plan.exported_names(plans),
                jobs=1,
                sources=Sources(),
                product=Product(kind=product),
            )
        )

    return run


CHAIN = {"a": ("", ["b"]), "b": (NEW, ["c"]), "c": ("", []), "d": (NEW, [])}


def test_stage_receives_only_the_functions_that_it_links(run) -> None:
    workers = Workers()
    run(workers, **CHAIN)
    assert [job.frontend for job in workers.jobs] == [OLD, NEW, OLD]
    assert [dict(job.others.linkable) for job in workers.jobs] == [{}, {"c": "functions of c"}, {"b": "functions of b"}]
    assert {job.others.wanted for job in workers.jobs} == {("b", "c")}


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


@pytest.mark.parametrize("key", ["root", "import_roots"])
def test_folder_whose_name_is_not_utf8_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.process, "run", Workers())
    plans = project(a=("", []))
    job = Job(root="/", arch_key="", plans=plans, names={}, jobs=1, sources=Sources(), product=Product())
    path = "/na\udcefve/ü"
    changed_job = replace(job, root=path) if key == "root" else replace(job, sources=Sources(import_roots=("/", path)))
    with pytest.raises(BuildError, match=r"^/na\\xefve/ü has a name that is not UTF-8, .*; rename the folder$"):
        stages.run(changed_job)
    assert stages.run(replace(job, root="/ü/\\xef"))


def job(kernels: dict[str, int], costs: dict[str, float] | None = None) -> Job:
    """Return the job of modules with these numbers of kernels."""
    table = {
        "arch": ["sm_80", "sm_90"],
        "modules": {
            f"pkg.{name}": {
                "source": f"pkg._{name}",
                "kernels": {f"{name}{number}": "void(float32[::1])" for number in range(count)},
            }
            for name, count in kernels.items()
        },
    }
    plans = plan.make(parser.parse(table, environ={}))
    shared = Shared(costs=costs or {})
    return Job(
        root="/", arch_key="", plans=plans, names={}, jobs=1, sources=Sources(), product=Product(), shared=shared
    )


def test_a_job_is_shared_by_a_shard_and_by_a_build_from_the_cache() -> None:
    alone = replace(job({"a": 1}), shared=None)
    assert alone.product == Product(kind="wheel", carry=False, known_faults="warn", incomplete="warn")
    jobs = (alone, replace(alone, shared=Shared(shard=(1, 2))), replace(alone, shared=Shared()))
    assert [(each.shard, each.from_cache_only) for each in jobs] == [(None, False), ((1, 2), False), (None, True)]
    result = Result(toolchain={}, modules=(), sources=(), warnings=())
    assert (result.reused, result.made, result.part) == (0, 0, (0, 0))


def shard_parts(build: Job, count: int, *, in_groups: bool = True) -> list[set[str]]:
    functions = {unit: SimpleNamespace(python=shard_parts) for item in build.plans for unit in item.units}
    parts = [
        shards.choose_units(build.plans, functions, replace(build.shared, shard=(index, count)), in_groups=in_groups)
        for index in range(1, count + 1)
    ]
    return [{unit.symbol for unit in part} for part in parts]


@pytest.mark.parametrize(("count", "in_groups"), [(1, True), (7, True), (64, True), (7, False)])
def test_each_unit_is_in_one_shard_and_groups_stay_together(count: int, in_groups: bool) -> None:
    build = job({"a": 40, "b": 3})
    parts = shard_parts(build, count, in_groups=in_groups)
    symbols = [unit.symbol for item in build.plans for unit in item.units]
    assert sorted(symbol for part in parts for symbol in part) == sorted(symbols)
    for group in kernel_groups.divide([f"a{number}" for number in range(40)]) if in_groups else ():
        assert sum(not part.isdisjoint(group) for part in parts) == 1


def test_small_modules_stay_whole() -> None:
    parts = shard_parts(job({f"m{number}x": 5 for number in range(20)}), 2)
    for number in range(20):
        assert sum(any(symbol.startswith(f"m{number}x") for symbol in part) for part in parts) == 1


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.integers(1, 4))
@settings(max_examples=60)
def test_loads_of_shards_differ_by_one_part_at_most(seconds: list[int], count: int) -> None:
    costs = {f"pkg.m{number}.m{number}{index}": float(cost) for number, cost in enumerate(seconds) for index in (0,)}
    parts = shard_parts(job({f"m{number}": 1 for number in range(len(seconds))}, costs), count)
    loads = [sum(costs[f"pkg.{symbol[:-1]}.{symbol}"] for symbol in part) for part in parts]
    assert sum(loads) == sum(seconds)
    assert max(loads) - min(loads) <= max(seconds)


def test_longest_parts_are_divided_first() -> None:
    costs = {f"pkg.m{number}.m{number}0": float(cost) for number, cost in enumerate((2, 2, 2, 3, 3))}
    parts = shard_parts(job({f"m{number}": 1 for number in range(5)}, costs), 2)
    assert [sorted(part) for part in parts] == [["m00", "m20", "m30"], ["m10", "m40"]]


def test_shard_with_a_long_part_gets_no_short_ones() -> None:
    costs = {f"pkg.m{number}.m{number}0": float(cost) for number, cost in enumerate((6, 1, 1, 1, 1))}
    parts = shard_parts(job({f"m{number}": 1 for number in range(5)}, costs), 2)
    assert parts[0] == {"m00"}


def test_module_with_a_quarter_of_a_shards_work_is_divided() -> None:
    costs = {f"pkg.{name}.{name}{number}": 1.0 for name, count in (("a", 4), ("b", 2)) for number in range(count)}
    build = job({"a": 4, "b": 2, "c": 58}, costs | {f"pkg.c.c{number}": 1.0 for number in range(58)})
    parts = shard_parts(build, 8, in_groups=False)  # 64 s, so that 2 s are a quarter of a shard's 8 s
    assert sum(any(symbol.startswith("a") for symbol in part) for part in parts) > 1
    assert sum(any(symbol.startswith("b") for symbol in part) for part in parts) == 1


def test_recorded_seconds_balance_shards() -> None:
    costs = {f"pkg.a.a{number}": 100.0 if number == 39 else 1.0 for number in range(40)}
    parts = shard_parts(job({"a": 40}, costs), 2)
    (slow,) = (part for part in parts if "a39" in part)
    assert len(slow) <= kernel_groups.MOST
