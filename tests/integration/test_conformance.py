"""A part of the conformance suite on the CPU: what each front end's PTX leaves in its arrays.

`bench/conformance.py` runs the whole suite on a GPU; its results are in docs/results. What is wrong there is wrong here.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from integration import projects
from support import ptx
from support.conformance import outcome, project
from support.conformance.cases import CASES
from support.images import cuobjdump

if TYPE_CHECKING:
    from pathlib import Path

    from support.conformance.case import Case

RESULTS = projects.CHECKOUT / "docs" / "results"
FAULTY = (
    *("atomic/index-uint8", "atomic/add-int64-int32", "atomic/max-uint32-uint32", "slice/m__m1", "slice/1_m1"),
    *("index/read-uint8", "cube/int32", "round/round-float64", "math/sqrt-uint32", "grid/far"),
)
"""Cases of the faults that releases are known for."""


def sample() -> list[Case]:
    """The cases of known faults, and one in twenty-five of all."""
    found = [CASES[name] for name in FAULTY if name in CASES]
    return [*found, *(case for case in [*CASES.values()][::25] if case not in found and not case.gpu)]


@pytest.fixture(scope="module")
def wheel(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("conformance") / "project"
    refused = report(front_end)["refused"]
    cases = [case for case in sample() if case.name not in refused]
    project.write(folder, front_end, cases, ["compute_75"])
    return projects.content(projects.build_wheel(folder))


def report(front_end: str) -> dict:
    """The results of the suite with the installed release of a front end's compiler."""
    path = RESULTS / f"conformance_{front_end}_{version(front_end)}.json"
    return json.loads(path.read_text())


def test_kernels_compute_what_the_suite_has_found_on_a_gpu(front_end: str, wheel: dict[str, bytes]) -> None:
    failed = report(front_end)["failed"]
    said = {}
    for path in (path for path in wheel if path.endswith("manifest.json")):
        manifest = json.loads(wheel[path])
        text = cuobjdump(wheel[f"{os.path.dirname(path)}/kernels.fatbin"], "-ptx")
        said |= run(ptx.Program(text), manifest)
    assert len(said) > 50
    assert {name for name, wrong in said.items() if wrong} == said.keys() & failed.keys()


def run(program: ptx.Program, manifest: dict) -> dict[str, bool]:
    """Whether each of a module's cases has a wrong result."""
    by_kernel = {case.kernel: case for case in CASES.values()}
    said = {}
    for kernel in manifest["kernels"]:
        case = by_kernel[kernel["name"]]
        if case.oracle == "python":
            try:
                arrays = outcome.by_ptx(case, program, kernel["overloads"][0])
            except ptx.FaultError:
                said[case.name] = True
            else:
                said[case.name] = bool(outcome.differences(case, arrays, outcome.expected(case)))
    return said
