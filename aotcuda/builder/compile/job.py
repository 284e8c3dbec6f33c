"""The job and the result, which travel between the build and its worker process."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from aotcuda.builder.frontends.protocol import Unit
from aotcuda.common.stamp import Stamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aotcuda import manifest
    from aotcuda.arch import Target
    from aotcuda.builder.cache.settings import Settings
    from aotcuda.builder.compile.telemetry import Step
    from aotcuda.builder.frontends.protocol import Callbacks, CompiledFunction, CompiledKernel, GpuQuery
    from aotcuda.builder.link.images import Image
    from aotcuda.builder.link.inputs import Linked
    from aotcuda.builder.plan.plan import ModulePlan
    from aotcuda.builder.plan.toolkits import Toolkit
    from aotcuda.manifest import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The files and variables that a worker imports and observes.

    Attributes:
        import_roots: Folders that the project's packages are imported from, first match first.
        extensions: Files of extension modules that are not in the import roots, by their names.
        prelude: A module that is imported before the sources.
        own: Prefixes of the paths of the project's files, whose reads are observed.
        watched: Absolute globs of other files that the build depends on.
        watched_variables: Names and patterns of environment variables that the build depends on.
    """

    import_roots: tuple[str, ...] = ()
    extensions: Mapping[str, str] = field(default_factory=dict)
    prelude: str | None = None
    own: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    watched_variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """The result of a job, and the faults that it allows.

    Attributes:
        kind: The files of a `"wheel"`, or one bare image for the `"jit"` fallback on this machine.
        carry: Return the linked files, to be packaged for a JIT build.
        known_faults: `warn` or `error`, for code that the compiler is known to compile wrongly.
        incomplete: `warn` or `error`, for kernels that a target cannot have.
    """

    kind: Literal["wheel", "jit"] = "wheel"
    carry: bool = False
    known_faults: str = "warn"
    incomplete: str = "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """The results of other workers of a build, and the modules that other workers need.

    Attributes:
        linkable: Modules of the same wheel that have been built already and are linked now, as link items.
        wanted: The modules that others of the wheel link.
        images: Images of the job's modules that another toolkit has made, to be packed with these.
        imports: The results of workers that imported the sources for other compute capabilities.
    """

    linkable: Mapping[str, Linked] = field(default_factory=dict)
    wanted: tuple[str, ...] = ()
    images: Mapping[str, tuple[Image, ...]] = field(default_factory=dict)
    imports: tuple[OtherImport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The part of a machine in a build that several machines share.

    Attributes:
        shard: Compile and store one shard of the units alone: its number, from 1, and the number of shards. None for
            the build that uses the units of all shards.
        costs: Recorded seconds of units, by module and symbol, to divide them among shards.
        inputs: Inputs that must be equal in shards and in the build that uses their results, besides the files that
            sources read.
    """

    shard: tuple[int, int] | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    inputs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFor:
    """A job for one compute capability, for sources that query the target.

    Attributes:
        targets: The targets of the capability.
        part: The modules with symbols of a shard's units; None for all units.
    """

    targets: tuple[Target, ...]
    part: frozenset[tuple[str, str]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One build, or one of its stages: a worker builds modules of one front end.

    Attributes:
        root: The project's folder; the worker runs there.
        arch_key: The key or variable that names the targets.
        plans: The modules to build.
        names: For every module that the wheel gains, the names that it will have.
        jobs: How many children may run at a time.
        sources: The files and variables that the worker imports and observes.
        product: The result, and the faults that it may have.
        toolkit: The toolkit of the compilers; None for the compilers that the bindings find.
        cache: The settings of the build cache; None if there is none.
        others: The results of other workers, and the modules that other workers need.
        image: Build one image of a module alone: the module, and the number of the image.
        import_for: Import the sources for one compute capability alone, compile, and link nothing.
        shared: The part of this machine in a build that several machines share; None for a build of this machine alone.
    """

    root: str
    arch_key: str
    plans: tuple[ModulePlan, ...]
    names: dict[str, tuple[str, ...]]
    jobs: int
    sources: Sources
    product: Product
    toolkit: Toolkit | None = None
    cache: Settings | None = None
    others: Others = Others()
    image: tuple[str, int] | None = None
    import_for: ImportFor | None = None
    shared: Shared | None = None

    @property
    def frontend(self) -> str:
        """Return the name of the front end."""
        return self.plans[0].frontend

    @property
    def shard(self) -> tuple[int, int] | None:
        """Return `Shared.shard`; None for a build that is not shared."""
        return self.shared.shard if self.shared is not None else None

    @property
    def from_cache_only(self) -> bool:
        """Return True if the job uses the units that shards have stored in the cache, or fails."""
        return self.shared is not None and self.shared.shard is None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherImport:
    """The sources and units that a worker loaded and compiled for one compute capability."""

    units: tuple[Unit, ...]
    compiled: Mapping[tuple[Unit, Target], Any]
    queries: tuple[GpuQuery, ...] = ()
    seen: Stamp = field(default_factory=Stamp)
    sources: tuple[Source, ...] = ()
    warnings: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsImports:
    """The answer of a worker whose sources query the target: a job for each other compute capability."""

    imports: tuple[ImportFor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedItem:
    """A linked file or module, for the bill of materials.

    Attributes:
        module: The packaged module that it belongs to; empty for other files.
        licence: The value of its line `SPDX-License-Identifier`; empty if it has none.
    """

    name: str
    sha256: str
    module: str = ""
    licence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedPlan:
    """The parts of a module's plan that a toolkit or a worker has completed; see `ModulePlan`.

    Attributes:
        name: The module.
    """

    name: str
    units: tuple[Unit, ...]
    targets: tuple[Target, ...]
    code_targets: Mapping[Target, Target]
    ltoir_targets: tuple[Target, ...]
    lacking: tuple[tuple[str, Target], ...]
    linked: tuple[str, ...] | None
    variables: tuple[tuple[str, str, str, int], ...]

    @classmethod
    def of(cls, plan: ModulePlan) -> CompletedPlan:
        """Return these parts of a plan. Its units have no attributes of front ends."""
        names = [item.name for item in fields(Unit)]
        return cls(
            name=plan.config.name,
            units=tuple(Unit(**{name: getattr(unit, name) for name in names}) for unit in plan.units),
            targets=plan.targets,
            code_targets=dict(plan.code_targets),
            ltoir_targets=plan.ltoir_targets,
            lacking=tuple(sorted(plan.lacking, key=str)),
            linked=tuple(sorted(plan.linked)) if plan.linked is not None else None,
            variables=plan.variables,
        )

    def complete(self, plan: ModulePlan) -> ModulePlan:
        """Return the module's plan, as it was before the build, with these parts."""
        return replace(
            plan,
            units=self.units,
            targets=self.targets,
            code_targets=self.code_targets,
            ltoir_targets=self.ltoir_targets,
            lacking=frozenset(self.lacking),
            linked=frozenset(self.linked) if self.linked is not None else None,
            variables=self.variables,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltModule:
    """One module's linked images.

    The result of the last toolkit has the images of all toolkits.

    Attributes:
        plan: The module's plan, without the kernels that no target can have.
        left_out: The kernels that targets cannot have.
        general_left_out: The number of optional variants that some target lacks, for each kernel with such variants.
        ltoir: Its exported functions, LTOIR for each capability and one PTX; empty when it has none.
        foreign: Symbols of linked items, by the name of the item.
        function_links: The files that users of the exported functions must link: name and packed content.
        carried: The absolute paths of the files that a wheel holds for the JIT fallback, by their names there: linked
            files, headers, and what the prelude imports.
        pack: The package that it is compiled from, for a module of a pack.
    """

    plan: ModulePlan
    images: tuple[Image, ...]
    kernels: tuple[CompiledKernel, ...]
    ltoir: tuple[tuple[Target, bytes], ...] = ()
    functions: tuple[CompiledFunction, ...] = ()
    left_out: tuple[manifest.LeftOut, ...] = ()
    general_left_out: tuple[tuple[str, int], ...] = ()
    kernel_fatbins: tuple[bytes, ...] = ()
    function_fatbin: bytes = b""
    callbacks: tuple[Callbacks, ...] = ()
    foreign: tuple[tuple[str, tuple[str, ...]], ...] = ()
    linked: tuple[LinkedItem, ...] = ()
    function_links: tuple[tuple[str, bytes], ...] = ()
    carried: tuple[tuple[str, str], ...] = ()
    pack: manifest.Pack | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a worker.

    Attributes:
        linkable: The link items for other modules that call the exported functions, by module.
        unseen: Sources whose text does not determine what was compiled, for example with an include by a macro's name.
        made: The number of results that were made.
        problems: Warnings about the build cache.
        part: For a shard, the number of units that it compiled or found, and the number of all units.
    """

    toolchain: dict[str, str] = field(default_factory=dict)
    modules: tuple[BuiltModule, ...] = ()
    sources: tuple[Source, ...] = ()
    warnings: tuple[str, ...] = ()
    seen: Stamp = field(default_factory=Stamp)
    linkable: Mapping[str, Linked] = field(default_factory=dict)
    queries: tuple[GpuQuery, ...] = ()
    unseen: tuple[str, ...] = ()
    reused: int = 0
    made: int = 0
    problems: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    part: tuple[int, int] = (0, 0)
