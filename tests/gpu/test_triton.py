"""Packaged Triton kernels beside Triton's own JIT, from the same source: the same numbers, in every variant."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import SimpleNamespace

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # what Triton and PyTorch warn of is their affair


@pytest.fixture(scope="module")
def t(installed: Path) -> Iterator[SimpleNamespace]:
    """Return the packaged modules, their sources as Triton has them, and PyTorch."""
    from types import SimpleNamespace

    torch = pytest.importorskip("torch")
    triton = pytest.importorskip("triton")
    if not (installed / "tritonkernels").is_dir():
        pytest.skip(
            "there is no wheel of tritonkernels (python tests/gpu/prepare.py FOLDER, where Triton is installed)"
        )
    sys.path.insert(0, str(installed / "tritonkernels"))
    import tritonkernels._kernels
    import tritonkernels._tensor_cores
    import tritonkernels.kernels
    import tritonkernels.tensor_cores

    packaged = tritonkernels.kernels.__aotcuda__.manifest["toolchain"]["triton"]
    yield SimpleNamespace(
        torch=torch,
        same=packaged == triton.__version__,
        kernels=tritonkernels.kernels,
        tensor_cores=tritonkernels.tensor_cores,
        jit=tritonkernels._kernels,
        jit_tensor_cores=tritonkernels._tensor_cores,
    )
    sys.path.remove(str(installed / "tritonkernels"))


def agrees(t: SimpleNamespace, ours: object, theirs: object) -> bool:
    """Equal to the last bit where both were compiled by one version of Triton; else nearly."""
    return t.torch.equal(ours, theirs) if t.same else t.torch.allclose(ours, theirs, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("n", [1, 4095, 4096, 100_000])
@pytest.mark.parametrize("block", [128, 1024])
@pytest.mark.parametrize("shift", [0, 1])
def test_add_in_every_variant(t: SimpleNamespace, n: int, block: int, shift: int) -> None:
    x, y = (t.torch.randn(n + shift, device="cuda")[shift:] for _ in range(2))
    ours, theirs = t.torch.empty_like(x), t.torch.empty_like(x)
    for _ in range(3):
        t.kernels.add[(-(-n // block),)](x, y, ours, n, BLOCK=block)
    t.jit.add[(-(-n // block),)](x, y, theirs, n, BLOCK=block)
    assert agrees(t, ours, theirs)
    assert t.torch.allclose(ours, x + y)


@pytest.mark.parametrize("columns", [768, 1000])
def test_softmax(t: SimpleNamespace, columns: int) -> None:
    x = t.torch.randn(512, columns, device="cuda")
    ours, theirs = t.torch.empty_like(x), t.torch.empty_like(x)
    t.kernels.softmax[(512,)](ours, x, ours.stride(0), x.stride(0), columns, BLOCK=1024)
    t.jit.softmax[(512,)](theirs, x, theirs.stride(0), x.stride(0), columns, BLOCK=1024, num_warps=8)
    assert agrees(t, ours, theirs)
    assert t.torch.allclose(ours, t.torch.softmax(x, dim=1))


@pytest.mark.parametrize("n", [100, 100_000])
def test_configs_are_chosen_by_the_arguments(t: SimpleNamespace, n: int) -> None:
    x = t.torch.randn(n, device="cuda")
    expected = 0.5 * x
    t.kernels.scale[lambda meta: (-(-meta["n"] // meta["BLOCK"]),)](x, 0.5, n)
    assert t.torch.allclose(x, expected)


@pytest.mark.parametrize("size", [256, 1024])
def test_matmul(t: SimpleNamespace, size: int) -> None:
    a, b = (t.torch.randn(size, size, device="cuda", dtype=t.torch.float16) for _ in range(2))
    ours, theirs = t.torch.empty_like(a), t.torch.empty_like(a)
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    grid = (size // 128, size // 128)
    t.tensor_cores.matmul[grid](a, b, ours, size, size, size, size, 1, size, 1, size, 1, **blocks)
    t.jit_tensor_cores.matmul[grid](a, b, theirs, size, size, size, size, 1, size, 1, size, 1, **blocks, num_warps=8)
    assert agrees(t, ours, theirs)
    assert t.torch.allclose(ours, a @ b, atol=0.1, rtol=0.01)


def test_attention(t: SimpleNamespace) -> None:
    q, k, v = (t.torch.randn(4, 512, 64, device="cuda", dtype=t.torch.float16) for _ in range(3))
    ours, theirs = t.torch.empty_like(q), t.torch.empty_like(q)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "HEAD": 64}
    t.tensor_cores.attention[(8, 4)](q, k, v, ours, 0.125, 512, **blocks)
    t.jit_tensor_cores.attention[(8, 4)](q, k, v, theirs, 0.125, 512, **blocks)
    assert agrees(t, ours, theirs)
    expected = t.torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert t.torch.allclose(ours, expected, atol=0.02, rtol=0.02)


def test_launches_are_on_pytorchs_current_stream_and_in_its_graphs(t: SimpleNamespace) -> None:
    x = t.torch.ones(4096, device="cuda")
    t.kernels.scale[(8,)](x, 1.0, 4096)
    graph = t.torch.cuda.CUDAGraph()
    with t.torch.cuda.graph(graph):
        t.kernels.scale[(64,)](x, 2.0, 4096)
    graph.replay()
    graph.replay()
    assert x.eq(4.0).all().item()


def test_without_triton_and_pytorch(run_clean, installed: Path) -> None:
    if not (installed / "tritonkernels").is_dir():
        pytest.skip(
            "there is no wheel of tritonkernels (python tests/gpu/prepare.py FOLDER, where Triton is installed)"
        )
    script = """
import json, sys
import tritonkernels.kernels as k
from gpu.buffers import Buffer, primary_context
primary_context()
x = Buffer("f", range(4096))
k.scale[(64,)](x, 0.5, 4096)
print(json.dumps([x.read()[-1], sorted({"triton", "torch", "numpy"} & {*sys.modules})]))
"""
    assert run_clean(script, "tritonkernels") == [2047.5, []]
