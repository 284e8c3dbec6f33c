"""Test that Triton kernels with tensor descriptors give the bits of Triton's JIT, and compile nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support import triton_in_place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import SimpleNamespace

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default", "error::aotcuda.errors.FallbackWarning")]


@pytest.fixture(scope="module")
def t(installed: Path) -> Iterator[SimpleNamespace]:
    """Return the packaged module, the same source as Triton's JIT has it, PyTorch and `TensorDescriptor`."""
    with triton_in_place.both(installed, "tritonops.tiles") as found:
        from triton.tools.tensor_descriptor import TensorDescriptor

        if found.torch.cuda.get_device_capability() not in ((8, 0), (9, 0)):
            pytest.skip("the wheel has images for 8.0 and 9.0")
        found.triton.set_allocator(
            lambda size, _alignment, _stream: found.torch.empty(size, dtype=found.torch.int8, device="cuda")
        )
        found.describe = TensorDescriptor.from_tensor
        yield found


@pytest.fixture
def compiled(t: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the names of the kernels that Triton compiles."""
    return triton_in_place.compilations(monkeypatch)


def random(t: SimpleNamespace, *shape: int, dtype: str = "float32") -> Any:
    t.torch.manual_seed(1)
    return t.torch.randint(-8, 9, shape, device="cuda").to(getattr(t.torch, dtype)) / 8


def scaled(t: SimpleNamespace, tiles: Any, block: list[int], padding: str, x: str, y: str) -> Any:
    given = random(t, 100, 264, dtype=x)  # no multiple of the block: tiles at the edges are padded
    out = t.torch.zeros(128, 264, device="cuda", dtype=getattr(t.torch, y))
    grid = (4 if block[0] == 32 else 8, t.triton.cdiv(264, block[1]))
    tiles.scaled[grid](t.describe(given, block, padding), t.describe(out, block), 0.75)
    return out


def planes(t: SimpleNamespace, tiles: Any) -> Any:
    given = t.torch.arange(6 * 16 * 32, device="cuda", dtype=t.torch.int32).reshape(6, 16, 32)
    out = t.torch.zeros_like(given)
    tiles.planes[(6,)](t.describe(given, [1, 16, 32]), t.describe(out, [1, 16, 32]))
    return out


def product(t: SimpleNamespace, tiles: Any, config: int, m: int, n: int, k: int) -> Any:
    a, b = random(t, m, k, dtype="float16"), random(t, k, n, dtype="float16")
    out = t.torch.zeros(m, n, device="cuda", dtype=t.torch.float16)
    tuner = tiles.product
    tuner.cache[m, n, k] = tuner.configs[config]
    tuner[lambda meta: (t.triton.cdiv(m, meta["BM"]), t.triton.cdiv(n, meta["BN"]))](
        *[t.describe(each, [1, 16]) for each in (a, b, out)], m, n, k
    )
    assert tuner.best_config is tuner.configs[config]
    return out


def totals(t: SimpleNamespace, tiles: Any, m: int, n: int) -> Any:
    x, out = random(t, m, n), t.torch.zeros(m, device="cuda")
    tiles.totals[(t.triton.cdiv(m, 32),)](x, out, m, n, BM=32, BN=64)
    return out


CASES: list[tuple[Any, ...]] = [
    *[(scaled, [32, 64], padding, *dtypes) for padding in ("zero", "nan") for dtypes in (("float32", "float32"),)],
    (scaled, [32, 64], "zero", "float16", "float16"),
    (scaled, [32, 64], "nan", "bfloat16", "float32"),
    (scaled, [32, 64], "zero", "float32", "float16"),
    (scaled, [16, 128], "nan", "float32", "float32"),
    (planes,),
    *[(product, config, *sizes) for config in (0, 1) for sizes in ((256, 512, 128), (128, 64, 4096), (144, 80, 72))],
    *[(totals, *sizes) for sizes in ((256, 512), (100, 64), (31, 4096))],
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{'-'.join(map(str, case[1:]))}")
def test_bits_equal_those_of_tritons_jit_without_compilation(
    t: SimpleNamespace, case: tuple[Any, ...], compiled: list[str]
) -> None:
    launch, *values = case
    ours = [launch(t, t.packaged, *values) for _ in range(3)]
    assert compiled == []
    theirs = launch(t, t.own, *values)
    for each in ours:
        assert each.abs().nan_to_num().sum() > 0
        same = each.view(t.torch.uint8).equal(theirs.view(t.torch.uint8))
        assert same if t.same else t.torch.allclose(each.float(), theirs.float(), atol=1e-2, equal_nan=True)


def test_graph_replays_launch_with_descriptors(t: SimpleNamespace) -> None:
    torch = t.torch
    x, out = torch.ones(64, 128, device="cuda"), torch.zeros(64, 128, device="cuda")
    given = t.describe(x, [32, 64]), t.describe(out, [32, 64])
    t.packaged.scaled[(2, 2)](*given, 0.5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        t.packaged.scaled[(2, 2)](*given, 3.0)
    x.fill_(2)
    graph.replay()
    assert out.eq(6).all()
