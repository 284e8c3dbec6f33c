"""The conformance suite's cases and their reference, without a compiler."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from support.conformance import outcome, page
from support.conformance.case import Case
from support.conformance.cases import CASES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("group", dict.fromkeys(case.group for case in CASES.values()))
def test_no_two_threads_of_a_case_write_one_element(group: str) -> None:
    for case in CASES.values():
        if case.group == group and case.oracle == "python":
            assert outcome.expected(case), case.name  # or it raises


def test_a_case_whose_threads_write_one_element_is_refused() -> None:
    places = np.array([0, 3, 3], "int8")
    case = Case(name="a/b", body="i = cuda.grid(1)\nx[p[i]] += 1", arguments={"x": np.zeros(4), "p": places}, threads=3)
    with pytest.raises(ValueError, match="a/b: thread 2 changes an element that an earlier thread has changed"):
        outcome.expected(case)
    atomic = replace(case, body="i = cuda.grid(1)\ncuda.atomic.add(x, p[i], 1)")
    assert [*outcome.expected(atomic)["x"]] == [1, 0, 0, 2]


def test_a_case_of_few_threads_is_launched_with_no_more() -> None:
    case = Case(name="a/b", body="", arguments={}, threads=3)
    assert case.launch == (1, 3)
    assert replace(case, threads=130).launch == (3, 64)
    assert all(blocks * size == case.threads for case in CASES.values() for blocks, size in [case.launch])


def test_the_table_is_made_anew_from_the_results(tmp_path: Path) -> None:
    for release, machine in (("0.10.0", {"gpu": "GPU 0 (NVIDIA H100, compute capability 9.0)"}), ("0.9.1", {})):
        report = {"compiler": "numba-cuda", "release": release, "machine": machine, "by": "PTX on the CPU"}
        report |= {"cases": 1534, "passed": 1532, "failed": {"a/b": "", "a/c": ""}, "refused": {"d/e": ""}}
        (tmp_path / f"conformance_{release}.json").write_text(json.dumps(report))
    made = page.with_table(f"before\n{page.HEAD}| an old row |\n\nafter | 1 |\n", tmp_path)
    assert made == (
        f"before\n{page.HEAD}| numba-cuda 0.9.1 | 1,534 | 1,532 | 2 | 1 | PTX on the CPU |\n"
        "| numba-cuda 0.10.0 | 1,534 | 1,532 | 2 | 1 | NVIDIA H100 |\n\nafter | 1 |\n"
    )
    assert page.with_table(made, tmp_path) == made
    with pytest.raises(ValueError, match="it has no table of results"):
        page.with_table("before\n", tmp_path)
