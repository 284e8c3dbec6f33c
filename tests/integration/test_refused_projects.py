"""Test what a build refuses: by a line that names the user's key, says why and what to do; and nothing is written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from integration import projects
from integration.projects import MODULE, lines_of, refused, run, write

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("back_end")

GOOD = "def f(x):\n    x[0] = 1\n"
KERNEL = 'kernels.f = "void(float32[::1])"'

IMPORTS = {
    "third_party": (
        "import not_installed.anywhere\n",
        """ModuleNotFoundError: No module named 'not_installed' (pkg/_third_party.py:1: import not_installed.anywhere);
        add what provides not_installed to build-system.requires, give it a stand-in in a prelude, or import it
        where it is used""",
    ),
    "syntax": (
        "def f(x:\n    pass\n",
        "SyntaxError: '(' was never closed (pkg/_syntax.py:1: def f(x:)",
    ),
    "raises": (
        "def check():\n    raise ValueError('a bad table\\nof numbers')\n\ncheck()\n",
        "ValueError: a bad table (pkg/_raises.py:2: raise ValueError('a bad table\\nof numbers'))",
    ),
    "needs_another": (
        "import pkg.table\n",
        "ValueError: no table (pkg/table.py:1: raise ValueError('no table')); the same error occurs for 1 more module",
    ),
    "needs_it_as_well": ("import pkg.table\n", None),
    "needs_a_stand_ins": (
        "import sys\nfrom unittest.mock import Mock\nsys.modules['stand'] = Mock()\nimport stand.inner.most\n",
        """ModuleNotFoundError: No module named 'stand.inner'; 'stand' is not a package (pkg/_needs_a_stand_ins.py:4:
        import stand.inner.most); stand is a stand-in: add the missing module,
        sys.modules["stand.inner"] = stand.inner""",
    ),
    "hides_a_package": (
        "import table.rows\n",
        """ModuleNotFoundError: No module named 'table.rows'; 'table' is not a package (pkg/_hides_a_package.py:1:
        import table.rows); table is table.py: rename it if it hides another package""",
    ),
    "says_nothing": (
        "assert not 'a word'\n",
        "AssertionError (pkg/_says_nothing.py:1: assert not 'a word')",
    ),
    "cannot_say": (
        "class Broken(Exception):\n    def __str__(self):\n        return 1 / 0\n\nraise Broken\n",
        "Broken: its text cannot be made (ZeroDivisionError) (pkg/_cannot_say.py:5: raise Broken)",
    ),
    **{
        f"needs_a_gpu_{number}": (
            f"from numba import cuda\n{line}\n",
            f"""{error}: this needs a GPU, and a build has none; do it in a function that is called later
            (pkg/_needs_a_gpu_{number}.py:2: {line})""",
        )
        for number, (error, line) in enumerate(
            [
                ("CudaSupportError", "ARRAY = cuda.to_device([1])"),
                ("CudaSupportError", "STREAM = cuda.stream()"),
            ]
        )
    },
    **{
        name: (
            "from numba import cuda\n@cuda.jit\ndef kernel(x):\n    x[0] = 1\n" + line + "\n",
            f"""RuntimeError: kernel is a kernel; launching it needs a GPU, and a build has none; do it in a function
            that is called later (pkg/_{name}.py:5: {line})""",
        )
        for name, line in [
            ("launches", "kernel[1, 1]([1])"),
            ("launches_forall", "kernel.forall(3)([1])"),
        ]
    },
}


@pytest.fixture(scope="module")
def lines(back_end: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    rest = "\n".join(
        f'[tool.aotcuda.modules."pkg.{name}"]\nsource = "pkg._{name}"\n{KERNEL}' for name in (*IMPORTS, "absent")
    )
    project = write(tmp_path_factory.mktemp("imports") / "project", GOOD, module=KERNEL, rest=rest)
    for name, (source, _) in IMPORTS.items():
        (project / "pkg" / f"_{name}.py").write_text(source)
    (project / "pkg" / "table.py").write_text("raise ValueError('no table')\n")
    (project / "table.py").write_text("")
    found = {}
    for line in lines_of(refused(project).err):
        key, _, said = line.partition(": ")
        found[key] = said
    return found


@pytest.mark.parametrize("name", [name for name, (_, said) in IMPORTS.items() if said])
def test_import_error_has_text_and_place(name: str, lines: dict[str, str]) -> None:
    said = " ".join(str(IMPORTS[name][1]).split())
    assert lines[f'tool.aotcuda.modules."pkg.{name}".source'] == f"importing pkg._{name} failed: {said}"


def test_shared_import_error_is_reported_once(lines: dict[str, str]) -> None:
    assert 'tool.aotcuda.modules."pkg.needs_another".source' in lines
    assert 'tool.aotcuda.modules."pkg.needs_it_as_well".source' not in lines


def test_missing_source_module_is_reported(lines: dict[str, str]) -> None:
    said = lines['tool.aotcuda.modules."pkg.absent".source']
    assert said.startswith("there is no module pkg._absent in ")
    assert said.endswith("; name the Python module that holds the functions, as it is imported")


VECTORIZED = """
import numba
@numba.vectorize(["float32(float32, float32)"], target="cuda")
def wide(a, b):
    return a + b
@numba.guvectorize(["void(float32[:], float32[:])"], "(n)->(n)", target="cuda")
def general(a, b):
    b[0] = a[0]
def f(x):
    x[0] = 1
"""


def test_vectorized_function_is_refused_as_kernel_alone(tmp_path: Path) -> None:
    project = write(tmp_path / "project", VECTORIZED, module=KERNEL)
    projects.build_wheel(project)
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace("kernels.f", "kernels.general"))
    assert refused(project).said == (
        f"{MODULE}.kernels.general: pkg._k.general (pkg/_k.py:6) is made by @vectorize or @guvectorize, which "
        "launch kernels of their own; write a kernel that calls the plain function for each element, and name that"
    )


@pytest.mark.parametrize(
    ("name", "meant", "missing"),
    [
        ("pgk.kernels", "pkg.kernels", "pgk"),
        ("elsewhere.kernels", None, "elsewhere"),
    ],
)
def test_module_in_a_missing_package_is_refused(name: str, meant: str | None, missing: str, tmp_path: Path) -> None:
    rest = f'[tool.aotcuda.modules."{name}"]\nsource = "pkg._k"\n{KERNEL}'
    project = write(tmp_path / "project", GOOD, module=KERNEL, rest=rest)
    (project / "pkg" / "sub").mkdir()
    (project / "pkg" / "sub" / "__init__.py").write_text("")
    hint = f"did you mean {meant}?" if meant else "name a module in a package of the project"
    assert refused(project).said == (
        f'tool.aotcuda.modules."{name}": there is no package {missing} in {project}, which must contain the module; '
        f"{hint}"
    )


CONFIGURATION = {
    "an old arch": (
        {"aotcuda": 'arch = ["sm_35"]'},
        "tool.aotcuda.arch: sm_35 is not known to the CUDA 13.0 toolchain, which builds for sm_75, sm_80, ",
    ),
    "symbols that clash": (
        {"module": 'kernels.f = ["void(float32)", "void(int32)"]\nkernels.f__1 = "void(int32)"'},
        f"{MODULE}.kernels.f__1: its symbol f__1 is also that of {MODULE}.kernels.f; rename one of the two",
    ),
}


@pytest.mark.parametrize("name", CONFIGURATION)
def test_configuration_that_cannot_be_built_is_refused(name: str, tmp_path: Path) -> None:
    arguments, said = CONFIGURATION[name]
    done = refused(write(tmp_path / "project", GOOD, **{"module": KERNEL} | arguments))
    assert done.err.startswith(f"aotcuda: {said}")
    assert done.err.count("\n") == 1


@pytest.mark.back_end("hatchling")
def test_settings_in_the_hooks_table_are_refused(tmp_path: Path) -> None:
    done = refused(write(tmp_path / "project", GOOD, module=KERNEL, hook='arch = ["sm_80"]'))
    assert done.err.startswith(
        "aotcuda: tool.hatch.build.targets.wheel.hooks.aotcuda.arch: this table only enables the hook; configure it "
    )
    assert done.err.count("\n") == 1


def test_missing_compilers_are_named_with_their_extra(tmp_path: Path) -> None:
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from aotcuda.cli import main; sys.exit(main())"
    done = refused(project, sys.executable, "-S", "-c", program, str(projects.CHECKOUT), "build")
    assert done.said == (
        "building needs compilers, which are not installed (No module named 'cuda'); run: pip install 'aotcuda[cu13]'"
    )


SIBLING = """
from numba import cuda
from pkg.k import scaled as renamed

def calls(x):
    helper(x)

def helper(x):
    x[0] = renamed(x[0])
"""


def test_function_of_another_module_must_be_declared(tmp_path: Path) -> None:
    other = '[tool.aotcuda.modules."pkg.other"]\nsource = "pkg._other"\nkernels.calls = "void(float32[::1])"\n'
    good = 'functions.scaled = "float32(float32)"'
    project = write(tmp_path / "project", "def scaled(x):\n    return 2 * x\n", module=good, rest=other)
    (project / "pkg" / "_other.py").write_text(projects.source(SIBLING))
    done = refused(project)
    assert done.said == (
        'tool.aotcuda.modules."pkg.other".kernels.calls: renamed in helper (pkg/_other.py:8) is of pkg.k, which this '
        'build makes; declare the function, cuda.declare_device(name, signature, abi="c"), and link the module: '
        '{ module = "pkg.k" }'
    )


def test_missing_dependency_on_aotcuda_gives_a_warning(tmp_path: Path) -> None:
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace('dependencies = ["aotcuda"]', 'dependencies = ["aotcuda-like"]'))
    done = projects.back_end(project)
    assert "project.dependencies does not name aotcuda, which the generated modules import" in done.err


def test_dependency_on_too_old_aotcuda_is_refused(tmp_path: Path) -> None:
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace('dependencies = ["aotcuda"]', 'dependencies = ["aotcuda<0.1"]'))
    assert refused(project).said == (
        'project.dependencies: "aotcuda<0.1" allows no aotcuda that can read the modules of this build; '
        'write "aotcuda>=0.1.0"'
    )


def test_unwritable_output_folder_is_named(tmp_path: Path) -> None:
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    (tmp_path / "file").write_text("")
    done = projects.forked_run(project, sys.executable, "-m", "aotcuda", "build", "--out", str(tmp_path / "file"))
    assert done.status == 1
    assert done.err.startswith(f"aotcuda: {tmp_path}/file/pkg/k")
    assert done.err.count("\n") == 1


def test_invalid_environment_variable_is_named(tmp_path: Path) -> None:
    done = refused(write(tmp_path / "project", GOOD, module=KERNEL), AOTCUDA_ARCH="sm_80;compute_200")
    said = "AOTCUDA_ARCH: compute_200 is not known to the CUDA 13.0 toolchain, which builds for compute_75, "
    assert done.err.startswith(f"aotcuda: {said}")


@pytest.mark.back_end("hatchling")
def test_hook_without_configuration_is_refused(tmp_path: Path) -> None:
    project = write(tmp_path / "project", GOOD)
    config = project / "pyproject.toml"
    config.write_text(config.read_text().partition("[tool.aotcuda]")[0])
    assert refused(project).said == (
        "pyproject.toml enables the hook aotcuda and has no [tool.aotcuda] table; add one, or drop the hook"
    )


def test_shared_memory_beyond_every_gpu_is_refused(tmp_path: Path) -> None:
    source = """
from numba import cuda, float64

def f(x):
    tile = cuda.shared.array(10000, float64)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    cuda.syncthreads()
    x[i] = tile[x.size - i]
"""
    assert refused(write(tmp_path / "project", source, module='kernels.f = "void(float64[::1])"')).said == (
        "pkg.k: linking for sm_80 failed: f has 80000 bytes of shared memory of a fixed size, and 49152 are the most; "
        "make it smaller, or give it no size in the source and its bytes at the launch"
    )


def test_source_that_crashes_the_build_is_named(tmp_path: Path) -> None:
    source = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    assert refused(write(tmp_path / "project", source, module=KERNEL)).said == (
        "the build ended while importing pkg._k (killed by SIGSEGV); its output is printed above"
    )


def test_debugging_shows_the_traceback(tmp_path: Path) -> None:
    project = write(tmp_path / "project", "import not_installed\n", module=KERNEL)
    done = projects.forked_run(project, *projects.command(), AOTCUDA_DEBUG="1")
    assert done.status != 0
    assert "Traceback (most recent call last):" in done.err
    assert 'pkg/_k.py", line 1' in done.err
    assert "No module named 'not_installed'" in done.err
    assert "its output is printed above" not in done.err


def test_output_of_a_source_is_shown(tmp_path: Path) -> None:
    project = write(tmp_path / "project", f"import sys\nprint('hello')\nsys.stdout.flush()\n{GOOD}", module=KERNEL)
    done = projects.back_end(project)
    assert [line for line in done.err.splitlines() if "dist/" not in line] == ["hello"]


def test_helper_that_raises_behind_c_abi_gives_a_warning(tmp_path: Path) -> None:
    source = """
def helper(x):
    if x > 3:
        raise ValueError("no")
    return x

def calls(x):
    return helper(x)
"""
    done = projects.back_end(write(tmp_path / "project", source, module='functions.calls = "int32(int32)"'))
    assert done.said == (
        f"warning: {MODULE}.functions.calls: a helper that it calls raises ValueError (pkg/_k.py:4); the C ABI has no "
        "way to report it, so callers get an undefined value there"
    )


def test_project_for_two_back_ends_is_refused(back_end: str, tmp_path: Path) -> None:
    table = "[tool.hatch.build.targets.wheel.hooks.aotcuda]"
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    config = project / "pyproject.toml"
    text = config.read_text().replace("hatchling.build", "setuptools.build_meta")
    config.write_text(text if back_end == "hatchling" else f"{text}\n{table}\n")
    assert refused(project).said == (
        f"pyproject.toml has {table}, which is for hatchling, and setuptools is to build [tool.aotcuda] too; drop that "
        'table, or write build-backend = "hatchling.build"'
    )


@pytest.fixture
def misspelt(tmp_path: Path) -> Path:
    return write(tmp_path / "project", GOOD, module='kernels.g = "void(float32[::1])"')


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("build --no-isolation --wheel", marks=pytest.mark.matrix),
        f"uv build --wheel --no-build-isolation --python {sys.executable}",
        pytest.param("pip wheel . --no-deps --no-build-isolation -w dist", marks=pytest.mark.matrix),
    ],
)
def test_each_build_tool_shows_the_error(command: str, misspelt: Path) -> None:
    before = projects.own(misspelt)
    done = run(misspelt, sys.executable, "-m", *command.split())
    assert done.status != 0
    assert f"aotcuda: {MODULE}.kernels.g: pkg._k has no function g; it has f" in done.out + done.err
    assert {name: data for name, data in projects.own(misspelt).items() if name != "dist/.gitignore"} == before


def test_refused_editable_install_keeps_earlier_files(misspelt: Path) -> None:
    config = misspelt / "pyproject.toml"
    text = config.read_text() + '\n[tool.hatch.build]\ndev-mode-dirs = ["."]\n'
    config.write_text(text.replace("kernels.g", "kernels.f"))
    projects.back_end(misspelt, editable=True)
    assert (misspelt / "pkg" / "k.py").is_file()
    config.write_text(text)
    done = refused(misspelt, editable=True)
    assert done.said == f"{MODULE}.kernels.g: pkg._k has no function g; it has f"
