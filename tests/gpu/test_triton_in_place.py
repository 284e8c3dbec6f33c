"""Test that Triton modules in place give the bits of Triton's JIT of the same source, and compile nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support import triton_in_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import SimpleNamespace

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default", "error::aotcuda.errors.FallbackWarning")]


@pytest.fixture(scope="module")
def t(installed: Path) -> Iterator[SimpleNamespace]:
    """Return the packaged module, the same source as Triton's JIT has it, and PyTorch."""
    with triton_in_place.both(installed, "tritonops.ops") as found:
        assert type(found.own.add) is found.triton.JITFunction is not type(found.packaged.add)
        yield found


@pytest.fixture
def compiled(t: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the names of the kernels that Triton compiles."""
    return triton_in_place.compilations(monkeypatch)


def run(t: SimpleNamespace, ops: Any, case: str) -> Any:
    """Launch a kernel of a module; return its result."""
    torch, triton = t.torch, t.triton
    torch.manual_seed(1)
    name, _, size = case.partition(" ")
    n = int(size)
    x = torch.randint(-4, 5, (8, n), device="cuda").float()
    out, row = torch.zeros_like(x), x[0].contiguous()
    if name == "add":
        ops.add[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, x + 1, out, 8 * n, BLOCK=1024)
    elif name == "relu":
        ops.add[(triton.cdiv(8 * n, 128),)](x, x + 1, out, 8 * n, 128, "relu")
    elif name == "norm":
        ops.norm[(8,)](x, None, out, n, 1e-5, BLOCK=1024)
    elif name == "bias":
        x, out = x.half(), out.half()
        ops.norm[(8,)](x, row, out, n, 1e-5, BLOCK=1024)
    elif name == "softmax":
        ops.softmax[(8,)](x, out, n)
    elif name == "total":
        out = torch.zeros(4, device="cuda")
        ops.total[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](row, out, n)
    elif name == "scaled":
        scale = torch.full((4,), 3.0, device="cuda")
        ops.scaled[lambda meta: (triton.cdiv(8 * n, meta["BLOCK"]),)](x, scale, out, 8 * n)
    else:
        kernel = ops.copy if name == "copy" else ops.copy_of_any
        kernel.run(x, out, 8 * n, BLOCK=256, grid=(triton.cdiv(8 * n, 256),), warmup=False)
    return out


CASES = [
    *("add 1000", "add 1001", "relu 1024", "norm 1024", "norm 1000", "norm 777", "bias 1024", "bias 777"),
    *("softmax 1024", "softmax 1001", "softmax 64", "total 4096", "total 5000", "total 64", "total 77"),
    *("scaled 512", "scaled 1000", "copy 1000", "copy_of_any 1001"),
]


@pytest.mark.parametrize("case", CASES)
def test_bits_equal_those_of_tritons_jit_without_compilation(
    t: SimpleNamespace, case: str, compiled: list[str]
) -> None:
    ours = [run(t, t.packaged, case) for _ in range(3)]  # from the second launch on by the fast path
    assert compiled == []
    for name in ("total", "scaled"):
        if case.startswith(name):
            tuner, own = (ops.total if name == "total" else ops.scaled.fn for ops in (t.packaged, t.own))
            for key, config in tuner.cache.items():  # both launch the config of the table
                own.cache[key] = own.configs[tuner.configs.index(config)]
    theirs = run(t, t.own, case)
    for each in ours:
        assert t.torch.equal(each, theirs) if t.same else t.torch.allclose(each, theirs, atol=1e-3)


def test_launch_runs_on_pytorchs_current_stream(t: SimpleNamespace) -> None:
    torch = t.torch
    x, out = torch.ones(8192, device="cuda"), torch.zeros(8192, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        x.fill_(2)
        t.packaged.copy[(32,)](x, out, 8192, BLOCK=256)
    stream.synchronize()
    assert torch.equal(out, x)


def test_triton_compiles_missing_variant_with_warning(t: SimpleNamespace, compiled: list[str]) -> None:
    from aotcuda.errors import FallbackWarning

    x = t.torch.ones(512, device="cuda")
    out = t.torch.zeros_like(x)
    with pytest.warns(FallbackWarning, match="BLOCK is 512"):
        t.packaged.copy[(1,)](x, out, 512, BLOCK=512)
    assert compiled == ["copied"]
    assert t.torch.equal(out, x)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("case", ["add 1000", "norm 1024", "bias 777", "softmax 1001", "total 4096"])
def test_torch_compile_gives_same_numbers(t: SimpleNamespace, case: str) -> None:
    def model(x: Any) -> Any:
        out = t.torch.zeros_like(x)
        if case.startswith("add"):
            # Inductor needs every constexpr by name, also those with defaults.
            t.packaged.add[(t.triton.cdiv(x.numel(), 128),)](x, x, out, x.numel(), BLOCK=128, ACT=None)
        elif case.startswith("norm"):
            t.packaged.norm[(8,)](x, None, out, x.shape[1], 1e-5, BLOCK=1024)
        elif case.startswith("bias"):
            t.packaged.norm[(8,)](x, x, out, x.shape[1], 1e-5, BLOCK=1024)
        elif case.startswith("softmax"):
            t.packaged.softmax[(8,)](x, out, x.shape[1])
        else:
            t.packaged.total[lambda meta: (t.triton.cdiv(4096, meta["BLOCK"]),)](x, out, 4096)
        return out * 2

    x = t.torch.randint(-4, 5, (8, int(case.split()[1])), device="cuda").float()
    expected = model(x)
    t.torch._dynamo.reset()
    found = t.torch.compile(model, fullgraph=True)(x)
    assert t.torch.allclose(found, expected)


def test_wrap_triton_launches_packaged_kernel(t: SimpleNamespace, compiled: list[str]) -> None:
    from torch.library import triton_op, wrap_triton

    torch = t.torch
    copy = t.packaged.copy

    def doubled(x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        out = torch.empty_like(x)
        wrap_triton(copy)[(32,)](x, out, 8192, BLOCK=256)
        return out * 2

    doubled.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    operator: Callable[..., Any] = triton_op("tritonops::doubled", doubled, mutates_args=())
    x = torch.ones(8192, device="cuda")
    assert torch.equal(operator(x), x * 2)
    assert compiled == []
