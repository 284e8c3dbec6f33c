"""Find the problems of a launch, and describe a launch that failed.

Launches of modules without callbacks on a machine with one GPU import this module only after an error.
"""

from __future__ import annotations

import ctypes

from ...gpus import MOST_LOCAL
from .. import driver as drivers
from .. import errors, streams
from .arguments import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...errors import CudaError
    from ...manifest import Parameter
    from ..driver import Device, Driver
    from ..images.callbacks import Callbacks
    from ..images.device_kernel import DeviceKernel
    from .arguments.overloads import Selection
    from .launch_config import Configuration

_COOPERATIVE_TOO_LARGE = 720
_LOCAL = 3  # CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES


def refusal(
    where: str,
    code: int,
    driver: Driver,
    device: Device,
    stream: int,
    configuration: Configuration,
    kernel: DeviceKernel | None = None,
) -> Exception:
    """Return the error for a launch of kernel `where` that the driver has refused with the `CUresult` `code`."""
    if code == drivers.INVALID_CONTEXT and streams.is_dead(driver, stream):
        return errors.LaunchError(f"{where} cannot be launched: {streams.destroyed_text(stream)}")
    if code == drivers.INVALID_VALUE and kernel is not None:
        local = kernel.attribute(_LOCAL)
        if local > MOST_LOCAL:
            message = (
                f"{where} cannot be launched: it needs {local} bytes of local memory for each thread, and GPUs have "
                f"{MOST_LOCAL}; have smaller local arrays, or arrays in global memory"
            )
            return errors.LaunchError(message)
    error = driver.error(code, f"{where} could not be launched on {device} with {configuration.describe(stream)}")
    if code == _COOPERATIVE_TOO_LARGE:
        error.args = (f"{error}; a cooperative grid must fit on the GPU at once: launch fewer or smaller blocks",)
    return error


def failure(
    where: str,
    code: int,
    driver: Driver,
    kernel: DeviceKernel,
    selection: Selection,
    configuration: Configuration,
    args: tuple[object, ...],
) -> CudaError:
    """Return the error for a kernel that has failed while its launch waited: a complete line, then details."""
    overload, _, _, _, stream, _ = selection
    error = driver.error(code, f"{where} failed on {kernel.device}", asynchronous=False)
    lines = [
        f"{error}",
        f"signature: {overload.record['signature']}",
        f"launched with {configuration.describe(stream)}",
        *[
            f"argument {number}, {parameter['name']}: {parameter['type']}{_value_text(parameter, arg)}"
            for number, (parameter, arg) in enumerate(zip(overload.parameters, args, strict=True), 1)
        ],
    ]
    error.args = ("\n  ".join(lines),)
    return error


def _value_text(parameter: Parameter, arg: object) -> str:
    """Return the text for a number, or for the shape and address of an array; empty if the array cannot be read."""
    try:
        read = arrays.reader(arg)
        view = read(arg, [], 0) if read is not None else None
    except Exception:  # noqa: BLE001 (the context is lost)
        return ""
    if view is None:
        is_address = parameter["kind"] == "pointer" and type(arg) is int
        return f" at {arg:#x}" if is_address else f" {errors.quoted(arg)}"
    _, address, shape, strides, _ = view
    steps = f" and strides {strides} in bytes" if strides is not None else ""
    return f" of shape {shape}{steps} at {address:#x}"


def check_capture(
    where: str, callbacks: Callbacks, driver: Driver, launch_streams: Iterable[object], whose: str, advice: str
) -> None:
    """Raise LaunchError if setup callbacks have to run while a stream of the launch is captured into a graph.

    Args:
        where: The kernel.
        callbacks: The callbacks.
        driver: The driver.
        launch_streams: The launch's stream and the `pending` items of its selection.
        whose: The owner of the callbacks, for the message.
        advice: The remedy, for the message.
    """
    if callbacks.has_seen(driver.current_context()):
        return
    for stream in launch_streams:
        if isinstance(stream, int) and streams.is_captured(driver, stream):
            message = (
                f"{where} cannot be launched: stream {stream:#x} is being captured into a graph, and the setup "
                f"callbacks of {whose}, which have not run yet, would break the capture or become part of it; {advice} "
                "before the capture"
            )
            raise errors.LaunchError(message)


def check_gpu(where: str, driver: Driver, device: int, addresses: Sequence[int], stream: int) -> None:
    """Check that a launch on one of several GPUs can read its arrays, and that its stream belongs to that GPU.

    Raises:
        ArgumentError: An array is on another GPU, whose memory this one cannot read.
        LaunchError: The stream belongs to another context.
    """
    for address in addresses:
        if not address:  # an array without elements
            continue
        home = driver.pointer_device(address)
        if home is not None and home != device and not _is_reachable(driver, address):
            message = (
                f"{where} is launched on {driver.devices[device]}, and one of its arrays is on "
                f"{driver.devices[home]}; copy the array, or make that GPU's context current"
            )
            raise errors.ArgumentError(message)
    _check_stream(where, driver, device, stream)


def _is_reachable(driver: Driver, address: int) -> bool:
    """Return True if kernels in the current context can read an address: local, managed, or accessible peer memory."""
    result = ctypes.c_uint64()
    return driver.call["cuPointerGetAttribute"](ctypes.byref(result), 3, address) == 0


def _check_stream(where: str, driver: Driver, device: int, stream: int) -> None:
    """Check that the stream belongs to the current context; otherwise the driver launches in the stream's context."""
    if stream <= drivers.LAST_DEFAULT_STREAM:
        return
    if streams.is_dead(driver, stream):
        message = f"{where} cannot be launched: {streams.destroyed_text(stream)}"
        raise errors.LaunchError(message)
    owner, popped = ctypes.c_void_p(), ctypes.byref(ctypes.c_void_p())
    code = driver.call["cuStreamGetCtx"](stream, ctypes.byref(owner))
    driver.check(code, f"the context of stream {stream:#x} could not be read, for a launch of {where}")
    if (owner.value or 0) == driver.current_context():
        return
    push, pop = driver.call["cuCtxPushCurrent_v2"], driver.call["cuCtxPopCurrent_v2"]
    codes: list[int] = []
    try:
        codes += map(push, (owner,))  # stores the result in one step, in case of an interrupt after the call
        driver.check(codes[0], "a stream's context could not be entered")
        home = driver.current_device() or 0
    finally:
        if codes == [0]:
            pop(popped)
    message = (
        f"{where} is launched on {driver.devices[device]}, and stream {stream:#x} belongs to a context on "
        f"{driver.devices[home]}; make that context current, or use a stream of this one"
    )
    raise errors.LaunchError(message)
