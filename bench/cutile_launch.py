"""Compare packaged cuTile kernels with the driver's own call (host time) and with PyTorch (GPU time).

    python tests/gpu/prepare.py wheels --cutile       # where aotcuda[cutile] and build are installed
    pip install wheels/cutilekernels/*.whl && python bench/cutile_launch.py    # on a machine with a GPU and PyTorch

The driver is called through ctypes with everything ready: once with a pointer to each parameter, as cuda-tile and
aotcuda launch, and once with the parameters in one buffer.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import machine

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCH = 256  # the queue of a stream holds about a thousand


def main() -> int:
    parser = machine.parser(__doc__, "cutile_launch")
    parser.add_argument("--turns", type=int, default=25)
    arguments = parser.parse_args()
    here = machine.describe()
    synchronize = machine.synchronize()
    import torch  # type: ignore[import-not-found]
    from cutilekernels import kernels, matmul  # type: ignore[import-not-found]

    n = 4096
    x, y, out = (torch.randn(n, device="cuda") for _ in range(3))
    add = kernels.add[16]
    ways = {
        "aotcuda": lambda: add(x, y, out, TILE=256),
        "aotcuda, kernel[grid] each time": lambda: kernels.add[16](x, y, out, TILE=256),
        **_by_driver(kernels, (x, y, out), n),
    }
    host = {}
    for name, launch in ways.items():
        try:
            out.zero_()
            launch()
            synchronize()
            right = torch.equal(out, x + y)
            microseconds = median(machine.host_time(launch, synchronize, _BATCH) for _ in range(arguments.turns))
            host[name] = microseconds if right else f"{microseconds:.2f}, and the numbers are wrong"
        except Exception as error:  # noqa: BLE001 (the error is the result)
            host[name] = f"{type(error).__name__}: {error}"
    print(f"fast path: {kernels.__aotcuda__.fast_path}")
    for name, value in host.items():
        print(f"{name}: {value}")

    big = 1 << 24
    xs, ys, outs = (torch.randn(big, device="cuda") for _ in range(3))
    rows = torch.randn(8192, 768, device="cuda")
    result = torch.empty_like(rows)
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(4096, 4096, device="cuda", dtype=torch.float32)
    half = torch.empty_like(a)
    pairs = {
        "add": (lambda: kernels.add[big // 1024](xs, ys, outs, TILE=1024), lambda: torch.add(xs, ys, out=outs)),
        "softmax": (lambda: kernels.softmax[8192](result, rows), lambda: torch.softmax(rows, dim=1)),
        "matmul": (lambda: matmul.matmul[32, 32](a, b, c), lambda: torch.matmul(a, b, out=half)),
    }
    gpu = {
        name: machine.gpu_times(torch, {"aotcuda": ours, "PyTorch": theirs}, _BATCH)
        for name, (ours, theirs) in pairs.items()
    }
    machine.table(
        ("kernel", "GPU cuTile, us", "GPU PyTorch, us", "ratio"), [(name, *gpu[name].values()) for name in gpu]
    )
    machine.write(
        arguments.out,
        here,
        fast_path=kernels.__aotcuda__.fast_path,
        toolchain=kernels.__aotcuda__.manifest["toolchain"],
        host_microseconds=host,
        gpu_microseconds=gpu,
    )
    return 0


def _by_driver(kernels: Any, tensors: tuple[Any, ...], n: int) -> dict[str, Callable[[], None]]:
    """Return the same launch by the driver's functions alone."""
    cuda = ctypes.CDLL("libcuda.so.1")
    record = kernels.__aotcuda__.manifest
    overload = next(item for item in record["kernels"] if item["name"] == "add")["overloads"][0]
    folder = Path(kernels.__file__).with_suffix(".aotcuda")
    image = (folder / record["fatbins"][0]["file"]["path"]).read_bytes()
    library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    _check(cuda.cuLibraryLoadData(ctypes.byref(library), image, None, None, 0, None, None, 0))
    _check(cuda.cuLibraryGetKernel(ctypes.byref(kernel), library, overload["symbol"].encode()))
    block = ctypes.create_string_buffer(b"".join(struct.pack("<Qii", tensor.data_ptr(), n, 1) for tensor in tensors))
    start = ctypes.addressof(block)
    places = [16 * at + offset for at in range(len(tensors)) for offset in (0, 8, 12)]
    pointers = (ctypes.c_void_p * len(places))(*[start + place for place in places])
    size = ctypes.c_size_t(16 * len(tensors))
    extra = (ctypes.c_void_p * 5)(1, start, 2, ctypes.addressof(size), 0)
    launch, stream = cuda.cuLaunchKernel, ctypes.c_void_p(0)

    def by(params: object, extras: object) -> Callable[[], None]:
        # The default keeps objects alive whose addresses the launch has.
        return lambda _keep=(block, size, library): _check(launch(kernel, 16, 1, 1, 1, 1, 1, 0, stream, params, extras))

    return {"by ctypes, pointers": by(pointers, None), "by ctypes, one buffer": by(None, extra)}


def _check(code: int) -> None:
    if code:
        message = f"CUresult {code}"
        raise RuntimeError(message)


if __name__ == "__main__":
    sys.exit(main())
