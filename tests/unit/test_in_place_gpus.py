"""`cuda.gpus` and contexts of modules in place: each call concerns its own GPU, and leaves the current context."""

from __future__ import annotations

import pytest

from aotcuda.integrations.in_place import gpus
from aotcuda.runtime import driver as drivers


def synchronize(cuda, number):
    gpus.Context("numba", number).synchronize()
    assert [call["device"] for call in cuda.calls("cuCtxSynchronize")] == [number]


def memory(_, number):
    assert gpus.Context("numba", number).get_memory_info().total == 4 + number << 30


def nested(cuda, number):
    with gpus.Gpus("numba")[number] as context, gpus.Gpus("numba")[1 - number] as other:
        assert drivers.get().current_device() == 1 - number
        synchronize(cuda, context.device.id)
        memory(cuda, other.device.id)
        assert drivers.get().current_device() == 1 - number


def failing_block(_, number):
    gpu = gpus.Gpus("numba")[number]
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), gpu:
            assert 1 / 0


@pytest.mark.parametrize("use", [synchronize, memory, nested, failing_block])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("current", [None, 0, 1, 2])
def test_current_context_stays(cuda, use, number, current):
    cuda.set(devices="9.0,9.0,9.0")
    driver = drivers.get()
    if current is not None:
        driver.make_current(current)
    before = driver.current_context()
    use(cuda, number)
    assert driver.current_context() == before
