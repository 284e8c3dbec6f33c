"""Let each call of the fast path that allocates fail once: launches raise MemoryError or work, and later ones work."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import re
import shutil
import struct
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from aotcuda.errors import AotcudaError
from aotcuda.runtime.launch import fast
from support import launch_paths, libraries
from support.grids import PAIR
from support.libraries import Array, State
from support.manifests import kernel
from support.triton_in_place import record

HEADER = Path(launch_paths.__file__).with_name("failing_allocations.h")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="compiles the extension with options of GCC")


class Site(ctypes.Structure):
    """A call that allocates."""

    _fields_ = (("file", ctypes.c_char_p), ("line", ctypes.c_long), ("failed", ctypes.c_long))


class Failing:
    """The extension, compiled so that a call that allocates can fail.

    Attributes:
        module: The extension module.
    """

    def __init__(self, library):
        self._library = ctypes.CDLL(str(library))
        self._library.site_at.restype = ctypes.POINTER(Site)
        self._left = ctypes.c_long.in_dll(self._library, "calls_until_failure")
        self._spec = importlib.util.spec_from_file_location(launch_paths.NAME, library)

    def load(self):
        """Initialize the module, and return it."""
        self.module = importlib.util.module_from_spec(self._spec)
        self._spec.loader.exec_module(self.module)
        return self.module

    def fail_each(self, call, make=tuple, error=()):
        """Let the allocations of `call(*make())` fail one after the other; the call may also raise `error`."""
        for number in itertools.count():
            made = make()
            with self.failing(number) as left, contextlib.suppress(MemoryError, *error):
                call(*made)
            with contextlib.suppress(*error):
                call(*make())
            if left.value >= 0:
                return

    @contextlib.contextmanager
    def failing(self, number):
        """Let an allocation fail, and yield the number of calls that are left before the failure."""
        left = ctypes.c_long()
        self._left.value = number
        try:
            yield left
        finally:
            left.value, self._left.value = self._left.value, -1

    def sites(self):
        """Return all calls that allocate, and those that have failed."""
        found = [site[0] for site in itertools.takewhile(bool, map(self._library.site_at, itertools.count()))]
        names = [(Path(site.file.decode()).name, site.line, number) for number, site in enumerate(found)]
        return {*names}, {name for name, site in zip(names, found, strict=True) if site.failed}


@pytest.fixture(scope="module")
def library(once):
    """Return the file of the extension whose allocations can fail."""
    options = ["-include", str(HEADER)]
    return (
        once("failing", lambda folder: launch_paths.compile_extension(folder / "_launch.so", *options)) / "_launch.so"
    )


def fail_initializations(library, folder):
    """Let the allocations of the module's initialization fail, each in a copy; return the calls that have failed."""
    failed, number, is_left = set(), 0, True
    while is_left:
        copy = Failing(shutil.copyfile(library, folder / f"_launch_{number}.so"))
        with copy.failing(number) as left, contextlib.suppress(MemoryError):
            copy.load()
        assert copy.load().VERSION == fast._VERSION
        failed |= copy.sites()[1]
        number, is_left = number + 1, left.value < 0
    return failed


class Stream:
    """A stream object."""

    def __cuda_stream__(self):
        return 0, 77


def types():
    return (type("Float", (float,), {})(1.0),)


PARAMETER = (0, "C", 0, 4, 1, 0, b"")
SCALAR = ("s", "f", *PARAMETER, "", b"", 1, -(2**63), 2**63 - 1, None)
CONSTANT = ("k", "q", *PARAMETER, "", b"", 1, -(2**63), 2**63 - 1, 7)
ADDRESS = ("e", "Q", *PARAMETER, "<f4", b"", 1, -(2**63), 2**63 - 1, None)
FLIGHTS = (ctypes.c_uint * 256)()


def add(module, parameters, args, kinds):
    """Add a specialization to a new object."""
    layout = module.ArgumentLayout(8, tuple(parameters))
    candidates = ((layout, 4096, (0, 0, 0), 0),)
    coders = ((0, 0, 0, 0, ()),)
    numbers = (-1, 0, (2**32 - 1,) * 9, lambda _: "<f4", None, 0, None, (0,) * 4)
    specializations = module.Specializations()
    return specializations.add(args, bytes(kinds), candidates, coders, [1], ctypes.addressof(FLIGHTS), *numbers)


def fail_private_calls(failing):
    """Let the calls of the extension's own functions fail."""
    module = failing.module
    failing.fail_each(module.declines)
    failing.fail_each(lambda: module.set_torch_stream(lambda _: 0))
    failing.fail_each(module.xla_handlers)
    failing.fail_each(
        lambda: module.xla_prepare(
            "m.k", 1, 5, (1, 1, 1, 32, 1, 1, 0), 4096, 4096, False, 1, 0, bytes(16), struct.pack("<4i", 0, 0, 0, 1), b""
        )
    )
    failing.fail_each(lambda: module.ArgumentLayout(8, (SCALAR,), struct.pack("<i", 0)))
    arrays = [(Array(library, State()), kind) for library, kind in (("interface", 3), ("exchange", 4))]
    for parameter, value, kind in (
        (SCALAR, 2.0, 17),
        (CONSTANT, object(), 22),
        *((ADDRESS, libraries.make(array), kind) for array, kind in arrays),
    ):
        assert add(module, [parameter], (value,), [kind])
        failing.fail_each(lambda *made: add(module, *made), lambda made=([parameter], (value,), [kind]): made)
    dimensions = (1, 1, 1, 32, 1, 1, 0)
    failing.fail_each(
        lambda: module.Launcher(
            print, module.Specializations(), dimensions, None, b"", ("x", "n"), (1, 1), 2, ((1, 0, 0),)
        )
    )


def fail_plain_launches(cuda, failing, monkeypatch):
    k = cuda.package(kernel("k", "void(float64, float32[::1])"), name="plain.kernels").k
    array = cuda.array(np.zeros(8, "<f4"))
    for _ in range(5):
        k[1, 32](2.0, array)
    failing.fail_each(lambda: k[1, 32](2.0, array))
    failing.fail_each(lambda number: [k[1, 32](number, array) for _ in range(3)], types)
    failing.fail_each(lambda: k[1, 32, Stream()](2.0, array))
    failing.fail_each(lambda: k.forall(100)(2.0, array))
    failing.fail_each(lambda: k[1, 32](2.0, "text"), error=(AotcudaError,))
    launcher = k[1, 32]
    failing.fail_each(lambda: type(launcher).__call__(launcher, 2.0, array))
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuLaunchKernel=1")
    failing.fail_each(lambda: k[1, 32](2.0, array), error=(AotcudaError,))
    monkeypatch.delenv("FAKE_CUDA_FAIL")


def fail_launches_by_grid(cuda, failing, monkeypatch):
    pair = cuda.package(PAIR, by_grid=True, frontend="triton", name="pair.kernels").k
    exact = record("k", [{"name": "x"}, {"name": "n"}], {"x": "*fp32:16", "n": "i32"})
    exact = cuda.package(exact, by_grid=True, frontend="triton", name="exact.kernels").k
    array = cuda.array(np.zeros(8, "<f4"), data=(4096, False))
    for _ in range(5):
        pair[1](array, 1.0, 16, BLOCK=128)
        exact[lambda _: (1,)](array, 5)
    launcher = pair[1]
    failing.fail_each(lambda: type(launcher).__call__(launcher, array, 1.0, 16, BLOCK=128))
    failing.fail_each(lambda: pair[lambda _: 1](array, 1.0, 16, BLOCK=128))
    failing.fail_each(lambda: pair[1](array, 1.0, 16, BLOCK=5, num_warps=3), error=(AotcudaError,))
    failing.fail_each(lambda: exact[1](x=array, n=5))
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuLaunchKernel=1;cuLaunchKernelEx=1")
    failing.fail_each(lambda: exact[lambda _: (1,)](array, 5), error=(AotcudaError,))
    monkeypatch.delenv("FAKE_CUDA_FAIL")


@pytest.mark.usefixtures("current")
def test_each_allocation_fails_once(cuda, library, monkeypatch, tmp_path):
    failing = Failing(library)
    monkeypatch.setattr(fast, "_module", [failing.load()])
    fail_private_calls(failing)
    fail_plain_launches(cuda, failing, monkeypatch)
    fail_launches_by_grid(cuda, failing, monkeypatch)
    sites, failed = failing.sites()
    assert {file for file, *_ in sites} == {path.name for path in launch_paths.SOURCES}
    assert sites - failed - fail_initializations(library, tmp_path) == set()


def test_all_functions_that_allocate_can_fail():
    named = re.compile(r"\b(Py(?!Err|Bool)\w*_(?:Malloc|Calloc|Realloc|\w*New|From\w+|\w*Alloc|Pack|BuildValue))\(")
    used = {name for path in launch_paths.SOURCES for name in named.findall(path.read_text())}
    assert used - {*re.findall(r"#define (\w+)\(", HEADER.read_text())} == set()


def test_failed_allocations_leave_no_memory(library):
    failing, where, raised = Failing(library), "k" * 1_000_000, 0
    failing.load()
    tracemalloc.start()
    for number in range(8):
        before = tracemalloc.get_traced_memory()[0]
        with failing.failing(number) as left, contextlib.suppress(MemoryError):
            failing.module.xla_prepare(
                where, 1, 5, (1, 1, 1, 32, 1, 1, 0), 4096, 4096, False, 1, 0, bytes(16), bytes(0), b""
            )
        if left.value < 0:
            raised += 1
            assert tracemalloc.get_traced_memory()[0] - before < 500_000, number
    tracemalloc.stop()
    assert raised > 4
