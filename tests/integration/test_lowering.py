"""Test that a unit is lowered once for all targets, and again for a target only if the code reads the target."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cuda.pathfinder import find_nvidia_binary_utility

from aotcuda.builder.compile import process
from integration import projects
from support import front_ends

if TYPE_CHECKING:
    from typing import Any

SCRIPT = Path(__file__).parents[1] / "support" / "lowering.py"
BENCH = projects.CHECKOUT / "bench" / "kernels"
TARGETS = ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
OLD = ("5.0", "6.0", *TARGETS)  # lowering has no lowest target


def lowered(project: Path, mode: str, front_end: str, *targets: str, **variables: str) -> Any:
    """Run the script `lowering.py` in the environment of a worker, and return its output."""
    environ = process.environment({**os.environ, **variables}, front_end)
    done = subprocess.run(
        [sys.executable, SCRIPT, mode, front_end, *targets],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


DEBUG = """
from numba import cuda

@cuda.jit
def k(x):
    i = cuda.grid(1)
    if i >= x.size:
        raise IndexError("beyond the end")
    x[i] = x[i] / i
"""


def project(name: str, front_end: str, folder: Path) -> Path:
    """Return a project with units for a front end."""
    if name in ("debug", "lineinfo"):
        table = f'options = {{ {name} = true }}\nkernels.k = "void(float32[::1])"'
        return projects.write(folder, DEBUG, module=table)
    if name == "bench":
        return Path(shutil.copytree(BENCH, folder))
    root = projects.copy(name, folder)
    if name == "foreign":
        nvcc = find_nvidia_binary_utility("nvcc")
        assert nvcc, "nvcc belongs to the extra `test`"
        projects.succeed(root, sys.executable, "make_binaries.py", nvcc)
    return root


@pytest.mark.parametrize(
    ("front_end", "name"),
    [
        (front_ends.NUMBA, "devicefunctions"),
        (front_ends.MLIR, "debug"),
        *(
            pytest.param(front_ends.NUMBA, name, marks=pytest.mark.matrix)
            for name in ("features", "foreign", "gpufeatures", "bench", "debug")
        ),
        *(pytest.param(front_ends.MLIR, name, marks=pytest.mark.matrix) for name in ("features", "lineinfo")),
    ],
    indirect=["front_end"],
)
def test_code_equals_that_of_separate_targets(front_end: str, name: str, tmp_path: Path) -> None:
    root = project(name, front_end, tmp_path / "project")
    result = lowered(root, "both", front_end, AOTCUDA_ARCH="sm_75;sm_120")
    assert result["compiled"] > 0
    assert result["differ"] == []


@pytest.mark.matrix  # test_a_helper_ends_a_row compares a row of kernels
@pytest.mark.parametrize("name", ["features", "gpufeatures", "debug"])
@pytest.mark.front_end(front_ends.NUMBA)
def test_code_does_not_depend_on_kernels_compiled_before(front_end: str, name: str, tmp_path: Path) -> None:
    result = lowered(project(name, front_end, tmp_path / "project"), "rows", front_end, AOTCUDA_ARCH="sm_75;sm_120")
    assert result["differ"] == []
    assert sum(result["rows"]) > 0


ROW = """
import math
from numba import cuda, float32

@cuda.jit(device=True)
def helper(x):
    return x * 2

@cuda.jit
def a(x):
    x[0] = math.sin(x[1])

@cuda.jit
def b(x):
    tile = cuda.shared.array(32, dtype=float32)
    tile[cuda.threadIdx.x] = x[0]
    cuda.syncthreads()
    x[0] = tile[0]

@cuda.jit
def c(x):
    x[0] = helper(x[1])

@cuda.jit
def d(x):
    other = cuda.shared.array(64, dtype=float32)
    other[cuda.threadIdx.x] = x[0]
    cuda.syncthreads()
    x[0] = other[0]

@cuda.jit
def e(x):
    x[0] = helper(x[1]) + 1
"""


@pytest.mark.front_end(front_ends.NUMBA)
def test_shared_arrays_of_two_kernels_have_different_names(front_end: str, tmp_path: Path) -> None:
    kernels = 'kernels = { b = "void(float32[::1])", d = "void(float32[::1])" }'
    result = lowered(projects.write(tmp_path / "project", ROW, module=kernels), "texts", front_end)
    names = [{*re.findall(r"^@(\S*smem\S*) = ", result[name]["text"], re.MULTILINE)} for name in "bd"]
    assert all(names)
    assert not names[0] & names[1]


@pytest.mark.front_end(front_ends.NUMBA)
def test_a_helper_ends_a_row(front_end: str, tmp_path: Path) -> None:
    table = "\n".join(f'kernels.{name} = "void(float32[::1])"' for name in "abcde")
    root = projects.write(tmp_path / "project", ROW, module=table)
    assert lowered(root, "rows", front_end) == {"rows": [3, 2, 1, 2, 2], "differ": []}


SOURCE = """
import math
from numba import cuda, float32
from numba.core import types
from numba.cuda.core.targetconfig import ConfigStack
from numba.cuda.extending import intrinsic, overload


def _number(value):
    def typed(typingctx):
        number = value()

        def lowered(context, builder, signature, arguments):
            return context.get_constant(types.int32, number)

        return types.int32(), lowered

    def late(typingctx):
        def lowered(context, builder, signature, arguments):
            return context.get_constant(types.int32, value())

        return types.int32(), lowered

    return intrinsic(typed), intrinsic(late)


def _device():
    major, minor = cuda.get_current_device().compute_capability
    return major * 10 + minor


def _flags():
    return 1 if ConfigStack().top().compute_capability >= (9, 0) else 0


def _threads():
    return cuda.get_current_device().MAX_THREADS_PER_MULTIPROCESSOR


device_typed, device_lowered = _number(_device)
_, flags_lowered = _number(_flags)
threads_typed, threads_lowered = _number(_threads)


def shape(x):
    raise NotImplementedError


@overload(shape, target="cuda")
def _shape(x):
    if cuda.get_current_device().compute_capability >= (9, 0):
        return lambda x: x.size
    return lambda x: x.size // 2


@cuda.jit(device=True)
def helper(x):
    return device_lowered() + x


@cuda.jit(device=True)
def outer(x):
    return helper(x) + 1


@cuda.jit
def plain(x):
    x[0] = x.shape[0] + cuda.grid(1)


@cuda.jit
def atomic(x, y):
    cuda.atomic.add(x, 0, 1.5)
    cuda.atomic.add(y, 0, float32(1.5))


@cuda.jit(fastmath=True)
def fast(x):
    x[0] = math.tanh(x[1])
"""

KERNELS = {
    "plain": [*OLD],
    "fast": ["5.0", "6.0"],
    "atomic": ["5.0"],
    "device_typed": ["5.0"],
    "device_lowered": ["5.0"],
    "flags_lowered": ["5.0"],
    "threads_typed": ["8.6", "12.0"],
    "threads_lowered": ["8.6", "12.0"],
    "shape": ["5.0"],
    "nested": ["5.0"],
}
"""By kernel, the targets that the code for the first of them serves."""


def test_code_that_reads_the_target_is_lowered_again(tmp_path: Path) -> None:
    called = {name: f"{name}()" for name in KERNELS if name.endswith(("_typed", "_lowered"))}
    called |= {"shape": "shape(x)", "nested": "outer(1)"}
    kernels = [f"@cuda.jit\ndef k_{name}(x):\n    x[0] = {text}\n" for name, text in called.items()]
    types = {"atomic": "void(float64[::1], float32[::1])"}
    table = "\n".join(
        f'kernels.{name} = {{ python = "{"k_" * (name in called)}{name}", '
        f'signatures = ["{types.get(name, "void(float32[::1])")}"] }}'
        for name in KERNELS
    )
    root = projects.write(tmp_path / "project", "\n\n".join([SOURCE, *kernels]), module=table)
    by_first: dict[str, dict[str, list[str]]] = {}
    for first in sorted({expected[0] for expected in KERNELS.values()}):
        others = [target for target in OLD if target != first]
        by_first[first] = lowered(root, "served", "numba-cuda", first, *others)
    result = {name: sorted(by_first[expected[0]][name], key=OLD.index) for name, expected in KERNELS.items()}
    assert result == KERNELS


MLIR_SOURCE = """
from numba_cuda_mlir import cuda, tools
from numba_cuda_mlir.extending import overload, typing_registry


def asking(query):
    def asked(x):
        raise NotImplementedError

    @overload(asked, typing_registry=typing_registry)
    def _asked(x):
        if query():
            return lambda x: x.size
        return lambda x: x.size // 2

    return asked


device = asking(lambda: cuda.get_current_device().compute_capability >= (9, 0))
capability = asking(lambda: tools.get_gpu_compute_capability(tuple) >= (9, 0))
dialect = asking(tools.is_using_llvm70)


@cuda.jit
def k_plain(x):
    x[0] = x.size


@cuda.jit
def k_device(x):
    x[0] = device(x)


@cuda.jit
def k_capability(x):
    x[0] = capability(x)


@cuda.jit
def k_dialect(x):
    x[0] = dialect(x)
"""
MLIR_KERNELS = {
    "k_plain": [*TARGETS],
    "k_device": ["7.5"],
    "k_capability": ["7.5"],
    "k_dialect": ["7.5", "8.0", "8.6", "9.0"],
}


@pytest.mark.front_end(front_ends.MLIR)
def test_mlir_code_that_reads_the_target_is_lowered_again(front_end: str, tmp_path: Path) -> None:
    table = "\n".join(f'kernels.{name} = "void(float32[::1])"' for name in MLIR_KERNELS)
    root = projects.write(tmp_path / "project", MLIR_SOURCE, module=table)
    assert lowered(root, "served", front_end, *TARGETS) == MLIR_KERNELS


READS = {
    "compiler.py": 3,  # stores it in the flags, and compiles for the current device
    "flags.py": 1,  # the flag
    "dispatcher.py": 5,  # passes it to compilations, and reads it in launches and inspections
    "codegen.py": 2,  # for its own code generation, which the front end does not use
    "mathimpl.py": 1,  # tanh with fast math: from 7.5 on
    "nvvmutils.py": 1,  # atomic addition of float64: from 6.0 on
    "api.py": 1,  # detect(), which is replaced
    "cudadrv/driver.py": 6,  # the device, which is replaced
    "memory_management/nrt.py": 1,  # code that allocates, which is refused
}
"""The files of Numba-CUDA that name the compute capability of the target, with the number of occurrences."""


def test_numba_reads_the_capability_in_known_places() -> None:
    spec = importlib.util.find_spec("numba_cuda")
    folder = Path(spec.origin).parent / "numba" / "cuda"
    result = {}
    for path in folder.rglob("*.py"):
        name = path.relative_to(folder).as_posix()
        if not name.startswith(("tests/", "simulator/", "testing.py")):
            result[name] = len(re.findall(r"\bcompute_capability\b", path.read_text(encoding="utf-8")))
    assert {name: number for name, number in result.items() if number} == READS
