"""`AOTCUDA_SYNCHRONIZE=1`: launches wait for their kernel, and an error names the kernel that failed."""

from __future__ import annotations

import numpy as np
import pytest

from aotcuda.errors import ConfigError, CudaError
from aotcuda.runtime import streams
from support.manifests import kernel

pytestmark = pytest.mark.usefixtures("path")

AXPY = "void(float32, float32[::1], float32[:,:])"


@pytest.fixture
def synchronous(monkeypatch):
    monkeypatch.setenv("AOTCUDA_SYNCHRONIZE", "1")


@pytest.mark.usefixtures("synchronous")
class TestSet:
    """The variable is set."""

    def test_every_launch_waits_for_its_kernel(self, cuda):
        k = cuda.package(kernel("k", "void(int32)", "void(float32)")).k
        run = k[1, 1, 77]
        for value in (1, 2, 3, 1.5, 2.5, 3.5):
            run(value)
        for n in (10, 10, 10):
            k.forall(n, stream=78)(1)
        order = [(call["call"], call["stream"]) for call in cuda.calls("cuLaunchKernel", "cuStreamSynchronize")]
        once = ["cuStreamSynchronize", "cuLaunchKernel", "cuStreamSynchronize"]
        assert order == [(name, 77) for name in once * 6] + [(name, 78) for name in once * 3]

    def test_error_shows_launch_and_arguments(self, cuda):
        k = cuda.package(kernel("k", AXPY)).k
        cuda.set(faulty="k_0")
        x = cuda.array(np.zeros(8, "<f4"))
        strided = cuda.array(np.zeros((6, 8), "<f4")[::2, ::4])
        with pytest.raises(CudaError) as caught:
            k[(4, 2), 32, 77, 16](2.5, x, strided)
        first, *lines = str(caught.value).splitlines()
        assert first == (
            "mypkg.kernels.k failed on GPU 0 (Stand-in A, compute capability 9.0): CUDA_ERROR_ILLEGAL_ADDRESS, an "
            "illegal memory access was encountered. Nothing more can run in this process: start it again"
        )
        assert lines == [
            f"  signature: {AXPY}",
            "  launched with grid (4, 2, 1), block (32, 1, 1), stream 0x4d and 16 bytes of dynamic shared memory",
            "  argument 1, a: float32 2.5",
            f"  argument 2, b: float32[::1] of shape (8,) at {x.address:#x}",
            f"  argument 3, c: float32[:,:] of shape (3, 2) and strides (64, 16) in bytes at {strided.address:#x}",
        ]
        assert (caught.value.name, caught.value.code) == ("CUDA_ERROR_ILLEGAL_ADDRESS", 700)

    @pytest.mark.parametrize(
        ("signature", "args", "words"),
        [
            ("void(boolean, int8, uint64)", (True, -3, 2**64 - 1), ["boolean True", "int8 -3", f"uint64 {2**64 - 1}"]),
            ("void(float16, float64)", (0.5, -1e300), ["float16 0.5", "float64 -1e+300"]),
            ("void(complex64, complex128)", (1 + 2j, 3j), ["complex64 (1+2j)", "complex128 3j"]),
            ("void(float32*)", (0x1000,), ["float32* at 0x1000"]),
            ("void((int32, (float64, int8)))", ((1, (2.5, 3)),), ["(int32, (float64, int8)) (1, (2.5, 3))"]),
            ("void()", (), []),
        ],
    )
    def test_error_shows_arguments_of_every_kind(self, cuda, signature, args, words):
        k = cuda.package(kernel("k", signature)).k
        cuda.set(faulty="k_0")
        with pytest.raises(CudaError) as caught:
            k[1, 1](*args)
        found = [line.partition(": ")[2] for line in str(caught.value).splitlines()[3:]]
        assert found == words

    def test_fault_of_earlier_kernel_is_not_blamed_on_launch(self, cuda):
        """For example, a kernel that another library launched."""
        module = cuda.package(kernel("k", "void(int32)"), kernel("guilty", "void(int32)"))
        cuda.set(fail="cuStreamSynchronize=700@1")
        with pytest.raises(CudaError, match=r"k was not launched, because earlier work on its stream has failed: "):
            module.k[1, 1](1)
        assert cuda.launches() == []

    def test_launches_do_not_wait_for_captured_stream(self, cuda):
        """Waiting would end the capture."""
        k = cuda.package(kernel("k", "void(int32)")).k
        cuda.set(capturing="77")
        for stream in (77, 77, 78):
            k[1, 1, stream](1)
        assert [call["stream"] for call in cuda.calls("cuStreamSynchronize")] == [78, 78]
        assert len(cuda.launches()) == 3


def test_variable_is_read_when_images_are_loaded(cuda, monkeypatch):
    module = cuda.package(kernel("k", "void(int32)"))
    module.k[1, 1](1)
    monkeypatch.setenv("AOTCUDA_SYNCHRONIZE", "1")
    module.k[1, 1](1)
    assert cuda.calls("cuStreamSynchronize") == []
    module.__aotcuda__.unload()
    module.k[1, 1](1)
    assert len(cuda.calls("cuStreamSynchronize")) == 2


def test_another_value_is_refused(cuda, monkeypatch):
    monkeypatch.setenv("AOTCUDA_SYNCHRONIZE", "yes")
    module = cuda.package(kernel("k", "void(int32)"), load="first-use")
    with pytest.raises(ConfigError, match="AOTCUDA_SYNCHRONIZE is 'yes'; write '0' or '1'"):
        module.k[1, 1](1)
    assert cuda.launches() == []


def test_error_of_earlier_kernel_names_variable(cuda):
    module = cuda.package(kernel("k", "void(int32)"), kernel("guilty", "void(int32)"))
    for _ in range(3):
        module.k[1, 1](1)
    cuda.set(faulty="guilty_0")
    module.guilty[1, 1](1)
    for _ in range(2):
        with pytest.raises(
            CudaError, match=r"k could not be launched .* may be the cause.*AOTCUDA_SYNCHRONIZE=1.*start"
        ):
            module.k[1, 1](1)


def test_launches_of_debug_builds_wait_unless_they_are_captured(cuda):
    k = cuda.package(kernel("k", "void(int32)", raises=[])).k
    cuda.set(capturing="77", store="k_0__errcode__=1")
    k[1, 1, 77](1)
    assert cuda.calls("cuStreamSynchronize") == []
    assert len(cuda.launches()) == 1
    cuda.set(capturing="", store="", faulty="k_0")
    with pytest.raises(CudaError, match=r"(?s)^mypkg\.kernels\.k failed on GPU 0.*launched with.*a: int32 5$"):
        k[1, 1](5)


class Modes:
    """Stand in for the driver's calls that `streams.wait` makes.

    Attributes:
        mode: The capture mode of the thread.
        seen: The mode while a stream is waited for.
    """

    def __init__(self, problem=None):
        self.mode, self.seen, self._problem = 0, None, problem
        self.call = {"cuThreadExchangeStreamCaptureMode": self._exchange, "cuStreamSynchronize": self._synchronize}

    def _exchange(self, pointer):
        self.mode, pointer._obj.value = pointer._obj.value, self.mode
        return 0

    def _synchronize(self, stream):
        self.seen = self.mode
        if self._problem is not None:
            raise self._problem
        return stream


def test_wait_restores_the_capture_mode_of_the_thread():
    modes = Modes()
    assert streams.wait(modes, 7) == 7
    assert (modes.mode, modes.seen) == (0, 2)
    interrupted = Modes(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        streams.wait(interrupted, 7)
    assert interrupted.mode == 0
