"""List the inputs of the build stamp, each with an edit. The table in docs/many-machines.md has a row for each kind."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[Path], object]

NUMBA = ("numba-cuda", "numba-cuda-mlir")
PYTHON = (*NUMBA, "triton", "cutile")
ALL = (*PYTHON, "cuda-cpp")
CPP = (*NUMBA, "cuda-cpp")
"""The front ends that link CUDA C++."""

PACKAGES = {"numba-cuda": "numba_cuda", "numba-cuda-mlir": "numba_cuda_mlir", "triton": "triton", "cutile": "cuda.tile"}

TABLE = "`[tool.aotcuda]`"
MODULES = "Python files of the project's packages, imported or not, and new ones"
ELSEWHERE = (
    "Python files that are imported from elsewhere and are not installed, such as other projects' editable installs"
)
LINKED = "linked files, the headers that they include, and places where a header was looked for first"
FILES = "files that the project's code opens, also through a library (`open`, `numpy.load`)"
FOLDERS = "folders that the project's code lists (`os.listdir`, `os.scandir`, `glob`)"
VARIABLES = "environment variables that the project's code reads from `os.environ` or `os.getenv`"
RECORDED = "files of recorded variants (`variants`), with their tuning files"
WATCHED = "`watch` (files) and `watch-env` (variables) of the table"
VERSIONS = "versions of Python, aotcuda and installed distributions"
KEY = "`AOTCUDA_CACHE_KEY`"
EXISTENCE = "whether a path exists, sizes, times, permissions (`os.stat`, `Path.exists`; globs in a missing folder)"
IN_VAIN = "modules that were looked for in vain outside of the project's packages"
C_FILES = "files that C libraries open by themselves (HDF5, SQLite, a shared library of your own)"
C_VARIABLES = "variables that an installed library or C code reads"
CHILDREN = "child processes (`subprocess`) and what they read"


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a build, and an edit of it.

    Attributes:
        row: The input's row in the table of docs/many-machines.md.
        code: The text of a module that reads the input into `VALUE`; `HERE` is the input's folder. Kernels have a
            constant that depends on `VALUE`.
        before: A function that writes the input's files for the first build.
        edit: A function that changes the input.
        variables: Environment variables of the first build, and those of the edit; None removes one.
        where: The parent of the input's folder, in the project; empty if the project's folder is the input's folder.
        front_ends: The front ends that have this input.
        changes: The front ends whose machine code changes by the edit.
        is_read_at_compile_time: True if the code runs when a kernel is compiled, and not when the source is imported.
        is_outside_editable_stamp: True if launches of an editable install do not check the input, because its build
            runs in another environment.
    """

    row: str
    code: str = ""
    before: Change = lambda folder: None
    edit: Change = lambda folder: None
    variables: tuple[dict[str, str], dict[str, str | None]] = ({}, {})
    where: str = "data"
    front_ends: tuple[str, ...] = PYTHON
    changes: tuple[str, ...] = PYTHON
    is_read_at_compile_time: bool = False
    is_outside_editable_stamp: bool = False

    def folder(self, name: str, root: Path) -> Path:
        """Return the input's folder in the project at `root`."""
        return (root / self.where / tag(name)).resolve() if self.where else root


def tag(name: str) -> str:
    """Return an input's name as the name of a folder and a module."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def write(name: str, text: str = "1\n") -> Change:
    """Write a file in the folder."""

    def change(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return change


def substitute(name: str, old: str, new: str) -> Change:
    """Replace a text that a file in the folder has once."""

    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert text.count(old) == 1, (name, old)
        (folder / name).write_text(text.replace(old, new))

    return change


def remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def in_order(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def link(name: str, target: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return change


def same_times(*names: str) -> Change:
    """Write files that differ only in their content."""

    def change(folder: Path) -> None:
        for number, name in enumerate(names):
            (folder / name).write_text(f"{number}\n")
            os.utime(folder / name, ns=(10**18, 10**18))

    return change


def zipped(value: str) -> Change:
    def change(folder: Path) -> None:
        with zipfile.ZipFile(folder / "modules.zip", "w") as archive:
            archive.writestr("zipped_scale.py", f"SCALE = {value}\n")

    return change


def distribution(version: str) -> Change:
    def change(folder: Path) -> None:
        for path in folder.glob("*.dist-info"):
            path.rmdir()
        (folder / f"installed_scale-{version}.dist-info").mkdir()
        (folder / "installed_scale.py").write_text(f"SCALE = {version}\n")

    return change


def module(name: str, folder: str = "HERE", *, stays: bool = False) -> str:
    """Return code that imports a module from a folder, which is on the path for that moment."""
    dropped = "" if stays else f"sys.modules.pop({name!r}, None)\n"
    return f"""\
import sys
sys.path.insert(0, str({folder}))
try:
    import {name}
    VALUE = {name}.SCALE
except ImportError:
    VALUE = 0
finally:
    sys.path.pop(0)
{dropped}"""


_OWN_MODULE = """\
import importlib
try:
    VALUE = importlib.import_module(f"{__package__}.data.{TAG}.helper").SCALE
except ImportError:
    VALUE = 0
"""
_GETENV = """\
import ctypes
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
VALUE = getenv(b"%s")
"""
_SCALE = write("scale.txt"), write("scale.txt", "2\n")
_TEXT = "(HERE / 'scale.txt').read_text()"

INPUTS = {
    "the table": Input(
        TABLE,
        edit=substitute("pyproject.toml", '["sm_90"]', '["sm_90", "sm_80"]'),
        where="",
        front_ends=ALL,
        changes=ALL,
    ),
    "the source module": Input(MODULES, edit=substitute("pkg/_k.py", "5", "6"), where=""),
    "the source file": Input(
        LINKED, edit=substitute("csrc/k.cu", "5", "6"), where="", front_ends=("cuda-cpp",), changes=ALL
    ),
    "a module that a source imports": Input(
        MODULES, _OWN_MODULE, write("helper.py", "SCALE = 1\n"), write("helper.py", "SCALE = 2\n"), where="pkg/data"
    ),
    "a module that nothing imports": Input(
        MODULES, edit=write("pkg/unused.py", "SCALE = 2\n"), where="", front_ends=ALL, changes=()
    ),
    "a module that a source looks for": Input(
        MODULES, _OWN_MODULE, edit=write("helper.py", "SCALE = 2\n"), where="pkg/data"
    ),
    "a module of another project": Input(
        ELSEWHERE,
        module("another_scale", stays=True),
        write("another_scale.py", "SCALE = 1\n"),
        write("another_scale.py", "SCALE = 2\n"),
        where="../another",
    ),
    "a module that is dropped": Input(
        ELSEWHERE,
        module("dropped_scale"),
        write("dropped_scale.py", "SCALE = 1\n"),
        write("dropped_scale.py", "SCALE = 22\n"),
        where="../another",
    ),
    "a linked file": Input(LINKED, edit=substitute("csrc/f.cu", "7", "8"), where="", front_ends=CPP, changes=ALL),
    "a header of a linked file": Input(
        LINKED, edit=write("include/f.h", "#define F 2\n"), where="", front_ends=CPP, changes=ALL
    ),
    "a header that is found first": Input(
        LINKED, edit=write("first/g.h", "#define G 2\n"), where="", front_ends=CPP, changes=ALL
    ),
    "an optional file, missing": Input(
        FILES,
        "try:\n    VALUE = (HERE / 'deep' / 'scale.txt').read_text()\nexcept FileNotFoundError:\n    VALUE = 3\n",
        edit=write("deep/scale.txt"),
    ),
    "a file by a path in bytes": Input(
        FILES, "import os\nwith open(os.fsencode(HERE / 'scale.txt'), 'rb') as F:\n    VALUE = F.read()\n", *_SCALE
    ),
    "a Python file that is run": Input(
        FILES,
        "import runpy\nVALUE = runpy.run_path(str(HERE / 'table.py'))['TABLE']\n",
        write("table.py", "TABLE = 1\n"),
        write("table.py", "TABLE = 2\n"),
    ),
    "a relative path in another folder": Input(
        FILES,
        "import os\nBACK = os.getcwd()\nos.chdir(HERE)\n"
        "with open('scale.txt') as F:\n    VALUE = F.read()\nos.chdir(BACK)\n",
        *_SCALE,
    ),
    "a file that another package reads": Input(
        FILES, "import numpy\nVALUE = float(numpy.loadtxt(HERE / 'scale.txt'))\n", *_SCALE
    ),
    "a file beside a temporary one without a name": Input(
        FILES, f"import tempfile\nwith tempfile.TemporaryFile(dir=HERE):\n    VALUE = {_TEXT}\n", *_SCALE
    ),
    "a file that is opened for appending before": Input(
        FILES, f"(HERE / 'scale.txt').open('a').close()\nVALUE = {_TEXT}\n", *_SCALE
    ),
    "a file by a link": Input(
        FILES,
        "VALUE = (HERE / 'now').read_text()\n",
        in_order(same_times("a", "b"), link("now", "a")),
        link("now", "b"),
    ),
    "a module of an archive": Input(FILES, module("zipped_scale", "HERE / 'modules.zip'"), zipped("1"), zipped("222")),
    "a glob": Input(
        FOLDERS, "import glob\nVALUE = len(glob.glob(str(HERE / '*.csv')))\n", write("a.csv"), write("b.csv")
    ),
    "the names in a folder": Input(
        FOLDERS, "import os\nVALUE = len(os.listdir(HERE))\n", in_order(write("a"), write("b")), remove("b")
    ),
    "a variable": Input(
        VARIABLES, "import os\nVALUE = os.environ['READ_A']\n", variables=({"READ_A": "1"}, {"READ_A": "2"})
    ),
    "a variable that is not set": Input(
        VARIABLES, "import os\nVALUE = os.getenv('READ_B')\n", variables=({}, {"READ_B": ""})
    ),
    "a variable in bytes": Input(
        VARIABLES, "import os\nVALUE = os.getenvb(b'READ_C')\n", variables=({"READ_C": "1"}, {"READ_C": "2"})
    ),
    "a file of recorded variants": Input(
        RECORDED, edit=substitute("pkg/k.variants.json", "32", "64"), where="", front_ends=("triton",)
    ),
    "a watched file": Input(
        WATCHED,
        "import os\nVALUE = os.stat(HERE / 'a.h5').st_size\n",
        write("a.h5"),
        write("a.h5", "22\n"),
        front_ends=ALL,
        where="watched",
    ),
    "a watched variable": Input(
        WATCHED, _GETENV % "WATCHED_A", variables=({"WATCHED_A": "1"}, {"WATCHED_A": "2"}), front_ends=ALL
    ),
    "an installed distribution": Input(
        VERSIONS,
        module("installed_scale", stays=True),
        distribution("1.0"),
        distribution("2.00"),
        where="../site-packages",
        is_outside_editable_stamp=True,
    ),
    "the cache key": Input(
        KEY,
        "VALUE = (HERE / 'scale.txt').stat().st_size\n",
        write("scale.txt"),
        write("scale.txt", "222\n"),
        ({}, {"AOTCUDA_CACHE_KEY": "2"}),
        front_ends=ALL,
    ),
}
"""Edits after which no earlier result may be used."""

for _name in ("a module that is dropped", "a file that another package reads", "a glob", "a variable"):
    _item = INPUTS[_name]
    _before, _after = ({key.replace("READ", "LATE"): value for key, value in one.items()} for one in _item.variables)
    INPUTS[f"{_name}, while a kernel is compiled"] = replace(
        _item, code=_item.code.replace("READ_", "LATE_"), variables=(_before, _after), is_read_at_compile_time=True
    )

IGNORED = {
    "bytecode in a folder that is listed": Input(
        FOLDERS, "VALUE = len(list(HERE.iterdir()))\n", write("a.py"), write("__pycache__/a.cpython-311.pyc")
    ),
    "an editor's files in a folder that is listed": Input(
        FOLDERS,
        "VALUE = len(list(HERE.iterdir()))\n",
        write("a.py"),
        in_order(*map(write, (".a.py.swp", "a.py~", ".#a.py"))),
    ),
    "generated files in a folder that is listed": Input(
        FOLDERS,
        "VALUE = len(list(HERE.iterdir()))\n",
        write("a.txt"),
        in_order(*map(write, ("k.aotcuda/manifest.json", "k.py", "k.pyi"))),
    ),
    "a temporary file": Input(
        FILES,
        "import tempfile\nwith tempfile.TemporaryDirectory(dir=HERE) as T:\n"
        "    (P := type(HERE)(T) / 'x').write_text('1')\n    VALUE = P.read_text(), len(list(P.parent.iterdir()))\n",
    ),
    "a file that the import writes": Input(
        FILES,
        "if not (HERE / 'cache').exists():\n    (HERE / 'cache').write_text('1')\n"
        "VALUE = (HERE / 'cache').read_text()\n",
    ),
    "a variable that the import sets": Input(
        VARIABLES,
        "import os\nos.environ.setdefault('READ_G', '1')\nVALUE = os.environ['READ_G']\ndel os.environ['READ_G']\n"
        "os.environ['READ_H'] = '1'\nVALUE = os.environ['READ_H']\n",
    ),
    "a variable that nothing reads": Input(
        VARIABLES, "VALUE = 1\n", variables=({"READ_I": "1"}, {"READ_I": "2", "PATH": "/elsewhere", "TERM": "other"})
    ),
    "a file of the project with another time": Input(
        FILES, f"VALUE = {_TEXT}\n", write("scale.txt"), lambda folder: os.utime(folder / "scale.txt", ns=(1, 1))
    ),
    "a file whose presence is asked for": Input(EXISTENCE, "VALUE = (HERE / 'fast').exists()\n", edit=write("fast")),
    "a module that is looked for outside": Input(
        IN_VAIN, module("absent_scale"), edit=write("absent_scale.py", "SCALE = 2\n"), where="../another"
    ),
    "a database": Input(
        C_FILES,
        "import sqlite3\nwith sqlite3.connect(HERE / 'a.db') as D:\n    D.execute('create table if not exists t(x)')\n"
        "    VALUE = D.execute('select count(*) from t').fetchone()\nD.close()\n",
        edit=write("a.db", ""),
    ),
    "a variable that C code reads": Input(C_VARIABLES, _GETENV % "C_A", variables=({"C_A": "1"}, {"C_A": "2"})),
    "a file that a child process reads": Input(
        CHILDREN, "import subprocess\nVALUE = subprocess.check_output(['/bin/cat', HERE / 'scale.txt'])\n", *_SCALE
    ),
}
"""Edits of other things, and of inputs that builds miss (see the page): builds reuse the earlier result."""

PYPROJECT = """\
[tool.aotcuda]
arch = ["sm_90"]
frontend = "{front_end}"
watch = ["watched/**/*.h5"]
watch-env = ["WATCHED_*"]

[tool.aotcuda.modules."pkg.k"]
{module}
"""
_INCLUDES = 'link = ["csrc/f.cu"]\noptions = { include-dirs = ["first", "include"] }\n'
_NUMBA_MODULE = f'source = "pkg._k"\nkernels.k = "void(int64[::1])"\n{_INCLUDES}'
_NUMBA = """\
from {package} import cuda
from {extending}

{imports}

linked = cuda.declare_device("linked", "int64(int64)", abi="c")


def late(x):
    return x


@overload(late, {registered})
def _late(x):
    from pkg._late import VALUE

    return lambda x: x + VALUE


@cuda.jit
def k(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = linked(late(x[i])) + VALUE + 5
"""
_TRITON = """\
import triton
import triton.language as tl

{imports}

TOTAL = tl.constexpr(VALUE)


@triton.constexpr_function
def late(n):
    from pkg._late import VALUE

    return n + VALUE


@triton.jit
def k(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + TOTAL + late(BLOCK) + 5)


@triton.jit
def recorded(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + 3)
"""
_VARIANTS = {
    "format": "aotcuda variants",
    "version": 1,
    "source": "pkg._k",
    "triton": "3.9.0",
    "kernels": {
        "recorded": {"parameters": ["x", "BLOCK"], "variants": [{"types": ["*i64"], "constexprs": {"BLOCK": 32}}]}
    },
}
_CUTILE = """\
import cuda.tile as ct

{imports}
from pkg._late import VALUE as LATE


@ct.kernel
def k(x, TILE: ct.Constant[int]):
    at = ct.bid(0)
    ct.store(x, index=(at,), tile=ct.load(x, index=(at,), shape=(TILE,)) + VALUE + LATE + 5)
"""
SOURCES = {
    "numba-cuda": (
        _NUMBA_MODULE,
        {
            "pkg/_k.py": _NUMBA.replace("{package}", "numba")
            .replace("{extending}", "numba.cuda.extending import overload")
            .replace("{registered}", "target='cuda'")
        },
    ),
    "numba-cuda-mlir": (
        _NUMBA_MODULE,
        {
            "pkg/_k.py": _NUMBA.replace("{package}", "numba_cuda_mlir")
            .replace("{extending}", "numba_cuda_mlir.extending import overload, typing_registry")
            .replace("{registered}", "typing_registry=typing_registry")
        },
    ),
    "triton": (
        """\
source = "pkg._k"
variants = "pkg/k.variants.json"
kernels.k = { signature = "*i64:16", constexprs = { BLOCK = 64 } }
""",
        {"pkg/_k.py": _TRITON, "pkg/k.variants.json": json.dumps(_VARIANTS)},
    ),
    "cutile": (
        'source = "pkg._k"\nkernels.k = { signature = "int64[::1]", specialise = "exact", constants.TILE = 64 }\n',
        {"pkg/_k.py": _CUTILE},
    ),
    "cuda-cpp": (
        f'source = "csrc/k.cu"\nkernels.k = {{}}\n{_INCLUDES}',
        {
            "csrc/k.cu": '#include "k.h"\nextern "C" __device__ long long linked(long long);\n'
            'extern "C" __global__ void k(long long *x) { x[0] = linked(x[0]) + K + 5; }\n'
        },
    ),
}
"""For each front end the module's table and the files of the source; kernels have the constant `VALUE`."""

_CPP = {
    "csrc/f.cu": '#include "f.h"\n#include "g.h"\n'
    'extern "C" __device__ long long linked(long long x) { return x * 7 + F * 3 + G; }\n',
    "include/f.h": "#define F 1\n",
    "include/g.h": "#define G 1\n",
    "include/k.h": "#define K 1\n",
    "first/other.h": "",
}
_READER = """\
from pathlib import Path

ROOT = Path(__file__).parents[1]
TAG = {tag!r}
HERE = (ROOT / {where!r} / TAG).resolve()
{code}"""


def inputs_of(front_end: str) -> dict[str, Input]:
    """Return the inputs that sources of a front end have."""
    return {name: item for name, item in INPUTS.items() if front_end in item.front_ends}


def variables() -> dict[str, str]:
    """Return the environment variables of the first build."""
    return {key: value for item in (INPUTS | IGNORED).values() for key, value in item.variables[0].items()}


def generate(root: Path, front_end: str) -> Path:
    """Write a project of one kernel that depends on each input; return its folder."""
    table, files = SOURCES[front_end]
    readers: dict[bool, list[str]] = {False: [], True: []}
    texts = {"pkg/__init__.py": "", **files, **_CPP, "pyproject.toml": ""}
    texts["pyproject.toml"] = PYPROJECT.format(front_end=front_end, module=table)
    for name, item in (INPUTS | IGNORED).items():
        folder = item.folder(name, root)
        folder.mkdir(parents=True, exist_ok=True)
        item.before(folder)
        if item.code and front_end in PYTHON:
            texts[f"pkg/_{tag(name)}.py"] = _READER.format(tag=tag(name), where=item.where, code=item.code)
            readers[item.is_read_at_compile_time].append(f"_{tag(name)}")
    for at_compile_time, module_name in ((False, "_imported"), (True, "_late")):
        names = ", ".join(readers[at_compile_time])
        lines = [f"from pkg import {names}"] if names else []
        lines += ["from zlib import crc32", f"VALUES = [{', '.join(f'{it}.VALUE' for it in readers[at_compile_time])}]"]
        lines += ["VALUE = sum(crc32(repr((number, it)).encode()) for number, it in enumerate(VALUES))"]
        texts[f"pkg/{module_name}.py"] = "\n".join([*lines, ""])
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text.replace("{imports}", "from pkg._imported import VALUE"))
    return root
