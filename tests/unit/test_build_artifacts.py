"""The front end's word on a kernel's parameters, held against the linked image before the manifest repeats it."""

from __future__ import annotations

import tomllib
from types import SimpleNamespace

import pytest

from aotcuda import arch
from aotcuda.build import artifacts, config, plan
from aotcuda.errors import LinkError
from aotcuda.inspect import cubin
from support import images

TABLE = """
arch = ["sm_75"]
[modules."pkg.k"]
source = "pkg._k"
kernels.axpy = "void(float32, float32[::1], float32[::1])"
"""
# One float, then two arrays of seven words each, on their natural boundaries.
LAYOUT = ((0, 4), *((8 + 8 * index, 8) for index in range(14)))


def check(layout: tuple[tuple[int, int], ...], parameter_bytes: int) -> None:
    (made,) = plan.make(config.parse(tomllib.loads(TABLE), environ={}))
    image = cubin.read(images.numba_cubin("sm_75"), "the image")
    kernel = next(kernel for kernel in image.kernels if kernel.name == "axpy")
    built = SimpleNamespace(layout=layout, parameter_bytes=parameter_bytes)
    artifacts._check_layout(made.units[0], built, kernel, arch.parse("sm_75"))


def test_the_layout_of_the_image_is_accepted() -> None:
    check(LAYOUT, 120)


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
def test_another_layout_is_refused_with_both_and_the_key(
    layout: tuple[tuple[int, int], ...], parameter_bytes: int
) -> None:
    with pytest.raises(LinkError) as caught:
        check(layout, parameter_bytes)
    said = str(caught.value)
    assert said.startswith('tool.aotcuda.modules."pkg.k".kernels.axpy: void(float32, float32[::1], float32[::1]): ')
    assert f"takes its parameters as {LAYOUT}, and the front end said {layout}; " in said
