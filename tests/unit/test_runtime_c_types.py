"""The types of the driver's functions are ctypes' own, with the package and without it."""

from __future__ import annotations

import ctypes

import pytest

from support import manifests
from support.manifests import kernel

TYPES = ["c_char", "c_char_p", "c_int", "c_size_t", "c_uint", "c_uint64", "c_void_p"]
ARRAY = """
class Array:
    __cuda_array_interface__ = {"version": 3, "data": (4096, False), "shape": (8,), "typestr": "<f4", "strides": None}
"""
LAUNCH = f"""{ARRAY}
import mypkg.kernels
for _ in range(3):
    mypkg.kernels.k[1, 32](2.0, Array())
"""


@pytest.fixture
def packaged(cuda):
    manifests.write(
        cuda.packages,
        [kernel("k", "void(float32, float32[::1])"), kernel("pointed", "void(float32*)")],
        load="first-use",
    )
    return cuda


def test_where_ctypes_was_imported_they_are_its_own(packaged):
    """In a process of its own: which of the two is imported first in this one, the tests before this one decide."""
    code = "import ctypes, sys\nfrom aotcuda import runtime\nown = 'aotcuda.runtime.c_types'\n"
    assert packaged.run(f"{code}print(runtime.ctypes is ctypes, own in sys.modules)") == "True False\n"


def test_whoever_asks_first_has_decided_for_all(packaged):
    """Types of the two do not mix."""
    code = "from aotcuda import runtime\nfirst = runtime.ctypes\nimport ctypes\n"
    code += f"from aotcuda.runtime import driver\n{LAUNCH}\n"
    assert packaged.run(f"{code}print(driver.ctypes is first is runtime.ctypes)") == "True\n"
    assert len(packaged.launches()) == 3


def test_of_threads_that_ask_at_once_all_get_the_same(packaged):
    """One is held up in the midst of it, while the other imports ctypes itself."""
    code = """
import builtins, threading
from aotcuda import runtime
plain, entered, go_on = builtins.__import__, threading.Event(), threading.Event()
def slow(name, namespace=None, locals=None, names=(), level=0):
    found = plain(name, namespace, locals, names, level)
    if names and "c_types" in names:
        entered.set()
        go_on.wait(10)
    return found
builtins.__import__ = slow
got = []
thread = threading.Thread(target=lambda: got.append(runtime.ctypes))
thread.start()
entered.wait(10)
import ctypes
got.append(runtime.ctypes)
go_on.set()
thread.join()
print(got[0] is got[1] is runtime.ctypes)
"""
    assert packaged.run(code) == "True\n"


def test_without_it_a_launch_does_not_import_it_and_is_the_same(packaged):
    assert packaged.run(f"import sys\n{LAUNCH}\nprint('ctypes' in sys.modules)") == "False\n"
    bare = packaged.launches()
    assert packaged.run(f"import ctypes, sys\n{LAUNCH}\nprint('ctypes' in sys.modules)") == "True\n"
    assert len(bare) == 3
    assert packaged.launches()[3:] == bare


def test_without_it_they_are_of_the_same_sizes_and_the_libraries_functions_answer(packaged):
    shown = packaged.run(
        "import sys\nfrom aotcuda.runtime import ctypes as c_types\nfrom _ctypes import sizeof\n"
        f"print([sizeof(getattr(c_types, name)) for name in {TYPES!r}])\n"
        "print('ctypes' in sys.modules)\n"  # from Python 3.14 on structs have it imported
        "class Pair(c_types.Structure):\n    _fields_ = [('a', c_types.c_char * 3), ('b', c_types.c_void_p)]\n"
        "pair = Pair(b'xy', 7)\nprint(sizeof(Pair), pair.a, pair.b, Pair.from_address(c_types.addressof(pair)).b)\n"
        "print(c_types.CDLL('libc.so.6').abs(-3), bytes(c_types.create_string_buffer(2)))\n"
        "try:\n    c_types.CDLL('libc.so.6').no_such_function\nexcept AttributeError:\n    print('no such function')\n"
        "try:\n    c_types.CDLL('no_such_library.so')\n"
        "except OSError as error:\n    print('no_such_library.so' in str(error))\n"
    )
    sizes = [ctypes.sizeof(getattr(ctypes, name)) for name in TYPES]
    assert shown.splitlines() == [
        str(sizes),
        "False",
        "16 b'xy' 7 7",
        "3 b'\\x00\\x00'",
        "no such function",
        "True",
    ]


def test_where_its_c_half_has_other_names_it_is_ctypes(packaged):
    hidden = (
        "import builtins, sys\nplain = builtins.__import__\n"
        "def without(name, namespace=None, *rest):\n"
        "    if name == '_ctypes' and namespace['__name__'] == 'aotcuda.runtime.c_types':\n        raise ImportError\n"
        "    return plain(name, namespace, *rest)\nbuiltins.__import__ = without\n"
    )
    assert packaged.run(f"{hidden}{LAUNCH}\nprint('ctypes' in sys.modules)") == "True\n"
    assert len(packaged.launches()) == 3


def test_an_address_of_ctypes_is_taken_where_it_was_imported_later(packaged):
    code = "import mypkg.kernels as k\nk.pointed[1, 1](64)\nimport ctypes\nk.pointed[1, 1](ctypes.c_void_p(4096))"
    packaged.run(code)
    assert [int.from_bytes(bytes.fromhex(launch["parameters"]), "little") for launch in packaged.launches()] == [
        64,
        4096,
    ]


def test_types_that_are_made_when_they_are_asked_for_are_made_once(packaged):
    code = """
from aotcuda.runtime import c_types
for name in c_types._RARE:
    assert name not in vars(c_types)
    assert getattr(c_types, name) is getattr(c_types, name) is vars(c_types)[name]
    assert c_types.__getattr__(name) is vars(c_types)[name]  # who comes late, of two threads
try:
    c_types.c_short
except AttributeError as error:
    print(error)
"""
    assert packaged.run(code) == "module 'aotcuda.runtime.c_types' has no attribute 'c_short'\n"
