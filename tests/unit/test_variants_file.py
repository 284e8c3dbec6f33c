"""Variants files are read, and damaged or foreign ones are ignored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.builder.config.parser import parse
from aotcuda.builder.entry import backend
from aotcuda.builder.frontends.triton import config
from aotcuda.builder.plan import plan
from aotcuda.common import triton_files
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from aotcuda.builder.plan.plan import ModulePlan

KEY = 'tool.aotcuda.modules."pkg.ops".variants: pkg/ops.variants.json'
VARIANT: dict[str, Any] = {"types": ["*fp32:16", "i32"], "constexprs": {"BLOCK": 64}}


def content(*variants: Any, **kernel: Any) -> dict[str, Any]:
    """Return the file of one kernel."""
    kernel = {"parameters": ["x", "n", "BLOCK"], "variants": list(variants or (VARIANT,)), **kernel}
    return {"format": "aotcuda variants", "version": 1, "source": "pkg.ops", "kernels": {"add": kernel}}


def make_plan(folder: Path, file: Any, arch: tuple[str, ...] = ("sm_80", "sm_90"), **module: Any) -> ModulePlan:
    """Return the plan of a module whose file of variants has some content; bytes are written as they are."""
    (folder / "pkg").mkdir(exist_ok=True)
    if file is not None:
        data = file if isinstance(file, bytes) else json.dumps(file).encode()
        (folder / "pkg" / "ops.variants.json").write_bytes(data)
    table = {"source": "pkg.ops", "variants": "pkg/ops.variants.json", **module}
    (item,) = plan.make(
        parse({"arch": list(arch), "frontend": "triton", "modules": {"pkg.ops": table}}, environ={}), folder
    )
    return item


def test_a_variant_has_types_constants_and_options(tmp_path: Path) -> None:
    constants = {"A": None, "B": True, "C": 1, "D": 1.0, "E": "max", "F": {"dtype": "float16"}, "G": [1, [None]]}
    variant = {
        "types": ["*kfp32:16", "none", "i32:1"],
        "constexprs": constants,
        "num_warps": 8,
        "num_stages": 2,
        "num_ctas": 2,
        "maxnreg": 128,
        "enable_fp_fusion": False,
        "launch_pdl": True,
        "launch_cooperative_grid": True,
        "arch": ["sm_90"],
    }
    item = make_plan(tmp_path, content(variant, parameters=[*"xyn", *constants], python="add_kernel.fn"))
    (unit,) = item.units
    assert (unit.name, unit.python, unit.parameters) == ("add", "add_kernel.fn", (*"xyn", *constants))  # type: ignore[attr-defined]
    assert unit.signature == (
        "void(*kfp32:16, none, i32:1; A=None, B=True, C=1, D=1.0, E='max', F='tl.float16', G=(1, (None,)), "
        "num_warps=8, num_stages=2, num_ctas=2, maxnreg=128, enable_fp_fusion=False, launch_pdl=True, "
        "launch_cooperative_grid=True)"
    )
    assert [str(target) for target in item.compiled_for(unit)] == ["sm_90a"]
    assert item.in_place
    assert item.warnings == ()


def test_a_variant_is_made_once_for_its_targets(tmp_path: Path) -> None:
    item = make_plan(tmp_path, content(VARIANT, VARIANT, *({**VARIANT, "arch": [each]} for each in ("sm_90", "sm_75"))))
    targets = [[str(target) for target in item.compiled_for(unit)] for unit in item.units]
    assert targets == [["sm_80", "sm_90a"], ["sm_90a"]]


def test_a_kernel_in_the_table_replaces_that_of_the_file(tmp_path: Path) -> None:
    table = {"add": {"signature": "*fp32:16, i32", "constexprs": {"BLOCK": 32}}, "more": "*fp32:16"}
    item = make_plan(tmp_path, content(), kernels=table)
    assert [(unit.name, unit.recorded) for unit in item.units] == [("add", False), ("more", False)]


@pytest.mark.parametrize(
    ("file", "fact"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"{", "it is not JSON (Expecting property name"),
        (b"[" * 100_000, "it is not JSON (maximum recursion depth"),
        ([], "it is no file of aotcuda variants"),
        ({"format": "aotcuda tuning"}, "it is no file of aotcuda variants"),
        (content() | {"version": 2}, "its version is 2, and this aotcuda reads version 1"),
        (content() | {"source": "pkg.other"}, "it is for 'pkg.other', and not for pkg.ops"),
        (content() | {"kernels": []}, "kernels is not an object"),
        (content(parameters=[1]), "kernels.add.parameters is not a list of names"),
        (content([]), "kernels.add.variants[0] is not an object"),
        (content({**VARIANT, "types": [1]}), "kernels.add.variants[0].types is not a list of types"),
        (content({**VARIANT, "color": 3}), "variants[0].color is not an option with a possible value"),
        (content({**VARIANT, "num_stages": True}), "variants[0].num_stages is not an option with a possible value"),
        (content({**VARIANT, "maxnreg": 0}), "variants[0].maxnreg is not an option with a possible value"),
        (content({**VARIANT, "launch_pdl": 1}), "variants[0].launch_pdl is not an option with a possible value"),
        (content(python="a b"), "kernels.add.python is not a path of a function"),
        (content() | {"kernels": {"__x": {}}}, "kernels.__x is not a name of a kernel"),
        (content() | {"triton": 3}, "triton is not a string"),
        (content({**VARIANT, "constexprs": {"z": 1}}), "variants[0].constexprs has a name that the kernel's param"),
        (content({**VARIANT, "num_warps": 3}), "variants[0].num_warps is not an option with a possible value"),
        (content({**VARIANT, "arch": ["sm90"]}), "kernels.add.variants[0].arch is not a list of targets"),
    ],
)
def test_damaged_or_foreign_file_is_ignored(tmp_path: Path, file: Any, fact: str) -> None:
    (warning,) = make_plan(tmp_path, file).warnings
    assert warning.startswith(f"{KEY}: ")
    assert fact in warning
    assert warning.endswith("; it is ignored. Record it again: aotcuda record --write -- COMMAND")
    if isinstance(file, dict):  # without a fallback it is an error
        with pytest.raises(ConfigError, match=r"it is ignored|it is for"):
            make_plan(tmp_path, file, source="pkg._ops")


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ({"types": ["tensordesc<fp16[64, 3]>", "i32"]}, '"tensordesc<fp16[64, 3]>" is not a type of a tensor descr'),
        ({"constexprs": {"BLOCK": [1, {"float": "2.0"}]}}, 'a constexpr is {"float": "2.0"}'),
        ({"constexprs": {"BLOCK": {"torch": "load"}}}, 'a constexpr is {"torch": "load"}'),
        ({"constexprs": {"BLOCK": {"dtype": "float7"}}}, 'a constexpr is {"dtype": "float7"}'),
        ({"constexprs": {"BLOCK": "torch.float16"}}, "a constexpr is the string 'torch.float16', which stands"),
        ({"constexprs": {"BLOCK": "tl.float16"}}, "a constexpr is the string 'tl.float16', which stands for a type"),
    ],
)
def test_variants_that_cannot_be_packaged_are_left_out(tmp_path: Path, variant: Any, reason: str) -> None:
    item = make_plan(tmp_path, content({**VARIANT, **variant}, {**VARIANT, **variant, "num_warps": 2}, VARIANT))
    assert len(item.units) == 1
    (warning,) = item.warnings
    assert warning.startswith(f"{KEY}: add: 2 of its variants cannot be packaged, since {reason}")


def test_choices_of_autotuners_come_along_unless_they_are_damaged(tmp_path: Path) -> None:
    file = {"format": "aotcuda tuning", "version": 1, "source": "pkg.ops", "kernels": {}}
    make_plan(tmp_path, content())
    tuning = tmp_path / "pkg" / triton_files.tuning_name("ops.variants.json")
    tuning.write_text(json.dumps(file))
    item = make_plan(tmp_path, content())
    assert (item.tuning, item.warnings) == (tuning.read_bytes(), ())
    table = {"modules": {"pkg.ops": {"source": "pkg.ops", "variants": "pkg/ops.variants.json"}}}
    assert backend.sdist_files(table, tmp_path) == ["pkg/ops.tuning.json", "pkg/ops.variants.json"], "for sdists"
    for damaged, fact in (({}, "it is no file of aotcuda tuning"), ({**file, "source": "other"}, "other")):
        tuning.write_text(json.dumps(damaged))
        item = make_plan(tmp_path, content())
        assert (item.tuning, len(item.units)) == (b"", 1)
        assert fact in item.warnings[0]


@pytest.mark.parametrize(("recorded", "installed", "warns"), [("3.8.0", "3.9.0", True), ("3.9.0", "3.9.0+git", False)])
def test_build_by_another_release_of_triton_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: str, installed: str, warns: bool
) -> None:
    monkeypatch.setattr(config.metadata, "version", lambda _: installed)
    item = make_plan(tmp_path, {**content(), "triton": recorded})
    assert len(item.units) == 1
    assert bool(item.warnings) == warns
    if warns:
        assert "recorded by Triton 3.8.0, and this build compiles it by Triton 3.9.0" in item.warnings[0]
        assert "write triton==3.8.0 into build-system.requires" in item.warnings[0]


def types_of(item: ModulePlan) -> list[str]:
    """Return the types of the general variants of a plan."""
    return [", ".join(map(str, unit.types)) for unit in item.units if unit.optional]  # type: ignore[attr-defined]


PLAIN, ODD = ["*fp32:16", "i32:16", "i32:16", "i32:1"], ["*fp32", "i32", "i32", "i32:1"]


@pytest.mark.parametrize(
    ("rows", "sizes", "wanted"),
    [
        ([PLAIN], None, []),
        ([PLAIN], [], []),
        ([PLAIN], [["n"], ["m"]], ["*fp32:16, i32, i32:16, i32:1", "*fp32:16, i32:16, i32, i32:1"]),
        ([PLAIN], [["n", "m"]], ["*fp32:16, i32, i32, i32:1"]),
        ([PLAIN], [["s"]], ["*fp32:16, i32:16, i32:16, i32"]),
        ([PLAIN, ODD], None, ["*fp32:16, i32, i32, i32:1"]),
        ([PLAIN, ODD], [["s"]], ["*fp32:16, i32, i32, i32:1", "*fp32:16, i32, i32, i32"]),
        ([PLAIN, ["*fp32:16", "i32:16", "i32:1", "i32:1"]], None, ["*fp32:16, i32:16, i32, i32:1"]),
        ([PLAIN, ["*fp16:16", *PLAIN[1:]]], [["n"]], ["*fp32:16, i32, i32:16, i32:1", "*fp16:16, i32, i32:16, i32:1"]),
        ([PLAIN, ["*fp32:16", "i64:16", "i32:16", "i32:1"]], None, []),
        ([PLAIN], [["n"], ["m"], ["s"], ["x"]], ["*fp32:16, i32, i32:16, i32:1", "*fp32:16, i32:16, i32, i32:1",
                                                  "*fp32:16, i32:16, i32:16, i32"]),
        ([["none", *PLAIN[1:]]], [["n"]], ["none, i32, i32:16, i32:1"]),
    ],
)  # fmt: skip
def test_general_variants_lack_hints_of_one_size(
    tmp_path: Path, rows: list[list[str]], sizes: list[list[str]] | None, wanted: list[str]
) -> None:
    kernel = {"parameters": ["x", "n", "m", "BLOCK", "s"], **({} if sizes is None else {"sizes": sizes})}
    file = content(*({"types": types, "constexprs": {"BLOCK": 64}} for types in rows), **kernel)
    item = make_plan(tmp_path, file)
    assert types_of(item) == wanted
    assert [unit.symbol for unit in item.units] == [f"add__{number}_0" for number in range(len(item.units))]
    assert types_of(make_plan(tmp_path, file, general=False)) == []


def test_sizes_of_unknown_parameters_are_refused(tmp_path: Path) -> None:
    (warning,) = make_plan(tmp_path, content(sizes=[["z"]])).warnings
    assert "kernels.add.sizes[0] is not a list of the kernel's parameters" in warning


def test_front_ends_without_variants_say_so() -> None:
    module = {"source": "pkg._ops", "variants": "ops.json", "kernels": {"add": "void(int32)"}}
    with pytest.raises(ConfigError, match=r"variants: the front end numba-cuda has no variants; remove the key, or"):
        parse({"arch": ["sm_90"], "modules": {"pkg.ops": module}}, environ={})
