"""The interface of front ends.

A front end is two modules, which its `aotcuda.registry.Registration` names:

- The **tables** (`Tables`) read `source`, `functions` and `kernels` of a module from `[tool.aotcuda]`, and make units.
  The process of the build, the JIT fallback and the schema import this module. It does not import the compiler.
- The **compiler** (`FrontEnd`) runs in the build's worker process alone. The worker calls `prepare` once, `load` and
  `resolve` for each unit, then `compile_unit` in a forked child for each unit and capability. A front end needs these
  four; the other methods are optional, and the build uses what a front end has.

Any distribution may contain the two modules. They may import this module, `frontends.python_source`,
`aotcuda.builder.link.nvrtc`, and `keys`, `model`, `rules`, `settings` and `shapes` of `aotcuda.builder.config`. Public
names of these modules keep their meaning until the next minor version of aotcuda, whose CHANGELOG.md lists changes. The
rest of `aotcuda.builder` may change with any version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Entry, Module, Options
    from aotcuda.builder.config.shapes import Shape
    from aotcuda.common.stamp import Stamp
    from aotcuda.errors import AotcudaError
    from aotcuda.manifest import Argument, FixedLaunch, Parameter
    from aotcuda.manifest.linkable import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A kernel or a device function for one signature, which a front end compiles for each capability.

    The build reads these attributes. A front end makes units of a subclass, which may have further attributes. Units
    are pickled for the worker.

    Attributes:
        key: The configuration key of the unit; errors name it.
        kind: `"kernel"`, or `"function"` for an exported device function.
        module: Name of the module that the wheel gains.
        name: Name under which users launch or call it.
        symbol: Name of the entry point in the images.
        options: Compile options of its module.
        origin: The name of its source in manifests and reports: `mypkg._kernels:axpy`.
        signature: Its types as the user wrote them; empty if only the source has them.
        signature_key: The key of the signature.
        shared_name: A further name, by which users call all functions that have it; may be empty.
        only: The `sm_*` targets that it is compiled for; empty for all targets of its module.
        part_of: The symbol of the unit that was divided by targets (`Tables.divided`); empty for undivided units.
        recorded: True if `aotcuda record` wrote it: a unit that cannot be compiled is then left out with a warning.
        image: The name of the image that has the kernel, among the images of its module; empty if the module has one
            image. The driver loads each image as a library of its own: kernels of one image share device variables.
        optional: True for a unit that a build leaves out without a word if it cannot be compiled for a target.
        batch: A name for units that share compiled code. One child compiles all units of a batch in a row. Empty for
            units that share nothing.
        alike: True if most targets get equal code: one child then compiles the unit for all of its targets.
    """

    key: str
    kind: Literal["kernel", "function"]
    module: str
    name: str
    symbol: str
    options: Options
    origin: str
    signature: str = ""
    signature_key: str = ""
    shared_name: str = ""
    image: str = ""
    batch: str = ""
    only: tuple[Target, ...] = ()
    part_of: str = ""
    recorded: bool = False
    optional: bool = False
    alike: bool = False

    @property
    def identifier(self) -> str:
        """Return the unit's name among the units of its module; two images may have kernels of one symbol."""
        return f"{self.image}:{self.symbol}" if self.image else self.symbol

    @property
    def title(self) -> str:
        """Return the unit's name in progress and errors."""
        return f"{self.module}.{self.name} {self.signature}".rstrip()

    @property
    def head(self) -> str:
        """Return the beginning of errors about the unit."""
        return f"{self.key}: {self.signature}" if self.signature else self.key

    @property
    def loading(self) -> str:
        """Return the text that progress shows while the unit is loaded."""
        return f"reading {self.origin}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInput:
    """An input of the linker: a compiled unit, or code that a unit needs.

    Attributes:
        kind: `cu` for CUDA C++ source, which the build compiles; the linker reads all other kinds.
        name: The name in errors; for files the file's name.
        data: The content.
        pieces: For `cu`: definitions that follow `data`, each with the symbol that it defines. Several units may need
            one definition. Among inputs with equal name and data, each symbol is linked once.
        internal: True for the front end's own code, which gets no line information.
        folder: For `cu` files: the folder of the file, in which headers are searched first.
        module: The packaged module that it is a file of; empty for other inputs.
        header: For functions of another module: its C header, which has their prototypes.
        unfused: For LTOIR: symbols of kernels without fused multiply-adds, whatever the module's options are.
    """

    kind: Kind
    name: str
    data: bytes
    pieces: tuple[tuple[str, bytes], ...] = ()
    internal: bool = False
    folder: str = ""
    module: str = ""
    header: bytes = b""
    unfused: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, bytes, str]:
        """Return a key that is equal for inputs that are linked once.

        Files with equal text in two folders may include different headers, so the folder belongs to the key.
        """
        return (self.kind, self.data, self.folder if self.kind == "cu" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ir:
    """A kernel in the front end's intermediate language, which `FrontEnd.generate` compiles.

    Attributes:
        symbol: The kernel.
        data: The content.
    """

    symbol: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Functions that the run time calls with the loaded module, by importable name (`mypkg._hooks:upload`).

    Attributes:
        setup: The function that is called once after the module was loaded.
        teardown: The function that is called once before the module is unloaded.
        origin: The linked item with these callbacks.
    """

    setup: str | None
    teardown: str | None
    origin: str


CType = str
"""A machine-level type: `void`, `int8` to `int64` (signed or not), `float16` to `float64`, `pointer` or `struct`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """A function that compiled code calls and that a link input has to define.

    Attributes:
        name: The symbol.
        result: The type of the result.
        parameters: The types of the parameters.
        place: File and line of the declaration; empty if unknown.
    """

    name: str
    result: CType
    parameters: tuple[CType, ...]
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Code of a source that the compiler is known to compile wrongly.

    Attributes:
        compiler: The compiler and its release.
        place: File and line of the code.
        fact: The wrong result.
        remedy: Code with the right result.
    """

    compiler: str
    place: str
    fact: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterBlock:
    """A kernel's parameter block, which the build compares with the linked image.

    Attributes:
        size: Its bytes.
        layout: `(offset, size)` of each machine-level parameter.
        one_by_one: True if the offsets of parameters differ between GPUs, since C++ aligns one parameter by more than
            the parameter block. `layout` then has the right order and sizes alone.
        reserved: With `one_by_one`, the places of parameters that are not arguments.
    """

    size: int
    layout: tuple[tuple[int, int], ...]
    one_by_one: bool = False
    reserved: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The requirements and preferences of a kernel for its launches.

    Attributes:
        cooperative: True if launches must be cooperative.
        launch_bounds: Maximum threads a block, minimum blocks a multiprocessor, maximum blocks a cluster; may be empty.
        block: The only block that launches may have, in x, y and z; empty if launches choose it.
        carveout: Preferred share of shared memory in percent, -1 for the driver's default, None for no preference.
        fixed: Block, shared memory and cluster of launches on this capability; None if users set them.
        apart: Pairs of argument numbers. Launches refuse arrays of such a pair that overlap.
    """

    cooperative: bool = False
    launch_bounds: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    carveout: int | None = None
    fixed: FixedLaunch | None = None
    apart: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The facts that all signatures of a kernel share; the manifest has them once.

    Attributes:
        defined: The place of its Python function, with the function's first line: `mypkg.solver:add:12`.
        doc: The docstring of its source, without indentation; may be empty.
        lazy: True if its decorator names no signatures, so the compiler's JIT compiles for the exact argument types.
        arguments: The names of keyword arguments, in order; None if arguments are positional only.
        heuristics: The arguments that the source computes at each launch, in the order of their computation.
        exact: True if launches choose its variants by Triton's rules.
        adopts: True if numbers adopt the types of the parameters of an exact kernel.
        fixed: Names of integer constants that are packaged for some values alone, although users may vary them.
        digest: For a pack: a digest of its Python function; may be empty.
    """

    defined: str = ""
    doc: str = ""
    lazy: bool = False
    arguments: tuple[Argument, ...] | None = None
    heuristics: tuple[str, ...] = ()
    exact: bool = False
    adopts: bool = False
    fixed: tuple[str, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """A kernel for one signature and one compute capability.

    Attributes:
        code: LTOIR; PTX of a debug build; or `Ir`, which `FrontEnd.generate` compiles to one of these.
        signature: The signature as the front end resolved it.
        parameters: The Python arguments, with their places in the parameter block.
        parameter_block: The parameter block.
        launch: The requirements and preferences of launches.
        definition: The facts that a manifest has once for all signatures of a kernel.
        needed: The link inputs that the code needs.
        callbacks: The callbacks of linked items.
        externals: The functions that link inputs have to define.
        has_functions: True if its code contains the exported functions of its module, so these are not linked again.
        self_contained: True if its code is LTOIR that refers to nothing outside, and defines no other public name than
            the kernel. The build may then compile it apart from the other kernels of its module.
        constants: The names and sizes of its constant arrays; an image has each name once.
        values: The values that its source reads and that the compiler made constants: pairs of a path and a description
            as in `aotcuda.common.value_descriptions`. Modules in place compare them with the values of a run.
        exceptions: For a debug build: the meaning of each error code that the kernel may store, as
            `(code, exception's name, arguments as text, function, file, line)`.
        faults: Its code that the compiler is known to compile wrongly.
        generated: The entry of the compile cache for it.
        launches: `launch.fixed` of each of the images' targets; the build writes it.
        seen: The reads of project functions that the compiler ran; the build writes it.
    """

    code: tuple[LinkInput | Ir, ...]
    signature: str
    parameters: tuple[Parameter, ...]
    parameter_block: ParameterBlock
    launch: Launch = Launch()
    definition: Definition = Definition()
    needed: tuple[LinkInput, ...] = ()
    callbacks: tuple[Callbacks, ...] = ()
    externals: tuple[External, ...] = ()
    has_functions: bool = False
    self_contained: bool = False
    constants: tuple[tuple[str, int], ...] = ()
    values: tuple[tuple[str, list[Any]], ...] = ()
    exceptions: tuple[tuple[int, str, str, str, str, int], ...] | None = None
    faults: tuple[Fault, ...] = ()
    generated: Generated | None = None
    launches: tuple[tuple[str, FixedLaunch], ...] = ()
    seen: Stamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Code that a front end's own code generator made from a kernel's IR.

    Attributes:
        name: The name of the cache entry.
        value: The new content of the entry; None if the code was read from the cache.
    """

    name: str
    value: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A stand-in for a kernel that a target cannot have.

    Attributes:
        error: The error with which the build would fail.
        reason: The error in a few words, without the place.
        seen: The reads of project functions that the compiler ran; the build writes it.
    """

    error: AotcudaError
    reason: str
    seen: Stamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A module's kernels as one image, by the front end's own tools.

    Attributes:
        data: A cubin, or PTX.
        cuda: The CUDA version that the machine code is written for.
        left_out: The symbols of kernels that the target cannot have, each with the reason.
    """

    data: bytes
    cuda: tuple[int, int]
    left_out: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembler:
    """A compiler's own assembler for a target.

    Attributes:
        tools: The paths of programs and libraries, other than the toolkit's, that it runs or links.
        assemble: A function that returns one image of a module's kernels from the module's name, the kernels' code and
            the module's options.
    """

    tools: Sequence[str]
    assemble: Callable[[str, Sequence[LinkInput], Options], Assembled]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFunction:
    """A device function for one signature and one compute capability, before it is merged with its module's others.

    Attributes:
        ir: Its code in the front end's intermediate language, for `FrontEnd.generate`.
        signature: The signature as the front end resolved it.
        result: C type of its result.
        parameters: `(C type, name)` of each C parameter.
        structs: Name and definition of each struct in these types, in an order that C can read.
        records: By the spelling in the signature, the argument of `numpy.dtype` for each record.
        is_variadic: True if further C arguments follow `parameters`.
        needed: The link inputs that the code needs.
        callbacks: The callbacks of linked items.
        externals: The functions that link inputs have to define.
        warnings: Warnings for the user.
        seen: The reads of project functions that the compiler ran; the build writes it.
        faults: Its code that the compiler is known to compile wrongly.
    """

    ir: bytes
    signature: str
    result: str
    parameters: tuple[tuple[str, str], ...]
    structs: tuple[tuple[str, str], ...] = ()
    records: tuple[tuple[str, object], ...] = ()
    is_variadic: bool = False
    needed: tuple[LinkInput, ...] = ()
    callbacks: tuple[Callbacks, ...] = ()
    externals: tuple[External, ...] = ()
    warnings: tuple[str, ...] = ()
    seen: Stamp | None = None
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuQuery:
    """A GPU query of code that a build imports.

    Attributes:
        place: The file and line of the code that queries.
        query: The queried property or function, by the name that the source uses.
        answer: The answer, or the reason for an error.
        depends_on_target: True if GPUs of other targets would give other answers.
        is_error: True if the query raised an error.
        is_presence_only: True if the answer says only that there is a GPU. A report leaves the query out if the same
            line also reads a property.
    """

    place: str
    query: str
    answer: str
    depends_on_target: bool = False
    is_error: bool = False
    is_presence_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The kernels that `aotcuda record` wrote for a module.

    Attributes:
        units: The kernels.
        tuning: The content of the tuning file; may be empty.
        warnings: A warning for each ignored part of the two files.
        files: The absolute paths of the variants file and the tuning file, which need not exist.
    """

    units: Sequence[Unit]
    tuning: bytes
    warnings: Sequence[str]
    files: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """The images of a module.

    Attributes:
        units: The units of the module, each with its `image`.
        linked: The images that the items of `link` are linked into.
        needed: The functions that these images need and do not define.
        variables: The name of each device variable for Python, its symbol, the image that has it, and its bytes (0 if
            unknown).
        warnings: Warnings for the user.
    """

    units: tuple[Unit, ...]
    linked: frozenset[str]
    needed: frozenset[str] = frozenset()
    variables: tuple[tuple[str, str, str, int], ...] = ()
    warnings: tuple[str, ...] = ()


class Tables(Protocol):
    """The configuration side of a front end: it reads its part of a module's table.

    Attributes:
        SHAPES: The shapes of `source`, `functions` and `kernels`; a front end without device functions has no
            `functions`. Ordered values must be lists, since the JIT fallback gets the table with sorted keys.
            `functions` and `kernels` give tuples of `aotcuda.builder.config.model.Entry` or of subclasses.
        SECTIONS: For the reference page: the title of each table, its key as in a header, and its class.

    A front end whose keys have other forms than Numba's may have `EXAMPLES`: TOML by key, with which errors end.
    """

    SHAPES: Mapping[str, Shape]
    SECTIONS: Sequence[tuple[str, str, type]]

    def check(self, module: Module) -> None:
        """Check that the keys of a module do not contradict each other.

        Raises:
            ConfigError: Two keys contradict each other.
        """

    def modules(self, module: Module) -> Sequence[str]:
        """Return the Python modules among the sources."""

    def units(self, module: Module) -> Sequence[Unit]:
        """Return the units of a module: its kernels' in the configuration's order, then its functions'."""

    def target(self, wanted: Target) -> Target:
        """Return the target to build for the configured target `wanted`; by default `wanted` itself.

        Raises:
            ValueError: The front end cannot build for it; the message has the remedy.
        """

    def divided(self, unit: Any, targets: Sequence[Target]) -> Sequence[Unit]:
        """Return the unit itself, or several units in its place that serve some of the module's targets each.

        A front end without this method has the same parameters on every target.
        """

    def recorded(self, module: Module, root: str) -> Recorded:
        """Return the content of the file that the module's key `variants` names; `root` is the project's folder.

        Optional. A front end needs it only if its `SHAPES` have `variants`.
        """

    def widened(self, kernel: Any, signature: str) -> Entry:
        """Return the table entry of a kernel for other types, for the JIT fallback, if the registration has `widens`.

        Args:
            kernel: The kernel's entry in the table.
            signature: The argument types of a launch, in Numba's notation.

        Raises:
            CompileError: The front end cannot compile the kernel for these types.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The worker that a front end is prepared for.

    Attributes:
        root: The project's folder. Compiled code must not contain absolute paths below it.
        targets: The targets of the modules.
        arch_key: The key that names the targets, for errors.
        warm: False if the build compiles nothing, since it uses the cache alone. Otherwise a compiler that fills tables
            at its first compilation should compile a small kernel, so that the children inherit the tables.
        cache: The `aotcuda.builder.cache.compile_cache.CompileCache`, in which the front end's own tools may store
            results. The build itself caches code of batches, of `generate` and of `assembler`.
    """

    root: str
    cache: Any
    targets: Sequence[Target] = ()
    arch_key: str = "arch"
    warm: bool = True


class FrontEnd(Protocol):
    """The compiler side of a front end: four methods, and eight optional ones."""

    def prepare(self, session: Session) -> dict[str, str]:
        """Import the compiler, and return the versions of its components. No source is imported yet.

        Raises:
            ToolchainError: The compiler does not support a target; `toolchain.unknown_target` returns the message.
        """

    def load(self, unit: Any) -> Any:
        """Return the object to compile: a Python object, or the content of a file.

        Raises:
            SourceError: There is no such object.
        """

    def resolve(self, unit: Any, loaded: Any) -> Iterable[tuple[Any, str]]:
        """Yield the unit, or the units that replace it with facts from the source, each with its resolved signature.

        Raises:
            CompileError: The object cannot be compiled for the unit's signature.
        """

    def compile_unit(
        self, unit: Any, loaded: Any, targets: Sequence[Target]
    ) -> Mapping[Target, CompiledKernel | LeftOut] | Mapping[Target, CompiledFunction]:
        """Compile a kernel, or a device function with the C ABI under the name `unit.symbol`.

        There are several targets only for units that are `alike`. The result has the first target, and all others that
        get equal code; the build calls again, in another child, with the others. A kernel is `LeftOut` if a target
        cannot have it and other targets may.
        """

    def importing(self, target: Target) -> AbstractContextManager[Iterable[GpuQuery]]:
        """Return a context in which sources are imported for `target`; it yields their GPU queries.

        For sources that may query a GPU. If an answer depends on the target, the build imports the sources once for
        each compute capability, in separate processes.
        """

    def sources(self, unit: Any, loaded: Any) -> Sequence[LinkInput]:
        """Return the source files of `unit` that are not Python modules, as link inputs with their `folder`.

        The build depends on these files and their headers, and packages both for the JIT fallback.
        """

    def include_dirs(self) -> list[str]:
        """Return folders with headers for the front end's own CUDA C++ sources."""

    def declared(self, unit: Any, loaded: Any) -> object:
        """Return the inputs of a batch in addition to `sources` and their headers; `unit` is the first of the batch.

        `aotcuda.builder.cache.hashing` must support the returned object. With this method the build cache stores whole
        batches, which must not depend on Python modules.
        """

    def divide(
        self, units: Sequence[Any], linked: Sequence[Any], targets: Sequence[Target], config: Module
    ) -> Division:
        """Divide the loaded and resolved units of a module among images.

        For front ends that divide by the content of sources; others set `Unit.image` in `Tables.units`.

        Args:
            units: All units of the module.
            linked: The `aotcuda.builder.link.symbols.Symbols` of the items of `link`.
            targets: The `sm_*` targets that the module is compiled for.
            config: The module.

        Raises:
            AotcudaError: The sources do not fit each other.
        """

    def generate(
        self,
        code: Mapping[Any, bytes],
        loaded: Mapping[Any, Any],
        target: Target,
        options: Options,
        form: Literal["ltoir", "ptx"] = "ltoir",
    ) -> tuple[LinkInput, ...]:
        """Return code for the linker from a kernel's `Ir`; or one LTOIR or PTX of all functions of a module.

        For front ends that return `Ir` or functions. The compile cache names machine code by the data, the target and
        the options. The code must depend on nothing else, and equal code must have equal data in every process and
        folder.

        Args:
            code: The data of the kernel or of each function.
            loaded: The loaded objects of all units.
            target: A target that the data was compiled for.
            options: The options of the kernel, or of the functions' module.
            form: The form of functions; a fatbin takes one of each for a capability.
        """

    def is_fresh(self) -> bool:
        """Return True if earlier units of this process do not influence the code of the next one.

        One process then compiles several units in a row, and their code must equal that of fresh processes.
        """

    def assembler(self, target: Target) -> Assembler:
        """Return the compiler's own assembler for a target, with which it makes images of whole modules.

        Without this method, `nvJitLink` links the kernels with their link inputs.
        """
