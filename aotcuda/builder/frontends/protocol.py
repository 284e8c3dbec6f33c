"""The interface of front ends.

A front end is two modules, which its `aotcuda.registry.Registration` names:

- its **tables** (`Tables`): how `source`, `functions` and `kernels` of its modules are read from `[tool.aotcuda]`, and
  which units they make. They are imported in the process that builds, by the JIT fallback and for the schema: without
  the compiler.
- its **compiler** (`FrontEnd`), used inside the build's worker process alone: `prepare` once, `load` and `resolve` for
  each unit (with `complete` in between, if it has one), then `compile_kernel` or `compile_function`, in a forked child
  for each unit and capability; or `compile_alike`, if it has that, in one for each unit.

Both may be modules of any distribution. They are written against this module, `frontends.python_source`, and `keys`,
`model`, `rules`, `settings` and `shapes` of `aotcuda.builder.config`: what has a name there keeps its name and meaning
until the next minor version of aotcuda, whose CHANGELOG.md lists changes. `aotcuda.builder.link.nvrtc`, which
compiles and reads CUDA C++, is stable in the same way. The rest of `aotcuda.builder` may change with any version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
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

    These are the attributes that the build reads. Each front end makes units of a subclass with further attributes;
    they travel to the worker as pickles.

    Attributes:
        key: The configuration key it comes from; errors name it.
        kind: `"kernel"`, or `"function"` for an exported device function.
        module: Name of the module that the wheel gains.
        name: Name under which users launch or call it.
        symbol: Name of the entry point in the images.
        options: Compile options of its module.
        origin: Its source, as manifests and reports name it: `mypkg._kernels:axpy`.
        signature: Its types as the user wrote them; empty where only the source has them.
        signature_key: The key that holds them.
        shared_name: A further name by which all functions that have it may be called; may be empty.
        only: The `sm_*` targets whose code it is compiled for; empty for all of its module.
        part_of: The symbol of the unit that it is one target's part of (`Tables.divided`); else empty.
        recorded: It comes from a file that a run wrote: if it cannot be compiled, it is left out with a warning.
        batch: Units that share what is compiled have one name for it here, and are compiled one after the other in one
            child; alone where it is empty.
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
    batch: str = ""
    only: tuple[Target, ...] = ()
    part_of: str = ""
    recorded: bool = False

    @property
    def title(self) -> str:
        """Return the unit's name in progress and errors."""
        return f"{self.module}.{self.name} {self.signature}".rstrip()

    @property
    def head(self) -> str:
        """Return the beginning of errors about it."""
        return f"{self.key}: {self.signature}" if self.signature else self.key

    @property
    def loading(self) -> str:
        """Return the step of loading it, as progress shows it."""
        return f"reading {self.origin}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInput:
    """Something to link: a compiled unit, or what a unit brought along.

    Attributes:
        kind: `cu` is CUDA C++ source still to be compiled, `ir` what `FrontEnd.generated` makes code of; the rest go to
            the linker as they are.
        name: What errors call it; for files their name.
        data: The content.
        pieces: For `cu`: definitions that follow `data`, by the symbol that each defines. Units that need the same ones
            bring them separately; of inputs with the same name and data each piece is linked once.
        internal: It is the front end's own code, of which no line information is kept.
        folder: For `cu` files: the folder of the file; headers are searched there first.
        header: For another module's functions: their prototypes, as its C header has them.
        unfused: For LTOIR: symbols of its kernels that have no fused multiply-adds, whatever the module's options are.
    """

    kind: Kind
    name: str
    data: bytes
    pieces: tuple[tuple[str, bytes], ...] = ()
    internal: bool = False
    folder: str = ""
    header: bytes = b""
    unfused: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, bytes, str]:
        """Equal for inputs that are to be linked once; two files of one text may include headers of their own."""
        return (self.kind, self.data, self.folder if self.kind == "cu" else "")


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
class CompiledKernel:
    """A kernel for one signature and one compute capability.

    Attributes:
        code: Its LTOIR, or PTX when the unit is built for debugging; or `ir`, of which `FrontEnd.generated` makes that.
        needed: What it needs to be linked with.
        signature: As the front end understood it.
        parameters: The Python arguments, with their places in the parameter block.
        parameter_bytes: Size of that block.
        layout: `(offset, size)` of each machine-level parameter, to be checked against the linked image.
        cooperative: It has to be launched cooperatively.
        launch_bounds: Maximum threads a block, minimum blocks a multiprocessor, maximum blocks a cluster; may be empty.
        carveout: Preferred share of shared memory in percent, -1 for the driver's default, None for no preference.
        callbacks: Those of what it links.
        externals: The functions that it expects others to define.
        exceptions: For a debug build: what each error code that the kernel may store represents, as
            `(code, exception's name, arguments as text, function, file, line)`.
        defined: Where its Python function is defined: `mypkg.solver:add:12`, with the line that it begins in.
        doc: The docstring of its source, without its indentation; may be empty.
        lazy: Its decorator names no signatures, so in a program the compiler takes each argument for exactly its type.
        launch: Block, shared memory and cluster of its launches, for this capability; None where users set them.
        launches: The same by the images' targets, as the build notes it.
        heuristics: The arguments that the source computes at each launch, in the order in which it does.
        exact: It is for just the launches that the compiler's own run time would compile it for.
        digest: For a pack: what identifies its Python function; may be empty.
        arguments: The names by which launches may give arguments, in order; None where only positions count.
        one_by_one: The offsets of its parameters differ between GPUs, because C++ aligns one by more than the beginning
            of them all is; of `layout` the order and the sizes hold.
        reserved: Where that is so, the places of parameters that are no arguments.
        has_functions: Its code has the exported functions of its module in it, so these are not linked again.
        self_contained: Its code is LTOIR that names nothing outside of itself, and nothing in it but the kernel is to
            be found by name. So it may become machine code by itself, apart from the other kernels of its module.
        constants: Its constant arrays with their bytes; arrays of one name are one in an image.
        apart: Pairs of arguments, by number, whose arrays must not overlap: launches check it.
        seen: What functions of the project read while the compiler ran them, as the build notes it.
        generated: What the compile cache had of it, or is to have.
        faults: Its code that the compiler is known to compile wrongly.
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
    defined: str = ""
    doc: str = ""
    lazy: bool = False
    launch: FixedLaunch | None = None
    launches: tuple[tuple[str, FixedLaunch], ...] = ()
    arguments: tuple[Argument, ...] | None = None
    heuristics: tuple[str, ...] = ()
    exact: bool = False
    digest: str = ""
    one_by_one: bool = False
    reserved: tuple[int, ...] = ()
    has_functions: bool = False
    self_contained: bool = False
    constants: tuple[tuple[str, int], ...] = ()
    apart: tuple[tuple[int, int], ...] = ()
    seen: Stamp | None = None
    generated: Generated | None = None
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Code that a front end's own code generator made of a kernel's IR.

    Attributes:
        name: Its name in the compile cache.
        value: What is to be kept by that name; None where it was taken from there.
    """

    name: str
    value: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A stand-in for a kernel whose code may be at the compile cache's URL: recompiled after the URL is read.

    Attributes:
        name: The name of the code there.
        shape: The type that it must have, as annotations have it.
    """

    name: str
    shape: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A stand-in for a kernel that a target cannot have.

    Attributes:
        error: The compiler's message, as in a build that fails for want of the kernel.
        reason: The same in a few words, without the place.
        seen: As for a kernel.
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
class CompiledFunction:
    """A device function for one signature and one compute capability, before it is merged with its module's others.

    Attributes:
        ir: Its modules in the front end's intermediate language, for `merge_functions`.
        fastmath: It was compiled with fast math.
        signature: As the front end understood it.
        result: C type of its result.
        parameters: `(C type, name)` of each C parameter.
        structs: Name and definition of each struct that these types name, in an order that C can read.
        records: By its spelling in the signature, the argument of `numpy.dtype` for each record.
        needed: What it needs to be linked with.
        callbacks: Those of what it links.
        externals: The functions that it expects others to define.
        warnings: What the user should know about it.
        seen, faults: As for a kernel.
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
    seen: Stamp | None = None
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A GPU query of code that a build imports.

    Attributes:
        place: Its file and line.
        asked: The query, in the source's own terms.
        answer: The answer, or the reason for an error.
        depends: GPUs of other targets would answer otherwise.
        refused: It got an error.
        mere: It queried only the presence of a GPU.
    """

    place: str
    asked: str
    answer: str
    depends: bool = False
    refused: bool = False
    mere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The files that runs have recorded of a module.

    Attributes:
        units: Its kernels.
        tuning: The content of the tuning file next to it; may be empty.
        warnings: What is ignored of both files.
        files: The absolute paths of both, whether they are there or not.
    """

    units: Sequence[Unit]
    tuning: bytes
    warnings: Sequence[str]
    files: Sequence[str]


class Tables(Protocol):
    """The configuration side of a front end: it reads its part of a module's table.

    Attributes:
        SHAPES: The shapes of `source`, `functions` and `kernels`; a front end without device functions leaves them out.
            What has an order must be a list: the JIT fallback gets the table with its keys sorted.
            `functions` and `kernels` give tuples of `aotcuda.builder.config.model.Entry`, or of classes made from it.
        SECTIONS: For the reference: title, the name of the key as a header shows it, and the class of each table.

    A front end whose `source`, `functions` or `kernels` are not as Numba's may have `EXAMPLES` of them, by these names,
    in TOML: errors end with them.
    """

    SHAPES: Mapping[str, Shape]
    SECTIONS: Sequence[tuple[str, str, type]]

    def check(self, module: Module) -> None:
        """Refuse what is wrong between several keys of a module that are right by themselves.

        Raises:
            ConfigError: Something is.
        """

    def modules(self, module: Module) -> Sequence[str]:
        """Return the Python modules that hold the sources; none if they are files of another kind."""

    def units(self, module: Module) -> Sequence[Unit]:
        """Return the units of a module: its kernels' in the configuration's order, then its functions'."""

    def target(self, wanted: Target) -> Target:
        """Return the target to build for the configured target `wanted`; by default `wanted` itself.

        Raises:
            ValueError: Nothing can be; what to write instead.
        """

    def divided(self, unit: Any, targets: Sequence[Target]) -> Sequence[Unit]:
        """Return a unit, or in its place units for some of the targets whose code the module has.

        A front end without it has the same parameters on every target.
        """

    def recorded(self, module: Module, root: str) -> Recorded:
        """Return the content of the file that the module's key `variants` names; `root` is the project's folder.

        A front end whose `SHAPES` have no `variants` has no need of it.
        """

    def widened(self, kernel: Any, signature: str) -> Entry:
        """Return the entry of a kernel for other types than those in the table, for the JIT fallback.

        `signature` is as the run time writes the types of a launch's arguments: in Numba's notation.

        Raises:
            CompileError: The front end compiles kernels for no others.
        """


class FrontEnd(Protocol):
    """The compiler side of a front end."""

    def prepare(self, root: str) -> dict[str, str]:
        """Import the compiler; returns its components' versions.

        `root` is the project's folder; no path below it may get into the code in absolute form.
        """

    def warm_up(self) -> None:
        """Compile something, so that what every unit needs is there once and not made in each child.

        A build from the cache alone leaves it out. A front end that needs nothing of the kind has no need of it.
        """

    def keep_in(self, cache: Any) -> None:
        """Take the `aotcuda.builder.build_cache.compile_cache.CompileCache`, for what the front end's own tools make.

        A front end whose code is made by `generated`, or quickly, has no need of it.
        """

    def importing(self, target: Target) -> AbstractContextManager[Iterable[Question]]:
        """Return the block in which sources are imported for `target`; yield their GPU queries meanwhile.

        If an answer depends on the target, they are imported once for each compute capability, in processes of their
        own. A front end whose sources cannot query a GPU has no need of it.
        """

    def load(self, unit: Any, root: str) -> Any:
        """Return the object that `unit` is compiled from: a Python object, the content of a file.

        Raises:
            SourceError: There is no such thing.
        """

    def complete(self, unit: Any, loaded: Any) -> Sequence[Any]:
        """Return the units that `unit` turns out to be: the source completes what the table leaves open.

        A front end whose tables leave nothing open has no need of it.
        """

    def sources(self, unit: Any, loaded: Any, root: str) -> Sequence[LinkInput]:
        """Return the files that `unit` is compiled from besides Python modules, as link inputs with their `folder`.

        The build depends on them and on the headers that they include, and carries both to the JIT fallback.
        """

    def declared(self, unit: Any, loaded: Any) -> object:
        """Return the inputs of a batch besides `sources` and their headers; `unit` is the first of the batch.

        It is what `aotcuda.builder.build_cache.hashing` can name. With this the build cache keeps batches, which must
        depend on no Python module.
        """

    def resolve(self, unit: Any, loaded: Any) -> str:
        """Check that `loaded` can be compiled and the signature fits it; the signature as understood."""

    def compile_kernel(self, unit: Any, loaded: Any, target: Target) -> CompiledKernel | LeftOut:
        """Compile a kernel; one that the target cannot have, though others may, is left out."""

    def compile_function(self, unit: Any, loaded: Any, target: Target) -> CompiledFunction:
        """Compile a device function with the C ABI under the name `unit.symbol`."""

    def compile_alike(
        self, unit: Any, loaded: Any, targets: Sequence[Target]
    ) -> Mapping[Target, CompiledKernel] | Mapping[Target, CompiledFunction]:
        """Compile a kernel or function for the first of `targets`, and for those others that its work serves as well.

        It is called again with the targets that are left, in another child, until none is. What comes of it is what
        `compile_kernel` or `compile_function` would have made for each. A front end that has little work in common for
        several targets has no need of it.
        """

    def generated(self, unit: Any, loaded: Any, item: LinkInput, target: Target) -> tuple[LinkInput, ...]:
        """Return code for the linker, of an `ir` input that `compile_kernel` returned for the target.

        The compile cache names machine code by that input, so its data is all that the code depends on, in addition to
        the target, and is equal in every process and folder. A front end whose `compile_kernel` returns code leaves it
        out.
        """

    def is_fresh(self) -> bool:
        """Return True if what was compiled in this process is nothing to what is compiled in it next.

        Then several units are compiled one after the other in one process, which must make of each what a process of
        its own would. A front end that cannot tell has no need of it.
        """

    def assemble(self, module: str, inputs: Sequence[LinkInput], target: Target, options: Options) -> Assembled:
        """Return one image of a module's kernels, for a front end whose compiler has an assembler of its own.

        Without this, `nvJitLink` links the kernels' code with what they need.
        """

    def tools(self, target: Target) -> list[str]:
        """Return the paths of programs and libraries of its own that it runs, or links, for a target.

        Without this, there are none: it has the toolkit's.
        """

    def check_target(self, target: Target, where: str) -> None:
        """Refuse a target that `assemble` makes nothing for; `where` is the key that names it.

        Nothing is imported or compiled before. A front end that leaves this out refuses as it compiles.

        Raises:
            ToolchainError: Its compiler does not support the target; `toolchain.unknown_target` has the words.
        """

    def merge_functions(
        self,
        functions: Sequence[CompiledFunction],
        target: Target,
        options: Options,
        form: Literal["ltoir", "ptx"] = "ltoir",
    ) -> bytes:
        """Return one LTOIR or PTX that holds all `functions` (a fatbin takes one of each for a capability)."""

    def include_dirs(self) -> list[str]:
        """Return folders that CUDA C++ sources of the front end's own need."""
