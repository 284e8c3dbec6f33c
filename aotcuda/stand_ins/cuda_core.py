"""Stand in for cuda.core: one GPU, on which nothing runs, and source texts that are not compiled."""

from __future__ import annotations

import itertools
import sys
from typing import Any, NamedTuple

from . import gpu as gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from .gpu import Gpu

_handles = itertools.count(256, 256)


class Hooks:
    """The GPU that programs see, and what a recorder adds.

    Attributes:
        gpu: The GPU.
        launch: The function that is called with the source or None, the kernel's name, the launch configuration and the
            arguments of each launch.
        site: The function that returns `file:line` of the program.
    """

    gpu: Gpu
    launch: Callable[[Any, str, Any, tuple[Any, ...]], None] = staticmethod(lambda *_: None)
    site: Callable[[], str] = staticmethod(str)


def install(module: ModuleType, gpu: Gpu) -> None:
    """Replace the classes of `cuda.core` that need a driver, for the whole process."""
    Hooks.gpu = gpu
    properties = sys.modules[module.__dict__["Device"].__module__].__dict__.get("DeviceProperties")
    if properties is not None:
        _Properties.names = frozenset(dir(properties))
    module.__dict__.update(
        Buffer=Buffer,
        Device=Device,
        Event=Event,
        Kernel=Kernel,
        ObjectCode=ObjectCode,
        Program=Program,
        Stream=Stream,
        LEGACY_DEFAULT_STREAM=Stream(),
        PER_THREAD_DEFAULT_STREAM=Stream(),
        launch=launch,
    )


class Program:
    """A source text that is not compiled."""

    def __init__(self, code: Any, code_type: str = "c++", options: Any = None) -> None:
        text = code.decode() if isinstance(code, bytes) else str(code)
        is_cpp = str(code_type).lower() == "c++"
        self._source = Source(text, _words(options), Hooks.site()) if is_cpp else None
        self.handle = self.backend = None

    def compile(self, target_type: str, name_expressions: Any = (), **_: Any) -> ObjectCode:
        """Return code with the text of its kernels, if that is CUDA C++."""
        del target_type
        return ObjectCode(self._source, name_expressions)

    def close(self) -> None:
        """Do nothing."""


class Source(NamedTuple):
    """A source text, the options of its compiler, and `file:line` of the program."""

    text: str
    options: list[str]
    made: str


def _words(options: Any) -> list[str]:
    """Return options for the language, and those with keys in tables, as words of NVRTC's command line."""
    words = [f"--std={options.std}"] if getattr(options, "std", None) else []
    macros = getattr(options, "define_macro", None) or ()
    macros = [macros] if isinstance(macros, str) or (isinstance(macros, tuple) and len(macros) == 2) else macros
    words += [f"-D{'='.join(map(str, item)) if isinstance(item, tuple) else item}" for item in macros]
    words += ["--use_fast_math"] if getattr(options, "use_fast_math", None) else []
    return [*words, *(["--fmad=false"] if getattr(options, "fma", None) is False else [])]


class ObjectCode:
    """Code with its source, if that is CUDA C++."""

    def __init__(self, source: Source | None = None, names: Any = ()) -> None:
        self.source = source
        self.code = b""
        self.symbol_mapping = {name: name for name in names}

    @classmethod
    def _without_text(cls, *_: Any, **__: Any) -> ObjectCode:
        return cls()

    from_cubin = from_ptx = from_fatbin = from_ltoir = from_library = from_object = _without_text

    def get_kernel(self, name: Any) -> Kernel:
        """Return the kernel of a name or name expression."""
        return Kernel(self.source, name.decode() if isinstance(name, bytes) else str(name))


class Kernel:
    """A kernel that is not launched."""

    handle = 1

    def __init__(self, source: Source | None = None, name: str = "") -> None:
        self.source = source
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name in ("attributes", "occupancy"):
            return _Numbers()
        raise AttributeError(name)


class _Numbers:
    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: 256


def launch(stream: Any, config: Any, kernel: Any, *args: Any) -> None:
    """Report a launch without executing it."""
    del stream
    Hooks.launch(getattr(kernel, "source", None), getattr(kernel, "name", ""), config, args)


class Stream:
    """A stream without work."""

    def __init__(self, *_: Any) -> None:
        self.handle = next(_handles)

    @classmethod
    def from_handle(cls, handle: Any) -> Stream:
        """Return a stream of another library."""
        del handle
        return cls()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def record(self, event: Any = None, options: Any = None) -> Any:
        """Return a completed event."""
        del options
        return event or Event()

    def sync(self) -> None:
        """Do nothing."""

    close = wait = lambda *_: None


class Event:
    """A completed event."""

    is_done = True

    def sync(self) -> None:
        """Do nothing."""

    close = lambda *_: None  # noqa: E731

    def __sub__(self, _: Any) -> float:
        return 1.0


class Buffer:
    """A block of host memory."""

    device_id = 0
    is_device_accessible = is_host_accessible = True

    def __init__(self, size: int = 0) -> None:
        self._block = bytearray(size + 256)
        self._view = memoryview(self._block)
        self.size = size
        self.handle = next(_handles)

    def copy_to(self, dst: Any = None, **_: Any) -> Any:
        """Copy to another buffer."""
        other = dst or Buffer(self.size)
        other._view[: self.size] = self._view[: self.size]
        return other

    def copy_from(self, src: Any, **_: Any) -> None:
        """Copy from another buffer."""
        src.copy_to(self)

    close = lambda *_, **__: None  # noqa: E731


class _Capability(NamedTuple):
    major: int
    minor: int


def _answered(name: str, answer: Any, *, depends_on_target: bool = True) -> Any:
    return Hooks.gpu.answered(f"cuda.core.Device().{name}", answer, depends_on_target=depends_on_target)


class Device:
    """The GPU."""

    pci_bus_id = "0000:01:00.0"
    uuid = gpus.UUID.removeprefix("GPU-")

    def __init__(self, device_id: Any = None) -> None:
        self.device_id = int(getattr(device_id, "device_id", device_id) or 0)
        self.default_stream = Stream()
        self.properties = _Properties()
        Hooks.gpu.answered("cuda.core.Device()", self.device_id, presence=True)

    @classmethod
    def get_all_devices(cls) -> tuple[Device, ...]:
        """Return the only device."""
        return (cls(),)

    @property
    def compute_capability(self) -> _Capability:
        return _answered("compute_capability", _Capability(*Hooks.gpu.capability))  # type: ignore[no-any-return]

    @property
    def arch(self) -> str:
        return _answered("arch", "".join(map(str, Hooks.gpu.capability)))  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        return _answered("name", Hooks.gpu.name)  # type: ignore[no-any-return]

    def allocate(self, size: int, **_: Any) -> Buffer:
        """Return a block of host memory."""
        return Buffer(size)

    def create_stream(self, *_: Any, **__: Any) -> Stream:
        """Return a stream."""
        return Stream()

    def create_event(self, *_: Any, **__: Any) -> Event:
        """Return an event."""
        return Event()

    set_current = sync = lambda *_: None


class _Properties:
    names: frozenset[str] = frozenset()

    def __getattr__(self, name: str) -> int:
        if name not in self.names:
            raise AttributeError(name)
        gpu = Hooks.gpu
        value = gpu.attribute(name.upper())
        return _answered(name, value, depends_on_target=gpu.differs(name.upper()))  # type: ignore[no-any-return]
