"""Test packaged device functions in `@cuda.jit` kernels, compiled without a GPU, and in another package's build."""

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
from support import front_ends
from support.images import cuobjdump

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A script that compiles kernels as a launch does, for GPUs that do not exist. `compiled` depends on the compiler.
COMPILE = """
import base64, json, sys
import devicefunctions.plain as k
import devicefunctions.table as t
assert not {"numba", "numba_cuda_mlir", "numpy"} & {*sys.modules}
COMPILED
import devicefunctions._functions as source
import devicefunctions._hooks as hooks

calls = []
hooks.upload = lambda code: calls.append("setup")
class Code:
    handle = 7

@cuda.jit(device=True)
def helper(x):
    return t.looked_up(x) + t.looked_up(x + 1)

results = {}
for name, (body, types_, lto, cc) in json.load(sys.stdin).items():
    names = ", ".join(f"a{index}" for index in range(len(types_)))
    scope = dict(globals())
    exec(f"def kernel({names}):\\n    {body}", scope)
    try:
        code, callbacks, links = compiled(scope["kernel"], eval(f"types.void({', '.join(types_)})"), tuple(cc), lto)
    except Exception as error:
        results[name] = {"error": f"{type(error).__name__}: {error}"}
        continue
    calls.clear()
    hooks.calls.clear()
    for function in callbacks:
        function(Code)
    results[name] = {"code": base64.b64encode(code).decode(), "links": links, "calls": calls + hooks.calls}
print(json.dumps(results))
"""
COMPILED = {
    front_ends.NUMBA: """
import numba.cuda.dispatcher
from numba import cuda
from numba.cuda import compiler, types
from numba.cuda.cudadrv.driver import _Linker
from numba.cuda.np.numpy_support import from_dtype

def compiled(kernel, signature, cc, lto):
    class Device:
        compute_capability = cc

    numba.cuda.dispatcher.get_current_device = Device
    library, _ = compiler._compile_pyfunc_with_fixup(kernel, signature, device=False, abi="numba", cc=cc, lto=lto)
    linker = _Linker(cc=cc, lto=lto)
    library._link_all(linker, cc)
    callbacks = (*library._setup_functions, *library._teardown_functions)
    return linker.complete().code, callbacks, [item.name for item in library._linking_files]
""",
    front_ends.MLIR: """
from numba_cuda_mlir import cuda, tools, types
from numba_cuda_mlir.numba_cuda.np.numpy_support import from_dtype

def compiled(kernel, signature, cc, lto):
    tools._cached_cc = cc
    dispatcher = cuda.jit(kernel)
    code = dispatcher.compile(signature).metadata["cubin"]
    return code, (*dispatcher._module_setup_callbacks, *dispatcher._module_teardown_callbacks), []
""",
}
FLOATS, INTS = ["types.float32[::1]"], ["types.int32[::1]"]
INLINED = {
    "complex": ("k.times(a0[0], a0[1])", ["types.complex64[::1]"]),
    "array": ("k.total(a0)", FLOATS),
    "tuple": ("k.split(a0[1])[1][0]", FLOATS),
    "tuple with complex": ("k.polar(a0[1])[1].imag", FLOATS),
    "tuple argument": ("k.swapped((a0[1], a0[2]), 1j)", FLOATS),
    "times": ("k.later(a0[0], a1[0])", ["types.NPDatetime('ns')[::1]", "types.NPTimedelta('ns')[::1]"]),
    "pointer": ("k.scaled(a0[0], a1)", ["types.float32[::1]", "types.CPointer(types.float32)"]),
    "record": ("k.mass(a1[0])", ["types.float64[::1]", "from_dtype(source.aligned)[::1]"]),
}
# The value that a kernel stores, and the types of its arguments `a0`, `a1`..., with the names of COMPILE.
KERNELS: dict[str, tuple[str, list[str], bool, tuple[int, int]]] = {
    **{name: (value, types, True, (9, 0)) for name, (value, types) in INLINED.items()},
    "without lto": ("k.add_f32(a0[1], a0[2])", FLOATS, False, (12, 0)),
    "overloaded int": ("k.add(a0[1], a0[2])", INTS, True, (8, 0)),
    "overloaded float": ("k.add(a0[1], a0[2])", FLOATS, True, (8, 0)),
    "linked": ("t.looked_up(1) + t.looked_up(2)", FLOATS, True, (9, 0)),
    "linked by a helper": ("helper(1)", FLOATS, True, (9, 0)),
    "wrong": ("k.length(a0[0])", FLOATS, True, (9, 0)),
}


@pytest.fixture(scope="module")
def library(front_end: str, wheel_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder to import `tests/packages/devicefunctions` from, built by the front end."""
    return projects.unpacked(wheel_of("devicefunctions"), tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def compiled(front_end: str, library: Path) -> dict[str, dict[str, object]]:
    """Return the result of each of KERNELS in one process: `sass`, `links` and `calls` of its callbacks, or `error`."""
    cases = {name: (f"a0[0] = {value}", *rest) for name, (value, *rest) in KERNELS.items()}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", COMPILE.replace("COMPILED", COMPILED[front_end])],
        input=json.dumps(cases),
        env={**os.environ, "PYTHONPATH": str(library), "AOTCUDA_LOAD": "first-use"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    for result in results.values():
        if "code" in result:
            result["sass"] = cuobjdump(base64.b64decode(result["code"]), "--dump-sass")
    return results


@front_ends.EACH
@pytest.mark.parametrize("kind", INLINED)
def test_functions_of_every_type_are_inlined(front_end: str, compiled: dict, kind: str) -> None:
    if INLINED[kind][0].partition("(")[0].removeprefix("k.") in front_ends.refused_names("devicefunctions"):
        pytest.skip("this release cannot compile the function")
    assert "error" not in compiled[kind], compiled[kind]
    assert "CALL" not in compiled[kind]["sass"]


@front_ends.EACH
def test_python_name_selects_overload_by_type(front_end: str, compiled: dict) -> None:
    assert "FADD" in compiled["overloaded float"]["sass"]
    assert "CALL" not in compiled["overloaded float"]["sass"]
    assert "FADD" not in compiled["overloaded int"]["sass"]


@front_ends.EACH
@pytest.mark.parametrize("kernel", ["linked", "linked by a helper"])
def test_link_items_and_callbacks_come_along_once(front_end: str, compiled: dict, kernel: str) -> None:
    result = compiled[kernel]
    assert result["calls"] == ["setup", "teardown"]
    if front_end == front_ends.NUMBA:
        assert sorted(result["links"]) == ["devicefunctions.table", "devicefunctions.table link0_table.fatbin"]


@pytest.mark.front_end(front_ends.NUMBA)
def test_function_is_called_without_lto(front_end: str, compiled: dict) -> None:
    assert "CALL" in compiled["without lto"]["sass"]


@pytest.mark.front_end(front_ends.NUMBA)
def test_wrong_call_error_lists_packaged_types(front_end: str, compiled: dict) -> None:
    assert "Record" in str(compiled["wrong"]["error"])


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


@pytest.mark.front_end(front_ends.NUMBA)
def test_another_package_links_packaged_functions(library: Path, tmp_path: Path) -> None:
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
    # Users of this package's function must link the functions that it calls.
    assert [item["path"] for item in manifest["function_links"]] == ["link0_devicefunctions_plain.fatbin"]


@pytest.mark.front_end(front_ends.NUMBA)
def test_the_configuration_can_link_a_packaged_module(library: Path, tmp_path: Path) -> None:
    module = 'kernels.declared = "void(float32[::1])"\nlink = [{ module = "devicefunctions.plain" }]'
    files = projects.content(projects.build_wheel(user(tmp_path, module), PYTHONPATH=str(library)))
    (entry, *_) = fatbin.read(files["pkg/k.aotcuda/kernels.fatbin"], "kernels.fatbin")
    assert [kernel.name for kernel in cubin.read(entry.content, "image").kernels] == ["declared"]
    assert "CALL" not in cuobjdump(entry.content, "--dump-sass")


@pytest.mark.front_end(front_ends.NUMBA)
def test_module_without_device_functions_cannot_be_linked(library: Path, tmp_path: Path) -> None:
    module = 'kernels.declared = "void(float32[::1])"\nlink = [{ module = "devicefunctions.launched" }]'
    done = projects.refused(user(tmp_path, module), PYTHONPATH=str(library))
    assert done.message.startswith(
        f"{projects.MODULE}.link[0]: devicefunctions.launched exports no device functions, so there is nothing to link"
    )


@pytest.mark.front_end(front_ends.NUMBA)
def test_target_older_than_packaged_code_is_refused(library: Path, tmp_path: Path) -> None:
    project = user(tmp_path, 'kernels.outer = "void(float32[::1])"', 'arch = ["sm_75"]')
    done = projects.refused(project, PYTHONPATH=str(library))
    assert "devicefunctions" in done.message
    assert "sm_75" in done.message
