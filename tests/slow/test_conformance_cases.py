"""Test the cases of the conformance suite and their reference, without a compiler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slow.conformance import outcome
from slow.conformance.case import Case
from slow.conformance.cases import CASES


def test_no_two_threads_of_a_case_write_one_element() -> None:
    for case in CASES.values():
        if case.oracle == "python":
            assert outcome.expected(case), case.name  # or it raises


def test_a_case_whose_threads_write_one_element_is_refused() -> None:
    places = np.array([0, 3, 3], "int8")
    case = Case(name="a/b", body="i = cuda.grid(1)\nx[p[i]] += 1", arguments={"x": np.zeros(4), "p": places}, threads=3)
    with pytest.raises(ValueError, match="a/b: thread 2 changes an element that an earlier thread has changed"):
        outcome.expected(case)
    atomic = replace(case, body="i = cuda.grid(1)\ncuda.atomic.add(x, p[i], 1)")
    assert [*outcome.expected(atomic)["x"]] == [1, 0, 0, 2]
