"""Launches in a row on the general path: arguments are read and packed in one step, with the same result."""

from __future__ import annotations

import re

import pytest

from aotcuda.runtime import fast as extension
from aotcuda.runtime.arguments.overloads import OverloadTable
from support import libraries
from support.libraries import Array, State
from support.manifests import kernel


@pytest.fixture(autouse=True)
def _general_path(monkeypatch):
    monkeypatch.setattr(extension, "_found", [None])


SHAPES = (4,), (4, 4)
IN_A_ROW = {
    "line": "void(float32, float32[::1])",
    "matrix": "void(float32, float32[:,::1])",
    "no dimensions": "void(float32, float32[])",
    "any strides": "void(float32, float32[:])",
    "several overloads": "void(float64, float64[::1]); void(float32, float32[::1])",
}


@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("signatures", IN_A_ROW.values(), ids=IN_A_ROW)
def test_launches_in_a_row_are_packed_in_one_step_and_alike(cuda, monkeypatch, library, signatures):
    with libraries.installed():
        run = cuda.package(kernel("k", *signatures.split("; "))).k[1, 1]
        shape = {"[]": (), "[:,": (3, 4)}.get(re.search(r"\[(\]|:,)?", signatures)[0], (4,))
        x = libraries.make(Array(library, (State(shape=shape, address=1 << 41),)))
        other = libraries.make(Array(library, (State(shape=shape, address=1 << 42),)))
        for value in (x, x, other):
            run(2.0, value)
        monkeypatch.setattr(OverloadTable, "_fit", None)  # reads over views
        for value in (x, other):
            run(2.0, value)
    first, _, second, *direct = [(call["kernel"], call["parameters"], call["stream"]) for call in cuda.launches()]
    assert direct == [first, second]


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_dimensions_select_after_launches_in_a_row(cuda, library):
    """A parameter for any number of dimensions does not take what another overload is nearer to."""
    record = kernel("k", "void(float32[:,::1])", "void(float32[::1])")
    buffer = record["overloads"][1]["parameters"][0]
    buffer.update(kind="buffer", type="float *")
    with libraries.installed():
        run = cuda.package(record).k[1, 1]
        line, matrix = (
            libraries.make(Array(library, (State(shape=shape, address=1 << 41),))) for shape in [(4,), (4, 4)]
        )
        for value in (line, line, line, line, matrix, line, matrix, matrix, matrix, matrix, line):
            run(value)
    taken = [call["kernel"] for call in cuda.launches()]
    assert taken == [f"k_{number}" for number in (1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 1)]
