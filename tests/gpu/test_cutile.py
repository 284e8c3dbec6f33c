"""Test packaged cuTile kernels, in every variant, against PyTorch; cuda-tile is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # PyTorch gives warnings

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def kernels(packaged: Callable[[str, str], ModuleType]) -> ModuleType:
    return packaged("cutilekernels", "cutilekernels.kernels")


@pytest.mark.parametrize("n", [1, 4080, 4095, 100_000])
@pytest.mark.parametrize("tile", [256, 1024])
@pytest.mark.parametrize("shift", [0, 1])
def test_add_in_every_variant(kernels: ModuleType, n: int, tile: int, shift: int) -> None:
    x, y = (torch.randn(n + shift, device="cuda")[shift:] for _ in range(2))
    out = torch.empty_like(x)
    for _ in range(3):
        kernels.add[-(-n // tile)](x, y, out, TILE=tile)
    assert torch.equal(out, x + y)


def test_arrays_may_overlap_where_table_allows_it(kernels: ModuleType) -> None:
    x = torch.arange(5000, device="cuda", dtype=torch.float32)
    kernels.add[20](x, x, x, TILE=256)
    assert torch.equal(x, 2 * torch.arange(5000, device="cuda", dtype=torch.float32))


@pytest.mark.parametrize("columns", [768, 1000, 1003])
def test_softmax_is_right(kernels: ModuleType, columns: int) -> None:
    x = torch.randn(512, columns, device="cuda")
    out = torch.empty_like(x)
    for _ in range(3):
        kernels.softmax[512](out, x)
    assert torch.allclose(out, torch.softmax(x, dim=1), atol=1e-6)


def test_arrays_of_any_strides(kernels: ModuleType) -> None:
    whole = torch.randn(300, 400, device="cuda")
    expected = whole.clone()
    expected[10:200:2, 5:205] *= 0.5
    for _ in range(3):
        kernels.scale[6, 4](whole[10:200:2, 5:205], 0.5)
        whole[10:200:2, 5:205] *= 2.0
    kernels.scale[6, 4](whole[10:200:2, 5:205], 0.5)
    assert torch.equal(whole, expected)
    turned = torch.randn(64, 100, device="cuda")
    expected = 3.0 * turned
    kernels.scale[7, 1](turned.T, 3.0)
    assert torch.equal(turned, expected)


@pytest.mark.parametrize("size", [256, 1000, 2048])
def test_matmul_is_right(packaged: Callable[[str, str], ModuleType], size: int) -> None:
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=torch.float32)
    for _ in range(3):
        packaged("cutilekernels", "cutilekernels.matmul").matmul[-(-size // 128), -(-size // 128)](a, b, c)
    assert torch.allclose(c, a.float() @ b.float(), atol=0.2, rtol=0.01)


def test_pytorchs_graph_replays_launches(kernels: ModuleType) -> None:
    x = torch.ones(64, 64, device="cuda")
    kernels.scale[4, 1](x, 1.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels.scale[4, 1](x, 2.0)
    graph.replay()
    graph.replay()
    assert x.eq(4.0).all().item()


def test_launch_needs_no_cuda_tile_numpy_or_pytorch(kernels: ModuleType, run_clean) -> None:
    script = """
import json, sys
import cutilekernels.kernels as k
from gpu.buffers import Buffer, primary_context
primary_context()
x, out = Buffer("f", range(4096)), Buffer("f", [0] * 4096)
k.add[16](x, x, out, TILE=256)
print(json.dumps([out.read()[-1], sorted({"cuda.tile", "torch", "numpy"} & {*sys.modules})]))
"""
    assert run_clean(script, "cutilekernels") == [8190.0, []]
