"""The ways to launch a kernel that `bench/launch.py` compares.

Every peer launches the same work: a kernel of one float and some arrays, over the same grid. C calls the driver with
parameters made beforehand, which is as little as a host can do.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Launch = tuple[Callable[..., object], tuple[object, ...]]
    Batch = Callable[[int], float]

GRID, BLOCK, ELEMENTS = 8, 128, 1000

_LOOP = r"""
#include <stdint.h>
#include <time.h>
typedef unsigned U;
typedef int (*Launch)(void *, U, U, U, U, U, U, U, void *, void **, void **);
typedef int (*LaunchEx)(const void *, void *, void **, void **);
typedef struct { unsigned dims[6], shared; void *stream, *attributes; unsigned count; } Config;
typedef struct {
    int (*record)(void *, void *), (*wait)(void *, void *, U);
    void *event, *other;
    int mutual;
} Order;
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
double loop(Launch launch, void *kernel, unsigned grid, unsigned block, void *stream, void **parameters, void **extra,
            int count)
{
    double begin = now();
    for (int i = 0; i < count; i++)
        if (launch(kernel, grid, 1, 1, block, 1, 1, 0, stream, parameters, extra))
            return -1;
    return now() - begin;
}
double loop_ex(LaunchEx launch, void *kernel, unsigned grid, unsigned block, void *stream, void **parameters,
               void **extra, int count)
{
    Config config = {{grid, 1, 1, block, 1, 1}, 0, stream, 0, 0};
    double begin = now();
    for (int i = 0; i < count; i++)
        if (launch(&config, kernel, parameters, extra))
            return -1;
    return now() - begin;
}
double loop_ordered(Launch launch, void *kernel, unsigned grid, unsigned block, void *stream, void **parameters,
                    void **extra, int count, const Order *order)
{
    double begin = now();
    for (int i = 0; i < count; i++) {
        if (order->record(order->event, order->other) || order->wait(stream, order->event, 0))
            return -1;
        if (launch(kernel, grid, 1, 1, block, 1, 1, 0, stream, parameters, extra))
            return -1;
        if (order->mutual && (order->record(order->event, stream) || order->wait(order->other, order->event, 0)))
            return -1;
    }
    return now() - begin;
}
"""


_PEERS = ("cupy-cuda13x", "cupy-cuda12x", "torch", "triton", "cuda-core", "warp-lang", "numba-cuda", "numba-cuda-mlir")


class MissingError(Exception):
    """A peer is not there, and why."""


class Case:
    """A kernel of one float and `count` arrays, to be launched in every way.

    Attributes:
        count: How many arrays.
        name: The packaged kernel's name.
    """

    def __init__(self, kernels: Any, name: str, count: int, folder: Path) -> None:
        self.count = count
        self.name = name
        self._kernels = kernels
        self._folder = folder

    @property
    def packaged(self) -> Any:
        return getattr(self._kernels, self.name)

    @property
    def folder(self) -> Path:
        """Where sources and caches of the peers may go; it no longer exists when the comparison is over."""
        return self._folder

    def cupy(self) -> list[Any]:
        import cupy

        return [cupy.zeros(ELEMENTS, "float32") for _ in range(self.count)]

    def torch(self) -> list[Any]:
        import torch

        return [torch.zeros(ELEMENTS, device="cuda") for _ in range(self.count)]

    def numba(self) -> list[Any]:
        return [_numba_cuda().device_array(ELEMENTS, "float32") for _ in range(self.count)]

    @property
    def names(self) -> list[str]:
        return [f"x{index}" for index in range(self.count)]

    def cuda_source(self) -> str:
        """Return the kernel in CUDA C++; arrays are pointers, and one length is shared by all."""
        parameters = ", ".join(["float a", *(f"float *{name}" for name in self.names), "long long n"])
        total = " + ".join(["a * x0[i]", *(f"{name}[i]" for name in self.names[1:])])
        body = f"x0[i] = {total}" if self.count else ""
        index = "long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;"
        return f'extern "C" __global__ void probe({parameters}) {{ {index} if (i < n) {{ {body}; }} }}'

    def python_source(self) -> str:
        """Return the kernel in Python, for Numba and Triton, as functions `numba_probe` and `triton_probe`."""
        total = " + ".join(["a * x0[i]", *(f"{name}[i]" for name in self.names[1:])])
        numba = f"i = grid(1)\n    if i < x0.size:\n        x0[i] = {total}" if self.count else "pass"
        loads = " + ".join(f"tl.load({name} + i, mask=i < n)" for name in self.names)
        index = "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"
        triton = f"{index}\n    tl.store(x0 + i, a * ({loads}), mask=i < n)" if self.count else "pass"
        return (
            f"def numba_probe({', '.join(['a', *self.names])}):\n    {numba}\n\n"
            f"def triton_probe({', '.join(['a', *self.names, 'n', 'BLOCK: tl.constexpr'])}):\n    {triton}\n"
        )

    def python_module(self) -> Any:
        """Return the source as an imported module, since Triton reads its kernels' files."""
        path = self._folder / f"probe{self.count}.py"
        tl = "import triton.language as tl" if importlib.util.find_spec("triton") else "class tl:\n    constexpr = int"
        path.write_text(f"grid = None\n{tl}\n\n{self.python_source()}", encoding="utf-8")
        spec = importlib.util.spec_from_file_location(f"{path.stem}_{self.name}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


class _Order(ctypes.Structure):
    """As `_LOOP` has it."""

    _fields_ = (
        ("record", ctypes.c_void_p),
        ("wait", ctypes.c_void_p),
        ("event", ctypes.c_void_p),
        ("other", ctypes.c_void_p),
        ("mutual", ctypes.c_int),
    )


ORDERED = "C, both streams ordered"
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


def c_batches(
    case: Case, arrays: list[Any], stream: int = 0, other: int | None = None, *, mutual: bool = False
) -> Iterator[tuple[str, Batch]]:
    """C, in all the ways that the driver has; the first is what the others are compared with.

    With an `other` stream also one, by the name `ORDERED`, whose launches wait for that stream, as launches of arrays
    have to that are on it; `mutual` is for arrays whose protocol has that stream wait for the launch, too. The event is
    one for all launches, and without times, as launches of this project have theirs.
    """
    from aotcuda.runtime import driver as drivers

    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        message = "no C compiler"
        raise MissingError(message)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(_LOOP, encoding="utf-8")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        loops = ctypes.CDLL(str(library))
    driver = ctypes.CDLL(drivers.LIBRARY)
    case.packaged[GRID, BLOCK](2.0, *arrays)  # loads it
    plan = case.packaged._loader.current.table(case.packaged.__name__).overloads[0]
    kernel = plan.kernels[0].kernel
    function = ctypes.c_void_p()
    driver.cuKernelGetFunction(ctypes.byref(function), kernel)
    loaded = case.packaged._loader.current
    _, slot, *_ = loaded.select(case.packaged.__name__, (2.0, *arrays), stream)  # the parameters of such a launch
    block = slot.buffer
    size = ctypes.c_size_t(plan.size)
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(size), 0)
    offsets = [0]
    for parameter in plan.parameters[1:]:
        offsets += [parameter["offset"] + 8 * word for word in range(len(parameter["words"]))]
    pointers = (ctypes.c_void_p * len(offsets))(*[ctypes.addressof(block) + offset for offset in offsets])

    def batch(loop: str, call: str, handle: ctypes.c_void_p, parameters: Any, packed: Any, *more: Any) -> Batch:
        run = getattr(loops, loop)
        run.restype = ctypes.c_double
        address = ctypes.cast(getattr(driver, call), ctypes.c_void_p)

        def seconds(count: int) -> float:
            found: float = run(address, handle, GRID, BLOCK, ctypes.c_void_p(stream), parameters, packed, count, *more)
            if found < 0:
                message = "the driver refused the launch"
                raise MissingError(message)
            return found

        seconds.keep = (slot, extra, size, pointers, arrays, more)  # type: ignore[attr-defined]
        return seconds

    yield "C, one buffer", batch("loop", "cuLaunchKernel", kernel, None, extra)
    yield "C, pointers", batch("loop", "cuLaunchKernel", kernel, pointers, None)
    yield "C, one buffer, CUfunction", batch("loop", "cuLaunchKernel", function, None, extra)
    yield "C, pointers, CUfunction", batch("loop", "cuLaunchKernel", function, pointers, None)
    yield "C, one buffer, cuLaunchKernelEx", batch("loop_ex", "cuLaunchKernelEx", kernel, None, extra)
    if other is not None:
        event = ctypes.c_void_p()
        if driver.cuEventCreate(ctypes.byref(event), _NO_TIMING):
            message = "the driver made no event"
            raise MissingError(message)
        record, wait = (
            ctypes.cast(getattr(driver, name), ctypes.c_void_p).value for name in ("cuEventRecord", "cuStreamWaitEvent")
        )
        order = _Order(record, wait, event.value, other, int(mutual))
        yield ORDERED, batch("loop_ordered", "cuLaunchKernel", kernel, None, extra, ctypes.pointer(order))


def ctypes_batches(case: Case, arrays: list[Any], stream: int = 0) -> Iterator[tuple[str, Batch]]:
    """Return the driver called by ctypes, as launches in Python do, without reading arrays.

    What such a launch takes at the least: with the block of parameters made before, and with the same numbers packed
    each time.
    """
    import ctypes as types

    from aotcuda.runtime.launch_config import Configuration

    loaded = case.packaged._loader.current
    overload = loaded.table(case.packaged.__name__).overloads[0]
    _, slot, packed, *_ = loaded.select(case.packaged.__name__, (2.0, *arrays), stream)
    numbers = {f"n{at}": number for at, number in enumerate(packed)}
    values = {
        "launch": loaded.library.driver.launch,
        "configuration": Configuration(GRID, BLOCK, stream, 0, "").on_streams(cooperative=False)[stream],
        "kernel": types.c_void_p.from_param(overload.kernels[0].kernel.value),
        "extra": slot.pointers[1],
        "buffer": slot.buffer,
        "slot": slot,
        "pack_into": overload.pack_into,
        **numbers,
    }
    launch = "launch(configuration, kernel, None, extra)"
    yield "the driver by ctypes, the block made before", loop(launch, **values)
    pack = f"pack_into(buffer, 0, {', '.join(numbers)})"
    yield "the driver by ctypes, the block packed each time", loop(f"{pack}; {launch}", **values)


def loop(call: str, arrays: Sequence[object] = (), **names: object) -> Batch:
    """Return a loop over a call that is written out, as programs have it; `{args}` are a scalar and the arrays."""
    values = {f"x{at}": array for at, array in enumerate(arrays)} | names
    text = call.format(args=", ".join(["2.0", *(f"x{at}" for at in range(len(arrays)))]))
    source = (
        f"def bind({', '.join(values)}):\n"
        "    def batch(count):\n"
        "        begin = clock()\n"
        "        for _ in range(count):\n"
        f"            {text}\n"
        "        return clock() - begin\n"
        "    return batch\n"
    )
    scope: dict[str, Any] = {"clock": time.perf_counter}
    exec(source, scope)
    batch: Batch = scope["bind"](**values)
    return batch


def called(function: Callable[..., object], args: tuple[object, ...]) -> Batch:
    """Return the same for a function and its arguments."""
    names = {f"a{at}": arg for at, arg in enumerate(args)}
    return loop(f"f({', '.join(names)})", f=function, **names)


def launchers(case: Case) -> dict[str, Callable[[], Callable[..., object]]]:
    """Return what makes a launcher of this project's, for the fast path in C and for the general path."""
    from aotcuda.runtime import fast as extension
    from aotcuda.runtime.launch_config import Configuration
    from aotcuda.runtime.launcher import Launcher

    def fast() -> Callable[..., object]:
        if extension.in_use() is None:
            message = f"no fast path in C: {extension.why_not()}"
            raise MissingError(message)
        made: Callable[..., object] = case.packaged[GRID, BLOCK]
        return made

    def plain() -> Callable[..., object]:
        return Launcher(case.packaged._loader, case.packaged.__name__, "", Configuration(GRID, BLOCK, 0, 0, ""), None)

    return {"aotcuda, C": fast, "aotcuda, Python": plain}


def aotcuda_launches(case: Case) -> Iterator[tuple[str, Callable[[], Launch]]]:
    """Yield this project's launches: by the fast path in C and by the general path, for arrays of each library."""

    def kept(way: str, library: str) -> Callable[[], Launch]:
        return lambda: (made[way](), (2.0, *getattr(case, library)()))

    def indexed() -> Launch:
        kernel = case.packaged

        def launch(*args: object) -> None:
            kernel[GRID, BLOCK](*args)

        return launch, (2.0, *case.cupy())

    made = launchers(case)
    for library in ("cupy", "torch", "numba") if case.count else ("cupy",):
        of = f", {library}" if case.count else ""
        for way in made:
            yield f"{way}{of}", kept(way, library)
        if library == "cupy":
            yield f"aotcuda, k[grid, block](...) each time{of}", indexed


def others(case: Case) -> Iterator[tuple[str, Callable[[], Launch]]]:
    """Return everything else that launches kernels from Python."""

    def raw_kernel() -> Launch:
        import cupy

        kernel = cupy.RawKernel(case.cuda_source(), "probe")
        two, n = cupy.float32(2), cupy.int64(ELEMENTS)
        arguments = (two, *case.cupy(), n)
        return (lambda *_: kernel((GRID,), (BLOCK,), arguments)), ()

    def triton() -> Launch:
        import triton

        kernel = triton.jit(case.python_module().triton_probe)[(GRID,)]
        return kernel, (2.0, *case.torch(), ELEMENTS, BLOCK)

    def torch_add() -> Launch:
        import torch

        x, y, out = case.torch()
        return (lambda *_: torch.add(y, x, alpha=2.0, out=out)), ()

    def cuda_core() -> Launch:
        import cupy
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

        device = Device()
        device.set_current()
        major, minor = device.compute_capability
        options = ProgramOptions(arch=f"sm_{major}{minor}")
        kernel = Program(case.cuda_source(), "c++", options=options).compile("cubin").get_kernel("probe")
        pointers = [array.data.ptr for array in case.cupy()]
        arguments = (cupy.float32(2), *pointers, ctypes.c_longlong(ELEMENTS))
        return launch, (device.default_stream, LaunchConfig(grid=GRID, block=BLOCK), kernel, *arguments)

    def numba(library: str) -> Callable[[], Launch]:
        def make() -> Launch:
            cuda = _numba_cuda()
            module = case.python_module()
            module.grid = cuda.grid
            kernel = cuda.jit(module.numba_probe)[GRID, BLOCK]
            return kernel, (2.0, *getattr(case, library)())

        return make

    def mlir(library: str) -> Callable[[], Launch]:
        def make() -> Launch:
            from numba_cuda_mlir import cuda

            module = case.python_module()
            module.grid = cuda.grid
            if library == "own arrays":
                arrays = [cuda.device_array(ELEMENTS, "float32") for _ in range(case.count)]
            else:
                arrays = getattr(case, library)()
            return cuda.jit(module.numba_probe)[GRID, BLOCK], (2.0, *arrays)

        return make

    yield "CuPy RawKernel (nothing checked)", raw_kernel
    yield "Triton, torch", triton
    if case.name == "axpy":
        yield "torch.add(out=)", torch_add
    yield "cuda.core.launch (pointers)", cuda_core
    for library in ("numba", "cupy", "torch") if case.count else ("numba",):
        yield f"numba-cuda, {library}", numba(library)
    for library in ("own arrays", "cupy", "torch") if case.count else ("own arrays",):
        yield f"numba-cuda-mlir, {library}", mlir(library)


def warps(case: Case) -> Iterator[tuple[str, Callable[[], Launch]]]:
    """Warp: a launch, and one that was recorded with its arguments."""
    compiled: dict[str, Any] = {}

    def warp(library: str = "", *, recorded: bool = False) -> Callable[[], Launch]:
        def make() -> Launch:
            import warp

            warp.config.log_level = warp.LOG_WARNING
            warp.config.kernel_cache_dir = warp.config.kernel_cache_dir or str(case.folder / "warp")
            if "probe" not in compiled:  # two kernels of one name would replace each other in Warp's module
                compiled["probe"] = _warp_kernel(case)
            device = warp.get_device("cuda:0")
            arrays = getattr(case, library)() if library else _warp_arrays(warp, case, device)
            kernel, inputs = compiled["probe"], [2.0, *arrays]
            # Grid and block come out as the others have them: from the threads requested.
            if recorded:
                command = warp.launch(
                    kernel, dim=ELEMENTS, inputs=inputs, device=device, block_dim=BLOCK, record_cmd=True
                )
                return command.launch, ()
            return (lambda: warp.launch(kernel, dim=ELEMENTS, inputs=inputs, device=device, block_dim=BLOCK)), ()

        return make

    yield "Warp, own arrays", warp()
    if case.count:
        yield "Warp, cupy", warp("cupy")
    yield "Warp, recorded (arguments fixed)", warp(recorded=True)


def _warp_kernel(case: Case) -> Any:
    """Return the kernel in Warp's Python, from a file: Warp reads its kernels' sources."""
    annotated = ", ".join(["a: float", *(f"{name}: wp.array(dtype=float)" for name in case.names)])
    total = " + ".join(["a * x0[i]", *(f"{name}[i]" for name in case.names[1:])])
    body = f"i = wp.tid()\n    x0[i] = {total}" if case.count else "i = wp.tid()"
    path = case.folder / f"warp_{case.name}.py"
    path.write_text(f"import warp as wp\n\n\n@wp.kernel\ndef probe({annotated}):\n    {body}\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.probe


def _warp_arrays(warp: Any, case: Case, device: Any) -> list[Any]:
    return [warp.zeros(ELEMENTS, dtype=float, device=device) for _ in case.names]


def _numba_cuda() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from numba import config, cuda
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    return cuda


def versions() -> dict[str, str]:
    """Return the versions of the peers that are installed."""
    found = {}
    for name in _PEERS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
