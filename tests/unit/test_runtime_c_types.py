"""The types of the driver's functions are ctypes' own, with the package and without it."""

from __future__ import annotations

import _ctypes
import ctypes

import pytest

from aotcuda.runtime import c_types
from support import manifests
from support.manifests import kernel

TYPES = [name for name in c_types._NAMES if name.startswith("c_")]
FALLS_BACK = not hasattr(_ctypes, "POINTER")  # as from Python 3.14 on
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
    code = "import ctypes\nfrom aotcuda.runtime import c_types\n"
    same = "print(all(getattr(c_types, name) is getattr(ctypes, name) for name in c_types._NAMES))"
    assert packaged.run(code + same) == "True\n"


def test_without_it_a_launch_does_not_import_it_and_is_the_same(packaged):
    assert packaged.run(f"import sys\n{LAUNCH}\nprint('ctypes' in sys.modules)") == f"{FALLS_BACK}\n"
    bare = packaged.launches()
    assert packaged.run(f"import ctypes, sys\n{LAUNCH}\nprint('ctypes' in sys.modules)") == "True\n"
    assert len(bare) == 3
    assert packaged.launches()[3:] == bare


def test_without_it_they_are_of_the_same_sizes_and_the_libraries_functions_answer(packaged):
    shown = packaged.run(
        "import sys\nfrom aotcuda.runtime import c_types\nfrom _ctypes import sizeof\n"
        f"print([sizeof(getattr(c_types, name)) for name in {TYPES!r}])\n"
        "class Pair(c_types.Structure):\n    _fields_ = [('a', c_types.c_char * 3), ('b', c_types.c_void_p)]\n"
        "pair = Pair(b'xy', 7)\nprint(sizeof(Pair), pair.a, pair.b, c_types.pointer(pair).contents.b)\n"
        "print(c_types.CDLL('libc.so.6').abs(-3), bytes(c_types.create_string_buffer(2)))\n"
        "try:\n    c_types.CDLL('libc.so.6').no_such_function\nexcept AttributeError:\n    print('no such function')\n"
        "try:\n    c_types.CDLL('no_such_library.so')\n"
        "except OSError as error:\n    print('no_such_library.so' in str(error))\n"
        "print('ctypes' in sys.modules)"
    )
    sizes = [ctypes.sizeof(getattr(ctypes, name)) for name in TYPES]
    assert shown.splitlines() == [
        str(sizes),
        "16 b'xy' 7 7",
        "3 b'\\x00\\x00'",
        "no such function",
        "True",
        str(FALLS_BACK),
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
