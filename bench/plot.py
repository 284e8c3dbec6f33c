"""Draw the charts of docs/results into docs/pictures: `pip install -e ".[bench]" && python bench/plot.py`.

The other pictures there are diagrams, which are edited by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import figures
from figures import Bar, Chart, Dots

DOCS = Path(__file__).resolve().parent.parent / "docs"
RESULTS, PICTURES = DOCS / "results", DOCS / "pictures"


def main() -> None:
    """Write the charts that have changed."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for name, chart in charts().items():
        path, text = PICTURES / f"{name}.svg", figures.render(chart)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path)


def charts() -> dict[str, Chart]:
    """Return the charts of results, by the name of their picture."""
    return {
        "launch": launch(_result("launch_c")),
        "cold_start": cold_start(_result("cold_start")),
        "build_time": build_time(_result("build_time")),
        "package": package(_result("xarray_spatial")),
    }


def launch(result: dict[str, Any]) -> Chart:
    """Return the host time of a launch above C's, with its spread."""
    kept = "aotcuda, k[grid, block] kept"
    series = [
        ("aotcuda, PyTorch's tensors", "torch, default", kept),
        ("apache-tvm-ffi, PyTorch's tensors", "torch, default", "apache-tvm-ffi"),
        ("aotcuda, CuPy's arrays", "cupy, default", kept),
        ("CuPy RawKernel, nothing checked", "cupy, default", "CuPy RawKernel (nothing checked)"),
        ("aotcuda, Numba's arrays", "numba, default", kept),
    ]
    rows = []
    for label, case, way in series:
        found = result["figures"][case][way]
        kind = "own" if label.startswith("aotcuda") else "other"
        rows.append(Bar(label, found["over_c"], kind, (found["q1"], found["q3"])))
    notes = [f"One scalar, three arrays, default stream; {result['unit'].partition('; ')[2]}.", _machine(result)]
    return Chart("Host time of a launch above C's", rows, notes, unit="µs", digits=1)


def cold_start(result: dict[str, Any]) -> Chart:
    """Return the time from the start of a process to its first result, without the start of the driver."""
    series = [
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
    for label, way, kind in series:
        if way not in result["figures"]:  # that peer was not there
            continue
        found = result["figures"][way]
        rows.append(Bar(label, found["beyond"], kind, (found["beyond_q1"], found["beyond_q3"])))
    left_out = "The driver's own start, 200 ms on this machine, is left out."
    notes = [
        f"Medians of 9 processes (peers: 3) with quartiles. {left_out}",
        _machine(result, "cupy-cuda13x", "torch", "triton", "cuda-core", "warp-lang", "numba-cuda", "numba-cuda-mlir"),
    ]
    return Chart("From the start of a process to the first result", rows, notes, unit="ms", digits=0)


def build_time(result: dict[str, Any]) -> Chart:
    """Return build times and nvcc's."""
    series = [
        ("nvcc, the same in C++", "fifty, nvcc", "base"),
        ("aotcuda, cold", "fifty, cold", "own"),
        ("aotcuda, one kernel edited", "fifty, one kernel edited", "own"),
        ("aotcuda, nothing changed", "fifty, again", "own"),
    ]
    rows = []
    for label, case, kind in series:
        found = result["figures"][case]
        rows.append(Bar(label, found["median"], kind, (found["q1"], found["q3"])))
    runs = result["figures"]["fifty, cold"]["runs"]
    notes = [f"Fifty kernels for five GPU generations. Median of {runs} runs and quartiles.", _machine(result)]
    return Chart("Building a wheel", rows, notes, unit="s", digits=1)


def package(result: dict[str, Any]) -> Chart:
    """Return the kernels of a real package, compiled by the JIT and packaged: a dot for each."""
    rows = []
    for name, key, unit in (("First call", "first_call_ms", "ms"), ("Launch", "launch_us", "µs")):
        pairs = list(result[key]["each"].values())
        ways = (("packaged", "own"), ("Numba's JIT", "other"))
        rows.append(
            [Dots(f"{name}, {way}", [pair[at] for pair in pairs], kind, unit) for at, (way, kind) in enumerate(ways)]
        )
    title = f"The {result['kernels']} kernels of xarray-spatial, compiled by the JIT and packaged"
    notes = ["A dot for each kernel; below the dots quartiles and median.", f"{result['gpu']}; xarray_spatial.json"]
    return Chart(title, rows, notes)


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
