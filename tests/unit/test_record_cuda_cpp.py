"""Test that recorded launches of CUDA C++ become files, modules, kernels and options of a table."""

from __future__ import annotations

import hashlib
import tomllib

import pytest

from aotcuda.tools.record import cuda_cpp
from aotcuda.tools.record.collect import CudaCppLaunches
from aotcuda.tools.record.project import Project
from aotcuda.tools.record.pyproject import Editor

AXPY = 'extern "C" __global__ void axpy(float *x, const unsigned char *mask, int n) { x[n] = mask[n]; }'
OTHER = 'extern "C" __global__ void other() {}'
HEAD = '[project]\nname = "pkg"\nversion = "1"\n'
OWN = '[tool.aotcuda.modules."pkg.own"]\nsource = "csrc/own.cu"\n'


@pytest.fixture
def folder(tmp_path):
    """Make a project with `pkg.solver`, a script, and a file of CUDA C++."""
    for name, text in (("pkg/__init__.py", ""), ("pkg/solver.py", ""), ("script.py", ""), ("csrc/own.cu", AXPY)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def project_of(folder, tables=""):
    (folder / "pyproject.toml").write_text(HEAD + tables)
    return Project.read(folder)


def launch(text=OTHER, name="other", made="pkg/solver.py:3", **changes):
    digest = hashlib.sha256("\n".join(text.splitlines()).encode()).hexdigest()
    facts = {"digest": digest, "text": text, "name": name, "site": "pkg/solver.py:9", "made": made, "count": 1}
    return CudaCppLaunches(**{**facts, **changes})


def planned(folder, *launches, tables=""):
    """Return module and file of each addition, and the lines on kernels that are left out."""
    additions, left_out = cuda_cpp.plan(launches, project_of(folder, tables))
    return [(item.module, item.source) for item in additions], left_out


@pytest.mark.parametrize(
    ("made", "module", "source"),
    [
        ("pkg/solver.py:3", "pkg.solver_cuda", "csrc/pkg/solver.cu"),
        ("script.py:3", "pkg.script_cuda", "csrc/pkg/script.cu"),
        ("pkg/__init__.py:3", "pkg.__init___cuda", "csrc/pkg/__init__.cu"),
    ],
)
def test_a_text_of_a_program_becomes_a_file_and_a_module_named_after_it(folder, made, module, source):
    assert planned(folder, launch(made=made)) == ([(module, source)], [])


def test_other_texts_and_other_options_get_numbers(folder):
    twice = launch(text=OTHER + "\n// again")
    launches = [launch(), launch(options=("-DN=1",)), launch(options=("-std=c++17", "-lineinfo")), twice]
    assert planned(folder, *launches)[0] == [
        ("pkg.solver_cuda", "csrc/pkg/solver.cu"),
        ("pkg.solver_cuda_2", "csrc/pkg/solver.cu"),
        ("pkg.solver_cuda_3", "csrc/pkg/solver_2.cu"),
    ]
    (folder / "csrc" / "pkg").mkdir()
    (folder / "csrc" / "pkg" / "solver.cu").touch()
    assert planned(folder, launch())[0] == [("pkg.solver_cuda", "csrc/pkg/solver_2.cu")]


def test_a_file_of_the_project_is_named_wherever_its_text_is_read(folder):
    for made in ("pkg/solver.py:3", "/usr/lib/python3/other.py:3", "tests/test_it.py:1"):
        (item,), left_out = cuda_cpp.plan([launch(AXPY, "axpy", made=made)], project_of(folder))
        assert (item.module, item.source, item.text, left_out) == ("pkg.own", "csrc/own.cu", "", [])


@pytest.mark.parametrize(
    ("made", "count", "line"),
    [
        ("/usr/lib/other.py:3", 1, "pkg/solver.py:9: other: its CUDA C++ belongs to another package (1 launch)"),
        ("tests/test_it.py:3", 2, "pkg/solver.py:9: other: its CUDA C++ belongs to the tests (2 launches)"),
    ],
)
def test_texts_of_tests_and_other_packages_are_left_out(folder, made, count, line):
    assert planned(folder, launch(made=made, count=count)) == ([], [line])


@pytest.mark.parametrize(
    ("tables", "options", "module"),
    [
        (OWN, (), "pkg.own"),
        (OWN, ("-DN=1",), "pkg.own_2"),
        (f"{OWN}options.defines = {{ N = 1 }}\n", ("-DN=1",), "pkg.own"),
        (f"{OWN}options.defines = {{ N = 2 }}\n", ("-DN=1",), "pkg.own_2"),
        (f"{OWN}kernels = {{ axpy = {{}} }}\n", (), None),
        (f'{OWN}kernels = {{ axpy = ["axpy<1>"] }}\n', (), None),
    ],
)
def test_a_module_of_the_table_with_the_same_macros_gets_the_kernel(folder, tables, options, module):
    additions, _ = planned(folder, launch(AXPY, "axpy", options=options), tables=tables)
    assert additions == ([(module, "csrc/own.cu")] if module else [])


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (["-DN=1"], {"defines": {"N": "1"}}),
        (["-D", "N=a=b"], {"defines": {"N": "a=b"}}),
        (["--define-macro=N"], {"defines": {"N": "1"}}),
        (["--define-macro", "N="], {"defines": {"N": ""}}),
        (["--use_fast_math"], {"fastmath": True}),
        (["-use_fast_math=true"], {"nvrtc-options": ["-use_fast_math=true"]}),
        (["--fmad=false"], {"fma": False}),
        (["--fmad=true"], {"nvrtc-options": ["--fmad=true"]}),
        (["--maxrregcount=32"], {"max-registers": 32}),
        (["--maxrregcount=x"], {"nvrtc-options": ["--maxrregcount=x"]}),
        (["-std=c++20", "-w"], {"nvrtc-options": ["-std=c++20", "-w"]}),
        (["-std=c++17", "-I/usr/include", "-lineinfo", "--gpu-architecture=sm_90", "-G"], {}),
    ],
)
def test_options_of_nvrtc_become_keys(folder, options, settings):
    (item,), _ = cuda_cpp.plan([launch(options=tuple(options))], project_of(folder))
    assert item.options == settings


def test_a_kernel_has_the_facts_that_its_launches_tell(folder):
    types = ("float32[]", "bool[]", "int32", "int32", "int32")
    item = launch(AXPY, "axpy", types=types, cooperative=True, parameters=(("n", "int64"),))
    (addition,), _ = cuda_cpp.plan([item, launch(AXPY, "axpy", types=types[:4])], project_of(folder))
    assert addition.value == {"parameters": {"n": "int64", "mask": "bool[...]"}, "cooperative": True}
    assert addition.surplus == 2


@pytest.mark.parametrize(
    ("declaration", "parameters"),
    [
        ("__global__ void k(float *x, const int n)", [("float *", "x"), ("const int", "n")]),
        ("__global__ void k(float* __restrict__ x, T &y = z)", [("float*", "x"), ("T &", "y")]),
        ("__global__ void __launch_bounds__(64) k(int n)", [("int", "n")]),
        ("__global__ void k(int n /* the size */) // of x", [("int", "n")]),
        ("__global__ void k(int, float *x)", []),
        ("__global__ void k(void (*f)(int))", []),
        ("void k(int n)", []),
    ],
)
def test_parameters_are_those_of_a_usual_declaration(declaration, parameters):
    assert cuda_cpp._declared(f"{declaration} {{}}", "space::k") == parameters


def edited(folder, tables, *launches):
    """Return the kernels of the table of `pkg.own` with the kernels that are missing, and the other keys."""
    project = project_of(folder, tables)
    additions, _ = cuda_cpp.plan(launches, project)
    editor = Editor(project.text)
    cuda_cpp.add_kernels(editor, additions)
    module = dict(tomllib.loads(editor.text())["tool"]["aotcuda"]["modules"]["pkg.own"])
    return module.pop("kernels"), module


OF_FILE = {"source": "csrc/own.cu"}


@pytest.mark.parametrize(
    ("tables", "names", "kernels", "others"),
    [
        ("", ["axpy"], {"axpy": {}}, {**OF_FILE, "frontend": "cuda-cpp", "options": {"fma": False}}),
        (OWN, ["axpy"], {"axpy": {}}, OF_FILE),
        (OWN, ["k<2>", "k<1>"], {"k": {"instances": ["k<1>", "k<2>"]}}, OF_FILE),
        (f'{OWN}kernels.k.instances = ["k<1>"]', ["k<2>"], {"k": {"instances": ["k<1>", "k<2>"]}}, OF_FILE),
        (f"{OWN}kernels.k.cooperative = true", ["k<2>"], {"k": {"cooperative": True, "instances": ["k<2>"]}}, OF_FILE),
        (f"{OWN}kernels.other = {{}}", ["axpy"], {"other": {}, "axpy": {}}, OF_FILE),
    ],
)
def test_tables_get_the_missing_kernels_and_instances(folder, tables, names, kernels, others):
    launches = [launch(AXPY, name, options=("-fmad=false",)) for name in names]
    assert edited(folder, tables, *launches) == (kernels, others)


def test_new_files_have_the_text_with_a_last_line(folder):
    additions, _ = cuda_cpp.plan([launch(), launch(AXPY, "axpy")], project_of(folder))
    assert cuda_cpp.write_files(project_of(folder), additions) == ["csrc/pkg/solver.cu"]
    assert (folder / "csrc/pkg/solver.cu").read_text() == f"{OTHER}\n"
    assert (folder / "csrc/own.cu").read_text() == AXPY


def test_remaining_steps_name_the_launch_and_arguments_to_leave_out(folder):
    launches = [launch(types=("int32",)), launch(AXPY, "axpy")]
    additions, _ = cuda_cpp.plan(launches, project_of(folder))
    assert cuda_cpp.describe(additions) == [
        'tool.aotcuda.modules."pkg.own".kernels.axpy',
        'tool.aotcuda.modules."pkg.solver_cuda".kernels.other',
    ]
    step = "to do: pkg/solver.py:3: launch the kernels of pkg.solver_cuda: import pkg.solver_cuda as k, and write "
    assert cuda_cpp.remaining_steps(additions) == [f"{step}k.other[grid, block](...)"]
