"""Launches: configurations and their limits, contexts, several GPUs, and errors of the driver."""

from __future__ import annotations

import contextlib
import gc
from unittest.mock import Mock

import numpy as np
import pytest

from aotcuda.errors import ArgumentError, CudaError, LaunchError, NoImageError
from aotcuda.runtime import driver
from support import threads
from support.manifests import kernel, overload

pytestmark = pytest.mark.usefixtures("path")


class Stream:
    """A stream by the protocol."""

    def __cuda_stream__(self):
        return 0, 77


@pytest.fixture
def k(cuda):
    """Return a kernel that takes one int."""
    return cuda.package(kernel("k", "void(int32)")).k


class TestConfiguration:
    """`kernel[grid, block, stream, shared]`."""

    @pytest.mark.parametrize(
        ("grid", "block", "sent"),
        [
            (4, 32, ([4, 1, 1], [32, 1, 1])),
            ((4,), (32,), ([4, 1, 1], [32, 1, 1])),
            ((4, 5), (8, 4), ([4, 5, 1], [8, 4, 1])),
            ((4, 5, 6), (8, 4, 2), ([4, 5, 6], [8, 4, 2])),
            (np.int64(7), [np.int32(8), 2], ([7, 1, 1], [8, 2, 1])),
            (2**31 - 1, 1024, ([2**31 - 1, 1, 1], [1024, 1, 1])),
            ((1, 65535, 65535), (1, 1, 64), ([1, 65535, 65535], [1, 1, 64])),
        ],
    )
    def test_grid_and_block_reach_the_driver(self, cuda, k, grid, block, sent):
        k[grid, block](1)
        launch = cuda.launches()[0]
        assert (launch["grid"], launch["block"]) == sent
        assert (launch["stream"], launch["shared"]) == (0, 0)

    def test_stream_and_shared_memory_reach_the_driver(self, cuda, k):
        k[1, 1, 77, 1000](1)
        k[1, 1, 78](1)
        k.forall(100, block=32, stream=77, shared=5)(1)
        k.forall(np.int64(100), 32)(1)
        assert [(call["stream"], call["shared"]) for call in cuda.launches()] == [(77, 1000), (78, 0), (77, 5), (0, 0)]
        assert [call["grid"] for call in cuda.launches()[2:]] == [[4, 1, 1]] * 2

    def test_a_launcher_shows_its_configuration(self, k):
        assert repr(k[3, 32]) == "<mypkg.kernels.k with grid (3, 1, 1), block (32, 1, 1)>"
        for stream in (77, Stream()):
            assert "stream 0x4d, 9 bytes of shared memory" in repr(k[3, 32, stream, 9])

    @pytest.mark.parametrize(
        ("configuration", "problem"),
        [
            ((0, 32), "grid is 0, and each of its dimensions must be at least 1"),
            ((1, 0), "block is 0, and each"),
            (((1, 0, 1), 32), r"grid is \(1, 0, 1\), and each"),
            ((-1, 32), "grid is -1, and each"),
            ((1.5, 32), "grid is 1.5 where an int or a tuple of one to three belongs"),
            (((1, 1, 1, 1), 32), "grid is .* where an int or a tuple of one to three belongs"),
            (((), 32), r"grid is \(\) where"),
            ((1, None), "block is None where"),
            (5, r"write \[grid, block\]"),
            ((1,), r"write \[grid, block\]"),
            ((1, 1, 0, 0, 0), r"write \[grid, block\].*, not \[1, 1, 0, 0, 0\]$"),
            ((), r"write \[grid, block\].*, not \[\]$"),
            ((1, 1, 0, -1), "dynamic shared memory is -1"),
            ((1, 1, 0, "many"), "dynamic shared memory is 'many'"),
            ((np.array([1, 2]), 32), r"grid is array\(\[1, 2\]\) where an int or a tuple"),
        ],
    )
    def test_impossible_configurations_are_refused_before_any_driver_call(self, cuda, configuration, problem):
        cuda.set(devices="")
        module = cuda.package(kernel("k", "void(int32)"), load="first-use")
        gc.collect()  # destroys events of other tests' objects
        calls = cuda.calls()
        with pytest.raises(LaunchError, match=f"mypkg.kernels.k cannot be launched: {problem}"):
            module.k[configuration]
        assert cuda.calls() == calls

    @pytest.mark.parametrize("index", [2.5, ValueError("no number")], ids=repr)
    def test_an_object_without_an_integer_index_is_refused(self, cuda, k, index):
        odd = Mock(spec=["__index__"], __index__=Mock(side_effect=[index] * 9))
        for get in (lambda: k[odd, 1], lambda: k[1, (1, odd)], lambda: k.configure(1, odd)):
            with pytest.raises(LaunchError, match="where an int or a tuple of one to three belongs"):
                get()
        for get in (lambda: k[1, 1, 0, odd], lambda: k.forall(4, shared=odd)(1)):
            with pytest.raises(LaunchError, match="where a number of bytes belongs"):
                get()
        assert not cuda.launches()

    @pytest.mark.parametrize(
        ("launch", "written"),
        [
            (lambda k: k[1, 32], "k[grid, block]"),
            (lambda k: k.configure(1, 32, priority=0, stream=Stream()), "k[grid, block]"),
            (lambda k: k.forall(32), "k.forall(n)"),
        ],
        ids=["brackets", "configured", "forall"],
    )
    def test_arguments_by_name_are_refused(self, cuda, launch, written):
        overloads = [overload("void(float32[::1])", "k_0", names="x"), overload("void(int32, int32)", "k_1")]
        run = launch(cuda.package({**kernel("k"), "overloads": overloads}, load="first-use").k)
        for _ in range(3):
            for names, called in (({"b": 2}, "(a, b)"), ({"b": 2, "\n": 1}, "(x)")):
                with pytest.raises(ArgumentError) as caught:
                    run(1, **names)
                shown = ", ".join(map(repr, names))
                assert str(caught.value).splitlines() == [
                    f"mypkg.kernels.k accepts positional arguments, not names ({shown}): write {written}{called}",
                    "  packaged: void(float32[::1])",
                    "  packaged: void(int32, int32)",
                ]
            run(1, 2)

    @pytest.mark.parametrize(
        ("configuration", "problem"),
        [
            (
                (2**31, 32),
                r"grid \(2147483648, 1, 1\) has 2147483648 in x, where at most 2147483647 are possible on GPU 0",
            ),
            (((1, 65536), 32), "has 65536 in y, where at most 65535"),
            (((1, 1, 65536), 32), "has 65536 in z, where at most 65535"),
            ((1, 1025), "has 1025 threads, where at most 1024 are possible on any GPU"),
            ((1, (1, 1, 65)), "has 65 in z, where at most 64"),
            ((1, (32, 33)), r"block \(32, 33, 1\) has 1056 threads, where at most 1024 are possible on any GPU"),
            ((1, 1, 0, 232449), "232449 bytes of dynamic shared memory, where at most 232448 are possible on GPU 0"),
            ((2**64 + 1, 1), "where at most 2147483647"),
            ((1, 2**32 + 32), "where at most 1024"),
        ],
    )
    @pytest.mark.parametrize("launched", [0, 3], ids=["first", "later"])
    def test_configurations_beyond_the_gpu_are_refused_with_its_limit(self, cuda, k, configuration, problem, launched):
        for value in range(launched):
            k[1, 32](value)
        with pytest.raises(LaunchError, match=problem) as caught:
            k[configuration](1)
        assert isinstance(caught.value, ValueError)
        assert len(cuda.launches()) == launched

    def test_blocks_that_no_gpu_has_are_refused_by_the_brackets(self, k):
        for make in (lambda: k[1, 2048], lambda: k[1, (2, 2, 257), 0, 0], lambda: k.configure(1, 1025)):
            with pytest.raises(LaunchError, match=r"threads, where at most 1024 are possible on any GPU"):
                make()
        with pytest.raises(LaunchError, match=r"threads, where at most 1024 are possible on any GPU"):
            k.forall(8, 2048)

    @pytest.mark.parametrize(
        ("facts", "bounds", "possible", "impossible", "problem"),
        [
            ("threads=1024", 256, (1, 256), (1, 257), "has 257 threads, more than the kernel's launch bounds, 256"),
            ("threads=640", 0, (1, 640), (1, 641), "has 641 threads, where the kernel's registers allow 640"),
            ("shared=2048", 0, (1, 1, 0, 230400), (1, 1, 0, 230401), "at most 230400 .* the kernel's own 2048"),
        ],
        ids=["launch bounds", "registers", "static shared memory"],
    )
    def test_a_kernel_limits_its_launches(self, cuda, facts, bounds, possible, impossible, problem):
        cuda.set(kernel=facts)
        k = cuda.package(kernel("k", "void(int32)", launch_bounds=[bounds, 0, 0])).k
        k[possible](1)
        with pytest.raises(LaunchError, match=problem):
            k[impossible](1)
        assert len(cuda.launches()) == 1


class TestSharedMemory:
    """More dynamic shared memory than the driver allows by default."""

    def test_more_than_48_kib_with_the_kernels_own_is_requested_once(self, cuda, k):
        cuda.set(kernel="shared=2048")
        k[1, 1, 0, 49152](1)
        k[1, 1, 0, 100_000](1)
        requests = [(call["attribute"], call["value"], call["device"]) for call in cuda.calls("cuKernelSetAttribute")]
        assert requests == [(8, 232448 - 2048, 0)]
        assert [call["shared"] for call in cuda.launches()] == [49152, 100_000]

    def test_a_carveout_is_set_when_the_kernel_is_loaded(self, cuda):
        module = cuda.package(kernel("k", "void(int32)", carveout=50))
        module.k[1, 1](1)
        module.k[1, 1](1)
        assert [(call["attribute"], call["value"]) for call in cuda.calls("cuKernelSetAttribute")] == [(9, 50)]


class TestCooperative:
    """Kernels whose blocks wait for each other."""

    @pytest.fixture
    def together(self, cuda):
        return cuda.package(kernel("k", "void(int32)", cooperative=True)).k

    def test_every_launch_is_cooperative(self, cuda, together):
        for number in (7, 8, 9):
            together[2, 3](number)
        assert [launch["cooperative"] for launch in cuda.launches()] == [True] * 3
        assert [launch["parameters"][:2] for launch in cuda.launches()] == ["07", "08", "09"]

    def test_a_grid_that_does_not_fit_at_once_is_explained(self, cuda, together):
        cuda.set(fail="cuLaunchKernel=720")
        with pytest.raises(CudaError, match=r"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE.*must fit on the GPU at once"):
            together[100_000, 1024](1)


class TestForall:
    """`kernel.forall(n)`."""

    def test_the_grid_covers_all_elements_with_the_block_of_most_occupancy(self, cuda, k):
        k.forall(769)(1)
        assert (cuda.launches()[0]["grid"], cuda.launches()[0]["block"]) == ([2, 1, 1], [768, 1, 1])

    @pytest.mark.parametrize(("n", "blocks"), [(1, 1), (63, 1), (64, 1), (65, 2), (127, 2), (128, 2), (129, 3)])
    def test_the_grid_has_no_block_without_elements(self, cuda, k, n, blocks):
        k.forall(n, 64)(1)
        assert (cuda.launches()[0]["grid"], cuda.launches()[0]["block"]) == ([blocks, 1, 1], [64, 1, 1])

    def test_launch_bounds_limit_the_block(self, cuda):
        module = cuda.package(kernel("k", "void(int32)", launch_bounds=[128, 0, 0]))
        module.k.forall(1000)(1)
        assert cuda.launches()[0]["block"] == [128, 1, 1]

    def test_no_elements_are_no_launch_but_the_arguments_are_checked(self, cuda, k):
        k.forall(0)(1)
        with pytest.raises(ArgumentError):
            k.forall(0)("wrong")
        assert cuda.launches() == []

    @pytest.mark.parametrize(
        ("n", "block", "problem"),
        [
            (np.int32(-1), None, r"forall\(-1\): the number of elements cannot be negative"),
            ("x", None, "the number of elements must be an int"),
            (10, 0, "block is 0 where forall takes an int of at least 1"),
            (10, "x", "block is 'x' where forall takes an int of at least 1"),
            (10, (8, 8), r"block is \(8, 8\) where forall takes an int of at least 1"),
        ],
    )
    def test_impossible_numbers_are_refused(self, k, n, block, problem):
        with pytest.raises(LaunchError, match=problem):
            k.forall(n, block=block)


class TestContexts:
    """The context of a launch."""

    @pytest.mark.parametrize("devices", ["9.0", "9.0,9.0"])
    def test_a_new_thread_gets_the_primary_context(self, cuda, devices):
        cuda.set(devices=devices)
        k = cuda.package(kernel("k", "void(int32)")).k
        for _ in range(3):
            k[1, 1](1)
        assert threads.at_once([lambda: k[1, 1](2)]) == []
        assert [(call["device"], call["parameters"][:2]) for call in cuda.launches()] == [(0, "01")] * 3 + [(0, "02")]
        assert len(cuda.calls("cuDevicePrimaryCtxRetain")) == 1

    def test_a_current_context_stays_current(self, cuda):
        cuda.set(devices="9.0,8.0")
        k = cuda.package(kernel("k", "void(int32)")).k
        driver.get().make_current(1)
        k[1, 1](1)
        assert [call["device"] for call in cuda.launches()] == [1]
        assert driver.get().current_device() == 1
        assert [call["device"] for call in cuda.calls("cuDevicePrimaryCtxRetain")] == [1]

    def test_a_launch_without_a_context_uses_the_gpu_of_its_arrays(self, cuda):
        cuda.set(devices="9.0,8.0")
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        k[1, 1](cuda.array(8, device=1))
        assert [call["device"] for call in cuda.launches()] == [1]


class TestSeveralGpus:
    """GPUs of different capability in one process."""

    def test_the_images_are_loaded_once_and_chosen_for_each(self, cuda):
        cuda.set(devices="9.0,7.5,8.6")
        module = cuda.package(kernel("k", "void(int32)"))
        chosen = module.__aotcuda__.chosen
        assert {index: choice.arch for index, choice in chosen.items()} == {0: "sm_90", 1: "compute_75", 2: "sm_80"}
        assert len(cuda.calls("cuLibraryLoadData")) == 1
        assert "GPU 1 (Stand-in B, compute capability 7.5) takes compute_75" in str(chosen[1])

    def test_a_gpu_without_an_image_is_refused_at_its_launch(self, cuda):
        cuda.set(devices="9.0,7.0")
        k = cuda.package(kernel("k", "void(int32)")).k
        k[1, 1](1)
        driver.get().make_current(1)
        with pytest.raises(NoImageError, match=r"no image for GPU 1 \(Stand-in B, compute capability 7\.0\)"):
            k[1, 1](1)
        assert [call["device"] for call in cuda.launches()] == [0]

    def test_more_shared_memory_is_requested_on_each_gpu(self, cuda):
        cuda.set(devices="9.0,8.0")
        k = cuda.package(kernel("k", "void(int32)")).k
        for device in (0, 1):
            driver.get().make_current(device)
            k[1, 1, 0, 60_000](1)
        assert [call["device"] for call in cuda.calls("cuKernelSetAttribute")] == [0, 1]
        assert [call["device"] for call in cuda.launches()] == [0, 1]


class TestDriverErrors:
    """Driver errors have the error's name, the kernel and the GPU."""

    @pytest.mark.parametrize("launched", [0, 3], ids=["first", "later"])
    def test_an_error_names_the_kernel_its_configuration_and_the_gpu(self, cuda, k, launched):
        for value in range(launched):
            k[(4, 2), 1024, 77, 16](value)
        cuda.set(fail="cuLaunchKernel=701")
        with pytest.raises(CudaError) as caught:
            k[(4, 2), 1024, 77, 16](1)
        assert str(caught.value) == (
            "mypkg.kernels.k could not be launched on GPU 0 (Stand-in A, compute capability 9.0) with grid (4, 2, 1), "
            "block (1024, 1, 1), stream 0x4d and 16 bytes of dynamic shared memory: "
            "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, too many resources requested for launch"
        )
        assert (caught.value.name, caught.value.code) == ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", 701)

    def test_too_much_local_memory_is_named(self, cuda, k):
        cuda.set(kernel="local=523800", fail="cuLaunchKernel=1")
        for _ in range(3):
            with pytest.raises(LaunchError) as caught:
                k[1, 1](1)
            assert str(caught.value) == (
                "mypkg.kernels.k cannot be launched: it needs 523800 bytes of local memory for each thread, and GPUs "
                "have 523776; have smaller local arrays, or arrays in global memory"
            )
        cuda.set(kernel="local=523776")
        with pytest.raises(CudaError, match=r"could not be launched on GPU 0 .* CUDA_ERROR_INVALID_VALUE"):
            k[1, 1](1)

    def test_an_error_that_an_earlier_kernel_may_have_caused_says_so(self, cuda, k):
        cuda.set(fail="cuLaunchKernel=700")
        with pytest.raises(
            CudaError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS.*an earlier launch in this process may be the"
        ):
            k[1, 1](1)

    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_a_failed_launch_is_not_tried_again_and_the_next_one_works(self, cuda, k, nth):
        cuda.set(fail=f"cuLaunchKernel=2@{nth}")
        for value in (1, 2, 3, 4):
            with pytest.raises(CudaError, match="OUT_OF_MEMORY") if value == nth else contextlib.nullcontext():
                k[1, 1](value)
        assert [call["parameters"][:2] for call in cuda.launches()] == [
            f"0{value}" for value in (1, 2, 3, 4) if value != nth
        ]

    def test_a_kernel_that_the_images_lack_is_named(self, cuda):
        cuda.set(symbols="other,k_00")
        k = cuda.package(kernel("k", "void(int32)")).k
        with pytest.raises(
            CudaError, match=r"k_0 of mypkg\.kernels could not be loaded from sm_90 on GPU 0.*NOT_FOUND"
        ):
            k[1, 1](1)

    @pytest.mark.parametrize("function", ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"])
    def test_streams_that_cannot_be_ordered_are_no_launch(self, cuda, function):
        k = cuda.package(kernel("k", "void(float32[::1])")).k
        cuda.set(fail=f"{function}=999")
        with pytest.raises(CudaError, match="CUDA_ERROR_UNKNOWN"):
            k[1, 1, 88](cuda.array(8, stream=77))
        assert cuda.launches() == []

    @pytest.mark.parametrize("function", ["cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"])
    def test_a_failed_creation_of_a_context_names_the_gpu(self, cuda, k, function):
        cuda.set(fail=f"{function}=2")
        with pytest.raises(CudaError, match=r"GPU 0.*CUDA_ERROR_OUT_OF_MEMORY"):
            k[1, 1](1)
