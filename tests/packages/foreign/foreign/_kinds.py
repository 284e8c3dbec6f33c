"""Kernels that call foreign functions of every kind of file and object."""

from pathlib import Path

import cffi
from numba import cuda

F = "float32(float32)"
GENERATED = Path("csrc/generated")  # builds run in the project's folder

plain_c = cuda.declare_device("plain_c", F, abi="c")
plain_numba = cuda.declare_device("plain_numba", F, link="csrc/plain.cu")  # the configuration links the file, too
headers_c = cuda.declare_device("headers_c", F, link=("csrc/plain.cu",), abi="c")
sum_reduce = cuda.declare_device("sum_reduce", "float32(CPointer(float32), int32)")
from_ptx, from_cubin, from_fatbin, from_ltoir, from_o, from_a = (
    cuda.declare_device(f"from_{kind}", F, abi="c") for kind in ("ptx", "cubin", "fatbin", "ltoir", "o", "a")
)


def read(name):
    return (GENERATED / name).read_bytes()


# The same code from memory. Equal bytes are linked once, whether from a file or from memory.
ptx_object = cuda.PTXSource(read("from_ptx.ptx"), name="memory.ptx")
objects = {
    cuda.Cubin(read("from_cubin.cubin"), name="memory.cubin"),
    cuda.Fatbin(read("from_fatbin.fatbin"), name="memory.fatbin"),
}
object_ptx = cuda.declare_device("from_ptx", F, link=ptx_object, abi="c")
object_cubin = cuda.declare_device("from_cubin", F, link=objects, abi="c")
object_ltoir = cuda.declare_device("from_ltoir", F, link=[cuda.LTOIR(read("from_ltoir.ltoir"))], abi="c")
object_o = cuda.declare_device("from_o", F, link=(cuda.Object(read("from_o.o")),), abi="c")
object_a = cuda.declare_device("from_a", F, link=cuda.Archive(read("libfrom_a.a")), abi="c")
source = cuda.CUSource('extern "C" __device__ float from_source(float x) { return x + 100.0f; }', name="memory.cu")
object_cu = cuda.declare_device("from_source", F, link=[source], abi="c")
late = cuda.declare_device("late", F, abi="c")
ffi = cffi.FFI()


@cuda.jit
def every_file(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = from_ptx(from_cubin(from_fatbin(from_ltoir(from_o(from_a(plain_c(plain_numba(x[i]))))))))


@cuda.jit
def every_object(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = object_ptx(object_cubin(object_ltoir(object_o(object_a(object_cu(x[i]))))))


@cuda.jit(link=[cuda.CUSource('extern "C" __device__ float late(float x) { return x / 2; }', name="late.cu")])
def legacy(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = late(x[i])


@cuda.jit
def headers(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = headers_c(x[i])


@cuda.jit(device=True)
def total_of(array):
    return sum_reduce(ffi.from_buffer(array), len(array))


@cuda.jit
def pointer(x, out):
    out[0] = sum_reduce(ffi.from_buffer(x), len(x))
    out[1] = total_of(x)
