"""Draws the pictures of the documentation, all of them: `python bench/plot.py`, into docs/pictures.

Figures come from the files in docs/results, what GPUs take from the run time's own choice.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import diagrams
from drawing import Bar, Picture, bars

DOCS = Path(__file__).resolve().parent.parent / "docs"
RESULTS, PICTURES = DOCS / "results", DOCS / "pictures"


def main() -> None:
    """Write those that have changed."""
    PICTURES.mkdir(exist_ok=True)
    for name, text in drawn().items():
        path = PICTURES / f"{name}.svg"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path)


def drawn() -> dict[str, str]:
    """Return the text of each picture, by its name."""
    return {
        "launch": launch(_result("two_paths_h100")),
        "cold_start": cold_start(_result("cold_start_quartiles" if _has("cold_start_quartiles") else "cold_start")),
        "build_time": build_time(_result("build_time")),
        "package": package(_result("xarray_spatial")),
        "way": diagrams.way(),
        "wheel": diagrams.wheel(),
        "choice": diagrams.choice(),
        "in_place": diagrams.in_place(),
        "extras": diagrams.extras(),
        "fallback": diagrams.fallback(),
    }


def launch(result: dict[str, Any]) -> str:
    """Draw the host time of a launch above C's, the least and the largest median of the runs."""
    kept = "aotcuda, k[grid, block] kept"
    wanted = [
        ("aotcuda, PyTorch's tensors", "torch, default", kept),
        ("apache-tvm-ffi, PyTorch's tensors", "torch, default", "apache-tvm-ffi"),
        ("aotcuda, CuPy's arrays", "cupy, default", kept),
        ("CuPy RawKernel, nothing checked", "cupy, default", "CuPy RawKernel (nothing checked)"),
        ("aotcuda, Numba's arrays", "numba, default", kept),
    ]
    rows = []
    for label, case, way in wanted:
        medians = result["fast path in C"][f"{case}: {way}"]["after"]
        kind = "own" if label.startswith("aotcuda") else "other"
        rows.append(Bar(label, median(medians), kind, (min(medians), max(medians))))
    notes = [
        "One scalar, three arrays, default stream. Mean of the medians of two runs; the lines end at each.",
        f"One H100, 25 November 2026, commit {result['after']}; {result['name']}.json",
    ]
    return bars("Host time of a launch above C's", rows, notes, unit="µs", digits=1)


def cold_start(result: dict[str, Any]) -> str:
    """From the start of a process to its first result, less what the driver itself takes."""
    wanted = [
        ("C, the same image", "C, the same image", "base"),
        ("aotcuda", "aotcuda, first-use", "own"),
        ("cuda.core, compiled", "cuda.core, compiled", "other"),
        ("Warp, from its cache", "Warp, from its cache", "other"),
        ("CuPy RawKernel, from its cache", "CuPy RawKernel, from its cache", "other"),
        ("numba-cuda, cache=True", "numba-cuda, cache=True", "other"),
        ("PyTorch and Triton, from its cache", "PyTorch and Triton, from its cache", "other"),
        ("numba-cuda-mlir", "numba-cuda-mlir", "other"),
    ]
    rows = []
    for label, way, kind in wanted:
        if way not in result["figures"]:  # that peer was not there
            continue
        found = result["figures"][way]
        spread = (found["beyond_q1"], found["beyond_q3"]) if "beyond_q1" in found else None
        rows.append(Bar(label, found["beyond"], kind, spread))
    kept = " with quartiles" if rows[1].spread else "; this run kept no spread"
    notes = [
        f"Medians of 9 processes (peers: 3){kept}. The driver's own start, 200 ms on this machine, is left out.",
        _machine(result, "cupy-cuda13x", "torch", "triton", "cuda-core", "warp-lang", "numba-cuda", "numba-cuda-mlir"),
    ]
    return bars("From the start of a process to the first result", rows, notes, unit="ms", digits=0)


def build_time(result: dict[str, Any]) -> str:
    """Draw build times and nvcc's."""
    wanted = [
        ("nvcc, the same in C++", "fifty, nvcc", "base"),
        ("aotcuda, cold", "fifty, cold", "own"),
        ("aotcuda, one kernel edited", "fifty, one kernel edited", "own"),
        ("aotcuda, nothing changed", "fifty, again", "own"),
    ]
    rows = []
    for label, case, kind in wanted:
        found = result["figures"][case]
        low, high = found.get("q1", found["min"]), found.get("q3", found["median"])
        rows.append(Bar(label, found["median"], kind, (low, high)))
    runs = result["figures"]["fifty, cold"]["runs"]
    has_quartiles = "q1" in result["figures"]["fifty, cold"]
    spread = "and quartiles" if has_quartiles else "and down to the least"
    notes = [f"Fifty kernels for five GPU generations. Median of {runs} runs, {spread}.", _machine(result)]
    return bars("Building a wheel", rows, notes, unit="s", digits=1)


def package(result: dict[str, Any]) -> str:
    """Return the 33 kernels of a real package before and after: a dot for each, quartiles, on logarithmic scales."""
    title = f"The {result['kernels']} kernels of xarray-spatial, compiled by the JIT and packaged"
    picture = Picture(860, 300, title)
    picture.text(12, 24, title, "strong")
    left, right = 200.0, 830.0
    for number, (name, key, unit) in enumerate((("First call", "first_call_ms", "ms"), ("Launch", "launch_us", "µs"))):
        top = 44 + number * 112
        pairs = list(result[key]["each"].values())
        values = [value for pair in pairs for value in pair]
        low, high = (10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values))))

        def across(value: float, low: float = low, high: float = high) -> float:
            return left + (right - left) * math.log(value / low) / math.log(high / low)

        mark = low
        while mark <= high:
            picture.line([(across(mark), top), (across(mark), top + 70)], "rule")
            picture.text(across(mark), top + 84, f"{mark:g} {unit}", "faint small", "middle")
            mark *= 10
        for which, (label, kind, at) in enumerate((("packaged", "own", 0), ("Numba's JIT", "other", 1))):
            y = top + 20 + which * 32
            each = [pair[at] for pair in pairs]
            first, _, third = quantiles(each, n=4)
            picture.text(left - 12, y + 4, f"{name}, {label}", "strong" if kind == "own" else "", "end")
            for value in each:
                picture.point(across(value), y, kind)
            picture.line([(across(first), y + 9), (across(third), y + 9)], "spread")
            for value in (first, median(each), third):
                picture.line([(across(value), y + 5), (across(value), y + 13)], "spread")
    notes = [
        "A dot for each kernel; below the dots quartiles and median.",
        f"{result['gpu']}; xarray_spatial.json",
    ]
    for number, note in enumerate(notes):
        picture.text(12, 276 + number * 16, note, "faint small")
    return picture.render()


def _has(name: str) -> bool:
    return (RESULTS / f"{name}.json").is_file()


def _result(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return loaded | {"name": name}


def _machine(result: dict[str, Any], *packages: str) -> str:
    """Return the machine and the versions in a line."""
    machine, peers = result["machine"], result.get("peers", {})
    versions = ", ".join(f"{name} {peers[name]}" for name in packages if name in peers)
    gpu = machine.get("gpu", "").partition("(")[2].partition(",")[0]
    where = f"{gpu}, {machine['driver']}" if gpu else f"{machine['cores']} cores of {machine['cpu']}, no GPU"
    parts = [f"{where}, Python {machine['python']}", versions, f"{machine['date']}, {result['name']}.json"]
    return "; ".join(part for part in parts if part)


if __name__ == "__main__":
    sys.exit(main())
