"""The job and the result, which travel between the build and its worker process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from aotcuda.common.stamp import Stamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aotcuda import manifest
    from aotcuda.arch import Target
    from aotcuda.builder.build_cache.settings import Settings
    from aotcuda.builder.frontends.protocol import Callbacks, CompiledFunction, CompiledKernel, Question
    from aotcuda.builder.link.images import Image
    from aotcuda.builder.link.inputs import Linked
    from aotcuda.builder.plan import ModulePlan
    from aotcuda.builder.toolkits import Toolkit
    from aotcuda.builder.worker.telemetry import Step
    from aotcuda.manifest import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One build, or one of its stages: a worker builds modules of one front end.

    Attributes:
        root: The project's folder; the worker runs there.
        import_roots: Folders that the project's packages are imported from, first match first.
        arch_key: Where the targets were named.
        plans: What to build.
        names: For every module that the wheel gains, the names that it will have.
        jobs: How many children may run at a time.
        product: What is made of it: a `"wheel"`'s files, or one bare image for the `"jit"` fallback on this machine.
        own: The beginnings of the paths of the project's files, whose reads are observed.
        watched: Absolute globs of files that the build depends on besides.
        watched_variables: Names and patterns of such environment variables.
        carry: The files that are linked are wanted, to be packaged for a JIT build.
        prelude: A module that is imported before the sources.
        known_faults: `warn` or `error`: what becomes of code that the compiler is known to compile wrongly.
        incomplete: `warn` or `error`: what becomes of a kernel that a target cannot have.
        linkable: Modules of the same wheel that have been built already and are linked now, as link items.
        wanted: The modules that others of the wheel link.
        extensions: Files of extension modules that are not in the import roots, by their names.
        toolkit: Whose compilers are used; None for those that the bindings find.
        images: Images of its modules that another toolkit has made, to be packed with these.
        cache: Where what steps make is kept; None if it is not.
        shard: Compile and keep this part of the units alone: its number, from 1, and how many there are.
        from_cache_only: Take all units from the cache that shards have filled, or fail.
        part: The modules with symbols of a shard's units; None before they are known.
        costs: Recorded seconds of units, by module and symbol, to divide them among shards.
        inputs: What shards and the build that takes their results must have in common, in addition to what sources
            read.
    """

    root: str
    import_roots: tuple[str, ...]
    arch_key: str
    plans: tuple[ModulePlan, ...]
    names: dict[str, tuple[str, ...]]
    jobs: int
    product: Literal["wheel", "jit"] = "wheel"
    own: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    watched_variables: tuple[str, ...] = ()
    carry: bool = False
    prelude: str | None = None
    known_faults: str = "warn"
    incomplete: str = "warn"
    linkable: Mapping[str, Linked] = field(default_factory=dict)
    wanted: tuple[str, ...] = ()
    extensions: Mapping[str, str] = field(default_factory=dict)
    toolkit: Toolkit | None = None
    images: Mapping[str, tuple[Image, ...]] = field(default_factory=dict)
    cache: Settings | None = None
    shard: tuple[int, int] | None = None
    from_cache_only: bool = False
    part: frozenset[tuple[str, str]] | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    inputs: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def frontend(self) -> str:
        """Return the name of the front end."""
        return self.plans[0].frontend

    @property
    def is_shared(self) -> bool:
        """Return True if several machines share the build."""
        return self.shard is not None or self.from_cache_only


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedItem:
    """Something that was linked into a module, as its bill of materials has it.

    Attributes:
        module: The packaged module that it is of; empty for all else.
        licence: The value of its line `SPDX-License-Identifier`; empty if it has none.
    """

    name: str
    sha256: str
    module: str = ""
    licence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModule:
    """One module's images, as they came from the linker.

    Those of several toolkits are together in the last one that is built.

    Attributes:
        plan: The module's plan, without the kernels that no target can have.
        left_out: The kernels that targets cannot have.
        ltoir: Its exported functions, LTOIR for each capability and one PTX; empty when it has none.
        foreign: Symbols of what was linked in, by the name of the item.
        function_links: What users of the exported functions have to link with them: name and packed content.
        carried: The project's files that are linked and the headers that they include, by their paths from its folder.
        pack: The package that it is compiled from, for a module of a pack.
    """

    plan: ModulePlan
    images: tuple[Image, ...]
    kernels: tuple[CompiledKernel, ...]
    ltoir: tuple[tuple[Target, bytes], ...] = ()
    functions: tuple[CompiledFunction, ...] = ()
    left_out: tuple[manifest.LeftOut, ...] = ()
    kernel_fatbin: bytes = b""
    function_fatbin: bytes = b""
    callbacks: tuple[Callbacks, ...] = ()
    foreign: tuple[tuple[str, tuple[str, ...]], ...] = ()
    linked: tuple[LinkedItem, ...] = ()
    function_links: tuple[tuple[str, bytes], ...] = ()
    carried: tuple[tuple[str, bytes], ...] = ()
    pack: manifest.Pack | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All that the worker built.

    Attributes:
        linkable: What other modules of the wheel link to call the exported functions, by module; of those that they do.
        unseen: Sources whose text does not determine what was compiled, for example with an include by a macro's name.
        made: How many were made.
        problems: What the user should know of the build cache.
        unanswered: Its URL did not answer.
        part: Of a shard, how many units it has compiled or found, and how many there are.
    """

    toolchain: dict[str, str]
    modules: tuple[BuiltModule, ...]
    sources: tuple[Source, ...]
    warnings: tuple[str, ...]
    seen: Stamp = field(default_factory=Stamp)
    linkable: Mapping[str, Linked] = field(default_factory=dict)
    questions: tuple[Question, ...] = ()
    unseen: tuple[str, ...] = ()
    reused: int = 0
    made: int = 0
    problems: tuple[str, ...] = ()
    unanswered: bool = False
    steps: tuple[Step, ...] = ()
    part: tuple[int, int] = (0, 0)
