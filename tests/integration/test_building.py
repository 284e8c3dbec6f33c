"""Test imports of sources in builds: GPU queries, the prelude, warnings, and the files for a later JIT build."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import fatbin
from aotcuda.builder.entry import api, jit
from aotcuda.common.stamp import TABLE
from aotcuda.runtime.jit import build_inputs
from integration import projects
from integration.projects import refused, source, write
from support import front_ends

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = 'kernels.f = "void(int64[::1])"'

QUERIES = """
import os
from numba import cuda

BUILDING = os.environ["AOTCUDA_BUILDING"]
if cuda.is_available() and len(cuda.gpus) == 1:
    with cuda.gpus[0]:
        device = cuda.current_context().device
    assert device is cuda.get_current_device() is cuda.select_device(0)
    assert cuda.cuda_error() is None and cuda.list_devices() is cuda.gpus
    BLOCK = device.MAX_THREADS_PER_BLOCK // device.WARP_SIZE
    def f(x):
        x[0] = BLOCK
"""
DEPENDS = """
from numba import cuda

print("imported")
device = cuda.get_current_device()
MAJOR, MINOR = device.compute_capability
OPT_IN = device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
COUNT = device.MULTIPROCESSOR_COUNT

@cuda.jit
def f(x):
    x[0] = 1000000000 + MAJOR * 10 + MINOR
    x[1] = OPT_IN
"""


@front_ends.EACH
def test_source_finds_a_gpu_during_the_build(front_end: str, tmp_path: Path) -> None:
    project = write(tmp_path / "project", source(QUERIES), module=KERNEL, aotcuda='arch = ["sm_75", "sm_90"]')
    done = projects.back_end(project)
    lines = [line for line in (done.out + done.err).splitlines() if "queried a GPU" in line]
    assert "aotcuda: pkg/_k.py:6 queried a GPU for cuda.is_available() and got the answer True" in lines
    assert "aotcuda: pkg/_k.py:11 queried a GPU for MAX_THREADS_PER_BLOCK and got the answer 1024" in lines
    assert not any("imported for each" in line for line in lines)
    assert all(line.startswith("aotcuda: pkg/_k.py:") for line in lines)


def test_build_never_calls_an_installed_driver(front_end: str, driver: Path, tmp_path: Path) -> None:
    # Checked while the source is imported, since libnvJitLink calls cuInit later.
    text = (
        QUERIES + "    CAPABILITY = device.compute_capability\nassert not os.path.exists(os.environ['FAKE_CUDA_LOG'])\n"
    )
    project = write(tmp_path / "project", source(text), module=KERNEL, aotcuda='arch = ["sm_75", "sm_90"]')
    log = tmp_path / "driver.jsonl"
    environ = {"LD_LIBRARY_PATH": str(driver), "FAKE_CUDA_LOG": str(log)}
    projects.back_end(project, **environ)
    log.unlink(missing_ok=True)
    query = source("from numba import cuda\nprint(cuda.is_available())\n")
    assert projects.succeed(project, sys.executable, "-c", query, **environ).out == "True\n"
    assert "cuInit" in log.read_text(), "a call would be logged"


@front_ends.EACH
def test_source_that_reads_the_capability_is_imported_for_each_target(front_end: str, tmp_path: Path) -> None:
    arch = 'arch = ["sm_75", "sm_90", "sm_90a", "compute_90", "compute_120"]'
    project = write(tmp_path / "project", source(DEPENDS), module=KERNEL, aotcuda=arch)
    done = projects.aotcuda(project, "build", "--out", "out", "--sbom", "made/k.cdx.json")
    assert done.out.splitlines()[-1] == "made/k.cdx.json"
    assert b"module:pkg.k" in (project / "made" / "k.cdx.json").read_bytes()
    assert (done.out + done.err).count("imported\n") == 1 + 3, "to see the queries, and for each compute capability"
    assert (
        "pkg/_k.py:6 queried a GPU for compute_capability and got the answer (7, 5) or (9, 0) or (12, 0), by the "
        "target; "
        "sources were imported for each"
    ) in done.err
    assert (
        "pkg/_k.py:8 queried a GPU for MULTIPROCESSOR_COUNT and got the answer 40 or 132 or 170, by the target"
        in done.err
    )
    # The PTX of each target has the numbers of its own GPU, and of no other.
    path = project / "out" / "pkg" / "k.aotcuda" / "kernels.fatbin"
    texts = {
        item.arch: item.content.decode() for item in fatbin.read(path.read_bytes(), str(path)) if item.kind == "ptx"
    }
    assert set(texts) == {"compute_90", "compute_120"}
    for arch, text in texts.items():
        numbers = set(re.findall(r"\b1000000\d+\b", text))
        assert numbers == {f"1000000{arch.removeprefix('compute_'):0>3}"}


WARNS = """
import warnings
from numba import cuda
from numba.core.extending import overload

warnings.warn("about the source")

def helper(x):
    return x

@overload(helper, target="cuda")
def _typed(x):
    warnings.warn("about a kernel")
    return lambda x: x + 1

@cuda.jit
def f(x):
    x[0] = helper(x[0])
"""


@pytest.mark.front_end("numba-cuda")
def test_warnings_of_sources_and_compilers_are_shown_once(front_end: str, tmp_path: Path) -> None:
    project = write(tmp_path / "project", source(WARNS), module=KERNEL, aotcuda='arch = ["sm_75", "sm_90"]')
    err = projects.back_end(project, **projects.SHOWN).err
    *lines, summary = [line for line in err.splitlines() if line.startswith("aotcuda: ")]
    first, second = [line for line in lines if "UserWarning" in line]
    assert first == "aotcuda: warning: pkg/_k.py:6: UserWarning: about the source"
    assert re.fullmatch(r"aotcuda: warning: pkg/_k.py:13: UserWarning: about a kernel( \(\d times\))?", second)
    assert summary.startswith("aotcuda: built 1 module: ")
    assert err.count("about the source") == err.count("about a kernel") == 1


ANSWERS = """
import json
import numpy as np
from numba import cuda

device = cuda.get_current_device()
data = cuda.to_device(np.arange(12, dtype=np.float32).reshape(3, 4), stream=cuda.stream())
made = cuda.device_array((2, 3), np.int32)
made[:] = 7
made[0, 1] = data.shape[0]
mapped, managed, pinned = cuda.mapped_array(4), cuda.managed_array(4), cuda.pinned_array(4)
event = cuda.event()
event.record()
TABLE = data.T.copy_to_host()[1]
print("VALUES", json.dumps([
    cuda.is_available(), cuda.detect(), len(cuda.gpus), device.name, device.compute_capability, str(device.uuid),
    device.supports_bfloat16, device.supports_fp8, device.WARP_SIZE, device.MULTIPROCESSOR_COUNT,
    device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, hasattr(device, "unknown"), getattr(device, "other", 3),
    cuda.current_context().get_memory_info(), cuda.runtime.get_version()[0], made.copy_to_host().tolist(),
    cuda.device_array_like(made).copy_to_host().tolist(), data[1, 2], data[1:, ::2].copy_to_host().tolist(),
    mapped.sum(), managed.sum(), pinned.shape, event.query(), cuda.is_cuda_array(data),
], default=float))

@cuda.jit
def f(x):
    x[0] = cuda.const.array_like(TABLE)[2]
"""

OF_CUPY = """
import json
import cupy
import cupyx

device = cupy.cuda.Device()
data = cupy.arange(6, dtype=cupy.float32).reshape(2, 3)
TABLE = (data * 2).get()[1]
print("VALUES", json.dumps([
    cupy.is_available(), cupy.cuda.runtime.getDeviceCount(), device.compute_capability, device.mem_info,
    device.attributes["MultiprocessorCount"], cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
    data.device.id, TABLE.tolist(), cupyx.scipy.get_array_module(data) is cupy,
], default=float))

def f(x):
    x[0] = TABLE[2]
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ANSWERS, "[[7, 3, 7], [7, 7, 7]], [[0, 0, 0], [0, 0, 0]], 6.0, [[4.0, 6.0], [8.0, 10.0]], 0.0, 0.0"),
        (
            OF_CUPY,
            '[true, 1, "90", [68719476736, 68719476736], 132, "NVIDIA H100 80GB HBM3", 0, [6.0, 8.0, 10.0], true]',
        ),
    ],
    ids=["numba", "cupy"],
)
@front_ends.EACH
def test_build_and_dry_run_give_sources_the_same_answers(
    front_end: str, text: str, expected: str, tmp_path: Path
) -> None:
    project = write(tmp_path / "project", source(text), module=KERNEL, aotcuda='arch = ["sm_90"]')
    commands = [["build", "--out", "out"], ["record", "--gpu", "9.0", "--", sys.executable, "-c", "import pkg._k"]]
    done = [projects.aotcuda(project, *command) for command in commands]
    built, recorded = ([line for line in (each.out + each.err).splitlines() if "VALUES" in line] for each in done)
    assert built == recorded
    assert expected in built[0]


PRELUDE = """
import os, sys
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "stand_ins"))
import not_installed
ORDER = []
"""
USES_PRELUDE = """
import not_installed
import _aot_prelude
_aot_prelude.ORDER.append(__name__)
NUMBER = not_installed.number

def f(x):
    x[0] = NUMBER
"""


def with_prelude(folder: Path, aotcuda: str = "") -> Path:
    project = write(folder, USES_PRELUDE, module=KERNEL, aotcuda=f'prelude = "_aot_prelude"\n{aotcuda}')
    (project / "_aot_prelude.py").write_text(PRELUDE)
    (project / "stand_ins" / "not_installed").mkdir(parents=True)
    (project / "stand_ins" / "not_installed" / "__init__.py").write_text("number = 1000000042\n")
    return project


def test_prelude_comes_first_and_is_in_the_wheel(front_end: str, tmp_path: Path) -> None:
    files = projects.content(projects.build_wheel(with_prelude(tmp_path / "project")))
    packaged = {name for name in files if name.startswith("pkg/k.aotcuda/sources/")}
    assert packaged == {
        f"pkg/k.aotcuda/sources/{name}" for name in ("_aot_prelude.py", "stand_ins/not_installed/__init__.py")
    }
    manifest = projects.manifest_of(files, "pkg.k")
    assert {item["path"] for item in manifest["sources"]} == {"pkg/__init__.py", "pkg/_k.py"}
    assert {item["path"] for item in manifest["rebuild"]["files"]} == {
        "_aot_prelude.py",
        "stand_ins/not_installed/__init__.py",
    }
    files = projects.content(projects.build_wheel(with_prelude(tmp_path / "error", 'fallback = "error"')))
    assert not [name for name in files if "/sources/" in name]


def test_failing_prelude_is_refused(front_end: str, tmp_path: Path) -> None:
    project = with_prelude(tmp_path / "project")
    (project / "_aot_prelude.py").write_text("import sys\nraise ValueError('no')\n")
    message = "importing _aot_prelude failed: ValueError: no (_aot_prelude.py:2: raise ValueError('no'))"
    assert refused(project).message == f"tool.aotcuda.prelude: {message}"
    (project / "_aot_prelude.py").unlink()
    assert refused(project).message.startswith("tool.aotcuda.prelude: there is no module _aot_prelude in ")
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(text.replace('"_aot_prelude"', '"hatchling"'))
    assert "is not a file of the project, and the JIT fallback needs it where" in refused(project).message


def two_modules(folder: Path) -> Path:
    rest = f'[tool.aotcuda.modules."pkg.other"]\nsource = "pkg._other"\n{KERNEL}'
    text = "from pkg import _helper\n\ndef f(x):\n    x[0] = _helper.one(x[1])\n"
    project = write(folder, text, module=KERNEL, rest=rest)
    (folder / "pkg" / "_helper.py").write_text("def one(x):\n    return x + 1\n")
    (folder / "pkg" / "_other.py").write_text("def f(x):\n    x[0] = 1\n")
    return project


def test_manifest_lists_imported_files_of_the_project(front_end: str, tmp_path: Path) -> None:
    files = projects.content(projects.build_wheel(two_modules(tmp_path / "project")))
    sources = {
        module: [item["path"] for item in projects.manifest_of(files, module)["sources"]]
        for module in ("pkg.k", "pkg.other")
    }
    imported = ["pkg/__init__.py", "pkg/_helper.py", "pkg/_k.py", "pkg/_other.py"]
    assert sources == {"pkg.k": imported, "pkg.other": imported}


def test_source_that_is_not_in_the_wheel_is_refused(front_end: str, tmp_path: Path) -> None:
    project = two_modules(tmp_path / "project")
    path = project / "pyproject.toml"
    text = path.read_text().replace(
        "[tool.hatch.build.targets.wheel.hooks.aotcuda]",
        '[tool.hatch.build.targets.wheel]\nexclude = ["_helper.py"]\n[tool.hatch.build.targets.wheel.hooks.aotcuda]',
    )
    path.write_text(text)
    assert refused(project).message == (
        "tool.aotcuda.fallback: pkg/_helper.py is not in the wheel, and the JIT fallback would compile the kernels of "
        'pkg.k from it; include it in the wheel, or set fallback = "error"'
    )
    assert not list((project / "dist").glob("*"))
    included = '["_helper.py"]\nforce-include = { "pkg/_helper.py" = "pkg/_helper.py" }'
    for remedy in (
        text.replace("[tool.aotcuda]", '[tool.aotcuda]\nfallback = "error"'),
        text.replace('["_helper.py"]', included),
    ):
        path.write_text(remedy)
        projects.build_wheel(project)


def test_jit_fallback_builds_the_same_kernels_from_the_wheel(front_end: str, tmp_path: Path) -> None:
    wheel = projects.build_wheel(with_prelude(tmp_path / "project", 'types = { wide = "int64[::1]" }'))
    site = projects.unpacked(wheel, tmp_path / "site-packages")
    shutil.rmtree(tmp_path / "project")
    packaged = projects.manifest_of(projects.tree(site), "pkg.k")
    inputs = build_inputs.packaged(packaged, str(site))
    assert inputs is not None

    def kernels(*case: str | None) -> dict[str, list[str]]:
        built = jit.build(inputs.case(*case, (9, 0), (13, 0))).manifest
        return {item["name"]: [overload["signature"] for overload in item["overloads"]] for item in built["kernels"]}

    assert kernels(None, None) == {"f": ["void(int64[::1])"]}
    assert kernels("f", "void(float64[::1])") == {"f": ["void(float64[::1])"]}


def test_editable_install_depends_on_prelude_and_all_package_files(front_end: str, tmp_path: Path) -> None:
    project = with_prelude(tmp_path / "project")
    (project / "pkg" / "_alone.py").write_text("")
    table = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["aotcuda"]
    files = api.build(table, project, editable=True).files
    manifest = projects.manifest_of(files, "pkg.k")
    prelude = {"_aot_prelude.py", "stand_ins/not_installed/__init__.py"}
    package = {"pkg/__init__.py", "pkg/_k.py"}
    assert {item["path"] for item in manifest["sources"]} == {*prelude, *package, f"pyproject.toml{TABLE}"}
    assert "pkg/_alone.py" in {item["path"] for item in manifest["reads"]}


def test_build_without_standard_streams_gives_a_wheel(tmp_path: Path) -> None:
    """Services and jobs may close the streams that they inherited."""
    project = write(tmp_path / "project", source('print("imported")\n' + QUERIES), module=KERNEL)
    done = projects.run(project, "sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *projects.HATCHLING)
    assert done.status == 0, done
    assert len([*(project / "dist").glob("*.whl")]) == 1
