"""What a packaged module exports for launching: kernels, to be indexed with a configuration and called."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from aotcuda import manifest as manifests
    from aotcuda.runtime.arguments.layout import Plan
    from aotcuda.runtime.arguments.overloads import Dispatch, Group, Selection
    from aotcuda.runtime.fast.python import Bind
    from aotcuda.runtime.forall import ForAll
    from aotcuda.runtime.images.program import Program
    from aotcuda.runtime.launcher import Launcher
    from aotcuda.runtime.module import Module

_MOST_LAUNCHERS = 256


class Kernel:
    """A kernel of a packaged module: `kernel[grid, block](*args)`.

    Attributes:
        module: The module that it belongs to.
        signatures: The signatures that it was compiled for.
        records: What the accelerator keeps for it.
    """

    def __init__(self, module: Module, record: manifests.Kernel) -> None:
        self.module = module
        self.records: Any = None
        self.__name__ = self.__qualname__ = record["name"]
        self.__module__ = module.name
        self.signatures = [overload["signature"] for overload in record["overloads"]]
        self._record = record
        self._dispatch: Dispatch | None = None
        self._launchers: dict[object, Launcher] = {}

    def __getitem__(self, configuration: object) -> Launcher:
        """The kernel with a configuration: `grid, block`, then if wanted a stream and bytes of dynamic shared memory.

        Raises:
            LaunchError: The grid, the block or the shared memory is not a possible one.
            ArgumentError: The stream is none.
        """
        try:
            return self._launchers[configuration]
        except (KeyError, TypeError):  # a stream may be unhashable
            pass
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            self._refuse(
                f"write [grid, block], [grid, block, stream] or [grid, block, stream, shared], not [{configuration!r}]"
            )
        grid, block, stream, shared = (*configuration, 0, 0)[:4]
        if stream is not None and not isinstance(stream, int):
            from aotcuda.runtime.launcher import Held  # noqa: PLC0415 (as in forall)
            from aotcuda.runtime.streams import handle  # noqa: PLC0415

            return Held(self[grid, block, handle(stream), shared], stream)  # type: ignore[return-value]
        launcher = self.launcher(grid, block, stream or 0, shared)
        if _is_plain(configuration):
            if len(self._launchers) >= _MOST_LAUNCHERS:
                self._launchers.clear()
            self._launchers[configuration] = launcher
        return launcher

    def forall(self, n: int, block: int | None = None, stream: object = 0, shared: int = 0) -> ForAll:
        """The kernel over at least `n` threads: `kernel.forall(n)(*args)`; it must itself ignore threads beyond `n`.

        Args:
            n: How many threads are needed.
            block: Threads of a block; by default as many as occupy the GPU best.
            stream: As in a configuration.
            shared: Bytes of dynamic shared memory for each block.

        Raises:
            LaunchError: `n` is negative, or the block is not possible.
            ArgumentError: The stream is none.
        """
        from aotcuda.runtime.forall import ForAll  # noqa: PLC0415 (an import with load = "first-use" needs no ctypes)

        return ForAll(self, n, block, stream, self._shared(shared))

    def launcher(self, grid: object, block: object, stream: int, shared: object) -> Launcher:
        """As `__getitem__`, from the parts of a configuration; `stream` is a handle."""
        from aotcuda.runtime.fast.extension import in_front  # noqa: PLC0415 (as in forall)
        from aotcuda.runtime.launch_limits import dimensions  # noqa: PLC0415
        from aotcuda.runtime.launcher import Launcher  # noqa: PLC0415
        from aotcuda.runtime.streams import check  # noqa: PLC0415

        sizes = dimensions(grid, "grid", self), dimensions(block, "block", self)
        launcher = Launcher(self, *sizes, check(stream), self._shared(shared))
        return in_front(launcher)  # type: ignore[no-any-return]

    def group(self, args: tuple[object, ...]) -> Group | None:
        """The overloads that these arguments may fit; see `aotcuda.runtime.arguments.overloads`."""
        return (self._dispatch or self._make_dispatch()).group(args)

    def select(self, args: tuple[object, ...], stream: int) -> Selection:
        """The overload for these arguments; see `aotcuda.runtime.arguments.overloads`."""
        return (self._dispatch or self._make_dispatch()).select(args, stream)

    def specialise(self, program: Program, group: Group, args: tuple[object, ...]) -> Bind | None:
        """The fast path of a group's overloads in Python, for arguments of these types; None if there can be none."""
        from aotcuda.runtime.fast.python import Place, specialise  # noqa: PLC0415 (after the first launch)

        call = program.driver.call
        several = len(program.driver.devices) > 1
        place = Place(
            call["cuCtxGetCurrent"] if program.device < 0 else None, call["cuPointerGetAttribute"] if several else None
        )
        return specialise(group.plans, args, group.live, place)

    def preload(self, program: Program, device: int) -> None:
        """Load every overload's code on a GPU whose context is current."""
        for plan in self.plans():
            program.entry(plan, device).load()

    def forget(self) -> None:
        """Drop all that belongs to loaded images."""
        with self.module.lock:  # as in _make_dispatch
            dispatch, self._dispatch = self._dispatch, None
        if dispatch is not None:
            dispatch.retire()
            self.module.retired.append(dispatch)
        self._launchers.clear()
        self.records = None  # they keep all that was ever learnt; a launcher that somebody holds has them still

    def renew(self, record: manifests.Kernel) -> None:
        """Become the kernel of another record, for those who hold this one."""
        self.signatures = [overload["signature"] for overload in record["overloads"]]
        self._record = record
        self.forget()

    def plans(self) -> list[Plan]:
        """The packaged overloads, in the order of `signatures`."""
        return (self._dispatch or self._make_dispatch()).plans

    def get_regs_per_thread(self, signature: str | None = None) -> int | dict[str, int]:
        """Registers of a thread on the current GPU, of one of `signatures`; without one, of all of them, by signature.

        Errors are those of a launch, for this and the following methods.
        """
        return self._ask("registers", signature)

    def get_shared_mem_per_block(self, signature: str | None = None) -> int | dict[str, int]:
        """Bytes of static shared memory of a block, likewise."""
        return self._ask("shared", signature)

    def get_const_mem_size(self, signature: str | None = None) -> int | dict[str, int]:
        """Bytes of constant memory, likewise."""
        return self._ask("constant", signature)

    def get_local_mem_per_thread(self, signature: str | None = None) -> int | dict[str, int]:
        """Bytes of local memory of a thread, likewise."""
        return self._ask("local", signature)

    def get_max_threads_per_block(self, signature: str | None = None) -> int | dict[str, int]:
        """The most threads that a block of this kernel may have, likewise."""
        return self._ask("max_threads", signature)

    def occupancy(self, block: object, shared: int = 0, signature: str | None = None) -> int:
        """How many such blocks a multiprocessor of the current GPU holds at once.

        Args:
            block: Threads of a block, as in a configuration.
            shared: Bytes of dynamic shared memory for each block.
            signature: One of `signatures`; a kernel with several needs it.
        """
        from aotcuda.runtime import kernel_attributes as facts  # noqa: PLC0415 (few programs ask)

        return facts.active_blocks(self, block, self._shared(shared), signature)[0]

    def max_cooperative_grid_blocks(self, block: object, shared: int = 0, signature: str | None = None) -> int:
        """The most blocks that a cooperative grid of such blocks may have: all that the GPU holds at once."""
        from aotcuda.runtime import kernel_attributes as facts  # noqa: PLC0415 (likewise)

        blocks, entry = facts.active_blocks(self, block, self._shared(shared), signature)
        return blocks * entry.device.limit("multiprocessors")

    def inspect_sass(self, signature: str | None = None) -> str | dict[str, str]:
        """The machine code for the current GPU, disassembled by NVIDIA's `cuobjdump`, likewise.

        Raises:
            DependencyError: It is not installed.
            LaunchError: The GPU takes no machine code from the package, or it cannot be disassembled.
        """
        from aotcuda.runtime import kernel_attributes as facts  # noqa: PLC0415 (likewise)

        return facts.sass(self, signature)

    def cuda_core_kernel(self, signature: str | None = None) -> Any:
        """The kernel as a `cuda.core.Kernel`, for who launches it otherwise; it dies with `module.unload()`.

        Its parameters are as the packaged header declares them: aotcuda packs none for it.

        Raises:
            DependencyError: `cuda.core` is not installed.
        """
        from aotcuda.runtime import kernel_attributes as facts  # noqa: PLC0415 (likewise)

        return facts.cuda_core_kernel(self, signature)

    def _ask(self, name: str, signature: str | None) -> int | dict[str, int]:
        from aotcuda.runtime import kernel_attributes as facts  # noqa: PLC0415 (likewise)

        return facts.ask(self, name, signature)

    def __call__(self, *_args: object) -> NoReturn:
        """Say how a kernel is launched.

        Raises:
            TypeError: Always.
        """
        message = f"{self} needs a configuration: {self.__name__}[grid, block](...) or {self.__name__}.forall(n)(...)"
        raise TypeError(message)

    def __str__(self) -> str:
        return f"{self.module.name}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<aotcuda kernel {self}: {'; '.join(self.signatures)}>"

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return _find, (self.module.name, self.__name__)

    def _make_dispatch(self) -> Dispatch:
        from aotcuda.runtime.arguments.overloads import Dispatch  # noqa: PLC0415 (as in forall)

        with self.module.lock:  # of two, one would not know when the images are unloaded
            if self._dispatch is None:
                self._dispatch = Dispatch(self._record, str(self), self._late)
            return self._dispatch

    def _late(self, args: tuple[object, ...], stream: int) -> Selection | None:
        """What the JIT fallback has for arguments that no packaged overload takes, if it may have anything."""
        if all(len(args) != len(overload["parameters"]) for overload in self._record["overloads"]):
            return None
        return self.module.fallback.select(self, self.plans(), args, stream)

    def _shared(self, shared: object) -> int:
        if not isinstance(shared, int) or shared < 0:
            self._refuse(f"dynamic shared memory is {shared!r} where a number of bytes belongs")
        return shared

    def _refuse(self, problem: str) -> NoReturn:
        from aotcuda.errors import LaunchError  # noqa: PLC0415 (as in forall)

        message = f"{self} cannot be launched: {problem}"
        raise LaunchError(message)


def _is_plain(configuration: object) -> bool:
    """Whether a configuration is made of ints and tuples of them, and so holds nothing alive and can be kept."""
    if not isinstance(configuration, tuple):
        return False
    return all(type(part) is int or (type(part) is tuple and _is_plain(part)) for part in configuration)


def _find(module: str, name: str) -> object:
    """A kernel by name, for unpickling."""
    from aotcuda.runtime.module import load  # noqa: PLC0415 (module imports this one)

    return load(module).attribute(name)
