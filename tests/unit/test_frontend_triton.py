"""The front end for Triton: its tables, and compilation and errors if Triton is installed."""

from __future__ import annotations

import ast
import json
import pickle
import re
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aotcuda.arch import parse as target_of
from aotcuda.binary import cubin
from aotcuda.builder.compile import left_out, process
from aotcuda.builder.config.model import Options
from aotcuda.builder.config.parser import parse
from aotcuda.builder.emit import stub
from aotcuda.builder.frontends.protocol import CompiledKernel, LeftOut, Session
from aotcuda.builder.frontends.triton import config, ptx, type_notation
from aotcuda.builder.plan import plan
from aotcuda.errors import CompileError, ConfigError, SourceError, ToolchainError
from aotcuda.manifest import constants
from support.errors import assert_message, cases

ADD = "*fp32, *fp32, *fp32, i32"


def table(kernel: Any, *, arch: tuple[str, ...] = ("sm_80",), **module: Any) -> dict[str, Any]:
    return {
        "arch": [*arch],
        "frontend": "triton",
        "modules": {"pkg.k": {"source": "pkg._k", "kernels": {"add": kernel}, **module}},
    }


def units(kernel: Any, **module: Any) -> list[config.TritonUnit]:
    (module_,) = parse(table(kernel, **module), environ={}).modules
    return config.units(module_)


class TestTable:
    def test_tables_and_signatures_in_a_list_are_variants(self) -> None:
        half = {"signature": "*fp16:16, i32:1", "constexprs": {"A": "None", "DT": "tl.float16"}, "num-warps": 8}
        variants = units(["*fp32:16, fp32", half])
        assert [(unit.signature, unit.symbol) for unit in variants] == [
            ("void(*fp32:16, fp32; num_warps=4, num_stages=3)", "add__0_0"),
            ("void(*fp16:16, i32:1; A=None, DT='tl.float16', num_warps=8, num_stages=3)", "add__1_0"),
        ]
        assert [unit.key.partition(".kernels.")[2] for unit in variants] == ["add[0]", "add[1]"]

    @pytest.mark.parametrize(
        ("signature", "hints", "wanted"),
        [
            ("*fp32, i32, fp32", {}, ["*fp32:16, i32:16, fp32", "*fp32:16, i32, fp32", "*fp32, i32, fp32"]),
            ("*fp32:16, i32:1", {}, ["*fp32:16, i32:1"]),
            ("*fp32:16, i32", {}, ["*fp32:16, i32"]),
            ("*fp32, i32", {1: {1, 16}}, ["*fp32:16, i32", "*fp32, i32"]),
            ("*fp32, i32", {0: {16}, 1: {1, 16}}, ["*fp32, i32"]),
            ("fp32", {}, ["fp32"]),
        ],
    )
    def test_signature_without_hints_gives_three_variants(
        self, signature: str, hints: dict[int, set[int]], wanted: list[str]
    ) -> None:
        specialized = [item for unit in units({"signature": signature}) for item in config.completed(unit, hints)]
        assert [", ".join(map(str, item.types)) for item in specialized] == wanted

    def test_options_and_targets_belong_to_a_variant(self) -> None:
        options = {"maxnreg": 64, "launch-pdl": True, "launch-cooperative-grid": True, "fma": False}
        kernel = [
            {"signature": "*i8:16", "num-warps": 8, **options, "arch": ["sm_90"]},
            {"signature": "*i8:16", "fma": True, "arch": ["compute_80"]},
        ]
        (planned,) = plan.make(parse(table(kernel, arch=("sm_80", "sm_90", "compute_80")), environ={}))
        launched = "maxnreg=64, enable_fp_fusion=False, launch_pdl=True, launch_cooperative_grid=True"
        assert [(unit.signature, list(map(str, planned.compiled_for(unit)))) for unit in planned.units] == [
            (f"void(*i8:16; num_warps=8, num_stages=3, {launched}) on sm_90a", ["sm_90a"]),
            ("void(*i8:16; num_warps=4, num_stages=3, enable_fp_fusion=True) on sm_80", ["sm_80"]),
        ]
        assert [str(target) for target in planned.targets] == ["sm_80", "sm_90a", "compute_80"]
        assert [unit.options.fma for unit in planned.units] == [False, True]

    def test_general_variants_come_last_and_are_optional(self) -> None:
        kernel = ["*fp32:16, i32:16, i32:16", "*fp32, i32:16, i32:1"]
        every = units(kernel)
        assert [(unit.symbol, ", ".join(map(str, unit.types)), unit.optional) for unit in every] == [
            ("add__0_0", "*fp32:16, i32:16, i32:16", False),
            ("add__1_0", "*fp32, i32:16, i32:1", False),
            ("add__2_0", "*fp32:16, i32:16, i32", True),
        ]
        assert units(kernel, general=False) == [replace(unit) for unit in every[:2]]

    @pytest.mark.parametrize(
        ("counts", "wanted"),
        [
            ([3], [3]),
            ([16], [16]),
            ([17], [16, 1]),
            ([40, 3], [16, 16, 11]),
            ([10, 10, 6], [10, 16]),
            ([4, 20], [4, 16, 4]),
            ([1] * 33, [16, 16, 1]),
        ],
    )
    def test_variants_are_divided_into_images(self, counts: list[int], wanted: list[int]) -> None:
        unit = units("*i8:16")[0]
        listed = [
            replace(unit, name=f"k{kernel}", symbol=f"k{kernel}__{number}")
            for kernel, count in enumerate(counts)
            for number in range(count)
        ]
        images = [each.image for each in config._in_images(listed)]
        assert list(Counter(images).values()) == wanted
        assert list(dict.fromkeys(images)) == ["", *map(str, range(1, len(wanted)))]

    @pytest.mark.parametrize(
        ("arch", "wanted"),
        [("sm_89", "sm_89"), ("sm_90", "sm_90a"), ("sm_100a", "sm_100a"), ("compute_80", "compute_80")],
    )
    def test_code_for_9_0_and_later_is_for_one_architecture(self, arch: str, wanted: str) -> None:
        (planned,) = plan.make(parse(table(ADD, arch=(arch, wanted)), environ={}))
        assert [str(target) for target in planned.targets] == [wanted]


def test_a_kernel_with_descriptors_has_a_unit_for_each_target() -> None:
    signature = "tensordesc<fp16[64, 64]>, *fp32:16"
    kernels = {"add": {"signature": signature}, "one": {"signature": signature, "arch": ["sm_90"]}, "k": "*fp32:16"}
    project = table("*fp32", arch=("sm_80", "sm_90", "compute_80"))
    project["modules"]["pkg.k"]["kernels"] = kernels
    (planned,) = plan.make(parse(project, environ={}))
    targets = {unit.symbol: [str(target) for target in planned.compiled_for(unit)] for unit in planned.units}
    assert targets == {
        "add__0_0_sm_80": ["sm_80"],
        "add__0_0_sm_90a": ["sm_90a"],
        "one__0_0_sm_90a": ["sm_90a"],
        "k__0_0": ["sm_80", "sm_90a"],
    }
    lacking = LeftOut(error=CompileError("add: too large"), reason="too large")
    first, *_, only, _ = planned.units
    rest, removed = left_out.remove_kernels(planned, {(first, first.only[0]): lacking}, "warn")
    assert ([unit.symbol for unit in rest.units], len(removed.notes), len(removed.warnings)) == ([*targets][1:], 1, 1)
    with pytest.raises(CompileError, match="too large"):
        left_out.remove_kernels(planned, {(only, only.only[0]): lacking}, "warn")


@cases("triton.txt", "tables")
def test_error_in_a_table_names_the_key(text: str, expected: str) -> None:
    module = tomllib.loads(text)
    with pytest.raises(ConfigError) as caught:
        plan.make(parse(table(module.pop("kernels")["add"], **module), environ={}))
    assert_message(str(caught.value), expected)


PTX = """.version 8.8
.target sm_80
.address_size 64

.extern .func  (.param .b32 func_retval0) vprintf
(
	.param .b64 vprintf_param_0
)
;
.extern .shared .align 16 .b8 global_smem[];
.global .align 1 .b8 message_0[6] = {97, 100, 100};
.visible .entry add(
	.param .u64 .ptr .global .align 1 add_param_0,
	.param .u8 add_param_1,
	.param .u64 .ptr .global .align 1 add_param_2
)
.reqntid 128
{
	ld.param.b64 	%rd4, [add_param_0];
	add.s32 	%r1, %r1, 1;
	mov.b64 %rd1, message_0;
	ret;
}
"""


def test_ptx_of_several_kernels_becomes_one_text() -> None:
    assert ptx.fields(PTX) == [(0, 8, 1), (8, 1, 1), (16, 8, 1)]
    first, second = (ptx.rename(PTX, name) for name in ("one", "two"))
    for line in ("[one_param_0]", "\tadd.s32", "mov.b64 %rd1, one__message_0;", "vprintf\n"):
        assert line in first
    joined = ptx.merge([first, second.replace(".align 16 .b8 global", ".align 128 .b8 global")])
    assert joined.count(".version 8.8") == joined.count(".extern .func") == 1
    assert re.findall(r"\.extern \.shared .*", joined) == [".extern .shared .align 128 .b8 global_smem[];"]
    assert re.findall(r"\.entry (\w+)", joined) == ["one", "two"]
    with pytest.raises(CompileError, match="differs in its head"):
        ptx.merge([PTX, PTX.replace("sm_80", "sm_90a")])


SOURCE = """
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr, ACT: tl.constexpr = None):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) + tl.load(y + offsets), mask=offsets < n)

@triton.jit
def wrong(x):
    tl.store(x, undefined)

@triton.jit
def misspelt(value):
    return tl.minimun(value, 1.0)

@triton.jit
def calling(x):
    tl.store(x, misspelt(tl.load(x)))

@triton.jit
def helper(value):
    return tl.minimum(value, 1.0)

def plain(x):
    pass

def hook(*args):
    pass

hooked = triton.jit(plain)
hooked.add_pre_run_hook(hook)
tuned = triton.autotune(configs=[triton.Config({"BLOCK": 64}, pre_hook=hook)], key=["n"])(add)
limited = triton.autotune(configs=[triton.Config({"BLOCK": 64}, maxnreg=64)], key=["n"])(add)
asserting = triton.jit(debug=True)(add.fn)
untuned = triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2)], key=["n"])(add)

@triton.jit
def annotated(x: "*fp32", n: tl.int64, factor: tl.float32):
    pass

@triton.jit
def typed(x, DT: tl.constexpr, ACT: tl.constexpr, TO: tl.constexpr = tl.float32):
    value = tl.load(x).to(DT)
    if ACT is not None:
        value = -value
    tl.store(x, value.to(TO))

@triton.jit
def filled(x, V: tl.constexpr):
    tl.store(x, V)

@triton.jit
def staged(x, num_stages: tl.constexpr):
    tl.store(x, num_stages)

@triton.heuristics({"EVEN": lambda args: args["n"] % 64 == 0})
@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def both(x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr = 32, HEAD: tl.constexpr = None):
    tl.store(x + tl.arange(0, BLOCK), 1.0)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory):
    pytest.importorskip("triton", reason="Triton is not installed (extra triton)")
    folder = tmp_path_factory.mktemp("sources")
    (folder / "triton_sources.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield "triton_sources"


def compiled(unit: Any, loaded: Any, arch: str) -> CompiledKernel:
    """Compile a kernel; raise the error if it is left out."""
    from aotcuda.builder.frontends.triton.compiler import FRONT_END

    (result,) = FRONT_END.compile_unit(unit, loaded, [target_of(arch)]).values()
    if isinstance(result, LeftOut):
        raise result.error
    assert isinstance(result, CompiledKernel)
    return result


@cases("triton.txt", "sources")
def test_table_that_does_not_fit_the_source_is_refused(sources: str, text: str, expected: str) -> None:
    from aotcuda.builder.frontends.triton.compiler import FRONT_END

    kernel = tomllib.loads(text)["kernels"]["add"]
    with pytest.raises((CompileError, SourceError)) as caught:
        for unit in units(kernel, source=sources):
            loaded = FRONT_END.load(unit)
            for settled, _ in FRONT_END.resolve(unit, loaded):
                compiled(settled, loaded, "sm_80")
    assert_message(f"{type(caught.value).__name__}: {caught.value}", expected)


@pytest.mark.parametrize(
    ("python", "place"), [("wrong", "12: tl.store(x, undefined)"), ("calling", "16: return tl.minimun(value, 1.0)")]
)
def test_errors_of_triton_have_the_users_line(sources: str, python: str, place: str) -> None:
    from aotcuda.builder.frontends.triton.compiler import FRONT_END

    (unit,) = units({"signature": "*fp32:16", "python": python}, source=sources)
    loaded = FRONT_END.load(unit)
    with pytest.raises(CompileError) as caught:
        compiled(unit, loaded, "sm_80")
    assert str(caught.value).endswith(f"triton_sources.py:{place})")


def variants_of(source: str, kernel: Any) -> list[Any]:
    """Return the compiled variants of a kernel."""
    from aotcuda.builder.frontends.triton.compiler import FRONT_END

    variants = []
    for unit in units(kernel, source=source):
        loaded = FRONT_END.load(unit)
        variants += [compiled(item, loaded, "sm_80") for item, _ in FRONT_END.resolve(unit, loaded)]
    return variants


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        ([{"BLOCK": 64, "EVEN": True, "HEAD": 8}, {"BLOCK": 64, "EVEN": False, "HEAD": 8}], {"BLOCK": 64, "HEAD": 8}),
        ([{"BLOCK": 64, "EVEN": True}, {"BLOCK": 128, "EVEN": True}], {"HEAD": None}),
    ],
)
def test_launches_may_omit_defaults_and_what_all_variants_share(
    sources: str, kernel: list[dict[str, Any]], wanted: dict[str, Any]
) -> None:
    tables = [
        {"python": "both.fn", "signature": "*fp32:16, i32:16", "constexprs": item, "num-warps": 8} for item in kernel
    ]
    variant, *_ = variants_of(sources, tables)
    defaults = {each["name"]: each["default"] for each in variant.definition.arguments if "default" in each}
    assert {name: value for name, value in defaults.items() if name.isupper()} == wanted
    assert (defaults["num_warps"], defaults["num_stages"], defaults["maxnreg"]) == (8, 3, None)


NUM_STAGES: dict[str, Any] = {"python": "staged", "signature": "*fp32:16", "constexprs": {"num_stages": 2}}


def test_kernels_that_the_assembler_refuses_are_left_out(sources: str) -> None:
    from aotcuda.builder.frontends.triton.compiler import FRONT_END

    (good,) = variants_of(sources, NUM_STAGES)[0].code
    text = good.data.replace(good.name.encode(), b"bad")
    bad = replace(good, name="bad", data=text.replace(b"ret;", b"return_;"))
    assembled = FRONT_END.assembler(target_of("sm_80")).assemble("pkg.k", [good, bad], Options())
    ((symbol, reason),) = assembled.left_out
    assert symbol == "bad"
    assert reason.startswith("Triton's assembler refuses the kernels for sm_80")
    assert [kernel.name for kernel in cubin.read(assembled.data, "image").kernels] == [good.name]
    with pytest.raises(CompileError, match="assembler refuses"):
        FRONT_END.assembler(target_of("sm_80")).assemble("pkg.k", [bad], Options())


def test_a_stub_has_each_name_once(sources: str) -> None:
    variant, *_ = variants_of(sources, NUM_STAGES)
    overload = {"signature": variant.signature, "parameters": list(variant.parameters)}
    record = {"name": "staged", "arguments": list(variant.definition.arguments), "overloads": [overload]}
    text = stub.render({"by_grid": True, "kernels": [record], "functions": []}, "# mark")  # type: ignore[typeddict-item]
    ast.parse(text)
    assert len(re.findall(r"\bnum_stages: ", text)) == 1


def test_types_and_none_are_constexprs(sources: str) -> None:
    values_of = [{"DT": dt, "ACT": act} for act in ("None", "none") for dt in ("tl.float16", "tl.float32")]
    tables = [{"python": "typed", "signature": "*fp32:16", "constexprs": each} for each in values_of]
    variants = variants_of(sources, tables)
    values = [[each["value"] for each in item.parameters[1:4]] for item in variants]
    assert values == [[dt, act, "tl.float32"] for act in (None, "none") for dt in ("tl.float16", "tl.float32")]
    texts = [item.code[0].data.decode() for item in variants]
    assert ["cvt.rn.f16.f32" in text for text in texts] == [True, False, True, False]
    assert ["neg." in text or "sub." in text or "xor." in text for text in texts] == [False, False, True, True]


SPECIAL: list[tuple[float, int]] = [  # with the bits in float32
    (float("inf"), 0x7F800000),
    (float("-inf"), -0x00800000),
    (float("nan"), 0x7FC00000),
    (-0.0, -0x80000000),
    (0.0, 0),
]


def test_each_float_is_its_own_constant(sources: str) -> None:
    tables = [{"python": "filled", "signature": "*fp32:16", "constexprs": {"V": value}} for value, _ in SPECIAL]
    every = units(tables, source=sources)
    again = pickle.loads(pickle.dumps(every))
    assert again == every, "NaN equals NaN"
    assert len({unit.constexprs for unit in every[2:]} | {every[0].constexprs}) == 3, "as numbers compare"
    for (value, bits), variant in zip(SPECIAL, variants_of(sources, tables), strict=True):
        lines = re.findall(r"^.*(?:mov\.b32|st\.global).*$", variant.code[0].data.decode(), re.MULTILINE)
        numbers = {word for line in lines for word in re.findall(r"-?\b\w+\b", line)}
        assert numbers & {str(bits), f"0f{bits & 0xFFFFFFFF:08X}"}, (value, lines)
        stored = variant.parameters[1]["value"]
        assert repr(constants.decode(json.loads(json.dumps(stored, allow_nan=False)))) == repr(value)


def test_an_unknown_target_of_tritons_assembler_is_refused(sources: str) -> None:
    from aotcuda.builder.frontends.triton.compiler import TritonFrontEnd

    del sources
    front, session = TritonFrontEnd(), Session(root="/", cache=None, arch_key="AOTCUDA_ARCH", warm=False)
    front.prepare(replace(session, targets=[target_of("sm_90a"), target_of("compute_80")]))
    with pytest.raises(ToolchainError) as caught:
        front.prepare(replace(session, targets=[target_of("sm_130a")]))
    assert re.match(
        r"AOTCUDA_ARCH: sm_130 is not known to Triton \d.*, which builds for sm_\d+, .*sm_100, .*; write sm_\d+, or ",
        str(caught.value),
    )


_WITHOUT_EFFECT = re.compile(r"CC$|AMDGCN_")
"""Variables of Triton that do not change code for NVIDIA's GPUs: C compilers for launchers, settings for AMD."""


@pytest.mark.needs("triton")
def test_pointers_are_to_the_types_that_triton_compiles_for_gpus_of_nvidia() -> None:
    from triton import _utils
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend

    options = CUDABackend(GPUTarget("cuda", 90, 32)).parse_options({"enable_fp_fusion": True})
    types = {*_utils.type_canonicalisation_dict.values()} - {"void"}
    compiled = {name for name in types if not name.startswith("fp8") or name in options.supported_fp8_dtypes}
    assert {*type_notation.ELEMENTS} - {"i1"} == compiled


def test_variables_of_triton_do_not_reach_a_build() -> None:
    """`triton/knobs.py` declares the variables; `GetEnv.hpp` declares those that only C++ code reads."""
    triton = pytest.importorskip("triton")
    text = Path(triton.__file__).with_name("knobs.py").read_text()
    declared = {*re.findall(r"\benv_\w+\(\s*\"([A-Z]\w+)\"", text)}
    assert {"TRITON_DEBUG", "DISABLE_PTXAS_OPT", "NVPTX_ENABLE_DUMP"} <= declared
    in_cpp = {"ALLOW_LHS_TMEM_LAYOUT_CONVERSION", "DISABLE_LLVM_OPT", "DISABLE_MMA_V3", "LLVM_PASS_PLUGIN_PATH"}
    names = {name for name in declared | in_cpp if not _WITHOUT_EFFECT.match(name)}
    assert names.intersection(process.environment(dict.fromkeys(names, "1"), "triton")) == set()
