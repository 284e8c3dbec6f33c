"""Packaged device functions in `@cuda.jit` kernels, typed and linked with no GPU, and in another package's build."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import cubin, fatbin
from integration import projects
from support.images import cuobjdump

if TYPE_CHECKING:
    from pathlib import Path

# Compiles and links a kernel as numba-cuda does at a launch, for the GPU that it is told, as if it were there.
COMPILE = """
import base64, json, sys, warnings
import devicefunctions.plain as k
import devicefunctions.table as t
assert "numba" not in sys.modules and "numpy" not in sys.modules
import numba.cuda.dispatcher
from numba import cuda
from numba.cuda import compiler
from numba.cuda import types
from numba.cuda.cudadrv.driver import _Linker
from numba.cuda.np.numpy_support import from_dtype
import devicefunctions._functions as source

class Device:
    compute_capability = {cc}

numba.cuda.dispatcher.get_current_device = Device
{source}
try:
    library, result = compiler._compile_pyfunc_with_fixup(
        kernel, {signature}, device=False, abi="numba", cc={cc}, lto={lto})
except Exception as error:
    print(json.dumps({{"error": f"{{type(error).__name__}}: {{error}}"}}))
    sys.exit()
linker = _Linker(cc={cc}, lto={lto})
library._link_all(linker, {cc})
calls = []
class Code:
    handle = 7
import devicefunctions._hooks as hooks
hooks.upload = lambda code: calls.append("setup")
for function in (*library._setup_functions, *library._teardown_functions):
    function(Code)
print(json.dumps({{
    "code": base64.b64encode(linker.complete().code).decode(), "links": [item.name for item in library._linking_files],
    "calls": calls + hooks.calls}}))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import `tests/packages/devicefunctions` from, built."""
    folder = tmp_path_factory.mktemp("library")
    project = projects.copy("devicefunctions", folder / "project")
    (folder / "site").mkdir()
    with_sources = projects.build_wheel(project)
    for name, data in projects.content(with_sources).items():
        path = folder / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder / "site"


def compiled(
    library: Path, body: str, *types: str, lto: bool = True, cc: tuple[int, int] = (9, 0)
) -> dict[str, object]:
    """What a kernel with this body becomes for arguments `a0`, `a1`... of these types: its code as `sass`, or `error`.

    The types are Python; in COMPILE there are names for what they need.
    """
    names = [f"a{index}" for index in range(len(types))]
    source = f"def kernel({', '.join(names)}):\n    {body}"
    signature = f"types.void({', '.join(types)})"
    script = COMPILE.format(source=source, signature=signature, lto=lto, cc=cc)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "PYTHONPATH": str(library), "AOTCUDA_LOAD": "first-use"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    if "code" in result:
        result["sass"] = cuobjdump(base64.b64decode(result["code"]), "--dump-sass")
    return result


@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (12, 0)])
def test_a_kernel_calls_a_function_that_is_inlined_with_lto(library: Path, cc: tuple[int, int]) -> None:
    result = compiled(library, "a0[0] = k.add_f32(a0[1], a0[2])", "types.float32[::1]", cc=cc)
    assert result["links"] == ["devicefunctions.plain"]
    assert "FADD" in result["sass"]
    assert "CALL" not in result["sass"]


def test_without_lto_the_function_is_called(library: Path) -> None:
    result = compiled(library, "a0[0] = k.add_f32(a0[1], a0[2])", "types.float32[::1]", lto=False, cc=(12, 0))
    assert "CALL" in result["sass"]
    assert "FADD" in result["sass"]


def test_one_python_name_stands_for_all_its_functions(library: Path) -> None:
    ints = compiled(library, "a0[0] = k.add(a0[1], a0[2])", "types.int32[::1]")
    floats = compiled(library, "a0[0] = k.add(a0[1], a0[2])", "types.float32[::1]")
    assert "FADD" in floats["sass"]
    assert "FADD" not in ints["sass"]
    assert "IADD3" in ints["sass"]


@pytest.mark.parametrize(
    ("body", "types"),
    [
        ("a0[0] = k.times(a0[0], a0[1])", ["types.complex64[::1]"]),
        ("a0[0] = k.total(a0)", ["types.float32[::1]"]),
        ("a0[0] = k.split(a0[1])[1][0]", ["types.float32[::1]"]),
        ("a0[0] = k.polar(a0[1])[1].imag", ["types.float32[::1]"]),
        ("a0[0] = k.swapped((a0[1], a0[2]), 1j)", ["types.float32[::1]"]),
        ("a0[0] = k.later(a0[0], a1[0])", ["types.NPDatetime('ns')[::1]", "types.NPTimedelta('ns')[::1]"]),
        ("a0[0] = k.scaled(a0[0], a1)", ["types.float32[::1]", "types.CPointer(types.float32)"]),
    ],
)
def test_every_type_of_the_c_abi_goes_through(library: Path, body: str, types: list[str]) -> None:
    result = compiled(library, body, *types)
    assert "error" not in result, result
    assert "CALL" not in result["sass"]


def test_records_are_known_by_their_fields(library: Path) -> None:
    record = "from_dtype(source.aligned)[::1]"
    result = compiled(library, "a0[0] = k.mass(a1[0])", "types.float64[::1]", record)
    assert "CALL" not in result["sass"]


def test_link_items_and_callbacks_come_along_once(library: Path) -> None:
    result = compiled(library, "a0[0] = t.looked_up(1) + t.looked_up(2)", "types.float32[::1]")
    assert sorted(result["links"]) == ["devicefunctions.table", "devicefunctions.table link0_table.fatbin"]
    assert result["calls"] == ["setup", "teardown"]


def test_a_wrong_call_is_told_the_packaged_types(library: Path) -> None:
    result = compiled(library, "a0[0] = k.length(a0[0])", "types.float32[::1]")
    assert "Record" in str(result["error"])


USER = """
import devicefunctions.plain as plain
import devicefunctions.table as table
from numba import cuda
times = cuda.declare_device("times_f32", "float32(float32, float32)", abi="c")

def half(x):
    return plain.times(x, 0.5)

def inner(x):
    return plain.add(x, table.looked_up(3))

def outer(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = plain.add_f32(inner(x[i]), half(x[i]))

def declared(x):
    x[0] = times(x[0], x[1])
"""
TARGETS = 'arch = ["sm_80", "sm_90", "compute_80"]'


def user(folder: Path, module: str, aotcuda: str = TARGETS) -> Path:
    return projects.write(folder / "project", USER, aotcuda=aotcuda, module=module)


def test_another_package_compiles_with_them_ahead_of_time(library: Path, tmp_path: Path) -> None:
    project = user(tmp_path, 'kernels.outer = "void(float32[::1])"\nfunctions.half = "float32(float32)"')
    files = projects.content(projects.build_wheel(project, PYTHONPATH=str(library)))
    manifest = projects.manifest_of(files, "pkg.k")
    assert [(item["setup"], item["teardown"]) for item in manifest["callbacks"]] == [
        ("devicefunctions._hooks:upload", "devicefunctions._hooks:release")
    ]
    assert {item["name"]: item["symbols"] for item in manifest["linked"]}["devicefunctions.table"] == ["looked_up"]
    for entry in fatbin.read(files["pkg/k.aotcuda/kernels.fatbin"], "kernels.fatbin"):
        if entry.kind == "sass":
            assert "CALL" not in cuobjdump(entry.content, "--dump-sass")
        else:
            assert not re.search(rb"\bcall\b", entry.content)
    # Whoever links this package's function needs what it calls.
    assert [item["path"] for item in manifest["function_links"]] == ["link0_devicefunctions_plain.fatbin"]


def test_the_configuration_can_link_a_packaged_module(library: Path, tmp_path: Path) -> None:
    module = 'kernels.declared = "void(float32[::1])"\nlink = [{ module = "devicefunctions.plain" }]'
    files = projects.content(projects.build_wheel(user(tmp_path, module), PYTHONPATH=str(library)))
    (entry, *_) = fatbin.read(files["pkg/k.aotcuda/kernels.fatbin"], "kernels.fatbin")
    assert [kernel.name for kernel in cubin.read(entry.content, "image").kernels] == ["declared"]
    assert "CALL" not in cuobjdump(entry.content, "--dump-sass")


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ('{ module = "nowhere.kernels" }', "there is no file, folder or importable module nowhere.kernels"),
        ('{ module = "json" }', "json is no module that aotcuda built"),
        ('{ module = "devicefunctions.launched" }', "devicefunctions.launched exports no device functions"),
    ],
)
def test_a_module_that_cannot_be_linked_is_named(library: Path, tmp_path: Path, link: str, said: str) -> None:
    module = f'kernels.declared = "void(float32[::1])"\nlink = [{link}]'
    done = projects.refused(user(tmp_path, module), PYTHONPATH=str(library))
    assert done.said.startswith(f"{projects.MODULE}.link[0]: {said}")


def test_a_gpu_older_than_the_packaged_code_is_named(library: Path, tmp_path: Path) -> None:
    project = user(tmp_path, 'kernels.outer = "void(float32[::1])"', 'arch = ["sm_75"]')
    done = projects.refused(project, PYTHONPATH=str(library))
    assert "devicefunctions" in done.said
    assert "sm_75" in done.said
