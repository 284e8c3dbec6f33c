"""Draw charts of measured figures by matplotlib, as SVG with text, readable on light and dark pages.

`python bench/results.py` writes them into docs/pictures, with the extra `bench`. The other pictures there are diagrams,
which are edited by hand.
"""

from __future__ import annotations

import html
import io
import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
COLOURS = {"own": "#5a9a1e", "other": "#8b95a1", "base": "#4a76a8"}
INK = "#767e89"
_INK_OF_SITE = f"var(--color-foreground-secondary, {INK})"  # the site has a light and a dark style
_NOTE = 110
"""Characters of a note that fit into a line."""


@dataclass(frozen=True)
class Bar:
    """A bar, and the range of the measurements around its end.

    Attributes:
        label: The name of the measurement.
        value: Its length.
        kind: `own`, `other` or `base`: a key of `COLOURS`.
        spread: The range; None if it is unknown.
    """

    label: str
    value: float
    kind: str
    spread: tuple[float, float] | None = None


@dataclass(frozen=True)
class Dots:
    """Many values of a measurement, on a logarithmic scale, with their quartiles and median.

    Attributes:
        label: The name of the measurement.
        values: The values.
        kind: As for `Bar`.
        unit: Their unit.
    """

    label: str
    values: list[float]
    kind: str
    unit: str


@dataclass(frozen=True)
class Chart:
    """A picture: its title, its rows from top to bottom, and notes below them; `unit` and `digits` are of bars."""

    title: str
    rows: list[Bar] | list[list[Dots]]
    notes: list[str]
    unit: str = ""
    digits: int = 0

    def values(self) -> list[str]:
        """Return the measured values as the picture writes them."""
        bars = [row for row in self.rows if isinstance(row, Bar)]
        return [f"{bar.value:.{self.digits}f} {self.unit}" for bar in bars]

    def lines(self) -> list[str]:
        """Return the lines of the notes."""
        return [line for note in self.notes for line in textwrap.wrap(note, _NOTE)]


def render(chart: Chart) -> str:
    """Return the picture of a chart as SVG. The same chart and matplotlib give the same text."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    settings = {"svg.fonttype": "none", "svg.hashsalt": chart.title, "font.size": 10}
    settings |= dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor"), INK)
    with mpl.rc_context(settings):
        is_bars = isinstance(chart.rows[0], Bar)
        count = 1 if is_bars else len(chart.rows)
        size = (8.6, 0.9 + 0.3 * len(chart.rows) if is_bars else 1.0 + 1.3 * count)
        figure, axes = plt.subplots(count, 1, figsize=size, layout="constrained", squeeze=False)
        figure.suptitle(chart.title, x=0.01, ha="left", weight="bold")
        for axis, rows in zip(axes[:, 0], [chart.rows] if is_bars else chart.rows, strict=True):
            (_bars if is_bars else _dots)(axis, rows, chart)
            axis.spines[["top", "right", "left"]].set_visible(False)
            axis.tick_params(left=False)
            axis.invert_yaxis()
        figure.supxlabel("\n".join(chart.lines()), x=0.01, ha="left", size="small")
        out = io.StringIO()
        metadata = {"Title": chart.title, "Date": None, "Creator": None}
        figure.savefig(out, format="svg", transparent=True, metadata=metadata)
        plt.close(figure)
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
    text = text.replace(f": {INK}", f": {_INK_OF_SITE}")
    label = html.escape(chart.title, quote=True)
    return f'<svg role="img" aria-label="{label}"{text.partition("<svg")[2]}\n'


def _bars(axis: Any, rows: list[Bar], chart: Chart) -> None:
    for number, row in enumerate(rows):
        low, high = row.spread or (row.value, row.value)
        axis.barh(number, row.value, color=COLOURS[row.kind])
        if row.spread:
            middle = (low + high) / 2
            axis.errorbar(middle, number, xerr=(high - low) / 2, color=INK, capsize=3)
        text = chart.values()[number]
        axis.text(
            max(row.value, high), number, f"  {text}", va="center", weight="bold" if row.kind == "own" else "normal"
        )
    axis.set_yticks(range(len(rows)), [row.label for row in rows])
    axis.margins(x=0.12)
    axis.xaxis.set_visible(False)
    axis.spines["bottom"].set_visible(False)


def _dots(axis: Any, rows: list[Dots], _: Chart) -> None:
    for number, row in enumerate(rows):
        axis.plot(row.values, [number] * len(row.values), "o", ms=5, alpha=0.7, color=COLOURS[row.kind])
        quarters = quantiles(row.values, n=4)
        axis.plot(quarters, [number + 0.3] * 3, "|-", color=INK)
    axis.set_xscale("log")
    axis.set_yticks(range(len(rows)), [row.label for row in rows])
    axis.margins(y=0.3)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g} {rows[0].unit}")
    axis.xaxis.set_minor_formatter(lambda *_: "")


def charts() -> dict[str, Chart]:
    """Return the charts of results, by the name of their picture."""
    return {
        "launch": launch(_result("launch")),
        "cold_start": cold_start(_result("cold_start")),
        "build_time": build_time(_result("build")),
        "package": package(_result("xarray_spatial")),
    }


def launch(result: dict[str, Any]) -> Chart:
    """Return the host time of a call, with its quartiles."""
    series = [
        ("aotcuda, PyTorch's tensors", "torch: one grid", "aotcuda, C"),
        ("apache-tvm-ffi, PyTorch's tensors", "torch: one grid", "apache-tvm-ffi"),
        ("Triton, PyTorch's tensors", "torch: one grid", "Triton"),
        ("aotcuda, CuPy's arrays", "cupy: one grid", "aotcuda, C"),
        ("CuPy RawKernel, nothing checked", "cupy: one grid", "RawKernel"),
        ("numba-cuda, CuPy's arrays", "cupy: one grid", "numba-cuda"),
        ("Warp, its own arrays", "warp: one grid", "Warp"),
    ]
    rows = []
    for label, case, way in series:
        if found := result["figures"].get(case, {}).get(way):  # that peer was there
            rows.append(_bar(label, found))
    notes = [
        f"One scalar, three arrays, default stream. Medians of {result['blocks']} blocks with quartiles.",
        _machine(result),
    ]
    return Chart("Host time of a launch", rows, notes, unit="µs", digits=1)


def cold_start(result: dict[str, Any]) -> Chart:
    """Return the time from the start of a process to its first result, imports and the driver's start included."""
    series = [
        ("C, the same image", "C, the same image"),
        ("aotcuda", "aotcuda, first-use"),
        ("aotcuda, CuPy's arrays", "aotcuda, CuPy's arrays"),
        ("CuPy RawKernel, from its cache", "CuPy RawKernel, from its cache"),
        ("cuda.core, compiled", "cuda.core, compiled"),
        ("Warp, from its cache", "Warp, from its cache"),
        ("numba-cuda, cache=True", "numba-cuda, cache=True"),
        ("numba-cuda-mlir", "numba-cuda-mlir"),
        ("aotcuda, PyTorch's tensors", "aotcuda, PyTorch's tensors"),
        ("PyTorch and Triton, from its cache", "PyTorch and Triton, from its cache"),
    ]
    rows = []
    for label, way in series:
        if found := result["figures"].get(way):  # that peer was there
            kind = "own" if label.startswith("aotcuda") else "base" if label.startswith("C,") else "other"
            spread = (found["total_q1"], found["total_q3"]) if "total_q1" in found else None
            rows.append(Bar(label, found["total"], kind, spread))
    notes = [
        "Medians of several processes with quartiles; imports and the driver's start are included.",
        _machine(result, "cupy-cuda13x", "torch", "triton", "cuda-core", "warp-lang", "numba-cuda", "numba-cuda-mlir"),
    ]
    return Chart("From the start of a process to the first result", rows, notes, unit="ms", digits=0)


def build_time(result: dict[str, Any]) -> Chart:
    """Return build times and nvcc's."""
    series = [
        ("nvcc, the same in C++", "fifty, nvcc"),
        ("aotcuda, cold", "fifty, cold"),
        ("aotcuda, one kernel edited", "fifty, one kernel edited"),
        ("aotcuda, nothing changed", "fifty, again"),
    ]
    rows = [_bar(label, result["figures"][case]) for label, case in series]
    runs = result["figures"]["fifty, cold"]["runs"]
    notes = [f"Fifty kernels for five GPU generations. Median of {runs} runs and quartiles.", _machine(result)]
    return Chart("Building a wheel", rows, notes, unit="s", digits=1)


def _bar(label: str, found: dict[str, Any]) -> Bar:
    """Return the bar of a summary."""
    return Bar(label, found["median"], "own" if label.startswith("aotcuda") else "other", (found["q1"], found["q3"]))


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
