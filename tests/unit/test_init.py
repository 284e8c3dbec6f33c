"""Test that `aotcuda init` adds tables to start from, and keeps the existing ones."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from aotcuda import cli
from aotcuda.registry import DEFAULT_TARGETS
from aotcuda.tools import init

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = """\
raise RuntimeError("imported")
from numba import cuda

@cuda.jit("void(float32[::1])")
def typed(x): pass

@cuda.jit
def untyped(x): pass

@cuda.jit(device=True)
def helper(x): return x

class Solver:
    @cuda.jit(["void(int32)", "void(int64)"])
    def step(x): pass
"""
PROJECT = '[project]\nname = "pkg"   # name\nversion = "1"\n'


def make(folder: Path, text: str, source: str = KERNELS) -> Path:
    """Return a project with one module of kernels."""
    package = folder / "src" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "gpu.py").write_text(source)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_gpu.py").write_text(KERNELS)
    (folder / "pyproject.toml").write_text(text)
    return folder / "pyproject.toml"


def load(path: Path) -> dict:
    return tomllib.loads(path.read_text())


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize(
    ("compiler", "extra", "key"),
    [("numba", "cu13", {}), ("numba_cuda_mlir", "mlir-cu13", {"frontend": "numba-cuda-mlir"})],
)
@pytest.mark.parametrize("place", ["", "aotcuda."])
def test_project_gains_all_tables_of_a_build(tmp_path, capsys, compiler, extra, key, place):
    path = make(tmp_path, PROJECT, KERNELS.replace("from numba import", f"from {place}{compiler} import"))
    assert cli.main(["init", str(tmp_path)]) == 0
    assert path.read_text().startswith(PROJECT)
    data = load(path)
    requires = ["hatchling", f"aotcuda[{extra}]"]
    assert data["build-system"] == {"requires": requires, "build-backend": "hatchling.build"}
    assert data["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["aotcuda"] == {}
    assert data["project"]["dependencies"] == ["aotcuda"]
    assert data["tool"]["aotcuda"] == {
        "arch": list(DEFAULT_TARGETS),
        "modules": {
            "pkg.gpu": {
                "source": "pkg.gpu",
                **key,
                "kernels": {"typed": {}, "step": {"python": "pkg.gpu:Solver.step"}},
            }
        },
    }
    output = capsys.readouterr().out
    assert "1 kernel has no signature yet:\n  src/pkg/gpu.py:8: untyped\n" in output
    assert "aotcuda record --write -- python -m pytest" in output
    assert "1 device function: it comes along" in output


BEGUN = {
    "bare": 'dependencies = [\n  "numpy", # arrays\n]\n',
    "begun": """dependencies = ["aotcuda>=0.1"]

[build-system]
requires = ["hatchling", "aotcuda[wide]"]
build-backend = "hatchling.build"

[tool.aotcuda]
arch = ["native"]

[tool.aotcuda.modules."pkg.k"]
source = ["pkg.gpu"]
kernels.typed = "void(float64[:])" # mine
""",
    "setuptools": '[tool.setuptools]\npackages = ["pkg"]\n',
}


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize("rest", BEGUN.values(), ids=BEGUN)
def test_existing_tables_stay_and_a_second_run_changes_nothing(rest: str, tmp_path: Path) -> None:
    path = make(tmp_path, PROJECT + rest)
    before = load(path)
    assert cli.main(["init", str(tmp_path)]) == 0
    text = path.read_text()
    for line in (PROJECT + rest).splitlines():
        assert line.partition("#")[2] in text
    _contains(load(path), before)
    assert cli.main(["init", str(tmp_path)]) == 0
    assert path.read_text() == text
    if "setuptools" in rest:
        assert load(path)["build-system"]["build-backend"] == "setuptools.build_meta"
        assert load(path)["build-system"]["requires"] == ["setuptools>=64", "aotcuda[cu13]"]
        assert "hatch" not in load(path)["tool"]


def _contains(after: object, before: object) -> None:
    if isinstance(before, dict):
        for key, value in before.items():
            _contains(after[key], value)
    elif isinstance(before, list):
        assert after[: len(before)] == before
    else:
        assert after == before


SETUPTOOLS = "[tool.setuptools.packages.find]\n"
HATCH = "[tool.hatch.build.targets.wheel]\n"
OTHERS = ("tests/gpu.py", "docs/gpu.py", "examples/deep/gpu.py", "build/lib/ns/pk/gpu.py", "bench/test_gpu.py")
NAMESPACES = {
    "src": ("", "src/ns/pk/gpu.py", "ns.pk.gpu"),
    "setuptools has a folder": ('[tool.setuptools]\npackage-dir = {"" = "lib"}\n', "lib/ns/pk/gpu.py", "ns.pk.gpu"),
    "setuptools finds it": (f'{SETUPTOOLS}include = ["ns*"]\n', "ns/pk/gpu.py", "ns.pk.gpu"),
    "setuptools lists it": ('[tool.setuptools]\npackages = ["ns.pk"]\n', "ns/pk/gpu.py", "ns.pk.gpu"),
    "hatchling packs a folder of it": (f'{HATCH}packages = ["lib/ns"]\n', "lib/ns/pk/gpu.py", "ns.pk.gpu"),
    "no configuration": ("", "ns/pk/gpu.py", None),
    "setuptools finds regular packages": (f'{SETUPTOOLS}include = ["ns*"]\nnamespaces = false\n', "ns/gpu.py", None),
}


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize("name", NAMESPACES)
def test_namespace_packages_need_configuration(name: str, tmp_path: Path) -> None:
    configuration, file, module = NAMESPACES[name]
    for path in (file, *OTHERS):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(KERNELS)
    (tmp_path / "pyproject.toml").write_text(PROJECT + configuration)
    assert cli.main(["init", str(tmp_path)]) == 0
    tables = load(tmp_path / "pyproject.toml").get("tool", {}).get("aotcuda", {})
    assert [*tables.get("modules", {})] == ([module] if module else [])


NO_PYTHON = {
    "a statement of Python 2": (b"#\n\nprint 'jit'\n", ":3: Missing parentheses in call to 'print'. "),
    "nested too deeply": (b"x" + b".jit" * 3000, ": "),
}


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize("name", NO_PYTHON)
def test_unreadable_source_is_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, problem = NO_PYTHON[name]
    make(tmp_path, PROJECT)
    (tmp_path / "src" / "pkg" / "old.py").write_bytes(content)
    assert cli.main(["init", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"not read: src/pkg/old.py{problem}")
    assert "<unknown>" not in output
    assert "1 kernel has no signature yet:\n  src/pkg/gpu.py:8: untyped\n" in output


@pytest.mark.needs("tomlkit")
def test_deep_expressions_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path, PROJECT, f"from pkg import deep\n{KERNELS}")
    (tmp_path / "src" / "pkg" / "deep.py").write_text(f"x{'.jit' * 1500}\ndef f():\n    x{'.jit' * 1500}\n")
    assert cli.main(["init", str(tmp_path)]) == 0
    assert "not read" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "table",
    ["modules = 3", 'modules."pkg.gpu" = 3', "modules.x.source = 3", 'modules.x = { source = "pkg.gpu", kernels = 3 }'],
)
def test_malformed_tables_are_no_error_or_one_line(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make(tmp_path, f"{PROJECT}[tool.aotcuda]\n{table}\n")
    before = path.read_text()
    if cli.main(["init", str(tmp_path)]):
        assert capsys.readouterr().err.count("\n") == 1
        assert path.read_text() == before


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(f"# é\n{KERNELS}".encode("utf-8-sig"), id="a byte order mark"),
        pytest.param(f"# -*- coding: latin-1 -*-\n# é\n{KERNELS}\nPATTERN = '\\d'\n".encode("latin-1"), id="latin-1"),
    ],
)
def test_sources_are_decoded_as_python_does(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path, PROJECT)
    (tmp_path / "src" / "pkg" / "gpu.py").write_bytes(content)
    assert cli.main(["init", str(tmp_path)]) == 0
    assert [*load(path)["tool"]["aotcuda"]["modules"]["pkg.gpu"]["kernels"]] == ["typed", "step"]
    output = capsys.readouterr()
    assert "not read" not in output.out
    assert not output.err


@pytest.mark.parametrize(
    ("requirements", "message"),
    [
        ("install_requires =\n  numba\n", 'add "aotcuda" to install_requires in setup.cfg'),
        ("install_requires =\n  numba\n  aotcuda >= 0.1\n", None),
    ],
)
def test_dependencies_are_read_from_setup_cfg(tmp_path, capsys, requirements, message):
    make(tmp_path, "")
    (tmp_path / "setup.cfg").write_text(f"[metadata]\nname = pkg\n[options]\n{requirements}")
    assert cli.main(["init", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert (f"to do: the wheel needs the run time: {message}" in out) if message else ("needs the run time" not in out)


def test_project_with_setup_py_gains_a_pyproject(tmp_path: Path) -> None:
    path = make(tmp_path, "")
    path.unlink()
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='pkg', package_dir={'': 'src'})\n")
    assert cli.main(["init", str(tmp_path)]) == 0
    assert load(path)["build-system"]["build-backend"] == "setuptools.build_meta:__legacy__"
    assert "project" not in load(path)
    assert [*load(path)["tool"]["aotcuda"]["modules"]] == ["pkg.gpu"]


TRITON = """\
import triton
from triton import jit
import triton.language as tl

@triton.jit
def helper(x): return x

@triton.autotune(configs=[], key=[])
@jit(do_not_specialize=["n"])
def tuned(x, n): pass

@triton.heuristics({})
@triton.jit
def guessed(x): pass
"""
GUESSED = """
[tool.aotcuda]
arch = ["sm_80"]
[tool.aotcuda.modules."pkg.gpu_packaged"]
source = "pkg.gpu"
frontend = "triton"
kernels.guessed = { python = "pkg.gpu:guessed.fn", signature = "*fp32" }
"""


@pytest.mark.needs("tomlkit")
def test_triton_kernels_get_the_extra_and_a_hint_to_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path, PROJECT, TRITON)
    assert cli.main(["init", str(tmp_path)]) == 0
    data = load(path)
    assert data["build-system"] == {"requires": ["hatchling", "aotcuda[triton]"], "build-backend": "hatchling.build"}
    assert data["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["aotcuda"] == {}
    assert data["tool"]["aotcuda"] == {"arch": list(DEFAULT_TARGETS)}
    output = capsys.readouterr().out
    assert "2 kernels have no signature yet:\n  src/pkg/gpu.py:10: tuned\n  src/pkg/gpu.py:14: guessed\n" in output
    assert "NUMBA" not in output
    assert "1 device function: it comes along" in output
    path.write_text(PROJECT + GUESSED)  # as after a recording
    assert cli.main(["init", str(tmp_path)]) == 0
    assert load(path)["build-system"]["requires"] == ["hatchling", "aotcuda[triton]"]
    assert "1 kernel has no signature yet:\n  src/pkg/gpu.py:10: tuned\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("front_ends", "expected"),
    [
        ({"cuda-cpp", "numba-cuda", "triton"}, ["aotcuda[cu13,triton]"]),
        ({"cuda-cpp", "numba-cuda-mlir"}, ["aotcuda[mlir-cu13]"]),
        ({"cuda-cpp"}, ["aotcuda[cpp-cu13]"]),
        (set(), []),
    ],
)
def test_one_requirement_has_the_compilers_of_all_front_ends(front_ends, expected):
    assert init._compilers(front_ends) == expected


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize(
    ("source", "dependencies", "expected"),
    [
        ("import scipy\n", ["scipy>=1"], ["scipy>=1"]),
        ("from scipy.special import erf\n", ["SciPy"], ["SciPy"]),
        ("from pkg import other\n", ["mpi4py", "rich"], ["mpi4py"]),
        ("from .other import x\n", ["mpi4py ; python_version > '3'"], ["mpi4py ; python_version > '3'"]),
        ("try:\n    import scipy\nexcept ImportError:\n    pass\n", ["scipy"], ["scipy"]),
        ("def late():\n    import scipy\n", ["scipy"], []),
        ("import os, numba\n", ["numba", "scipy"], []),
    ],
)
def test_build_requires_the_dependencies_that_it_imports(tmp_path, source, dependencies, expected):
    path = make(tmp_path, f"{PROJECT}dependencies = {dependencies}\n", source + KERNELS)
    (tmp_path / "src" / "pkg" / "other.py").write_text("import mpi4py.MPI\n")
    assert cli.main(["init", str(tmp_path)]) == 0
    assert load(path)["build-system"]["requires"] == ["hatchling", "aotcuda[cu13]", *expected]
    before = path.read_text()
    assert cli.main(["init", str(tmp_path)]) == 0
    assert path.read_text() == before


@pytest.mark.needs("tomlkit")
def test_requirement_in_another_spelling_is_not_added(tmp_path: Path) -> None:
    system = '[build-system]\nrequires = ["hatchling", "aotcuda[cu13]", "Sci_Py"]\nbuild-backend = "hatchling.build"\n'
    path = make(tmp_path, f'{system}{PROJECT}dependencies = ["sci.py"]\n', f"import sci_py\n{KERNELS}")
    assert cli.main(["init", str(tmp_path)]) == 0
    assert load(path)["build-system"]["requires"] == ["hatchling", "aotcuda[cu13]", "Sci_Py"]


def test_decorator_that_hides_kernels_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    use = "@tools.hidden('void(int32)')"
    make(tmp_path, PROJECT, f"from pkg import tools\n{use}\ndef a(x): pass\n\n{use}\ndef b(x): pass\n")
    maker = "def hidden(signature):\n    def wrap(f):\n        return cuda.jit(signature)(f)\n    return wrap\n"
    (tmp_path / "src" / "pkg" / "tools.py").write_text(f"from numba import cuda\n\n\n{maker}")
    assert cli.main(["init", str(tmp_path)]) == 0
    line = "not looked through: @hidden (src/pkg/tools.py:4) on 2 functions; `aotcuda record` finds the kernels that it"
    assert line in capsys.readouterr().out


FILES = {
    "private": ({}, "pkg.gpu"),
    "imported": ({"other.py": "from pkg import _gpu"}, "pkg._gpu"),
    "imported in a function": ({"other.py": "def f():\n    from ._gpu import typed"}, "pkg._gpu"),
    "with a public module": ({"gpu.py": ""}, "pkg._gpu"),
    "launched": ({"_gpu.py": KERNELS + "def run(x): typed[1, 32](x)"}, "pkg._gpu"),
    "changed": ({"_gpu.py": KERNELS.replace("from numba", "from aotcuda.numba")}, "pkg._gpu"),
    "of underscores": ({"_gpu.py": "", "__.py": KERNELS}, "pkg.__"),
}


@pytest.mark.needs("tomlkit")
@pytest.mark.parametrize("name", FILES)
def test_private_module_that_nothing_imports_is_generated(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, module = FILES[name]
    path = make(tmp_path, PROJECT)
    package = tmp_path / "src" / "pkg"
    (package / "gpu.py").rename(package / "_gpu.py")
    for file, text in files.items():
        (package / file).write_text(text)
    assert cli.main(["init", str(tmp_path)]) == 0
    assert list(load(path)["tool"]["aotcuda"]["modules"]) == [module]
    output = capsys.readouterr().out
    way, other = ("generated: pkg.gpu from pkg._gpu", "is in place") if name == "private" else ("in place", "generated")
    assert way in output
    assert other in output
