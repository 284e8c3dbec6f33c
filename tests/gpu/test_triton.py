"""Test that packaged Triton kernels give the numbers of Triton's JIT of the same source, in every variant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # Triton and PyTorch give warnings of their own


@pytest.fixture(scope="module")
def t(packaged: Callable[[str, str], ModuleType]) -> SimpleNamespace:
    """Return the packaged modules, their sources as Triton has them, and PyTorch."""
    torch, triton = pytest.importorskip("torch"), pytest.importorskip("triton")
    names = ("kernels", "tensor_cores", "_kernels", "_tensor_cores")
    kernels, tensor_cores, jit, jit_tensor_cores = (
        packaged("tritonkernels", f"tritonkernels.{name}") for name in names
    )
    same = kernels.__aotcuda__.manifest["toolchain"]["triton"] == triton.__version__
    return SimpleNamespace(
        torch=torch, same=same, kernels=kernels, tensor_cores=tensor_cores, jit=jit, jit_tensor_cores=jit_tensor_cores
    )


def agrees(t: SimpleNamespace, ours: object, theirs: object) -> bool:
    """Compare bits if one version of Triton compiled both, else numbers."""
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
def test_softmax_is_right(t: SimpleNamespace, columns: int) -> None:
    x = t.torch.randn(512, columns, device="cuda")
    ours, theirs = t.torch.empty_like(x), t.torch.empty_like(x)
    t.kernels.softmax[(512,)](ours, x, ours.stride(0), x.stride(0), columns, BLOCK=1024)
    t.jit.softmax[(512,)](theirs, x, theirs.stride(0), x.stride(0), columns, BLOCK=1024, num_warps=8)
    assert agrees(t, ours, theirs)
    assert t.torch.allclose(ours, t.torch.softmax(x, dim=1))


@pytest.mark.parametrize("n", [100, 100_000])
def test_shared_constants_may_be_omitted(t: SimpleNamespace, n: int) -> None:
    x = t.torch.randn(n, device="cuda")
    expected = 0.5 * x
    t.kernels.scale[lambda meta: (-(-meta["n"] // meta["BLOCK"]),)](x, 0.5, n)
    assert t.torch.allclose(x, expected)


@pytest.mark.parametrize("size", [256, 1024])
def test_matmul_is_right(t: SimpleNamespace, size: int) -> None:
    a, b = (t.torch.randn(size, size, device="cuda", dtype=t.torch.float16) for _ in range(2))
    ours, theirs = t.torch.empty_like(a), t.torch.empty_like(a)
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    grid = (size // 128, size // 128)
    t.tensor_cores.matmul[grid](a, b, ours, size, size, size, size, 1, size, 1, size, 1, **blocks)
    t.jit_tensor_cores.matmul[grid](a, b, theirs, size, size, size, size, 1, size, 1, size, 1, **blocks, num_warps=8)
    assert agrees(t, ours, theirs)
    assert t.torch.allclose(ours, a @ b, atol=0.1, rtol=0.01)


def test_attention_is_right(t: SimpleNamespace) -> None:
    q, k, v = (t.torch.randn(4, 512, 64, device="cuda", dtype=t.torch.float16) for _ in range(3))
    ours, theirs = t.torch.empty_like(q), t.torch.empty_like(q)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "HEAD": 64}
    t.tensor_cores.attention[(8, 4)](q, k, v, ours, 0.125, 512, **blocks)
    t.jit_tensor_cores.attention[(8, 4)](q, k, v, theirs, 0.125, 512, **blocks)
    assert agrees(t, ours, theirs)
    expected = t.torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert t.torch.allclose(ours, expected, atol=0.02, rtol=0.02)


def test_pytorchs_graph_replays_launches(t: SimpleNamespace) -> None:
    x = t.torch.ones(4096, device="cuda")
    t.kernels.scale[(8,)](x, 1.0, 4096)
    graph = t.torch.cuda.CUDAGraph()
    with t.torch.cuda.graph(graph):
        t.kernels.scale[(64,)](x, 2.0, 4096)
    graph.replay()
    graph.replay()
    assert x.eq(4.0).all().item()


def test_launch_needs_no_triton_and_no_pytorch(t: SimpleNamespace, run_clean: Callable[..., object]) -> None:
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
