"""Front ends: what each of them offers to the build, whatever compiler stands behind it.

A front end is a module of this package named after it (`numba-cuda` -> `numba_cuda`) with the functions of `FrontEnd`.
It is used inside the build's worker process only: `prepare` once, then, in a forked child for each unit,
`compile_kernel` or `compile_function`. Nothing outside that module names its compiler.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, cast

from aotcuda.errors import ToolchainError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.plan import Unit
    from aotcuda.manifest import Parameter

_EXTRAS = {"numba-cuda": "cu13", "numba-cuda-mlir": "mlir-cu13"}
"""The extra of aotcuda that installs each front end's compiler."""

NAMES = tuple(_EXTRAS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInput:
    """Something to link: a compiled unit, or what a unit brought along.

    Attributes:
        kind: `cu` is CUDA C++ source still to be compiled; the rest go to the linker as they are.
        name: What errors call it; for files their name.
        data: The content.
        pieces: For `cu`: definitions that follow `data`, by the symbol that each defines. Units that need the same ones
            bring them separately; of inputs with the same name and data each piece is linked once.
        internal: It is the front end's own code, of which no line information is kept.
        folder: For `cu` files: where the file lies; headers are searched there first.
        header: For another module's functions: their prototypes, as its C header has them.
    """

    kind: Literal["ltoir", "ptx", "cubin", "fatbin", "object", "library", "cu"]
    name: str
    data: bytes
    pieces: tuple[tuple[str, bytes], ...] = ()
    internal: bool = False
    folder: str = ""
    header: bytes = b""

    @property
    def identity(self) -> tuple[str, bytes]:
        """Equal for inputs that are to be linked once."""
        return (self.kind, self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Functions that the run time calls with the loaded module, by importable name (`mypkg._hooks:upload`).

    Attributes:
        setup: Called once after the module was loaded.
        teardown: Called once before it is unloaded.
        origin: The linked item that they belong to.
    """

    setup: str | None
    teardown: str | None
    origin: str


CType = str
"""A machine-level type: `void`, `int8` to `int64` (signed or not), `float16` to `float64`, `pointer` or `struct`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """A function that compiled code calls and that something linked has to define.

    Attributes:
        name: Its symbol.
        result: What it returns.
        parameters: What it takes.
        place: File and line of its declaration, where they are known.
    """

    name: str
    result: CType
    parameters: tuple[CType, ...]
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """A kernel for one signature and one compute capability.

    Attributes:
        code: Its LTOIR, or PTX when the unit is built for debugging.
        needed: What it needs to be linked with.
        signature: As the front end understood it.
        parameters: The Python arguments, with their places in the parameter block.
        parameter_bytes: Size of that block.
        layout: `(offset, size)` of each machine-level parameter, to be checked against the linked image.
        cooperative: It has to be launched cooperatively.
        launch_bounds: As in `Unit`.
        carveout: Preferred share of shared memory in percent, -1 for the driver's default, None for no preference.
        callbacks: Those of what it links.
        externals: The functions that it expects others to define.
        exceptions: For a debug build: what each error code that the kernel may store stands for, as
            `(code, exception's name, arguments as text, function, file, line)`.
    """

    code: tuple[LinkInput, ...]
    needed: tuple[LinkInput, ...]
    signature: str
    parameters: tuple[Parameter, ...]
    parameter_bytes: int
    layout: tuple[tuple[int, int], ...]
    cooperative: bool
    launch_bounds: tuple[int, ...]
    carveout: int | None
    callbacks: tuple[Callbacks, ...] = ()
    externals: tuple[External, ...] = ()
    exceptions: tuple[tuple[int, str, str, str, str, int], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFunction:
    """A device function for one signature and one compute capability, before it is merged with its module's others.

    Attributes:
        ir: Its modules in the front end's intermediate language, for `merge_functions`.
        fastmath: It was compiled with fast math.
        signature: As the front end understood it.
        result: C type of its result.
        parameters: `(C type, name)` of each C parameter.
        structs: Name and definition of each struct that these types name, in an order that C can read.
        records: By its spelling in the signature, what `numpy.dtype` takes to make each record that stands there.
        needed: What it needs to be linked with.
        callbacks: Those of what it links.
        externals: The functions that it expects others to define.
        warnings: What the user should know about it.
    """

    ir: tuple[str, ...]
    fastmath: bool
    signature: str
    result: str
    parameters: tuple[tuple[str, str], ...]
    structs: tuple[tuple[str, str], ...] = ()
    records: tuple[tuple[str, object], ...] = ()
    needed: tuple[LinkInput, ...] = ()
    callbacks: tuple[Callbacks, ...] = ()
    externals: tuple[External, ...] = ()
    warnings: tuple[str, ...] = ()


class FrontEnd(Protocol):
    """The functions that a front end's module has."""

    def prepare(self, root: str) -> dict[str, str]:
        """Import and warm up the compiler; returns its components' versions.

        `root` is the project's folder; no path below it may get into the code in absolute form.
        """

    def resolve(self, unit: Unit, function: object) -> str:
        """Check that `function` can be compiled and the signature fits its parameters; the signature as understood."""

    def compile_kernel(self, unit: Unit, function: object, target: Target) -> CompiledKernel:
        """Compile a kernel."""

    def compile_function(self, unit: Unit, function: object, target: Target) -> CompiledFunction:
        """Compile a device function with the C ABI under the name `unit.symbol`."""

    def merge_functions(
        self,
        functions: Sequence[CompiledFunction],
        target: Target,
        options: object,
        form: Literal["ltoir", "ptx"] = "ltoir",
    ) -> bytes:
        """One LTOIR or PTX that holds all `functions` (a fatbin takes one of each for a capability)."""

    def include_dirs(self) -> list[str]:
        """Folders that CUDA C++ sources of the front end's own need."""


def extra_of(name: str, *, late: bool = False) -> str:
    """The extra that installs a front end's compiler, as pip takes it: `aotcuda[cu13]`; for late builds another one."""
    return f"aotcuda[{'jit-' if late else ''}{_EXTRAS[name]}]"


def get(name: str, asker: str, *, late: bool = False) -> FrontEnd:
    """The front end called `name`.

    Args:
        name: One of `NAMES`.
        asker: The configuration key and the modules that ask for it, as errors begin.
        late: It is for a late build.

    Raises:
        ToolchainError: Its compiler is not installed.
    """
    module_name = f"{__name__}.{name.replace('-', '_')}"
    try:
        return cast("FrontEnd", importlib.import_module(module_name))
    except ImportError as error:
        message = (
            f"{asker}, {name}, cannot be imported ({error}); install it with: pip install {extra_of(name, late=late)!r}"
        )
        raise ToolchainError(message) from error
