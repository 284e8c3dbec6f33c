"""Kernels that are launched by their grid alone, `kernel[grid](*args, **constants)`, as Triton's are.

Each variant defines block, shared memory, clusters and attributes. The brackets have the grid: one to three ints, or a
function that returns them for a dict of the launch's arguments. Constants and options such as `num_warps` are arguments
like the others, by name or by position, but they have no bytes in the parameter block
(`aotcuda.runtime.launch.arguments.other_kinds.Constant`). Choosing a variant is therefore choosing an overload.
"""

from __future__ import annotations

from typing import NamedTuple

from ...manifest.constants import decode
from .. import importing, integer
from ..kernel import Kernel
from . import config_key, grid_binding
from .execute import ProcessLocal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Never, NoReturn, SupportsIndex

    from ... import typing as types
    from ...manifest import Kernel as Record
    from ...manifest import Overload
    from ..images.images import Images
    from ..images.kernel_table import KernelTable
    from .arguments.argument_layout import PackedOverload
    from .for_all import ForAll
    from .grid_binding import Bind, Named

_MOST_BINDS = 256
_FUNCTION: type = type(lambda: None)


class Served(NamedTuple):
    """Numbers of launches of a kernel.

    Attributes:
        exact: Launches by the variant that Triton's JIT would compile for them.
        general: Launches by a variant whose hints all hold, and that lacks others.
        jit: Launches by code that Triton compiled in this process.
    """

    exact: int
    general: int
    jit: int


class GridKernel(Kernel):
    """A kernel of a packaged module: `kernel[grid](*args, **constants)`.

    Attributes:
        binds: The cached results of `bind`, by its arguments.
        jit_launches: The number of launches by code that Triton compiled.
    """

    def __init__(self, name: str, images: Images) -> None:
        """Implement Kernel.__init__."""
        super().__init__(name, images)
        self.binds: dict[tuple[object, ...], Bind] = {}
        self.jit_launches = 0
        self._constants: Any = None
        self._named: tuple[Record, Named | None] | None = None

    @property
    def may_change(self) -> bool:
        """Return True in an editable install: the images of edited sources may have other parameters."""
        return self._images.source.is_editable

    def __getitem__(self, grid: types.Grid) -> GridLauncher:  # type: ignore[override]  # it takes arguments by name
        """Return the kernel with a grid: an int, a tuple of one to three, or a function of the named arguments.

        Raises:
            LaunchError: The grid is not possible.
        """
        if type(grid) is not _FUNCTION:
            launcher: Any = self._used_cache.configured(grid)
            if launcher is not None:
                return launcher  # type: ignore[no-any-return]
        elif (launcher := self._used_cache.for_functions) is not None:
            return launcher.with_function(grid, self)  # type: ignore[no-any-return]
        return self._launcher_for(grid, None)

    def configure(  # type: ignore[override]  # as above
        self, grid: types.Grid, block: None = None, *, stream: types.Stream = None, **options: Never
    ) -> GridLauncher:
        """Return the kernel with a grid and a stream; the stream is as in `Kernel.configure`.

        Raises:
            LaunchError: The grid is not possible, or an option is given that the kernel itself defines.
            ArgumentError: The stream is not a stream.
        """
        if block is not None or options:
            for name, value in (("block", block), *options.items()):
                if value is not None:
                    self._refuse(
                        f"{name} is given, and it was compiled into the kernel; configure() takes grid and stream"
                    )
        return self[grid] if stream is None else self._launcher_for(grid, stream)

    def forall(
        self, n: SupportsIndex, block: int | None = None, stream: types.Stream = None, shared: int = 0
    ) -> ForAll:
        """Raise LaunchError: only the kernel's source determines how many programs `n` elements need."""
        del n, block, stream, shared
        self._refuse(f"forall is for kernels that count threads; write {self.__name__}[grid](...)")

    if not TYPE_CHECKING:  # as in Kernel

        def __call__(self, *_args: object, **_named: object) -> NoReturn:
            """Raise an error that shows how a kernel is launched.

            Raises:
                CallError: Always.
            """
            with importing:
                from .arguments import explain  # noqa: PLC0415 (only errors come here)

            raise explain.configuration_error(str(self), self.__name__, "[grid]")

    def bind(self, count: int, names: tuple[str, ...]) -> Bind:
        """Return the function that puts `count` positional arguments and some named ones in order.

        Raises:
            ArgumentError: Some are unknown, repeated or missing.
        """
        binder = grid_binding.make_binder(str(self), self.record(), count, names)
        if not self.may_change:
            if len(self.binds) >= _MOST_BINDS:
                self.binds.clear()
            self.binds[(count, *names)] = binder
        return binder

    def arrange(self, args: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
        """Return all arguments of a launch in order.

        Raises:
            ArgumentError: Some are unknown, repeated or missing.
        """
        bind = self.binds.get((len(args), *named)) or self.bind(len(args), tuple(named))
        return bind(args, named)

    def record(self) -> Record:
        """Return its record in the manifest.

        Raises:
            LaunchError: The current images have no such kernel.
        """
        record = self._images.kernels.get(self.__name__)
        if record is None:
            self._refuse("the module has no such kernel any more")
        return record

    def constants(self, args: tuple[object, ...]) -> dict[str, object]:
        """Return the values of all arguments by name; omitted ones have the values of the variant.

        Args:
            args: The arguments, in order.

        Raises:
            ArgumentError: No variant accepts them.
        """
        if self._constants is None or self.may_change:
            self._constants = grid_binding.constants_to_fill(self.record())
        name_arguments, by_variant = self._constants
        values = name_arguments(args)
        if by_variant and any(values[name] is None for _, name in by_variant):
            parameters = self._parameters_for(args)
            values |= {name: decode(parameters[index].get("value")) for index, name in by_variant}
        return values  # type: ignore[no-any-return]

    def find(self, args: tuple[object, ...], named: dict[str, object]) -> Overload | None:
        """Return the record of the variant that a launch would use; None if an exact kernel has none.

        Raises:
            ArgumentError: As for a launch of a kernel that is not exact.
        """
        with importing:
            from ...errors import MissingVariantError  # noqa: PLC0415 (few programs ask)

        try:
            full = self.arrange(args, named)
            return self._images.use(self._check, full).record
        except MissingVariantError:
            return None

    @property
    def served(self) -> Served:
        """Return the numbers of launches since the images were loaded, by the code that served them.

        A kernel that chooses no variants by Triton's rules, such as cuTile's, counts none.
        """
        cache = self._cache()
        counts = getattr(cache.table, "counts", None)
        exact, general = (0, 0) if counts is None else counts
        return Served(exact, general, self.jit_launches)

    def check(self, args: tuple[object, ...]) -> None:
        """Raise ArgumentError unless a variant accepts the arguments."""
        self._parameters_for(args)

    def run(self, grid: Any, args: tuple[object, ...]) -> None:
        """Launch with a grid that a function returned, and arguments in order."""
        self[grid].run(args)

    def _parameters_for(self, args: tuple[object, ...]) -> Any:
        """Return the parameters of the variant for some arguments."""
        return self._images.use(self._check, args).parameters

    def _check(self, kernel_table: KernelTable, args: tuple[object, ...]) -> PackedOverload:
        return kernel_table.check(self.__name__, args, 0)

    def _launcher_for(self, grid: object, stream: Any) -> GridLauncher:
        """Return the launcher for a grid and a stream; make it if it is not cached."""
        if callable(grid):
            return self._with_function(grid, stream)
        key = tuple(grid) if isinstance(grid, list) else grid
        parts = key if isinstance(key, tuple) else (key,)
        numbers = [integer(part) for part in parts]  # the launcher checks if one is None
        if None not in numbers and 1 <= len(numbers) <= 3 and 0 in numbers:
            if stream is not None:
                with importing:
                    from ..streams import handle  # noqa: PLC0415 (few grids are 0)

                handle(stream)
            return self._named_launcher(None, None, stream, key)
        if stream is not None and not isinstance(stream, int):
            on_handle = self.configure(key, stream=config_key.handle_of(stream))  # type: ignore[arg-type]  # find()
            return on_handle.with_stream(stream)
        with importing:
            from .launch_config import DEFINED_BY_KERNEL  # noqa: PLC0415 (an import makes no launcher)

        exact = config_key.exact_key((key,)) if stream is None else None
        launcher: Any = self._used_cache.configured(exact[0]) if exact is not None else None
        if launcher is not None:
            return launcher  # type: ignore[no-any-return]
        launcher = self.launcher(key, DEFINED_BY_KERNEL, stream, 0)
        return self._with_fast_path(self._named_launcher(launcher, None, stream, key), launcher)  # type: ignore[no-any-return]

    def general_launcher(self, configuration: Any, specializations: object, *results: object) -> Any:
        """Implement Kernel.general_launcher.

        The configuration is a grid, or a function that returns it; `results` has its result if it was called.
        """
        with importing:
            from .launch_config import DEFINED_BY_KERNEL  # noqa: PLC0415 (an import makes no launcher)

        del specializations
        if results:
            return self._named_launcher(None, lambda _arguments: results[0], None, results[0])
        if callable(configuration):
            return self._named_launcher(None, configuration, None, configuration)
        return self._named_launcher(self.launcher(configuration, DEFINED_BY_KERNEL, None, 0), None, None, configuration)

    def _with_function(self, function: Callable[..., Any], stream: object) -> GridLauncher:
        """Return a launcher with the grid that a function returns; it is in C if the extension can order arguments."""
        record = self._images.kernels.get(self.__name__)
        if stream is None and type(function) is _FUNCTION and record is not None and record.get("exact"):
            launcher: Any = self[1]
            if hasattr(type(launcher), "with_function"):  # in C; it has the names of the arguments
                self._cache().for_functions = launcher
                return launcher.with_function(function, self)  # type: ignore[no-any-return]
        return self._named_launcher(None, function, stream, function)

    def _named_launcher(
        self, launcher: Any, function: Callable[..., Any] | None, stream: object, grid: object
    ) -> GridLauncher:
        """Return the launcher that accepts arguments by name; `grid`, the program's value, is for subclasses."""
        del grid
        return GridLauncher(self, launcher, function, stream)

    def _with_fast_path(self, launcher: GridLauncher, inner: Any) -> Any:
        """Return a launcher in C that puts arguments in order; it passes launches that it declines to `launcher`."""
        with importing:
            from . import fast as extension  # noqa: PLC0415 (an import makes no launcher)

        configuration = inner.configuration
        specializations = None if self.may_change else extension.specializations_of(self._cache(), configuration)
        if specializations is None:
            return launcher
        record = self.record()
        if self._named is None or self._named[0] is not record:
            self._named = record, grid_binding.extension_arguments(record)
        if self._named[1] is None:
            return launcher
        made = extension.wrap(launcher, configuration, specializations, self._named[1])
        cache = self._cache()
        if made is not launcher and configuration.stream is None and not cache.makes_launchers:
            self._serve(cache, made)
        return made


class GridLauncher(ProcessLocal):
    """A kernel with a grid; call it with the kernel's arguments, as a function with the kernel's parameters."""

    __slots__ = ("_function", "_kernel", "_launcher", "_stream")

    def __init__(self, kernel: GridKernel, launcher: Any, function: Callable[..., Any] | None, stream: object) -> None:
        """Take the launcher with the grid, or the function that returns the grid; both are None for a grid of zero."""
        self._kernel = kernel
        self._launcher = launcher
        self._function = function
        self._stream = stream

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **named: Any) -> Any:
            """Launch the kernel; see `Launcher`."""

    else:

        def __call__(self, *args: object, **named: object) -> None:
            """Launch the kernel; it runs asynchronously. Errors as for `aotcuda.runtime.launch.execute.Launcher`.

            As in Triton, a grid of zero launches nothing; the arguments are checked.
            """
            full = self._kernel.arrange(args, named)
            self.launch_on(self.compute_grid(full), full)

    def compute_grid(self, full: tuple[object, ...]) -> object:
        """Return the result of the grid function for arguments in order; None without a function."""
        return None if self._function is None else self._function(self._kernel.constants(full))

    def launch_on(self, grid: object, full: tuple[object, ...]) -> None:
        """Launch with arguments in order; `grid` is the result of `compute_grid`."""
        if self._function is None:
            self.run(full)
        elif self._stream is None:
            self._kernel.run(grid, full)
        else:
            self._kernel.configure(grid, stream=self._stream).run(full)  # type: ignore[arg-type]  # it checks the grid

    def run(self, args: tuple[object, ...]) -> None:
        """Launch with arguments in order."""
        if self._launcher is not None:
            self._launcher(*args)
        elif self._function is None:
            self._kernel.check(args)
        else:
            with importing:
                from ...errors import LaunchError  # noqa: PLC0415 (only errors come here)

            message = f"{self._kernel} cannot be launched: the grid's function returns a function, and no grid"
            raise LaunchError(message)

    def __getattr__(self, name: str) -> object:
        launcher = None if name in GridLauncher.__slots__ else self._launcher  # also for an empty slot
        if launcher is None:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
        return getattr(launcher, name)

    def _describe(self) -> tuple[str, str]:
        """Implement ProcessLocal._describe."""
        return f"{self._kernel} with a grid", "kernel[grid]"

    def __repr__(self) -> str:
        return repr(self._launcher) if self._launcher is not None else f"<{self._kernel} with a grid of its arguments>"
