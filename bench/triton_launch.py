"""Compare packaged Triton kernels with Triton's own launches: host time, GPU time, first result in a process.

Both launch the same source (`tests/packages/tritonkernels`) in turn, in batches that the driver's queue can hold, by
calls that are written out, with a launcher that is kept. GPU times are of long batches; the ratio is the median of the
pairs. C launches axpy with a scalar and three arrays.

Rows of "exact" launch `add` with ten arguments, as modules in place do: a copy of the manifest has one variant, or a
thousand that all name the same code. The thousand are also launched in turn, and with a grid function.

    python -m build -nw bench/kernels -o /tmp/bench
    python -m build --wheel tests/packages/tritonkernels --outdir /tmp/bench && pip install /tmp/bench/*.whl
    python bench/triton_launch.py                     # on a machine with a GPU, Triton and PyTorch
"""

from __future__ import annotations

import importlib
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import machine
import peers

from aotcuda import manifest as manifests

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCH = 256  # the queue of a stream holds about a thousand
_LIMIT = 1.0  # of GPU time, ours over Triton's
_NOISE = 0.02
_OVER_C = 1.0  # microseconds of host time
_EXACT_OVER_C = {"exact": 2.0, "exact, function": 3.0}
_VARIANTS = 1000

_FIRST = """
import time; start = time.perf_counter()
import torch
x = torch.ones(4096, device="cuda"); torch.cuda.synchronize(); ready = time.perf_counter()
{launch}
torch.cuda.synchronize(); print(time.perf_counter() - ready)
"""
_FIRSTS = {
    "aotcuda": "import tritonkernels.kernels as k; k.add[(32,)](x, x, x, 4096, BLOCK=128)",
    "Triton, warm cache": "import tritonkernels._kernels as k; k.add[(32,)](x, x, x, 4096, BLOCK=128)",
}


def main() -> int:
    parser = machine.parser(__doc__, "triton_launch")
    parser.add_argument("--turns", type=int, default=25)
    arguments = parser.parse_args()
    here = machine.describe()
    synchronize = machine.synchronize()
    import torch  # type: ignore[import-not-found]
    import triton

    cases = _cases(torch)
    with tempfile.TemporaryDirectory() as folder:
        exact = exact_cases(torch.randn(4096, device="cuda"), Path(folder))
        host, over_c = _host_times(cases | exact, synchronize, arguments.turns, Path(folder))
    single = {name: {way: partial(batch, 1) for way, batch in ways.items()} for name, ways in cases.items()}
    gpu = {name: machine.gpu_times(torch, ways, _BATCH) for name, ways in single.items()}
    first = {way: median(_first(launch) for _ in range(5)) for way, launch in _FIRSTS.items()}
    print(f"C: {host['C']['C']:.2f} us a launch")
    machine.table(
        ("kernel", "over C, us", "Triton's over C, us", "GPU, us", "Triton's GPU, us", "ratio"),
        [(name, *over_c[name].values(), *gpu[name].values()) for name in cases],
    )
    machine.table(("ten arguments", "over C, us"), [(name, over_c[name]["aotcuda"]) for name in exact])
    print({way: f"first result after {seconds:.3f} s" for way, seconds in first.items()})
    met = {
        f"{name}: GPU time at most {_LIMIT} of Triton's": found["ratio"] <= _LIMIT + _NOISE
        for name, found in gpu.items()
    }
    met |= {f"{name}: a launch at most {_OVER_C} us over C": over_c[name]["aotcuda"] <= _OVER_C for name in cases}
    for name in exact:
        most = _EXACT_OVER_C["exact, function" if "function" in name else "exact"]
        met[f"{name}: a launch at most {most} us over C"] = over_c[name]["aotcuda"] <= most
    return machine.report(
        arguments.out,
        here,
        met,
        triton=triton.__version__,
        host_microseconds=host,
        over_c_microseconds=over_c,
        gpu_microseconds=gpu,
        first_result_seconds=first,
    )


def _cases(torch: Any) -> dict[str, dict[str, peers.Batch]]:
    """Return for each kernel its launches by each way."""
    from tritonkernels import _kernels, _tensor_cores, kernels, tensor_cores  # type: ignore[import-not-found]

    n, size = 1 << 24, 4096
    x, y, out = (torch.randn(n, device="cuda") for _ in range(3))
    small = [tensor[:4096] for tensor in (x, y, out)]
    rows = torch.randn(8192, 768, device="cuda")
    result = torch.empty_like(rows)
    a, b, c = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(3))
    q, k, v, o = (torch.randn(64, 2048, 64, device="cuda", dtype=torch.float16) for _ in range(4))
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    parts = {"BLOCK_M": 64, "BLOCK_N": 64, "HEAD": 64}
    strides = (size, 1, size, 1, size, 1)

    def both(packaged: Any, jit: Any, grid: tuple[int, ...], *args: object, warps: int = 4, **constants: int) -> Any:
        values = {f"a{at}": arg for at, arg in enumerate(args)}
        call = ", ".join([*values, *(f"{name}={value}" for name, value in constants.items())])
        return {
            "aotcuda": peers.loop(f"f({call})", f=packaged[grid], **values),
            "Triton": peers.loop(f"f({call}, num_warps={warps})", f=jit[grid], **values),
        }

    return {
        "add, small": both(kernels.add, _kernels.add, (32,), *small, 4096, BLOCK=128),
        "add": both(kernels.add, _kernels.add, (n // 1024,), x, y, out, n, BLOCK=1024),
        "softmax": both(kernels.softmax, _kernels.softmax, (8192,), result, rows, 768, 768, 768, warps=8, BLOCK=1024),
        "matmul": both(
            tensor_cores.matmul, _tensor_cores.matmul, (32, 32), a, b, c, size, size, size, *strides, warps=8, **blocks
        ),
        "attention": both(tensor_cores.attention, _tensor_cores.attention, (32, 64), q, k, v, o, 0.125, 2048, **parts),
    }


def exact_cases(x: Any, folder: Path) -> dict[str, dict[str, peers.Batch]]:
    """Return launches of `add` with ten arguments, with one variant and with many, by name of the case."""
    found: dict[str, dict[str, peers.Batch]] = {}
    sys.path.insert(0, str(folder))
    for count in (1, _VARIANTS):
        k = _exact_kernel(f"exact{count}", count, folder)
        values = {"x": x, "n": 4096, "f": k[(32,)], "g": k, "grid": lambda meta: (meta["n"] // meta["BLOCK"],)}
        for name, bias in (("plain", "x"), ("bias None", "None")):
            call = f"(x, x, x, n, {bias}, 128, {count - 1}, 3, 'relu')"
            found[f"exact, {count}, {name}"] = {"aotcuda": peers.loop(f"f{call}", **values)}
            found[f"exact, {count}, {name}, function"] = {"aotcuda": peers.loop(f"g[grid]{call}", **values)}
        for number in itertools.chain.from_iterable(itertools.repeat(number, 4) for number in range(count)):
            values["f"](x, x, x, 4096, x, BLOCK=128, A=number, B=3, ACT="relu")  # until the fast path has it
        turns = itertools.cycle(range(count))
        call = "f(x, x, x, n, x, BLOCK=128, A=next(turns), B=3, ACT='relu')"
        found[f"exact, {count}, by name, in turns"] = {"aotcuda": peers.loop(call, turns=turns, **values)}
    return found


def _exact_kernel(name: str, count: int, folder: Path) -> Any:
    """Write a module with an exact kernel `add` of twice so many variants into `folder`; return the kernel."""
    import tritonkernels.kernels  # type: ignore[import-not-found]

    module = tritonkernels.kernels.__aotcuda__
    manifest = json.loads(json.dumps(module.manifest))
    (kernel,) = (each for each in manifest["kernels"] if each["name"] == "add")
    overload = next(each for each in kernel["overloads"] if _values(each)["BLOCK"] == 128)
    pointers = [each for each in overload["parameters"] if each["kind"] == "elements"]
    (number,) = (each for each in overload["parameters"] if each["kind"] == "number")
    options = [each for each in overload["parameters"] if each["name"].startswith("num_")]
    names = [*(each["name"] for each in (*pointers, number)), "bias", "BLOCK", "A", "B", "ACT", "HAS_BIAS"]

    def constant(name: str, value: object) -> dict[str, Any]:
        return {"name": name, "type": f"{name}={value!r}", "kind": "constant", "offset": 0, "value": value}

    def variant(at: int, bias: object) -> dict[str, Any]:
        constants = {"BLOCK": 128, "A": at, "B": 3, "ACT": "relu", "HAS_BIAS": bias is not None}
        given = [bias or constant("bias", None), *(constant(*each) for each in constants.items())]
        return {**overload, "signature": f"variant {at}", "parameters": [*pointers, number, *given, *options]}

    # The code takes no bias: its address is in the place of Triton's scratch memory, which the code does not need.
    biased = {**pointers[0], "name": "bias", "offset": overload["parameter_bytes"] - 8}
    kernel["overloads"] = [variant(at, bias) for at in range(count) for bias in (biased, None)]
    kernel["arguments"] = [{"name": each} for each in names[:-1]] + [{"name": names[-1], "is_not_none": "bias"}]
    defaults = {each["name"]: each["value"] for each in options}
    kernel["arguments"] += [{"name": each, "default": value, "keyword": True} for each, value in defaults.items()]
    kernel |= {"exact": True}
    manifest |= {"module": name, "kernels": [kernel]}
    data = manifests.dump(manifest)
    shutil.copytree(Path(tritonkernels.kernels.__file__).with_suffix(".aotcuda"), folder / f"{name}.aotcuda")
    (folder / f"{name}.aotcuda" / manifests.FILE_NAME).write_bytes(data)
    path = f"{name}.aotcuda/{manifests.FILE_NAME}"
    (folder / f"{name}.py").write_text(
        "import aotcuda\n"
        f"__aotcuda__ = aotcuda.load(__name__, manifest={path!r}, sha256={manifests.digest(data)!r}, load='first-use', "
        "editable=False)\n__getattr__ = __aotcuda__.attribute\n"
    )
    return importlib.import_module(name).add


def _values(overload: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in overload["parameters"]}


def _host_times(
    cases: dict[str, dict[str, peers.Batch]],
    synchronize: Callable[[], object],
    turns: int,
    folder: Path,
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Return medians of the host time of a launch, and of its differences to C in the same turn, in microseconds."""
    import benchkernels.kernels  # type: ignore[import-not-found]

    case = peers.Case(benchkernels.kernels, folder)
    _, by_c = next(peers.c_batches(case, case.torch()))
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(turns):
        synchronize()
        by_c(1)
        synchronize()
        found.setdefault(("C", "C"), []).append(by_c(_BATCH) / _BATCH * 1e6)
        for name, ways in cases.items():
            for way, batch in ways.items():
                batch(1)
                synchronize()
                found.setdefault((name, way), []).append(batch(_BATCH) / _BATCH * 1e6)
    in_c = found["C", "C"]
    times: dict[str, dict[str, float]] = {}
    differences: dict[str, dict[str, float]] = {}
    for (name, way), values in found.items():
        times.setdefault(name, {})[way] = median(values)
        if name in cases:
            pairs = (value - base for value, base in zip(values, in_c, strict=True))
            differences.setdefault(name, {})[way] = median(pairs)
    return times, differences


def _first(launch: str) -> float:
    """Return the seconds from the end of PyTorch's start to the first result, in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", _FIRST.format(launch=launch)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
