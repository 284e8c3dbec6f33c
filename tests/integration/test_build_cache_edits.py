"""Edits that reach a kernel by ways that are easily overlooked: with the cache a build gives what it gives without.

Whether an edit changes what is built, each case proves by the builds without the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, NamedTuple

import pytest

from aotcuda.builder import api
from integration.projects import build_with, put

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("no_other_caches")

KERNEL = "@cuda.jit\ndef k(x):\n    x[cuda.grid(1)] = {}\n"
HEAD = "import json\nfrom pathlib import Path\nfrom numba import cuda\n"


class Case(NamedTuple):
    """A project's files by their paths, the file that is edited, what it has then, and more of the module's table."""

    files: dict[str, str]
    edited: str
    after: str
    more: str = ""


def of_source(text: str, before: str, after: str, more: str = "") -> Case:
    assert before in text
    return Case({"pkg/_k.py": HEAD + text}, "pkg/_k.py", HEAD + text.replace(before, after), more)


def of_header(edited: str, **files: str) -> Case:
    """A linked source that includes `sub/a.h`; the value of `C` in another header is edited."""
    source = f'{HEAD}f = cuda.declare_device("f", "float32(float32)", abi="c")\n{KERNEL.format("f(x[0])")}'
    linked = '#include "sub/a.h"\nextern "C" __device__ float f(float x) { return x * C; }\n'
    files["inc2__none_h"] = ""
    headers = {name.replace("__", "/").removesuffix("_h") + ".h": text for name, text in files.items()}
    more = 'link = [{ path = "csrc/a.cu" }]\noptions = { include-dirs = ["inc", "inc2"] }'
    return Case({"pkg/_k.py": source, "csrc/a.cu": linked, **headers}, edited, "#define C 3.0f\n", more)


def of_helper(head: str, expression: str, helper: str, **files: str) -> Case:
    """A helper whose 2.0 is edited, which the project's own Python does not name."""
    source = HEAD + head + KERNEL.format(expression)
    paths = {name: name.replace("__", "/", 1).replace("lib/", "../lib/") for name in files}
    others = {".".join(paths[name].rsplit("_", 1)): text for name, text in files.items()}
    return Case({"pkg/_k.py": source, "pkg/_h.py": helper, **others}, "pkg/_h.py", helper.replace("2.0", "3.0"))


SCALED = "def scaled(x):\n    return x * 2.0\n"
FOUND = "import pkgutil, sys\ndef found():\n    return pkgutil.resolve_name('pkg._h:scaled')\n"
UNSEEN = """\
import contextlib
@contextlib.contextmanager
def unseen():
    before = sys.getprofile()
    sys.setprofile(None)
    yield
    sys.setprofile(before)
"""
OVERLOAD = """\
from elsewhere import *
from pkg import _h
from numba.cuda.extending import overload
def helper(x):
    pass
@overload(helper, target="cuda")
def _(x):
    N = {}
    return lambda x: x + N
"""
TWO, DECOY = "#define C 2.0f\n", "#define C 9.0f\n"
CASES = {
    "a helper with a letter of its own": of_source(
        f"def ñandu(x):\n    return x * 2.0\n{KERNEL.format('ñandu(x[0])')}", "2.0", "3.0"
    ),
    "a name with a mark": of_source(
        f"def x\u0304(x):\n    return x * 2.0\n{KERNEL.format('x' + chr(0x304) + '(x[0])')}", "2.0", "3.0"
    ),
    "called while it is imported": of_source(f"def Δ():\n    return 2.0\nN = Δ()\n{KERNEL.format('N')}", "2.0", "3.0"),
    "a kernel in Greek": of_source(
        KERNEL.format("2.0").replace("def k", "def δ"),
        "2.0",
        "3.0",
        'kernels.k = { python = "δ", signature = "void(float32[::1])" }',
    ),
    "lines of lineinfo": of_source(
        KERNEL.format("2.0"), "@cuda.jit", "#\n#\n@cuda.jit", "options = { lineinfo = true }"
    ),
    "lines of debug": of_source(KERNEL.format("2.0"), "@cuda.jit", "#\n#\n@cuda.jit", "options = { debug = true }"),
    "lines of options from elsewhere": of_source(
        "O = json.loads('{\"line' 'info\": true}')\n" + KERNEL.format("2.0").replace("jit", "jit(**O)"),
        "@cuda.jit",
        "#\n#\n@cuda.jit",
    ),
    "its own text": of_source(
        f"N = len(Path(__file__).read_text())\n{KERNEL.format('N')}", "N = len", "# a comment\nN = len"
    ),
    "the text of another": Case(
        {
            "pkg/_k.py": f"{HEAD}from pkg import _v\nN = int(Path(_v.__file__).read_text()[2:])\n{KERNEL.format('N')}",
            "pkg/_v.py": "# 17\n",
        },
        "pkg/_v.py",
        "# 18\n",
    ),
    "a factory that JSON names": of_helper(
        "import logging.config\nfrom pkg import _h\n"
        "logging.config.dictConfig(json.loads(Path(__file__).with_name('c.json').read_text()))\n",
        "_h.N",
        "import logging\nN = 0\ndef factory():\n    global N\n    N = 2.0\n    return logging.NullHandler()\n",
        pkg__c_json='{"version": 1, "handlers": {"h": {"()": "pkg._h.factory"}}}',
    ),
    "a device function that a library finds": of_helper(
        "import configparser, finding\nc = configparser.ConfigParser()\nc.read(Path(__file__).with_name('c.ini'))\n"
        "device = finding.find(c['k']['target'])\n",
        "device(x[0])",
        "def scaled(x):\n    return x * 2.0\n",
        pkg__c_ini="[k]\ntarget = pkg._h:scaled\n",
        lib__finding_py="import pkgutil\nfind = pkgutil.resolve_name\n",
    ),
    "called by a module that is not the project's": of_helper(
        "import elsewhere\n",
        "elsewhere.N",
        "def scaled(x):\n    return x * 2.0\n",
        lib__elsewhere_py="from pkg import _h\nN = getattr(_h, 'scal' + 'ed')(1.0)\n",
    ),
    "called where a library has taken the profiler away": of_helper(
        "import elsewhere\n",
        "elsewhere.N",
        SCALED,
        lib__elsewhere_py=f"{FOUND}{UNSEEN}with unseen():\n    N = found()(1.0)\n",
    ),
    "called by a library's tracer": of_helper(
        "import elsewhere\n",
        "elsewhere.N",
        SCALED,
        lib__elsewhere_py=f"{FOUND}N = 0.0\ndef trace(*_):\n    global N\n    N = found()(1.0)\n"
        "sys.settrace(trace)\n(lambda: 0)()\nsys.settrace(None)\n",
    ),
    "run by an overload, found by a library": of_helper(
        OVERLOAD.format("found()(1.0)"), "helper(x[0])", SCALED, lib__elsewhere_py=FOUND
    ),
    "run by an overload, where a library has taken the profiler away": of_helper(
        OVERLOAD.format("call()"),
        "helper(x[0])",
        SCALED,
        lib__elsewhere_py=f"{FOUND}{UNSEEN}def call():\n    with unseen():\n        return found()(1.0)\n",
    ),
    "run by an intrinsic, found by a library": of_helper(
        "from elsewhere import found\nfrom pkg import _h\n"
        "from numba.core import types\nfrom numba.cuda.extending import intrinsic\n"
        "@intrinsic\ndef helper(context, x):\n    def code(context, builder, signature, arguments):\n"
        "        return builder.fadd(*arguments, arguments[0].type(found()(1.0)))\n"
        "    return types.float32(types.float32), code\n",
        "helper(x[0])",
        SCALED,
        lib__elsewhere_py=FOUND,
    ),
    "run by a file that is read": of_helper(
        "import conf\nN = conf.load(Path(__file__).with_name('c.txt'))\n",
        "N",
        "def scaled(x):\n    return x * 2.0\n",
        pkg__c_txt="from pkg._h import scaled\nN = scaled(1)\n",
        lib__conf_py="def load(path):\n    space = {}\n    exec(path.read_text(), space)\n    return space['N']\n",
    ),
    "a module without a file": of_helper(
        "from pkg.d import N\n",
        "N",
        "def scaled(x):\n    return x * 2.0\n",
        pkg__d_py="from pkg._h import scaled\nN = scaled(2)\ndel __file__\n",
    ),
    "a text by inspect": of_source(
        f"from inspect import getsource\ndef f():\n    return 1\nN = len(getsource(f))\n{KERNEL.format('N')}",
        "    return 1",
        "    # a comment\n    return 1",
    ),
    "a line by inspect": of_source(
        f"from inspect import stack\nN = stack()[0][2]\n{KERNEL.format('N')}", "from inspect", "#\n#\nfrom inspect"
    ),
    "its own text by its loader": of_source(
        f"N = len(__loader__.get_data(__file__))\n{KERNEL.format('N')}", "N = len", "# a comment\nN = len"
    ),
    "lines of a library's decorator": Case(
        {
            "pkg/_k.py": HEAD + "from deco import kernel\n" + KERNEL.format("2.0").replace("cuda.jit", "kernel"),
            "../lib/deco.py": "from numba import cuda\ndef kernel(f):\n    return cuda.jit(lineinfo=True)(f)\n",
        },
        "pkg/_k.py",
        HEAD + "from deco import kernel\n#\n" + KERNEL.format("2.0").replace("cuda.jit", "kernel"),
    ),
    "a header in brackets": of_header("inc/b.h", inc__sub__a_h="#include <b.h>\n", inc__sub__b_h=DECOY, inc__b_h=TWO),
    "a header by two others": of_header(
        "inc2/b.h",
        inc__sub__a_h='#include "d/c.h"\n',
        inc__sub__d__c_h='#include "b.h"\n',
        inc__sub__b_h=DECOY,
        inc2__b_h=TWO,
    ),
    "a long number": of_source(f"BIG = 0x{'f' * 4000}\n{KERNEL.format('2.0')}", "= 2.0", "= 3.0"),
    "a deep sum": of_source(f"T = {' + '.join(['1'] * 1500)}\n{KERNEL.format('2.0')}", "= 2.0", "= 3.0"),
}


@pytest.fixture
def no_other_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AOTCUDA_BUILD_CACHE_ACCESS", raising=False)


def write(root: Path, files: dict[str, str], more: str) -> None:
    kernels = "" if "kernels.k" in more else 'kernels.k = "void(float32[::1])"\n'
    table = '[tool.aotcuda]\narch = ["sm_80"]\nfallback = "error"\n[tool.aotcuda.modules."pkg.k"]\nsource = "pkg._k"\n'
    for name, text in {"pkg/__init__.py": "", "pyproject.toml": f"{table}{kernels}{more}\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def build(root: Path, cache: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", cache)
    return api.build(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["aotcuda"], root).files


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_edit_counts(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, cache = tmp_path / "project", str(tmp_path / "cache")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.syspath_prepend(tmp_path / "lib")
    write(root, case.files, case.more)
    before = build(root, cache, monkeypatch)
    (root / case.edited).write_text(case.after, encoding="utf-8")
    with_cache, without = build(root, cache, monkeypatch), build(root, "0", monkeypatch)
    assert with_cache["pkg/k.aotcuda/kernels.fatbin"] == without["pkg/k.aotcuda/kernels.fatbin"]
    if "debug" not in case.more:  # whose bytes differ each time
        assert with_cache == without
    assert before["pkg/k.aotcuda/kernels.fatbin"] != without["pkg/k.aotcuda/kernels.fatbin"]


def test_so_does_another_place_to_import_from(tmp_path: Path) -> None:
    root = tmp_path / "project"
    write(root, {"pkg/_k.py": f"{HEAD}import conf_lib\nN = conf_lib.V\n{KERNEL.format('N')}"}, "")
    built = []
    for number, place in enumerate(("one", "two")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "conf_lib.py").write_text(f"V = {number}\n")
        for cache in (str(tmp_path / "cache"), "0"):
            environ = os.environ | {"PYTHONPATH": str(tmp_path / place), "AOTCUDA_BUILD_CACHE": cache}
            command = [sys.executable, "-m", "aotcuda", "build", str(root), "--quiet", "--out", str(tmp_path / "out")]
            subprocess.run(command, env=environ, check=True)
            built.append((tmp_path / "out" / "pkg" / "k.aotcuda" / "kernels.fatbin").read_bytes())
    assert built[0] == built[1] != built[2] == built[3]


@pytest.mark.parametrize("asks", ["len(os.environ)", "sum(name.startswith('READ_') for name in os.environ)"])
def test_so_does_another_variable_where_a_source_asks_which_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    root, cache = tmp_path / "project", str(tmp_path / "cache")
    write(root, {"pkg/_k.py": f"{HEAD}import os\nN = {asks}\n{KERNEL.format('N')}"}, "")
    before = build(root, cache, monkeypatch)
    monkeypatch.setenv("READ_A", "1")
    after = build(root, cache, monkeypatch)
    assert before != after == build(root, "0", monkeypatch)


def test_so_does_a_distribution_that_was_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler has listed the folder before: `importlib.metadata` lists each once in a process."""
    root, lib, cache = tmp_path / "project", tmp_path / "lib", str(tmp_path / "cache")
    lib.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(lib))
    monkeypatch.syspath_prepend(lib)
    asks = "from importlib import metadata\nN = len([*metadata.distributions(name='sought')])\n"
    write(root, {"pkg/_k.py": f"{HEAD}{asks}{KERNEL.format('N')}"}, "")
    before = build(root, cache, monkeypatch)
    (lib / "sought-1.0.dist-info").mkdir()
    after = build(root, cache, monkeypatch)
    assert before != after == build(root, "0", monkeypatch)


WRITING = """
import threading
def write_again(path):
    text = path.read_text()
    while True:
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)
HERE = Path(__file__).parents[1]
if (HERE / "written").exists():
    threading.Thread(target=write_again, args=[HERE / "inc" / "sub" / "a.h"], daemon=True).start()
"""


def test_nothing_is_kept_of_headers_that_are_edited_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit that is undone before the build ends leaves a header as it was, and the code may be another one's."""
    root, cache = tmp_path / "project", str(tmp_path / "cache")
    files, _, _, more = of_header("inc/sub/a.h", inc__sub__a_h=TWO)
    source = files["pkg/_k.py"]
    write(root, files | {"pkg/_k.py": HEAD + WRITING + source.removeprefix(HEAD), "written": ""}, more)
    build(root, cache, monkeypatch)
    (root / "written").unlink()
    (root / "inc" / "sub" / "a.h").write_text(TWO)
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", cache)
    table = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["aotcuda"]
    again = api.build(table, root)
    assert (again.reuse.whole, again.reuse.steps) == (False, 0)
    assert again.files == build(root, "0", monkeypatch)


REPLACED = """
import subprocess
from pkg import _h
HERE = Path(__file__).parent
N = _h.N + int((HERE / "d").read_text())
script = "[ -e ../now ] && touch -r {0} new && mv new {0} || true"
subprocess.run(["sh", "-c", script.format((HERE / "which").read_text())], cwd=HERE, check=True)
"""


@pytest.mark.parametrize(("file", "before", "after"), [("_h.py", "N = 1\n", "N = 2\n"), ("d", "1\n", "2\n")])
def test_nothing_is_kept_of_a_file_that_another_of_its_size_and_time_replaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, before: str, after: str
) -> None:
    root, cache = tmp_path / "project", str(tmp_path / "cache")
    files = {"pkg/_k.py": f"{HEAD}{REPLACED}{KERNEL.format('N')}", "pkg/_h.py": "N = 1\n", "pkg/d": "1\n"}
    write(root, {**files, "now": "", f"pkg/{file}": before, "pkg/new": after, "pkg/which": file}, "")
    built = build(root, cache, monkeypatch)
    assert (root / "pkg" / file).read_text() == after
    (root / "now").unlink()
    assert built != build(root, cache, monkeypatch) == build(root, "0", monkeypatch)


EDITED_LATER = """
from numba.cuda.extending import overload
def helper(x):
    pass
@overload(helper, target="cuda")
def _(x):
    Path(__file__).write_text(Path(__file__).read_text() + "# edited\\n")
    return lambda x: x + 1
"""


def test_a_wheel_lists_what_it_was_built_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source is edited after it was imported, while the kernel is compiled."""
    files = {"pkg/_k.py": f"{HEAD}{EDITED_LATER}{KERNEL.format('helper(x[0])')}"}
    write(tmp_path, files, "")
    manifest = json.loads(build(tmp_path, "0", monkeypatch)["pkg/k.aotcuda/manifest.json"])
    assert (tmp_path / "pkg" / "_k.py").read_text() != files["pkg/_k.py"]
    listed = {source["path"]: source["sha256"] for source in manifest["sources"]}
    assert listed["pkg/_k.py"] == hashlib.sha256(files["pkg/_k.py"].encode()).hexdigest()


ASKING = """\
from numba import cuda
from numba.cuda.extending import overload


def scaled(x):
    return x


@overload(scaled, target="cuda")
def _scaled(x):
    from pkg import _late

    factor = _late.factor()
    return lambda x: x * factor


@cuda.jit
def asks(x):
    x[0] = scaled(x[0])


@cuda.jit
def next_to_it(x):
    x[0] = 2.0


@cuda.jit
def another(x):
    x[0] = 3.0
"""


def test_a_unit_that_asked_while_it_was_compiled_is_not_kept_and_those_beside_it_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing in their names; what it imported is listed among the sources, with a cache and without."""
    names = ("asks", "next_to_it", "another")
    kernels = "\n".join(f'kernels.{name} = "void(float32[::1])"' for name in names)
    table = f'[tool.aotcuda]\narch = ["sm_80"]\n[tool.aotcuda.modules."pkg.k"]\nsource = "pkg._k"\n{kernels}\n'
    late = "def factor():\n    return 5.0\n"
    files = {"pyproject.toml": table, "pkg/__init__.py": "", "pkg/_k.py": ASKING, "pkg/_late.py": late}
    root, cache = put(tmp_path.resolve() / "project", files), str(tmp_path / "cache")
    build_with(root, cache, monkeypatch)
    made = {}
    for edited in ("3.0", "2.0"):
        (root / "pkg" / "_k.py").write_text(ASKING.replace(edited, "4.0"))
        built, plain = build_with(root, cache, monkeypatch), build_with(root, "0", monkeypatch)
        assert built.files == plain.files
        made[edited] = built.reuse.made
    assert set(made.values()) == {2 + 1}  # it and the one that was edited, and the image
    (root / "pkg" / "_late.py").write_text(late.replace("5.0", "6.0"))
    built, plain = build_with(root, cache, monkeypatch), build_with(root, "0", monkeypatch)
    assert (built.files, built.reuse.whole) == (plain.files, False)
    manifest = json.loads(built.files["pkg/k.aotcuda/manifest.json"])
    assert "pkg/_late.py" in {source["path"] for source in manifest["sources"]}
