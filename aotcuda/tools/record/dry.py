"""Decide if `aotcuda record` executes launches, and describe the GPU that programs see in a dry run."""

from __future__ import annotations

import ctypes
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotcuda.errors import TargetError
from aotcuda.gpus import BY_NUMBER, describe, driver_name, example
from aotcuda.registry import DEFAULT_TARGETS
from aotcuda.tools.check import gpus

if TYPE_CHECKING:
    from collections.abc import Mapping

TARGET = "AOTCUDA_RECORD_DRY"
"""The environment variable with the GPU's properties, for the processes of the command."""

_SIMULATED = ("NUMBA_ENABLE_CUDASIM", "TRITON_INTERPRET")
"""Variables that request Numba's simulator and Triton's interpreter, which launch nothing that could be recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """Variables and the first message for a recorded command.

    Attributes:
        environ: Variables to set for the command.
        removed: Variables to remove.
        messages: The first lines of output.
        dry: Launches are not executed.
        gpu: The name of the GPU that programs see in a dry run; empty otherwise.
    """

    environ: Mapping[str, str]
    removed: tuple[str, ...] = ()
    messages: tuple[str, ...]
    dry: bool
    gpu: str = ""


def choose(settings: Mapping[str, object], *, dry: bool | None, gpu: str | None) -> Mode:
    """Decide if launches are executed: not if `dry` or `gpu` is given, and by default only with a GPU.

    Args:
        settings: `[tool.aotcuda]`; the first target of `arch` is the default GPU.
        dry: True for `--dry`, else None.
        gpu: The name of the GPU whose properties the program sees.

    Raises:
        TargetError: No GPU is called `gpu`.
    """
    is_gpu_here = has_gpu()
    unset = tuple(
        f"{name} is unset for the command: a simulator launches nothing, so launches in it are not recorded"
        for name in _SIMULATED
        if os.environ.get(name, "0") not in ("", "0")
    )
    if dry is None and gpu is None and is_gpu_here:
        messages = ("launches are executed on the GPU, and recorded", *unset)
        return Mode(environ={}, removed=_SIMULATED, messages=messages, dry=False)
    name, capability = _target(settings, gpu)
    reason = "" if is_gpu_here else " since there is no GPU here,"
    number = f"{capability[0]}.{capability[1]}"
    first = f"launches are recorded and not executed,{reason} for {name} of compute capability {number}"
    return Mode(
        environ={
            TARGET: json.dumps(describe(capability, name)),
            **({"CUDA_VISIBLE_DEVICES": ""} if is_gpu_here else {}),
        },
        removed=_SIMULATED,
        messages=(f"{first} (--gpu names another)", *unset),
        dry=True,
        gpu=name,
    )


def has_gpu() -> bool:
    """Return True if the driver has a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    except (OSError, AttributeError):  # containers may have an empty library, for programs that link it
        return False


def _target(settings: Mapping[str, object], gpu: str | None) -> tuple[str, tuple[int, int]]:
    """Return the name and the compute capability of the GPU that programs see."""
    if gpu is not None:
        name, capability = gpus.gpu(gpu)
        has_name = name[0].isalpha() and not name.startswith(("sm_", "compute_", "lto_"))
        return driver_name(name) if has_name else example(capability), capability
    targets = settings.get("arch")
    first = str(targets[0]) if isinstance(targets, list) and targets else ""
    numbers = re.findall(r"([0-9]+)\.?([0-9])", f"{first} {DEFAULT_TARGETS[0]}")
    capability = int(numbers[0][0]), int(numbers[0][1])
    if capability not in BY_NUMBER:
        message = f"tool.aotcuda.arch: {first!r} names no known GPU; name one with --gpu"
        raise TargetError(message)
    return example(capability), capability
