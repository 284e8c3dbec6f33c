"""Packaged kernels as operators of PyTorch, on a real GPU: opcheck, torch.compile, torch.export, autograd, streams."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aotcuda.errors import ArgumentError

# What PyTorch's compilers warn of is their affair.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("this PyTorch has no CUDA", allow_module_level=True)

REPOSITORY = Path(__file__).parents[2]
N = 1000
CYCLES = 200_000_000
"""How long a stream is kept busy: a tenth of a second."""


@pytest.fixture(scope="module")
def axpy(installed):
    sys.path.insert(0, str(installed / "quickstart"))
    import quickstart.kernels

    return quickstart.kernels.axpy


@pytest.fixture(scope="module")
def operators(features, axpy):
    """By name: operators that write to what they are given, and that return what they make."""
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


def agree(got, wanted):
    torch.testing.assert_close(got, wanted)
    assert got.device == wanted.device


def tensors(dtype=torch.float32):
    x = torch.linspace(-2, 2, N, dtype=dtype, device="cuda")
    return x, torch.ones_like(x)


def test_opcheck(operators):
    x, y = tensors()
    for name, args in (("axpy_", (2.0, x, y, torch.empty_like(x))), ("axpy", (2.0, x, y)), ("square", (x,))):
        assert {*torch.library.opcheck(operators[name], args).values()} == {"SUCCESS"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_operator_launches_the_signature_of_its_arguments(operators, dtype):
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
def test_compiled_without_a_break(operators, backend, dynamic):
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


def test_gradients(features):
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


def test_exported(operators, tmp_path):
    x, y = tensors()
    exported = torch.export.export(Model(operators["axpy"]), (x, y))
    assert "gputests.axpy.default" in str(exported.graph)
    torch.export.save(exported, tmp_path / "model.pt2")
    again = torch.export.load(tmp_path / "model.pt2")
    agree(again.module()(x, y), (2 * x + y).relu())


AOT_INDUCTOR = """
import sys
import torch

if sys.argv[1] == "alone":
    def axpy(a, x, y):
        return a * x + y
else:
    import aotcuda.torch
    import quickstart.kernels as k

    axpy = aotcuda.torch.op(k.axpy, grid=4, block=256, outputs={"out": "x"}, name="gputests::axpy")


class Model(torch.nn.Module):
    def forward(self, x, y):
        return axpy(2.0, x, y).relu()


x = torch.linspace(-2, 2, 1000, device="cuda")
y = torch.ones_like(x)
exported = torch.export.export(Model(), (x, y))
package = torch._inductor.aoti_compile_and_package(exported, package_path=sys.argv[1] + ".pt2")
torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x, y), (2 * x + y).relu())
print("right")
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler")
def test_by_aot_inductor(installed, tmp_path):
    """In a process of its own: PyTorch loads what it compiled beside whatever libraries the process has already."""

    def run(what):
        search = os.pathsep.join([str(installed / "quickstart"), str(REPOSITORY), *sys.path])
        command = [sys.executable, "-X", "faulthandler", "-c", AOT_INDUCTOR, what]
        environment = {**os.environ, "PYTHONPATH": search}
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run("packaged")
    if done.returncode < 0 and run("alone").returncode == done.returncode:
        pytest.skip(
            f"PyTorch {torch.__version__} crashes here as it loads a package with no operator of aotcuda's, too"
        )
    assert done.stdout.endswith("right\n"), done.stderr[-4000:]


def test_on_the_current_stream(operators):
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


def test_captured_into_a_graph(operators):
    x, y = tensors()
    operators["axpy"](2.0, x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = operators["axpy"](2.0, x, y)
    x.fill_(5)
    graph.replay()
    agree(out, torch.full_like(out, 11))


def test_what_is_no_tensor_of_cudas_is_refused_in_words(operators):
    x, y = tensors()
    with pytest.raises(ArgumentError, match=r"its tensors are on cpu: move them there with x\.cuda\(\)"):
        operators["axpy"](2.0, x.cpu(), y.cpu())
    with pytest.raises(ArgumentError, match="in the host's memory"):
        operators["axpy"](2.0, x, y.cpu())


def test_a_dtype_that_is_not_packaged_is_refused_in_words(operators):
    with pytest.raises(ArgumentError, match=r"square accepts these arguments; .*int8"):
        operators["square"](torch.zeros(4, dtype=torch.int8, device="cuda"))

    @torch.compile(fullgraph=True, backend="aot_eager")
    def compiled(x):
        return operators["square"](x) + 1

    with pytest.raises(Exception, match="no packaged signature takes tensors int8"):
        compiled(torch.zeros(4, dtype=torch.int8, device="cuda"))


def test_a_function_of_tvm_ffis_on_the_current_stream(axpy):
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
def test_on_the_gpu_of_its_tensors(operators):
    for number in (1, 0):
        x, y = (each.to(f"cuda:{number}") for each in tensors())
        agree(operators["axpy"](2.0, x, y), 2 * x + y)
        assert torch.cuda.current_device() == 0
