"""Code of other languages in a build: it is linked and inlined, or refused by name."""

from __future__ import annotations

import functools
import re
import shutil
import struct
import sys
from typing import TYPE_CHECKING

import pytest
from cuda.pathfinder import find_nvidia_binary_utility

from aotcuda.binary import fatbin
from integration import cuda_cpp, projects
from integration.projects import MODULE, refused, write
from support import front_ends
from support.images import cuobjdump

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("front_end")

CU = 'extern "C" __device__ float twice(float x) { return 2.0f * x; }\n'
SOURCE = """
from numba import cuda
twice = cuda.declare_device("twice", "float32(float32)", abi="c")
@cuda.jit
def k(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = twice(x[i])
"""
KERNEL = 'kernels.k = "void(float32[::1])"\n'


@pytest.fixture(scope="module")
def foreign(
    front_end: str, once: Callable[[str, Callable[[Path], object]], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """Return the content of a wheel of `tests/packages/foreign`, whose binaries nvcc makes first."""
    project = projects.copy("foreign", tmp_path_factory.mktemp("foreign") / "project")
    nvcc = find_nvidia_binary_utility("nvcc") or shutil.which("nvcc")
    assert nvcc, "nvcc belongs to the extra `test`"
    command = (sys.executable, project / "make_binaries.py", nvcc)
    binaries = once("foreign-binaries", lambda folder: projects.succeed(folder, *command))
    shutil.copytree(binaries, project, dirs_exist_ok=True)
    return projects.content(projects.build_wheel(project))


def build(folder: Path, source: str = SOURCE, files: dict[str, bytes | str] | None = None, **tables: str) -> Path:
    """Return a project with more files next to the package."""
    project = write(folder / "project", source, **{"module": KERNEL, **tables})
    for name, content in (files or {}).items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return project


def sass(files: dict[str, bytes], module: str) -> str:
    (entry,) = fatbin.read(files[f"{module}.aotcuda/kernels.fatbin"], module)
    return cuobjdump(entry.content, "--dump-sass")


def kernel_code(text: str, name: str) -> str:
    return re.split(r"Function : ", text.partition(f"Function : {name}\n")[2])[0]


def test_every_linked_item_is_listed_with_the_functions_it_defines(foreign):
    linked = projects.manifest_of(foreign, "foreign.kinds")["linked"]
    assert len(linked) == 9  # an object in memory with the content of a file counts as the file
    symbols = {item["name"]: item["symbols"] for item in linked}
    assert symbols["csrc/plain.cu"] == ["plain_c", "plain_numba", "headers_c", "sum_reduce"]
    assert symbols["csrc/generated/from_ptx.ptx"] == ["from_ptx"]
    assert symbols["csrc/generated/from_cubin.cubin"] == ["from_cubin"]
    assert symbols["csrc/generated/from_fatbin.fatbin"] == ["from_fatbin"]
    assert symbols["csrc/generated/from_ltoir.ltoir"] == []  # LTOIR has no readable symbols
    assert symbols["csrc/generated/from_o.o"] == ["from_o"]
    assert symbols["csrc/generated/libfrom_a.a"] == ["from_a"]
    assert symbols["memory.cu"] == ["from_source"]
    assert symbols["late.cu"] == ["late"]


def test_functions_in_cuda_cpp_are_inlined_and_machine_code_is_called(foreign):
    text = sass(foreign, "foreign/kinds")
    code = kernel_code(text, "legacy")
    assert "EXIT" in code
    assert "CALL" not in code
    assert "CALL" in kernel_code(text, "every_file")


def test_inspect_shows_linked_functions_and_callbacks(foreign, tmp_path):
    for name, data in foreign.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    out = projects.aotcuda(tmp_path, "inspect", tmp_path / "foreign").out
    assert "plain_c  (linked function, from csrc/plain.cu)" in out
    assert "callbacks   setup foreign._hooks:upload (csrc/table.cu), teardown foreign._hooks:release" in out


def test_wheel_has_code_that_exported_functions_call(foreign):
    manifest = projects.manifest_of(foreign, "foreign.calls")
    (link,) = manifest["function_links"]
    code = """
        extern "C" __device__ float py_outer(float);
        extern "C" __global__ void probe(float *x) { *x = py_outer(*x); }
    """
    probe = cuda_cpp.compile_source(code, "LTOIR", "--gpu-architecture=compute_90", "-dlto", "-rdc=true")
    inputs = [("LTOIR", probe), ("FATBIN", foreign["foreign/calls.aotcuda/functions.fatbin"])]
    inputs.append(("FATBIN", foreign[f"foreign/calls.aotcuda/{link['path']}"]))
    linked = cuda_cpp.link(inputs, "-arch=sm_90", "-lto")
    assert "CALL" not in kernel_code(cuobjdump(linked, "--dump-sass"), "probe")


@pytest.mark.parametrize(
    "search", ["options.include-dirs", "NUMBA_CUDA_NVRTC_EXTRA_SEARCH_PATHS", "config.CUDA_NVRTC_EXTRA_SEARCH_PATHS"]
)
def test_headers_are_searched_where_the_user_says(tmp_path, search):
    headers = {"csrc/f.cu": "#include <one.h>\n" + CU, "include/one.h": "#define ONE 1\n"}
    folder = tmp_path / "project" / "include"
    source, tables, environ = SOURCE, {"module": KERNEL + 'link = ["csrc/f.cu"]'}, {}
    if search == "options.include-dirs":
        tables["aotcuda"] = 'options.include-dirs = ["include"]'
    elif search.startswith("NUMBA"):
        environ[search] = str(folder)
    else:
        source = f"from numba.cuda.core import config\n{search} = {str(folder)!r}\n" + SOURCE
    projects.build_wheel(build(tmp_path, source, headers, **tables), **environ)


def test_defines_and_options_reach_the_compiler(tmp_path):
    source = '#if WIDTH != 16 || !defined(FLAG) || __cplusplus < 202002L\n#error "not given"\n#endif\n' + CU
    options = 'options = { defines = { WIDTH = 16, FLAG = "" }, nvrtc-options = ["--std=c++20"] }'
    projects.build_wheel(build(tmp_path, files={"f.cu": source}, aotcuda=options, module=KERNEL + 'link = ["f.cu"]'))


def elf(machine: int = 62, sections: int = 0) -> bytes:
    """Return the header of an ELF object file that promises a table of sections, and nothing more."""
    return struct.pack(
        "<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 1, machine, 1, 0, 0, 64, 0, 64, 0, 0, 64, sections, 0
    )


ELF = elf()
FOR_LATER = """
#if __CUDA_ARCH__ < 900
#error "for later GPUs"
#endif
"""
TWO = """
from numba import cuda
def code(name, number):
    body = 'extern "C" __device__ float twice(float x) { return %d * x; }' % number
    return cuda.CUSource(body, name=name)
first = cuda.declare_device("twice", "float32(float32)", abi="c", link=code("first.cu", 1))
second = cuda.declare_device("twice", "float32(float32)", abi="c", link=code("second.cu", 2))
def k(x):
    x[0] = first(x[0])
def j(x):
    x[0] = second(x[0])
"""
NO_INCLUDE = '#include "gone.h"\n'
IN_NUMBA = SOURCE.replace(', abi="c"', "")

Case = tuple[str, "dict[str, bytes | str]", str, str]
"""A source, files next to the package, keys of the module's table, and the error."""

DECLARATIONS: dict[str, Case] = {
    "the other ABI": (
        IN_NUMBA,
        {"f.cu": "\n// not in the first line\n" + CU},
        'link = ["f.cu"]',
        (
            "f.cu: twice is defined as float twice(float x) (f.cu:3), and Python declares it as int twice(T *, float) "
            "(pkg/_k.py:3)"
        ),
    ),
    "a source of declare_device that later GPUs compile": (
        f"from numba import cuda\ncode = cuda.CUSource({CU + FOR_LATER!r}, name='m.cu')\n"
        + SOURCE.replace(', abi="c"', ', abi="c", link=code'),
        {},
        "",
        f"{MODULE}.kernels.k: m.cu does not compile for sm_80: ",
    ),
    "definitions that two kernels bring": (
        TWO,
        {},
        'kernels.j = "void(float32[::1])"',
        (
            f"pkg.k: twice is defined twice, in first.cu (for {MODULE}.kernels.k) and in second.cu (for "
            f"{MODULE}.kernels.j); these are linked into one image, so rename one of the two, or make the kernels "
            "that use them two modules"
        ),
    ),
    "a lambda as callback": (
        SOURCE.replace(', abi="c"', ", abi=\"c\", link=cuda.CUSource('', name='m.cu', setup_callback=lambda code: 0)"),
        {},
        "",
        "the setup callback <lambda> of pkg._k cannot be packaged",
    ),
    "a symbol that nothing defines": (
        SOURCE,
        {"f.cu": CU.replace("twice", "twyce")},
        'link = ["f.cu"]',
        f"pkg.k: nothing defines twice, which {MODULE}.kernels.k calls (searched: f.cu; the nearest names are twyce)",
    ),
    "a parameter of another kind": (
        SOURCE,
        {"f.cu": CU.replace("float x", "int x")},
        'link = ["f.cu"]',
        (
            "f.cu: twice is defined as float twice(int x) (f.cu:1), and Python declares it as float twice(float) "
            "(pkg/_k.py:3); make the two agree"
        ),
    ),
}
"""Cases that depend on how a front end names and declares functions, or finds their link items."""

LINK_ITEMS: dict[str, Case] = {
    "a definition of the kernel's own name": (
        SOURCE,
        {"f.cu": CU + 'extern "C" __global__ void k(float *x) { *x = 1; }'},
        'link = ["f.cu"]',
        "pkg.k: k is defined twice, in the module's own kernels and functions and in f.cu",
    ),
    "another number of parameters": (
        SOURCE,
        {"f.cu": CU.replace("float x", "float x, float y")},
        'link = ["f.cu"]',
        (
            "f.cu: twice is defined as float twice(float x, float y) (f.cu:1), and Python declares it as float "
            "twice(float) (pkg/_k.py:3)"
        ),
    ),
    "a function in C++ that nothing defines": (
        SOURCE,
        {"f.cu": "extern __device__ float give(float);\n" + CU.replace("{", "{ x = give(x);", 1)},
        'link = ["f.cu"]',
        "pkg.k: linking for sm_80 failed: nothing defines give (_Z4givef), which the code uses; link the file that ",
    ),
    "LTOIR that is none": (
        SOURCE,
        {"f.ltoir": b"hello"},
        'link = ["f.ltoir"]',
        "pkg.k: linking for sm_80 failed: f.ltoir is no LTOIR; make it by nvcc -rdc=true -dlto -ltoir",
    ),
    "a header that is not there, of a source outside the project": (
        SOURCE,
        {"../f.cu": NO_INCLUDE + CU},
        'link = ["../f.cu"]',
        f'{MODULE}.link[0]: f.cu does not compile for sm_80: cannot open source file "gone.h"',
    ),
    "a source that later GPUs compile": (
        SOURCE,
        {"f.cu": CU + FOR_LATER},
        'link = ["f.cu"]',
        (
            f'{MODULE}.link[0]: f.cu does not compile for sm_80: #error directive: "for later GPUs" (f.cu:4); it '
            "compiles for sm_90: list that and later ones in arch, or leave the code out for older GPUs by "
            "#if __CUDA_ARCH__ >= 900"
        ),
    ),
    **{
        f"an object that {name}": (SOURCE, {"f.o": data}, 'link = ["f.o"]', f"{MODULE}.link[0]: f.o {problem}")
        for name, data, problem in [
            ("is text", b"hello", "is no object file: it begins with b'hell', not with an ELF header; "),
            ("is cut behind it", elf(sections=3), "is cut short: it has 64 bytes of 256; make it anew by nvcc -dc"),
            ("is for another machine", elf(machine=243), "is for a machine (243) that CUDA does not support; "),
            ("is for the host alone", ELF, "holds no device code that could be linked; compile its source by nvcc -dc"),
            (
                "has broken device code",
                ELF + b"\x50\xed\x55\xba" + bytes(40),
                "is damaged: its device code at byte 64 ",
            ),
        ]
    },
    "an archive with a broken size": (
        SOURCE,
        {"f.a": b"!<arch>\n" + b"m.o/".ljust(48) + b"x".ljust(10) + b"`\n" + ELF},
        'link = ["f.a"]',
        f"{MODULE}.link[0]: f.a is damaged: the size of its member 'm.o' is no number",
    ),
    "a file that is not there": (
        SOURCE,
        {},
        'link = ["f.cu"]',
        f"{MODULE}.link[0]:",
    ),
    "a binary that is none": (SOURCE, {"f.cubin": "hello"}, 'link = ["f.cubin"]', "f.cubin is not a cubin"),
    "a callback that is not there": (
        SOURCE,
        {"f.cu": CU},
        'link = [{ path = "f.cu", setup = "pkg._k:nothing" }]',
        f"{MODULE}.link[0].setup: pkg._k has no nothing",
    ),
}


TABLES = {"declared": DECLARATIONS, "linked": LINK_ITEMS}


def numbered(text: str, number: int) -> str:
    """Return a text with the case's number in the names of module and files."""
    text = re.sub(r"\bpkg([./])(_?)k\b", rf"pkg\1\2k{number}", text)
    return re.sub(r"\b([fg])\.(?=(cu|o|a|cubin)\b)", rf"\g<1>{number}.", text)


def project_of(folder: Path, cases: dict[int, Case]) -> Path:
    """Return a project with a module for each case."""
    project = write(folder, "")
    config = project / "pyproject.toml"
    text = config.read_text().partition(f"[{MODULE}]")[0]
    for number, (source, files, link, _) in cases.items():
        (project / "pkg" / f"_k{number}.py").write_text(projects.source(numbered(source, number)))
        text += numbered(f'[{MODULE}]\nsource = "pkg._k"\n{KERNEL}{link}\n', number)
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (project / numbered(name, number)).write_bytes(data)
    config.write_text(text)
    return project


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[str, list[str]]]:
    """Return a function that returns the errors of a table's cases, which are the modules of one project.

    If a module cannot be compiled, no module is linked, so the other modules are built again without it.
    """

    @functools.cache
    def errors(table: str, front_end: str) -> dict[str, list[str]]:
        names, errors_by_case = [*TABLES[table]], {}
        while cases := {number: TABLES[table][name] for number, name in enumerate(names) if name not in errors_by_case}:
            done = refused(project_of(tmp_path_factory.mktemp(front_end) / "project", cases))
            lines = [line.removeprefix("aotcuda: ") for line in done.err.splitlines() if line and not line[0].isspace()]
            errors_of_build = {
                names[number]: [line for line in lines if re.search(rf"pkg[./]_?k{number}\b|\b[fg]{number}\.", line)]
                for number in cases
            }
            assert any(errors_of_build.values()), done.err
            errors_by_case |= {name: lines for name, lines in errors_of_build.items() if lines}
        return errors_by_case

    return errors


def check_refusal(refusals: Callable[[str, str], dict[str, list[str]]], table: str, name: str) -> None:
    expected = numbered(TABLES[table][name][-1], [*TABLES[table]].index(name))
    (line,) = refusals(table, projects.FrontEnd.name)[name]
    assert expected in line


@front_ends.EACH
@pytest.mark.parametrize("case", DECLARATIONS, ids=[name.replace(" ", "_") for name in DECLARATIONS])
def test_wrong_declaration_is_refused_by_name(refusals, case):
    check_refusal(refusals, "declared", case)


@pytest.mark.parametrize("case", LINK_ITEMS, ids=[name.replace(" ", "_") for name in LINK_ITEMS])
def test_invalid_link_item_is_refused_by_name(refusals, case):
    check_refusal(refusals, "linked", case)


WITH_CALLBACKS = """
from numba import cuda
def up(code): pass
def down(code): pass
code = cuda.CUSource(
    'extern "C" __device__ float twice(float x) { return 2.0f * x; }',
    name="memory.cu", setup_callback=up, teardown_callback=down,
)
twice = cuda.declare_device("twice", "float32(float32)", abi="c", link=code)
again = cuda.declare_device("twice", "float32(float32)", abi="c", link=[code])
@cuda.jit
def k(x):
    x[0] = twice(x[0]) + again(x[1])
"""


def test_callbacks_of_memory_objects_are_recorded_once(tmp_path):
    files = projects.content(projects.build_wheel(build(tmp_path, WITH_CALLBACKS)))
    callbacks = {"setup": "pkg._k:up", "teardown": "pkg._k:down", "origin": "memory.cu"}
    assert projects.manifest_of(files, "pkg.k")["callbacks"] == [callbacks]


def test_prototype_may_differ_in_sign_and_const(tmp_path):
    source = SOURCE.replace("float32(float32)", "float32(CPointer(float32), int32, boolean)").replace(
        "twice(x[i])", "twice(ffi.from_buffer(x), i, i > 2)"
    )
    code = 'extern "C" __device__ float twice(const float *x, unsigned i, bool b) { return b ? x[i] : 0; }\n'
    project = build(
        tmp_path,
        "import cffi\nffi = cffi.FFI()\n" + source,
        {"f.cu": code},
        module=KERNEL + 'link = ["f.cu"]',
    )
    projects.build_wheel(project)


RETURNS_NOTHING = """
from numba import cuda
code = cuda.CUSource('extern "C" __device__ void put(float *p, float x) { *p = 7.0f * x; }', name="put.cu")
put = cuda.declare_device("put", "void(CPointer(float32), float32)", abi="c", link=code)
def k(p, x):
    nothing = put(p, x)
    if nothing is None:
        put(p, x + 1)
def c_put(p, x):
    put(p, x)
"""


@pytest.mark.front_end(front_ends.NUMBA)  # the other compiler has no variable that holds nothing
def test_a_function_that_returns_nothing_is_declared_and_linked(tmp_path):
    types = '"void(CPointer(float32), float32)"'
    tables = f"kernels.k = {types}\nfunctions.c_put = {types}"
    files = projects.content(projects.build_wheel(build(tmp_path, RETURNS_NOTHING, module=tables)))
    code = kernel_code(sass(files, "pkg/k"), "k")
    assert "7" in "".join(re.findall(r"FMUL \S+, \S+, (\S+) ;", code)), code
    assert "CALL" not in code
    (function,) = projects.manifest_of(files, "pkg.k")["functions"]
    assert function["prototype"] == "void c_put(float *p, float x);"


def cubin(arch: str) -> bytes:
    return cuda_cpp.compile_source(CU, "CUBIN", f"--gpu-architecture={arch}", "-rdc=true")


@pytest.mark.parametrize(
    ("arch", "target", "error"),
    [
        ("sm_90", "sm_80", "f.cubin holds code for sm_90, which cannot be linked for sm_80"),
        ("sm_80", "compute_80", "compute_80 cannot be built, because f.cubin (cubin) is linked"),
        ("sm_80", "sm_86", None),
    ],
)
def test_a_cubin_is_linked_for_the_same_major_version(tmp_path, arch, target, error):
    tables = {"module": KERNEL + 'link = ["f.cubin"]', "aotcuda": f'arch = ["{target}"]'}
    project = build(tmp_path, files={"f.cubin": cubin(arch)}, **tables)
    if error is None:
        projects.build_wheel(project)
    else:
        assert error in refused(project).message


def test_ltoir_newer_than_the_linker_is_named(tmp_path):
    code = cuda_cpp.compile_source(CU, "LTOIR", "--gpu-architecture=compute_80", "-dlto", "-rdc=true")
    newer = code[:6] + b"\x63" + code[7:]  # the version of the format
    done = refused(build(tmp_path, files={"f.ltoir": newer}, module=KERNEL + 'link = ["f.ltoir"]'))
    assert re.search(r"newer.*f\.ltoir", done.message)


def test_equal_files_use_their_own_headers(tmp_path: Path) -> None:
    source = SOURCE.replace("twice = ", 'half = cuda.declare_device("half", "float32(float32)", abi="c")\ntwice = ')
    function = 'extern "C" __device__ float {}(float x) {{ return x * {}; }}\n'
    files: dict[str, bytes | str] = {
        "a/f.cu": '#include "f.h"\n',
        "b/f.cu": '#include "f.h"\n',
        "a/f.h": function.format("twice", "2.0f"),
        "b/f.h": function.format("half", "0.5f"),
    }
    module = 'link = [{ path = "a/f.cu" }, { path = "b/f.cu" }]\n' + KERNEL
    project = build(tmp_path, source.replace("twice(x[i])", "twice(x[i]) + half(x[i])"), files, module=module)
    code = kernel_code(sass(projects.content(projects.build_wheel(project)), "pkg/k"), "k")
    assert re.search(r"FMUL R\d+, R\d+, 0.5 ;", code)
