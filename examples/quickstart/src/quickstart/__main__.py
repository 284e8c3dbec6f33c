"""`python -m quickstart`: which image each GPU of this machine takes, and two launches. Without a GPU: a forecast."""

import sys
from array import array

from aotcuda import RuntimeUnavailableError
from quickstart import kernels
from quickstart._memory import DeviceArray

KNOWN_GPUS = {
    (7, 0): "V100",
    (7, 5): "T4, RTX 2080",
    (8, 0): "A100",
    (8, 6): "A10, A40, RTX 3090",
    (8, 9): "L4, L40S, RTX 4090",
    (9, 0): "H100, H200",
    (10, 0): "B200",
    (10, 3): "B300",
    (11, 0): "Jetson Thor",
    (12, 0): "RTX 5090",
    (12, 1): "DGX Spark",
}


def main():
    module = kernels.__aotcuda__
    try:
        chosen = module.chosen
    except RuntimeUnavailableError as error:
        print(f"No launch was made: {error}.\n")
        print("What known GPUs would take from this package, given a driver that is new enough:\n")
        for capability, names in KNOWN_GPUS.items():
            choice = module.choice_for(capability)
            print(f"  {names:<18}  {'{}.{}'.format(*capability):>4}  {choice.arch or 'nothing':<10}  {choice.why}")
        return

    for choice in chosen.values():
        print(f"{choice.gpu}: {choice.arch or 'nothing'}, {choice.why}.")
    try:
        for typecode, name in (("f", "float32"), ("d", "float64")):
            launch(typecode)
            print(f"axpy on 1000 numbers of type {name}: equal to what Python computes.")
    except RuntimeUnavailableError as error:
        sys.exit(f"No launch was made: {error}.")
    absent = [name for name in ("numba", "numpy", "cuda") if name not in sys.modules]
    print(f"Not imported on the way: {', '.join(absent)}.")


def launch(typecode):
    n = 1000
    x, y, out = (array(typecode, values) for values in (range(n), range(0, 10 * n, 10), [0] * n))
    device_x, device_y, device_out = DeviceArray(x), DeviceArray(y), DeviceArray(out)

    kernels.axpy.forall(n)(2.5, device_x, device_y, device_out)

    result, expected = list(device_out.to_host()), [2.5 * x[i] + y[i] for i in range(n)]
    if result != expected:
        sys.exit(f"axpy gave {result[:5]}..., and Python says {expected[:5]}...")


if __name__ == "__main__":
    main()
