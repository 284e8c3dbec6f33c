"""Packaged cuTile kernels, in every variant, against NumPy and PyTorch; cuda-tile is not needed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from aotcuda.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import SimpleNamespace

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # what PyTorch warns of is its affair

MISSING = "there is no wheel of cutilekernels (python tests/gpu/prepare.py FOLDER --cutile, with aotcuda[cutile])"


@pytest.fixture(scope="module")
def t(installed: Path) -> Iterator[SimpleNamespace]:
    """Return the packaged modules and PyTorch."""
    from types import SimpleNamespace

    torch = pytest.importorskip("torch")
    if not (installed / "cutilekernels").is_dir():
        pytest.skip(MISSING)
    sys.path.insert(0, str(installed / "cutilekernels"))
    import cutilekernels.kernels
    import cutilekernels.matmul

    yield SimpleNamespace(torch=torch, kernels=cutilekernels.kernels, matmul=cutilekernels.matmul)
    sys.path.remove(str(installed / "cutilekernels"))


@pytest.mark.parametrize("n", [1, 4080, 4095, 100_000])
@pytest.mark.parametrize("tile", [256, 1024])
@pytest.mark.parametrize("shift", [0, 1])
def test_add_in_every_variant(t: SimpleNamespace, n: int, tile: int, shift: int) -> None:
    x, y = (t.torch.randn(n + shift, device="cuda")[shift:] for _ in range(2))
    out = t.torch.empty_like(x)
    for _ in range(3):
        t.kernels.add[-(-n // tile)](x, y, out, TILE=tile)
    assert t.torch.equal(out, x + y)


def test_arrays_may_overlap_where_the_table_says_so(t: SimpleNamespace) -> None:
    rows = t.torch.zeros(16, 1024, device="cuda")
    for _ in range(2):
        with pytest.raises(ArgumentError, match="overlap, and the kernel was compiled for arrays that do not"):
            t.kernels.softmax[16](rows, rows)
    x = t.torch.arange(5000, device="cuda", dtype=t.torch.float32)
    t.kernels.add[20](x, x, x, TILE=256)
    assert t.torch.equal(x, 2 * t.torch.arange(5000, device="cuda", dtype=t.torch.float32))


@pytest.mark.parametrize("columns", [768, 1000, 1003])
def test_softmax(t: SimpleNamespace, columns: int) -> None:
    x = t.torch.randn(512, columns, device="cuda")
    out = t.torch.empty_like(x)
    for _ in range(3):
        t.kernels.softmax[512](out, x)
    assert t.torch.allclose(out, t.torch.softmax(x, dim=1), atol=1e-6)


def test_any_strides(t: SimpleNamespace) -> None:
    whole = t.torch.randn(300, 400, device="cuda")
    expected = whole.clone()
    expected[10:200:2, 5:205] *= 0.5
    for _ in range(3):
        t.kernels.scale[6, 4](whole[10:200:2, 5:205], 0.5)
        whole[10:200:2, 5:205] *= 2.0
    t.kernels.scale[6, 4](whole[10:200:2, 5:205], 0.5)
    assert t.torch.equal(whole, expected)
    turned = t.torch.randn(64, 100, device="cuda")
    expected = 3.0 * turned
    t.kernels.scale[7, 1](turned.T, 3.0)
    assert t.torch.equal(turned, expected)


@pytest.mark.parametrize("size", [256, 1000, 2048])
def test_matmul(t: SimpleNamespace, size: int) -> None:
    a, b = (t.torch.randn(size, size, device="cuda", dtype=t.torch.float16) for _ in range(2))
    c = t.torch.empty(size, size, device="cuda", dtype=t.torch.float32)
    for _ in range(3):
        t.matmul.matmul[-(-size // 128), -(-size // 128)](a, b, c)
    assert t.torch.allclose(c, a.float() @ b.float(), atol=0.2, rtol=0.01)


def test_what_the_compiler_assumed_is_checked(t: SimpleNamespace) -> None:
    a, c = (t.torch.zeros(128, 128, device="cuda", dtype=one) for one in (t.torch.float16, t.torch.float32))
    odd = t.torch.zeros(128 * 128 + 1, device="cuda", dtype=t.torch.float16)[1:].view(128, 128)
    for _ in range(2):
        t.matmul.matmul[1, 1](a, a, c)
        with pytest.raises(ArgumentError, match="which 16 does not divide"):
            t.matmul.matmul[1, 1](odd, a, c)


def test_launches_are_on_pytorchs_current_stream_and_in_its_graphs(t: SimpleNamespace) -> None:
    x = t.torch.ones(64, 64, device="cuda")
    t.kernels.scale[4, 1](x, 1.0)
    graph = t.torch.cuda.CUDAGraph()
    with t.torch.cuda.graph(graph):
        t.kernels.scale[4, 1](x, 2.0)
    graph.replay()
    graph.replay()
    assert x.eq(4.0).all().item()


def test_without_cuda_tile_numpy_and_pytorch(run_clean, installed: Path) -> None:
    if not (installed / "cutilekernels").is_dir():
        pytest.skip(MISSING)
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
