"""Test that equal constant arrays of an image are merged, and that a build refuses too large arrays."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile

from aotcuda.binary import fatbin
from integration import projects
from support import front_ends

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "from numba import cuda\nimport numpy as np\n"
KERNEL = """
{table} = (np.arange({size}) + {first}).astype({dtype!r})

@cuda.jit
def {name}(x):
    table = {how}
    x[0] = table[int(x[0])]
"""


def source(*tables: tuple[int, int, str], as_global: bool = False) -> str:
    """Return kernels `k0`, `k1` and so on; a table is the size, the first number and the type of a constant array."""
    text = HEAD
    for at, (size, first, dtype) in enumerate(tables):
        how = f"T{at}" if as_global else f"cuda.const.array_like(T{at})"
        text += KERNEL.format(table=f"T{at}", size=size, first=first, dtype=dtype, name=f"k{at}", how=how)
    return text


def project(folder: Path, text: str, kernels: int, signatures: str = '"void(float32[::1])"') -> Path:
    module = "\n".join(f"kernels.k{at} = [{signatures}]" for at in range(kernels))
    return projects.write(
        folder / "project", projects.source(text), aotcuda='arch = ["sm_80", "compute_80"]', module=module
    )


def arrays(folder: Path) -> tuple[int, int, bytes]:
    """Build; return the size of the image's constant arrays, their number in the PTX, and their content."""
    files = projects.content(projects.build_wheel(folder))
    images = {entry.kind: entry.content for entry in fatbin.read(files["pkg/k.aotcuda/kernels.fatbin"], "k")}
    section = ELFFile(io.BytesIO(images["sass"])).get_section_by_name(".nv.constant3")
    return section["sh_size"], images["ptx"].count(b"\n.const "), section.data()


THOUSAND = (1000, 0, "f4")
MERGED = {
    "two kernels": ([THOUSAND] * 2, 1, False),
    "kernels of two groups": ([THOUSAND] * 12, 1, False),
    "arrays among globals": ([THOUSAND] * 2, 1, True),
    "one and another": ([THOUSAND, (1000, 1, "f4"), THOUSAND], 2, False),
}
OF_CI = ("two kernels", "arrays among globals", "one and another")
"""Cases that CI runs with the first front end. The code that merges arrays serves both front ends."""


@pytest.mark.parametrize(
    ("front_end", "name"),
    [
        pytest.param(front_end, name, marks=[pytest.mark.matrix] * (front_end == front_ends.MLIR or name not in OF_CI))
        for front_end in front_ends.ALL
        for name in MERGED
    ],
    indirect=["front_end"],
)
def test_equal_constant_arrays_are_one_array_of_the_image(front_end: str, name: str, tmp_path: Path) -> None:
    tables, number, as_global = MERGED[name]
    size, in_ptx, data = arrays(project(tmp_path, source(*tables, as_global=as_global), len(tables)))
    assert (size, in_ptx) == (number * 4 * tables[0][0], number)
    assert data[4:8] in (b"\0\0\x80\x3f", b"\0\0\0\x40", b"\1\0\0\0")


def test_overloads_share_a_constant_array(front_end: str, tmp_path: Path) -> None:
    signatures = '"void(float32[::1])", "void(float64[::1])", "void(int32[::1])"'
    folder = project(tmp_path, source((6000, 0, "f4")), 1, signatures)
    assert arrays(folder)[0] == 24000
    (wheel,) = (folder / "dist").glob("*.whl")
    done = projects.aotcuda(folder, "inspect", wheel, "--json")
    symbols = json.loads(done.out)["modules"][0]["symbols"]
    sizes = [image["constant"] for symbol in symbols for image in symbol["images"] if image["kind"] == "sass"]
    assert len(sizes) == 3
    assert all(24000 < constant < 25000 for constant in sizes)


def test_too_large_constant_arrays_are_listed_with_sizes(front_end: str, tmp_path: Path) -> None:
    done = projects.refused(project(tmp_path, source((8000, 0, "f4"), (9000, 1, "f4"), (10, 0, "f4")), 3))
    assert done.message == (
        f"{projects.MODULE}: the constant arrays of its kernels have 68,040 bytes, and an image has 65,536 for all of "
        "them (k1: void(float32[::1]) 36,000, k0: void(float32[::1]) 32,000, k2: void(float32[::1]) 40); pass large "
        "arrays as arguments, or make the kernels two modules"
    )
