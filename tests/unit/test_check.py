"""Test the output of `aotcuda check` for a wheel, a folder and one pair, the requirements of CI, and bad input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aotcuda.cli import main
from aotcuda.common import gpu_facts
from aotcuda.tools import packs
from support import manifests, modules

if TYPE_CHECKING:
    from pathlib import Path

NEWEST = gpu_facts.branches()[-1]
"""The newest driver branch."""

LACKING = "mypkg.kernels has no image for it with driver"
RECIPE = {"table": {}, "names": {}, "root": "mypkg/kernels.aotcuda/sources", "files": []}
CUDA_12 = {"toolchain": {"cuda": "12.9"}, "min_driver": "525.60"}
WIDE = ("sm_75", "sm_80", "sm_87", "sm_90", "sm_100", "sm_120", "compute_75")


@pytest.fixture
def package(tmp_path: Path):
    def write(*targets: str, **changes: object) -> str:
        kernels = [manifests.kernel("axpy", "void(float32)")]
        manifests.write(tmp_path, kernels, targets=targets or WIDE, **changes)
        return str(tmp_path)

    return write


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `aotcuda check`; return the exit code, the output and the line of the error."""
    code = main(["check", *arguments])
    output = capsys.readouterr()
    assert len(output.err.splitlines()) == (0 if code == 0 else 1)
    return code, output.out, output.err.removeprefix("aotcuda: ").rstrip("\n")


def test_table_has_a_row_per_gpu_and_joins_equal_drivers(package, capsys):
    code, out, _ = run(capsys, package("sm_75", "sm_80", "sm_87", "sm_90", "compute_90", **CUDA_12))
    assert code == 0
    assert "images      sm_75 from 525.60, sm_80 from 525.60, sm_87 from 525.60, sm_90 from 525.60," in out
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ") and line[2:3].isdigit()}
    assert [*rows] == [row.removesuffix(".") for row in rows]
    assert rows["8.6"].split()[-1] == "sm_80"
    assert {*rows["8.7"].split("Orin")[1].split()} == {"sm_87"}
    first, *others = rows["12.0"].split("6000")[1].split()
    assert (first, {*others}) == ("-", {"compute_90"})
    assert {*rows["10.7"].split("R200")[1].split()} == {"compute_90"}
    driver, cuda = (line for line in out.splitlines() if line.strip().startswith(("driver  ", "CUDA  ")))
    assert driver.split()[1:4] == ["525", "to", "565"]
    assert cuda.split()[1:4] == ["12.0", "to", "12.7"]


@pytest.mark.parametrize(
    ("targets", "changes", "notes"),
    [
        (WIDE[:2], {}, ['-: fallback = "error" compiles nothing']),
        (WIDE[:2], {"fallback": "jit"}, ["-: the package has no recipe for the JIT fallback"]),
        (
            WIDE[:2],
            {"fallback": "jit", "rebuild": RECIPE},
            ["JIT: compiled where aotcuda[jit-cu12] or aotcuda[jit-cu13] is installed"],
        ),
    ],
)
def test_table_has_one_note_for_each_reason(package, capsys, targets, changes, notes):
    _, out, _ = run(capsys, package(*targets, **changes))
    (block,) = [block for block in out.split("\n\n") if "no image: " in block]
    assert block.splitlines() == [
        "  no image: none of the packaged images runs on the GPU",
        "  no image: the images need CUDA 13.0, which driver 580.65 or newer has; update the driver",
        *(f"  {note}" for note in notes),
    ]


def test_each_module_of_a_wheel_is_checked(tmp_path, capsys):
    wheel = modules.write_wheel(tmp_path, "mypkg.a", "mypkg.b")
    code, out, _ = run(capsys, str(wheel), "--json")
    assert code == 0
    report = json.loads(out)
    assert [module["name"] for module in report["modules"]] == ["mypkg.a", "mypkg.b"]
    assert report["version"] == 1


def test_json_has_a_cell_with_reasons_for_each_pair(package, capsys):
    _, out, _ = run(capsys, package(), "--json")
    (module,) = json.loads(out)["modules"]
    cells = {(cell["capability"], cell["driver"]): cell for cell in module["cells"]}
    assert len(cells) == len({capability for capability, _ in cells}) * len(gpu_facts.branches())
    cell = cells["8.9", "580.65"]
    assert (cell["takes"], cell["image"], cell["supported"], cell["cuda"]) == ("same-major", "sm_80", True, "13.0")
    assert {"image": "compute_75", "why": "would also run here, but sm_80 is preferred"} in cell["not_taken"]
    assert cells["12.0", "525.60"]["supported"] is False
    assert module["images"][0] == {"arch": "sm_75", "kind": "sass", "min_driver": "580.65"}


@pytest.mark.parametrize(
    ("gpu", "driver", "takes"),
    [
        ("RTX 5090", "580", "sm_120: machine code for exactly this compute capability"),
        ("sm_86", "13.0", "sm_80: machine code for compute capability 8.0, which runs on later ones"),
        ("Jetson T5000", "13.0", "compute_75: PTX for compute capability 7.5 that the driver compiles for this GPU"),
    ],
)
def test_one_pair_is_described_in_words(package, capsys, gpu, driver, takes):
    code, out, _ = run(capsys, package(), "--gpu", gpu, "--driver", driver)
    assert code == 0
    assert takes in " ".join(out.split())
    assert "  not         sm_75: " in out


@pytest.mark.parametrize(
    ("changes", "arguments", "problem"),
    [
        ({}, ("--gpu", "A100", "--driver", "535"), "the driver supports CUDA 12.2, and the images need CUDA 13.0"),
        ({}, ("--gpu", "A100", "--driver", "470"), "the run time needs a driver for CUDA 12.0: 525.60 or newer"),
        (
            {},
            ("--gpu", "RTX 5090", "--driver", "525"),
            "does not support this GPU; the first that does is 570.26 (CUDA 12.8)",
        ),
        (
            {},
            ("--gpu", "V100", "--driver", "590"),
            "the driver does not support this GPU; the last branch that does is 580",
        ),
        ({"fallback": "jit"}, ("--gpu", "A100", "--driver", "535"), "the package has no recipe for the JIT fallback"),
    ],
)
def test_pair_without_a_usable_image_gives_exit_code_1(package, capsys, changes, arguments, problem):
    code, out, error = run(capsys, package(**changes), *arguments)
    assert code == 1
    assert error.startswith("mypkg.kernels: nothing runs on ")
    assert problem in error
    assert out


def test_jit_fallback_is_predicted_with_the_extra_to_install(package, capsys):
    code, out, _ = run(capsys, package(fallback="jit", rebuild=RECIPE), "--gpu", "A100", "--driver", "535")
    assert code == 0
    assert "takes       JIT: " in out
    assert "aotcuda[jit-cu12] is installed" in " ".join(out.split())


@pytest.mark.parametrize(
    ("targets", "changes", "require", "unmet"),
    [
        (WIDE, CUDA_12, "A100,H100,L4,RTX 5090@525", ""),
        (WIDE, {}, "A100@580, H100@580; RTX 5090@580.65.06", ""),
        (WIDE, {}, "RTX 5090@525", "RTX 5090@525: mypkg.kernels has no image for it with driver 570.26 to 575.51: "),
        (
            ("sm_90",),
            {},
            "A100@580,H100@580",
            f"A100@580: {LACKING} 580 to {NEWEST}: ",
        ),
        (("sm_90",), {"fallback": "jit", "rebuild": RECIPE}, "A100@615", "A100@615: mypkg.kernels has no image for it"),
        (("sm_80",), {}, "Jetson AGX Orin@13.0", "Jetson AGX Orin@13.0: mypkg.kernels has no image"),
    ],
)
def test_required_gpus_are_checked(package, capsys, targets, changes, require, unmet):
    code, out, error = run(capsys, package(*targets, **changes), "--require", require)
    assert (code, error[: len(unmet)]) == (int(bool(unmet)), unmet)
    assert out.startswith(unmet or "mypkg.kernels has images for all GPUs of --require\n")
    assert len(out.splitlines()) == 1


BIG = {"kernel": "big", "signature": "void(float32)", "reason": "it needs 256 KiB of shared memory"}


@pytest.mark.parametrize(
    ("launches", "targets", "require", "unmet"),
    [
        ([["sm_90"]], ["sm_80"], "H100@580", ""),
        (
            [["sm_90"]],
            ["sm_80"],
            "H100@580, A100@580",
            "A100@580: mypkg.kernels lacks big in its image sm_80: it needs",
        ),
        ([["sm_90"], ["sm_80", "sm_90"]], ["sm_80"], "A100@580", ""),  # another variant serves it
        ([], ["sm_80", "sm_90"], "H100@580", "H100@580: mypkg.kernels lacks big in its image sm_90: it needs"),
    ],
)
def test_required_gpus_need_each_kernel_in_their_images(tmp_path, capsys, launches, targets, require, unmet):
    every = ("sm_80", "sm_90")
    axpy = manifests.kernel(
        "axpy",
        "void(float32)",
        launches={arch: {"threads": 128, "shared": 0} for arch in every},
    )
    big = manifests.kernel("big", *["void(float32)", "void(float64)"][: len(launches)])
    for overload, archs in zip(big["overloads"], launches, strict=True):
        overload["launches"] = {arch: {"threads": 128, "shared": 0} for arch in archs}
    left_out = [{**BIG, "target": target} for target in targets]
    kernels = [axpy, big] if launches else [axpy]
    manifests.write(tmp_path, kernels, targets=every, left_out=left_out, by_grid=True)
    code, out, error = run(capsys, str(tmp_path), "--require", require)
    assert (code, error[: len(unmet)]) == (int(bool(unmet)), unmet)
    assert f"mypkg.kernels: left out: big for {targets[0]}" in out
    assert ("has images for all GPUs of --require" in out) == (not unmet)


def test_unmet_requirements_are_reported_in_one_line(package, capsys):
    _, _, error = run(capsys, package("sm_90"), "--require", "A100,T4,RTX 5090", "--driver", "580")
    assert error.endswith("compiles nothing. Nor are these served: T4, RTX 5090")
    _, out, _ = run(capsys, package("sm_90"), "--require", "T4,H100", "--json")
    assert [item["item"] for item in json.loads(out)["unmet"]] == ["T4", "H100"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--gpu", "RTX 509O"), "the nearest names are RTX 5090"),
        (("--gpu", "sm_52"), "'sm_52' is older than all known GPUs; write a compute capability, one of sm_60"),
        (("--gpu", "M40"), "no GPU is known by the name 'M40', from Pascal on; the nearest names are "),
        (("--driver", "58O"), f"'58O' is no known driver version; write a branch such as 525 or {NEWEST.number}"),
        (("--require", "A100,H10O"), "no GPU is known by the name 'H10O'"),
        (("--require", "A100@"), "'A100@' in --require has no driver after its @; write one, as in 'A100@535'"),
        (("--require", " , "), "--require names no GPU; write a list such as 'A100,H100,RTX 5090@525'"),
    ],
)
def test_bad_input_gets_one_line_with_a_correct_example(package, capsys, arguments, problem):
    code, out, error = run(capsys, package(), *arguments)
    assert (code, out) == (1, "")
    assert problem in error


def test_targets_that_cannot_be_checked_are_refused(package, tmp_path, capsys):
    package()
    manifests.write(tmp_path / "functions", [], functions=("add",), min_driver=None)
    for target, problem in (
        (next(tmp_path.rglob("kernels.fatbin")), "is an image without a manifest, so its toolchain is unknown"),
        (tmp_path / "nothing", "there is no file, folder or importable module"),
        (tmp_path / "functions", "has no kernels; device functions run where the code that links them runs"),
    ):
        code, _, error = run(capsys, str(target))
        assert code == 1
        assert problem in error


def test_modules_with_equal_predictions_share_a_table(tmp_path, capsys):
    for name, targets in {"one": WIDE, "two": WIDE, "other": WIDE[:2]}.items():
        kernels = [manifests.kernel("axpy", "void(float32)")]
        manifests.write(tmp_path / name, kernels, targets=targets)
    code, out, _ = run(capsys, *(str(tmp_path / name) for name in ("one", "two", "other")))
    assert code == 0
    assert len([line for line in out.splitlines() if line.startswith("  9.0")]) == 2
    assert out.splitlines().count("mypkg.kernels") == 3
    last = out.splitlines()[-1]
    assert last.startswith("3 modules have images for ")
    single = run(capsys, str(tmp_path / "one"), "--require", "H100@580")[1]
    assert single == "mypkg.kernels has images for all GPUs of --require\n"


PACK = {"source": "victim.good", "distribution": "victim", "version": "1.0"}


@pytest.mark.parametrize(
    ("problem", "reasons", "last", "error"),
    [
        ("", [None, None], "; packs serve 2 of 2 kernels in this environment", ""),
        ("", [None, "its source has changed"], "", "1 of 2 kernels are not served in this environment: victim.good.k1"),
        ("it cannot be imported", [], "", "1 of 1 kernels are not served in this environment: victim.good.axpy"),
    ],
)
def test_require_needs_each_kernel_of_an_installed_pack(
    package, capsys, monkeypatch, tmp_path, problem, reasons, last, error
):
    package(pack=PACK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path.parent)
    kernels = [
        {**PACK, "path": f"k{number}", "triton": "3.6", "installed": "1.0", "reason": reason}
        for number, reason in enumerate(reasons)
    ]
    monkeypatch.setattr(packs, "_status", lambda name, _: {"pack": name, "problem": problem, "kernels": kernels})
    code, out, message = run(capsys, "mypkg.kernels", "--require", "H100@580")
    assert code == (1 if error else 0)
    assert error in message
    assert out.splitlines()[-1].endswith(last)
    assert len(out.splitlines()) == 1 + bool(error) + bool(problem)
    assert run(capsys, "mypkg.kernels")[0] == 0
