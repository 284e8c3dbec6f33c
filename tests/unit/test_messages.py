"""Test that messages for mistakes of new users name the place, the fact and a remedy that works, in one line.

Each row has the mistake and the new text. Rows of one kind stand together, with inputs that resemble the reported one.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import subprocess
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotcuda
from aotcuda.builder.config.parser import parse
from aotcuda.builder.frontends import loading, python_source
from aotcuda.builder.frontends.numba.config import NumbaUnit
from aotcuda.builder.frontends.protocol import Session
from aotcuda.cli import main
from aotcuda.common import suggest, uninstalled_hook
from aotcuda.errors import AotcudaError
from support import manifests

M = 'tool.aotcuda.modules."m.k".kernels.axpy'
SIGNATURE = "expected a signature in Numba's notation, found the string"
REMEDY = "write the types of all arguments in one string, with the result before them, as in"
RECORD = 'for a record, name its NumPy dtype in tool.aotcuda: types = { pp = "package.module:pp" }; else write one of'

CONFIG = {
    "an open parenthesis": ('kernels.axpy = "void(float32, int32[:]"', f"{M}: \"void(float32, int32[:]\" has a '('"),
    "an open bracket": (
        'kernels.axpy = "void(float32[::1, int32)"',
        "has a '[' that is not closed before a ')'; add its",
    ),
    "a bracket too many": ('kernels.axpy = "void(float32))"', "has a ')' too many; remove it"),
    "a list of types": (
        'kernels.axpy = ["float32", "float32[::1]"]',
        f'{M}[0]: {SIGNATURE} "float32"; {REMEDY} "void(float32)"',
    ),
    "types alone": (
        'kernels.axpy = "float32, float32[::1]"',
        f'{M}: {SIGNATURE} "float32, float32[::1]"; {REMEDY} "void(float32, float32[::1])"',
    ),
    "types of C": ('kernels.axpy = "float*, int"', f'{SIGNATURE} "float*, int"; {REMEDY} "void(float*, int)"'),
    "an empty text": ('kernels.axpy = ""', f'{SIGNATURE} ""; {REMEDY} "void(float32, float32[::1])"'),
    "a name of a GPU": ('arch = ["H100"]', 'found the string "H100"; write the compute capability of H100: "sm_90"'),
    "a brand": ('arch = ["NVIDIA GeForce RTX 4090"]', 'of NVIDIA GeForce RTX 4090: "sm_89"'),
    "a generation": ('arch = ["sm_75", "Hopper"]', "tool.aotcuda.arch[1]: expected sm_XY (machine code) or"),
    "a generation with several": ('arch = ["ada"]', 'write the compute capability of ada: "sm_89"'),
    "an underscore": ('kernels._ = "void(int32)"', '"_" is no name in PTX; choose another name, and name the function'),
    "underscores": ('functions._ = "void(int32)"', '"_" is no name in PTX; choose another name'),
    "a path of a type": ('types = { p = "m/k.py:p" }', 'tool.aotcuda.types.p: "m/k.py:p" has a path; write "m.k:p"'),
    "no kernel": ("kernels = {}", "neither functions nor kernels; aotcuda record --write -- COMMAND adds the kernels"),
}


@pytest.mark.parametrize("mistake", CONFIG)
def test_wrong_tables_get_a_remedy(mistake: str) -> None:
    text, message = CONFIG[mistake]
    table: dict[str, Any] = {"arch": ["sm_90"], "modules": {"m.k": {"source": "m._k", "kernels": {"f": "void(int32)"}}}}
    written = tomllib.loads(text)
    table |= {key: value for key, value in written.items() if key in ("arch", "types")}
    table["modules"]["m.k"] |= {key: value for key, value in written.items() if key not in ("arch", "types")}
    with pytest.raises(AotcudaError) as error:
        parse(table, environ={})
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "cutile" not in str(error.value)


NOTATION = {
    "float32*": "float32* is C's notation; write float32[::1] for an array, CPointer(float32) for an address",
    "const float32 *": "const float32 * is C's notation; write float32[::1] for an array",
    "float32 &": "float32 & is C's notation; write float32[::1] for an array",
    "float32 *x": "float32 * is C's notation; write float32[::1] for an array, CPointer(float32) for an address",
    "unsigned int": "'unsigned' is C's notation; write Numba's types alone, as in void(float32[::1], int32)",
    "float32 x": "invalid syntax. Perhaps you forgot a comma?; write Numba's types with commas between them",
    "array(float32)": "array(float32) is not a type; write float32[::1] for contiguous elements, float32[:] for any",
    "Array(float32)": "Array(float32) is not a type; write float32[::1] for contiguous elements, float32[:] for any",
    "array(float32, 1d, C)": "array(float32, 1d, C) is not a type; write float32[::1] for contiguous elements",
    "float32[::2]": "[::2] is not a layout; write [::1] for contiguous elements, [:] for any stride",
    "float32[:, ::2]": "[:, ::2] is not a layout; write [:, ::1] (rows are contiguous), [::1, :] (columns), or colons",
    "np.ndarray": "np.ndarray is a class of arrays; write float32[::1], with the type of the elements",
    "torch.Tensor": "torch.Tensor is a class of arrays; write float32[::1]",
    "float32[4]": "float32[4] is not a type, since array types have no sizes; write float32[::1]",
    "pp": f"'pp' is not a Numba type; {RECORD}",
    "pp[::1]": f"'pp' is not a Numba type; {RECORD}",
    "flaot32": "'flaot32' is not a Numba type; did you mean float32?",
    "dotted": "tool.aotcuda.types.dotted, 'm.p': m.p is no type of Numba; for one of a module write \"m:p\"",
    "deep": 'm.k.p is no type of Numba; for one of a module write "m.k:p"',
    "absent": "No module named 'nowhere'; write \"package.module:name\" of a NumPy dtype or a Numba type",
    "missing": "has no attribute 'pq'; write \"package.module:name\" of a NumPy dtype or a Numba type",
    "partikel": "'partikel' is not a Numba type; did you mean particle?",
    "misspelt": "has no attribute 'partikel'; did you mean particle?",
}
NAMED = {
    "dotted": "m.p",
    "deep": "m.k.p",
    "absent": "nowhere:p",
    "missing": "string:pq",
    "misspelt": "records:partikel",
}


@pytest.mark.parametrize("text", NOTATION)
def test_wrong_types_get_a_remedy(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    notation: Any = pytest.importorskip("aotcuda.builder.frontends.numba_cuda.types").notation
    records = types.ModuleType("records")
    vars(records)["particle"] = particle = np.dtype([("mass", np.float32)])
    monkeypatch.setitem(sys.modules, "records", records)
    with pytest.raises(ValueError, match=re.escape(NOTATION[text])) as error:
        notation.parse(f"void({text}, int32)", {"other": np.float32, "particle": particle}, NAMED)
    assert "\n" not in str(error.value)


SOURCE = """\
class Solver:
    def step(x): pass

    class Inner:
        def deep(x): pass


def make(n):
    def made(x): pass
    return made


def k2(x): pass
def axpy(x): pass
"""
NAMES = {
    "axpi": "did you mean axpy?",
    "k1": "did you mean k2?",
    "zzzz": "it has Solver, axpy, k2, make",
    "step": 'it is defined in a class: write python = "Solver.step"',
    "deep": 'it is defined in a class: write python = "Solver.Inner.deep"',
    "made": 'make() makes it when it is called (line 9): give the result a name in the module, "made = make(...)"',
}


@pytest.mark.parametrize("name", NAMES)
def test_missing_functions_get_a_remedy(name: str, tmp_path: Path) -> None:
    module = types.ModuleType("mod")
    module.__file__ = str(tmp_path / "mod.py")
    Path(module.__file__).write_text(SOURCE)
    exec(SOURCE, vars(module))
    assert NAMES[name] in str(python_source.missing_error(unit(name), [module]))


def unit(name: str, source: str = "mod") -> Any:
    values: dict[str, Any] = {field.name: "" for field in dataclasses.fields(NumbaUnit)}
    return NumbaUnit(**{**values, "source": source, "python": name, "module": "m", "sources": (source,)})


@pytest.mark.parametrize("name", ["types", "copy", "numbers"])
def test_modules_of_python_are_named(name: str) -> None:
    message = str(python_source.missing_error(unit("axpy", name), [importlib.import_module(name)]))
    assert message.endswith(f'{name} is a module of Python itself; write the full name of your own, as "mypkg.{name}"')


def test_missing_modules_get_the_similar_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pkg_of_test").mkdir()
    for name in ("__init__", "_kernels"):
        (tmp_path / "pkg_of_test" / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name, near in (("pkg_of_test._kernel", "pkg_of_test._kernels"), ("_kernels", "pkg_of_test._kernels")):
        with pytest.raises(AotcudaError, match=f"there is no module {name} in .*; did you mean {near}\\?$"):
            python_source.import_source(name, unit("axpy"), str(tmp_path))


def test_isolated_builds_name_their_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ImportError("No module named 'numba'")  # noqa: EM101

    front = types.SimpleNamespace(prepare=fail)
    with pytest.raises(AotcudaError) as error:
        loading.prepare(front, Session(root="/nowhere", cache=None), "numba-cuda", "tool.aotcuda.frontend")  # type: ignore[arg-type]
    assert (
        "add 'aotcuda[cu13]' to build-system.requires, or, in a build without isolation, install it with: pip"
        in str(error.value)
    )


@pytest.mark.parametrize(
    ("name", "product"),
    [("nvrtc.nvrtcVersion", "wheel"), ("nvjitlink.version", "jit"), ("nvfatbin.version", "wheel")],
)
def test_missing_libraries_end_a_build_before_it_compiles(name: str, product: str, monkeypatch: Any) -> None:
    bindings = pytest.importorskip("cuda.bindings.nvfatbin").__name__.rpartition(".")[0]
    from aotcuda.builder.compile import main as worker  # it needs the compilers

    def fail() -> None:
        raise RuntimeError("no libnvfatbin.so.13 found\nin these folders")  # noqa: EM101

    monkeypatch.setattr(f"{bindings}.{name}", fail)
    plan = types.SimpleNamespace(frontend_key="m.frontend", config=types.SimpleNamespace(name="m.k"), targets=())
    made = types.SimpleNamespace(kind=product)
    job = types.SimpleNamespace(toolkit=None, product=made, frontend="numba-cuda", plans=[plan])
    with pytest.raises(AotcudaError, match=r"is not installed: no libnvfatbin.so.13 found\); .*pip install") as error:
        worker._start_compiler(job, None, lambda **_: None)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


COMMANDS = {
    ("build", "--output", "x"): "there is no option --output; did you mean --out?",
    ("inspect", "a.whl", "--jsn"): "there is no option --jsn; did you mean --json?",
    ("record", "--drry", "--", "x"): "there is no option --drry; did you mean --dry?",
    ("inspct", "a.whl"): "there is no 'inspct'; did you mean inspect?",
    ("cache", "lst"): "there is no 'lst'; did you mean list?",
}


@pytest.mark.parametrize("words", COMMANDS)
def test_misspelt_options_and_commands_get_a_suggestion(words: tuple[str, ...], capsys: Any) -> None:
    assert main(list(words)) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(COMMANDS[words])


VARIABLES = {
    "AOTCUDA_FALBACK": "nothing reads this; did you mean AOTCUDA_FALLBACK?",
    "AOT_CUDA_ARCH": "nothing reads this; did you mean AOTCUDA_ARCH?",
    "aotcuda_arch": "nothing reads this; did you mean AOTCUDA_ARCH?",
    "AOTCUDA_BUILDCACHE": "nothing reads this; did you mean AOTCUDA_BUILD_CACHE?",
}


@pytest.mark.parametrize("name", VARIABLES)
def test_misspelt_variables_are_named(name: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("AOTCUDA_ARCH", "sm_90")
    assert main(["inspect", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"aotcuda: the environment variable {name} has no effect: {VARIABLES[name]}"
    assert len(lines) == 2


def test_loaded_modules_name_the_import(cuda: Any) -> None:
    manifests.write(cuda.packages, [manifests.kernel("axpy", "void(float32)")], load="first-use")
    module = aotcuda.load("mypkg.kernels")
    with pytest.raises(AttributeError, match=r"kernels are attributes of the module itself: import mypkg.kernels as k"):
        module.axpy  # noqa: B018
    assert not hasattr(module, "__array__")
    with pytest.raises(AttributeError, match=r"Did you mean 'axpy'\?"):
        importlib.import_module("mypkg.kernels").axpi  # noqa: B018


PROJECT = """\
[build-system]
requires = ["{}"]
build-backend = "{}"
[project]
name = "x"
[tool.aotcuda]
arch = ["sm_90"]
"""
HATCHLING = PROJECT.format("hatchling", "hatchling.build")
SETUPTOOLS = "setuptools.build_meta"
HOOK = f"{uninstalled_hook.TABLE}\n"
STATES = {
    "hatchling": (HATCHLING, f"add the table {uninstalled_hook.TABLE}"),
    "hatchling with the hook": (HATCHLING + HOOK, "the build hook is on: [tool."),
    "setuptools": (PROJECT.format("setuptools", SETUPTOOLS), "the build hook is off, so wheels will have"),
    "setuptools with aotcuda": (PROJECT.format("aotcuda[cu13]", SETUPTOOLS), "the build hook is on: setuptools"),
    "another back end": (PROJECT.format("flit", "flit_core.buildapi"), "flit_core.buildapi has no build hook"),
}


@pytest.mark.parametrize("state", STATES)
def test_init_ends_with_the_state_of_the_hook(state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = STATES[state]
    (tmp_path / "pyproject.toml").write_text(text)
    assert main(["init", str(tmp_path)]) == 0
    assert message in capsys.readouterr().out.splitlines()[-1]


def test_init_writes_for_a_project_with_a_setup_cfg_alone(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("tomlkit")
    (tmp_path / "setup.cfg").write_text("[metadata]\nname = pkg\n[options]\npackages = pkg\n")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "k.py").write_text("from numba import cuda\n\n\n@cuda.jit\ndef f(x):\n    x[0] = 1\n")
    assert main(["init", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "setuptools" in (tmp_path / "pyproject.toml").read_text()
    assert "to do: pkg/k.py:1: write from aotcuda.numba import cuda" in out
    assert "to do before a build: record the kernels of pkg.k; a module without kernels is not built" in out
    assert out.splitlines()[-1].startswith("the build hook is on: setuptools")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import nothing_like_this", "No module named 'nothing_like_this'; install what provides it: {python} -m pip"),
        ("from pkg import nope", "; correct the import: pkg is a package of this project"),
        ("from json import nope", "; correct the import, or install what the imported module needs"),
        (
            "raise ImportError('x.so: undefined symbol: y', name='x', path='x.so')",
            "x.so: undefined symbol: y; correct the import, or install what the imported module needs",
        ),
        ("raise ImportError('a library is missing')", "missing; correct the import, or install what"),
    ],
)
def test_record_names_the_import_that_ended_the_command(program: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "src" / "pkg" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "pkg"\n')
    command = [sys.executable, "-m", "aotcuda", "record", "--dry", "--", sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "not installed: pkg; the command imports from src, as a build does" in done.stderr
    last = next(line for line in done.stderr.splitlines() if "ended at a failed import" in line)
    assert message.format(python=sys.executable) in last


def test_no_message_names_a_file_that_users_do_not_have() -> None:
    """Pages in `docs/` are in the repository, and not in wheels."""
    found = []
    for path in Path(aotcuda.__file__).parent.rglob("*.py"):
        if b"docs/" not in (source := path.read_bytes()):
            continue
        tree = ast.parse(source)
        bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
            if is_text and re.search(r"\bdocs/\w+", str(node.value)) and "python -m" not in str(node.value):  # type: ignore[attr-defined]
                found.append(f"{path.name}: {node.value}")  # type: ignore[attr-defined]
    assert not found


@pytest.mark.parametrize(
    ("name", "near"),
    [("k1", "k2"), ("k", "kk"), ("axpyy", "axpy"), ("zz", None), ("a", None), ("", None), ("floot32", "float32")],
)
def test_names_with_one_other_letter_are_suggested(name: str, near: str | None) -> None:
    assert suggest.nearest(name, ["k2", "axpy", "kk", "float32"] if near != "kk" else ["kk", "axpy"]) == near
