"""Write measured figures into README and pages, and draw the charts: `python bench/results.py`.

A page holds each table between `<!-- table NAME -->` and `<!-- end -->`, and each figure in a sentence between
`<!-- figure NAME -->` and `<!-- end -->`. Tests compare the pages and charts with the files of docs/results, and find
figures of the pages elsewhere. Charts need the extra `bench`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import charts
import systems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"


def pages() -> list[Path]:
    """Return README and the pages that have figures."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if re.search(r"<!-- (table|figure) \w+ -->", page.read_text(encoding="utf-8"))]


def main() -> None:
    """Write the pages and pictures whose figures have changed."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (written := fill(text)) != text:
            page.write_text(written, encoding="utf-8")
            sys.stdout.write(f"{page}\n")
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit("the charts were not drawn: install the extra bench")
    for name, chart in charts.charts().items():
        path, text = ROOT / "docs" / "pictures" / f"{name}.svg", charts.render(chart)
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path}\n")


def fill(text: str) -> str:
    """Return a page's text with new tables and figures."""
    block = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    text = block.sub(lambda found: found[1] + "\n".join(TABLES[found[2]]()) + "\n" + found[3], text)
    inline = re.compile(r"(<!-- figure (\w+) -->)[^<]*(<!-- end -->)")
    return inline.sub(lambda found: found[1] + FIGURES[found[2]]() + found[3], text)


LAUNCHES = {
    "one grid": "one grid",
    "300 grids": "a new grid each time",
    "forall, 300 n": "`forall`, a new size each time",
    "300 stream objects": "a new stream each time",
}
WAYS = (
    ("aotcuda", "CuPy", "aotcuda, C"),
    ("aotcuda, general path", "CuPy", "aotcuda, Python"),
    ("RawKernel, which checks nothing", "CuPy", "RawKernel"),
    ("numba-cuda", "CuPy", "numba-cuda"),
    ("aotcuda", "PyTorch", "aotcuda, C"),
    ("aotcuda, general path", "PyTorch", "aotcuda, Python"),
    ("apache-tvm-ffi", "PyTorch", "apache-tvm-ffi"),
    ("Triton", "PyTorch", "Triton"),
    ("aotcuda", "Numba", "aotcuda, C"),
    ("numba-cuda", "Numba", "numba-cuda"),
    ("Warp", "Warp", "Warp"),
)
LIBRARIES = {"CuPy": "cupy", "PyTorch": "torch", "Numba": "numba", "Warp": "warp"}


def launches() -> Iterator[str]:
    """Yield the table of launches."""
    figures = _result("launch")["figures"]
    yield f"| µs of a call, median (quartiles) | arrays | {' | '.join(LAUNCHES.values())} |"
    yield f"|---|---|{'---|' * len(LAUNCHES)}"
    for label, library, way in WAYS:
        rows = [figures.get(f"{LIBRARIES[library]}: {launch}", {}).get(way) for launch in LAUNCHES]
        if any(rows):
            yield f"| {label} | {library} | {' | '.join(map(_spread, rows))} |"


def _spread(found: dict[str, float] | None) -> str:
    return f"{found['median']:.1f} ({found['q1']:.1f} to {found['q3']:.1f})" if found else ""


def cold_starts() -> Iterator[str]:
    """Yield the table of first results."""
    yield "| ms, median | from the start of the process | beyond starting Python and the driver, and making the data |"
    yield "|---|---|---|"
    for name, found in _result("cold_start")["figures"].items():
        if name != "driver alone":
            ends = {
                part: f" ({found[f'{part}_q1']:.0f} to {found[f'{part}_q3']:.0f})"
                for part in PARTS
                if f"{part}_q1" in found
            }
            cells = (f"{found[part]:.0f}{ends.get(part, '')}" for part in PARTS)
            yield f"| {name} | {' | '.join(cells)} |"


PARTS = ("total", "beyond")


def builds() -> Iterator[str]:
    """Yield the table of build times, with nvcc."""
    measured = _result("build")
    figures = measured["figures"]
    yield "| | seconds, median (quartiles) |"
    yield "|---|---|"
    for label, case in (
        ("fifty kernels, cold, no cache", "fifty, cold"),
        ("fifty kernels, cold, filling a build cache", "fifty, filling a cache"),
        ("one kernel of fifty edited", "fifty, one kernel edited"),
        ("nothing changed", "fifty, again"),
        ("nvcc, fifty kernels in C++, two threads", "fifty, nvcc"),
        ("hatchling alone", "fifty, the back end alone"),
    ):
        found = figures[case]
        yield f"| {label} | {found['median']:.2f} ({found['q1']:.2f} to {found['q3']:.2f}) |"
    memory = measured["memory_bytes"]["fifty, cold"] >> 20
    yield f"| memory at most, fifty kernels, cold | {memory} MiB |"


def correctness() -> Iterator[str]:
    """Yield the table of checks that compare results."""
    yield "| check | seen | file |"
    yield "|---|---|---|"
    for name, fuzz in _result("fuzz_arguments").items():
        yield (
            f"| argument fuzz, general path against fast path{'' if name == 'plain' else ' ' + name} "
            f"| {fuzz['tuples']:,} tuples, {fuzz['differences']} differences "
            "| [fuzz_arguments.json](fuzz_arguments.json) |"
        )
    triton = _result("triton_differential").values()
    yield (
        "| packaged Triton kernels against Triton's JIT, each variant and its neighbours "
        f"| {_compared()} launches, {sum(len(found['problems']) for found in triton)} differences "
        "| [triton_differential.json](triton_differential.json) |"
    )
    stamps = _result("stamp_inputs").values()
    pairs = sum(found["pairs_of_builds"] for found in stamps)
    problems = sum(len(each) for found in stamps for each in found["problems"].values())
    yield (
        "| builds with a cache and without, after an edit of each declared input "
        f"| {pairs} pairs, {problems} differences | [stamp_inputs.json](stamp_inputs.json) |"
    )
    kills = _result("build_kills")
    seen = f"{kills['kills']} kills, {kills['failures']} failures"
    yield f"| killed builds | {seen} | [build_kills.json](build_kills.json) |"
    hostile = _result("hostile_entries")
    faults = sum(hostile["faults"].values())
    yield (
        f"| damaged cache entries | {hostile['entries']['entries']:,} entries, {faults} faults "
        "| [hostile_entries.json](hostile_entries.json) |"
    )
    memory = _result("launch_memory")
    growth = max(size for kinds in memory["growth"].values() for size in kinds.values())
    yield (
        f"| memory of a process after {memory['launches']:,} launches of each kind | at most {growth:,} bytes more "
        "| [launch_memory.json](launch_memory.json) |"
    )
    for path, suite in _suites():
        name = f"{suite['compiler']} {suite['release']}"
        yield (
            f"| conformance suite, {name} on a GPU | {suite['passed']:,} of {suite['cases']:,} cases right "
            f"| [{path.name}]({path.name}) |"
        )


def _compared() -> str:
    """Return the number of launches that were compared with Triton's JIT."""
    counts = [found["counts"] for found in _result("triton_differential").values()]
    return f"{sum(each['launches of variants'] + each['neighbours'] for each in counts):,}"


def gpu_time() -> Iterator[str]:
    """Yield the table of the kernels' time on the GPU."""
    yield "| kernel | packaged, µs | Numba's JIT | CUDA C++ by nvcc |"
    yield "|---|---|---|---|"
    for name, found in _result("gpu_time")["figures"].items():
        times = (f"{found[way]['median']:.0f}" for way in ("packaged", "numba-cuda", "CUDA C++"))
        yield f"| {name} | {' | '.join(times)} |"


CACHES = {
    "JIT": "Triton's JIT, empty cache",
    "warm cache": "Triton's JIT, full cache",
    "exported cache": "cache from the wheel",
    "pack": "pack",
}


def packages() -> Iterator[str]:
    """Yield the table of the first results of unchanged packages."""
    yield f"| seconds, median (least to most) | {' | '.join(CACHES.values())} |"
    yield f"|---|{'---|' * len(CACHES)}"
    for name, by_way in _firsts().items():
        for row, key in ((name, ""), (f"{name}: its imports alone", ", imports")):
            found = [by_way.get(way + key, []) for way in CACHES]
            if any(found):
                yield f"| {row} | {' | '.join(map(_seconds, found))} |"


def engine_records() -> Iterator[str]:
    """Yield the table of what dry runs of a serving engine record."""
    yield "| kind of model or option | kernels | variants | launches | processor time, s |"
    yield "|---|---|---|---|---|"
    for kind, found in _result("engines")["vllm"]["records"].items():
        numbers = (found["kernels"], found["variants"], found["launches"], found["processor"])
        yield f"| {KINDS[kind]} | {' | '.join(f'{number:,.0f}' for number in numbers)} |"


KINDS = {
    "llama": "Llama", "fp8_kv": "Llama, FP8 KV cache", "lora": "Llama, LoRA", "moe": "Qwen3-MoE", "mla": "DeepSeek MLA",
    "mamba2": "Mamba-2", "next": "Qwen3-Next", "ngram": "Llama, n-gram speculation",
}  # fmt: skip


def engine_packs() -> Iterator[str]:
    """Yield the table of packs of serving engines, and of what their builds take."""
    yield (
        "| pack | kernels, served | variants: recorded + general | targets | MB | processor time, s "
        "| of it lowering and ptxas | largest process, MB |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for name, found in _result("engines").items():
        pack = found["pack"]
        cells = (
            f"{name} {found['peers'][name]}", f"{pack['kernels']}, {pack['served']}",
            f"{pack['exact']} + {pack['general']}",
            ", ".join(pack["targets"]), f"{pack['bytes'] / 1e6:.1f}", f"{pack['processor']:.0f}",
            f"{pack['compilers']:.0f} ({pack['processor'] / pack['compilers']:.2f} times)", f"{pack['largest_mb']:,}",
        )  # fmt: skip
        yield f"| {' | '.join(map(str, cells))} |"


def engine_files() -> Iterator[str]:
    """Yield the table of an engine's files with kernels: those that a program without a server launches, and others."""
    found: Any = _result("engines")["sglang"]
    packaged = found["pack"]["modules"]
    rows: dict[str, list[int]] = {}
    for module, kernels in found["launched"].items():
        row = rows.setdefault(module.rpartition(".")[0].removeprefix("sglang."), [0, 0, 0])
        for at, number in enumerate((1, len(kernels), len({*kernels} & {*packaged.get(module, ())}))):
            row[at] += number
    yield "| files | number | kernels launched | packaged |"
    yield "|---|---|---|---|"
    for folder, numbers in rows.items():
        yield f"| {folder} | {' | '.join(map(str, numbers))} |"
    reasons = Counter(
        "cannot be imported: " + reason.partition(": ")[2] if reason.startswith("ModuleNotFoundError") else reason
        for module, reason in found["files"].items()
        if module not in found["launched"] and reason
    )
    for reason, number in reasons.most_common():  # "not called": they can be imported
        yield f"| {reason} | {number} | | |"


def _seconds(seconds: list[float]) -> str:
    if not seconds:
        return ""
    return f"{median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f}; {len(seconds)} runs)"


def _general(text: Callable[[list[float]], str]) -> Callable[[], str]:
    """Return a function that returns a figure of launches with sizes that were not recorded, beside the JIT's code."""

    def figure() -> str:
        rows: Any = _result("packages")["general"]["figures"]
        return text([row["ratio"] for row in rows if row["sizes"] != "hidden"])

    return figure


def _firsts() -> dict[str, dict[str, list[float]]]:
    """Return the seconds of programs of packages from their start, by the way they get their kernels."""
    parts = [part["figures"] for name, part in _result("packages").items() if name.startswith("firsts")]
    return {name: by_way for figures in parts for name, by_way in figures.items()}


def conformance() -> Iterator[str]:
    """Yield the table that counts the results of the conformance suite."""
    yield "| release | cases run | right | wrong | refused by the build | run on |"
    yield "|---|---:|---:|---:|---:|---|"
    for _, suite in _suites():
        gpu = suite["machine"]["gpu"].partition("(")[2].partition(",")[0]
        counts = (suite["cases"], suite["passed"], len(suite["failed"]), len(suite["refused"]))
        yield f"| {suite['compiler']} {suite['release']} | {' | '.join(f'{n:,}' for n in counts)} | {gpu} |"


def _suites() -> list[tuple[Path, Any]]:
    found = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in RESULTS.glob("conformance_*.json")]
    return sorted(found, key=lambda item: (item[1]["compiler"], [int(part) for part in item[1]["release"].split(".")]))


def _size(tool: str) -> Callable[[], str]:
    """Return a function that returns what users of a tool download."""

    def figure() -> str:
        size = _result("install_sizes")["figures"][tool]["bytes"]
        return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(size / 1e6, 1):.0f} MB"

    return figure


def _at(file: str, *keys: str, form: str = ".1f", scale: float = 1) -> Callable[[], str]:
    """Return a function that returns a number of a result file."""

    def figure() -> str:
        found: Any = _result(file)
        for key in keys:
            found = found[key]
        return f"{found * scale:{form}}"

    return figure


def _gpu_suite() -> str:
    """Return the runs of the GPU suite on one GPU."""
    runs = systems.runs(RESULTS / "gpu_suite.txt")[:2]
    texts = (
        f"{run['what'].partition(', ')[2]}: {run['passed']} passed, {run['failed'] or 'none'} failed" for run in runs
    )
    return f"{'; '.join(texts)}, on one {runs[0]['gpu']}"


def _mutations() -> str:
    """Return how many small faults of how many modules the unit tests find, of those that a unit test executes."""
    rows: Any = _result("mutations")
    found, reached = (sum(row[key] for row in rows) for key in ("found", "reached"))
    return f"{found} of {reached} in {len(rows)} modules"


XARRAY = "xarray_spatial"

SIZES = (
    "aotcuda", "numba-cuda", "triton", "warp", "cupy", "kernels", "cuda.core", "cutile", "cute-dsl", "flashinfer",
    "aotinductor",
)  # fmt: skip

FIGURES: dict[str, Callable[[], str]] = {
    "launch": _at("launch", "figures", "cupy: one grid", "aotcuda, C", "median"),
    "launch_general": _at("launch", "figures", "cupy: one grid", "aotcuda, Python", "median"),
    "launch_raw_kernel": _at("launch", "figures", "cupy: one grid", "RawKernel", "median"),
    "launch_torch": _at("launch", "figures", "torch: one grid", "aotcuda, C", "median"),
    "launch_triton": _at("launch", "figures", "torch: one grid", "Triton", "median"),
    "cold": _at("cold_start", "figures", "aotcuda, first-use", "total", form=".0f"),
    "cold_beyond": _at("cold_start", "figures", "aotcuda, first-use", "beyond", form=".0f"),
    "cold_torch": _at("cold_start", "figures", "aotcuda, PyTorch's tensors", "total", form=".1f", scale=0.001),
    "cold_triton": _at("cold_start", "figures", "PyTorch and Triton, from its cache", "total", form=".1f", scale=0.001),
    "conformance_cases": lambda: f"{max(suite['cases'] + len(suite['refused']) for _, suite in _suites()):,}",
    "xarray_first": _at(XARRAY, "first_call_ms", "packaged", form=".2f", scale=0.001),
    "xarray_first_jit": _at(XARRAY, "first_call_ms", "jit", form=".2f", scale=0.001),
    "xarray_launch": _at(XARRAY, "launch_us", "packaged"),
    "xarray_launch_jit": _at(XARRAY, "launch_us", "jit"),
    "mutations": _mutations,
    "gpu_suite": _gpu_suite,
    **{f"size_{tool.replace('-', '_').replace('.', '_')}": _size(tool) for tool in SIZES},
    "triton_compared": _compared,
    "general_launches": _general(lambda ratios: f"{len(ratios)}"),
    "general_median": _general(lambda ratios: f"{median(ratios):.2f}"),
    "general_worst": _general(lambda ratios: f"{max(ratios):.2f}"),
}

TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "packages": packages,
    "engine_records": engine_records,
    "engine_packs": engine_packs,
    "engine_files": engine_files,
    "launches": launches,
    "cold_starts": cold_starts,
    "builds": builds,
    "correctness": correctness,
    "conformance": conformance,
    "gpu_time": gpu_time,
    "systems": systems.run,
}


def _result(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


if __name__ == "__main__":
    main()
