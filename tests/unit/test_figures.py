"""Check that the figures on the pages are those of the files in docs/results."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def result(name):
    return json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text())


def ends(values):
    """Return the least and the largest."""
    values = [*values]
    return min(values), max(values)


def of_the_package():
    """Yield the quoted figures of the package: page, text and figures."""
    package = result("xarray_spatial")
    first, later = package["first_call_ms"], package["launch_us"]
    seconds = (first["packaged"] / 1000, first["jit"] / 1000)
    packages = result("triton_packages")["fla-core"]
    yield "README.md", "{:.2f} s in place of {:.0f} s", packages["packaged"]["first"], packages["jit"]["first"]
    fast = result("two_paths_h100")["fast path in C"]
    cases = (fast[f"{of}, default: aotcuda, k[grid, block] kept"]["after"] for of in ("cupy", "torch", "numba"))
    yield (
        "docs/features.md",
        "[{:.1f} to {:.1f} µs over C](results/README.md)",
        *ends(value for case in cases for value in case),
    )
    general = result("general_path_h100")["figures"]
    without = (general[f"{of}, default"]["aotcuda, k[grid, block] kept"]["over_c"] for of in ("cupy", "torch", "numba"))
    yield "docs/features.md", "{:.1f} to {:.1f} without it", *ends(without)
    told = "took {:.2f} s where the JIT took {:.2f} s, on an H200; a launch {:.1f} µs where the JIT's took {:.1f}"
    yield "docs/why.md", told, *seconds, later["packaged"], later["jit"]
    process = package["process_s"]
    told = "{:.2f} s packaged, {:.2f} s by the JIT; the whole process {:.1f} s and {:.1f} s"
    yield "docs/moving.md", told, *seconds, process["packaged"], process["jit"]
    yield "docs/moving.md", "{:.1f} µs packaged, {:.1f} µs by the JIT", later["packaged"], later["jit"]


def of_front_ends():
    """Yield the quoted figures of Triton, cuTile and CUDA C++."""
    for name in ("triton_launch", "triton_launch_newest"):
        triton = result(name)
        cases = [case for case in triton["over_c_microseconds"].values() if "Triton" in case]
        launches = (*ends(case["aotcuda"] for case in cases), *ends(case["Triton"] for case in cases))
        came = triton["first_result_seconds"]
        told = "{:.1f} to {:.1f} µs | {:.1f} to {:.1f} µs | {:.2f} s | {:.2f} s |"
        yield "docs/triton.md", told, *launches, came["aotcuda"], came["Triton, warm cache"]
    for row in result("triton_releases")["releases"]:
        yield (
            "docs/triton.md",
            "{} of {} machine codes are those of Triton {}",
            row["equal"],
            row["compared"],
            row["triton"],
        )
    exact = {name: case["aotcuda"] for name, case in result("triton_launch")["over_c_microseconds"].items()}
    one, many, function = (
        ends(
            over for name, over in exact.items() if name.startswith(begin) and name.endswith("function") is by_function
        )
        for begin, by_function in (("exact, 1,", False), ("exact, 1000,", False), ("exact", True))
    )
    told = "takes {:.1f} to {:.1f} µs more than C's, among 1,000 variants {:.1f} to {:.1f}, and with a grid function"
    yield "docs/triton.md", told, *one, *many
    yield "docs/triton.md", "{:.1f} to {:.1f} (the same host", *function

    cutile = result("cutile_launch")
    host, gpu = cutile["host_microseconds"], cutile["gpu_microseconds"]
    told = "took {:.1f} µs there (the driver alone, called by ctypes, {:.1f} to {:.1f})"
    yield (
        "docs/cutile.md",
        told,
        host["aotcuda"],
        *ends(host[f"by ctypes, {way}"] for way in ("one buffer", "pointers")),
    )
    times = (gpu[name]["aotcuda"] / gpu[name]["PyTorch"] for name in ("matmul", "softmax"))
    yield "docs/cutile.md", "matrix multiplication {:.1f} times as long, a softmax {:.0f} times", *times

    launches = result("cuda_cpp")["launch_microseconds"]
    told = "took {:.1f} µs of host time and `RawKernel`'s, which checks nothing, {:.1f}"
    yield "docs/cuda-cpp.md", told, launches["aotcuda"], launches["RawKernel"]


def of_libraries():
    """Yield the quoted figures of PyTorch and JAX."""
    operator = {name: figure["median"] for name, figure in result("torch_op")["figures"].items()}
    told = "an empty operator of the same schema {:.1f} µs, this one {:.1f}, of which the launch itself is {:.1f}"
    compiled = (operator["empty operator, compiled"], operator["operator, compiled"])
    yield "docs/pytorch.md", told, *compiled, operator["launcher, no operator"]
    told = "an empty operator of that kind took {:.1f} µs there, in place of {:.1f}"
    yield "docs/pytorch.md", told, operator["empty operator in C, compiled"], compiled[0]

    small, large = (result("jax_call")["figures"][size] for size in ("1000", "16777216"))
    told = (
        "a step took {:.1f} µs, as the kernel's own launches do; recorded ones (`command_buffer=True`) took {:.1f}, "
        "and kernels that XLA made itself, which it records, {:.1f}"
    )
    steps = ("packaged", "packaged, recorded", "plain JAX")
    yield "docs/jax.md", told, *(small[step]["median"] for step in steps)
    told = "it was {:.0f} µs, the kernel's own launches {:.0f}, and XLA's kernels {:.0f}"
    steps = ("packaged", "own launches", "plain JAX")
    yield "docs/jax.md", told, *(large[step]["median"] for step in steps)


def of_many_machines():
    """Yield the quoted figures of shards and of the model."""
    one, two = (run for run in result("shards")["shards"] if run["kernels"] == 500)
    yield "docs/many-machines.md", "| one build | {:.1f} s | {:.1f} s |", one["one"]["cpu_s"], two["one"]["cpu_s"]
    merges = (one["merge"]["cpu_s"], two["merge"]["cpu_s"])
    yield "docs/many-machines.md", "| build from the cache | {:.1f} s | {:.1f} s |", *merges
    yield "docs/many-machines.md", "of one build | {:.2f} | {:.2f} |", one["ratio"], two["ratio"]
    keys = ("jobs", "compile_s", "of it starting_s", "transfer_s", "merge_s", "whole_s", "times")
    for workers, row in result("shards_model")["10000 kernels"].items():
        told = f"| {workers} | {{}} | {{}} s | {{}} s | {{}} s | {{}} s | {{}} s | {{}} |"
        yield "docs/many-machines.md", told, *(row[key] for key in keys)
    for name in ("import, loaded at first use", "import, loaded at once", "import and a launch"):
        now, before = (result("start_up")[state][name] for state in ("now", "before"))
        cells = " | ".join("{} ({})" for _ in range(4))
        keys_of_files = ("files opened", "folders listed", "look-ups", "files opened elsewhere")
        yield "docs/many-nodes.md", cells, *(state[key] for key in keys_of_files for state in (now, before))


QUOTED = [
    (page, text, figures)
    for said in (of_the_package(), of_front_ends(), of_libraries(), of_many_machines())
    for page, text, *figures in said
]


@pytest.mark.parametrize(("page", "text", "figures"), QUOTED)
def test_a_page_says_what_was_measured(page, text, figures):
    said = " ".join((ROOT / page).read_text().split())
    assert text.format(*figures) in said, f"{page} has to say this, or the test another sentence"


def test_the_tables_of_results_are_those_of_the_files(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    results = importlib.import_module("results")
    page = results.PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- table ") == len(results.TABLES)
    assert results.fill(page) == page, "run python bench/results.py"
