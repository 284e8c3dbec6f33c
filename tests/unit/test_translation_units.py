"""Divide CUDA C++ files among images: which files belong together, and names that files of one image share."""

from __future__ import annotations

import tomllib

import pytest

from aotcuda.arch import Target
from aotcuda.builder.cache.compile_cache import CompileCache
from aotcuda.builder.config.parser import parse
from aotcuda.builder.frontends.cuda_cpp import config
from aotcuda.builder.frontends.cuda_cpp.compiler import CudaCppFrontEnd
from aotcuda.builder.frontends.protocol import Session
from aotcuda.builder.link import symbols, translation_units, weak_code
from aotcuda.builder.link.symbols import Symbols
from aotcuda.errors import AotcudaError, LinkError

TARGETS = (Target("sass", 8, 0, ""), Target("sass", 9, 0, ""))


def settle(folder, files, keys):
    """Return the front end, a module and its completed units."""
    for name, text in files.items():
        (folder / name).write_text(text)
    sources = [name for name in files if name.endswith(".cu")]
    text = f'arch = ["sm_80"]\nfrontend = "cuda-cpp"\n[modules."pkg.k"]\nsource = {sources}\n{keys}'
    (module,) = parse(tomllib.loads(text), environ={}).modules
    front = CudaCppFrontEnd()
    front.prepare(Session(root=str(folder), cache=CompileCache()))
    with front.importing(TARGETS[0]):
        units = [done for unit in config.units(module) for done, _ in front.resolve(unit, front.load(unit))]
    return front, module, units


def divide(folder, files, keys="kernels = { ka = {}, kb = {} }", linked=(), targets=TARGETS[:1]):
    """Return the division of a module with these files."""
    front, module, units = settle(folder, files, keys)
    return front.divide(units, linked, targets, module)


def kernel(letter, value):
    return f'extern "C" __global__ void k{letter}(float *o) {{ o[0] = {value}; }}\n'


GIVE = "__device__ float give(float x) { return x * 7; }\n"
USES = "extern __device__ float give(float);\n"
APART = {
    "inline functions": ("inline __device__ float h(float x) { return x + 1; }\n", "h(o[1])"),
    "templates": ("template <class T> __device__ T h(T x) { return x + 1; }\n", "h(o[1])"),
    "methods": ("struct Op { __device__ float f(float x) const { return x + 1; } };\n", "Op().f(o[1])"),
    "device functions": ("__device__ float h(float x) { return x + 1; }\n", "h(o[1])"),
    "constants": ("__constant__ float x = 1;\n", "x"),
    "variables in a namespace": ("namespace p { __device__ float x = 1; }\n", "p::x"),
    "inline variables": ("inline __device__ float x = 1;\n", "x"),
    "virtual methods": (
        """struct B { __device__ virtual float f(float x) { return x; } };
        struct D : B { __device__ float f(float x) override { return x + 1; } };
        static __device__ __noinline__ float call(B *b, float x) { return b->f(x); }
        """,
        "[&]() { D d; B b; return call(o[2] > 0 ? &d : &b, o[1]); }()",
    ),
    "variable templates": ("template <class T> __device__ T x[2] = {1, 1};\n", "x<float>[(int)o[1]]"),
    "tables of templates": (
        "template <class T> __device__ T h(int i) { static const __device__ T x[2] = {1, 1}; return x[i]; }\n",
        "h<float>((int)o[1])",
    ),
    "lambdas": ("", "[](float x) { return x + 1; }(o[1])"),
    "unnamed namespaces": ("namespace { __device__ float h(float x) { return x + 1; } }\n", "h(o[1])"),
    "static tables": ("static __device__ float x[2] = {1, 1};\n", "x[(int)o[1]]"),
    "dynamic shared memory": ("extern __shared__ float x[];\n", "x[1]"),
    "macros": ("#define F(x) ((x) + 1)\n", "F(o[1])"),
    "functions of CUDA": ("", '(printf("%f", o[0]), *(float *)malloc(4))'),
    "references that no instance has": (
        f"{USES}template <class T> __global__ void g(T *o) {{ o[0] = give(1); }}\n",
        "1",
    ),
}
"""A definition, which a second file has with another number, and an expression that uses it."""


@pytest.mark.parametrize("kind", APART)
def test_files_that_refer_to_nothing_are_images_of_their_own(tmp_path, kind):
    code, value = APART[kind]
    files = {"a.cu": code + kernel("a", value), "b.cu": code.replace("1", "2") + kernel("b", value) + GIVE}
    division = divide(tmp_path, files)
    assert [(unit.name, unit.image) for unit in division.units] == [("ka", "a.cu"), ("kb", "b.cu")]


SHARED = {
    "inline functions": "h is not the same in a.cu and in b.cu",
    "templates": "h is not the same in a.cu and in b.cu",
    "methods": "Op::f is not the same in a.cu and in b.cu",
    "inline variables": "x is not the same in a.cu and in b.cu",
    "virtual methods": "D::f is not the same in a.cu and in b.cu",
    "variable templates": "x is not the same in a.cu and in b.cu",
    "tables of templates": "h::x is not the same in a.cu and in b.cu",
    "lambdas": None,
    "unnamed namespaces": None,
    "device functions": "h is defined in a.cu and in b.cu",
    "constants": "x is defined in a.cu and in b.cu",
    "variables in a namespace": "p::x is defined in a.cu and in b.cu",
    "static tables": None,
    "macros": None,
    "dynamic shared memory": None,
}


@pytest.mark.parametrize("kind", SHARED)
def test_files_of_one_image_share_their_names(tmp_path, kind):
    code, value = APART[kind]
    files = {
        "a.cu": USES + code + kernel("a", f"{value} + give(1)"),
        "b.cu": code.replace("1", "2") + GIVE + kernel("b", value),
    }
    if SHARED[kind] is None:
        assert {unit.image for unit in divide(tmp_path, files).units} == {""}
        return
    with pytest.raises(LinkError) as caught:
        divide(tmp_path, files)
    assert str(caught.value).startswith(
        f'tool.aotcuda.modules."pkg.k": {SHARED[kind]}, which are linked into one image'
    )
    assert "(a.cu refers to give of b.cu)" in str(caught.value)
    if "not the same" in SHARED[kind]:  # equal definitions, as from a header, may be in both
        files["b.cu"] = f"static __device__ int other;\n\n{code}{GIVE}{kernel('b', value)}"
        assert {unit.image for unit in divide(tmp_path, files).units} == {""}


TOGETHER = {
    "function": (USES, "give(1)", GIVE),
    "constant": ("extern __constant__ float x;\n", "x", "__constant__ float x = 1;\n"),
    "array": ("extern __device__ float x[];\n", "x[1]", "__device__ float x[2];\n"),
    "kernel": ('extern "C" __global__ void kb(float *);\n', "(kb<<<1, 1>>>(o), 1)", ""),
    "weak function": (USES, "give(1)", "template <class T> __device__ T g(T x) { return x; }\n" + GIVE),
    "one target": (USES, "\n#if __CUDA_ARCH__ >= 900\ngive(1)\n#else\n1\n#endif\n", GIVE),
}


@pytest.mark.parametrize("kind", TOGETHER)
def test_files_that_refer_to_each_other_are_one_image(tmp_path, kind):
    declared, value, defined = TOGETHER[kind]
    files = {
        "a.cu": declared + kernel("a", value),
        "b.cu": defined + kernel("b", "1"),
        "c.cu": kernel("c", "1"),
    }
    targets = TARGETS if kind == "one target" else TARGETS[:1]
    division = divide(tmp_path, files, "kernels = { ka = {}, kb = {}, kc = {} }", targets=targets)
    assert [unit.image for unit in division.units] == ["a.cu, b.cu", "a.cu, b.cu", "c.cu"]
    assert division.units[0].sources == ("a.cu", "b.cu")


def test_instance_of_a_template_shows_its_references(tmp_path):
    template = f"{USES}template <class T> __global__ void k(T *o) {{ o[0] = give(1); }}\n"
    files = {"a.cu": template, "b.cu": GIVE + kernel("b", "1")}
    assert {unit.image for unit in divide(tmp_path, files, 'kernels = { k = ["k<float>"], kb = {} }').units} == {""}


def test_relocatable_module_is_one_image(tmp_path):
    files = {"a.cu": USES + kernel("a", "give(1)"), "b.cu": GIVE + kernel("b", "1")}
    division = divide(tmp_path, files, "relocatable = true\nkernels = { ka = {}, kb = {} }")
    assert {unit.image for unit in division.units} == {""}
    files["b.cu"] += kernel("a", "2")
    with pytest.raises(AotcudaError, match=r"ka is defined in a\.cu and in b\.cu, .* \(relocatable is true\)"):
        divide(tmp_path, files, 'relocatable = true\nkernels = { ka = { function = "a.cu:ka" }, kb = {} }')


def test_kernels_of_one_name_are_named_by_their_files(tmp_path):
    files = {"a.cu": kernel("", "1"), "b.cu": kernel("", "2")}
    division = divide(tmp_path, files, 'kernels = { a = { function = "a.cu:k" }, b = { function = "b.cu:k" } }')
    assert [(unit.symbol, unit.identifier) for unit in division.units] == [("k", "a.cu:k"), ("k", "b.cu:k")]


@pytest.mark.parametrize("declared", ["extern __constant__ float x;", "extern __device__ float x;"])
def test_variable_that_nothing_defines_is_refused(tmp_path, declared):
    files = {"a.cu": f"{declared}\n{kernel('a', 'x')}"}
    with pytest.raises(
        LinkError, match=r"a\.cu uses the extern variable x, which nothing defines; define it in a file"
    ):
        divide(tmp_path, files, "kernels.ka = {}")
    linked = [Symbols(functions=(), variables=("x",))]
    assert divide(tmp_path, files, "kernels.ka = {}", linked).linked == {""}


def test_variables_are_named_by_file_and_alone(tmp_path):
    files = {
        "a.cu": f"__constant__ float x = 1; namespace n {{ __device__ int y; }}\n{kernel('a', 'x + n::y')}",
        "b.cu": f"__constant__ float x[2] = {{1, 2}};\n{kernel('b', 'x[1]')}",
    }
    assert divide(tmp_path, files).variables == (
        ("a.cu:n::y", "_ZN1n1yE", "a.cu", 4),
        ("a.cu:x", "x", "a.cu", 4),
        ("b.cu:x", "x", "b.cu", 8),
        ("n::y", "_ZN1n1yE", "a.cu", 4),
    )


def test_file_without_kernel_gets_a_warning(tmp_path):
    division = divide(tmp_path, {"a.cu": GIVE, "b.cu": kernel("b", "1")}, "kernels.kb = {}")
    (warning,) = division.warnings
    assert warning.startswith('tool.aotcuda.modules."pkg.k".source: no kernel of the table is in a.cu')


def test_exported_function_may_refer_to_no_other_file(tmp_path):
    exported = f'{USES}extern "C" __device__ float ex(float x) {{ return give(x); }}\n{kernel("a", "ex(1)")}'
    files = {"a.cu": exported, "b.cu": GIVE + kernel("b", "1")}
    keys = "functions.ex = {}\nkernels = { ka = {}, kb = {} }"
    with pytest.raises(AotcudaError, match=r"functions\.ex: a\.cu exports a function and refers to give of b\.cu; "):
        divide(tmp_path, files, keys)
    files = {
        "a.cu": GIVE.replace("__device__", 'extern "C" __device__') + kernel("a", "1"),
        "b.cu": kernel("b", "give(1)"),
    }
    files["b.cu"] = 'extern "C" ' + USES.removeprefix("extern ") + files["b.cu"]
    assert {unit.image for unit in divide(tmp_path, files, keys.replace("ex", "give")).units} == {""}


def of(*, defined=(), needed=(), variables=(), complete=True):
    return Symbols(functions=tuple(defined), needed_functions=tuple(needed), variables=variables, complete=complete)


LINKED = {
    "a needs a name": ({"a": of(needed="f"), "b": of()}, of(defined="f"), ["a"]),
    "the item needs a name of b": ({"a": of(), "b": of(defined="f")}, of(needed="f"), ["b"]),
    "both": ({"a": of(needed="f"), "b": of(defined="g"), "c": of()}, of(defined="f", needed="g"), ["a", "b"]),
    "an item hides its names": ({"a": of(needed="f"), "b": of(defined="g")}, of(complete=False), ["a"]),
    "another file has the name": ({"a": of(needed="f"), "b": of(defined="f")}, of(complete=False), []),
    "nobody": ({"a": of(), "b": of()}, of(defined="f"), []),
}


@pytest.mark.parametrize("kind", LINKED)
def test_files_that_use_link_are_one_image_with_it(kind):
    files, item, expected = LINKED[kind]
    groups = translation_units.divide({name: {TARGETS[0]: value} for name, value in files.items()}, [item], "KEY")
    assert [list(group.files) for group in groups if group.has_links] == ([expected] if expected else [])


PTX = b""".visible .func  (.param .b32 r) _Z1ff(
\t.param .b32 p
)
{
}
.weak .func  (.param .b32 r) _Z1wf(
)
{
}
.extern .func  (.param .b64 r) give
(
\t.param .b32 p
)
;
.extern .func  (.param .b32 func_retval0) vprintf
(
)
;
.visible .entry k(
)
.maxntid 32, 1, 1
{
}
.extern .shared .align 16 .b8 sm[];
.extern .const .align 4 .f32 factor;
\t.extern .global .align 4 .b8 arr[];
.visible .global .align 4 .b8 table[16] = {1, 2, 3};
.visible .const .align 4 .u32 one = 1;
.visible .global .attribute(.managed) .align 4 .f32 m = 0f3F800000;
.visible .global .texref tex;
.common .global .align 4 .u32 com;
.weak .global .align 4 .u32 in = 2;
.global .align 4 .u32 hidden = 3;
"""


def test_names_in_ptx():
    found = symbols.in_ptx(PTX)
    assert found.functions == ("_Z1ff", "k")
    assert found.variables == ("table", "one", "m", "tex")
    assert (found.weak, found.weak_variables) == (("_Z1wf",), ("in", "com"))
    assert (found.needed_functions, found.needed_variables) == (("give",), ("factor", "arr"))


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("x", "x"),
        ("_ZN7physics5tableE", "physics::table"),
        ("_Z5lerp3f", "lerp3"),
        ("_ZN2ns1x1yEf", "ns::x::y"),
        ("_ZNK2Op1fEf", "Op::f"),
        ("_Z4tileIfLi3EEvPT_", "tile"),
        ("_ZL5inner", "inner"),
        ("_ZZ1hIfET_iE1x", "h::x"),
        ("_ZZN2ns1hEvE5table_0", "ns::h::table"),
        ("_ZTVN2ns2OpE", "vtable for ns::Op"),
    ],
)
def test_plain_names_have_no_types(symbol, name):
    assert translation_units.plain_name(symbol) == name


def test_labels_and_lines_do_not_change_digests_of_code():
    code = b".weak .func  (.param .b32 r) w(\n)\n{\n\t.loc 1 2 3\n$L__BB0_1:\n\tadd.f32 %f1, %f2, 1;\n}\n"
    other = b".global .align 4 .u32 more = 3;\n" + code.replace(b"1 2 3", b"2 9 1").replace(b"BB0", b"BB7")
    assert weak_code.digests(code) == weak_code.digests(other) != weak_code.digests(code.replace(b", 1;", b", 2;"))


def test_numbers_of_local_variables_do_not_change_digests_of_code():
    """CUB's templates have such variables: the number counts the objects of the file."""
    code = (
        b".weak .global .align 4 .f32 _Z1wIfEvT_$36 = 1;\n"
        b".weak .func _Z1wIfEvT_(\n)\n{\n\tmov.u64 %rd1, _Z5otherIfEvT_$36;\n\tcall u, (%rd1);\n}\n"
        b".weak .global .align 4 .f32 _Z5otherIfEvT_$36 = 1;\n"
    )
    other = code.replace(b"$36", b"$34")
    assert weak_code.digests(code) == weak_code.digests(other)
    assert weak_code.digests(code) != weak_code.digests(other.replace(b"otherIfEvT_$34 = 1", b"otherIfEvT_$34 = 2"))
