"""Triton's kernels of tables: built without a GPU, and launched without Triton."""

from __future__ import annotations

import importlib
import struct
import tomllib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aotcuda.builder.entry import api
from aotcuda.errors import ArgumentError, FallbackWarning
from integration import projects

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("triton", reason="Triton is not installed (extra triton)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = projects.copy("tritonkernels", tmp_path_factory.mktemp("triton") / "project")
    output = projects.back_end(project).err
    (wheel,) = (project / "dist").glob("*.whl")
    # Triton's bindings would list objects at exit if a process still referred to some.
    assert [line for line in output.splitlines() if not line.startswith("aotcuda")] == [f"dist/{wheel.name}"]
    return wheel


def sections_of(image: bytes) -> dict[str, bytes]:
    """Return the sections of an ELF file by name, without aotcuda's reader."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, table + size * at) for at in range(count)]
    text = headers[names][4]
    return {
        image[text + name : image.index(b"\0", text + name)].decode(): image[offset : offset + length]
        for name, _, _, _, offset, length in headers
    }


ARRAY = """
import sys
import aotcuda.runtime.driver
from tritonkernels import kernels

class Array:
    def __init__(self, address):
        self.__cuda_array_interface__ = {
            "version": 3, "data": (address, False), "shape": (4096,), "typestr": "<f4", "strides": None}
"""


def test_launch_selects_a_variant_without_triton(cuda, wheel: Path) -> None:
    cuda.install(wheel)
    x, y, out = (cuda.allocate(4 * 4096) for _ in range(3))
    code = "".join(
        f"kernels.add[({-(-n // block)},)](Array({x}), Array({y}), Array({out + shift}), {n}, BLOCK={block})\n"
        for n, block, shift in [(4096, 128, 0), (4095, 1024, 0), (4096, 1024, 4)]
    )
    assert cuda.run(f"{ARRAY}{code}print({{'triton', 'torch', 'numpy'}} & {{*sys.modules}})") == "set()\n"
    launches = cuda.launches()
    assert [(call["kernel"], call["grid"], call["block"]) for call in launches] == [
        ("add__0_0", [32, 1, 1], [128, 1, 1]),
        ("add__1_1", [4, 1, 1], [128, 1, 1]),
        ("add__1_2", [4, 1, 1], [128, 1, 1]),
    ]
    assert bytes.fromhex(launches[1]["parameters"]) == struct.pack("<QQQi4xQQ", x, y, out, 4095, 0, 0)


def test_triton_compiles_for_a_gpu_without_an_image(
    cuda, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda.install(wheel)
    cuda.set(devices="7.5")
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    kernels = importlib.import_module("tritonkernels.kernels")
    x = cuda.array(np.zeros(4096, "<f4"))
    with pytest.warns(FallbackWarning, match=r"tritonkernels\.kernels, all of it"):
        kernels.scale[lambda meta: (4096 // meta["BLOCK"],)](x, 0.5, 4096)
    (call,) = cuda.launches()
    assert (call["kernel"], call["grid"], call["block"]) == ("scale__0_0", [8, 1, 1], [64, 1, 1])
    (image,) = (tmp_path / "cache").rglob("kernels.cubin")
    assert ".text.scale__0_0" in sections_of(image.read_bytes())
    with pytest.raises(ArgumentError, match=r"no packaged signature of .*scale accepts these arguments"):
        kernels.scale[1](cuda.array(np.zeros(4096)), 0.5, 4096)


MANY = """
import triton
import triton.language as tl

@triton.jit
def fill(x, V: tl.constexpr):
    tl.store(x, V)
"""


def test_variants_of_several_images_are_launched(cuda, tmp_path: Path) -> None:
    tables = ", ".join(f'{{ signature = "*fp32:16", constexprs.V = {value} }}' for value in range(18))
    module = f'frontend = "triton"\nkernels.fill = [{tables}]'
    project = projects.write(tmp_path / "project", MANY, aotcuda='arch = ["sm_90"]', module=module)
    wheel = projects.build_wheel(project)
    manifest = projects.manifest_of(projects.content(wheel), "pkg.k")
    assert [item["file"]["path"] for item in manifest["fatbins"]] == ["kernels.fatbin", "kernels-1.fatbin"]
    assert [item.get("fatbin", 0) for item in manifest["kernels"][0]["overloads"]] == [0] * 16 + [1] * 2
    cuda.install(wheel)
    kernels = importlib.import_module("pkg.k")
    x = cuda.array(np.zeros(64, "<f4"))
    for _ in range(3):
        for value in (0, 17, 15, 16):
            kernels.fill[1](x, V=value)
    launched = [f"fill__{value}_0" for value in (0, 17, 15, 16)]
    assert [call["kernel"] for call in cuda.launches()] == launched * 3
    assert kernels.fill.served == (12, 0, 0)


def test_total_of_progress_is_known_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = ", ".join(f'{{ signature = "*fp32:16", constexprs.V = {value} }}' for value in range(18))
    module = f'frontend = "triton"\nkernels.fill = [{tables}]'
    project = projects.write(tmp_path / "project", MANY, aotcuda='arch = ["sm_80", "sm_90"]', module=module)
    table = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["aotcuda"]
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "0")
    steps = projects.Steps()
    api.build(table, project, watcher=steps)
    steps.check(ends=True)
    assert {total for *_, total in steps.shown} == {0, 2 * 18 * 2}  # compiled and assembled, for two targets
