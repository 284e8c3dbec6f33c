"""`aotcuda record` of a project: without execution, in Numba's simulator, and on the stand-in driver."""

from __future__ import annotations

import json
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from integration import projects
from support import front_ends

if TYPE_CHECKING:
    from pathlib import Path

    from integration.projects import Done

KERNELS = 'tool.aotcuda.modules."recorded.kernels".kernels'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the project `recorded`."""
    return projects.copy("recorded", tmp_path / "project")


def record(project: Path, *arguments: str, **environ: str) -> Done:
    """Run `aotcuda record` in the project; without a stand-in driver nothing is executed."""
    environ = {"PYTHONPATH": str(project / "src"), **environ}
    return projects.run(project, sys.executable, "-m", "aotcuda", "record", *arguments, **environ)


def run(project: Path, *ways: str, options: tuple[str, ...] = (), **environ: str) -> Done:
    """Record `recorded.run`."""
    command = [sys.executable, "-W", "ignore", "-m", "recorded.run", *ways]
    return record(project, *options, "--", *command, **environ)


def recorded(project: Path) -> list[dict]:
    """Return the functions in the file of records."""
    return json.loads((project / ".aotcuda-record.json").read_text())["functions"]


def launches(project: Path) -> dict[str, int]:
    """Return the number of launches of each kernel."""
    counts: dict[str, int] = {}
    for item in recorded(project):
        if item["kind"] == "kernel":
            counts[item["function"]] = counts.get(item["function"], 0) + sum(item["launches"].values())
    return counts


def signatures(project: Path) -> set[tuple[str, str]]:
    """Return the launched kernels with their signatures."""
    return {(item["function"], item["signature"]) for item in recorded(project) if item["launches"]}


def table(project: Path, module: str) -> dict:
    """Return the table of a module in pyproject.toml."""
    text = (project / "pyproject.toml").read_text()
    return tomllib.loads(text)["tool"]["aotcuda"]["modules"][f"recorded.{module}"]


def test_run_prints_the_tables_of_its_launches(project: Path) -> None:
    done = run(project, "some")
    assert done.status == 0, done.err
    printed = tomllib.loads(done.out)["tool"]["aotcuda"]["modules"]["recorded.kernels"]
    assert printed["source"] == "recorded._kernels"
    assert printed["kernels"]["add"] == ["void(float32[::1], float32[::1], float32[::1])"]
    assert "# src/recorded/_kernels.py:29, 1 launch; @cuda.jit(fastmath=True)" in done.out
    assert "recorded._kernels.twice" in done.out


def test_the_merged_table_builds_and_a_second_run_changes_nothing(project: Path) -> None:
    before = (project / "pyproject.toml").read_text()
    done = run(project, "some", "types", options=("--write",))
    assert done.status == 0, done.err
    after = (project / "pyproject.toml").read_text()
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert all(line in after.splitlines() for line in before.splitlines()), "nothing has another form"
    assert all(len(line) < 120 for line in added)
    counts = launches(project)
    done = run(project, "some", "types", options=("--write",))
    assert "2 runs in" in done.err
    assert launches(project) == {name: 2 * count for name, count in counts.items()}
    assert (project / "pyproject.toml").read_text() == after
    wheel = projects.build_wheel(project)
    built = projects.manifest_of(projects.content(wheel), "recorded.kernels")["kernels"]
    names = {"scale", "take", "add", "fill", "move", "never_launched", "reachable", "step"}
    assert {item["name"] for item in built} == names
    assert next(item["origin"] for item in built if item["name"] == "step").endswith("._kernels:Solver.step")


def with_front_end(project: Path, frontend: str) -> None:
    """Change the project's imports to a front end."""
    if frontend == "numba-cuda-mlir":
        if not front_ends.is_mlir_installed():
            pytest.skip("numba-cuda-mlir is not installed (extra mlir-cu13)")
        for path in (project / "src" / "recorded").glob("*.py"):
            path.write_text(path.read_text().replace("from numba import", "from numba_cuda_mlir import"))


@pytest.mark.parametrize("frontend", ["numba-cuda", "numba-cuda-mlir"])
def test_types_without_a_gpu_equal_the_types_on_a_gpu(project: Path, driver: Path, frontend: str) -> None:
    with_front_end(project, frontend)
    launched = {}
    for way in ("--dry", "gpu"):
        options = ("--out", f"{way.strip('-')}.json", *([way] if way != "gpu" else []))
        environ = {"LD_LIBRARY_PATH": str(driver)} if way == "gpu" else {}
        done = run(project, "some", "types", options=options, **environ)
        assert done.status == 0, done.err
        functions = json.loads((project / f"{way.strip('-')}.json").read_text())["functions"]
        launched[way] = {
            (item["function"], item["signature"], sum(item["launches"].values()))
            for item in functions
            if item["kind"] == "kernel"
        }
    assert launched["--dry"] == launched["gpu"]
    assert len(launched["gpu"]) == 16


DEVICE = """
import numpy as np
from {numba} import cuda
from recorded import _kernels as k

assert cuda.is_available() and len(cuda.gpus) == 1 and cuda.detect()
device = cuda.get_current_device()
assert (device.compute_capability, device.name, device.MULTIPROCESSOR_COUNT) == ((9, 0), "NVIDIA H100 80GB HBM3", 132)
with cuda.gpus[0]:
    stream = cuda.stream()
    x = cuda.to_device(np.arange(12, dtype=np.float32).reshape(3, 4), stream=stream)
    mapped, managed = cuda.mapped_array((4,), np.float32), cuda.managed_array((4,), np.float32)
begin, end = cuda.event(), cuda.event()
begin.record(stream)
assert x[1, 2] == 6 and x[1:, ::2].shape == (2, 2) and x.T.copy_to_host()[2, 1] == 6
out = cuda.device_array_like(x)
out[1:, ::2] = 7
assert out.copy_to_host().sum() == 28
class Slotted:
    __slots__ = ("__cuda_array_interface__",)
slotted = Slotted()
slotted.__cuda_array_interface__ = out.__cuda_array_interface__
k.take[1, 4](1, slotted)
k.take[1, 4](1, cuda.to_device(np.asfortranarray(x.copy_to_host())))
k.take[1, 4](1, cuda.device_array((2, 3), np.int32)[:, ::2])
k.take[1, 4, stream](1, x)
k.take.forall(4)(np.float32(1), mapped)
k.take.specialize(2, managed)[1, 1](2, managed)
end.record(stream)
end.synchronize()
assert cuda.event_elapsed_time(begin, end) >= 0 and cuda.current_context().get_memory_info()[1] > 0
first = x.copy_to_host()  # the first result
x[0, 0]
"""


@pytest.mark.parametrize("frontend", ["numba-cuda", "numba-cuda-mlir"])
def test_devices_arrays_and_streams_work_without_a_gpu(project: Path, frontend: str) -> None:
    with_front_end(project, frontend)
    text = DEVICE.format(numba="numba" if frontend == "numba-cuda" else "numba_cuda_mlir")
    (project / "script.py").write_text(text)
    done = record(project, "--gpu", "H100", "--", sys.executable, "-W", "ignore", "script.py")
    assert "the command ended with" not in done.err, done.err
    assert done.err.startswith(
        "aotcuda: launches are recorded and not executed, since there is no GPU here, for NVIDIA H100 80GB HBM3 of "
        "compute capability 9.0"
    )
    assert signatures(project) == {
        ("take", f"void({number}, {array})")
        for number, array in (
            ("int64", "float32[:, ::1]"),
            ("int64", "float32[::1, :]"),
            ("int64", "int32[:, :]"),
            ("float32", "float32[::1]"),
            ("int64", "float32[::1]"),
        )
    }
    line = DEVICE.splitlines().index("first = x.copy_to_host()  # the first result") + 1
    assert f"aotcuda: script.py:{line}: a copy to the host reads the result of a recorded launch" in done.err


def test_wrong_results_fail_the_command_but_not_the_record(project: Path) -> None:
    (project / "script.py").write_text(
        "from recorded import run\nrun.some()\nvalues = run.cuda.to_device(run.np.zeros(4, 'f4'))\n"
        "run.k.fill[1, 1](values, 1.0)\nassert values.copy_to_host()[0] == 1\nrun.types()\n"
    )
    command = ["--", sys.executable, "-W", "ignore", "script.py"]
    done = record(project, "--write", *command)
    assert done.status == 0, done.err
    assert "script.py:5: a copy to the host reads the result of a recorded launch" in done.err
    assert "the command ended with exit status 1, as programs may that need results; its launches until" in done.err
    assert {"add", "fill"} <= set(table(project, "kernels")["kernels"])


CUPY = """
import cupy, numpy as np
from cupy.cuda import cufft
from recorded import _kernels as k
from recorded.run import cuda

assert cupy.cuda.runtime.getDeviceProperties(0)["name"] == b"NVIDIA H100 80GB HBM3"
x = cupy.arange(4, dtype=cupy.float32) + 1
out = cupy.zeros_like(x)
with cupy.cuda.Stream(non_blocking=True) as stream, cupy.cuda.Device(0):
    k.add[1, 4, stream.ptr](x, x[::2].repeat(2), out)
k.take[1, 4](2, cupy.asarray(np.asfortranarray(np.zeros((3, 4)))))
k.take[1, 4](2, cupy.zeros((4, 4), "c8")[:, ::2])
k.take[1, 4](2, cuda.to_device(x.get()))  # the first result
cufft.Plan1d(8, cufft.CUFFT_Z2Z, 1).fft(x, x, cufft.CUFFT_FORWARD)
kernel = k.scale.specialize(2.0, x).overloads.popitem()[1]  # of Numba, and launched by CuPy
module = cupy.cuda.function.Module()
module.load(kernel._codelibrary.get_asm_str().encode())
for _ in range(3):
    module.get_function(kernel.entry_name)((1,), (4,), (2.0, 0, 0, 4, 4, x, 4, 4))
"""


def test_stand_in_replaces_a_missing_cupy(project: Path) -> None:
    (project / "script.py").write_text(CUPY)
    done = record(project, "--gpu", "H100", "--", sys.executable, "-W", "ignore", "script.py")
    assert "the command ended with" not in done.err, done.err
    assert signatures(project) == {
        ("add", "void(float32[::1], float32[::1], float32[::1])"),
        ("take", "void(int64, float64[::1, :])"),
        ("take", "void(int64, complex64[:, :])"),
        ("take", "void(int64, float32[::1])"),
        ("scale", "void(float64, float32[::1])"),
    }
    assert launches(project)["scale"] == 3
    line = CUPY.splitlines().index("k.take[1, 4](2, cuda.to_device(x.get()))  # the first result") + 1
    assert f"aotcuda: script.py:{line}: get of an array of CuPy's reads the result" in done.err


@pytest.mark.parametrize(("way", "count"), [("processes", 21), ("after_a_failure", 4), ("query_the_gpu", 1)])
def test_counts_are_exact_without_a_gpu(project: Path, way: str, count: int) -> None:
    done = run(project, way)
    assert done.status == 0, done.err
    assert sum(launches(project).values()) == count


@pytest.mark.parametrize("frontend", ["numba-cuda", pytest.param("numba-cuda-mlir", marks=pytest.mark.matrix)])
def test_each_launch_of_the_driver_is_counted_once(project: Path, driver: Path, frontend: str) -> None:
    ways = ["some", "types", "threads", "after_a_failure", "left_out"]
    with_front_end(project, frontend)
    if frontend == "numba-cuda-mlir":
        ways.remove("left_out")  # it takes no named tuples
    log = project / "driver.jsonl"
    done = run(project, *ways, LD_LIBRARY_PATH=str(driver), FAKE_CUDA_LOG=str(log))
    assert done.status == 0, done.err
    made = sum(json.loads(line)["call"] == "cuLaunchKernel" for line in log.read_text().splitlines())
    assert sum(launches(project).values()) == made > 400
    assert {item["frontend"] for item in recorded(project)} == {frontend}
    assert {gpu for item in recorded(project) for gpu in item["launches"]} == {"Stand-in A (9.0)"}
    assert any(item["kind"] == "device" and item["function"] == "twice" for item in recorded(project))


def test_imports_of_sources_become_build_requirements(project: Path) -> None:
    package = project / "src" / "recorded"
    (package / "helpers.py").write_text("import packaging.version\nimport pytest\nimport numpy\n")
    source = package / "_kernels.py"
    source.write_text(
        "import json\nimport yaml\nfrom recorded import helpers\ntry:\n    import not_there\nexcept ImportError:\n"
        "    pass\ndef later():\n    import tomlkit\n" + source.read_text()
    )
    config = project / "pyproject.toml"
    config.write_text(
        config.read_text().replace('dependencies = ["aotcuda"]', 'dependencies = ["aotcuda", "pytest>=8"]')
    )
    done = run(project, "some", options=("--write",))
    assert done.status == 0, done.err
    required = tomllib.loads(config.read_text())["build-system"]["requires"]
    assert required == ["hatchling", "aotcuda[cu13]", "pytest>=8", "packaging", "PyYAML"]
    assert (
        "aotcuda: added to build-system.requires, since the sources import them: pytest>=8, packaging, PyYAML\n"
    ) in done.err
    assert "build hook is off" not in done.err
    config.write_text(config.read_text().replace("[tool.hatch.build.targets.wheel.hooks.aotcuda]\n", ""))
    done = run(project, "some", options=("--write",))
    assert "does not enable the build hook: add the table [tool.hatch.build.targets.wheel.hooks.aotcuda]" in done.err


def test_check_lists_signatures_that_the_table_lacks(project: Path) -> None:
    done = run(project, "some", options=("--check",))
    assert done.status == 1
    lines = [line for line in done.err.splitlines() if "is not in" in line]
    assert len(lines) == 1, "scale takes arrays of any strides, and a kernel without a launch is not listed"
    (launched,) = lines
    assert launched.startswith(
        "aotcuda: src/recorded/_kernels.py:29: add: void(float32[::1], float32[::1], float32[::1])"
    )
    assert f"is not in {KERNELS} (launched 1 time, first at src/recorded/run.py:21)" in launched
    assert not (project / ".aotcuda-record.json").exists()
    assert run(project, "some", options=("--write",)).status == 0
    done = run(project, "some", options=("--check",))
    assert done.status == 0, done.err


def test_unpackageable_kernels_are_listed_with_reasons(project: Path) -> None:
    (project / "script.py").write_text(
        "import numpy as np\nfrom numba import cuda\n@cuda.jit\ndef k(a): a[0] = 1\nk[1, 1](np.zeros(1))\n"
    )
    with (project / "src" / "recorded" / "_kernels.py").open("a") as file:
        file.write(
            "\ndef hiding(function):\n    kernel = cuda.jit(function)\n    return lambda *args: kernel[1, 1](*args)\n"
            "\n@hiding\ndef hidden(values):\n    values[0] = 1\n"
        )
    command = (
        "from recorded import run; x = run.np.zeros(1); run.left_out(); run.k.texts[1, 1](x, 'a'); "
        "run.k.hidden(x); run.k.hidden(x); run.k.make(4)[1, 1](x)"
    )
    done = record(project, "--write", "--", sys.executable, "-c", command)
    assert done.status == 0, done.err
    lines = [line for line in done.err.splitlines() if "left out" in line]
    for name, reason in {
        "make.<locals>.closure (2 signatures)": "it is a closure over number; pass it as an argument, or use the "
        "module's globals (2 launches)",
        "hidden": (
            "it is behind a decorator: hidden is a function without a reference to it; let the decorator store it "
            "in `__wrapped__` (2 launches)"
        ),
        "build.<locals>.inner": "it is made inside build() and no name in its module leads to it",
        "left_out.<locals>.local": "it is made inside left_out()",
        "pairs": "argument 'pair' is of type Pair(int64, float64), which a packaged kernel cannot accept",
        "texts": "argument 'text' is of type unicode_type",
    }.items():
        assert sum(f".{name}" in line and reason in line for line in lines) == 1, (name, lines)
    assert set(table(project, "kernels")["kernels"]) == {"scale", "fill", "never_launched"}
    done = record(project, "--check", "--", sys.executable, "-c", command)
    assert "the table has every signature that was launched, but for 7 signatures of what was left out" in done.err
    done = record(project, "--", sys.executable, "script.py")
    assert "script.py:3: __main__.k void(float64[::1]): it is defined in a script" in done.err


def test_a_dtype_is_recorded_by_its_name_in_the_table(project: Path) -> None:
    types = 'types = { p = "recorded.dtypes:Types.particle", missing = "not.there:x", many = "p[::1]" }\n'
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace("[tool.aotcuda]\n", f"[tool.aotcuda]\n{types}"))
    dtypes = "import numpy as np\nclass Types:\n    particle = np.dtype([('x', 'f4'), ('i', 'i4')])\n"
    (project / "src" / "recorded" / "dtypes.py").write_text(dtypes)
    with (project / "src" / "recorded" / "_kernels.py").open("a") as file:
        file.write("\n@cuda.jit\ndef push(particles, out):\n    out[0] = particles[0].x\n")
        file.write("class Failing:\n    def __str__(self): raise RuntimeError\nfailing = Failing()\n")
    code = "from recorded import run; from recorded.dtypes import Types; "
    code += "run.k.push[1, 1](run.np.zeros(4, Types.particle), run.np.zeros(4, 'f4'))"
    done = record(project, "--", sys.executable, "-c", code)
    assert 'push = [\n  "void(p[::1], float32[::1])",\n]' in done.out, done.err
    with config.open("a") as file:
        file.write('push = "void(many, float32[::1])"\n')
    done = record(project, "--check", "--", sys.executable, "-c", code)
    assert done.status == 0, done.err


def test_module_run_by_name_is_recorded(project: Path) -> None:
    with (project / "src" / "recorded" / "_kernels.py").open("a") as file:
        file.write("\nif __name__ == '__main__':\n    scale[1, 4](2.0, np.zeros(4))\n")
    done = record(project, "--", sys.executable, "-m", "recorded._kernels")
    assert 'scale = [\n  "void(float64, float64[::1])",\n]' in done.out


def test_failed_command_keeps_its_record(project: Path) -> None:
    done = run(project, "fail", options=("--write",))
    assert done.status == 0, "something was recorded"
    assert "the command ended with exit status 3, " in done.err
    assert launches(project)["add"] == 1
    assert "add" in table(project, "kernels")["kernels"]


def test_pytest_is_recorded_and_kernels_of_tests_stay_out(project: Path) -> None:
    (project / "tests").mkdir()
    (project / "tests" / "test_it.py").write_text(
        "import numpy as np\nfrom numba import cuda\nfrom recorded import run\n\n@cuda.jit\ndef own(a): a[0] = 1\n\n"
        "def test_some():\n    run.some()\n    own[1, 1](np.zeros(1))\n"
    )
    done = record(project, "--", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert done.status == 0, done.err
    assert "tests/test_it.py:5: test_it.own void(float64[::1]): it belongs to the tests" in done.err
    assert "own" not in done.out[done.out.index("[tool") :]


CUDA_CORE = """
from pathlib import Path
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

device = Device()
device.set_current()
assert (device.arch, device.name, device.properties.multiprocessor_count) == ("90", "NVIDIA H100 80GB HBM3", 132)
stream = device.create_stream()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
program = Program(Path("csrc/raw.cu").read_text(), code_type="c++", options=options)
code = program.compile("cubin", name_expressions=("scale<float>", "scale<double>"))
buffer = device.allocate(1024, stream=stream)
for name in ("scale<float>", "scale<float>", "scale<double>", "fill"):
    launch(stream, LaunchConfig(grid=1, block=32), code.get_kernel(name), buffer, 2.0)
text = 'extern "C" __global__ void other() {}'
launch(stream, LaunchConfig(grid=1, block=32), Program(text, "c++").compile("cubin").get_kernel("other"))
stream.sync()
"""


def test_kernels_in_cuda_cpp_get_tables_of_their_files(project: Path) -> None:
    (project / "csrc").mkdir()
    (project / "csrc" / "raw.cu").write_text(
        "template <class T> __global__ void scale(T *x, T factor) { *x *= factor; }\n"
        'extern "C" __global__ void fill(int *x) { *x = 1; }\n'
    )
    (project / "script.py").write_text(CUDA_CORE)
    config = project / "pyproject.toml"
    command = ("--gpu", "H100", "--", sys.executable, "script.py")

    def lacking() -> list[str]:
        return [line for line in record(project, "--check", *command).err.splitlines() if ": missing: " in line]

    assert len(lacking()) == 3
    done = record(project, "--write", *command)
    assert done.status == 0, done.err
    assert table(project, "raw") == {
        "source": "csrc/raw.cu",
        "frontend": "cuda-cpp",
        "kernels": {"fill": {}, "scale": {"instances": ["scale<double>", "scale<float>"]}},
    }
    assert "recorded 5 launches (5 not executed): 3 kernels" in done.err
    assert table(project, "script_cuda")["kernels"] == {"other": {}}
    assert (project / "csrc/recorded/script.cu").read_text() == 'extern "C" __global__ void other() {}\n'
    line = next(at for at, text in enumerate(CUDA_CORE.splitlines(), 1) if "Program(text" in text)
    assert f"aotcuda: to do: script.py:{line}: launch the kernels of recorded.script_cuda: import " in done.err
    assert lacking() == []
    config.write_text(config.read_text().replace('"scale<double>", ', ""))
    (missing,) = lacking()
    assert missing.endswith('tool.aotcuda.modules."recorded.raw".kernels.scale: scale<double>')
    assert record(project, "--write", *command).status == 0
    assert sorted(table(project, "raw")["kernels"]["scale"]["instances"]) == ["scale<double>", "scale<float>"]
    assert record(project, *command).out == "", "the table has everything"


TEXTS = """
import cupy

def tile(size):
    text = 'extern "C" __global__ void tile(const unsigned char *mask, int *out, int n) { out[n] = mask[n] * TILE; }'
    return cupy.RawKernel(text, "tile", options=("--std=c++11", f"-DTILE={size}", "-lineinfo"))

SCALE = "template <class T, int N> __global__ void scale(T *x, T factor) { *x *= factor * N; }"
module = cupy.RawModule(code=SCALE, options=("--std=c++20",), name_expressions=("scale<float, 2>",))
square = cupy.ElementwiseKernel("T x, raw I at, int32 shift", "T z", "z = x * x + at[i] + shift", "square")
saxpy = cupy.ElementwiseKernel("float32 a, float32 x, float32 y", "float32 z", "z = a * x + y;", "saxpy")

def run():
    x = cupy.ones(8, "float32")
    for size in (16, 32):
        tile(size)((1,), (8,), (cupy.ones(8, bool), cupy.zeros(8, "int32"), 3, "surplus"))
    for name in ("scale<float, 2>", "scale<double, 2>"):
        module.get_function(name)((1,), (8,), (x, cupy.float32(2)))
    out = square(x, cupy.arange(8, dtype="int64"), 3)
    assert (type(out), out.shape, out.dtype) == (cupy.ndarray, (8,), "float32")
    square(x.astype("float64"), cupy.arange(8, dtype="int64"), 3, out.astype("float64"))
    assert saxpy(2.0, x, x).shape == (8,)
    cupy.RawModule(path="compiled.cubin").get_function("f")((1,), (1,), ())

if __name__ == "__main__":
    run()
"""


def test_texts_that_cupy_compiles_become_files_and_tables_that_build(project: Path) -> None:
    (project / "src/recorded/texts.py").write_text(TEXTS)
    command = ("--gpu", "H100", "--", sys.executable, "-m", "recorded.texts")
    done = record(project, "--write", *command)
    assert done.status == 0, done.err
    names = ("texts_cuda", "texts_cuda_2", "texts_cuda_3", "texts_cuda_4", "texts_cuda_5")
    modules = {name: table(project, name) for name in names}
    kernels = {next(iter(module["kernels"])) + str(module.get("options", "")): module for module in modules.values()}
    assert set(kernels) == {
        "tile{'defines': {'TILE': '16'}}",
        "tile{'defines': {'TILE': '32'}}",
        "scale{'nvrtc-options': ['--std=c++20']}",
        "square",
        "saxpy",
    }
    tile = kernels["tile{'defines': {'TILE': '16'}}"]
    assert tile["kernels"]["tile"] == {"parameters": {"mask": "bool[...]"}}
    assert kernels["square"]["kernels"]["square"] == {
        "instances": ["square<double, long long>", "square<float, long long>"],
        "parameters": {"n": "z.size"},
    }
    assert tile["source"] == kernels["tile{'defines': {'TILE': '32'}}"]["source"] == "csrc/recorded/texts.cu"
    assert "k.tile[grid, block](...); tile has 1 parameter less than its launches have arguments" in done.err
    again = record(project, "--write", *command)
    assert " written, with the text" not in again.err
    assert modules == {name: table(project, name) for name in names}
    assert record(project, "--check", *command).status == 0
    built = projects.run(project, sys.executable, "-m", "aotcuda", "build", AOTCUDA_ARCH="sm_90")
    assert built.status == 0, built.err
