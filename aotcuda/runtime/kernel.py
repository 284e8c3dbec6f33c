"""Kernels of a packaged module: index one with a launch configuration, and call it."""

from __future__ import annotations

from . import importing
from .launch import config_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Signature
    from typing import Any, Never, NoReturn, SupportsIndex

    from .. import typing as types
    from .images.images import Images
    from .images.kernel_table import KernelCache
    from .launch.execute import Launcher
    from .launch.for_all import ForAll
    from .launch.launch_attributes import LaunchAttributes
    from .launch.launch_config import Configuration
    from .reports.kernel_attributes import OnThisGpu

_MOST_SHOWN = 8


class _NoCache:
    """The cache of a kernel before its first launcher."""

    for_functions = specializations = None
    makes_launchers = False

    @staticmethod
    def configured(_configuration: object) -> None:
        """Return no launcher."""

    @staticmethod
    def for_all(*_parts: object) -> None:
        """Return no launcher."""


_NO_CACHE = _NoCache()


class _Computed:
    """An attribute that a method computes for each kernel; `help` of the class shows a fixed value."""

    def __init__(self, class_value: str | None, method: str) -> None:
        self._class_value = class_value
        self._method = method

    def __get__(self, kernel: Kernel | None, owner: type[Kernel]) -> Any:
        return self._class_value if kernel is None else getattr(kernel, self._method)()


class Kernel:
    """A kernel of a packaged module: `kernel[grid, block](*args)`.

    `aotcuda.load(kernel.__module__)` is its module. `help(kernel)` shows its docstring and its packaged signatures.
    """

    __signature__ = _Computed(None, "parameters")  # `inspect.signature` shows it
    if not TYPE_CHECKING:
        __doc__ = _Computed(__doc__, "documentation")

    def __init_subclass__(cls) -> None:
        cls.__doc__ = _Computed(cls.__doc__ or "", "documentation")  # type: ignore[assignment]

    def __init__(self, name: str, images: Images) -> None:
        """Take the kernel's name, and the images of its module."""
        self.__name__ = self.__qualname__ = name
        self.__module__ = images.source.name
        self._images = images
        self._used_cache: Any = _NO_CACHE  # from the first launcher on, the kernel's cache for the current images

    # Without these, Python would iterate over a kernel by indexing it with 0, 1, 2, ... without an end.
    __iter__ = None
    __contains__ = None

    @property
    def images(self) -> Images:
        """Return the images of the kernel's module, for integrations that launch the kernel."""
        return self._images

    @property
    def signatures(self) -> list[str]:
        """Return the signatures of the packaged overloads."""
        record = self._images.kernels.get(self.__name__)
        return [overload["signature"] for overload in record["overloads"]] if record is not None else []

    def __getitem__(self, configuration: types.Configuration) -> Launcher:
        """Return the kernel with a configuration: `grid, block`, then a stream and bytes of dynamic shared memory.

        Raises:
            LaunchError: The grid, the block or the shared memory is not possible.
            ArgumentError: The stream is not a stream.
        """
        launcher: Launcher | None = self._used_cache.configured(configuration)
        return self._make_launcher(configuration) if launcher is None else launcher

    def _make_launcher(self, configuration: object) -> Launcher:
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            with importing:
                from ..errors import quoted  # noqa: PLC0415 (only errors come here)

            parts = configuration if isinstance(configuration, tuple) else (configuration,)
            text = ", ".join([*map(quoted, parts[:_MOST_SHOWN]), *(["..."] if len(parts) > _MOST_SHOWN else [])])
            self._refuse(f"write [grid, block], [grid, block, stream] or [grid, block, stream, shared], not [{text}]")
        grid, block, stream, shared = _parts(configuration)
        exact = config_key.exact_key((grid, block, shared))
        if exact is not None:
            launcher: Launcher | None = self._used_cache.configured((exact[0], exact[1], stream, exact[2]))
            if launcher is not None:
                return launcher
        if stream is not None and not isinstance(stream, int):
            handle = config_key.handle_of(stream)
            return self.launcher(grid, block, handle, shared).with_stream(stream)
        return self.launcher(grid, block, stream, shared)

    def _cache(self) -> KernelCache:
        """Return the kernel's cache for the current images, which is used from now on."""
        cache = self._used_cache = self._images.cache(self.__name__)
        return cache

    def forall(
        self, n: SupportsIndex, block: int | None = None, stream: types.Stream = None, shared: int = 0
    ) -> ForAll:
        """Return the kernel over at least `n` threads: `kernel.forall(n)(*args)`. It must ignore threads beyond `n`.

        Args:
            n: The number of threads.
            block: Threads of a block; by default as many as occupy the GPU best.
            stream: As in a configuration.
            shared: Bytes of dynamic shared memory for each block.

        Raises:
            LaunchError: `n` is negative, or the block is not possible.
            ArgumentError: The stream is not a stream.
        """
        launcher: ForAll | None = self._used_cache.for_all(n, block, stream, shared)
        return self._make_for_all(n, block, stream, shared) if launcher is None else launcher

    def _make_for_all(self, n: Any, block: Any, stream: Any, shared: Any) -> ForAll:
        specializations = self.specializations()
        exact = config_key.exact_key((n, block, shared))
        if exact is not None:
            launcher: ForAll | None = self._used_cache.for_all(exact[0], exact[1], stream, exact[2])
            if launcher is not None:
                return launcher
        return self._for_all(n, block, stream, shared).with_specializations(specializations)

    def _for_all(self, n: Any, block: Any, stream: Any, shared: Any) -> ForAll:
        """Return the launcher in Python for a number of elements."""
        with importing:
            from .launch.for_all import ForAll  # noqa: PLC0415 (an import makes no launcher)

        return ForAll(self, self._images, n, block, stream, self._shared(shared))

    def specializations(self) -> Any:
        """Return the specializations of the fast path; None without the fast path."""
        if not self._used_cache.makes_launchers:
            self.launcher(1, 1, None, 0)  # which makes the launchers from now on
        return self._used_cache.specializations

    def configure(
        self,
        grid: types.Dimensions,
        block: types.Dimensions,
        *,
        stream: types.Stream = None,
        shared: int = 0,
        cluster: types.Dimensions | None = None,
        cooperative: bool = False,
        dependent: bool = False,
        priority: int | None = None,
        carveout: int | None = None,
        **unknown: Never,
    ) -> Launcher:
        """Return the kernel with a configuration that has more options; call the result with the arguments.

        Args:
            grid: Blocks of the grid: an int, or a tuple of one to three.
            block: Threads of a block: an int, or a tuple of one to three.
            stream: As in `kernel[grid, block, stream]`.
            shared: Bytes of dynamic shared memory for each block.
            cluster: Blocks of a cluster: an int, or a tuple of one to three, which divide the grid. More than 8 are
                possible if the GPU and the kernel allow them.
            cooperative: Launch all blocks of the grid at once; they must fit on the GPU.
            dependent: Let the kernel begin before the previous launch on the stream has ended (programmatic dependent
                launch).
            priority: The priority of the launch, lower numbers first; None for the stream's priority.
            carveout: The share of the multiprocessor's memory to prefer as shared memory, in percent.
            unknown: Other options, which are refused.

        Raises:
            LaunchError: An option is not possible, or unknown. The launch raises errors that depend on the GPU.
            ArgumentError: The stream is not a stream.
        """
        if cluster is priority is carveout is None and cooperative is dependent is False and not unknown:
            return self[grid, block, stream, shared]
        with importing:
            from .launch import launch_attributes  # noqa: PLC0415 (few programs have any)
            from .launch.launch_config import dimensions  # noqa: PLC0415

        if unknown:
            self._refuse(launch_attributes.unknown_text(next(iter(unknown))))
        where = str(self)
        attributes = launch_attributes.LaunchAttributes(
            where,
            cluster=None if cluster is None else dimensions(cluster, "cluster", where),
            cooperative=cooperative,
            dependent=dependent,
            priority=priority,
            carveout=carveout,
        )
        if stream is None or isinstance(stream, int):
            return self.launcher(grid, block, stream, shared, attributes)
        return self.launcher(grid, block, config_key.handle_of(stream), shared, attributes).with_stream(stream)

    def launcher(
        self,
        grid: object,
        block: object,
        stream: int | None,
        shared: object,
        attributes: LaunchAttributes | None = None,
    ) -> Launcher:
        """Make a launcher from the parts of a configuration; `stream` is a handle."""
        with importing:
            from .launch import fast as extension  # noqa: PLC0415 (an import with load = "first-use" needs no ctypes)

        configuration = self._configuration(grid, block, stream, shared, attributes)
        cache = self._cache()
        specializations = extension.specializations_of(cache, configuration)
        launcher = self._launcher_class()(self._images, self.__name__, str(self), configuration, specializations)
        if specializations is None:
            if extension.in_use() is None and not configuration.by_grid and not cache.makes_launchers:
                with importing:
                    from .launch.execute import make_configured  # noqa: PLC0415 (as above)

                cache.configured = make_configured(type(launcher), self._images, self.__name__, str(self))
                cache.for_all = self._for_all
            return launcher
        made = extension.wrap(launcher, configuration, specializations)
        if attributes is None and not configuration.by_grid and not cache.makes_launchers:
            self._serve(cache, made)
        return made  # type: ignore[no-any-return]

    def general_launcher(self, configuration: Any, specializations: object, is_for_all: object = False) -> Any:
        """Return the launcher in Python for a configuration that C has read, or for the arguments of `forall`."""
        if is_for_all:
            return self._for_all(*configuration).with_specializations(specializations)
        grid, block, stream, shared = _parts(configuration)
        handle = stream if stream is None or isinstance(stream, int) else config_key.handle_of(stream)
        configuration = self._configuration(grid, block, handle, shared, None)
        return self._launcher_class()(self._images, self.__name__, str(self), configuration, specializations)

    def _serve(self, cache: KernelCache, launcher: Any) -> None:
        """Let a launcher in C make the launchers of later configurations."""
        launcher.serve(self)
        cache.configured, cache.for_all = launcher.configured, launcher.for_all

    def _configuration(
        self, grid: object, block: object, stream: int | None, shared: object, attributes: LaunchAttributes | None
    ) -> Configuration:
        with importing:
            from .launch.launch_config import Configuration  # noqa: PLC0415 (an import makes no launcher)

        plain = Configuration.of((grid, block, stream, shared)) if attributes is None else None
        return plain or Configuration(grid, block, stream, self._shared(shared), str(self), attributes)

    def _launcher_class(self) -> type[Launcher]:
        with importing:
            from .launch.execute import Launcher  # noqa: PLC0415 (an import makes no launcher)

        return Launcher

    def get_regs_per_thread(self, signature: str | None = None) -> int | dict[str, int]:
        """Return the registers of a thread on the current GPU, for one of `signatures`; without one, by signature.

        This and the following methods raise the errors of a launch.
        """
        return self._attribute("registers", signature)

    def get_shared_mem_per_block(self, signature: str | None = None) -> int | dict[str, int]:
        """Return the bytes of static shared memory of a block on the current GPU."""
        return self._attribute("shared", signature)

    def get_const_mem_size(self, signature: str | None = None) -> int | dict[str, int]:
        """Return the bytes of constant memory on the current GPU."""
        return self._attribute("constant", signature)

    def get_local_mem_per_thread(self, signature: str | None = None) -> int | dict[str, int]:
        """Return the bytes of local memory of a thread on the current GPU."""
        return self._attribute("local", signature)

    def get_max_threads_per_block(self, signature: str | None = None) -> int | dict[str, int]:
        """Return the most threads that a block of this kernel may have on the current GPU."""
        return self._attribute("max_threads", signature)

    def occupancy(self, block: object, shared: int = 0, signature: str | None = None) -> int:
        """Return the number of blocks of this size that a multiprocessor of the current GPU holds at once.

        Args:
            block: Threads of a block, as in a configuration.
            shared: Bytes of dynamic shared memory for each block.
            signature: One of `signatures`; required if there are several.
        """
        size = self._shared(shared)
        return self._ask(lambda kernel: kernel.active_blocks(block, size, signature)[0])  # type: ignore[no-any-return]

    def max_cooperative_grid_blocks(self, block: object, shared: int = 0, signature: str | None = None) -> int:
        """Return the most blocks of this size that a cooperative grid may have: as many as the GPU holds at once."""
        size = self._shared(shared)
        blocks, kernel = self._ask(lambda kernel: kernel.active_blocks(block, size, signature))
        return blocks * kernel.device.limit("multiprocessors")  # type: ignore[no-any-return]

    def inspect_sass(self, signature: str | None = None) -> str | dict[str, str]:
        """Return the machine code for the current GPU, disassembled by NVIDIA's `cuobjdump`.

        Raises:
            DependencyError: `cuobjdump` is not installed.
            LaunchError: The GPU uses no machine code of the package, or `cuobjdump` fails.
        """
        with importing:
            from .reports import kernel_attributes  # noqa: PLC0415 (few programs ask)

        return kernel_attributes.sass(self._images, self.__name__, str(self), signature)

    def cuda_core_kernel(self, signature: str | None = None) -> Any:
        """Return the kernel as a `cuda.core.Kernel`, for launches by other code; `module.unload()` invalidates it.

        The caller packs its parameters, as the packaged header declares them.

        Raises:
            DependencyError: `cuda.core` is not installed.
        """
        with importing:
            from .reports import kernel_attributes  # noqa: PLC0415 (few programs ask)

        return kernel_attributes.cuda_core_kernel(self._images, self.__name__, str(self), signature)

    def _attribute(self, name: str, signature: str | None) -> int | dict[str, int]:
        return self._ask(lambda kernel: kernel.attribute(name, signature))  # type: ignore[no-any-return]

    def _ask(self, question: Callable[[OnThisGpu], Any]) -> Any:
        with importing:
            from .reports import kernel_attributes  # noqa: PLC0415 (few programs ask)

        return kernel_attributes.ask(self._images, self.__name__, str(self), question)

    if not TYPE_CHECKING:  # a type checker treats a call as an error

        def __call__(self, *_args: object, **_named: object) -> NoReturn:
            """Raise an error that shows how a kernel is launched.

            Raises:
                CallError: Always.
            """
            with importing:
                from .launch.arguments import explain  # noqa: PLC0415 (only errors come here)

            raise explain.configuration_error(str(self), self.__name__)

    def documentation(self) -> str:
        """Return `__doc__`, which `help` shows; if the manifest cannot be read, the class's docstring."""
        with importing:
            from .reports import help_text  # noqa: PLC0415 (few programs ask)

        record = self._record()
        return help_text.doc(record) if record is not None else str(Kernel.__doc__)

    def parameters(self) -> Signature | None:
        """Return `__signature__`, which `inspect.signature` shows; None if the manifest cannot be read."""
        with importing:
            from .reports import help_text  # noqa: PLC0415 (few programs ask)

        record = self._record()
        return help_text.signature(record) if record is not None else None

    def _record(self) -> Any:
        with importing:
            from ..errors import ManifestError  # noqa: PLC0415 (only errors come here)

        try:
            return self._images.kernels.get(self.__name__)
        except ManifestError:
            return None

    def __str__(self) -> str:
        return f"{self.__module__}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<aotcuda kernel {self}: {'; '.join(self.signatures)}>"

    def _shared(self, shared: object) -> int:
        if shared == 0 and type(shared) is int:
            return 0
        with importing:
            from .launch.launch_config import bytes_of_shared_memory  # noqa: PLC0415 (an import makes no launcher)

        return bytes_of_shared_memory(shared, str(self))

    def _refuse(self, problem: str) -> NoReturn:
        with importing:
            from ..errors import LaunchError  # noqa: PLC0415 (only errors come here)

        message = f"{self} cannot be launched: {problem}"
        raise LaunchError(message)


def _parts(configuration: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the grid, block, stream and shared memory of a configuration."""
    return (*configuration, None, 0) if len(configuration) == 2 else (*configuration, 0)[:4]
