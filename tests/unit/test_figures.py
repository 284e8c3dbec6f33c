"""Figures that pages quote are those of the files in docs/results: who measures again is told what to change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def result(name):
    return json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text())


def ends(values):
    """The least and the largest."""
    values = [*values]
    return min(values), max(values)


def beyond(*ways):
    """How much later than the driver the first results come, in both runs."""
    figures = [result(name)["figures"] for name in ("cold_start", "cold_start_quartiles")]
    return ends(run[way]["beyond"] for run in figures for way in ways if way in run)


def over_c(way, peer):
    """What launches of axpy take over C's own, on the default stream, in both runs: by the names that each has."""
    cases = result("streams")["figures"]
    in_streams = [cases[case][way[case]]["over_c"] for case in way]
    return ends(in_streams + [result("launch")["figures"]["axpy"][name]["over_c"] for name in peer])


KEPT = "aotcuda, k[grid, block] kept"
EACH = "aotcuda, k[grid, block, stream](...) each time"
WRITTEN = "aotcuda, k[grid, block](...) each time"
NUMBA = "numba-cuda, k[grid, block, stream](...)"
PACKED = "the driver by ctypes, the block packed each time"


def of_the_package():
    """What the pages say, each with the figures that it is made of."""
    package = result("xarray_spatial")
    first, later = package["first_call_ms"], package["launch_us"]
    seconds = (first["packaged"] / 1000, first["jit"] / 1000)
    yield (
        "README.md",
        "{:.0f} to {:.0f} ms | Numba-CUDA from its cache {:,.0f} to {:,.0f} ms",
        *beyond("aotcuda, first-use", "aotcuda, import"),
        *beyond("numba-cuda, cache=True"),
    )
    arrays = ("cupy, default", "torch, default", "numba, default")
    own = over_c(dict.fromkeys(arrays, KEPT), [f"aotcuda, C, {of}" for of in ("cupy", "torch", "numba")])
    yield (
        "README.md",
        "over C's own | {:.1f} to {:.1f} µs | Triton {:.1f} to {:.1f} µs, Numba-CUDA {:.1f} to {:.1f} µs",
        *own,
        *over_c({"torch, default": "Triton"}, ["Triton, torch"]),
        *over_c({"numba, default": NUMBA}, ["numba-cuda, numba"]),
    )
    yield "docs/features.md", "[{:.1f} to {:.1f} µs over C](results/README.md)", *own
    without = result("streams_python")["figures"]
    yield "docs/features.md", "{:.1f} to {:.1f} without it", *ends(without[case][KEPT]["over_c"] for case in arrays)
    yield "README.md", "{:.2f} s | Numba's JIT {:.2f} s", *seconds
    told = "took {:.2f} s where the JIT took {:.2f} s, on an H200; a launch {:.1f} µs where the JIT's took {:.1f}"
    yield "docs/why.md", told, *seconds, later["packaged"], later["jit"]
    process = package["process_s"]
    told = "{:.2f} s packaged, {:.2f} s by the JIT; the whole process {:.1f} s and {:.1f} s"
    yield "docs/moving.md", told, *seconds, process["packaged"], process["jit"]
    yield "docs/moving.md", "{:.1f} µs packaged, {:.1f} µs by the JIT", later["packaged"], later["jit"]


def of_front_ends():
    """Likewise, of Triton, cuTile and CUDA C++."""
    for name in ("triton_launch", "triton_launch_newest"):
        triton = result(name)
        cases = [case for case in triton["over_c_microseconds"].values() if "Triton" in case]
        launches = (*ends(case["aotcuda"] for case in cases), *ends(case["Triton"] for case in cases))
        came = triton["first_result_seconds"]
        told = "{:.1f} to {:.1f} µs | {:.1f} to {:.1f} µs | {:.2f} s | {:.2f} s |"
        yield "docs/triton.md", told, *launches, came["aotcuda"], came["Triton, warm cache"]
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
    """Likewise, of PyTorch, JAX and Dask."""
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

    workers = result("cold_workers")
    first, later = workers["first_launch_seconds"], workers["later_launch_microseconds"]
    yield "docs/results/README.md", "{:.1f} s from the first task to the last", workers["seconds"]
    yield "docs/results/README.md", "first launches after {:.2f} to", first["min"]
    yield "docs/results/README.md", "later ones {:.1f} µs", later["median"]


def of_states():
    """Likewise, of this state beside an older one."""
    states = result("before_after")["figures"]
    for label, way in (
        ("extension, {}", "aotcuda, C, {}"),
        ("Python, {}", "aotcuda, Python, {}"),
    ):
        for name in ("CuPy", "PyTorch", "Numba"):
            of = {"PyTorch": "torch"}.get(name, name.lower())
            turn = states["launch"][way.format(of)]
            row = "| " + label.format(name) + " | {:.2f} ({:.1f}) | {:.2f} ({:.1f}) |"
            yield (
                "docs/results/history.md",
                row,
                turn["before"],
                turn["before spread"],
                turn["after"],
                turn["after spread"],
            )


def of_starts():
    """Likewise, of first results and imports, in turn with those of an older state."""
    figures = result("in_process_h200_turns")["figures"]
    for label, size, library in (
        ("1 kernel", "one", "none"),
        ("200 kernels", "two_hundred", "none"),
        ("1 kernel, after CuPy", "one", "cupy"),
    ):
        ways = [f"{size}, {load}, {library}, " for load in ("first-use", "import", "import alone")]
        said = (
            figures[way + state][of] for way in ways for of in ("wall", "least wall") for state in ("before", "after")
        )
        cells = " | ".join(["{:.1f} → {:.1f} ({:.1f} → {:.1f})"] * len(ways))
        yield "docs/results/history.md", f"| {label} | {cells} |", *said


def of_hosts():
    """Likewise, of launches on a quiet host and on a noisy one."""

    def over(run, case, way):
        return result(run)["figures"][case][way]["over_c"]

    page, libraries = "docs/results/README.md", ("cupy", "torch", "numba")
    quiet = {"cupy": "streams", "torch": "streams", "numba": "streams_again"}
    ways = [over(quiet[of], f"{of}, default", way) for way in (KEPT, WRITTEN) for of in libraries]
    yield page, "CuPy {:.2f}, PyTorch {:.2f}, Numba {:.2f}; written out each time {:.2f}, {:.2f}, {:.2f} |", *ways
    told = "on a quiet host; {:.2f} to {:.2f} on a noisy one"
    yield page, told, *ends(over("streams_h100", f"{of}, default", KEPT) for of in libraries)
    sides = [("cupy, current", KEPT), ("torch, current", KEPT)]
    sides += [(f"{of}, given", way) for of in libraries for way in (KEPT.replace("block", "block, stream"), EACH)]
    yield page, "met; {:.2f} to {:.2f} on the noisy host", *ends(over("streams_h100", *side) for side in sides)
    two = ends(over("streams_h100_two_gpus", f"{of}, default", KEPT) for of in libraries)
    yield page, "met; {:.2f} to {:.2f} on a noisy host", *two
    floor = result("streams_h100_python")["figures"].values()
    told = "takes {:.1f} to {:.1f} on the noisy host"
    yield page, told, *ends(case[PACKED]["over_c"] for case in floor if PACKED in case)


def of_builds():
    """Likewise, of builds; another state that was measured in the same run has a column before."""
    measured, thousand = result("build_time"), result("build_thousand")["figures"]
    figures = {name: found for name, found in thousand.items() if name.startswith("thousand")} | measured["figures"]
    for label, case in (
        ("nvcc", "fifty, nvcc"),
        ("cold, no cache", "fifty, cold"),
        ("cold, filling a build cache", "fifty, filling a cache"),
        ("one kernel edited", "fifty, one kernel edited"),
        ("nothing changed", "fifty, again"),
        ("the back end alone", "fifty, the back end alone"),
        ("a thousand kernels, twenty modules of fifty, cold", "thousand, cold"),
        ("nvcc, twenty files of fifty", "thousand, nvcc"),
    ):
        states = [state for state in ("before: ", "") if f"{state}{case}" in figures]
        seconds = [figures[f"{state}{case}"]["median"] for state in states]
        yield "docs/results/README.md", f"| {label} |{' {:.2f} |' * len(seconds)}", *seconds
    memory = measured["memory_bytes"]["fifty, cold"] / 2**20
    yield "docs/results/README.md", "| memory at most, cold | {:.0f} MiB |", memory


QUOTED = [
    (page, text, figures)
    for said in (of_the_package(), of_front_ends(), of_libraries(), of_states(), of_starts(), of_hosts(), of_builds())
    for page, text, *figures in said
]
STREAMS = {
    "default stream, in C": ("streams", "default", KEPT, 2),
    "inside `with stream`, in C": ("streams", "current", KEPT, 2),
    "`k.f[grid, block, stream](...)` each time, in C": ("streams", "given", EACH, 2),
    "the same, and another stream is current": ("streams", "given, other current", EACH, 2),
    "default stream, in Python": ("streams_python", "default", KEPT, 2),
    "`k.f[grid, block, stream](...)` each time, in Python": ("streams_python", "given", EACH, 1),
    "the same, and another stream is current, in Python": ("streams_python", "given, other current", EACH, 1),
    "two GPUs in the process, default stream, in C": ("streams_two_gpus", "default", KEPT, 2),
}


@pytest.mark.parametrize("row", STREAMS)
def test_the_table_of_streams_is_that_of_the_files(row):
    name, case, way, digits = STREAMS[row]
    cells = []
    for library in ("cupy", "torch"):
        found = result(name)["figures"][f"{library}, {case}"][way]
        cells.append("{:.{n}f} ({:.{n}f} to {:.{n}f})".format(found["over_c"], found["q1"], found["q3"], n=digits))
    page = (ROOT / "docs" / "results" / "README.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {row} |"))
    assert [cell.split(";")[0].strip() for cell in line.split("|")[2:4]] == cells


@pytest.mark.parametrize(("page", "text", "figures"), QUOTED)
def test_a_page_says_what_was_measured(page, text, figures):
    said = " ".join((ROOT / page).read_text().split())
    assert text.format(*figures) in said, f"{page} has to say this, or the test another sentence"


ROUNDS = {
    "C: default stream, kept": ("default", KEPT),
    "C: default stream, written out": ("default", WRITTEN),
    "C: inside `with stream`, kept": ("current", KEPT),
    "C: stream given, written out": ("given", EACH),
    "C: stream given, another one current, written out": ("given, other current", EACH),
    "Python: default stream, kept": ("default", KEPT),
    "Python: stream given, written out": ("given", EACH),
    "Python: stream given, another one current, written out": ("given, other current", EACH),
}


@pytest.mark.parametrize("row", ROUNDS)
def test_the_table_of_rounds_is_that_of_the_file(row):
    situation, way = ROUNDS[row]
    figures = result("launches_torch_in_memory")["figures"][row.partition(":")[0]]
    cells = [
        " → ".join(
            f"{min(figures[f'{library}, {situation}: {way}'][state]['rounds']):.2f}" for state in ("before", "after")
        )
        for library in ("cupy", "torch")
    ]
    page = (ROOT / "docs" / "results" / "history.md").read_text()
    [line] = [line for line in page.splitlines() if line.startswith(f"| {row} |")]
    assert line.startswith(f"| {row} | {' | '.join(cells)} |")
