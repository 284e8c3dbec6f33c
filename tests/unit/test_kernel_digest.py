"""The digest of a Triton kernel follows each chain of names that the kernel's text reads."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.common import kernel_digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

OPS = """
import math
import triton
import triton.language as tl
import elsewhere
import elsewhere.deep as other
import mine.sub.helpers
import mine.sub.helpers as h
from elsewhere import DTYPE, finfo
from mine.sub.helpers import Mode, Sizes, TABLE, pick
from triton.language.extra import libdevice
mask = object()
GLOBAL = tl.constexpr(4)

@triton.jit
def k(x, N: tl.constexpr, D: tl.constexpr = GLOBAL, load=1):
    mask = tl.load(x) + h.VAL
    late = GLOBAL + 1
    GLOBAL = late
    a = mine.sub.helpers.step(mask) + h.CFG.N + h.CFG.deep.M + h.Derived.N + h.Derived.Inner.N + h.SIZES.n
    b = a + h.Derived.jitted(a) + TABLE[0] + h.NAMES["one"] + getattr(h, "NAMED") + pick(N) + h.size(N)
    c = tl.load(b) if h.Mode.FAST.value == 1 else elsewhere.finfo(elsewhere.float32).max
    d = libdevice.exp(c) * elsewhere.PI + other.LIMIT + h.alias.twice(c) + math.pi
    e = Sizes(d, load) + finfo(DTYPE).min + h.compat.float32 + h.OBJECT.weights[0] + h.AGG.field + Mode.SLOW
    e = e + elsewhere.SHAPE[0] + elsewhere.Level.LOW + elsewhere.Deep.jitted(e) + h.Weights.top() + h.Point(1).twice
    tl.store(x, h.chained(e) + elsewhere.jitted(e))
"""
HELPERS = """
import collections, enum, types
import elsewhere
import elsewhere as compat
import triton
import triton.language as tl
import mine.sub.more as alias
from mine.sub.more import chained

VAL = tl.constexpr(11)
CFG = types.SimpleNamespace(N=tl.constexpr(12), deep=types.SimpleNamespace(M=tl.constexpr(13)))
Sizes = collections.namedtuple("Sizes", "n m", defaults=[91])
SIZES = Sizes(tl.constexpr(14), 15)
TABLE = [tl.constexpr(16), (17, {18})]
NAMES = {"one": 19, "two": [20.0]}
NAMED = -0.0
UNREAD = 22

class Mode(enum.Enum):
    FAST = 1
    SLOW = 31

class Base:
    N = tl.constexpr(23)
    @staticmethod
    @triton.jit
    def jitted(x):
        return x + 24

class Derived(Base):
    class Inner:
        N = tl.constexpr(25)

class Weights:
    def __init__(self):
        self.weights = (26, 27)
    @classmethod
    def top(cls):
        return 44
OBJECT = Weights()

class Point:
    def __init__(self, n):
        self.n = n
    @property
    def twice(self):
        return self.n * 45

class AGG:
    field: int = 28

@triton.jit
def step(x):
    return x + 29

def pick(n):
    return n + alias.TOP

def size(n):
    def inner(m):
        return m + UNIT
    return inner(n)
UNIT = 35
"""
MORE = """
import triton
import triton.language as tl
TOP = 32
K = tl.constexpr(36)

@triton.jit
def twice(x):
    return x * 33

@triton.jit
def chained(x):
    return nested(x) + 37

@triton.jit
def nested(x):
    return x * K
"""
ELSEWHERE = """
import enum
import triton
SHAPE = (46, 47)
class Level(enum.IntEnum):
    LOW = 48
class Deep:
    @staticmethod
    @triton.jit
    def jitted(x):
        return x - 49
PI = 3.25
float32 = type("dtype", (), {"__repr__": lambda self: "elsewhere.float32"})()
DTYPE = float32
def load(path):
    return path + "1"
class finfo:
    def __init__(self, dtype):
        self.max = 41
        self.min = -41

@triton.jit
def jitted(x):
    return x - 42
"""
FLOAT64 = """
float64 = type("dtype", (), {"__repr__": lambda self: "elsewhere.float64"})()
"""
FILES = {
    "mine/ops.py": OPS,
    "mine/sub/helpers.py": HELPERS,
    "mine/sub/more.py": MORE,
    "elsewhere/__init__.py": ELSEWHERE,
    "elsewhere/deep.py": "LIMIT = 43\n",
}
EDITS = [
    *(("mine/ops.py", old, new) for old, new in [
        ("constexpr(4)", "constexpr(5)"),
        ("+ math.pi", "- math.pi"),
        ("libdevice.exp", "libdevice.log"),
        ("import libdevice", "import libdevice as other_device\nimport triton.language.math as libdevice"),
        ("import mine.sub.helpers as h", "import mine.sub.helpers as h\nfrom mine.sub import changed as h"),
        ("load=1", "load=2"),
        ("N: tl.constexpr,", "N,"),
        ("from elsewhere import DTYPE, finfo", "from elsewhere import DTYPE\nfrom elsewhere.deep import finfo"),
        ("DTYPE, finfo", "float64 as DTYPE, finfo"),
    ]),
    *(("mine/sub/helpers.py", old, new) for old, new in [
        *((f"({number})", f"({number}.0)") for number in (11, 12, 13, 14, 16, 23, 25)),
        ("defaults=[91]", "defaults=[92]"), ('"n m"', '"n o"'),
        ("(17, {18})", "[17, {18}]"), ("{18}", "{19}"), ("19,", "19.5,"), ("20.0", "20"),
        ('"two"', '"three"'), ("-0.0", "0.0"),
        ("FAST = 1\n", "FAST = 2\n"), ("SLOW = 31", "SLOW = 30"), ("x + 24", "x + 25"), ("(26, 27)", "(26, 28)"),
        ("x + 29", "x + 30"), ("n + alias", "n - alias"), ("m + UNIT", "m - UNIT"), ("UNIT = 35", "UNIT = 34"),
        ("return 44", "return 43"), ("* 45", "* 44"),
        ("field: int = 28", "field: int = 29"), ("class Derived(Base)", "class Derived"),
        ("import mine.sub.more as alias", "from mine.sub import changed as alias"),
    ]),
    *(("mine/sub/more.py", old, new) for old, new in [
        ("TOP = 32", "TOP = 33"), ("constexpr(36)", "constexpr(35)"), ("x * 33", "x * 34"), ("+ 37", "+ 38"),
        ("x * K", "x + K"), ("@triton.jit\ndef nested", "@triton.jit(noinline=True)\ndef nested"),
    ]),
    ("elsewhere/__init__.py", "PI = 3.25", "PI = 3.5"),
    ("elsewhere/__init__.py", "x - 42", "x - 43"),
    ("elsewhere/__init__.py", "(46,", "(45,"),
    ("elsewhere/__init__.py", "LOW = 48", "LOW = 47"),
    ("elsewhere/__init__.py", "x - 49", "x - 48"),
    ("elsewhere/deep.py", "LIMIT = 43", "LIMIT = 44"),
]  # fmt: skip
UNCHANGED = [
    ("mine/ops.py", "mask = object()", "mask = print"),
    ("mine/ops.py", "import math", "import math\nimport itertools"),
    ("mine/sub/helpers.py", "14), 15", "14), 16"),  # the kernel reads the other field
    ("mine/sub/helpers.py", "UNREAD = 22", "UNREAD = 21"),
    ("mine/sub/helpers.py", "    SLOW = 31", "    # slow\n    SLOW = 31"),
    ("elsewhere/__init__.py", 'path + "1"', "path"),  # the kernel calls `tl.load`
    ("elsewhere/__init__.py", "self.max = 41", "self.max = 42"),
    ("elsewhere/__init__.py", "def load", "def other():\n    pass\n\ndef load"),
]
UNDESCRIBABLE = [
    ("TABLE = [tl.constexpr(16), (17, {18})]", "TABLE = object()", "TABLE"),
    ("TABLE = [tl.constexpr(16), (17, {18})]", "TABLE = []; TABLE.append(TABLE)", "TABLE"),
    ("def pick(n):\n    return n + alias.TOP", "import functools; pick = functools.partial(elsewhere.load, 1)", "pick"),
    ("def pick(n):\n    return n + alias.TOP", "exec('def pick(n): return n')", "pick"),
    ("NAMED = -0.0", "NAMED = alias", "h.NAMED"),
    ("NAMED = -0.0", "NAMED = type('Odd', (), {'__getattr__': lambda self, name: {}[name]})()", "h.NAMED"),
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mine", "elsewhere")]:
        del sys.modules[name]
    importlib.invalidate_caches()


def digest_of(root: Path, path: str = "", old: str = "", new: str = "") -> str:
    """Return the digest of the kernel after an edit of one file."""
    changed = MORE + "\n" + HELPERS.replace("import mine.sub.more as alias", "import mine.sub.more as alias\nTOP = 99")
    files = {
        **FILES,
        "mine/__init__.py": "",
        "mine/sub/__init__.py": "",
        "mine/sub/changed.py": changed.replace("11)", "10)"),
    }
    if path:
        assert old in files[path]
        files[path] = files[path].replace(old, new)
    if "float64" in new:
        files["elsewhere/__init__.py"] += (
            'float64 = type("dtype", (), {"__repr__": lambda self: "elsewhere.float64"})()\n'
        )
    files["elsewhere/deep.py"] += "class finfo:\n    pass\nfinfo.__qualname__ = 'other_finfo'\n"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    forget()
    ops: Any = importlib.import_module("mine.ops")
    return kernel_digest.digest(ops.k, {})


@pytest.mark.parametrize(("path", "old", "new"), EDITS)
def test_edit_of_a_value_that_a_kernel_reads_changes_its_digest(root: Path, path: str, old: str, new: str) -> None:
    before = digest_of(root)
    assert digest_of(root) == before
    assert digest_of(root, path, old, new) != before


@pytest.mark.parametrize(("path", "old", "new"), UNCHANGED)
def test_edit_of_other_values_does_not_change_the_digest(root: Path, path: str, old: str, new: str) -> None:
    assert digest_of(root, path, old, new) == digest_of(root)


@pytest.mark.parametrize(("old", "new", "name"), UNDESCRIBABLE)
def test_kernel_with_undescribable_value_has_no_digest(root: Path, old: str, new: str, name: str) -> None:
    with pytest.raises(kernel_digest.UndescribableError, match=rf"^{name}"):
        digest_of(root, "mine/sub/helpers.py", old, new)
