"""`aotcuda.stand_ins.pytorch`: PyTorch under `aotcuda record --dry`, without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra libraries)")

TENSORS = """
import threading
import torch

assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
assert torch.cuda.get_device_name() == "NVIDIA H100 80GB HBM3" and torch.cuda.get_device_capability("cuda") == (9, 0)
assert torch.cuda.get_device_properties(0).multi_processor_count == 132
assert torch.accelerator.current_accelerator().type == "cuda"

host = torch.ones(4)
made = {
    "factory": torch.zeros(4, device="cuda"),
    "data": torch.tensor([1.0, 2.0], device="cuda"),
    "as_tensor": torch.as_tensor(host, device="cuda"),
    "moved": host.cuda(),
    "to": host.to("cuda", torch.float16),
    "operator": host.cuda() + 1,
    "view": torch.zeros(4, 4, device="cuda")[1:].T,
    "like": torch.empty_like(host.cuda()),
    "new": host.cuda().new_zeros(3),
    "random": torch.randn(2, device="cuda", generator=torch.Generator("cuda")),
    "parameter": torch.nn.Linear(4, 4).cuda().weight,
    "pinned": torch.empty(4, pin_memory=True).to("cuda", non_blocking=True),
}
with torch.device("cuda"):
    made["context"] = torch.arange(3)
    made["dtype in context"] = torch.empty(4, dtype=torch.float32)
    made["None in context"] = torch.zeros(4, device=None)
    made["parameter in context"] = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
    made["data in context"] = torch.tensor([1])
for name, tensor in made.items():
    assert tensor.is_cuda and tensor.device == torch.device("cuda:0") and tensor.get_device() == 0, name
for name, tensor in {
    "host": host, "cpu": made["moved"].cpu(), "to": made["moved"].to("cpu"), "new": torch.zeros(4),
    "like": torch.zeros_like(made["moved"], device="cpu"),
}.items():
    assert not tensor.is_cuda and tensor.device.type == "cpu", name
assert made["moved"].to("cuda") is made["moved"] and made["moved"].to(made["moved"].device) is made["moved"]
assert made["moved"].data_ptr() % 16 == 0 and made["moved"].data_ptr() != host.data_ptr()

layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).to("cuda")
output = layer(torch.ones(2, 4, device="cuda"))
output.sum().backward()
assert output.is_cuda and layer[0].weight.grad.is_cuda
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") is torch.bfloat16
    assert (torch.ones(4, 4, device="cuda") @ torch.ones(4, 4, device="cuda")).dtype is torch.bfloat16

stream, begin, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event()
with torch.cuda.stream(stream), torch.cuda.device(0):
    begin.record()
    end.record(stream)
torch.cuda.synchronize()
assert begin.elapsed_time(end) > 0 and torch.cuda.memory_allocated() == 0

found = []
thread = threading.Thread(target=lambda: found.append(torch.zeros(4, device="cuda").is_cuda))
thread.start()
thread.join()
assert found == [True]
assert torch.compile(lambda x: x + 1)(made["moved"]).is_cuda
"""
READS = {
    "item() of a tensor": ("x[0].item()", "float(x.sum())", "bool((x + 1).sum() > 0)"),
    "to() of a tensor": ("x.cpu()", "(x * 2).to('cpu')"),
    "numpy() of a tensor": ("x.numpy()",),
    "tolist() of a tensor": ("x.tolist()",),
    "copy_() of a tensor": ("torch.empty(4).copy_(x)", "torch.empty(4)[:2] = x[:2]"),
    "equal of a tensor": ("torch.equal(x, x)",),
    "": ("torch.ones(2, device='cuda').sum().item()", "x.shape[0]", "x + 1"),
}


FUNCTIONS = """
import torch

# Each function without required arguments answers, whatever PyTorch's release has.
other = {"jiterator"}
for module in (torch.cuda, torch.accelerator, torch.cuda.nvtx):
    for name in set(module.__all__) - other:
        function = getattr(module, name)
        if isinstance(function, type) and (issubclass(function, Exception) or "Storage" in name):
            continue
        for arguments in ((), (0,), ("message",), (torch.zeros(1),)):
            try:
                if callable(function):
                    function(*arguments)
            except (TypeError, ValueError):
                continue
            except (RuntimeError, AssertionError, ImportError, ModuleNotFoundError) as error:
                raise SystemExit(f"{module.__name__}.{name}{arguments}: {error!r}")

known = torch.cuda.get_device_properties(0)
for name in (
    "name major minor multi_processor_count total_memory is_integrated is_multi_gpu_board gcnArchName warp_size uuid "
    "max_threads_per_multi_processor L2_cache_size clock_rate memory_clock_rate memory_bus_width "
    "shared_memory_per_block shared_memory_per_block_optin shared_memory_per_multiprocessor regs_per_multiprocessor "
    "max_threads_per_block pci_bus_id pci_device_id pci_domain_id"
).split():
    assert hasattr(known, name), name
assert not hasattr(known, "unknown") and getattr(known, "unknown", 7) == 7
with torch.accelerator.device_index(0), torch.cuda.graph(torch.cuda.CUDAGraph()):
    pass
"""

OPERATORS = """
import torch

calls = []


def function(name):
    def call(x: torch.Tensor) -> torch.Tensor:
        calls.append(name)
        return torch.empty(x.shape, device=x.device).fill_(x.sum())

    return call


library = torch.library.Library("rep", "FRAGMENT")
for name, key in {"cuda": "CUDA", "both": "CUDA", "composite": "", "explicit": "CompositeExplicitAutograd"}.items():
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, function(name), key)
library.impl("both", function("both on the CPU"), "CPU")
override = torch.library.Library("aten", "IMPL")
override.impl("relu", function("relu"), "CUDA")

operators = {
    "custom": torch.library.custom_op("rep::custom", function("custom"), mutates_args=()),
    "device": torch.library.custom_op("rep::device", function("device"), mutates_args=(), device_types="cuda"),
    "triton": torch.library.triton_op("rep::triton", function("triton"), mutates_args=()),
    **{name: getattr(torch.ops.rep, name) for name in ("cuda", "both", "composite", "explicit")},
    "relu": torch.relu,
}


@torch.library.custom_op("rep::later", mutates_args=(), device_types="cpu")
def later(x: torch.Tensor) -> torch.Tensor:
    calls.append("on the CPU")
    return torch.empty_like(x)


later.register_kernel("cuda")(function("later"))
operators["later"] = later
x = torch.ones(4, device="cuda")
for name, operator in operators.items():
    calls.clear()
    assert operator(x).is_cuda, name
    assert calls == [name], calls
for operator, name in ((later, "on the CPU"), (torch.ops.rep.both, "both on the CPU"), (torch.relu, None)):
    calls.clear()
    assert not operator(torch.ones(4)).is_cuda
    assert calls == ([name] if name else []), calls
override._destroy()
calls.clear()
assert torch.relu(x).is_cuda and calls == []


@torch.library.custom_op("rep::write", mutates_args={"x"}, device_types="cuda")
def write(x: torch.Tensor) -> None:
    calls.append(torch.empty(1, device="cuda").is_cuda)


write(x)
assert calls == [True]
operators["custom"].register_autograd(lambda context, gradient: operators["device"](gradient))
y = torch.ones(4, device="cuda", requires_grad=True)
calls.clear()
operators["custom"](y).sum().backward()
assert calls == ["custom", "device"] and y.grad.is_cuda


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.new_empty(x.shape).copy_(x * 2)

    @staticmethod
    def backward(context, gradient):
        assert gradient.is_cuda
        return torch.empty_like(gradient).fill_(2)


y.grad = None
Twice.apply(y).sum().backward()
assert y.grad.is_cuda and y.grad.tolist() == [2.0] * 4


@torch.compile(fullgraph=True)
def compiled(x):
    return operators["custom"](x)


assert compiled(x).is_cuda and torch.nn.Linear(1, 1).compile() is None
"""

DEVICES = """
import torch

gpu, scalar = torch.arange(8, device="cuda"), torch.tensor(2, device="cuda")
host = torch.ones(8, dtype=torch.int64)
for code in (
    "x.copy_(gpu)", "x[:2] = gpu[:2]", "x.mul_(scalar)", "x.add_(scalar)", "torch.add(x, scalar, out=x)",
    "x.fill_(scalar)", "x.masked_fill_(x > 0, scalar)", "torch.mul(host, scalar, out=x)", "x.view(2, 4)[0] = gpu[:4]",
    "x.resize_(16)", "x.set_(host)", "torch.tensor([1], pin_memory=True)", "x.pin_memory()",
):
    x = torch.zeros(8, dtype=torch.int64)
    exec(code)
    assert x.device.type == "cpu" and not x.is_cuda and host.device.type == "cpu", code
for code in (
    "gpu + 1", "gpu * torch.tensor(2)", "gpu[host]", "torch.add(gpu, 1, out=torch.zeros(8, dtype=int, device='cuda'))",
    "gpu.clone().copy_(host)", "torch.cat([gpu, gpu])", "torch.zeros(3).to(0)", "host.type('torch.cuda.FloatTensor')",
    "torch.tensor([1], pin_memory=True, device='cuda')", "torch.cuda.FloatTensor(2, 3)", "torch.cuda.LongTensor([1])",
    "torch.empty(2, device='cuda').resize_(9)", "gpu.view(torch.int32)",
):
    assert eval(code).is_cuda, code
    assert eval(code).untyped_storage().is_cuda, code
assert isinstance(gpu, torch.cuda.LongTensor) and not isinstance(gpu, torch.cuda.FloatTensor)
assert not isinstance(host, torch.cuda.LongTensor) and gpu.type() == "torch.cuda.LongTensor"
assert host.type() == "torch.LongTensor" and host.type(torch.cuda.FloatTensor).dtype is torch.float32

# Memory that no operator wrote is zero, although the memory was used before.
gpu_ints = {"dtype": torch.int64, "device": "cuda"}
for code in (
    "torch.empty(n, **gpu_ints)", "torch.empty_like(x)", "x.new_empty(n)",
    "torch.empty_strided((n,), (1,), **gpu_ints)",
    "x.new_empty_strided((n,), (1,))", "torch.empty(1, **gpu_ints).resize_(n)",
    "torch.empty_permuted((n,), (0,), **gpu_ints)",
):
    for n in (4, 1000, 100_000):
        x = torch.full((n,), 1 << 40, device="cuda")
        hold = [torch.full((n,), 1 << 40, device="cuda") for _ in range(64 if n < 5000 else 8)]
        del hold
        assert not eval(code).any(), (code, n)
kept = torch.full((4,), 7, device="cuda")
assert kept.resize_(2).resize_(4).tolist() == [7, 7, 7, 7]
"""


COMPILED = """
import torch


def compile_(schema):
    # An extension module registers its operators by the same call in C++.
    library.define(schema)
    library.m.impl(schema.partition("(")[0], "CUDA", lambda *_: 1 / 0, False)


library = torch.library.Library("compiled", "DEF")
compile_("write(Tensor(a!) out, Tensor x, *, int n=1) -> ()")
compile_("write_and_return(Tensor x, Tensor(a!) out) -> Tensor(a!)")
compile_("pair(Tensor x, int n) -> (Tensor, Tensor)")
compile_("unknown(Tensor x) -> Tensor")


@torch.library.register_fake("compiled::pair")
def pair(x, n):
    return x.new_empty(n, *x.shape), torch.empty(3, dtype=torch.int32, device=x.device)


x, out = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
assert torch.ops.compiled.write(out, x, n=2) is None
assert torch.ops.compiled.write_and_return(x, out).data_ptr() == out.data_ptr()
first, second = torch.ops.compiled.pair(x, 5)
assert first.is_cuda and second.is_cuda and (first.shape, second.dtype) == ((5, 4), torch.int32)
assert first.dtype is x.dtype and not first.any()
try:
    torch.ops.compiled.unknown(x)
except NotImplementedError as error:
    assert "compiled::unknown has only code for GPUs" in str(error)
else:
    raise AssertionError
"""

GROUPS = """
import tempfile
import torch
import torch.distributed as dist

file = f"file://{tempfile.mktemp()}"
dist.init_process_group("nccl", init_method=file, rank=0, world_size=1, device_id=torch.device("cuda:0"))
assert dist.is_nccl_available()
x = torch.full((4,), 2.0, device="cuda")
group = dist.new_group([0], backend="nccl")
for each in (None, group):
    dist.all_reduce(x, group=each)
    dist.broadcast(x, 0, group=each)
    gathered = [torch.empty_like(x)]
    dist.all_gather(gathered, x, group=each)
    dist.barrier(group=each)
    assert gathered[0].is_cuda and gathered[0].tolist() == [2.0] * 4
dist.destroy_process_group()
"""

READING = "\n".join(
    [
        "import sys, torch",
        "dry = sys.modules['aotcuda_recorder.dry']",
        "found = ['']",
        "dry.log.write_first = lambda facts: found.append(facts['call'])",
        "x = torch.ones(4, device='cuda')",
        "dry.mark_arrays_written((x,))",
        *(f"found[1:] = []; {code}; print('read:', found[-1])" for codes in READS.values() for code in codes),
    ]
)

PROGRAMS = {
    "tensors": TENSORS, "functions": FUNCTIONS, "operators": OPERATORS, "devices": DEVICES,
    "compiled": COMPILED, "groups": GROUPS, "reading": READING,
}  # fmt: skip
MAIN = """
import sys, runpy, traceback

for name in sys.argv[1:]:
    try:
        runpy.run_path(f"{name}.py")
        print(name, "ended")
    except BaseException:
        traceback.print_exc()
"""


BUILD = """
import os
from aotcuda.builder.frontends.gpu_queries import gpu

with gpu.importing((9, 0), os.getcwd()):
    import main
"""


@pytest.fixture(scope="module", params=["record", "build"])
def run(request, tmp_path_factory):
    """Run all programs in one process, since PyTorch's import takes longest, and return it."""
    folder = tmp_path_factory.mktemp("programs")
    for name, program in PROGRAMS.items():
        (folder / f"{name}.py").write_text(program)
    (folder / "main.py").write_text(MAIN)
    (folder / "build.py").write_text(BUILD)
    command = [sys.executable, "-m", "aotcuda", "record", "--gpu", "H100", "--", sys.executable, "main.py", *PROGRAMS]
    if request.param == "build":
        command = [sys.executable, "build.py", *(name for name in PROGRAMS if name != "reading")]
    environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_as_on_a_gpu(run, name):
    if name == "reading" and "build.py" in run.args:
        return  # builds record no launches
    assert f"{name} ended" in run.stdout.splitlines(), run.stderr


@pytest.mark.parametrize("run", ["record"], indirect=True)
def test_each_way_to_read_a_result_is_noticed(run):
    found = [line.removeprefix("read: ") for line in run.stdout.splitlines() if line.startswith("read: ")]
    assert found == [call for call, codes in READS.items() for _ in codes]
