"""What the driver and NVIDIA's disassembler tell about a kernel's code, under the names that Numba's kernels have."""

from __future__ import annotations

import os

from aotcuda.errors import DependencyError, LaunchError
from aotcuda.runtime.launch_limits import dimensions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.runtime.arguments.layout import Plan
    from aotcuda.runtime.images.program import Entry, Program
    from aotcuda.runtime.kernel import Kernel

ATTRIBUTES = {"max_threads": 0, "shared": 1, "constant": 2, "local": 3, "registers": 4}
"""`CU_FUNC_ATTRIBUTE_*`: the most threads of a block, bytes, registers of a thread."""

_NO_CONTEXT: tuple[int, ...] = ()


def ask(kernel: Kernel, name: str, signature: str | None) -> int | dict[str, int]:
    """One of `ATTRIBUTES` on the current GPU: of one overload, or by signature of all of them."""
    program, device = _enter(kernel)

    def value(plan: Plan) -> int:
        return program.entry(plan, device).attribute(ATTRIBUTES[name])

    if signature is not None:
        return value(find(kernel, signature))
    return {plan.overload["signature"]: value(plan) for plan in kernel.plans()}


def active_blocks(kernel: Kernel, block: object, shared: int, signature: str | None) -> tuple[int, Entry]:
    """How many blocks of these dimensions a multiprocessor holds at once; and the overload on the current GPU."""
    x, y, z = dimensions(block, "block", kernel)
    program, device = _enter(kernel)
    entry = program.entry(find(kernel, signature), device)
    if shared > entry.device.limit("shared") - entry.static_shared:
        entry.allow_shared()
    return entry.active_blocks(x * y * z, shared), entry


def find(kernel: Kernel, signature: str | None) -> Plan:
    """The overload of a signature; None means the only one.

    Raises:
        LaunchError: The kernel has no such signature, or several where none was named.
    """
    plans = kernel.plans()
    if signature is None and len(plans) == 1:
        return plans[0]
    for plan in plans:
        if plan.overload["signature"] == signature:
            return plan
    wanted = "name one of its signatures" if signature is None else f"it has no signature {signature!r}; it has"
    message = f"{kernel}: {wanted}: {', '.join(kernel.signatures)}"
    raise LaunchError(message)


def cuda_core_kernel(kernel: Kernel, signature: str | None) -> Any:
    """The overload on the current GPU as a `cuda.core.Kernel`."""
    try:
        from cuda.core import Kernel as CoreKernel  # noqa: PLC0415 (only who asks for one has cuda.core)
    except ImportError:
        message = f"cuda.core is not installed, so {kernel} cannot be handed out as its kernel: pip install cuda-core"
        raise DependencyError(message) from None
    program, device = _enter(kernel)
    entry = program.entry(find(kernel, signature), device)
    return CoreKernel.from_handle(entry.kernel.value)


def sass(kernel: Kernel, signature: str | None) -> str | dict[str, str]:
    """The machine code that the current GPU takes, disassembled by `cuobjdump`: of one overload, or by signature."""
    tool = _cuobjdump()
    module = kernel.module
    program, device = _enter(kernel)
    choice = program.choices[device]
    if choice.kind != "sass" or choice.arch is None:
        message = f"{kernel} has no machine code for {program.driver.devices[device]}: {choice}"
        raise LaunchError(message)
    path = os.path.join(os.path.dirname(module.path), module.manifest["files"]["kernels"]["path"])

    def text(plan: Plan) -> str:
        return _run([tool, "--dump-sass", "--gpu-architecture", str(choice.arch), "--function", _symbol(plan), path])

    if signature is not None:
        return text(find(kernel, signature))
    return {plan.overload["signature"]: text(plan) for plan in kernel.plans()}


def _symbol(plan: Plan) -> str:
    return plan.overload["symbol"]


def _enter(kernel: Kernel) -> tuple[Program, int]:
    """The loaded images and the current GPU; a context is made if there is none."""
    program = kernel.module.ready()
    return program, kernel.module.enter(program, _NO_CONTEXT)


def _cuobjdump() -> str:
    """Where the disassembler is: on PATH, in CUDA_HOME, or in NVIDIA's wheel."""
    from shutil import which  # noqa: PLC0415 (only inspections come here)

    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    found = which("cuobjdump", path=os.path.join(home, "bin")) if home else None
    found = found or which("cuobjdump")
    if found is None:
        try:
            from cuda.pathfinder import find_nvidia_binary_utility  # noqa: PLC0415
        except ImportError:
            pass
        else:
            found = find_nvidia_binary_utility("cuobjdump")
    if found is None:
        message = "cuobjdump, which disassembles, was not found: pip install nvidia-cuda-cuobjdump, or set CUDA_HOME"
        raise DependencyError(message)
    return found


def _run(command: list[str]) -> str:
    import subprocess  # noqa: PLC0415 (only inspections come here)

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}"
        raise LaunchError(message)
    return done.stdout
