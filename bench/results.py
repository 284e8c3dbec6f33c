"""Write measured figures into README and pages: `python bench/results.py`.

A page holds each table between `<!-- table NAME -->` and `<!-- end -->`, and each figure in a sentence between
`<!-- figure NAME -->` and `<!-- end -->`. A test compares the pages with the files of docs/results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
LIBRARIES = {"cupy": "CuPy", "torch": "PyTorch", "numba": "Numba"}
KEPT = "aotcuda, k[grid, block] kept"
GIVEN = "aotcuda, k[grid, block, stream](...) each time"
CASES = {
    "default stream": ("default", KEPT),
    "inside `with stream`": ("current", KEPT),
    "stream given at each launch": ("given", GIVEN),
    "stream given, another stream is current": ("given, other current", GIVEN),
}


def pages() -> list[Path]:
    """Return README and the pages that have figures."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if re.search(r"<!-- (table|figure) \w+ -->", page.read_text(encoding="utf-8"))]


def main() -> None:
    """Write the pages whose figures have changed."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (written := fill(text)) != text:
            page.write_text(written, encoding="utf-8")
            sys.stdout.write(f"{page}\n")


def fill(text: str) -> str:
    """Return a page's text with new tables and figures."""
    block = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    text = block.sub(lambda found: found[1] + "\n".join(TABLES[found[2]]()) + "\n" + found[3], text)
    inline = re.compile(r"(<!-- figure (\w+) -->)[^<]*(<!-- end -->)")
    return inline.sub(lambda found: found[1] + FIGURES[found[2]]() + found[3], text)


def launches() -> Iterator[str]:
    """Yield the table of launches on the fast path, over C's own launch."""
    figures = _result("launch_c")["figures"]
    yield "| µs over C | CuPy | PyTorch | Numba |"
    yield "|---|---|---|---|"
    for label, (case, way) in CASES.items():
        cells = (_ends(figures.get(f"{library}, {case}", {}).get(way)) for library in LIBRARIES)
        yield f"| {label} | {' | '.join(cells)} |"
    raw, ffi = "CuPy RawKernel (nothing checked)", "apache-tvm-ffi"
    peers = (_ends(figures["cupy, default"][raw]), _ends(figures["torch, default"][ffi]))
    yield f"| in the same run, default stream | RawKernel {peers[0]} | apache-tvm-ffi {peers[1]} | |"


def general_path() -> Iterator[str]:
    """Yield the table of launches on the general path, over C's own launch."""
    figures = _result("launch_python")["figures"]
    yield "| µs over C, median (quartiles) | CuPy | PyTorch | Numba |"
    yield "|---|---|---|---|"
    for label, (case, way) in CASES.items():
        rows = (figures.get(f"{library}, {case}", {}).get(way) for library in LIBRARIES)
        cells = (f"{row['over_c']:.1f} ({row['q1']:.1f} to {row['q3']:.1f})" if row else "" for row in rows)
        yield f"| {label} | {' | '.join(cells)} |"


def grids() -> Iterator[str]:
    """Yield the table of launches whose grid, stream or number of elements changes."""
    peers = {"cupy": "RawKernel", "torch": "Triton"}
    figures = _result("launch_grids")["figures"]
    yield "| µs of a call, median | C | without the extension | in the same run |"
    yield "|---|---|---|---|"
    for name, row in figures.items():
        library, _, case = name.partition(": ")
        if library in peers:
            peer = f"{peers[library]} {row['peers']['median']:.1f}" if "peers" in row else ""
            own = " | ".join(f"{row[way]['median']:.1f}" for way in ("aotcuda, C", "aotcuda, Python"))
            yield f"| {LIBRARIES[library]}, {case} | {own} | {peer} |"


def builds() -> Iterator[str]:
    """Yield the table of build times, with nvcc."""
    measured, thousand = _result("build_time"), _result("build_thousand")["figures"]
    figures = {name: figure for name, figure in thousand.items() if "thousand" in name} | measured["figures"]
    yield f"| seconds, median | {measured['commits']['now']} |"
    yield "|---|---|"
    for label, case in (
        ("fifty kernels, cold, no cache", "fifty, cold"),
        ("fifty kernels, cold, filling a build cache", "fifty, filling a cache"),
        ("one kernel of fifty edited", "fifty, one kernel edited"),
        ("nothing changed", "fifty, again"),
        ("a thousand kernels in twenty modules, cold", "thousand, cold"),
        ("one kernel of a thousand edited", "thousand, one kernel edited"),
        ("nvcc, fifty kernels in C++, two threads", "fifty, nvcc"),
        ("nvcc, twenty files of fifty", "thousand, nvcc"),
        ("hatchling alone", "fifty, the back end alone"),
    ):
        if case in figures:
            yield f"| {label} | {figures[case]['median']:.2f} |"
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
    for path in sorted(RESULTS.glob("conformance_*.json")):
        suite = json.loads(path.read_text(encoding="utf-8"))
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
        yield f"| {name} | {found['packaged']:.0f} | {found['numba-cuda']:.0f} | {found['CUDA C++']:.0f} |"


PACKAGES = {
    "liger-kernel": "liger-kernel 0.8.5",
    "fla-core": "fla-core 0.6.0 (GatedLinearAttention, GatedDeltaNet)",
    "conch-triton-kernels": "conch-triton-kernels 1.3",
    "cut-cross-entropy": "cut-cross-entropy 25.1.1 (part of it is Inductor's)",
    "bitsandbytes": "bitsandbytes 0.50.2",
    "sageattention": "sageattention 1.0.6",
}


def triton_packages() -> Iterator[str]:
    """Yield the table of the first results of published Triton packages."""
    yield "| package | kernels | first result by the JIT | packaged |"
    yield "|---|---|---|---|"
    for name, found in _result("triton_packages").items():
        jit, packaged = found["jit"]["first"], found["packaged"]["first"]
        yield f"| {PACKAGES[name]} | {found['kernels']} | {jit:.1f} s | {packaged:.2f} s |"


def packs() -> Iterator[str]:
    """Yield the table of the first results of unchanged packages with a pack."""
    yield "| package | first result by the JIT | with the pack |"
    yield "|---|---|---|"
    for name, found in _result("packs")["programs"].items():
        jit, packed = found["jit"]["first"], found["packed"]["first"]
        yield f"| {PACKAGES[name].partition(' (')[0]} | {jit:.1f} s | {packed:.2f} s |"


def _firsts(way: str) -> list[float]:
    """Return the seconds of the packages' first results, shortest first."""
    return sorted(found[way]["first"] for found in _result("triton_packages").values())


def _range(values: list[float], form: str) -> str:
    return f"{values[0]:{form}} to {values[-1]:{form}}"


def _ratio(name: str) -> float:
    found = _result("triton_packages")[name]
    return float(found["jit"]["first"] / found["packaged"]["first"])


def _ready() -> list[float]:
    """Return the seconds that programs of the packages took to start PyTorch, shortest first."""
    return sorted(found[way]["ready"] for found in _result("triton_packages").values() for way in ("jit", "packaged"))


def _at(file: str, *keys: str, form: str = ".1f", scale: float = 1) -> Callable[[], str]:
    """Return a function that returns a number of a result file."""

    def figure() -> str:
        found: Any = _result(file)
        for key in keys:
            found = found[key]
        return f"{found * scale:{form}}"

    return figure


def _over_c(tool: str) -> str:
    """Return the range of the microseconds that launches of Triton kernels take over C's launch."""
    rows = _result("triton_launch")["over_c_microseconds"].values()
    return _range(sorted(row[tool] for row in rows if tool in row), ".1f")


def _adoption() -> str:
    """Return the milliseconds in which a program finds and adopts the kernels of a pack."""
    found = _result("packs")["adoption"]
    return f"{found['pack'] + found['adoption']:.1f}"


def _operator() -> str:
    """Return the microseconds of an operator in compiled code."""
    found = _result("torch_op")
    empty = found["figures"]["empty operator, compiled"]["median"]
    return f"{found['added']['compiled']['over the empty operator'] + empty:.1f}"


def _mutations() -> str:
    """Return how many small faults of how many modules the unit tests find, of those that a unit test executes."""
    rows: Any = _result("mutations")
    found, reached = (sum(row[key] for row in rows) for key in ("found", "reached"))
    return f"{found} of {reached} in {len(rows)} modules"


def _forall(way: str) -> Callable[[], str]:
    """Return a function that returns the microseconds that an operator takes longer by `forall`."""

    def figure() -> str:
        figures = _result("torch_op")["figures"]
        return f"{figures[way]['median'] - figures['operator, eager']['median']:.0f}"

    return figure


def _largest_shards() -> dict[str, Any]:
    return max(_result("shards")["shards"], key=lambda each: int(each["kernels"]))


def _last_dask() -> dict[str, Any]:
    return dict(_result("shards")["dask"][-1])


MANY = "10000 kernels"
XARRAY = "xarray_spatial"

FIGURES: dict[str, Callable[[], str]] = {
    "cpp_launch": _at("cuda_cpp", "launch_microseconds", "aotcuda"),
    "cpp_raw_kernel": _at("cuda_cpp", "launch_microseconds", "RawKernel"),
    "cold_beyond": _at("cold_start", "figures", "aotcuda, first-use", "beyond"),
    "cold_beyond_c": _at("cold_start", "figures", "C, the same image", "beyond"),
    "cutile_launch": _at("cutile_launch", "host_microseconds", "aotcuda"),
    "cutile_matmul": _at("cutile_launch", "gpu_microseconds", "matmul", "ratio"),
    "cutile_softmax": _at("cutile_launch", "gpu_microseconds", "softmax", "ratio", form=".0f"),
    "operator": _operator,
    "operator_launch": _at("torch_op", "figures", "launcher, no operator", "median"),
    "operator_forall_block": _forall("operator with forall and a block, eager"),
    "operator_forall": _forall("operator with forall, eager"),
    "jax_step": _at("jax_call", "figures", "1000", "packaged", "median"),
    "jax_recorded": _at("jax_call", "figures", "1000", "packaged, recorded", "median"),
    "jax_plain": _at("jax_call", "figures", "1000", "plain JAX", "median"),
    "shards": lambda: f"{len(_largest_shards()['shards'])} shards of {_largest_shards()['kernels']} kernels",
    "shards_ratio": lambda: f"{_largest_shards()['ratio']:.2f}",
    "dask_kernels": lambda: f"{_last_dask()['kernels']}",
    "dask_times": lambda: f"{_last_dask()['runs'][-1]['times']:.2f}",
    "model_64": _at("shards_model", MANY, "64", "times"),
    "model_512": _at("shards_model", MANY, "512", "times"),
    "merge_kernel": _at("shards_model", "measured", "merge_kernel_s", form=".0f", scale=1000),
    "xarray_first": _at(XARRAY, "first_call_ms", "packaged", form=".2f", scale=0.001),
    "xarray_first_jit": _at(XARRAY, "first_call_ms", "jit", form=".2f", scale=0.001),
    "xarray_launch": _at(XARRAY, "launch_us", "packaged"),
    "xarray_launch_jit": _at(XARRAY, "launch_us", "jit"),
    "adoption": _adoption,
    "mutations": _mutations,
    "triton_launch": lambda: _over_c("aotcuda"),
    "triton_launch_own": lambda: _over_c("Triton"),
    "fla_packaged": lambda: f"{_result('triton_packages')['fla-core']['packaged']['first']:.2f} s",
    "fla_jit": lambda: f"{_result('triton_packages')['fla-core']['jit']['first']:.0f} s",
    "packages_packaged": lambda: f"{_range(_firsts('packaged'), '.2f')} s",
    "packages_jit": lambda: f"{_range(_firsts('jit'), '.1f')} s",
    "packages_ready": lambda: f"{_range(_ready(), '.1f')} s",
    "packages_ratios": lambda: _range(sorted(map(_ratio, PACKAGES.keys() - {"cut-cross-entropy"})), ".0f"),
    "triton_compared": _compared,
    "cross_entropy_ratio": lambda: f"{_ratio('cut-cross-entropy'):.0f}",
}

TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "packs": packs,
    "launches": launches,
    "general_path": general_path,
    "grids": grids,
    "builds": builds,
    "correctness": correctness,
    "gpu_time": gpu_time,
    "triton_packages": triton_packages,
}


def _ends(found: dict[str, float] | None) -> str:
    """Return both ends of the spread of a figure, or nothing if there is no figure."""
    return f"{found['q1']:.1f} to {found['q3']:.1f}" if found else ""


def _result(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


if __name__ == "__main__":
    main()
