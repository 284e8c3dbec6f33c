"""`aotcuda.testing.pytorch`: PyTorch under `aotcuda record --dry`, without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (extra libraries)")

PROGRAM = """
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
print("ran")
"""
READS = {
    "item() of a tensor": ("x[0].item()", "float(x.sum())", "bool((x + 1).sum() > 0)"),
    "to() of a tensor": ("x.cpu()", "(x * 2).to('cpu')"),
    "numpy() of a tensor": ("x.numpy()",),
    "tolist() of a tensor": ("x.tolist()",),
    "equal of a tensor": ("torch.equal(x, x)",),
    "": ("torch.ones(2, device='cuda').sum().item()", "x.shape[0]", "x + 1"),
}


def record(folder, program):
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-m", "aotcuda", "record", "--gpu", "H100", "--", sys.executable, "program.py"]
    environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def test_tensors_report_the_missing_gpu(tmp_path):
    done = record(tmp_path, PROGRAM)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


def test_each_way_to_read_a_result_is_noticed(tmp_path):
    lines = [
        "import sys, torch",
        "dry = sys.modules['aotcuda_recorder.dry']",
        "found = ['']",
        "dry.log.write_first = lambda facts: found.append(facts['call'])",
        "x = torch.ones(4, device='cuda')",
        "dry.mark_arrays_written((x,))",
        *(f"found[1:] = []; {code}; print(found[-1])" for codes in READS.values() for code in codes),
    ]
    done = record(tmp_path, "\n".join(lines))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [call for call, codes in READS.items() for _ in codes]
