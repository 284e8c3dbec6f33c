"""The front end for CUDA C++: declarations of kernels, and errors."""

from __future__ import annotations

import functools
import re
import tomllib

import pytest

from aotcuda.arch import Target
from aotcuda.builder.cache.compile_cache import CompileCache
from aotcuda.builder.config.parser import parse
from aotcuda.builder.emit.c_header import header
from aotcuda.builder.frontends.cuda_cpp import config, parameters
from aotcuda.builder.frontends.cuda_cpp.compiler import CudaCppFrontEnd, _kernel
from aotcuda.builder.frontends.protocol import Session
from aotcuda.errors import AotcudaError
from support.errors import MODULE as KEY
from support.errors import assert_message, cases

TARGET = Target("sass", 8, 0, "")

CODE = """\
struct Point { float x; int n; };
template <class T, int N> __global__ void tile(T a, T *x, int n) { x[N] = a; }
namespace ns { template <class T> __global__ void scale(T a, T *x) { x[0] *= a; } }
__global__ void plain(const float *x, float *y, int n) { y[n] = x[n]; }
__global__ void twice(float) {}
__global__ void twice(int) {}
__global__ void later(int n);
namespace { __global__ void hidden(int n) {} }
static __global__ void inner(const float *x, int n) { }
__global__ static void outer() {}
__device__ int helper(int x) { return x; }
extern "C" __device__ float exported(const float *x, int n, void *p) { return x[n]; }
extern "C" __device__ void taking(Point p) {}
"""


def _settle(folder, keys, code=CODE, **others):
    """Return the front end and the completed units of a module with these files."""
    for name, text in {"raw.cu": code, **others}.items():
        (folder / name.replace("_cu", ".cu")).write_bytes(text if isinstance(text, bytes) else text.encode())
    source = "" if re.search("^source", keys) else 'source = "raw.cu"'
    text = f'arch = ["sm_80"]\nfrontend = "cuda-cpp"\n[modules."pkg.k"]\n{source}\n{keys}'
    (module,) = parse(tomllib.loads(text), environ={}).modules
    front = CudaCppFrontEnd()
    front.prepare(Session(root=str(folder), cache=CompileCache()))
    settled_units = []
    with front.importing(TARGET):
        for unit in config.units(module):
            files = front.load(unit)
            settled_units += [(settled, files) for settled, _ in front.resolve(unit, files)]
    return front, settled_units


@pytest.fixture
def settle(tmp_path):
    return functools.partial(_settle, tmp_path)


def first_line(settle, *arguments, **others):
    """Return the first line of the error for a table and sources."""
    with pytest.raises(AotcudaError) as caught:
        settle(*arguments, **others)
    return str(caught.value).partition("\n")[0]


def compiled(settle, declared, keys=""):
    """Return the kernel `k` with these parameters, compiled."""
    front, ((unit, files),) = settle(f"kernels.k = {{ {keys} }}", f"__global__ void k({declared}) {{}}")
    return front.compile_unit(unit, files, [TARGET])[TARGET]


MODES = (
    "|V64{byte:|u1@0,half:<i2@2,word:<u4@4,wide:<i8@8,plain:<i4@16,"
    "inner:{scoped:<i4@0,halves:<i2*2@4}*2*2@20,next:<u8@56}"
)
"""Members of enumeration type; each has the sign of its underlying type."""

DECLARED = {
    "bool": ("scalar", "?"),
    "char": ("scalar", "b"),
    "unsigned char": ("scalar", "B"),
    "long": ("scalar", "q"),
    "unsigned long long": ("scalar", "Q"),
    "__half": ("scalar", "e"),
    "__nv_bfloat16": ("small", "bfloat16"),
    "__nv_fp8_e4m3": ("small", "float8_e4m3fn"),
    "const __nv_fp8_e5m2 *": ("buffer", "float8_e5m2"),
    "__nv_fp8_e8m0 *": ("buffer", "float8_e8m0fnu"),
    "Small": ("scalar", "b"),
    "cuda::std::complex<float>": ("complex", "f"),
    "float *__restrict__ const": ("buffer", "<f4"),
    "volatile int *": ("buffer", "<i4"),
    "const __nv_bfloat16 *": ("buffer", "bfloat16"),
    "float (*)[4]": ("buffer", "<f4"),
    "float4 *": ("buffer", "|V16{x:<f4@0,y:<f4@4,z:<f4@8,w:<f4@12}"),
    "Unknown *": ("pointer", None),
    "void *": ("pointer", None),
    "Derived": ("struct", "|V12{x:<f4@0,n:<i4@4,more:|i1@8}"),
    "Box<float>": ("struct", "|V8{lo:<f4@0,hi:<f4@4}"),
    "WithPointer": ("struct", "|V16{data:<u8@0,size:<u8@8}"),
    "Either": ("struct", "|V4"),
    "Bits": ("struct", "|V4"),
    "MoreThanBits": ("struct", "|V8"),
    "Empty": ("struct", "|V1"),
    "Anonymous": ("struct", "|V4{q:<i4@0}"),
    "Outer": ("struct", "|V24{inner:{x:<f4@0,n:<i4@4}*2@0,grid:|i1*2*3@16}"),
    "own::complex<float>": ("struct", "|V8{mag:<f4@0,phase:<f4@4}"),
    "const own::complex<double> *": ("buffer", "|V16{mag:<f8@0,phase:<f8@8}"),
    "own::__half": ("struct", "|V2{bits:<u2@0}"),
    "own::__nv_bfloat16": ("struct", "|V4{__x:<u4@0}"),
    "own::__nv_fp8_e4m3": ("struct", "|V1{__x:|i1@0}"),
    "own::CUtensorMap": ("struct", "|V128{opaque:<f4*32@0}"),
    "own::CUtensorMap *": ("buffer", "|V128{opaque:<f4*32@0}"),
    "OfOwn": ("struct", "|V12{z:{mag:<f4@0,phase:<f4@4}@0,h:{bits:<u2@0}@8}"),
    "OfSmall": ("struct", "|V6{h:<f2@0,b:bfloat16@2,f:float8_e4m3fn*2@4}"),
    "OfSmall *": ("buffer", "|V6{h:<f2@0,b:<V2@2,f:<V1*2@4}"),
    "Outer *": ("buffer", "|V24{inner:{x:<f4@0,n:<i4@4}*2@0,grid:|i1*2*3@16}"),
    "float3 (*)[2]": ("buffer", "|V12{x:<f4@0,y:<f4@4,z:<f4@8}"),
    "Outer (*)[2][3]": ("buffer", "|V24{inner:{x:<f4@0,n:<i4@4}*2@0,grid:|i1*2*3@16}"),
    "float &": ("buffer", "<f4"),
    "Signed": ("scalar", "i"),
    "Unsigned": ("scalar", "H"),
    "Unfixed": ("scalar", "i"),
    "Wide": ("scalar", "Q"),
    "const Signed *": ("buffer", "<i4"),
    "Unsigned (*)[3]": ("buffer", "<u2"),
    "Modes": ("struct", MODES),
    "const Modes *": ("buffer", MODES),
    "own::Scoped (&)[2]": ("buffer", "<i4"),
    "Tagged<short>": ("struct", "|V4{tag:<i2@0,value:<i2@2}"),
    "Tagged<unsigned short>": ("struct", "|V4{tag:<u2@0,value:<u2@2}"),
}
"""Kind and format or dtype in the manifest, by declaration of a parameter."""

HEADER = """\
#include <cuda/std/complex>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
enum class Small : signed char { A = -1, B };
struct Unknown;
struct Point { float x; int n; };
struct Derived : Point { char more; };
template <class T> struct Box { T lo, hi; };
struct WithPointer { float *data; unsigned long size; };
union Either { int i; float f; };
struct Bits { int a : 3; int b : 5; };
struct MoreThanBits : Bits { int c; };
struct Empty {};
typedef struct { int q; } Anonymous;
struct Outer { Point inner[2]; char grid[2][3]; };
namespace own {
template <class T> struct complex { T mag, phase; };
struct __half { unsigned short bits; };
struct __nv_bfloat16 { unsigned __x; };
struct __nv_fp8_e4m3 { signed char __x; };
struct CUtensorMap { float opaque[32]; };
}
struct OfOwn { own::complex<float> z; own::__half h; };
struct OfSmall { __half h; __nv_bfloat16 b; __nv_fp8_e4m3 f[2]; };
enum Signed : int { S0, S1 };
enum class Unsigned : unsigned short { U0 };
enum Unfixed { F0, F1 };
enum class Wide : unsigned long long { W0 };
namespace own {
enum Byte : unsigned char { Y0 };
enum Half : short { H0 };
enum Word : unsigned { O0 };
enum Long : long long { L0 };
enum Plain { P0 };
enum class Scoped { C0 };
}
struct Inner { own::Scoped scoped; own::Half halves[2]; };
struct First { own::Byte byte; };
struct Modes : First {
    own::Half half;
    own::Word word;
    own::Long wide;
    own::Plain plain;
    Inner inner[2][2];
    Modes *next;
};
template <class T> struct Tagged { enum class Tag : T { A }; Tag tag; T value; };
"""


@pytest.fixture(scope="module")
def declared(tmp_path_factory):
    """Return the parameters of kernels with one parameter, by declaration; all kernels are in one file."""
    named = [re.sub(r"\(([*&])\)", r"(\1p)", text) if "(" in text else f"{text} p" for text in DECLARED]
    code = HEADER + "".join(f"__global__ void k{at}({text}) {{}}\n" for at, text in enumerate(named))
    keys = "\n".join(f"kernels.k{at} = {{}}" for at in range(len(named)))
    _, settled_units = _settle(tmp_path_factory.mktemp("declared"), keys, code)
    parameters_of_kernels = [
        parameters.make_arguments(_kernel(unit, files), {}, unit.key).parameters for unit, files in settled_units
    ]
    return dict(zip(DECLARED, parameters_of_kernels, strict=True))


@pytest.mark.parametrize("text", DECLARED)
def test_parameter_has_kind_and_dtype_of_its_declaration(declared, text):
    kind, format_or_dtype = DECLARED[text]
    (parameter,) = declared[text]
    assert parameter["kind"] == kind
    assert parameter.get("format" if kind in ("scalar", "complex") else "dtype") == format_or_dtype


UNNAMEABLE = {
    "struct S { long double a; };": "has a member a of type long double, which has 8 bytes in GPU code",
    "struct T { long double a[2]; }; struct S { int n; T t; };": "has a member t of type T, which has a member a of ",
    "struct S { int n; union { int i; float f; }; };": "has a member without a name, which no NumPy dtype can describe",
    "struct S { struct { int i; }; };": "has a member without a name, which no NumPy dtype can describe",
    "struct A { int n; }; struct S : A { int n; };": "has several members n, also from its base classes",
    "struct A { int n; }; struct B : A {}; struct C : A {}; struct S : B, C {};": "has several members n, also from",
    "#include <cuda/std/tuple>\ntypedef cuda::std::tuple<int, float> S;": "has several members __value_, also from its",
}
"""Structs that no record can be, with the reason."""
POINTERS = ("const S *", "S (*)[2]")


@pytest.mark.parametrize(
    ("code", "declared"),
    [*((code, "S") for code in UNNAMEABLE), *((next(iter(UNNAMEABLE)), each) for each in POINTERS)],
)
def test_struct_that_no_record_can_be_is_refused(settle, code, declared):
    named = declared.replace("(*)", "(*p)") if "(*)" in declared else f"{declared} p"
    text = f"{code}\n__global__ void k({named}) {{ char c = *(char *)&p; }}"
    first = first_line(settle, "kernels.k = {}", text)
    assert first.startswith(f"{KEY}.kernels.k.parameters.p: ")
    assert UNNAMEABLE[code] in first
    if declared != "S":
        assert first.endswith('or write parameters.p = "pointer" to take an address')
        settle('kernels.k = { parameters = { p = "pointer" } }', text)


def test_long_double_is_refused(settle):
    assert "long double has 8 bytes in GPU code" in first_line(
        settle, "kernels.k = {}", "__global__ void k(long double x) {}"
    )


ALIGNED = {
    "float4 *": 16,
    "const double *": 8,
    "Aligned *": 32,
    "Packed *": 1,
    "float3 (*)[2]": 4,
    "char *": 1,
    "double2 &": 16,
    "void *": None,
    "float **": None,
    "Unknown *": None,
}
"""The alignment of the type that a pointer points to."""


def test_pointer_has_the_alignment_of_its_type(settle):
    named = [text.replace("(*)", "(*{})") if "(*)" in text else f"{text} {{}}" for text in ALIGNED]
    code = (
        "struct alignas(32) Aligned { float x; };\n#pragma pack(1)\nstruct Packed { char c; float x; };\n"
        f"#pragma pack()\nstruct Unknown;\n"
        f"__global__ void k({', '.join(text.format(f'p{at}') for at, text in enumerate(named))}) {{}}\n"
    )
    front, ((unit, files),) = settle("kernels.k = {}", code)
    parameters_of_kernel = front.compile_unit(unit, files, [TARGET])[TARGET].parameters
    assert [item.get("align") for item in parameters_of_kernel] == [*ALIGNED.values()]


@pytest.mark.parametrize(
    ("attribute", "block", "bounds"),
    [
        ("__launch_bounds__(64)", (), (64,)),
        ("__block_size__((32, 2, 1))", (32, 2, 1), (64,)),
        ("__block_size__((128, 1, 1), (2, 1, 1))", (128, 1, 1), (128,)),
        ("", (), ()),
    ],
)
def test_kernel_for_one_block_has_it(settle, monkeypatch, attribute, block, bounds):
    monkeypatch.setitem(globals(), "TARGET", Target("sass", 9, 0, ""))  # the first with the attribute
    front, ((unit, files),) = settle("kernels.k = {}", f"__global__ void {attribute} k(float *x) {{}}")
    kernel = front.compile_unit(unit, files, [TARGET])[TARGET]
    assert (kernel.launch.block, kernel.launch.launch_bounds) == (block, bounds)


def test_variadic_function_keeps_its_dots(settle):
    code = 'extern "C" __device__ int sum(int n, ...) { return n; }'
    front, ((unit, files),) = settle("functions.sum = {}", code)
    function = front.compile_unit(unit, files, [TARGET])[TARGET]
    assert function.signature == "int32(int32, ...)"
    assert header.prototype("sum", function) == "int sum(int n, ...);"
    assert "remove the signature" in first_line(settle, 'functions.sum = "int32(int32)"', code)


def test_parameters_have_the_offsets_of_the_ptx(settle):
    kernel = compiled(settle, "char a, double b, float4 c, short, const float *e", 'parameters = { e = "pointer" }')
    assert [(item["name"], item["offset"]) for item in kernel.parameters] == [
        ("a", 0),
        ("b", 8),
        ("c", 16),
        ("arg3", 32),
        ("e", 40),
    ]
    assert kernel.parameter_block.layout == ((0, 1), (8, 8), (16, 16), (32, 2), (40, 8))
    assert (kernel.parameter_block.size, kernel.parameter_block.one_by_one) == (48, False)
    assert kernel.signature == "void(char, double, float4, short, const float * as pointer)"


def test_parameters_of_a_pack_are_all_arguments(settle):
    code = "template <class... Ts> __global__ void k(float *out, Ts... args) { out[0] = (args + ...); }"
    front, ((unit, files),) = settle('kernels.k = ["k<float, int>"]', code)
    kernel = front.compile_unit(unit, files, [TARGET])[TARGET]
    assert kernel.signature == "void(float *, float, int)"
    assert [item["offset"] for item in kernel.parameters] == [0, 8, 12]


@pytest.mark.parametrize("name", ["C", "face", "x0"])
def test_hexadecimal_name_is_not_read_as_an_address(settle, name):
    """Debug information in PTX has addresses as names."""
    body = f"template <int N> __global__ void of(float *x) {{ x[0] = N + {name}; }}"
    for declared in ("constexpr int {} = 3;", "static __device__ float {};", "__constant__ float {};"):
        front, ((unit, files),) = settle('kernels.of = ["of<7>"]', f"{declared.format(name)} {body}")
        assert front.compile_unit(unit, files, [TARGET])[TARGET].signature == "void(float *)"


def test_pointer_accepts_arrays_of_its_element_type(settle):
    for declared, text in {"float2 *": "complex64[::1]", "float4 *": "float32[:, ::1]", "void *": "int16[...]"}.items():
        compiled(settle, f"{declared} x", f'parameters = {{ x = "{text}" }}')
    for declared, text in {"float *": "float64[::1]", "long *": "complex64[::1]", "int *": "uint32[...]"}.items():
        with pytest.raises(AotcudaError, match="make the two agree"):
            compiled(settle, f"{declared} x", f'parameters = {{ x = "{text}" }}')


def test_functions_have_the_nearest_types_of_numba(settle):
    front, ((unit, files),) = settle("functions.exported = {}")
    function = front.compile_unit(unit, files, [TARGET])[TARGET]
    assert function.signature == "float32(CPointer(float32), int32, voidptr)"
    assert (function.result, function.parameters[0]) == ("float", ("const float *", "x"))
    front, ((unit, files),) = settle('functions.exported = "float32(CPointer(float32), int32, CPointer(int8))"')
    assert front.compile_unit(unit, files, [TARGET])[TARGET].signature.endswith("CPointer(int8))")


def test_a_kernel_is_found_in_the_file_that_has_it(settle):
    other = "__global__ void __launch_bounds__(64)\n  other(int n) {}\n__global__ void plain(double x) {}\n"
    keys = 'source = ["raw.cu", "b.cu"]\nkernels = {{ other = {{}}, plain = {{ function = "{}plain" }} }}'
    _, settled_units = settle(keys.format("b.cu:"), b_cu=other)
    assert [(unit.origin, unit.symbol) for unit, _ in settled_units] == [
        ("b.cu:other", "_Z5otheri"),
        ("b.cu:plain", "_Z5plaind"),
    ]
    assert first_line(settle, keys.format(""), b_cu=other) == (
        f'{KEY}.kernels.plain: plain is in raw.cu and in b.cu; name the file of the kernel, as "raw.cu:plain"'
    )
    assert first_line(settle, keys.format("c.cu:"), b_cu=other) == (
        f"{KEY}.kernels.plain: c.cu is no file of source; the files there are raw.cu, b.cu"
    )
    _, settled_units = settle(keys.format(""), b_cu=other.replace("(double x) {}", "(double x);"))
    assert settled_units[1][0].symbol == "_Z5plainPKfPfi"


@cases("cuda_cpp.txt", "tables and sources")
def test_error_in_table_or_source_names_the_key(settle, text, expected):
    assert_message(first_line(settle, text), expected)


def test_compile_error_has_the_compilers_text(settle):
    with pytest.raises(AotcudaError) as caught:
        settle("kernels.plain = {}", CODE.replace("y[n] = x[n];", "y[n] = z[n];"))
    first, _, rest = str(caught.value).partition("\n")
    assert first == f'{KEY}.source: raw.cu does not compile for sm_80: identifier "z" is undefined (raw.cu:4)'
    assert "y[n] = z[n]" in rest


VIRTUAL = """struct V { virtual __device__ int f() { return 1; } int n; };
struct W : V { float x; };
struct In { int n; W w[2]; };
"""


@pytest.mark.parametrize("name", ["V", "W", "In"])
def test_objects_with_virtual_functions_are_passed_by_pointer_alone(settle, name):
    code = f"{VIRTUAL}__global__ void k({name} *p) {{ p->n = 1; }} __global__ void v({name} p) {{ if (p.n) __trap(); }}"
    front, ((unit, files),) = settle("kernels.k = {}", code)
    assert front.compile_unit(unit, files, [TARGET])[TARGET].parameters[0]["kind"] == "buffer"
    error = first_line(settle, "kernels.v = {}", code)
    assert f".p: {name} has virtual functions, which arguments cannot have; pass a pointer to it" in error


def test_type_in_a_namespace_without_a_name_is_refused(settle):
    code = "namespace { struct H { int n; }; } __global__ void k(H h, int *o) { o[0] = h.n; }"
    assert "k of raw.cu, or a type that it names, is in a namespace without" in first_line(
        settle, "kernels.k = {}", code
    )


@cases("cuda_cpp.txt", "code for nvcc")
def test_code_that_was_written_for_nvcc_gets_advice(settle, text, expected):
    first = first_line(settle, "kernels.plain = {}", f"{text}\n{CODE}")
    assert_message(first, f"{KEY}.source: raw.cu does not compile for sm_80: ...(raw.cu:1); {expected}")


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (f"// {CODE}".encode("utf-16"), "line 1 is not UTF-8"),  # as editors of Windows save it
        (f"// {CODE}".encode("utf-16-le"), "line 1 has a NUL character"),
        (b"// caf\xe9\n// \xff\n" + CODE.encode(), "line 2 is not UTF-8"),
        (CODE.encode() + b"\n\0\n#error hidden", f"line {CODE.count(chr(10)) + 2} has a NUL character"),
    ],
)
def test_a_file_in_another_encoding_is_refused(settle, data, fact):
    assert first_line(settle, "kernels.plain = {}", data) == (
        f"{KEY}.source: raw.cu does not compile for sm_80: {fact}; save the file as UTF-8"
    )


def test_compile_error_names_gpus_that_compile_the_code(settle):
    first = first_line(settle, "kernels.plain = {}", f"{CODE}\n#if __CUDA_ARCH__ < 900\n#error too old\n#endif\n")
    assert "too old (raw.cu:16); it compiles for sm_90: list that and later ones" in first


def test_functions_of_two_files_are_two_modules(settle):
    keys = 'source = ["raw.cu", "b.cu"]\nfunctions = { exported = {}, other = {} }'
    front, settled_units = settle(keys, b_cu='extern "C" __device__ int other() { return 1; }')
    code = dict.fromkeys(dict(settled_units), b"")
    with pytest.raises(AotcudaError, match=r"these are in raw\.cu and b\.cu; make a module for each"):
        front.generate(code, dict(settled_units), TARGET, settled_units[0][0].options)


@pytest.mark.parametrize(
    ("instance", "declared"),
    [
        ('function = "k"', "static __global__ void k(float *x) {}"),
        ('instances = ["k<float>"]', "template <class T> static __global__ void k(T *x) {}"),
    ],
)
def test_static_kernel_in_a_header_is_named_with_the_header(settle, instance, declared):
    headers = {"first.h": '#include "k.h"', "k.h": declared}
    first = first_line(settle, f"kernels.k = {{ {instance} }}", '#include "first.h"', **headers)
    assert re.search(r": k(<float>)? of k\.h is static, .* raw\.cu .*; remove static$", first)
