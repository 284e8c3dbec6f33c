"""A part of the conformance suite on the CPU: what each front end's PTX leaves in its arrays.

`bench/conformance.py` runs the whole suite on a GPU, and docs/results has what it found: the same is wrong here.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from aotcuda import registry
from aotcuda.builder.frontends.numba_cuda_mlir.fault_table import FAULTS
from integration import projects
from support import ptx
from support.conformance import outcome, page, project
from support.conformance.cases import CASES
from support.front_ends import MLIR, NUMBA
from support.images import cuobjdump

if TYPE_CHECKING:
    from support.conformance.case import Case

RESULTS = projects.CHECKOUT / "docs" / "results"
SHOWING = [*dict.fromkeys(case for fault in FAULTS.values() for case in fault.cases)]
"""Cases of the faults that releases are known for."""


def sample() -> list[Case]:
    """Return the cases of known faults, and one in eighty of all."""
    names = dict.fromkeys([*SHOWING, *[*CASES][::80]])
    return [CASES[name] for name in names if not CASES[name].gpu]


@pytest.fixture(scope="module")
def wheel(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("conformance") / "project"
    refused = report(front_end)["refused"]
    cases = [case for case in sample() if case.name not in refused]
    project.write(folder, front_end, cases, ["compute_75"])
    return projects.content(projects.build_wheel(folder))


def report(front_end: str) -> dict:
    """Return the results of the suite with the installed release of a front end's compiler."""
    path = RESULTS / f"conformance_{front_end}_{version(front_end)}.json"
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    "front_end", [pytest.param(NUMBA, marks=pytest.mark.matrix), MLIR], indirect=True
)  # the known faults are of the second
def test_kernels_compute_the_results_of_the_gpu_suite(front_end: str, wheel: dict[str, bytes]) -> None:
    failed = report(front_end)["failed"]
    said = {}
    for path in (path for path in wheel if path.endswith("manifest.json")):
        manifest = json.loads(wheel[path])
        text = cuobjdump(wheel[path.replace("manifest.json", "kernels.fatbin")], "-ptx")
        said |= run(ptx.Program(text), manifest)
    assert len(said) > 50
    assert {name for name, wrong in said.items() if wrong} == said.keys() & failed.keys()


def run(program: ptx.Program, manifest: dict) -> dict[str, bool]:
    """Return True if each of a module's cases has a wrong result."""
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


ACCEPTED = [f"{MLIR}_{release}" for release in registry.BUILT_IN[MLIR].tested]


@pytest.mark.parametrize("name", [*ACCEPTED, f"{NUMBA}_{registry.BUILT_IN[NUMBA].tested[-1]}"])
def test_an_accepted_release_has_results_of_every_case(name: str) -> None:
    found = json.loads((RESULTS / f"conformance_{name}.json").read_text())
    left_out = {case.name for case in CASES.values() if case.gpu} if found["by"] != "GPU" else set()
    assert found["cases"] + len(found["refused"]) == len(CASES.keys() - left_out)
    assert found["cases"] == found["passed"] + len(found["failed"])
    assert {*found["failed"], *found["refused"]} <= CASES.keys()


@pytest.mark.parametrize("fault", FAULTS)
def test_known_fault_names_the_releases_that_show_it(fault: str) -> None:
    for release in registry.BUILT_IN[MLIR].tested:
        failed = json.loads((RESULTS / f"conformance_{MLIR}_{release}.json").read_text())["failed"]
        shown = [case in failed for case in FAULTS[fault].cases]
        assert all(shown) if release in FAULTS[fault].releases else not any(shown), release


PAGE = projects.CHECKOUT / "docs" / "frontends.md"


def test_the_page_counts_the_cases_and_results() -> None:
    text = PAGE.read_text()
    assert f"The **conformance suite** has {len(CASES):,} small kernels" in text
    assert page.with_table(text, RESULTS) == text, "run python bench/conformance.py table"
