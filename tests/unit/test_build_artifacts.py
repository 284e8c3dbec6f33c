"""The manifest's parameters are compared with the linked image; its drivers follow from the toolkit."""

from __future__ import annotations

import tomllib
from types import SimpleNamespace

import pytest

from aotcuda import arch
from aotcuda.binary import cubin
from aotcuda.builder import plan, wheel_files
from aotcuda.builder.config import parser
from aotcuda.builder.link.images import Image
from aotcuda.errors import LinkError
from support import images

TABLE = """
arch = ["sm_75"]
[modules."pkg.k"]
source = "pkg._k"
kernels.axpy = "void(float32, float32[::1], float32[::1])"
"""
# One float, then two arrays of seven words each, on their natural boundaries.
LAYOUT = ((0, 4), *((8 + 8 * index, 8) for index in range(14)))


def check(layout: tuple[tuple[int, int], ...], parameter_bytes: int, *, one_by_one: bool = False) -> cubin.CubinKernel:
    """Compare a layout with the kernel of a real image; return the kernel."""
    (made,) = plan.make(parser.parse(tomllib.loads(TABLE), environ={}))
    image = cubin.read(images.numba_cubin("sm_75"), "the image")
    kernel = next(kernel for kernel in image.kernels if kernel.name == "axpy")
    built = SimpleNamespace(layout=layout, parameter_bytes=parameter_bytes, one_by_one=one_by_one)
    wheel_files._check_layout(made.units[0], built, kernel, arch.parse("sm_75"))
    return kernel


def test_equal_layout_is_accepted() -> None:
    assert len(check(LAYOUT, 120).parameters) == len(LAYOUT)


def test_offsets_do_not_matter_for_separate_arguments() -> None:
    moved = tuple((offset + 32, size) for offset, size in LAYOUT)
    assert check(moved, 152, one_by_one=True)
    with pytest.raises(LinkError):
        check(tuple((offset, size + 1) for offset, size in LAYOUT), 120, one_by_one=True)


@pytest.mark.parametrize(
    ("layout", "parameter_bytes"),
    [
        pytest.param(LAYOUT[:-1], 112, id="a word is missing"),
        pytest.param((*LAYOUT, (120, 8)), 128, id="a word too many"),
        pytest.param(((0, 8), *LAYOUT[1:]), 120, id="another size"),
        pytest.param(((4, 4), *LAYOUT[1:]), 120, id="another place"),
        pytest.param(LAYOUT, 128, id="another whole"),
    ],
)
def test_different_layout_is_refused(layout: tuple[tuple[int, int], ...], parameter_bytes: int) -> None:
    with pytest.raises(LinkError) as caught:
        check(layout, parameter_bytes)
    said = str(caught.value)
    assert said.startswith('tool.aotcuda.modules."pkg.k".kernels.axpy: void(float32, float32[::1], float32[::1]): ')
    assert f"takes its parameters as {LAYOUT}, and the front end said {layout}; " in said


@pytest.mark.parametrize(
    ("cuda", "whole", "each"),
    [
        ("13.0", "580.65", ["580.65", "580.65", "580.65"]),
        ("12.9", "525.60", ["525.60", "570.26", "575.51"]),
        ("14.1", None, [None, None, None]),
    ],
)
def test_manifest_has_the_lowest_driver_of_each_image(cuda: str, whole: str | None, each: list[str | None]) -> None:
    (made,) = plan.make(parser.parse(tomllib.loads(TABLE), environ={}))
    targets = [arch.parse(text) for text in ("sm_75", "sm_120", "compute_75")]
    empty = {"kernels": (), "functions": (), "callbacks": (), "foreign": (), "carried": (), "left_out": ()}
    lone_plan = SimpleNamespace(config=made.config, frontend=made.frontend, kernels=(), functions=(), in_place=False)
    version = tuple(map(int, cuda.split(".")))
    made_images = [Image(target, b"", version, version) for target in targets]
    module = SimpleNamespace(plan=lone_plan, images=made_images, ltoir=[], pack=None, **empty)
    result = SimpleNamespace(toolchain={"cuda": cuda, "nvjitlink": cuda})
    # There is no code behind these targets, so no machine code can tell what its kernels take.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wheel_files, "_resources", lambda module, sizes: {})
        settings = parser.parse(tomllib.loads(TABLE), environ={})
        found = wheel_files.describe(settings, module, result)
        functions = [(target, b"") for target in targets]
        functions_alone = SimpleNamespace(**{**vars(module), "images": [], "ltoir": functions})
        alone = wheel_files.describe(settings, functions_alone, result)
    assert found["min_driver"] == alone["min_driver"] == whole
    assert [image["min_driver"] for image in found["images"]] == each
