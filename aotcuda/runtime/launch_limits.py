"""Grid and block: how they are written, and what a GPU and a kernel can take of them."""

from __future__ import annotations

from _operator import le

from aotcuda.errors import LaunchError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from aotcuda.runtime.arguments.layout import Plan
    from aotcuda.runtime.images.program import Entry
    from aotcuda.runtime.kernel import Kernel
    from aotcuda.runtime.launcher import Launcher

    Dimensions = tuple[int, int, int]


def dimensions(value: object, what: str, kernel: Kernel) -> Dimensions:
    """A grid or a block in three dimensions, from an int or a tuple of one to three.

    Raises:
        LaunchError: It is neither, or one of them is below 1.
    """
    if type(value) is int and value > 0:
        return value, 1, 1
    parts = value if isinstance(value, tuple | list) else (value,)
    try:
        numbers = [part.__index__() for part in parts]
    except AttributeError:
        numbers = []
    if not 1 <= len(numbers) <= 3:
        message = f"{kernel} cannot be launched: {what} is {value!r} where an int or a tuple of one to three belongs"
        raise LaunchError(message)
    if min(numbers) < 1:
        message = f"{kernel} cannot be launched: {what} is {value!r}, and each of its dimensions must be at least 1"
        raise LaunchError(message)
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def check(launcher: Launcher, entry: Entry, plan: Plan) -> None:
    """Raise LaunchError if the GPU or the kernel cannot take a launcher's configuration.

    Where it needs more shared memory than the driver's default, the kernel is told to allow it.
    """
    (grid_x, grid_y, grid_z), (block_x, block_y, block_z) = launcher.grid, launcher.block
    wanted = (grid_x, grid_y, grid_z, block_x, block_y, block_z, launcher.shared, block_x * block_y * block_z)
    if not entry.cooperative and all(map(le, wanted, plan.limits(entry))):
        return
    device = entry.device
    on = f"on {device}"
    for what, dimensions in (("grid", launcher.grid), ("block", launcher.block)):
        for axis, extent in zip("xyz", dimensions, strict=True):
            most = device.limit(f"{what}_{axis}")
            if extent > most:
                _refuse(launcher, f"{what} {dimensions} has {extent} in {axis}, where at most {most} are possible {on}")
    threads = launcher.block[0] * launcher.block[1] * launcher.block[2]
    bounds = plan.overload["launch_bounds"]
    if threads > device.limit("threads"):
        most = device.limit("threads")
        _refuse(launcher, f"block {launcher.block} has {threads} threads, where at most {most} are possible {on}")
    if bounds and 0 < bounds[0] < threads:
        _refuse(
            launcher, f"block {launcher.block} has {threads} threads, more than the kernel's launch bounds, {bounds[0]}"
        )
    if threads > entry.threads:
        _refuse(
            launcher,
            f"block {launcher.block} has {threads} threads, where the kernel's registers allow {entry.threads} {on}",
        )
    most = device.limit("shared_optin") - entry.static_shared
    if launcher.shared > most:
        own = f" beside the kernel's own {entry.static_shared}" if entry.static_shared else ""
        _refuse(
            launcher, f"{launcher.shared} bytes of dynamic shared memory, where at most {most} are possible{own} {on}"
        )
    if launcher.shared > device.limit("shared") - entry.static_shared:
        entry.allow_shared()
    if entry.cooperative and not device.limit("cooperative"):
        _refuse(launcher, f"it is a cooperative kernel, which is not possible {on}")


def _refuse(launcher: Launcher, problem: str) -> NoReturn:
    message = f"{launcher.kernel} cannot be launched: {problem}"
    raise LaunchError(message)
