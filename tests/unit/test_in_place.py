"""Sources that are packaged in place: imports, launches, and objects of Numba."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pickle
import sys

import numpy as np
import pytest

import aotcuda
from aotcuda.errors import (
    ArgumentError,
    HostArrayWarning,
    ManifestError,
    NoImageError,
    StaleBuildError,
)
from aotcuda.integrations.in_place import cuda_module, entry
from aotcuda.runtime.launch.arguments import host_arrays
from support import in_place

SOURCE = """
from aotcuda.numba import cuda, float32, int32, njit, types, void
import aotcuda.numba as nb

BLOCK = 32


@cuda.jit(device=True)
def twice(x):
    return x + x


@nb.cuda.jit
def add(x, y, out):
    "Adds."
    shared = cuda.shared.array(BLOCK, float32)
    out[cuda.grid(1)] = twice(x[0]) + y[0]


@cuda.jit(fastmath=True)
def scale(factor, values):
    values[0] *= factor


@cuda.jit(void(float32, float32[:]))
def shift(by, values):
    values[0] += by


@cuda.jit([(int32[:, ::1],), "void(int64[:])"])
def missing(values):
    values[0] = 1


@njit(parallel=True)
def on_the_processor(x):
    return x * 2


class Solver:
    @staticmethod
    @cuda.jit
    def step(values):
        values[0] = 2


def launch(x, y, out):
    add[1, BLOCK](x, y, out)
"""
KERNELS = {
    "add": ("void(float32[::1], float32[::1], float32[::1])",),
    "scale": ("void(float64, float32[::1])", "void(int64, float32[::1])", "void(float32, float32[::1])"),
    "shift": ("void(float32, float32[::1])",),
}


NUMBA_ALONE = (
    "test_kernels_of_other_modules_can_call_device_functions",
    "test_cpu_functions_are_compiled_at_their_first_call",
    "test_numba_compiles_functions_with_resolved_names",
    "test_proxies_resolve_to_objects_of_numba",
    "test_a_missing_gpu_raises_numbas_own_error",
)


@pytest.fixture(autouse=True, params=["numba", "numba_cuda_mlir"])
def _settings(request, monkeypatch):
    if request.param != "numba" and request.node.originalname in NUMBA_ALONE:
        pytest.skip("numba-cuda-mlir has no njit, vectorize, config, or errors of Numba")
    monkeypatch.setattr(in_place, "package", request.param)
    monkeypatch.setattr("aotcuda.runtime.jit.compile._warned", set())


def solver(cuda, text=SOURCE, kernels=KERNELS, **options):
    """Return the source, packaged in place and imported."""
    in_place.write(cuda.packages, text, kernels, eager=("shift",), **options)
    importlib.invalidate_caches()
    return importlib.import_module("mypkg.solver")


def symbols(cuda):
    return [call["kernel"] for call in cuda.launches()]


def test_an_import_needs_neither_numba_nor_driver(cuda):
    in_place.write(cuda.packages, SOURCE, KERNELS)
    code = f"{in_place.NO_NUMBA}\nimport mypkg.solver as s\nprint(s.add.__doc__, 'ctypes' in sys.modules)"
    assert cuda.run(code) == "Adds. False\n"
    assert cuda.calls() == []


def test_launch_uses_the_packaged_code(cuda):
    s = solver(cuda)
    s.launch(cuda.array(), cuda.array(), cuda.array())
    (launch,) = cuda.launches()
    assert (launch["kernel"], launch["block"], launch["stream"]) == ("add_0", [32, 1, 1], 0)


@pytest.mark.parametrize(
    ("number", "symbol"),
    [
        (2.0, "scale_0"),
        (np.float64(2), "scale_0"),
        (2, "scale_1"),
        (np.int64(2), "scale_1"),
        (np.float32(2), "scale_2"),
        *((number, None) for number in (True, 2**63, np.int32(2), np.uint8(2), 1j, np.float16(1))),
    ],
)
def test_numbers_select_overloads_by_numbas_types(cuda, number, symbol):
    s = solver(cuda)
    with contextlib.nullcontext() if symbol else pytest.raises(ArgumentError):
        s.scale[1, 32](number, cuda.array())
    assert symbols(cuda) == [symbol] * (symbol is not None)


def test_a_kernel_with_decorator_signatures_converts_numbers(cuda):
    s = solver(cuda)
    for number in (2.0, 2, np.float64(2), np.int32(2)):
        s.shift[1, 32](number, cuda.array())
        assert np.frombuffer(cuda.parameters()[:4], "<f4") == 2


@pytest.mark.parametrize("launch", [lambda kernel: kernel[1, 32], lambda kernel: kernel.forall(8, tpb=32)])
def test_numpys_arrays_are_copied_with_numbas_warning(cuda, monkeypatch, launch):
    errors = importlib.import_module("numba.core.errors")
    s = solver(cuda)
    host = np.ones(8, "<f4")
    text = "Host array used in CUDA kernel will incur copy overhead"
    with pytest.warns(errors.NumbaPerformanceWarning, match=text) as caught:
        launch(s.add)(host, cuda.array(), host)
    assert issubclass(caught[0].category, HostArrayWarning)
    assert caught[0].filename == __file__
    assert len(cuda.calls("cuMemAlloc")) == 1
    monkeypatch.setenv("NUMBA_CUDA_WARN_ON_IMPLICIT_COPY", "0")
    launch(s.add)(host, cuda.array(), s.cuda.InOut(cuda.array()))  # with warnings as errors
    assert [call["block"] for call in cuda.launches()] == [[32, 1, 1]] * 2


def test_arrays_hinted_as_input_are_not_copied_back(cuda, monkeypatch):
    monkeypatch.setenv("NUMBA_CUDA_WARN_ON_IMPLICIT_COPY", "0")
    s = solver(cuda)
    back = []

    monkeypatch.setattr(host_arrays._Copy, "copy_back", lambda self: back.append(self._array))
    read, written = np.ones(8, "<f4"), np.zeros(8, "<f4")
    s.add[1, 32](s.cuda.In(read), read, s.cuda.Out(written))
    assert [array is written for array in back] == [True]


def test_load_returns_the_module(cuda):
    s = solver(cuda)
    module = aotcuda.load("mypkg.solver")
    assert module is s.__aotcuda__
    assert sorted(module.kernels) == ["add", "scale", "shift"]
    module.attribute("add")[1, 32](cuda.array(), cuda.array(), cuda.array())
    assert symbols(cuda) == ["add_0"]


def test_kernels_are_named_and_pickled_like_their_functions(cuda):
    s = solver(cuda)
    assert inspect.unwrap(s.add) is s.add.py_func
    assert (s.add.__module__, s.add.__doc__, s.Solver.step.__qualname__) == ("mypkg.solver", "Adds.", "Solver.step")
    assert s.scale.signatures == list(KERNELS["scale"])
    for value in (s.add, s.twice, s.Solver.step, s.on_the_processor, s.__aotcuda__.kernels["add"]):
        assert pickle.loads(pickle.dumps(value)) is value


def test_wrong_calls_name_the_right_form(cuda):
    s = solver(cuda)
    with pytest.raises(TypeError, match=r"mypkg.solver.twice is a device function: kernels call it"):
        s.twice(1, b=1)
    with pytest.raises(ValueError, match=r"mypkg.solver.add needs a configuration: add\[grid, block\]"):
        s.add(1, b=1)
    for launch, form in ((s.add[1, 8], r"\[grid, block\]"), (s.add.forall(8), r"\.forall\(n\)")):
        refused = rf"^mypkg.solver.add accepts positional arguments, not names \('b'\): write add{form}"
        with pytest.raises(ArgumentError, match=refused):
            launch(1, b=1)


def test_a_wrapped_kernel_is_found_by_its_definition(cuda):
    text = """
import functools
from aotcuda.numba import cuda


@lambda kernel: functools.partial(lambda kernel, *args: kernel[1, 1](*args), kernel)
@cuda.jit
def fill(values):
    values[0] = 1
"""
    s = solver(cuda, text, {"fill": ("void(float32[::1])",)})
    s.fill(cuda.array())
    assert symbols(cuda) == ["fill_0"]


def test_numba_compiles_kernels_that_are_not_packaged(cuda, monkeypatch):
    s = solver(cuda, SOURCE, KERNELS, fallback="jit")
    decorated = []
    monkeypatch.setattr(
        type(s.missing), "_decorate", lambda self, *args, **_: decorated.append(args) or {(1, 1): "Numba's"}
    )
    with pytest.warns(aotcuda.FallbackWarning, match=r"mypkg.solver.missing \(line \d+\) is in no image") as caught:
        assert s.missing[1, 1] == "Numba's"
    assert caught[0].filename == __file__
    assert s.missing[1, 1] == "Numba's"
    assert decorated == [s.missing._args]


OTHER_VALUE = r"mypkg.solver.add \(line 13\) was packaged for other values \(BLOCK is 32, and was 64 in the build\)"


@pytest.mark.parametrize("launch", [lambda kernel: kernel[1, 1], lambda kernel: kernel.forall(1)])
def test_numba_compiles_a_kernel_that_reads_another_value_than_the_build(cuda, monkeypatch, launch):
    s = solver(cuda, fallback="jit", values={"add": {"BLOCK": [["int", "64"]]}, "scale": {"BLOCK": [["int", "32"]]}})

    class Compiled(dict):
        def forall(self, *_):
            return self[1, 1]

    monkeypatch.setattr(type(s.add), "_decorate", lambda *_, **__: Compiled({(1, 1): "Numba's"}))
    assert s.add.signatures == list(KERNELS["add"])  # attributes do not compare
    with pytest.warns(aotcuda.FallbackWarning, match=OTHER_VALUE + ", so Numba compiles it; build the package with"):
        assert launch(s.add) == "Numba's"
    assert launch(s.add) == "Numba's"  # with one warning
    assert s.scale[1, 32] is not None  # and no warning


def test_another_value_than_the_builds_is_an_error_where_nothing_may_be_compiled(cuda):
    s = solver(cuda, values={"add": {"BLOCK": [["int", "64"]]}})
    for _ in range(2):
        with pytest.raises(NoImageError, match=OTHER_VALUE + ", and nothing may be compiled here; build the package"):
            s.launch(cuda.array(), cuda.array(), cuda.array())
    assert symbols(cuda) == []


@pytest.mark.parametrize("is_edited", [False, True])
def test_values_of_an_edited_source_are_those_of_its_new_images(cuda, is_edited):
    values = {"add": {"BLOCK": [["int", "64"]]}}
    folder = in_place.write(cuda.packages, SOURCE, KERNELS, editable=True, values=values)
    if is_edited:
        (folder.parent / "solver.py").write_text(SOURCE + "\n")
    s = importlib.import_module("mypkg.solver")
    if is_edited:
        assert s.add[1, 32] is not None  # the launch compiles again, or raises StaleBuildError
    else:
        with pytest.raises(NoImageError, match=OTHER_VALUE):
            s.add[1, 32]


def test_nothing_is_compiled_where_the_fallback_is_off(cuda, monkeypatch):
    s = solver(cuda)
    with pytest.raises(
        NoImageError, match="is in no image that was packaged, and nothing may be compiled here; name it"
    ):
        s.missing[1, 1]
    monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
    with pytest.raises(NoImageError):
        s.Solver.step[1, 1]


def test_without_numba_errors_name_the_extra(cuda):
    in_place.write(cuda.packages, SOURCE, KERNELS, fallback="jit")
    code = f"""{in_place.NO_NUMBA}
import mypkg.solver as s
for call, *args in [(s.missing.forall, 1), (s.cuda.to_device, 1), (s.on_the_processor, 1)]:
    try:
        call(*args)
    except Exception as error:
        print(type(error).__name__, error)
"""
    extra = "and numba is not installed: pip install 'aotcuda[jit-cu13]'"
    missing = (
        "mypkg.solver.missing (line 30) is in no image that was packaged, and compiling it here needs numba, which is "
        "not installed: pip install 'aotcuda[jit-cu13]'; or name it in tool.aotcuda.modules.\"mypkg.solver\".kernels, "
        "as `aotcuda record --write` does"
    )
    expected = [
        missing,
        f"numba.cuda.to_device is Numba's own, {extra}",
        f"numba.njit, which makes mypkg.solver.on_the_processor, is Numba's own, {extra}",
    ]
    assert cuda.run(code).splitlines() == [in_place.named(f"DependencyError {text}") for text in expected]


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("@nb.cuda.jit\n", "print()\n\n@nb.cuda.jit\n", NoImageError, r"mypkg.solver.add \(line 15\) is in no image"),
        ("x + x", "x * 2", StaleBuildError, r"solver.py is not the file that its images were built from; install"),
    ],
    ids=["moved function", "other code"],
)
def test_an_edited_source_launches_nothing(cuda, old, new, error, message):
    folder = in_place.write(cuda.packages, SOURCE, KERNELS)
    text = (folder.parent / "solver.py").read_text()
    (folder.parent / "solver.py").write_text(text.replace(old, new))
    s = importlib.import_module("mypkg.solver")
    with pytest.raises(error, match=message):
        s.add[1, 1]


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("manifest.json", b'"add_0"', b'"add_1"', "does not match the digest"),
        ("in-place", b"mypkg.solver ", b"mypkg.solver!", "in-place was altered; install the package again"),
        ("in-place", b" 1 ", b" 2 ", "in-place needs a newer aotcuda: pip install --upgrade"),
    ],
)
def test_altered_files_are_refused_at_the_first_launch(cuda, file, old, new, expected):
    path = in_place.write(cuda.packages, SOURCE, KERNELS) / file
    path.write_bytes(path.read_bytes().replace(old, new))
    s = importlib.import_module("mypkg.solver")
    with pytest.raises(ManifestError, match=expected):
        s.add[1, 32](cuda.array(), cuda.array(), cuda.array())


def test_devices_work_without_numba(cuda):
    in_place.write(cuda.packages, SOURCE, KERNELS)
    code = f"""{in_place.NO_NUMBA}
from mypkg.solver import cuda
print(cuda.is_available(), len(cuda.gpus), [gpu.id for gpu in cuda.list_devices()])
device = cuda.get_current_device()
print(device.name, device.compute_capability, device.MULTIPROCESSOR_COUNT, device == cuda.gpus[0])
cuda.synchronize()
free, total = cuda.current_context().get_memory_info()
print(free < total, cuda.select_device(1).id, cuda.get_current_device().id, cuda.gpus.current.id)
with cuda.gpus[0]:
    print(cuda.get_current_device().id)
print(cuda.get_current_device().id)
"""
    cuda.set(devices="9.0,7.5")
    assert cuda.run(code).splitlines() == [
        "True 2 [0, 1]",
        "Stand-in A (9, 0) 132 True",
        "True 1 1 1",
        "0",
        "1",
    ]
    assert len(cuda.calls("cuCtxSynchronize")) == 1


def test_names_at_import_need_no_numba(cuda):
    text = """
import math
from aotcuda.numba import cuda, float32, from_dtype, int32, types, vectorize

SOURCES = [cuda.CUSource("text"), cuda.LTOIR(b"", name="x")]
add_up = cuda.declare_device("add_up", "float32(float32, float32)", link=SOURCES)
RECORD = from_dtype([("x", "f4")])[:]
PAIR = types.UniTuple(float32, 2)
TABLE = {float32: 1, int32: 2}
IS_ARRAY = isinstance(1, cuda.devicearray.DeviceNDArray)


@cuda.reduce
def total(a, b):
    return a + b


@vectorize(["float32(float32)"], target="cuda")
def doubled(x):
    return x * 2


@cuda.jit(link=SOURCES)
def k(x):
    x[0] = add_up(x[0], x[1])


@cuda.jit(types.void(RECORD, PAIR))
def records(x, pair):
    x[0].x = pair[0]


NAMES = [add_up, total.__name__, doubled, RECORD, PAIR, IS_ARRAY, float32[:, ::1], cuda.libdevice.sinf]
"""
    in_place.write(cuda.packages, text, {"k": ("void(float32[::1])",)})
    assert cuda.run(f"{in_place.NO_NUMBA}\nimport mypkg.solver as s\nprint(*s.NAMES)") == in_place.named(
        "numba.cuda.declare_device('add_up', 'float32(float32, float32)') total mypkg.solver.doubled "
        "numba.from_dtype([('x', 'f4')])[:] "
        "numba.types.UniTuple(numba.float32, 2) False numba.float32[:, ::1] numba.cuda.libdevice.sinf\n"
    )


HAS_CUDA = """
from mypkg.solver import cuda, nb_errors
from aotcuda.errors import HostArrayWarning

try:
    cuda.cudadrv.devices.get_context()
except (cuda.cudadrv.error.CudaSupportError, cuda.cudadrv.driver.CudaAPIError) as error:
    print(type(error).__name__)
try:
    raise ValueError
except nb_errors.TypingError:
    pass
except ValueError:
    print(nb_errors.NumbaPerformanceWarning is HostArrayWarning)
"""


@pytest.mark.parametrize("has_gpu", [True, False])
def test_numbas_driver_modules_report_a_missing_gpu(cuda, has_gpu):
    in_place.write(cuda.packages, f"{SOURCE}\nfrom aotcuda.numba import errors as nb_errors\n", KERNELS)
    environ = {} if has_gpu else {"LD_LIBRARY_PATH": "/nowhere"}
    output = cuda.run(in_place.NO_NUMBA + HAS_CUDA, **environ).splitlines()
    assert output == [*([] if has_gpu else ["NoDriverError"]), "True"]


def test_proxies_resolve_to_objects_of_numba(cuda):
    s = solver(cuda, SOURCE + "\nfrom aotcuda.numba import config, errors\n")
    numba, devicearray = (importlib.import_module(name) for name in ("numba", "numba.cuda.cudadrv.devicearray"))
    real = importlib.import_module("numba.cuda")
    assert s.cuda.cudadrv.devicearray.DeviceNDArray.numba_object() is devicearray.DeviceNDArray
    assert not isinstance(1, s.cuda.cudadrv.devicearray.DeviceNDArray)
    assert bool(s.config.DISABLE_JIT) is bool(numba.config.DISABLE_JIT)
    assert s.errors.TypingError is numba.errors.TypingError
    assert {s.float32: 1}[s.float32] == 1
    assert s.float32 != s.int32
    assert s.types.Array(s.float32, 1, "C").numba_object() == numba.float32[::1]
    assert s.void(s.int32, s.float32[:, ::1]).numba_object() == numba.void(numba.int32, numba.float32[:, ::1])
    assert (s.float32(1.5), type(s.float32(1.5))) == (1.5, np.float32)
    assert s.cuda.numba_object() is real
    assert cuda_module.attribute("numba", "__version__") == numba.__version__
    with pytest.raises(AttributeError, match=r"numba\.cuda has no attribute 'nonsense'"):
        s.cuda.nonsense()


def test_cpu_functions_are_compiled_at_their_first_call(cuda):
    text = """
from aotcuda.numba import cuda, njit, prange, float64


@njit
def outer(x):
    return inner(x) + 1


@njit("float64(float64)")
def inner(x):
    return x * 2


@njit(parallel=False)
def total(n):
    found = 0
    for i in prange(n):
        found += float64(i)
    return found
"""
    s = solver(cuda, text, {})
    assert [s.outer(4.0), s.inner(2), s.total(4), s.outer.py_func.__name__] == [9.0, 4.0, 6.0, "outer"]
    assert len(s.inner.signatures) == 1


def test_numba_compiles_functions_with_resolved_names(cuda):
    s = solver(cuda)
    real = s.add.numba_object()
    numba = importlib.import_module("numba")
    names = real.py_func.__globals__
    assert type(real).__name__ == "CUDADispatcher"
    assert (names["cuda"], names["float32"]) == (importlib.import_module("numba.cuda"), numba.float32)
    assert names["twice"] is s.twice.numba_object()
    assert names["add"] is real
    assert names["scale"].targetoptions["fastmath"] is True
    assert s.twice.numba_object().targetoptions["device"] is True


def test_kernels_of_other_modules_can_call_device_functions(cuda):
    s = solver(cuda)
    typeof = importlib.import_module("numba.cuda.typing.typeof").typeof
    assert typeof(s.twice) == typeof(s.twice.numba_object())
    assert typeof(s.float32) == typeof(importlib.import_module("numba").float32)
    assert typeof(s.cuda).pymod is importlib.import_module("numba.cuda")


@pytest.mark.parametrize(
    ("name", "value"), [("AOTCUDA_BUILDING", "1"), ("AOTCUDA_IN_PLACE", "0"), ("NUMBA_ENABLE_CUDASIM", "1")]
)
def test_numba_is_used_in_builds_and_in_the_simulator(cuda, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    in_place.write(cuda.packages, SOURCE.replace("@cuda.jit([", "@cuda.jit(device=True) if 1 else (["), KERNELS)
    namespace = {"__name__": "mypkg.solver", "__file__": str(cuda.packages / "mypkg" / "solver.py")}
    assert entry.attribute("numba", "cuda", namespace) is importlib.import_module("numba.cuda")
    assert entry.attribute("numba", "float32", namespace) is importlib.import_module("numba").float32


def test_a_module_that_was_never_built_gets_numba(cuda):
    package = cuda.packages / "mypkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "plain.py").write_text("from aotcuda.numba import cuda, float32\nimport aotcuda.numba as nb\n")
    plain = importlib.import_module("mypkg.plain")
    numba = importlib.import_module("numba")
    assert plain.cuda is sys.modules["numba.cuda"]
    assert plain.float32 is numba.float32
    built = solver(cuda)
    assert built.cuda is not plain.cuda


IMPORTS = {
    "not built": (
        "from aotcuda.numba import cuda",
        "aotcuda.numba is numba itself, which is not installed: pip install 'aotcuda[jit-cu13]', or build the package",
    ),
    "frozen without data": (
        "import sys\nsys.frozen = True\nfrom aotcuda.numba import cuda",
        "this application was frozen without the package's data: add --collect-data mypkg to PyInstaller's command",
    ),
    "submodule": (
        "import aotcuda.numba.cuda",
        "aotcuda.numba has no submodules; write from aotcuda.numba import cuda, and below it the whole name, such as ",
    ),
}


@pytest.mark.parametrize(("text", "message"), IMPORTS.values(), ids=IMPORTS)
def test_an_import_without_numba_names_the_remedy(cuda, text, message):
    package = cuda.packages / "mypkg"
    package.mkdir(parents=True)
    (package / "plain.py").write_text(text.replace("aotcuda.numba", f"aotcuda.{in_place.package}"))
    code = f"{in_place.NO_NUMBA}\ntry:\n    import mypkg.plain\nexcept ImportError as error:\n    print(error)"
    assert in_place.named(message) in cuda.run(code)


def test_a_script_launches_packaged_kernels(cuda, tmp_path):
    assert entry.is_numba("numba", {"__name__": "__main__", "__file__": str(tmp_path / "x.py")})
    in_place.write(cuda.packages, SOURCE + "\nprint(__name__, __aotcuda__.name)\nscale[1, 1]\n", KERNELS)
    code = f"{in_place.NO_NUMBA}\nimport runpy\nrunpy.run_module('mypkg.solver', run_name='__main__')"
    assert cuda.run(code) == "__main__ mypkg.solver\n"


def test_other_modules_of_the_package_need_no_numba(cuda):
    in_place.write(cuda.packages, SOURCE, KERNELS)
    package = cuda.packages / "mypkg"
    in_place.mark(package / "__init__.aotcuda", {})
    (package / "inner").mkdir()
    (package / "inner" / "__init__.py").write_text("import aotcuda.numba as nb\n")
    (package / "inner" / "more.py").write_text("from mypkg.inner import nb\ncuda = nb.cuda\n")
    assert (
        cuda.run(f"{in_place.NO_NUMBA}\nfrom mypkg.inner.more import cuda\nprint(cuda)")
        == "<cuda of aotcuda.numba, in place>\n"
    )
