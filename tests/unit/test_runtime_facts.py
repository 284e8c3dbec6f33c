"""Attributes of a kernel: registers and memory, occupancy, machine code, and its `cuda.core` kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from aotcuda.errors import DependencyError, LaunchError
from aotcuda.runtime.reports import kernel_attributes
from support.manifests import kernel

ONE, OTHER = "void(int32)", "void(float32)"


@pytest.fixture
def k(cuda):
    cuda.set(kernel="threads=512,shared=96,constant=400,local=24,registers=40")
    return cuda.package(kernel("k", ONE, OTHER)).k


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("get_regs_per_thread", 40),
        ("get_shared_mem_per_block", 96),
        ("get_const_mem_size", 400),
        ("get_local_mem_per_thread", 24),
        ("get_max_threads_per_block", 512),
    ],
)
def test_attributes_are_returned_for_one_signature_or_all(k, method, value):
    assert getattr(k, method)(OTHER) == value
    assert getattr(k, method)() == {ONE: value, OTHER: value}


def test_an_unknown_signature_lists_the_known_ones(k):
    with pytest.raises(LaunchError, match=r"no signature 'void\(\)'; it has: void\(int32\), void\(float32\)"):
        k.get_regs_per_thread("void()")


def test_occupancy_of_several_signatures_needs_a_name(cuda, k):
    with pytest.raises(LaunchError, match=r"name one of its signatures: void\(int32\), void\(float32\)"):
        k.occupancy(128)
    assert k.occupancy(128, signature=ONE) == 16


@pytest.mark.parametrize(("block", "blocks"), [(1024, 2), ((32, 8), 8), ([16, 16, 2], 4)])
def test_occupancy_and_the_largest_cooperative_grid(cuda, block, blocks):
    k = cuda.package(kernel("k", ONE)).k
    assert k.occupancy(block) == blocks
    assert k.max_cooperative_grid_blocks(block) == 132 * blocks


def test_occupancy_requests_more_shared_memory(cuda):
    k = cuda.package(kernel("k", ONE)).k
    k.occupancy(128, shared=100_000)
    calls = [call["call"] for call in cuda.calls("cuKernelSetAttribute", "cuOccupancyMaxActiveBlocksPerMultiprocessor")]
    assert calls == ["cuKernelSetAttribute", "cuOccupancyMaxActiveBlocksPerMultiprocessor"]


def test_an_impossible_block_has_no_occupancy(cuda):
    k = cuda.package(kernel("k", ONE)).k
    for block in (0, "x", (1, 1, 1, 1)):
        with pytest.raises(LaunchError, match="block is"):
            k.occupancy(block)
    for block in (2**31, 2**64 + 32, (2**16, 2**16, 1)):
        with pytest.raises(LaunchError, match=r"block .* are possible"):
            k.max_cooperative_grid_blocks(block)
    with pytest.raises(LaunchError, match="bytes of dynamic shared memory, where at most"):
        k.occupancy(32, shared=2**32 + 1)


def test_the_disassembler_gets_the_image_and_the_symbol_of_each_overload(cuda, k, monkeypatch):
    commands = []

    def run(command, **_options):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, f"code of {command[-2]}", "")

    monkeypatch.setattr(kernel_attributes, "_cuobjdump", lambda: "cuobjdump")
    monkeypatch.setattr(subprocess, "run", run)
    assert k.inspect_sass() == {ONE: "code of k_0", OTHER: "code of k_1"}
    assert k.inspect_sass(OTHER) == "code of k_1"
    assert commands[0][:-1] == ["cuobjdump", "--dump-sass", "--gpu-architecture", "sm_90", "--function", "k_0"]
    assert Path(commands[0][-1]).parts[-2:] == ("kernels.aotcuda", "kernels.fatbin")


def test_a_gpu_with_ptx_has_no_machine_code(cuda, monkeypatch):
    cuda.set(devices="12.0")
    monkeypatch.setattr(kernel_attributes, "_cuobjdump", lambda: "cuobjdump")
    k = cuda.package(kernel("k", ONE)).k
    with pytest.raises(LaunchError, match="no machine code for GPU 0"):
        k.inspect_sass()


def test_an_error_of_the_disassembler_is_shown(cuda, k, monkeypatch, tmp_path):
    tool = tmp_path / "cuobjdump"
    tool.write_text("#!/bin/sh\necho 'cuobjdump fatal: no such file' >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    with pytest.raises(LaunchError, match="fatal: no such file"):
        k.inspect_sass(ONE)


def test_a_missing_disassembler_says_how_to_install_it(k, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    with pytest.raises(DependencyError, match="pip install nvidia-cuda-cuobjdump"):
        k.inspect_sass()


def test_a_kernel_is_converted_for_cuda_core(cuda, monkeypatch):
    core = SimpleNamespace(Kernel=SimpleNamespace(from_handle=lambda handle: ("cuda.core kernel", handle)))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    k = cuda.package(kernel("k", ONE)).k
    k[1, 1](1)
    assert k.cuda_core_kernel() == (
        "cuda.core kernel",
        k.images.current.table("k").overloads[0].kernels[0].kernel.value,
    )


def test_without_cuda_core_the_error_says_how_to_install_it(cuda, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    k = cuda.package(kernel("k", ONE)).k
    with pytest.raises(DependencyError, match=r"pip install 'cuda-core\[cu13\]'"):
        k.cuda_core_kernel()
