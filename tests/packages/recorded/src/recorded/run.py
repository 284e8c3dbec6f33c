"""Launch the kernels: `python -m recorded.run FUNCTION...`."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import numpy as np
from numba import cuda

from recorded import _kernels as k


def some(values=None):
    """Launch two kernels, three times in all."""
    values = np.zeros(4, np.float32) if values is None else values
    k.scale[1, 4](np.float32(2), values)
    k.scale.forall(4, 4)(np.float32(2), values)
    k.add[1, 4](values, values, values)


def types():
    """Launch kernels with types of many kinds."""
    single, double = np.zeros(4, np.float32), np.zeros(4)
    matrix = np.zeros((3, 4))
    k.add[1, 4](double, double, double)
    k.add[1, 4](cuda.to_device(double), double, single)
    k.take[1, 4](2, single)
    k.take[1, 4](2**63, double)
    k.take[1, 4](True, np.asfortranarray(matrix))
    k.take[1, 4](1j, np.zeros(4, np.complex64))
    k.take[1, 4](np.float64(2), matrix)
    k.fill[1, 1](single, 3)
    k.fill[1, 1](double, 3)
    k.move[1, 1](np.zeros(2, k.point), (1, 2.0))
    k.move[1, 1](np.zeros(2, k.point), (1.0, 2.0))
    k.reachable[1, 1](single)
    k.Solver.step[1, 1](single)


def query_the_gpu():
    """Launch a kernel whose block depends on the GPU."""
    device = cuda.get_current_device()
    assert device.MAX_BLOCK_DIM_X == 1024 and device.WARP_SIZE == 32
    k.scale[1, device.MAX_THREADS_PER_BLOCK // 256](np.float32(2), np.zeros(4, np.float32))


def left_out():
    """Launch kernels that no table can name."""
    single = np.zeros(4, np.float32)
    k.make(3)[1, 1](single)
    k.build()[1, 1](single)
    k.pairs[1, 1](single, k.Pair(1, 2.0))

    @cuda.jit
    def local(values):
        values[0] = 1

    local[1, 1](single)


def die():
    some()
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    some()
    os._exit(0)


def processes():
    """Make 3 launches in each of 6 children of different kinds, and 3 in this process."""
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        for target in (some, leave)[: 2 if method == "fork" else 1]:
            child = context.Process(target=target)
            child.start()
            child.join()
    child = multiprocessing.get_context("fork").Process(target=die)
    child.start()
    child.join()
    subprocess.run([sys.executable, "-m", "recorded.run", "some"], check=True)
    some()


def threads():
    """Make 100 launches in each of 4 threads."""
    values = cuda.to_device(np.zeros(4, np.float32))

    def go():
        for _ in range(100):
            k.reachable[1, 1](values)

    started = [threading.Thread(target=go) for _ in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def after_a_failure():
    """Make a launch whose arguments are refused, and launches after it."""
    try:
        k.add[1, 4](np.zeros((4, 4), np.float32)[:, 1], 1, 2)
    except Exception:
        pass
    some()


def fail():
    some()
    sys.exit(3)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
