"""Test that each mistake in `[tool.aotcuda]` is named: the key as written, the fact, the remedy.

The mistakes lie in tests/data/errors/config.txt.
"""

from __future__ import annotations

import tomllib

import pytest

from aotcuda import registry
from aotcuda.builder.config.parser import parse
from aotcuda.errors import ConfigError
from support.errors import assert_message, cases

K = 'kernels = { axpy = "void(float32[:])" }'
ARCH = 'arch = ["sm_90"]'


def message(text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(tomllib.loads(text), environ=environ)
    return str(caught.value)


def assert_refused(text: str, expected: str) -> None:
    assert_message(message(text), expected)


def top(text: str) -> str:
    """Return a configuration in which only the top-level keys in `text` are in doubt."""
    given = tomllib.loads(text)
    rest = {"arch": '["sm_90"]', "modules": f'{{ "pkg.k" = {{ source = "pkg._k", {K} }} }}'}
    return text + "".join(f"\n{key} = {value}" for key, value in rest.items() if key not in given)


def module(text: str) -> str:
    """Return the same for keys of one module."""
    given = tomllib.loads(text)
    rest = {"source": 'source = "pkg._k"', "kernels": K}
    return "\n".join([ARCH, '[modules."pkg.k"]', text, *(line for key, line in rest.items() if key not in given)])


<<<<<<< HEAD
@cases(
    r"""
frontnd = 1
    tool.aotcuda.frontnd: unknown key; did you mean frontend?

host_abi = true
    tool.aotcuda.host_abi: unknown key; did you mean host-abi?

"two words" = 1
    tool.aotcuda."two words": unknown key; the keys here are arch, frontend, load, fallback, known-faults, incomplete,
    runtime, prelude, types, watch, watch-env, host-abi, options, modules

prelude = "pkg/_p.py"
    tool.aotcuda.prelude: "pkg/_p.py" cannot be imported, because "pkg/_p" is not a Python identifier; give ...

prelude = "pkg.k"
    tool.aotcuda.prelude: "pkg.k" is the module of tool.aotcuda.modules."pkg.k", which the build writes; name another
    module

types = ["float32"]
    tool.aotcuda.types: expected a table of types, found a list; write for example types = { C2 = "complex128[:, ::1]" }

types = { a-b = "float32" }
    tool.aotcuda.types.a-b: expected an identifier (ASCII letters, digits, underscores) as the key, found the string
    "a-b"; choose another name

types = { C2 = "complex128[:, ::1" }
    tool.aotcuda.types.C2: "complex128[:, ::1" has a '[' that is never closed; correct the brackets

types = { A = "Tuple((int32, B))", B = "UniTuple(C, 2)", C = "A[:]" }
    tool.aotcuda.types.A: it is made of itself (A -> B -> C -> A); define one of them by another type

types = { A = "B[::1]", B = "float32[:A]" }
    tool.aotcuda.types.A: it is made of itself (A -> B -> A); define one of them by another type

options = { fast-math = true }
    tool.aotcuda.options.fast-math: unknown key; did you mean fastmath?

options = { OPT_LEVEL = 1 }
    tool.aotcuda.options.OPT_LEVEL: unknown key; did you mean opt-level?

frontend = "numba"
    tool.aotcuda.frontend: expected "numba-cuda" or "numba-cuda-mlir" or "triton" or "cuda-cpp" or "cutile", found the
    string "numba"; did you mean "numba-cuda"?

load = "lazy"
    tool.aotcuda.load: expected "import" or "first-use", found the string "lazy"; write for example load =
    "first-use"

fallback = false
    tool.aotcuda.fallback: expected "jit" or "error", found the boolean false; write for example fallback = "error"

known-faults = "ignore"
    tool.aotcuda.known-faults: expected "warn" or "error", found the string "ignore"; write for example known-faults =
    "error"

host-abi = "yes"
    tool.aotcuda.host-abi: expected true or false, found the string "yes"; write for example host-abi = true

options = 3
    tool.aotcuda.options: expected a table of options, found the integer 3; write for example options = { fastmath =
    true }

options.fastmath = 1
    tool.aotcuda.options.fastmath: expected true or false, found the integer 1; write for example fastmath = true

options.opt-level = 4
    tool.aotcuda.options.opt-level: expected an integer from 0 to 3, found the integer 4; write for example
    opt-level = 2

options.opt-level = true
    tool.aotcuda.options.opt-level: expected an integer from 0 to 3, found the boolean true; write for example
    opt-level = 2

options.opt-level = 3.0
    tool.aotcuda.options.opt-level: expected an integer from 0 to 3, found the float 3.0; write for example
    opt-level = 2

options.max-registers = 256
    tool.aotcuda.options.max-registers: expected an integer from 0 to 255, found the integer 256; write for example
    max-registers = 64

options.max-registers = -1
    tool.aotcuda.options.max-registers: expected an integer from 0 to 255, found the integer -1; write for example
    max-registers = 64

options.include-dirs = "inc"
    tool.aotcuda.options.include-dirs: expected a list of strings that are not empty, found the string "inc"; write
    for example include-dirs = ["csrc/include"]

options.include-dirs = ["a", ""]
    tool.aotcuda.options.include-dirs[1]: expected a string that is not empty, found the string ""; write for
    example include-dirs = ["csrc/include"]

options.fma = "no"
    tool.aotcuda.options.fma: expected true or false, found the string "no"; write for example fma = false

options.nvrtc-options = [1]
    tool.aotcuda.options.nvrtc-options[0]: expected a string that is not empty, found the integer 1; write for
    example nvrtc-options = ["--std=c++17"]

options.nvrtc-options = ["-w", "-arch=sm_80"]
    tool.aotcuda.options.nvrtc-options[1]: "-arch=sm_80" is set by a key of its own; list the targets in arch

options.defines = ['A=1']
    tool.aotcuda.options.defines: expected a table of macros, found a list; write for example defines = { TILE =
    "16" }

options.defines = { A = 1.5 }
    tool.aotcuda.options.defines.A: expected a string, an integer or a boolean, found the float 1.5; write for
    example defines = { TILE = "16" }

options.defines = { 1A = 1 }
    tool.aotcuda.options.defines.1A: expected a C identifier (ASCII letters, digits, underscores) as the key, found
    the string "1A"; choose another name

options = { debug = true, lineinfo = true }
    tool.aotcuda.options: debug and lineinfo are both true, and debug information has the line numbers already; set
    one of them to false
"""
)
=======
@cases("config.txt", "common keys")
>>>>>>> main
def test_common_keys(text: str, expected: str) -> None:
    assert_refused(top(text), expected)


@cases("config.txt", "arch")
def test_arch(text: str, expected: str) -> None:
    assert_refused(top(text), expected)


@pytest.mark.parametrize(
    "bad",
    ["sm90", "sm_9", "sm_90b", "SM_90", "sm_9000", "lto_90", "Native", "sm_90 ", "sm_90\n", "sm_\u0669\u0660"],
)
def test_what_is_no_target(bad: str) -> None:
    with pytest.raises(ConfigError, match=r"^tool\.aotcuda\.arch\[1\]: expected sm_XY \(machine code\) or compute_XY"):
        parse(tomllib.loads(top("")) | {"arch": ["sm_90", bad]}, environ={})


def test_a_missing_arch_says_what_a_good_list_is() -> None:
    assert_refused(
        "",
        "tool.aotcuda.arch: this key is missing; write for example "
        'arch = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_75"]',
    )


@pytest.mark.parametrize("value", ["sm_80;sm80", "sm80"])
def test_a_bad_variable_is_named_instead_of_the_key(value: str) -> None:
    assert message(top(""), AOTCUDA_ARCH=value) == (
        'AOTCUDA_ARCH: expected sm_XY (machine code) or compute_XY (PTX), found the string "sm80"; write "sm_80"'
    )


def test_a_variable_of_separators_names_no_target() -> None:
    assert message(top(""), AOTCUDA_ARCH=" ; ,") == (
        "AOTCUDA_ARCH: the list names no target; write for example AOTCUDA_ARCH='sm_90;compute_75'"
    )


<<<<<<< HEAD
@cases(
    r"""
kernls = {}
    {M}.kernls: unknown key; did you mean kernels?

source = 3
    {M}.source: expected the dotted name of a Python module, found the integer 3; write for example source =
    "mypkg._kernels"

source = "pkg/_k.py"
    {M}.source: "pkg/_k.py" cannot be imported, because "pkg/_k" is not a Python identifier; give the dotted name of
    a module, such as "mypkg._kernels"

source = "pkg.class"
    {M}.source: "pkg.class" cannot be imported, because "class" is a keyword of Python; give the dotted name of a
    module, such as "mypkg._kernels"

source = ["pkg._k", "pkg._l", "pkg._k"]
    {M}.source[2]: "pkg._k" is listed twice; remove one of them

source = "pkg..k"
    {M}.source: expected the dotted name of a Python module, found the string "pkg..k"; write for example source =
    "mypkg._kernels"

source = "pkg.k"
kernels = { f = { python = "g", signature = "void(int32)" }, g = "void(int64)" }
    {M}.kernels.g: g is packaged already, by {M}.kernels.f, and in place a function is one kernel; list the signatures
    of both under one of them

source = "pkg.k.x"
    {M}.source: "pkg.k.x" needs a package "pkg.k", but {M} makes a single file of that name; rename one of them

frontend = "numba"
    {M}.frontend: expected "numba-cuda" or "numba-cuda-mlir" or "triton" or "cuda-cpp" or "cutile", found the string
    "numba"; did you mean "numba-cuda"?

front-end = "numba-cuda-mlir"
    {M}.front-end: unknown key; did you mean frontend?

kernels = {}
    {M}: the module has neither functions nor kernels; add one, or remove the module

options.debg = true
    {M}.options.debg: unknown key; did you mean debug?

options = []
    {M}.options: expected a table of options, found an empty list; write for example options = { fastmath = true }

options = { debug = true, lineinfo = true }
    {M}.options: debug and lineinfo are both true, and debug information has the line numbers already; set one of
    them to false

link = "a.cu"
    {M}.link: expected a list of files, found the string "a.cu"; write for example link = ["csrc/functions.cu"]

link = [3]
    {M}.link[0]: expected a path or a table, found the integer 3; write for example link = ["csrc/functions.cu"]

link = ["a.cu", "b.cpp"]
    {M}.link[1]: expected the path of a file that ends in .cu, .ptx, .cubin, .fatbin, .ltoir, .o, .a, found the
    string "b.cpp"; write for example link = ...

link = [{ path = "table" }]
    {M}.link[0].path: expected the path of a file that ends in .cu, .ptx, .cubin, .fatbin, .ltoir, .o, .a, found the
    string "table"; write for example path = ...

link = [{ setup = "a:b" }]
    {M}.link[0]: path or module is missing; write for example path = "csrc/table.cu"

link = [{ path = "a.cu", module = "a.kernels" }]
    {M}.link[0].module: given together with path; remove one of the two

link = [{ module = "a.kernels" }, { module = "a.kernels" }]
    {M}.link[1]: "a.kernels" is listed already as tool.aotcuda.modules."pkg.k".link[0]; remove one of them

link = [{ path = "a.cu", set-up = "a:b" }]
    {M}.link[0].set-up: unknown key; did you mean setup?

link = [{ path = "a.cu", setup = "pkg.upload" }]
    {M}.link[0].setup: expected "package.module:function", found the string "pkg.upload"; write for example setup =
    "mypkg._hooks:upload"

link = [{ path = "a.cu", teardown = "pkg:class" }]
    {M}.link[0].teardown: "class" is a keyword of Python, so no function can have it; choose another name

link = ["a.cu", "./a.cu"]
    {M}.link[1]: "./a.cu" is listed already as {M}.link[0]; remove one of them
"""
)
=======
@cases("config.txt", "modules")
>>>>>>> main
def test_modules(text: str, expected: str) -> None:
    assert_refused(module(text), expected)


<<<<<<< HEAD
@cases(
    r"""
add = 3
    {M}.functions.add: expected a signature or a table, found the integer 3; write for example functions = ...

add = ["int32(int32)"]
    {M}.functions.add: expected a signature in Numba's notation, found a list; write for example functions = ...

add = ""
    {M}.functions.add: expected a signature in Numba's notation, found the string ""; write for example functions =
    ...

add = "int32"
    {M}.functions.add: expected a signature in Numba's notation, found the string "int32"; write for example
    functions = ...

add = "int32(int32"
    {M}.functions.add: expected a signature in Numba's notation, found the string "int32(int32"; write for example
    functions = ...

add = "int32(int32[:)"
    {M}.functions.add: "int32(int32[:)" has a ')' too many or in the wrong place; correct the brackets

add = "int32((int32)"
    {M}.functions.add: "int32((int32)" has a '(' that is never closed; correct the brackets

add = { sig = "int32(int32)" }
    {M}.functions.add.sig: unknown key; did you mean signature?

add = { python = "pkg.k:a", signature = "f4(f4)" }
    {M}.functions.add.python: pkg.k is none of the modules in {M}.source; did you mean pkg._k?

add = { python = "elsewhere:a", signature = "f4(f4)" }
    {M}.functions.add.python: elsewhere is none of the modules in {M}.source; add it to {M}.source

add = { signature = 3 }
    {M}.functions.add.signature: expected a signature in Numba's notation, found the integer 3; write for example
    signature = "int32(int32, int32)"

add = { python = "a..b", signature = "f4(f4)" }
    {M}.functions.add.python: expected the name of a Python function, or "package.module:name", with dots before the
    attribute of an object, found the string "a..b"; write for example python = "add"

add = { python = "a.def", signature = "f4(f4)" }
    {M}.functions.add.python: "def" is a keyword of Python, so no function can have it; choose another name

add = { python = "def", signature = "f4(f4)" }
    {M}.functions.add.python: "def" is a keyword of Python, so no function can have it; choose another name

add = { python = "a-b", signature = "f4(f4)" }
    {M}.functions.add.python: "a-b" is not a Python identifier, so no function can have it; choose another name

add-f32 = "f4(f4)"
    {M}.functions.add-f32: expected a C identifier (ASCII letters, digits, underscores) as the key, found the string
    "add-f32"; choose another name

"a b" = "f4(f4)"
    {M}.functions."a b": expected a C identifier (ASCII letters, digits, underscores) as the key, found the string
    "a b"; choose another name

"" = "f4(f4)"
    {M}.functions."": expected a C identifier (ASCII letters, digits, underscores) as the key, found the string "";
    choose another name

"é" = "f4(f4)"
    {M}.functions."é": expected a C identifier (ASCII letters, digits, underscores) as the key, found the string
    "é"; choose another name

"a\n" = "f4(f4)"
    {M}.functions."a\n": expected a C identifier (ASCII letters, digits, underscores) as the key, found the string
    "a\n"; choose another name

2d = "f4(f4)"
    {M}.functions.2d: expected a C identifier (ASCII letters, digits, underscores) as the key, found the string
    "2d"; choose another name

double = "f4(f4)"
    {M}.functions.double: "double" is a keyword of C, so no header can declare it; choose another name

template = "f4(f4)"
    {M}.functions.template: "template" is a keyword of C++, so no header can declare it; choose another name

co_await = "f4(f4)"
    {M}.functions.co_await: "co_await" is a keyword of C++, so no header can declare it; choose another name

xor = "f4(f4)"
    {M}.functions.xor: "xor" is a keyword of C++, so no header can declare it; choose another name

lambda = "f4(f4)"
    {M}.functions.lambda: "lambda" is a keyword of Python, so no function can have it; choose another name

threadIdx = "f4(f4)"
    {M}.functions.threadIdx: "threadIdx" is a name of CUDA C++ itself, so no header can declare it; choose another
    name

float4 = "f4(f4)"
    {M}.functions.float4: "float4" is a name of CUDA C++ itself, so no header can declare it; choose another name

malloc = "f4(f4)"
    {M}.functions.malloc: "malloc" is a name of CUDA C++ itself, so no header can declare it; choose another name

__add = "f4(f4)"
    {M}.functions.__add: "__add" is reserved for compilers, like all names that begin with __ or with _ and a
    capital; choose another name

_Add = "f4(f4)"
    {M}.functions._Add: "_Add" is reserved for compilers, like all names that begin with __ or with _ and a capital;
    choose another name

aotcuda = "f4(f4)"
    {M}.functions.aotcuda: "aotcuda" is a name that the generated module uses itself; choose another name

axpy = "f4(f4)"
    {M}.kernels.axpy: the name is already used by {M}.functions.axpy; rename one of them
"""
)
=======
@cases("config.txt", "functions")
>>>>>>> main
def test_functions(text: str, expected: str) -> None:
    assert_refused(f'{ARCH}\n[modules."pkg.k"]\nsource = "pkg._k"\n{K}\n[modules."pkg.k".functions]\n{text}', expected)


<<<<<<< HEAD
@cases(
    r"""
axpy = 3
    {M}.kernels.axpy: expected a signature, a list of signatures or a table, found the integer 3; write for example
    kernels = ...

axpy = []
    {M}.kernels.axpy: expected a signature or a list of signatures, found an empty list; write for example kernels =
    ...

axpy = ['void(f4)', 3]
    {M}.kernels.axpy[1]: expected a signature in Numba's notation, found the integer 3; write for example kernels =
    ...

axpy = { signatures = [] }
    {M}.kernels.axpy.signatures: expected a signature or a list of signatures, found an empty list; write for example
    signatures = ...

axpy.signatures = 'void'
    {M}.kernels.axpy.signatures: expected a signature in Numba's notation, found the string "void"; write for
    example signatures = ...

axpy.signatures = ['void(f4)', 'f4']
    {M}.kernels.axpy.signatures[1]: expected a signature in Numba's notation, found the string "f4"; write for
    example signatures = ...

axpy.signature = 'void[)'
    {M}.kernels.axpy.signature: "void[)" has a ')' too many or in the wrong place; correct the brackets

axpy = { signature = 'void(f4)', signatures = ['void(f8)'] }
    {M}.kernels.axpy.signature: given together with signatures, which means the same; remove one of the two

axpy = { signature = 'void(f4)', bounds = 1 }
    {M}.kernels.axpy.bounds: unknown key; did you mean launch-bounds?

axpy = { signature = 'void(f4)', launch_bounds = 1 }
    {M}.kernels.axpy.launch_bounds: unknown key; did you mean launch-bounds?

axpy = { signature = 'void(f4)', launch-bounds = 0 }
    {M}.kernels.axpy.launch-bounds: expected an integer from 1 to 1024, found the integer 0; write for example
    launch-bounds = 256

axpy = { signature = 'void(f4)', launch-bounds = '9' }
    {M}.kernels.axpy.launch-bounds: expected an integer from 1 to 1024, found the string "9"; write for example
    launch-bounds = 256

axpy = { signature = 'void(f4)', launch-bounds = [1, 0] }
    {M}.kernels.axpy.launch-bounds[1]: expected an integer from 1 to 1024, found the integer 0; write for example
    launch-bounds = 256

axpy = { signature = 'void(f4)', launch-bounds = [] }
    {M}.kernels.axpy.launch-bounds: expected an integer or a list of 1 to 3 integers, found an empty list; write for
    example launch-bounds = 256

axpy = { signature = 'void(f4)', launch-bounds = [1, 1, 1, 1] }
    {M}.kernels.axpy.launch-bounds: the list has 4 items, and 3 at most are allowed; write for example launch-bounds
    = 256

axpy = { signature = 'void(f4)', cooperative = 1 }
    {M}.kernels.axpy.cooperative: expected true or false, found the integer 1; write for example cooperative = true

axpy = ['void(float32, int32)', 'void(float32,int32 )']
    {M}.kernels.axpy: the signature "void(float32,int32 )" is listed twice; remove one of them

ax-py = "void(f4)"
    {M}.kernels.ax-py: expected an identifier (ASCII letters, digits, underscores) as the key, found the string
    "ax-py"; choose another name

class = "void(f4)"
    {M}.kernels.class: "class" is a keyword of Python, so no function can have it; choose another name

__axpy = "void(f4)"
    {M}.kernels.__axpy: "__axpy" is reserved for Python and aotcuda, like all names that begin with __; choose
    another name

__aotcuda__ = "void(f4)"
    {M}.kernels.__aotcuda__: "__aotcuda__" is reserved for Python and aotcuda, like all names that begin with __;
    choose another name
"""
)
=======
@cases("config.txt", "kernels")
>>>>>>> main
def test_kernels(text: str, expected: str) -> None:
    assert_refused(f'{ARCH}\n[modules."pkg.k"]\nsource = "pkg._k"\n[modules."pkg.k".kernels]\n{text}', expected)


<<<<<<< HEAD
@cases(
    r"""
pkg-x.k
    tool.aotcuda.modules."pkg-x.k": expected the dotted name of a module (ASCII letters, digits, underscores) as the
    key, found the string "pkg-x.k"; choose another name

pkg.
    tool.aotcuda.modules."pkg.": expected the dotted name of a module (ASCII letters, digits, underscores) as the
    key, found the string "pkg."; choose another name

pkg/k
    tool.aotcuda.modules."pkg/k": expected the dotted name of a module (ASCII letters, digits, underscores) as the
    key, found the string "pkg/k"; choose another name

pkg.is
    tool.aotcuda.modules."pkg.is": "pkg.is" cannot be imported, because "is" is a keyword of Python; give the dotted
    name of a module, such as "mypkg._kernels"

pkg.__init__
    tool.aotcuda.modules."pkg.__init__": "pkg.__init__" is reserved for Python, like all names that begin with __;
    choose another name

aotcuda.k
    tool.aotcuda.modules."aotcuda.k": "aotcuda.k" is in aotcuda's own package; put the module into a
    package of your own
"""
)
=======
@cases("config.txt", "module names")
>>>>>>> main
def test_module_names(text: str, expected: str) -> None:
    assert_refused(f'{ARCH}\n[modules."{text}"]\nsource = "pkg._k"\n{K}', expected)


<<<<<<< HEAD
@cases(
    r"""
modules = {}
    tool.aotcuda.modules: expected a table with at least one module, found an empty table; write for example modules
    = ...

modules = []
    tool.aotcuda.modules: expected a table with at least one module, found an empty list; write for example modules
    = ...

modules = { pkg = 3 }
    tool.aotcuda.modules.pkg: expected a table, found the integer 3; write for example modules = ...

modules.pkg.k = { source = 'pkg._k', {K} }
    tool.aotcuda.modules.pkg.k: a module's dotted name must be quoted, as one key; write [{M}]

modules.pkg.sub.kernels = { source = 'pkg._k', {K} }
    tool.aotcuda.modules.pkg.sub.kernels: a module's dotted name must be quoted, as one key; write
    [tool.aotcuda.modules."pkg.sub.kernels"]

modules = { 'a.k' = { source = 's', {K} }, 'a.k.b' = { source = 's', {K} } }
    tool.aotcuda.modules."a.k.b": "a.k.b" needs a package "a.k", but tool.aotcuda.modules."a.k" makes a single file
    of that name; rename one of them

modules = { 'a.k' = { source = 'a.b', {K} }, 'a.b' = { source = 's', {K} } }
    tool.aotcuda.modules."a.k".source: "a.b" is the module of tool.aotcuda.modules."a.b", which the build writes;
    name the module that holds the Python functions

[modules.a]
source = 's'
functions.add = 'f4(f4)'
[modules.b]
source = 's'
functions.add = 'f8(f8)'
    tool.aotcuda.modules.b.functions.add: the C ABI name is already used by tool.aotcuda.modules.a.functions.add, and
    modules of a wheel may be linked together; rename one of them

[modules.a]
source = 's'
functions.add = 'f4(f4)'
link = [{ module = 'a' }]
    tool.aotcuda.modules.a.link[0]: a is this very module, whose kernels can call its functions already; remove the
    item

[modules.a]
source = 's'
link = ['x.cu', { module = 'b' }]
{K}
[modules.b]
source = 's'
{K}
    tool.aotcuda.modules.a.link[1]: b exports no device functions, so there is nothing to link; list them in
    tool.aotcuda.modules.b.functions, or remove the item

[modules.a]
source = 's'
link = [{ module = 'b' }]
{K}
[modules.b]
frontend = 'triton'
source = 's'
kernels.add.signature = '*fp32, i32'
    tool.aotcuda.modules.a.link[0]: b is compiled by triton, whose modules export no device functions, so there is
    nothing to link; remove the item

[modules.a]
source = 's'
functions.of_a = 'f4(f4)'
link = [{ module = 'other' }, { module = 'b' }]
[modules.b]
source = 's'
functions.of_b = 'f4(f4)'
link = [{ module = 'c' }]
[modules.c]
source = 's'
functions.of_c = 'f4(f4)'
link = [{ module = 'a' }]
    tool.aotcuda.modules.a.link[1]: b, by way of others, links a in its turn, so neither can be built first; move the
    functions that both need into a third module

options.debug = true
modules.a = { source = 's', {K}, options = { lineinfo = true } }
    tool.aotcuda.modules.a.options: debug and lineinfo are both true, and debug information has the line numbers
    already; set one of them to false
"""
)
=======
@cases("config.txt", "what clashes")
>>>>>>> main
def test_what_clashes(text: str, expected: str) -> None:
    assert_refused(f"{ARCH}\n{text}", expected)


def test_the_same_kernel_name_in_two_modules_is_no_clash() -> None:
    text = f'{ARCH}\n[modules.a]\nsource = "s"\n{K}\n[modules.ab]\nsource = "s"\n{K}'
    assert [one.name for one in parse(tomllib.loads(text), environ={}).modules] == ["a", "ab"]


def test_common_options_are_blamed_where_they_are_written() -> None:
    text = top("options.opt-level = 9").replace(K, f"{K}, options = {{ fastmath = true }}")
    assert message(text).startswith("tool.aotcuda.options.opt-level: ")


@pytest.mark.parametrize("front_end", registry.names())
def test_errors_end_with_what_the_front_end_takes(front_end: str) -> None:
    start = f'{ARCH}\n[modules."pkg.k"]\nfrontend = "{front_end}"'
    taken = {"source": 'source = "k.cu"' if front_end == "cuda-cpp" else 'source = "pkg._k"'}
    for key in ("source", "functions", "kernels"):
        others = [line for name, line in taken.items() if name != key]
        told = message("\n".join([start, *others, f"{key} = 3", *([K] if key == "source" else [])]))
        example = told.partition("; write for example ")[2]
        if example:
            taken[key] = example
        else:
            assert key == "functions"
            assert told.endswith("remove them, or move them to a module of another front end")
    (found,) = parse(tomllib.loads("\n".join([start, *taken.values()])), environ={}).modules
    assert found.frontend == front_end


def test_long_values_are_shortened() -> None:
    assert message(top(f'load = "{"z" * 1000}"')).count("z") == 57


def test_a_table_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"^tool\.aotcuda: expected a table, found the integer 3$"):
        parse(3, environ={})  # type: ignore[arg-type]
