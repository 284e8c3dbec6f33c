"""Test the report on a module and on bare images, as JSON and as a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import cubin
from aotcuda.tools.inspect import summary
from aotcuda.tools.inspect.collect import collect
from aotcuda.tools.inspect.report import Module, PackedImage, Report, Symbol, SymbolImage
from aotcuda.tools.inspect.table import render
from support import images, modules

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def module(tmp_path: Path) -> dict:
    """Return `mypkg.kernels` as JSON."""
    (report,) = collect(str(modules.write_wheel(tmp_path))).json()["modules"]
    return report


def test_json_of_a_function_has_prototype_and_images(module: dict) -> None:
    assert set(module) == {"name", "toolchain", "min_driver", "settings", "images", "symbols"}
    assert (module["settings"]["fallback"], module["settings"]["recipe"]) == ("jit", False)
    assert [image["of"] for image in module["images"]] == ["kernels"] * 3 + ["functions"] * len(modules.SASS)
    assert (module["toolchain"], module["min_driver"]) == ({"numba-cuda": "0.30.4", "nvjitlink": "13.0"}, "580.65")
    symbol = next(symbol for symbol in module["symbols"] if symbol["kind"] == "function")
    resources = dict.fromkeys(("registers", "shared", "dynamic", "local", "constant", "spills"))
    assert symbol == {
        "name": "add_i32",
        "symbol": "add_i32",
        "kind": "function",
        "abi": "c",
        "prototype": "int add_i32(int x, int y);",
        "signature": "int32(int32, int32)",
        "origin": "mypkg._kernels:add",
        "images": [
            {"arch": arch, "kind": "ltoir", "bytes": len(images.ltoir("axpy", arch)), **resources}
            for arch in modules.SASS
        ],
    }


def test_json_of_a_kernel_has_the_resources_of_each_image(module: dict) -> None:
    for symbol in module["symbols"]:
        for image in symbol["images"]:
            if image["kind"] != "sass":
                continue
            kernels = {item.name: item for item in cubin.read(images.numba_cubin(image["arch"]), "image").kernels}
            kernel = kernels[symbol["symbol"]]
            facts = [image[key] for key in ("bytes", "registers", "shared", "local", "constant")]
            assert facts == [kernel.code, kernel.registers, kernel.shared, kernel.local, kernel.constant]


def test_spills_and_dynamic_shared_memory_come_from_the_manifest(tmp_path: Path) -> None:
    content, fatbins = modules.contents()
    overload = content["kernels"][0]["overloads"][0]
    overload["resources"] = {"sm_90": {"registers": 1, "shared": 1, "local": 1, "constant": 1, "spills": 24}}
    shared = {**dict.fromkeys(modules.SASS, 64), "sm_90": 90124, "compute_75": 64}
    overload["launches"] = {arch: {"threads": 128, "shared": number} for arch, number in shared.items()}
    report = collect(str(modules.write(tmp_path, content, fatbins)))
    facts = {(symbol.symbol, image.arch): image for symbol in report.modules[0].symbols for image in symbol.images}
    assert [key for key, image in facts.items() if image.spills is not None] == [("tiled", "sm_90")]
    assert (facts["tiled", "sm_90"].spills, facts["tiled", "sm_90"].dynamic) == (24, 90124)
    assert facts["tiled", "sm_90"].registers != 1  # the number comes from the image
    text = render(report)
    assert " dynamic: dynamic shared memory, per block; the compiler fixed its size." in " ".join(text.split())
    assert re.search(r"compute_75 +ptx +- +- +- +- +64 +- +-\n", text)
    lines = [line.split() for line in summary.render(report).splitlines()]
    assert (lines[0][5], lines[1][5], lines[2][5]) == ("dynamic", "90124", "-")


def test_image_without_manifest_lists_kernels_and_functions(tmp_path: Path) -> None:
    contents = [
        ("sass", "sm_75", images.numba_cubin("sm_75")),
        ("sass", "sm_90a", images.cuda_cubin("sm_90a", "-maxrregcount=32")),
        ("ptx", "compute_75", images.numba_ptx("compute_75")),
        ("ltoir", "sm_90", images.ltoir("axpy", "sm_90")),
    ]
    (tmp_path / "some.fatbin").write_bytes(images.pack(contents, "-compress-mode=size"))
    (report,) = collect(str(tmp_path / "some.fatbin")).json()["modules"]
    assert (report["name"], report["toolchain"], report["min_driver"]) == ("some.fatbin", {}, None)
    targets = {symbol["name"]: [image["arch"] for image in symbol["images"]] for symbol in report["symbols"]}
    assert targets["axpy"] == ["sm_75", "compute_75"]
    assert targets["bounded"] == ["sm_90a"]
    facts = {tuple(symbol[key] for key in ("origin", "abi", "signature")) for symbol in report["symbols"]}
    assert facts == {("some.fatbin", None, None)}
    (tmp_path / "some.cubin").write_bytes(images.linked_cubin("sm_90"))
    symbols = collect(str(tmp_path / "some.cubin")).json()["modules"][0]["symbols"]
    names = [f"{symbol['kind']} {symbol['name']}" for symbol in symbols]
    kernels = ["bounded", "calls", "empty", "large", "recurse", "spills"]
    assert names == ["function exported", *(f"kernel {name}" for name in kernels)]


TABLE = """\
mypkg.kernels
  in          dist/mypkg-1.0-py3-none-any.whl/mypkg/kernels.aotcuda
  toolchain   llvmlite 0.50.0, numba 0.68.1, numba-cuda 0.30.4, nvfatbin 13.0.85, nvjitlink 13.0.88,
              nvvm 13.0.88
  min driver  580.65
  front end   numba-cuda
  load        import

  image       kind   bytes  packed
  sm_90       sass   13416    2962
  compute_75  ptx     3748     613
  sm_90       ltoir   2360    1737

  add_i32  (function, c ABI, from mypkg._kernels:add)
    int add_i32(int x, int y);
    int32(int32, int32)
    in sm_90 (ltoir)

  axpy  (kernel, numba ABI, from mypkg._kernels:axpy)
    void(float32, Array(float32, 1, 'C', False, aligned=True), Array(float32, 1, 'C', False,
        aligned=True))
    symbol axpy__0
    arch        kind  bytes  registers  spills  shared  local  constant
    sm_89       sass   1024       255!      0     1408     32       648
    sm_90       sass    768        12      16!    1408      ?       648
    compute_75  ptx       -         -       -        -      -         -

Sizes are in bytes; a kernel's size is its machine code. spills: stored and loaded for lack of
registers. shared: static, per block. local: stack, per thread. ?: unknown; for local, because of
recursion. -: not compiled yet. !: registers spilled, or all 255 in use."""


def example() -> Report:
    """Return a module with a function, and a kernel that has the most registers for one GPU and spills on another."""
    array = "Array(float32, 1, 'C', False, aligned=True)"
    versions = "numba-cuda 0.30.4, numba 0.68.1, llvmlite 0.50.0, nvjitlink 13.0.88, nvfatbin 13.0.85, nvvm 13.0.88"
    function = Symbol(
        name="add_i32",
        symbol="add_i32",
        kind="function",
        abi="c",
        prototype="int add_i32(int x, int y);",
        signature="int32(int32, int32)",
        origin="mypkg._kernels:add",
        images=(SymbolImage(arch="sm_90", kind="ltoir", size=2360),),
    )
    kernel = Symbol(
        name="axpy",
        symbol="axpy__0",
        kind="kernel",
        abi="numba",
        prototype=None,
        signature=f"void(float32, {array}, {array})",
        origin="mypkg._kernels:axpy",
        images=(
            SymbolImage(
                arch="sm_89", kind="sass", size=1024, registers=255, shared=1408, local=32, constant=648, spills=0
            ),
            SymbolImage(arch="sm_90", kind="sass", size=768, registers=12, shared=1408, constant=648, spills=16),
            SymbolImage(arch="compute_75", kind="ptx", size=3748),
        ),
    )
    module = Module(
        name="mypkg.kernels",
        where="dist/mypkg-1.0-py3-none-any.whl/mypkg/kernels.aotcuda",
        toolchain=dict(item.split() for item in versions.split(", ")),
        min_driver="580.65",
        settings={"front end": "numba-cuda", "load": "import"},
        images=(
            PackedImage(arch="sm_90", kind="sass", size=13416, packed=2962),
            PackedImage(arch="compute_75", kind="ptx", size=3748, packed=613),
            PackedImage(arch="sm_90", kind="ltoir", size=2360, packed=1737),
        ),
        symbols=(function, kernel),
    )
    return Report(modules=(module,))


def test_table_is_aligned_and_fits_100_columns() -> None:
    text = render(example())
    assert text == TABLE
    assert max(map(len, text.splitlines())) <= 100


SUMMARY = """\
kernel              bytes  registers  spills  shared  local  worst  signature
mypkg.kernels.axpy   1024       255!     16!    1408      ?  sm_90  void(float32, Array(float32, 1,…

1 kernels and signatures; 1 spill registers, 1 use all 255. Each number is the largest of any
target, and worst is the target that spills most or has the most registers."""


def test_summary_has_the_largest_numbers_and_the_worst_target() -> None:
    text = summary.render(example(), width=100)
    assert text == SUMMARY
    assert "aligned=True))" in summary.render(example())  # nothing is cut in a pipe
    assert max(map(len, summary.render(example(), width=60).splitlines())) <= 70  # numbers are never cut
    assert "signature" not in summary.render(example(), width=60).splitlines()[0]
