"""Test that imports which Numba-CUDA needs for launches are skipped, and made at their first use."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from aotcuda.builder.frontends.numba_cuda import compiler, lazy_imports

front = compiler.FRONT_END
front.prepare("/")
front.warm_up()
assert not [name for name in sys.modules if name.startswith("cuda.core")]

from numba import cuda
from numba.cuda import _compat
from numba.cuda.cudadrv import driver
from numba.cuda.typing.typeof import typeof_impl
stood_in = driver.Linker
lazy_imports.put_back(typeof_impl)
assert driver.Linker is stood_in, "nobody wants it"
assert not isinstance(front, stood_in)
options = driver.LinkerOptions(arch="sm_90")
assert isinstance(options, driver.LinkerOptions)
assert type(options).__module__.startswith("cuda.core.")
assert driver.ExperimentalStream.from_handle

import cuda.core
import cuda.core.utils
assert cuda.core.Linker is not stood_in
lazy_imports.put_back(typeof_impl)
assert driver.Linker is cuda.core.Linker
assert _compat.core is cuda.core
assert cuda.core.Buffer in typeof_impl.registry
assert cuda.core.utils.StridedMemoryView in typeof_impl.registry
left = [
    (module.__name__, name)
    for module in list(sys.modules.values()) if module.__name__.startswith("numba.cuda")
    for name, value in vars(module).items() if isinstance(value, lazy_imports._Absent)
]
assert left == [], left
"""


def check_in_a_process(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_cuda_core_is_left_out_until_sources_import_it() -> None:
    check_in_a_process(SCRIPT)


def test_where_it_is_imported_already_nothing_stands_in_for_it() -> None:
    check_in_a_process(
        "import cuda.core\n"
        "from aotcuda.builder.frontends.numba_cuda import compiler\n"
        "from numba.cuda.cudadrv import driver\n"
        "assert driver.Linker is cuda.core.Linker\n"
    )
