"""Test a packaged module in a process that has nothing but aotcuda and the driver."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu

HEAVY = ["numpy", "numba", "numba_cuda", "llvmlite", "cuda", "cupy", "torch"]

LAUNCH = """
import json, sys
from gpu import buffers
buffers.primary_context()
before = set(sys.modules)
import quickstart.kernels as k
result = {}
for typecode, a in (("f", 0.1), ("d", 0.1)):
    x = buffers.Buffer(typecode, [i * 0.37 for i in range(1000)])
    y = buffers.Buffer(typecode, [i * 1.01 - 5 for i in range(1000)])
    out = buffers.Buffer(typecode, [0] * 1000)
    k.axpy[8, 128](a, x, y, out)
    result[typecode] = [x.read(), y.read(), out.read()]
result["imported"] = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
print(json.dumps(result))
"""


def test_numbers_are_right_without_numpy_and_compilers(run_clean):
    np = pytest.importorskip("numpy")
    launched = run_clean(LAUNCH)
    assert not set(HEAVY) & set(launched["imported"])
    for typecode, dtype in (("f", "float32"), ("d", "float64")):
        x, y, out = (np.array(values, dtype) for values in launched[typecode])
        a = np.dtype(dtype).type(0.1)
        wide = a.astype(np.float64) * x.astype(np.float64) + y.astype(np.float64)  # the GPU fuses the two operations
        if dtype == "float32":
            np.testing.assert_array_equal(out, wide.astype(dtype))
        else:
            np.testing.assert_allclose(out, wide, rtol=3e-16, atol=1e-15)


FORK = """
import json, os, sys
import quickstart.kernels as k
def launch(a):
    from gpu import buffers
    buffers.primary_context()
    x = buffers.Buffer("f", [1, 2]); out = buffers.Buffer("f", [0, 0])
    k.axpy[1, 32](a, x, x, out)
    return out.read()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, json.dumps(launch(1.0)).encode()); os._exit(0)
child = json.loads(os.read(read, 1000))
os.wait()
parent = launch(2.0)
if os.fork() == 0:
    try:
        k.axpy[1, 32](1.0, None, None, None)
    except Exception as error:
        os.write(write, json.dumps(type(error).__name__).encode())
    os._exit(0)
after = json.loads(os.read(read, 1000))
os.wait()
print(json.dumps([child, parent, after]))
"""


def test_first_use_allows_forks_before_first_launch_only(run_clean):
    assert run_clean(FORK, AOTCUDA_LOAD="first-use") == [[2.0, 4.0], [3.0, 6.0], "ForkError"]


FAULT = """
import json
from gpu import buffers
buffers.primary_context()
import aotcuda, gpufeatures.kernels as k
k.out_of_bounds[1, 1](0)
buffers.cuda.cuCtxSynchronize()
try:
    k.out_of_bounds[1, 1](0)
except aotcuda.CudaError as error:
    print(json.dumps([error.name, str(error)]))
"""


def test_launch_after_fault_names_error_and_gpu(run_clean, gpu_name):
    name, message = run_clean(FAULT, "gpufeatures")
    assert name == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert "gpufeatures.kernels.out_of_bounds" in message
    assert gpu_name in message
    assert "an earlier launch" in message


SYNCHRONIZED = """
import json
from gpu import buffers
buffers.primary_context()
import aotcuda, gpufeatures.kernels as k
results = []
for _ in range(2):
    try:
        k.out_of_bounds[(2, 3), 32](16)
    except aotcuda.CudaError as error:
        results.append([error.name, str(error)])
print(json.dumps(results))
"""


def test_synchronize_names_kernel_that_fails_and_its_arguments(run_clean):
    (name, message), (again, _) = run_clean(SYNCHRONIZED, "gpufeatures", AOTCUDA_SYNCHRONIZE="1")
    assert name == again == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert message.startswith("gpufeatures.kernels.out_of_bounds failed on GPU 0 (NVIDIA")
    assert "signature: void(CPointer(int32))" in message
    assert "launched with grid (2, 3, 1), block (32, 1, 1), stream 0x0" in message


RESET = """
import json
from gpu import buffers
buffers.primary_context()
import aotcuda, quickstart.kernels as k
def launch():
    x = buffers.Buffer("f", [1, 2, 3]); y = buffers.Buffer("f", [10, 20, 30]); out = buffers.Buffer("f", [0, 0, 0])
    for _ in range(3):
        k.axpy[1, 32](2.0, x, y, out)
    return out.read(), (x, y, out)
first, arrays = launch()
buffers.check(buffers.cuda.cuDevicePrimaryCtxReset_v2(0))
try:
    k.axpy[1, 32](2.0, *arrays)
    name = ""
except aotcuda.CudaError as error:
    name = str(error)
buffers.primary_context()
second, _ = launch()
print(json.dumps([first, name, second]))
"""


def test_launches_work_in_new_context_after_reset(run_clean):
    first, message, second = run_clean(RESET)
    assert first == second == [12.0, 24.0, 36.0]
    assert "CUDA_ERROR_CONTEXT_IS_DESTROYED" in message
    assert "was reset" in message


UNLOADING = """
import json, threading
from gpu import buffers
buffers.primary_context()
import quickstart.kernels as k
def work(number, results):
    buffers.primary_context()
    x = buffers.Buffer("f", [number] * 3); y = buffers.Buffer("f", [1, 2, 3])
    outs = [buffers.Buffer("f", [0, 0, 0]) for _ in range(200)]
    run = k.axpy[1, 32]
    for out in outs:
        run(2.0, x, y, out)
    results[number] = all(out.read() == [2 * number + 1, 2 * number + 2, 2 * number + 3] for out in outs)
results = {}
threads = [threading.Thread(target=work, args=(number, results)) for number in range(4)]
for thread in threads:
    thread.start()
unloads = 0
while any(thread.is_alive() for thread in threads):
    k.__aotcuda__.unload()
    unloads += 1
    threads[unloads % 4].join(0.001)
print(json.dumps([unloads > 3, [results[number] for number in range(4)], len(k.__aotcuda__._images._retired)]))
"""


def test_threads_launch_while_another_unloads(run_clean):
    assert run_clean(UNLOADING) == [True, [True] * 4, 0]
