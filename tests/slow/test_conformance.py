"""Test a part of the conformance suite on the CPU, and the documented results of the suite on a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from aotcuda import registry
from aotcuda.builder.frontends.numba_cuda_mlir.fault_table import FAULTS
from integration import projects
from integration.test_lowering import lowered
from slow.conformance import project
from slow.conformance.cases import CASES
from support.front_ends import MLIR, NUMBA

if TYPE_CHECKING:
    from pathlib import Path

    from slow.conftest import Extent

RESULTS = projects.CHECKOUT / "docs" / "results"
UNALIGNED = {"record/read-packed", "record/write-packed"}
"""Cases that end a kernel only on a GPU, because CPUs read unaligned numbers."""
REFUSED_SINCE = {"view/reshape"}
"""Cases that builds refuse, and had not refused when the results on a GPU were recorded."""


def report(front_end: str) -> dict:
    """Return the results of the suite with the installed release of a front end's compiler."""
    path = RESULTS / f"conformance_{front_end}_{version(front_end)}.json"
    return json.loads(path.read_text())


@pytest.mark.front_end(MLIR)  # its code for compute capability 10.0 is in a dialect that LLVM compiles for the CPU
def test_kernels_compute_the_results_of_the_gpu_suite(front_end: str, tmp_path: Path, extent: Extent) -> None:
    results = report(front_end)
    examples = [case for fault in FAULTS.values() for case in fault.cases]
    names = [
        name
        for name in dict.fromkeys([*examples, *[*CASES][:: extent.part(80, 1)]])
        if name not in {*results["refused"], *UNALIGNED, *REFUSED_SINCE}
    ]
    cases = [case for case in map(CASES.get, names) if case.oracle == "python" and not case.gpu]
    kernels = lowered(project.write(tmp_path / "project", front_end, cases, ["sm_100"]), "texts", front_end)
    command = [sys.executable, "-m", "slow.conformance.host"]
    tests = projects.CHECKOUT / "tests"
    done = subprocess.run(command, cwd=tests, input=json.dumps(kernels), capture_output=True, text=True, check=False)
    *started, wrong = done.stdout.splitlines()
    assert done.returncode == 0, f"{wrong}: {done.stderr}"
    assert len(started) == len(cases)
    assert len(cases) > 50
    failed = {case.name for case in cases} & results["failed"].keys()
    extent.write("conformance_cpu", release=version(front_end), cases=len(cases), wrong=sorted(json.loads(wrong)))
    assert {*json.loads(wrong)} == failed


ACCEPTED = [f"{MLIR}_{release}" for release in registry.BUILT_IN[MLIR].tested]


@pytest.mark.parametrize("name", [*ACCEPTED, f"{NUMBA}_{registry.BUILT_IN[NUMBA].tested[-1]}"])
def test_accepted_release_has_results_of_each_case_that_they_cover(name: str) -> None:
    """The next run on a GPU covers cases that were added since."""
    results = json.loads((RESULTS / f"conformance_{name}.json").read_text())
    covered = results["covers"].split()
    assert {*covered} <= CASES.keys(), "results have cases that are gone: run bench/conformance.py again"
    assert results["cases"] + len(results["refused"]) == len(covered) == len({*covered})
    assert results["cases"] == results["passed"] + len(results["failed"])
    assert {*results["failed"], *results["refused"]} <= {*covered}


@pytest.mark.parametrize("fault", FAULTS)
def test_known_fault_names_the_releases_that_show_it(fault: str) -> None:
    for release in registry.BUILT_IN[MLIR].tested:
        results = json.loads((RESULTS / f"conformance_{MLIR}_{release}.json").read_text())
        shown = [case in results["failed"] for case in FAULTS[fault].cases if case in results["covers"].split()]
        assert (all(shown) and shown) if release in FAULTS[fault].releases else not any(shown), release
