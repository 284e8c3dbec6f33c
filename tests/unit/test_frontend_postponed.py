"""What Numba imports and hardly ever uses is imported when something uses it, and answers as it would have then."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

START = """
import sys
from aotcuda.builder.frontends.numba_cuda import compiler
compiler.FRONT_END.prepare("/")
"""

UNUSED = """
from numba.cuda.cudadrv import driver
assert not {"asyncio", "yaml", "cffi", "_cffi_backend", "pycparser"} & {*sys.modules}
assert driver.asyncio.Future is __import__("asyncio").Future
assert driver.asyncio.futures.Future is __import__("asyncio").Future
assert driver.asyncio.get_running_loop is sys.modules["asyncio"].get_running_loop
"""

CFFI = """
import ctypes, math, numpy as np
from numba.core.typing import cffi_utils as of_core
from numba.cuda.typing import cffi_utils as of_cuda

class Unhashable:
    __hash__ = None

def plain(): pass
values = [plain, math.exp, len, 1.5, b"int", None, object(), Unhashable(), [1], math, int, np.float32]
both = (of_core, of_cuda)
asked = lambda values: [(of.is_cffi_func(value), of.is_ffi_instance(value)) for of in both for value in values]
assert all(of.SUPPORTED for of in both)
postponed = asked(values)
assert "_cffi_backend" not in sys.modules
assert postponed == [(False, False)] * len(postponed)

import cffi
ffi = cffi.FFI()
ffi.cdef("double cos(double);")
cos = ffi.dlopen(None).cos
values += [ffi, cos, "int"]
told = lambda: (asked(values), [of.make_function_type(cos).sig for of in both], [of.get_pointer(cos) for of in both])
stood_in = told()
assert stood_in[0][-3:] == [(False, True), (True, False), (False, False)]
for of in both:
    assert of.cffi is not cffi
    of.cffi, of.ffi = cffi, cffi.FFI()
    of._cached_type_map = None
assert stood_in == told()
"""

FROM_BUFFER = """
import cffi
from numba import cuda
from numba.cuda import types
ffi = cffi.FFI()
sum_of = cuda.declare_device("sum_of", "float32(CPointer(float32), int32)")

def kernel(x, out):
    out[0] = sum_of(ffi.from_buffer(x), x.size)

compiled = compiler.cuda_compiler.compile_cuda(
    kernel, types.void, (types.float32[::1], types.float32[::1]), nvvm_options={"opt": 3}, cc=(7, 5), lto=True
)
assert '@"sum_of"(' in "".join(map(str, compiled.library.modules))
"""


def check_in_a_process(script: str, folder: Path | None = None) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    command = [sys.executable, "-c", START + script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environ)
    assert done.returncode == 0, done.stderr


def test_what_nobody_uses_is_not_imported() -> None:
    check_in_a_process(UNUSED)


def test_what_stands_in_for_cffi_answers_as_cffi_does() -> None:
    pytest.importorskip("cffi")
    check_in_a_process(CFFI)


def test_kernels_may_use_it_where_sources_import_it() -> None:
    pytest.importorskip("cffi")
    check_in_a_process(FROM_BUFFER)


def test_where_something_is_imported_already_nothing_stands_in_for_it() -> None:
    script = "import asyncio, sys\nfrom numba.cuda.cudadrv import driver\nassert driver.asyncio is asyncio\n"
    done = subprocess.run(
        [sys.executable, "-c", "import asyncio\nfrom aotcuda.builder.frontends.numba_cuda import compiler\n" + script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_file_of_numbas_settings_is_read(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / ".numba_config.yaml").write_text("loop_vectorize: 0\n", encoding="utf-8")
    check_in_a_process("from numba.core import config\nassert config.LOOP_VECTORIZE == 0\n", tmp_path)


def test_without_a_pyyaml_that_works_numba_says_so_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / ".numba_config.yaml").write_text("loop_vectorize: 0\n", encoding="utf-8")
    (tmp_path / "yaml.py").write_text("raise ImportError('broken')\n", encoding="utf-8")  # found before the package
    check_in_a_process("from numba.core import config\nassert not config._HAVE_YAML\n", tmp_path)
