"""`aotcuda.stand_ins.nvml`: NVML under `aotcuda record --dry`, called as NVIDIA's module `pynvml` calls it."""

from __future__ import annotations

import ctypes

import pytest

from aotcuda.gpus import describe
from aotcuda.stand_ins.gpu import Gpu
from aotcuda.stand_ins.nvml import Library

NOT_SUPPORTED, NOT_FOUND = 3, 6  # nvml.h, nvmlReturn_enum


class Memory(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class Pci(ctypes.Structure):
    _fields_ = (("busIdLegacy", ctypes.c_char * 16), ("device", ctypes.c_uint), ("busId", ctypes.c_char * 32))


@pytest.fixture
def nvml() -> Library:
    return Library(Gpu(describe((9, 0), "NVIDIA H100 80GB HBM3")))


@pytest.mark.parametrize(
    ("function", "output", "value"),
    [
        ("nvmlDeviceGetCount_v2", ctypes.c_uint(), 1),
        ("nvmlSystemGetCudaDriverVersion_v2", ctypes.c_int(), 13000),
        ("nvmlDeviceGetIndex", ctypes.c_uint(9), 0),
        ("nvmlDeviceGetMaxClockInfo", ctypes.c_uint(), 1500),
    ],
)
def test_numbers_are_written_to_the_address(nvml: Library, function: str, output: ctypes.c_uint, value: int) -> None:
    assert getattr(nvml, function)(ctypes.byref(output)) == 0
    assert output.value == value


def test_texts_are_written_to_buffers(nvml: Library) -> None:
    buffer = ctypes.create_string_buffer(96)
    assert nvml.nvmlDeviceGetName(None, buffer, ctypes.c_uint(96)) == 0
    assert buffer.value == b"NVIDIA H100 80GB HBM3"
    assert nvml.nvmlSystemGetDriverVersion(buffer, ctypes.c_uint(96)) == 0
    assert buffer.value.startswith(b"580.")


def test_structures_get_the_fields_that_they_have(nvml: Library) -> None:
    memory, pci = Memory(), Pci()
    assert nvml.nvmlDeviceGetMemoryInfo(None, ctypes.byref(memory)) == 0
    assert nvml.nvmlDeviceGetPciInfo_v3(None, ctypes.byref(pci)) == 0
    assert (memory.total, memory.free, memory.used) == (64 << 30, 64 << 30, 0)
    assert pci.busId == b"00000000:01:00.0"


def test_capability_is_that_of_the_target(nvml: Library) -> None:
    major, minor = ctypes.c_int(), ctypes.c_int()
    assert nvml.nvmlDeviceGetCudaComputeCapability(None, ctypes.byref(major), ctypes.byref(minor)) == 0
    assert (major.value, minor.value) == (9, 0)


def test_second_gpu_and_unknown_facts_are_refused(nvml: Library) -> None:
    handle = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(0), ctypes.byref(handle)) == 0
    assert nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(1), ctypes.byref(handle)) == NOT_FOUND
    assert nvml.nvmlDeviceGetPowerUsage(handle, ctypes.byref(ctypes.c_uint())) == NOT_SUPPORTED
    assert nvml.nvmlErrorString(NOT_SUPPORTED) == b"Not Supported"
    with pytest.raises(AttributeError):
        nvml.cuInit  # noqa: B018
