"""Check a launch configuration, and fit it to a GPU and a kernel."""

from __future__ import annotations

from operator import le

from .. import errors, integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..images.device_kernel import DeviceKernel
    from .arguments.argument_layout import Attributes
    from .launch_attributes import LaunchAttributes

    Dimensions = tuple[int, int, int]

_MOST_THREADS = 1024
_new = object.__new__

DEFINED_BY_KERNEL = object()
"""The block of a configuration whose kernel defines block, shared memory and clusters, as Triton's kernels do."""


class Configuration:
    """Grid, block, stream, shared memory and attributes of a launch, after all checks that need no GPU.

    Attributes:
        stream: The handle of the stream, 0 for the default stream; None for the current stream of each launch.
        attributes: Further launch attributes; None for none.
        elements: The number of elements from which `for_kernel` computes block and grid; 0 where they are known.
        by_grid: True if only the grid was given; `for_kernel` adds the numbers that the kernel defines.
        numbers: Grid and block in x, y and z, bytes of dynamic shared memory, and threads of a block.
    """

    __slots__ = ("attributes", "by_grid", "elements", "numbers", "stream")

    def __init__(
        self,
        grid: object,
        block: object,
        stream: int | None,
        shared: int,
        where: str,
        attributes: LaunchAttributes | None = None,
    ) -> None:
        """Check the values that a user gave for kernel `where`; the block may be `DEFINED_BY_KERNEL`.

        Raises:
            LaunchError: Grid or block is not possible.
            ArgumentError: `stream` is not a possible handle.
        """
        grid = dimensions(grid, "grid", where)
        self.elements = 0
        self.by_grid = block is DEFINED_BY_KERNEL
        block = (1, 1, 1) if self.by_grid else dimensions(block, "block", where)
        check_threads(block, where)
        if stream is not None and not 0 <= stream < 1 << 64:
            from .. import streams  # noqa: PLC0415 (only errors come here)

            raise streams.no_handle_error(stream)
        self.stream = stream
        self.attributes = attributes or None
        self.numbers = (*grid, *block, shared, block[0] * block[1] * block[2])

    @property
    def grid(self) -> Dimensions:
        """Return the blocks of the grid in x, y and z."""
        return self.numbers[:3]

    @property
    def block(self) -> Dimensions:
        """Return the threads of a block in x, y and z."""
        return self.numbers[3:6]

    @property
    def shared(self) -> int:
        """Return the bytes of dynamic shared memory for each block."""
        return self.numbers[6]

    @classmethod
    def of(cls, parts: Any) -> Configuration | None:
        """Return the plain configuration that a user wrote as a tuple; None if it needs a closer look.

        Its grid and block are ints or tuples of ints, its stream is None or a handle.
        """
        count, stream, shared = len(parts) if type(parts) is tuple else 0, None, 0
        if count == 2:
            grid, block = parts
        elif count == 3:
            grid, block, stream = parts
        elif count == 4:
            grid, block, stream, shared = parts
        else:
            return None
        if stream is not None and (type(stream) is not int or not 0 <= stream < 1 << 64):
            return None
        if type(grid) is type(block) is type(shared) is int:  # most configurations
            if grid < 1 or not 1 <= block <= _MOST_THREADS or shared < 0:
                return None
            numbers = (grid, 1, 1, block, 1, 1, shared, block)
        else:
            grid = (grid, 1, 1) if type(grid) is int else _three(grid)
            block = (block, 1, 1) if type(block) is int else _three(block)
            if grid is None or block is None or type(shared) is not int:
                return None
            (x, y, z), (u, v, w) = grid, block
            threads = u * v * w
            if x < 1 or y < 1 or z < 1 or u < 1 or v < 1 or w < 1 or shared < 0 or threads > _MOST_THREADS:
                return None
            numbers = (x, y, z, u, v, w, shared, threads)
        made: Configuration = _new(cls)
        made.numbers, made.stream = numbers, stream
        made.attributes, made.by_grid, made.elements = None, False, 0
        return made

    def describe(self, stream: int) -> str:
        """Return a text for launches on a stream: grid, block, stream, attributes and shared memory."""
        attributes = f", {self.attributes}," if self.attributes is not None else ""
        memory = f"{self.shared} bytes of dynamic shared memory"
        return f"grid {self.grid}, block {self.block}, stream {stream:#x}{attributes} and {memory}"

    @property
    def kind(self) -> object:
        """Return the parts that the fast path does not compare with limits; attributes count with their block."""
        if self.elements:
            return None, self.shared
        return self.shared if self.attributes is None else (self.block, self.shared, self.attributes.values())

    def for_kernel(self, kernel: DeviceKernel) -> Configuration:
        """Return the configuration for launches of a kernel; if only the grid or elements were given, complete it.

        Where the kernel has clusters, the given grid counts clusters, as in Triton.
        """
        fixed = kernel.fixed
        if self.elements:
            block = kernel.best_block(self.shared)
            return Configuration(-(-self.elements // block), block, self.stream, self.shared, "")
        if fixed is None:
            return self
        cluster = tuple(fixed.get("cluster", ()))
        cooperative, dependent = fixed.get("cooperative", False), fixed.get("dependent", False)
        grid, attributes = self.grid, None
        if cluster or cooperative or dependent:
            from .launch_attributes import LaunchAttributes  # noqa: PLC0415 (few kernels have any)

            x, y, z = cluster or (1, 1, 1)
            grid = grid[0] * x, grid[1] * y, grid[2] * z
            attributes = LaunchAttributes(
                "",
                cluster=(x, y, z) if cluster else None,
                spread=bool(cluster),
                cooperative=cooperative,
                dependent=dependent,
            )
        return Configuration(grid, fixed["threads"], self.stream, fixed["shared"], "", attributes)

    def check(self, kernel: DeviceKernel, where: str) -> None:
        """Raise LaunchError if a launch of the kernel, which errors name `where`, is not possible on its GPU.

        If the launch needs more shared memory than the driver's default, set the kernel attribute for it.
        """
        is_plain = not kernel.cooperative and self.attributes is None and kernel.block in (None, self.block)
        if is_plain and all(map(le, self.numbers, kernel.unchecked_limits())):
            return
        from . import launch_attributes  # noqa: PLC0415 (few launches are large, or have any)

        problem = launch_attributes.too_large(kernel, self.grid, self.block, self.shared)
        if problem is None:
            kernel.allow_for(self.shared)
        if problem is None and kernel.cooperative and not kernel.device.limit("cooperative"):
            problem = f"it is a cooperative kernel, which is not possible on {kernel.device}"
        if problem is None and self.attributes is not None:
            problem = self.attributes.problem(kernel, self.numbers)
        if problem is not None:
            message = f"{where} cannot be launched: {problem}"
            raise errors.LaunchError(message)


class Ready:
    """A kernel whose launches within its limits need no further checks, apart from those of their attributes.

    Attributes:
        kernel: The kernel.
        handle: The driver's handle, as `Driver.launch` takes it.
        accepts: Returns True for `Configuration.numbers` that need no further checks.
        fixed: The block, bytes of dynamic shared memory and threads of every launch; None where users set them.
        attributes: The attributes of launches without attributes of their own; None for none.
    """

    __slots__ = ("accepts", "attributes", "fixed", "handle", "kernel")

    def __init__(
        self,
        kernel: DeviceKernel,
        handle: object,
        configuration: Configuration,
    ) -> None:
        """Take a kernel, its handle, and a configuration of it that was completed and checked."""
        most_x, most_y, most_z, block_x, block_y, block_z, most_shared, most_threads = kernel.unchecked_limits()
        block = kernel.block

        def accepts(numbers: tuple[int, ...]) -> bool:
            x, y, z, u, v, w, shared, threads = numbers
            return (
                x <= most_x
                and y <= most_y
                and z <= most_z
                and threads <= most_threads
                and shared <= most_shared
                and u <= block_x
                and v <= block_y
                and w <= block_z
                and (block is None or block == (u, v, w))
            )

        self.kernel = kernel
        self.handle = handle
        self.accepts = accepts
        self.fixed = None if kernel.fixed is None else configuration.numbers[3:]
        self.attributes = attributes_of(kernel, None if kernel.fixed is None else configuration.attributes)

    def complete(self, configuration: Configuration) -> tuple[int, ...] | None:
        """Return the numbers of `configuration.for_kernel`; None if the driver has to be asked for them."""
        numbers = configuration.numbers
        if configuration.elements:
            block = self.kernel.best_blocks.get(numbers[6])
            return (
                None if block is None else (-(-configuration.elements // block), 1, 1, block, 1, 1, numbers[6], block)
            )
        x, y, z = numbers[:3]
        u, v, w = (self.attributes and self.attributes.cluster) or (1, 1, 1)
        return (x * u, y * v, z * w, *(self.fixed or numbers[3:]))

    def encode(self, attributes: LaunchAttributes, numbers: tuple[int, ...]) -> Attributes:
        """Return the attributes of a launch in the driver's form.

        Raises:
            LaunchError: They are not possible.
        """
        problem = attributes.problem(self.kernel, numbers)
        if problem is not None:
            raise errors.LaunchError(problem)
        return attributes.array(cooperative=self.kernel.cooperative)


def _three(value: object) -> Dimensions | None:
    """Return a tuple of one to three ints in three dimensions; None for anything else."""
    if type(value) is not tuple or not 1 <= len(value) <= 3:
        return None
    for number in value:
        if type(number) is not int:
            return None
    x, y, z = (*value, 1, 1)[:3]
    return x, y, z


def attributes_of(kernel: DeviceKernel, attributes: LaunchAttributes | None) -> LaunchAttributes | None:
    """Return the attributes of a launch of a kernel; those of a cooperative one exist, since `array` adds to them."""
    if attributes is not None or not kernel.cooperative:
        return attributes
    from .launch_attributes import LaunchAttributes  # noqa: PLC0415 (few kernels have any)

    return LaunchAttributes("")


def checked(configuration: Configuration, kernel: DeviceKernel, where: str) -> Configuration:
    """Return `configuration.for_kernel(kernel)` after `Configuration.check`."""
    completed = configuration.for_kernel(kernel)
    completed.check(kernel, where)
    return completed


def check_threads(block: Dimensions, where: str) -> None:
    """Refuse a block with more threads than any GPU has; the launch compares a block with the limits of its GPU.

    The limit is that of all compute capabilities (CUDA C++ Programming Guide, "Technical Specifications per Compute
    Capability").

    Raises:
        LaunchError: The block is too large.
    """
    threads = block[0] * block[1] * block[2]
    if threads > _MOST_THREADS:
        text = f"block {errors.short_repr(block)} has {errors.short_repr(threads)} threads"
        message = f"{where} cannot be launched: {text}, where at most {_MOST_THREADS} are possible on any GPU"
        raise errors.LaunchError(message)


def dimensions(value: object, key: str, where: str) -> Dimensions:
    """Return a grid, block or cluster in three dimensions, from an int or a tuple of one to three.

    Errors name the value `key`, and the kernel `where`.

    Raises:
        LaunchError: `value` is neither, or a dimension is below 1.
    """
    if type(value) is int and value > 0:
        return value, 1, 1
    parts = value if isinstance(value, tuple | list) else (value,)
    numbers = [number for number in map(integer, parts) if number is not None]
    if not 1 <= len(numbers) <= 3 or len(numbers) < len(parts):
        text = errors.quoted(value)
        message = f"{where} cannot be launched: {key} is {text} where an int or a tuple of one to three belongs"
        raise errors.LaunchError(message)
    if min(numbers) < 1:
        text = errors.quoted(value)
        message = f"{where} cannot be launched: {key} is {text}, and each of its dimensions must be at least 1"
        raise errors.LaunchError(message)
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def bytes_of_shared_memory(shared: object, where: str) -> int:
    """Return the bytes of dynamic shared memory as an int; `where` names the kernel in errors.

    Raises:
        LaunchError: `shared` is no integer, or negative.
    """
    number = integer(shared)
    if number is None or number < 0:
        text = errors.quoted(shared)
        message = f"{where} cannot be launched: dynamic shared memory is {text} where a number of bytes belongs"
        raise errors.LaunchError(message)
    return number


def number_of_elements(n: object, where: str) -> int:
    """Return the number of elements of a `forall` as an int; `where` names the kernel in errors.

    Raises:
        LaunchError: `n` is no integer, or negative.
    """
    number = integer(n)
    if number is None:
        text = errors.quoted(n)
        message = f"{where}.forall({text}): the number of elements must be an int; of an array that is x.size"
        raise errors.LaunchError(message)
    if number < 0:
        message = f"{where}.forall({errors.quoted(number)}): the number of elements cannot be negative"
        raise errors.LaunchError(message)
    return number


def block_of_elements(block: object, where: str) -> int:
    """Return the threads of a block of a `forall`, which has one dimension; `where` names the kernel in errors.

    Raises:
        LaunchError: `block` is no integer, or below 1.
    """
    number = integer(block)
    if number is None or number < 1:
        text = errors.quoted(block)
        message = f"{where} cannot be launched: block is {text} where forall takes an int of at least 1"
        raise errors.LaunchError(message)
    check_threads((number, 1, 1), where)
    return number
