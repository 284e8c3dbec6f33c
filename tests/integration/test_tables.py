"""Test tables for existing packages: kernels behind decorators and objects, in several modules, with signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from integration import projects
from integration.projects import MODULE, refused, source, write
from support import front_ends

if TYPE_CHECKING:
    from pathlib import Path

WRAPPED = """
import functools
from numba import cuda

def keeping_py_func(f):
    class Holder:
        def __init__(self):
            self.py_func = f
            self.times = 0
        def __call__(self, *args):
            return None
    return Holder()

def keeping_python_func(f):
    holder = keeping_py_func(f)
    holder.python_func = holder.__dict__.pop("py_func")
    return holder

def keeping_wrapped(f):
    @functools.wraps(f)
    def launch(*args):
        return None
    return launch

def launching(f):
    kernel = cuda.jit(fastmath=True)(f)
    @functools.wraps(f)
    def launch(x, y):
        kernel[1, 1](x, y)
    return launch

def in_a_closure(f):
    kernel = cuda.jit(f)
    def launch(*args):
        kernel[1, 1](*args)
    return launch

class Slotted:
    __slots__ = ("_kernel",)
    def __init__(self, f):
        self._kernel = cuda.jit(f)
    def __call__(self, x, y):
        self._kernel[1, 1](x, y)

def twice(f):
    helper = cuda.jit(device=True)(f)
    @functools.wraps(f)
    def both(x, y):
        helper(x, y)
        helper(x, y)
    return both

def add(x, y):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += y[i]

class Solver:
    step = staticmethod(add)
    kernel = cuda.jit(add)
    def __init__(self):
        self.inner = Solver.kernel

class Push:
    kernel = Solver()

push = Push()
"""
NAMES = ("keeping_py_func", "keeping_python_func", "keeping_wrapped", "launching", "in_a_closure", "Slotted", "twice")
PATHS = {"static": "Solver.step", "held": "pkg._k:Solver.kernel", "deep": "push.kernel.inner"}


@front_ends.EACH
def test_kernels_behind_decorators_and_objects_are_built(front_end: str, tmp_path: Path) -> None:
    text = WRAPPED + "".join(f"\nk_{name} = {name}(add)" for name in NAMES)
    tables = [f'kernels.k_{name} = "void(float32[::1], float32[::1])"' for name in NAMES]
    tables += [
        f'kernels.{name} = {{ python = "{path}", signature = "void(float32[::1], float32[::1])" }}'
        for name, path in PATHS.items()
    ]
    project = write(tmp_path / "project", source(text), module="\n".join(tables))
    files = projects.content(projects.build_wheel(project))
    kernels = {item["name"]: item for item in projects.manifest_of(files, "pkg.k")["kernels"]}
    assert set(kernels) == {*(f"k_{name}" for name in NAMES), *PATHS}
    assert kernels["deep"]["origin"] == "pkg._k:push.kernel.inner"
    # All kernels are one function, so their registers are equal, except for two kernels that call it.
    registers = {name: item["overloads"][0]["resources"]["sm_80"]["registers"] for name, item in kernels.items()}
    assert len({registers[name] for name in registers if name not in ("k_twice", "k_launching")}) == 1
    code = {item["overloads"][0]["symbol"] for item in kernels.values()}
    assert code == set(kernels)


AMBIGUOUS = (
    WRAPPED
    + """
class Several:
    def __init__(self):
        self.forward = cuda.jit(add)
        self.backward = cuda.jit(lambda x, y: None)

several = Several()
bound = functools.partial(add, 1)
"""
)


WRONG_PATHS = {
    "several": "pkg._k.several holds several kernels: forward (pkg/_k.py:",
    "several.forwards": "pkg._k.several has no attribute forwards; did you mean forward?",
    "sevral": "pkg._k has no function sevral; did you mean Several?",
    "bound": "pkg._k.bound is of type partial, and no function; name a Python function, plain or decorated with ",
}


def test_wrong_python_path_is_refused(front_end: str, tmp_path: Path) -> None:
    kernels = [
        f'kernels.k{number} = {{ python = "{path}", signature = "void(float32[::1], float32[::1])" }}'
        for number, path in enumerate(WRONG_PATHS)
    ]
    project = write(tmp_path / "project", source(AMBIGUOUS), module="\n".join(kernels))
    for number, (line, message) in enumerate(
        zip(projects.lines_of(refused(project).err), WRONG_PATHS.values(), strict=True)
    ):
        assert line.startswith(f"{MODULE}.kernels.k{number}: {message}")


DECLARED = """
import numpy as np
from numba import cuda

particle = np.dtype([("mass", np.float32), ("id", np.int32)], align=True)

@cuda.jit("void(float32[::1])")
def one(x):
    x[0] = 1

@cuda.jit(["void(float32[::1])", "(float64[::1],)", "void(float32[::1])"])
def several(x):
    x[0] = 1

@cuda.jit("float32(float32, int32)", device=True)
def helper(x, n):
    return x * n

@cuda.jit(["float32(float32)", "float64(float64)"], device=True)
def wide(x):
    return x

@cuda.jit
def open_(x):
    x[0] = 1
"""


def test_table_without_signatures_uses_the_decorators(front_end: str, tmp_path: Path) -> None:
    tables = 'kernels.one = {}\nkernels.several = { launch-bounds = 64 }\nkernels.open_ = "void(int32[::1])"\n'
    tables += "functions.helper = {}\n"
    project = write(tmp_path / "project", source(DECLARED), module=tables)
    manifest = projects.manifest_of(projects.content(projects.build_wheel(project)), "pkg.k")
    overloads = {
        item["name"]: [(overload["symbol"], overload["signature"]) for overload in item["overloads"]]
        for item in manifest["kernels"]
    }
    assert overloads == {
        "one": [("one", "void(float32[::1])")],
        "several": [("several__0", "void(float32[::1])"), ("several__1", "void(float64[::1])")],
        "open_": [("open_", "void(int32[::1])")],
    }
    assert manifest["functions"][0]["prototype"] == "float helper(float x, int n);"


def test_function_without_signature_is_refused(front_end: str, tmp_path: Path) -> None:
    project = write(tmp_path / "project", source(DECLARED), module="kernels.open_ = {}\nfunctions.wide = {}\n")
    kernel, function = projects.lines_of(refused(project).err)
    assert kernel.startswith(f"{MODULE}.kernels.open_: there is no signature, neither here nor in a @cuda.jit(...) of ")
    assert kernel.endswith("with its types, or let aotcuda record find them in a run")
    assert function.startswith(f"{MODULE}.functions.wide: wide (pkg/_k.py:")
    assert function.endswith(
        'has 2 signatures, and a C name belongs to one function; choose one: signature = "float32(float32)"'
    )


TYPES = """
types = { C2 = "complex64[:, ::1]", V = "R[::1]", R = "float32", P = "pkg._other:particle", S = "xoroshiro128p_type" }
"""


def test_type_names_of_the_table_work_in_signatures(front_end: str, tmp_path: Path) -> None:
    text = source(
        "from numba import cuda\n\ndef f(*x):\n    pass\n\ndef k(z, v, p, s):\n    v[0] = p[0].mass + z[0, 0].real\n"
    )
    text += "def g(x):\n    return x\n"
    tables = 'kernels.k = "void(C2, V, P[::1], S[::1])"\nfunctions.g = "R(R)"\n'
    project = write(tmp_path / "project", text, aotcuda=TYPES, module=tables)
    (project / "pkg" / "_other.py").write_text(
        "import numpy as np\nparticle = np.dtype([('mass', np.float32), ('id', np.int32)], align=True)\n"
    )
    built = projects.manifest_of(projects.content(projects.build_wheel(project)), "pkg.k")
    parameters = built["kernels"][0]["overloads"][0]["parameters"]
    assert [item["kind"] for item in parameters] == ["array"] * 4
    assert parameters[0]["type"] == "complex64[:, ::1]"
    assert "mass" in str(parameters[2]["dtype"])
    assert built["functions"][0]["prototype"] == "float g(float x);"
    assert built["rebuild"]["table"]["types"]["R"] == "float32"
    assert "pkg/_other.py" in [item["path"] for item in built["sources"]]


UNKNOWN_TYPES = {
    "void(fields)": "'fields' is not a Numba type; did you mean field?",
    "void(flaot32)": "'flaot32' is not a Numba type; did you mean float32?",
    "void(float32)": "tool.aotcuda.types.float32: Numba has a type of this name; choose another one",
    "void(A)": "tool.aotcuda.types.A, 'flaot32[:]': 'flaot32' is not a Numba type; did you mean float32?",
    "void(B)": "tool.aotcuda.types.B, 'pkg._k:nothing': module 'pkg._k' has no attribute 'nothing'; "
    'write "package.module:name" of a NumPy dtype or a Numba type',
    "void(C)": "tool.aotcuda.types.C: '3' is not a type but int; write one, as in float32[::1]",
}


def test_unknown_type_name_is_refused(front_end: str, tmp_path: Path) -> None:
    types = (
        'types = { field = "complex128[:, ::1]", float32 = "float64", A = "flaot32[:]", B = "pkg._k:nothing", C = "3" }'
    )
    kernels = [
        f'kernels.k{number} = {{ python = "f", signature = "{text}" }}' for number, text in enumerate(UNKNOWN_TYPES)
    ]
    text = "def f(x):\n    x[0] = 1\n"
    project = write(tmp_path / "project", text, aotcuda=types, module="\n".join(kernels))
    lines = projects.lines_of(refused(project).err)
    for number, (line, (signature, message)) in enumerate(zip(lines, UNKNOWN_TYPES.items(), strict=True)):
        start = f"{MODULE}.kernels.k{number}.signature: '{signature}' is not a signature in Numba's notation: "
        assert line == start + message


def several(folder: Path, tables: str) -> Path:
    """Return a project whose module has two sources."""
    project = write(
        folder, source("from numba import cuda\n@cuda.jit\ndef f(x):\n    x[0] = 1\ndef same(x):\n    x[0] = 1\n")
    )
    text = (project / "pyproject.toml").read_text()
    text = text.replace('source = "pkg._k"\n', 'source = ["pkg._k", "pkg._other"]\n' + tables)
    (project / "pyproject.toml").write_text(text)
    other = "from numba import cuda\nfrom pkg._k import f\ndef g(x):\n    x[0] = 2\ndef same(x):\n    x[0] = 2\n"
    (project / "pkg" / "_other.py").write_text(source(other))
    return project


def test_a_module_has_kernels_of_several_sources(front_end: str, tmp_path: Path) -> None:
    tables = 'kernels.f = "void(float32[::1])"\nkernels.g = "void(float32[::1])"\n'
    tables += 'kernels.same = { python = "pkg._other:same", signature = "void(float32[::1])" }\n'
    project = several(tmp_path / "project", tables)
    built = projects.manifest_of(projects.content(projects.build_wheel(project)), "pkg.k")
    origins = {item["name"]: item["origin"] for item in built["kernels"]}
    assert origins == {"f": "pkg._k:f", "g": "pkg._other:g", "same": "pkg._other:same"}


def test_ambiguous_name_of_two_sources_is_refused(front_end: str, tmp_path: Path) -> None:
    tables = 'kernels.same = "void(float32[::1])"\nkernels.h = "void(float32[::1])"\n'
    both, missing = projects.lines_of(refused(several(tmp_path / "project", tables)).err)
    assert both == (
        f'{MODULE}.kernels.same: pkg._k and pkg._other each have same; choose one with python = "pkg._k:same"'
    )
    assert missing.startswith(f"{MODULE}.kernels.h: pkg._k and pkg._other has no function h; it has f, ")
