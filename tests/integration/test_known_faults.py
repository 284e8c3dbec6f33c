"""Check that a build warns of code that numba-cuda-mlir is known to compile wrongly, or refuses it."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest

from aotcuda.builder.frontends.numba_cuda_mlir.fault_table import FAULTS
from integration import projects
from integration.projects import MODULE, refused, write
from support.conformance.cases import CASES
from support.front_ends import MLIR, installed

pytestmark = [
    pytest.mark.skipif(not installed(), reason="numba-cuda-mlir is not installed (extra mlir-cu13)"),
    pytest.mark.front_end(MLIR),
]

RELEASE = version(MLIR) if installed() else ""
HEAD = (
    "import math\n\nimport numpy as np\nfrom numba import cuda\n\nloose = np.dtype([('flag', 'u1'), ('x', 'f8')])\n\n"
)

# By the fault: a statement of a kernel of `PARAMETERS`, and how the build words it.
FAULTY = {
    "unsigned-index": ("x[u8[i]] = 1", "an index of type uint8 is read as a signed number"),
    "atomic-index": ("cuda.atomic.add(x, (u8[i],), 1)", "an atomic operation reads an index of type uint8"),
    "negative-atomic-index": ("cuda.atomic.add(x, -1, 1)", "an atomic operation with the index -1 writes before"),
    "atomic-value": ("cuda.atomic.sub(out, i, x[i])", "extends a value of type int32 to int64"),
    "atomic-extreme": ("cuda.atomic.max(u32, i, 5)", "compares elements of type uint32 as signed numbers"),
    "slice-bound": ("out[0] = x[1:-1].shape[0]", "a slice treats the negative bound -1 as an offset"),
    "slice-step": ("out[0] = x[n::-1].shape[0]", "a slice with the step -1 has a wrong size"),
    "unsigned-range": ("for k in range(u8[i]): out[k] = 1", "range() reads an argument of type uint8"),
    "unsigned-extreme": ("out[i] = max(u32[i], 5)", "compare a number of type uint32 as a signed one"),
    "unsigned-negation": ("out[i] = -u8[i]", "the negated or inverted number of type uint8"),
    "mixed-bits": ("out[i] = x[i] ^ u32[i]", "&, | and ^ of int32 and uint32"),
    "integer-power": ("out[i] = x[i] ** 3", "a power of int32 is computed in the bits of that type"),
    "round": ("out[i] = round(f[i])", "round() of float64 rounds halves away from zero"),
    "integer-math": ("f[i] = math.sqrt(u32[i])", "math.sqrt of uint32 is computed in float32"),
    "nan-unequal": ("out[i] = 1 if f[i] != f[n] else 0", "!= of float64 is False where one of the numbers is NaN"),
    "nan-not": ("out[i] = not f[i]", "not of float64 is True for NaN"),
    "unsigned-compare": ("out[i] = 1 if u64[i] < f[i] else 0", "a comparison of uint64 and float64"),
    "unaligned-field": ("f[0] = r[i].x", "the field x of a record is not aligned"),
}
CORRECT = (
    *("x[n] = 1", "x[u64[i]] = 1", "x[cuda.int64(u8[i])] = 1", "x[-1] = 1", "out[i] = u8[i] + u8[n]"),
    *("cuda.atomic.add(x, n, -1)", "cuda.atomic.add(out, i, out[n])", "cuda.atomic.max(x, i, 5)"),
    *("cuda.atomic.add(f, i, 1)", "cuda.atomic.add(u32, i, u32[n])", "cuda.atomic.add(x, i, out[n])"),
    *("out[0] = x[1:3].shape[0]", "out[0] = x[n:].shape[0]", "x[:3] = 4", "out[0] = x[::1].shape[0]"),
    *("for k in range(n): out[k] = 1", "for k in range(u64[i]): out[k] = 1", "out[i] = max(x[i], 5)"),
    *("f[i] = max(f[i], 5.0)", "out[i] = -x[i]", "out[i] = x[i] ^ out[i]", "out[i] = u8[i] & x[i]"),
    *("out[i] = u32[i] & u32[n]", "out[i] = cuda.int64(x[i]) ** 3", "f[i] = f[i] ** 3", "f[i] = round(f[i], 1)"),
    *("out[i] = math.floor(f[i])", "f[i] = math.sqrt(f[n])", "f[i] = math.sqrt(cuda.float64(u32[i]))"),
    *("f[i] = math.fabs(x[i])", "out[i] = 1 if f[i] == f[n] else 0", "out[i] = 1 if x[i] != n else 0"),
    *("out[i] = not x[i]", "out[i] = 1 if u32[i] < f[i] else 0", "out[i] = r[i].flag"),
)
PARAMETERS = {
    "x": "int32[::1]",
    "u8": "uint8[::1]",
    "u32": "uint32[::1]",
    "u64": "uint64[::1]",
    "f": "float64[::1]",
    "r": "loose[::1]",
    "n": "int32",
    "out": "int64[::1]",
}
SIGNATURE = f"void({', '.join(PARAMETERS.values())})"


def kernels() -> dict[str, str]:
    """Return the statement of each kernel, by its name."""
    return {kernel_of(name): FAULTY[name][0] for name in present()} | {"correct": "\n    ".join(CORRECT)}


def kernel_of(fault: str) -> str:
    return f"faulty_{fault.replace('-', '_')}"


def present() -> list[str]:
    return [name for name, fault in FAULTS.items() if RELEASE in fault.releases]


def source(statements: dict[str, str]) -> str:
    parts = [
        f"def {name}({', '.join(PARAMETERS)}):\n    i = cuda.grid(1)\n    {statement}\n"
        for name, statement in statements.items()
    ]
    return projects.source(HEAD + "\n".join(parts))


def table(statements: dict[str, str]) -> str:
    return "\n".join(f'kernels.{name} = "{SIGNATURE}"' for name in statements)


def warnings(lines: str) -> dict[str, str]:
    """Return the warning of each kernel."""
    found = re.findall(rf"{re.escape(MODULE)}\.kernels\.(\w+): (.*is known to compile this wrongly.*)", lines)
    assert len(found) == len(dict(found)), "a kernel is named twice"
    return dict(found)


def check(found: dict[str, str], names: list[str]) -> None:
    assert found.keys() == set(map(kernel_of, names))
    for name in names:
        text = found[kernel_of(name)]
        assert FAULTY[name][1] in text
        assert FAULTS[name].remedy in text
        assert re.search(r"\(pkg/_k\.py:\d+\)", text), text
        assert text.startswith(f"numba-cuda-mlir {RELEASE} is known")
        assert text.endswith("; docs/frontends.md#known-faults has the table")


def test_each_known_fault_is_warned_of_once(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("warned") / "project"
    project = write(folder, source(kernels()), module=table(kernels()), aotcuda='arch = ["compute_80"]')
    done = projects.back_end(project)
    check(warnings(done.err), present())
    assert str(folder) not in done.err


def test_known_faults_are_refused_by_the_key(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("refused") / "project"
    names = present()[:2]
    some = {kernel_of(name): kernels()[kernel_of(name)] for name in names}
    project = write(folder, source(some), module=table(some), aotcuda='known-faults = "error"')
    check(warnings(refused(project).err), names)


def test_faults_of_helpers_and_functions_are_found(front_end: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = """
from numba import cuda


@cuda.jit(device=True)
def cubed(x):
    return x**3


def through(x):
    x[0] = cubed(x[1])


def exported(x):
    return cubed(x)
"""
    folder = tmp_path_factory.mktemp("helpers") / "project"
    module = 'kernels.through = "void(int32[::1])"\nfunctions.exported = "int64(int32)"'
    err = refused(write(folder, projects.source(text), module=module, aotcuda='known-faults = "error"')).err
    assert f"{MODULE}.kernels.through: " in err
    assert f"{MODULE}.functions.exported: " in err
    assert err.count("a power of int32 is computed in the bits of that type (pkg/_k.py:7)") == 2


def test_the_table_has_a_case_of_the_suite_for_each_fault() -> None:
    for name, fault in FAULTS.items():
        assert name in FAULTY
        assert fault.cases
        assert all(case in CASES for case in fault.cases), name


def test_the_page_shows_the_table() -> None:
    page = (projects.CHECKOUT / "docs" / "frontends.md").read_text()
    assert all(f"| `{name}` |" in page for name in FAULTS)
