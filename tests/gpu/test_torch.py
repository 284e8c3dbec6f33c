"""Test packaged kernels as operators of PyTorch on a GPU: compiled, exported, with gradients, on streams."""

from __future__ import annotations

import shutil

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # PyTorch's compilers give warnings of their own
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("this PyTorch has no CUDA", allow_module_level=True)

N = 1000
CYCLES = 200_000_000
"""The work that keeps a stream busy for a tenth of a second."""


@pytest.fixture(scope="module")
def axpy(quickstart):
    return quickstart.axpy


@pytest.fixture(scope="module")
def operators(features, axpy):
    """Return operators by name: one writes into its argument, the others return new tensors."""
    import aotcuda.torch

    return {
        "axpy_": aotcuda.torch.op(axpy, forall="out", mutates=("out",), name="gputests::axpy_"),
        "axpy": aotcuda.torch.op(axpy, grid=4, block=256, outputs={"out": "x"}, name="gputests::axpy"),
        "square": aotcuda.torch.op(
            features.square,
            grid=lambda x, out: -(-x.numel() // 128),
            block=128,
            outputs={"out": lambda x: torch.empty_like(x)},  # noqa: PLW0108 (a function that a user would write)
            name="gputests::square",
        ),
    }


def agree(found, expected):
    torch.testing.assert_close(found, expected)
    assert found.device == expected.device


def tensors(dtype=torch.float32):
    x = torch.linspace(-2, 2, N, dtype=dtype, device="cuda")
    return x, torch.ones_like(x)


def test_opcheck_passes(operators):
    x, y = tensors()
    for name, args in (("axpy_", (2.0, x, y, torch.empty_like(x))), ("axpy", (2.0, x, y)), ("square", (x,))):
        assert {*torch.library.opcheck(operators[name], args).values()} == {"SUCCESS"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operator_launches_signature_of_its_arguments(operators, dtype):
    x, y = tensors(dtype)
    agree(operators["axpy"](2.0, x, y), 2 * x + y)
    out = torch.empty_like(x)
    assert operators["axpy_"](2.0, x, y, out) is None
    agree(out, 2 * x + y)


NO_COMPILER = not (shutil.which("gcc") or shutil.which("cc"))
BACKENDS = [
    "aot_eager",
    pytest.param("inductor", marks=pytest.mark.skipif(NO_COMPILER, reason="Inductor needs a C compiler")),
]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_whole_graph_gives_same_numbers(operators, backend, dynamic):
    axpy, axpy_ = operators["axpy"], operators["axpy_"]

    @torch.compile(fullgraph=True, backend=backend, dynamic=dynamic)
    def step(x, y):
        out = torch.empty_like(x)
        axpy_(3.0, axpy(2.0, x * 2, y).sin(), y, out)
        return out + 1

    torch._dynamo.reset()
    for count in (N, N - 24):
        x, y = (each[:count].clone() for each in tensors())
        agree(step(x, y), 3 * (4 * x + y).sin() + y + 1)


def test_gradients_are_right(features):
    import aotcuda.torch

    square = aotcuda.torch.op(
        features.square, forall="x", block=128, outputs={"out": "x"}, name="gputests::square_with_gradients"
    )

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient

    torch.library.register_autograd(square, backward, setup_context=setup_context)
    x = tensors(torch.float64)[0].requires_grad_()
    square(x).sum().backward()
    agree(x.grad, 2 * x.detach())
    torch.library.opcheck(square, (x,))
    small = torch.linspace(-1, 1, 8, dtype=torch.float64, device="cuda", requires_grad=True)
    torch.autograd.gradcheck(square, (small,))


class Model(torch.nn.Module):
    def __init__(self, axpy):
        super().__init__()
        self.axpy = axpy

    def forward(self, x, y):
        return self.axpy(2.0, x, y).relu()


def test_exported_program_gives_same_numbers(operators, tmp_path):
    x, y = tensors()
    exported = torch.export.export(Model(operators["axpy"]), (x, y))
    assert "gputests.axpy.default" in str(exported.graph)
    torch.export.save(exported, tmp_path / "model.pt2")
    again = torch.export.load(tmp_path / "model.pt2")
    agree(again.module()(x, y), (2 * x + y).relu())


def test_operator_runs_on_current_stream(operators):
    x, y = tensors()
    out = torch.empty_like(x)
    operators["axpy_"](2.0, x, y, out)
    torch.cuda.synchronize()
    for value in (3.0, 4.0):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(CYCLES)
            x.fill_(value)
            operators["axpy_"](2.0, x, y, out)
            x.zero_()
        stream.synchronize()
        agree(out, torch.full_like(out, 2 * value + 1))


def test_graph_replays_operator(operators):
    x, y = tensors()
    operators["axpy"](2.0, x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = operators["axpy"](2.0, x, y)
    x.fill_(5)
    graph.replay()
    agree(out, torch.full_like(out, 11))


def test_tvm_ffi_function_runs_on_current_stream(axpy):
    pytest.importorskip("tvm_ffi")
    import aotcuda.tvm_ffi

    function = aotcuda.tvm_ffi.function(axpy, forall=lambda a, x, y, out: x.shape[0], block=128)
    x, y = tensors()
    out = torch.empty_like(x)
    function(2.0, x, y, out)
    agree(out, 2 * x + y)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        x.fill_(3)
        function(2.0, x, y, out)
        x.zero_()
    stream.synchronize()
    agree(out, torch.full_like(out, 7))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="it needs two GPUs")
def test_operator_runs_on_gpu_of_its_tensors(operators):
    for number in (1, 0):
        x, y = (each.to(f"cuda:{number}") for each in tensors())
        agree(operators["axpy"](2.0, x, y), 2 * x + y)
        assert torch.cuda.current_device() == 0
