"""Test that a build refuses an invalid project by one line with key, reason and remedy, and writes nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from integration import projects
from integration.projects import MODULE, lines_of, refused, run, write

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("back_end")

GOOD = "def f(x):\n    x[0] = 1\n"
KERNEL = 'kernels.f = "void(float32[::1])"'

# The text of each source module, and the error of its import. None: the error of another module covers it.
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
    "imports_a_failing_module": (
        "import pkg.table\n",
        "ValueError: no table (pkg/table.py:1: raise ValueError('no table')); the same error occurs for 1 more module",
    ),
    "imports_it_as_well": ("import pkg.table\n", None),
    "lacks_part_of_a_stand_in": (
        "import sys\nfrom unittest.mock import Mock\nsys.modules['stand'] = Mock()\nimport stand.inner.most\n",
        """ModuleNotFoundError: No module named 'stand.inner'; 'stand' is not a package
        (pkg/_lacks_part_of_a_stand_in.py:4: import stand.inner.most); stand is a stand-in: add the missing module,
        sys.modules["stand.inner"] = stand.inner""",
    ),
    "hides_a_package": (
        "import table.rows\n",
        """ModuleNotFoundError: No module named 'table.rows'; 'table' is not a package (pkg/_hides_a_package.py:1:
        import table.rows); table is table.py: rename it if it hides another package""",
    ),
    "needs_a_gpu": (
        "from numba import cuda\nHANDLE = cuda.to_device([1]).get_ipc_handle()\n",
        """CudaSupportError: cuIpcGetMemHandle: this needs a GPU, and a build has none; do it in a function that is
        called later (pkg/_needs_a_gpu.py:2: HANDLE = cuda.to_device([1]).get_ipc_handle())""",
    ),
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
    """Return the errors of one build by the names of its modules."""
    other_modules = "\n".join(
        f'[tool.aotcuda.modules."pkg.{name}"]\nsource = "pkg._{name}"\n{KERNEL}' for name in (*IMPORTS, "absent")
    )
    project = write(tmp_path_factory.mktemp("imports") / "project", GOOD, module=KERNEL, rest=other_modules)
    for name, (source, _) in IMPORTS.items():
        (project / "pkg" / f"_{name}.py").write_text(source)
    (project / "pkg" / "table.py").write_text("raise ValueError('no table')\n")
    (project / "table.py").write_text("")
    errors = [line.removeprefix('tool.aotcuda.modules."pkg.') for line in lines_of(refused(project).err)]
    return {name: error for name, _, error in (line.partition('".source: ') for line in errors)}


@pytest.mark.parametrize("name", IMPORTS)
def test_import_error_has_text_and_place(name: str, lines: dict[str, str]) -> None:
    text = IMPORTS[name][1]
    expected = f"importing pkg._{name} failed: {' '.join(text.split())}" if text else None
    assert lines.get(name) == expected


def test_missing_source_module_is_reported(lines: dict[str, str]) -> None:
    assert lines["absent"].startswith("there is no module pkg._absent in ")
    remedy = "name the Python module that holds the functions, as it is imported, or if a step of the build writes it"
    assert lines["absent"].endswith(f"; {remedy}, let that step run before aotcuda")


VECTORIZED = """
import numba
@numba.guvectorize(["void(float32[:], float32[:])"], "(n)->(n)", target="cuda")
def general(a, b):
    b[0] = a[0]
def f(x):
    x[0] = 1
"""
SHARED_MEMORY = """
from numba import cuda, float64

def f(x):
    tile = cuda.shared.array(10000, float64)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    cuda.syncthreads()
    x[i] = tile[x.size - i]
"""
SIBLING = """
from numba import cuda
from pkg.k import scaled as renamed

def calls(x):
    helper(x)

def helper(x):
    x[0] = renamed(x[0])
"""
OTHER = '[tool.aotcuda.modules."{}"]\nsource = "pkg.{}"\nkernels.{} = "void(float32[::1])"'


class Invalid(NamedTuple):
    """An invalid project.

    Attributes:
        error: The beginning of the error.
        edit: A text of pyproject.toml and its replacement; None for no edit.
        arguments: The arguments of `write`.
    """

    error: str
    edit: tuple[str, str] | None
    arguments: dict[str, str]


def invalid(*error: str, edit: tuple[str, str] | None = None, **arguments: str) -> Invalid:
    """Return a project with a valid kernel, unless `arguments` replace it."""
    return Invalid("".join(error), edit, {"source": GOOD, "module": KERNEL} | arguments)


REFUSED = {
    "vectorized function": invalid(
        f"{MODULE}.kernels.general: pkg._k.general (pkg/_k.py:3) is made by @vectorize or @guvectorize, which launch ",
        "kernels of their own; write a kernel that calls the plain function for each element, and name that kernel",
        source=VECTORIZED,
        module='kernels.general = "void(float32[:], float32[:])"',
    ),
    "misspelt_project package": invalid(
        'tool.aotcuda.modules."pgk.kernels": there is no package pgk in <project>, which must contain the module; ',
        "did you mean pkg.kernels?",
        rest=OTHER.format("pgk.kernels", "_k", "f"),
    ),
    "array on the GPU": invalid(
        f"{MODULE}.kernels.reads: void(float32[::1]): it uses an array on the GPU that is a global or belongs to a ",
        "closure; other processes do not have its address, so pass it as an argument (pkg/_k.py:6)",
        source="from numba import cuda\n\nTABLE = cuda.to_device([1])\n\ndef reads(x):\n    x[0] = TABLE[0]\n",
        module='kernels.reads = "void(float32[::1])"',
    ),
    "missing package": invalid(
        'tool.aotcuda.modules."elsewhere.kernels": there is no package elsewhere in <project>, which must contain the ',
        "module; name a module in a package of the project",
        rest=OTHER.format("elsewhere.kernels", "_k", "f"),
    ),
    "old target": invalid(
        "tool.aotcuda.arch: sm_35 is not known to the CUDA 13.0 toolchain, which builds for sm_75, sm_80, ",
        aotcuda='arch = ["sm_35"]',
    ),
    "one symbol for two signatures": invalid(
        f"{MODULE}.kernels.f__1: its symbol f__1 is also that of {MODULE}.kernels.f; rename one of the two",
        module='kernels.f = ["void(float32)", "void(int32)"]\nkernels.f__1 = "void(int32)"',
    ),
    "function of another module": invalid(
        'tool.aotcuda.modules."pkg.other".kernels.calls: renamed in helper (pkg/_other.py:8) belongs to pkg.k, which ',
        'this build packages; declare the function, cuda.declare_device(name, signature, abi="c"), and link the '
        'module: { module = "pkg.k" }',
        source="def scaled(x):\n    return 2 * x\n",
        module='functions.scaled = "float32(float32)"',
        rest=OTHER.format("pkg.other", "_other", "calls"),
    ),
    "old aotcuda": invalid(
        'project.dependencies: "aotcuda<0.1" allows no aotcuda that can read the modules of this build; write ',
        '"aotcuda>=0.1.0"',
        edit=('dependencies = ["aotcuda"]', 'dependencies = ["aotcuda<0.1"]'),
    ),
    "too much shared memory": invalid(
        "pkg.k: linking for sm_80 failed: f has 80000 bytes of shared memory of a fixed size, and 49152 are the most; ",
        "make it smaller, or give it no size in the source and its bytes at the launch",
        source=SHARED_MEMORY,
        module='kernels.f = "void(float64[::1])"',
    ),
}
REFUSED_BY_HATCHLING = {
    "settings in the hook's table": invalid(
        "tool.hatch.build.targets.wheel.hooks.aotcuda.arch: this table only enables the hook; configure it ",
        hook='arch = ["sm_80"]',
    ),
    "no configuration": invalid(
        "pyproject.toml enables the hook aotcuda and has no [tool.aotcuda] table; add one, or drop the hook",
        edit=("tool.aotcuda", "tool.another"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_project_is_refused_with_one_line(name: str, tmp_path: Path) -> None:
    assert_refused(tmp_path / "project", REFUSED[name])


@pytest.mark.back_end("hatchling")
@pytest.mark.parametrize("name", REFUSED_BY_HATCHLING)
def test_hatchling_project_is_refused_with_one_line(name: str, tmp_path: Path) -> None:
    assert_refused(tmp_path / "project", REFUSED_BY_HATCHLING[name])


def assert_refused(folder: Path, case: Invalid) -> None:
    project = write(folder, **case.arguments)
    (project / "pkg" / "_other.py").write_text(projects.source(SIBLING))
    if case.edit is not None:
        config = project / "pyproject.toml"
        assert case.edit[0] in config.read_text()
        config.write_text(config.read_text().replace(*case.edit))
    done = refused(project)
    assert done.err.startswith(f"aotcuda: {case.error.replace('<project>', str(project))}")
    assert done.err.count("\n") == 1


def test_module_with_kernels_may_define_a_vectorized_function(tmp_path: Path) -> None:
    projects.build_wheel(write(tmp_path / "project", VECTORIZED, module=KERNEL))


def test_missing_compilers_are_named_with_their_extra(tmp_path: Path) -> None:
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from aotcuda.cli import main; sys.exit(main())"
    done = refused(project, sys.executable, "-S", "-c", program, str(projects.CHECKOUT), "build")
    assert done.message == (
        "building needs compilers, which are not installed (No module named 'cuda'); run: pip install 'aotcuda[cu13]'"
    )


def test_missing_dependency_on_aotcuda_gives_a_warning(tmp_path: Path) -> None:
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    config = project / "pyproject.toml"
    config.write_text(config.read_text().replace('dependencies = ["aotcuda"]', 'dependencies = ["aotcuda-like"]'))
    done = projects.back_end(project)
    assert "project.dependencies does not name aotcuda, which the generated modules import" in done.err


def test_unwritable_output_folder_is_named(tmp_path: Path) -> None:
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    (tmp_path / "file").write_text("")
    done = projects.forked_run(project, sys.executable, "-m", "aotcuda", "build", "--out", str(tmp_path / "file"))
    assert done.status == 1
    assert done.err.startswith(f"aotcuda: {tmp_path}/file/pkg/k")
    assert done.err.count("\n") == 1


def test_invalid_environment_variable_is_named(tmp_path: Path) -> None:
    done = refused(write(tmp_path / "project", GOOD, module=KERNEL), AOTCUDA_ARCH="sm_80;compute_200")
    assert done.message.startswith(
        "AOTCUDA_ARCH: compute_200 is not known to the CUDA 13.0 toolchain, which builds for compute_75, "
    )


def test_debug_variable_shows_the_traceback(tmp_path: Path) -> None:
    project = write(tmp_path / "project", "import not_installed\n", module=KERNEL)
    done = projects.forked_run(project, *projects.command(), AOTCUDA_DEBUG="1")
    assert done.status != 0
    assert "Traceback (most recent call last):" in done.err
    assert 'pkg/_k.py", line 1' in done.err
    assert "No module named 'not_installed'" in done.err
    assert "its output is printed above" not in done.err


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
    assert done.message == (
        f"warning: {MODULE}.functions.calls: a helper that it calls raises ValueError (pkg/_k.py:4); the C ABI has no "
        "way to report it, so callers get an undefined value there"
    )


def test_project_for_two_back_ends_is_refused(back_end: str, tmp_path: Path) -> None:
    table = "[tool.hatch.build.targets.wheel.hooks.aotcuda]"
    project = write(tmp_path / "project", GOOD, module=KERNEL)
    config = project / "pyproject.toml"
    text = config.read_text().replace("hatchling.build", "setuptools.build_meta")
    config.write_text(text if back_end == "hatchling" else f"{text}\n{table}\n")
    assert refused(project).message == (
        f"pyproject.toml has {table}, which is for hatchling, and setuptools is to build [tool.aotcuda] too; drop that "
        'table, or write build-backend = "hatchling.build"'
    )


@pytest.fixture
def misspelt_project(tmp_path: Path) -> Path:
    return write(tmp_path / "project", GOOD, module='kernels.g = "void(float32[::1])"')


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("build --no-isolation --wheel", marks=pytest.mark.matrix),
        f"uv build --wheel --no-build-isolation --python {sys.executable}",
        pytest.param("pip wheel . --no-deps --no-build-isolation -w dist", marks=pytest.mark.matrix),
    ],
)
def test_each_build_tool_shows_the_error(command: str, misspelt_project: Path) -> None:
    before = projects.project_files(misspelt_project)
    done = run(misspelt_project, sys.executable, "-m", *command.split())
    assert done.status != 0
    assert f"aotcuda: {MODULE}.kernels.g: pkg._k has no function g; it has f" in done.out + done.err
    assert {
        name: data for name, data in projects.project_files(misspelt_project).items() if name != "dist/.gitignore"
    } == before


def test_refused_editable_install_keeps_earlier_files(misspelt_project: Path) -> None:
    config = misspelt_project / "pyproject.toml"
    text = config.read_text() + '\n[tool.hatch.build]\ndev-mode-dirs = ["."]\n'
    config.write_text(text.replace("kernels.g", "kernels.f"))
    projects.back_end(misspelt_project, editable=True)
    assert (misspelt_project / "pkg" / "k.py").is_file()
    config.write_text(text)
    done = refused(misspelt_project, editable=True)
    assert done.message == f"{MODULE}.kernels.g: pkg._k has no function g; it has f"
