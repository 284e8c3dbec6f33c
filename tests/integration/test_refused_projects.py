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
    "exits": (
        "import sys\nsys.exit('enough')\n",
        "SystemExit: enough (pkg/_exits.py:2: sys.exit('enough'))",
    ),
    "says_nothing": (
        "assert not 'a word'\n",
        "AssertionError (pkg/_says_nothing.py:1: assert not 'a word')",
    ),
    "says_it_below": (
        r"raise ValueError('\n a bad table\n')",
        r"ValueError: a bad table (pkg/_says_it_below.py:1: raise ValueError('\n a bad table\n'))",
    ),
    "cannot_say": (
        "class Broken(Exception):\n    def __str__(self):\n        return 1 / 0\n\nraise Broken\n",
        "Broken: its text cannot be made (ZeroDivisionError) (pkg/_cannot_say.py:5: raise Broken)",
    ),
    "library": (
        "import json\nTABLE = json.loads('{')\n",
        """JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)
        (pkg/_library.py:2: TABLE = json.loads('{'))""",
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
                ("CudaSupportError", "ARRAY = cuda.device_array(3)"),
                ("CudaSupportError", "ARRAY = cuda.pinned_array(3)"),
                ("CudaSupportError", "STREAM = cuda.stream()"),
                ("CudaSupportError", "INFO = cuda.current_context().get_memory_info()"),
                ("CudaSupportError", "cuda.synchronize()"),
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
            ("launches_by_name", "kernel[1, 1](x=[1])"),
            ("launches_configured", "configured = kernel[1, 1]; configured([1])"),
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


def test_vectorized_functions_may_lie_beside_kernels(tmp_path: Path) -> None:
    projects.build_wheel(write(tmp_path / "project", VECTORIZED, module=KERNEL))


@pytest.mark.parametrize(("name", "line"), [("wide", 3), ("general", 6)])
def test_vectorized_function_is_refused_as_kernel(name: str, line: int, tmp_path: Path) -> None:
    project = write(tmp_path / "project", VECTORIZED, module=f'kernels.{name} = "void(float32[:], float32[:])"')
    assert refused(project).said == (
        f"{MODULE}.kernels.{name}: pkg._k.{name} (pkg/_k.py:{line}) is made by @vectorize or @guvectorize, which "
        "launch kernels of their own; write a kernel that calls the plain function for each element, and name that"
    )


@pytest.mark.parametrize(
    ("name", "meant", "missing"),
    [
        ("pgk.kernels", "pkg.kernels", "pgk"),
        ("pkg.sbu.kernels", "pkg.sub.kernels", "pkg.sbu"),
        ("elsewhere.kernels", None, "elsewhere"),
    ],
)
def test_a_module_in_a_package_that_does_not_exist_is_refused(
    name: str, meant: str | None, missing: str, tmp_path: Path
) -> None:
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
    "a suffix too early": (
        {"aotcuda": 'arch = ["sm_75a"]'},
        "tool.aotcuda.arch: sm_75a is not known to the CUDA 13.0 toolchain, which builds for sm_90a, sm_100a, ",
    ),
    "a C ABI name that is a keyword of C++": (
        {"module": 'functions.template = "int32(int32)"'},
        f'{MODULE}.functions.template: "template" is a keyword of C++, so no header can declare it; choose ',
    ),
    "a C ABI name that is no identifier": (
        {"module": 'functions.add-one = "int32(int32)"'},
        f"{MODULE}.functions.add-one: expected a C identifier (ASCII letters, digits, underscores) as the key, ",
    ),
    "a C ABI name that is used twice": (
        {
            "module": 'functions.f = "int32(int32)"',
            "rest": '[tool.aotcuda.modules."pkg.j"]\nsource = "pkg._k"\nfunctions.f = "int32(int32)"',
        },
        f'tool.aotcuda.modules."pkg.j".functions.f: the C ABI name is already used by {MODULE}.functions.f, ',
    ),
    "symbols that clash": (
        {"module": 'kernels.f = ["void(float32)", "void(int32)"]\nkernels.f__1 = "void(int32)"'},
        f"{MODULE}.kernels.f__1: its symbol f__1 is also that of {MODULE}.kernels.f; rename one of the two",
    ),
    "PTX of a debug build": (
        {"aotcuda": 'arch = ["sm_80", "compute_80"]\noptions.debug = true'},
        f"tool.aotcuda.arch: compute_80 is PTX, and {MODULE} is built with debug = true, which gives machine code ",
    ),
}


@pytest.mark.parametrize("name", CONFIGURATION)
def test_a_configuration_that_cannot_be_built_is_refused(name: str, tmp_path: Path) -> None:
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


def test_a_forgotten_extra_is_named(tmp_path: Path) -> None:
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from aotcuda.cli import main; sys.exit(main())"
    done = refused(project, sys.executable, "-S", "-c", program, str(projects.CHECKOUT), "build")
    assert done.said == (
        "building needs compilers, which are not installed (No module named 'cuda'); run: pip install 'aotcuda[cu13]'"
    )


SIBLING = """
from numba import cuda
import pkg.k as k
from pkg.k import scaled as renamed

def by_module(x):
    x[0] = k.scaled(x[0])

def by_name(x):
    helper(x)

def helper(x):
    x[0] = renamed(x[0])
"""


@pytest.mark.parametrize(
    ("kernel", "name", "line"), [("by_module", "k in by_module", 6), ("by_name", "renamed in helper", 12)]
)
def test_function_of_another_module_must_be_declared(tmp_path: Path, kernel: str, name: str, line: int) -> None:
    other = f'[tool.aotcuda.modules."pkg.other"]\nsource = "pkg._other"\nkernels.{kernel} = "void(float32[::1])"\n'
    good = 'functions.scaled = "float32(float32)"'
    project = write(tmp_path / "project", "def scaled(x):\n    return 2 * x\n", module=good, rest=other)
    (project / "pkg" / "_other.py").write_text(projects.source(SIBLING))
    done = refused(project)
    assert done.said == (
        f'tool.aotcuda.modules."pkg.other".kernels.{kernel}: {name} (pkg/_other.py:{line}) is of pkg.k, which this '
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


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
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
def test_a_hook_without_configuration_is_refused(tmp_path: Path) -> None:
    project = write(tmp_path / "project", GOOD)
    config = project / "pyproject.toml"
    config.write_text(config.read_text().partition("[tool.aotcuda]")[0])
    assert refused(project).said == (
        "pyproject.toml enables the hook aotcuda and has no [tool.aotcuda] table; add one, or drop the hook"
    )


@pytest.mark.parametrize("command", [(), (sys.executable, "-m", "aotcuda", "build")], ids=["back end", "command"])
def test_double_brackets_are_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace("[tool.aotcuda]", "[[tool.aotcuda]]"))
    assert (
        refused(project, *command).said
        == "tool.aotcuda: expected a table, found a list; write [tool.aotcuda], in single brackets"
    )


def test_a_module_that_exists_already_is_not_replaced(tmp_path: Path) -> None:
    """`test_build_module_conflicts` has more names."""
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    (project / "pkg" / "k.pyi").write_text("MINE: bool\n")
    assert refused(project).said == (
        f"{MODULE}: the project already has pkg/k.pyi, where the generated module would go; choose another module name"
    )


def test_shared_memory_beyond_every_gpu_is_refused_with_the_linkers_reason(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("code", "how"),
    [
        pytest.param("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV", id="crashes"),
        pytest.param("print('bye', flush=True); os._exit(0)", "exit status 0", id="ends the process"),
    ],
)
def test_source_that_crashes_the_build_is_named(code: str, how: str, tmp_path: Path) -> None:
    project = write(tmp_path / "project", f"import os, signal\n{code}\n", module=KERNEL)
    assert refused(project).said == f"the build ended while importing pkg._k ({how}); its output is printed above"


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


def test_a_project_for_two_back_ends_is_refused(back_end: str, tmp_path: Path) -> None:
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
        pytest.param(("build", "--no-isolation", "--wheel"), id="build", marks=pytest.mark.matrix),
        pytest.param(("uv", "build", "--wheel", "--no-build-isolation", "--python", sys.executable), id="uv build"),
        pytest.param(
            ("pip", "wheel", ".", "--no-deps", "--no-build-isolation", "-w", "dist"),
            id="pip wheel",
            marks=pytest.mark.matrix,
        ),
    ],
)
def test_each_build_tool_ends_with_the_error_and_no_wheel(command: tuple[str, ...], misspelt: Path) -> None:
    before = projects.own(misspelt)
    done = run(misspelt, sys.executable, "-m", *command)
    assert done.status != 0
    lines = [line.strip() for line in (done.out + done.err).splitlines()]
    assert f"aotcuda: {MODULE}.kernels.g: pkg._k has no function g; did you mean f?" in lines or (
        f"aotcuda: {MODULE}.kernels.g: pkg._k has no function g; it has f" in lines
    )
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
