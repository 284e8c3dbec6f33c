"""Test the tables of GPUs, drivers and toolkits against the installed compilers and the docs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from aotcuda.arch import parse
from aotcuda.builder.plan import toolchain
from aotcuda.common import gpu_facts
from aotcuda.gpus import CAPABILITIES, driver_name
from aotcuda.tools.check import gpus

ROOT = Path(__file__).parents[2]
NEWEST = gpu_facts.branches()[-1]
"""The newest driver branch."""


def test_gpu_is_found_by_each_of_its_names():
    for row in CAPABILITIES:
        for name in (*row.examples, *row.names):
            assert gpus.gpu(name).capability == row.number
            assert gpus.gpu(name.removeprefix("NVIDIA ").lower().replace(" ", "")).capability == row.number


def test_installed_toolchain_supports_the_listed_gpus():
    installed = toolchain.toolkit_version()
    listed = [row.number for row in CAPABILITIES if row.known_to(installed)]
    assert listed == [*toolchain.supported_capabilities()]


def test_table_of_the_page_is_the_one_that_its_script_writes():
    page = ROOT.joinpath("docs", "targets.md").read_text()
    insert = runpy.run_path(str(ROOT / "tools" / "gpu_table.py"))["insert"]
    assert page == insert(page), "run python tools/gpu_table.py"
    assert insert(page.replace("| Turing |", "| Turning |")) == page


@pytest.mark.parametrize(
    ("target", "toolkit", "compression", "lowest"),
    [
        ("sm_75", (13, 0), "", "580.65"),
        ("sm_75", (12, 9), "", "525.60"),
        ("sm_75", (12, 9), "size", "550.54"),
        ("sm_90a", (12, 0), "", "525.60"),
        ("sm_100", (12, 9), "", "570.26"),
        ("sm_121", (12, 9), "", "575.51"),
        ("sm_107", (13, 5), "", "615"),
        ("compute_75", (12, 9), "", "575.51"),
        ("compute_75", (13, 2), "", "595.45"),
        ("compute_120", (12, 8), "size", "570.26"),
        ("compute_75", (99, 0), "", None),
        ("sm_90", (99, 0), "", None),
    ],
)
def test_lowest_driver_of_an_image(target, toolkit, compression, lowest):
    driver = gpu_facts.min_driver(parse(target), toolkit, compression=compression)
    assert (driver and gpu_facts.short(driver)) == lowest


@pytest.mark.parametrize(
    ("images", "lowest"),
    [
        ("sm_75@12.9 sm_120@12.9 compute_75@12.9", "525.60"),
        ("sm_120@12.9 compute_75@12.9", "570.26"),
        ("sm_110@13.5 sm_120@12.9 compute_75@12.0", "570.26"),
        ("compute_75@12.9", "575.51"),
        ("compute_75@12.0", "525.60"),
        ("sm_90@13.0", "580.65"),
        ("", None),
    ],
)
def test_lowest_driver_of_a_module_loads_machine_code_if_it_has_any(images, lowest):
    pairs = [image.split("@") for image in images.split()]
    assert gpu_facts.lowest_driver((parse(target), gpu_facts.pair(cuda)) for target, cuda in pairs) == lowest


def test_ptx_versions_equal_those_of_the_bindings():
    from cuda.bindings.utils import get_minimal_required_cuda_ver_from_ptx_ver

    for isa, (major, minor) in gpu_facts.ptx_versions():
        assert get_minimal_required_cuda_ver_from_ptx_ver(gpu_facts.dotted(isa)) == 1000 * major + 10 * minor, isa
    assert gpu_facts.cuda_of_ptx((9, 9)) is None


@pytest.mark.parametrize(
    ("target", "builders"),
    [
        ("sm_107", "CUDA 13.4 or newer"),
        ("sm_101", "CUDA 12.8 to 12.9"),
        ("sm_90a", "CUDA 11.8 or newer"),
        ("sm_70", "CUDA 9.0 to 12.9"),
        ("sm_90f", ""),
        ("sm_95", ""),
    ],
)
def test_toolkits_of_a_target(target, builders):
    assert gpu_facts.builders(parse(target)) == builders


@pytest.mark.parametrize(
    ("text", "cuda", "note"),
    [
        ("535.183.01", (12, 2), ""),
        ("12.6", (12, 6), ""),
        ("CUDA 13.0", (13, 0), ""),
        ("R580", (13, 0), ""),
        ("585", (13, 0), "no known branch"),
        ("550.40", (12, 4), "older than 550.54.14, the first driver that is known to support CUDA 12.4"),
        ("470.57", (11, 8), "older than 525.60"),
        (f"{NEWEST.number + 1}.10", NEWEST.cuda, f"newer than {NEWEST.number}"),
    ],
)
def test_cuda_version_of_a_driver(text, cuda, note):
    driver = gpus.driver(text)
    assert driver.cuda == cuda
    assert driver.note.startswith(note)
    assert bool(driver.note) == bool(note)


@pytest.mark.parametrize("text", ["", "5800", "five", "13.9", "580.65.06.1", "-525"])
def test_unknown_driver_gets_correct_examples(text):
    with pytest.raises(gpus.TargetError) as caught:
        gpus.driver(text)
    (line,) = str(caught.value).splitlines()
    branches = f"525 or {NEWEST.number}"
    assert f"write a branch such as {branches}, a driver such as 580.65.06, or the CUDA version" in line


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("H10O", "H100"),
        ("RTX 509", "RTX 5090"),
        ("RTX 6000", "Quadro RTX 6000"),
        ("Jetson Orin", "Jetson AGX Orin"),
        ("", "'sm_90'"),
        ("sm_95", "one of sm_60"),
        ("sm_9", "is no target"),
    ],
)
def test_unknown_gpu_gets_the_nearest_names(text, names):
    with pytest.raises(gpus.TargetError) as caught:
        gpus.gpu(text)
    (line,) = str(caught.value).splitlines()
    assert names in line


@pytest.mark.parametrize(
    ("text", "capability"), [("sm_90", (9, 0)), ("9.0", (9, 0)), ("sm_101", (11, 0)), ("NVIDIA A100-SXM4-80GB", (8, 0))]
)
def test_gpu_is_found_by_capability_or_driver_name(text, capability):
    assert gpus.gpu(text).capability == capability


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("H100", "NVIDIA H100 80GB HBM3"),
        ("h200", "NVIDIA H200"),
        ("A100", "NVIDIA A100-SXM4-80GB"),
        ("RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("T4", "Tesla T4"),
        ("no GPU", "no GPU"),
    ],
)
def test_short_names_stand_for_the_names_of_the_driver(written: str, name: str) -> None:
    assert driver_name(written) == name


def test_usual_boards_are_in_the_table() -> None:
    names = {name for row in CAPABILITIES for name in row.names}
    assert {driver_name(example) for row in CAPABILITIES for example in row.examples} <= names
