"""The registry of front ends: the properties of each that builder, run time and tools need without its import.

Those of aotcuda itself are in `BUILT_IN`. Any other is registered by its distribution, with an entry point:

    [project.entry-points."aotcuda.frontends"]
    my-front-end = "mypkg.registration:FRONT_END"        # a `Registration`; importing it should cost nothing

Entry points are read only for a name that is not in the table: to read them costs more than a cold start may.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GROUP = "aotcuda.frontends"
"""The group of entry points."""

DEFAULT = "numba-cuda"

CUDA = 13
"""The major version of CUDA whose compilers messages recommend by default."""

CUDA_CORE = "pip install 'cuda-core[cu13]', or 'cuda-core[cu12]' for a driver of CUDA 12"
"""The requirement for cuda.core: without an extra it lacks `cuda-bindings` and cannot be imported."""

TOOLKITS: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "cu13": ((13, 0), (13, 0)),
    "cu12": ((12, 9), (12, 9)),
    "wide": ((13, 0), (13, 5)),
}
"""The extras that install compilers: the CUDA versions of those and of their linker, as pyproject.toml pins them.

`wide` has those of `cu12` besides, and its newer linker makes images for GPUs that its compilers do not know.
"""


class Variables(NamedTuple):
    """The environment variables that concern a front end's compiler.

    Attributes:
        prefixes: How those begin that it is set by. Builds run without them, so that the same comes out everywhere.
        kept: Those of them that stay, because they locate headers on which the build depends.
        given: Those that builds run with, and their values.
        files: Files of a project's folder that the compiler reads settings from in place of its variables.
    """

    prefixes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()


class Registration(NamedTuple):
    """The properties of a front end that need no import of it.

    Attributes:
        name: As `frontend` in `[tool.aotcuda]` names it, and manifests do.
        tables: The module that reads its kernels and functions from the configuration: see
            `aotcuda.builder.frontends.protocol.Tables`.
        compiler: What compiles them, a module or `module:object`: see `aotcuda.builder.frontends.protocol.FrontEnd`.
        requires: What pip installs for builds; `{cuda}` represents the major version of CUDA.
        jit_requires: What pip installs for the JIT fallback; empty if it is the same.
        package: The package of its compiler, without which the JIT fallback does not begin; empty if there is none.
        tested: The releases of its compiler that it was tested with (tools/matrix.py), the newest last; others are
            refused. The extras of pyproject.toml accept them all.
        requirements_by_release: Further requirements of releases that do not work with the newest dependencies.
        distributions: How the names of the installed distributions begin, beside `package` and `internals`, whose
            versions decide what is compiled: what its compiler imports, too, since no import of a source shows then.
        packages: The packages that its objects come from: a function of another front end's is refused by them.
        internals: The top-level packages that its compiler is made of; their queries of the machine during imports are
            not the sources' queries.
        imports: What sources import it from.
        variables: The environment variables that concern its compiler.
        waiting: Its decorators, `module.name`, that run nothing of the function below them: for that, something has to
            name what they make.
        caller: The package whose code reads the type of a device function; empty if kernels cannot call any.
        interop: The module that answers.
        kernel_abi: What inspection calls the way in which its kernels take arguments; empty for its name.
        widens: Whether its kernels can be compiled for other types than those in the table; if not, the fallback does
            not try.
        in_place: What sources that are packaged in place import in the compiler's place; empty if none can be.
        assembles: It makes images by itself, for all targets that it supports: they are not assigned to toolkits.
        suffix: How its sources' names end, where they are no Python modules.
        host_code: Its images hold code for the host's processor, so wheels with them carry a platform tag.
    """

    name: str
    tables: str
    compiler: str
    requires: str
    jit_requires: str = ""
    package: str = ""
    tested: tuple[str, ...] = ()
    requirements_by_release: Mapping[str, str] = {}
    distributions: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    internals: tuple[str, ...] = ()
    imports: str = ""
    caller: str = ""
    interop: str = ""
    kernel_abi: str = ""
    variables: Variables = Variables()
    waiting: tuple[str, ...] = ()
    widens: bool = True
    in_place: str = ""
    assembles: bool = False
    suffix: str = ""
    host_code: bool = False

    @property
    def all_distributions(self) -> tuple[str, ...]:
        """Return the beginnings of the names of all distributions whose versions decide what is compiled."""
        own = (self.package.replace("-", "_"), *self.internals)
        return tuple(dict.fromkeys(name for name in (*own, *self.distributions) if name))

    def requirement(self, *, jit: bool = False, cuda: int = CUDA) -> str:
        """Return the requirement for it, `aotcuda[cu13]`: compilers of `cuda`, or of the nearest major version."""
        return ((jit and self.jit_requires) or self.requires).replace("{cuda}", str(max(12, min(cuda, CUDA))))

    def bringing(self, extra: str) -> str:
        """Return the requirement for it with the compilers of an extra in `TOOLKITS`: `aotcuda[wide]`."""
        return self.requires.replace("cu{cuda}", extra)


_NUMBA = Variables(
    prefixes=("NUMBA_", "LLVM_OVERRIDE_PRODUCER"),  # which libNVVM writes into LTOIR
    kept=("NUMBA_CUDA_INCLUDE_PATH", "NUMBA_CUDA_NVRTC_EXTRA_SEARCH_PATHS"),
    given=(("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1"),),
    files=(".numba_config.yaml",),
)
"""The variables that both of Numba's compilers read."""

_OF_TRITON = (
    "ALLOW_LHS_TMEM_LAYOUT_CONVERSION",
    "DISABLE_LLVM_OPT",
    "DISABLE_MMA_",
    "DISABLE_PTXAS_OPT",
    "LLVM_EXTRACT_DI_LOCAL_VARIABLES",
    "LLVM_IR_ENABLE_DUMP",
    "LLVM_PASS_PLUGIN_PATH",
    "NVPTX_ENABLE_DUMP",
    "PTXAS_OPTIONS",
    "USE_IR_LOC",
)
"""The variables that Triton reads in addition to those that begin with its name (`triton/knobs.py`, `GetEnv.hpp`)."""

BUILT_IN: Mapping[str, Registration] = {
    "numba-cuda": Registration(
        "numba-cuda",
        tables="aotcuda.builder.frontends.numba.config",
        compiler="aotcuda.builder.frontends.numba_cuda.compiler:FRONT_END",
        requires="aotcuda[cu{cuda}]",
        jit_requires="aotcuda[jit-cu{cuda}]",
        package="numba_cuda",
        tested=("0.30.1", "0.30.2", "0.30.3", "0.30.4"),
        # Later releases of Numba break their import.
        requirements_by_release=dict.fromkeys(("0.30.1", "0.30.2", "0.30.3"), "numba<0.66"),
        distributions=("numba", "llvmlite", "numpy", "packaging"),
        packages=("numba_cuda", "numba.cuda", "numba.core.types"),
        internals=("numba", "numba_cuda", "llvmlite"),
        imports="numba",
        caller="numba.cuda",
        interop="aotcuda.integrations.interop.numba_cuda",
        kernel_abi="numba",
        variables=_NUMBA,
        in_place="aotcuda.numba",
    ),
    "numba-cuda-mlir": Registration(
        "numba-cuda-mlir",
        tables="aotcuda.builder.frontends.numba.config",
        compiler="aotcuda.builder.frontends.numba_cuda_mlir.compiler:FRONT_END",
        requires="aotcuda[mlir-cu{cuda}]",
        jit_requires="aotcuda[jit-mlir-cu{cuda}]",
        package="numba_cuda_mlir",
        tested=("0.5.3", "0.5.4", "0.6.0"),
        distributions=("numba", "llvmlite", "numpy", "cffi", "pycparser", "pyyaml", "typing_extensions"),
        packages=("numba_cuda_mlir",),
        internals=("numba_cuda_mlir",),
        imports="numba_cuda_mlir",
        caller="numba_cuda_mlir",
        interop="aotcuda.integrations.interop.numba_cuda_mlir",
        variables=_NUMBA,
        in_place="aotcuda.numba_cuda_mlir",
    ),
    "triton": Registration(
        "triton",
        tables="aotcuda.builder.frontends.triton.config",
        compiler="aotcuda.builder.frontends.triton.compiler:FRONT_END",
        requires="aotcuda[triton]",
        package="triton",
        packages=("triton",),
        internals=("triton",),
        imports="triton",
        variables=Variables(prefixes=("TRITON_", "MLIR_", *_OF_TRITON)),
        waiting=("triton.jit", "triton.autotune", "triton.heuristics"),
        in_place="aotcuda.triton",
        widens=False,
        assembles=True,
    ),
    "cuda-cpp": Registration(
        "cuda-cpp",
        tables="aotcuda.builder.frontends.cuda_cpp.config",
        compiler="aotcuda.builder.frontends.cuda_cpp.compiler:FRONT_END",
        requires="aotcuda[cpp-cu{cuda}]",
        jit_requires="aotcuda[jit-cpp-cu{cuda}]",
        package="pyelftools",
        distributions=("pyelftools",),
        kernel_abi="c",
        widens=False,
        suffix=".cu",
    ),
    "cutile": Registration(
        "cutile",
        tables="aotcuda.builder.frontends.cutile.config",
        compiler="aotcuda.builder.frontends.cutile.compiler:FRONT_END",
        requires="aotcuda[cutile]",
        package="cuda_tile",
        packages=("cuda.tile",),
        internals=("cutile_cache",),
        imports="cuda.tile",
        variables=Variables(prefixes=("CUDA_TILE_", "EXPERIMENTAL_CUDA_TILE_")),
        waiting=("cuda.tile.kernel", "cuda.tile.function"),
        widens=False,
        assembles=True,
        host_code=True,
    ),
}


def find(name: str) -> Registration | None:
    """Return the front end called `name`; None if it is not registered.

    Raises:
        ToolchainError: The distribution that registers it does not do it as it must.
    """
    return BUILT_IN.get(name) or _registered(name)


def names() -> tuple[str, ...]:
    """Return all registered front ends, aotcuda's own first."""
    from importlib.metadata import entry_points  # noqa: PLC0415 (see the head of this file)

    others = {entry.name for entry in entry_points(group=GROUP)} - BUILT_IN.keys()
    return (*BUILT_IN, *sorted(others))


def calling(module: str) -> Registration | None:
    """Return the front end whose compiler's code in `module` may call device functions."""
    for found in BUILT_IN.values():
        if found.caller and f"{module}.".startswith(f"{found.caller}."):
            return found
    return None


def owning(module: str) -> Registration | None:
    """Return the front end to which a module belongs."""
    for found in BUILT_IN.values():
        for package in found.packages:
            if f"{module}.".startswith(f"{package}."):
                return found
    return None


def internals(name: str) -> tuple[str, ...]:
    """Return the packages whose reads of the machine's state do not count as the sources' in a build."""
    return tuple(dict.fromkeys([package for item in _with([name]) for package in item.internals]))


def variables(names: Iterable[str]) -> Variables:
    """Return the environment variables that affect builds by the front ends `names`.

    Those of aotcuda's own are always among them: a source may import their compilers, whichever compiler builds it.
    """
    found = [item.variables for item in _with(names)]
    return Variables(
        tuple(dict.fromkeys([prefix for item in found for prefix in item.prefixes])),
        tuple(dict.fromkeys([name for item in found for name in item.kept])),
        tuple(dict.fromkeys([pair for item in found for pair in item.given])),
        tuple(dict.fromkeys([name for item in found for name in item.files])),
    )


def requirement(name: str, *, jit: bool = False, cuda: int = CUDA) -> str:
    """Return the requirement for the front end `name`, which the configuration has checked."""
    found = find(name)
    return found.requirement(jit=jit, cuda=cuda) if found is not None else f"aotcuda[cu{CUDA}]"


def _with(names: Iterable[str]) -> list[Registration]:
    """Return aotcuda's own front ends, and those called `names`."""
    found = {**BUILT_IN, **{name: item for name in names if (item := find(name)) is not None}}
    return list(found.values())


def _registered(name: str) -> Registration | None:
    from importlib.metadata import entry_points  # noqa: PLC0415 (see the head of this file)

    from aotcuda.errors import ToolchainError  # noqa: PLC0415 (as above)

    for entry in entry_points(group=GROUP, name=name):
        whose = f"the front end {name}, registered as {entry.value}"
        try:
            found = entry.load()
        except (ImportError, AttributeError) as error:
            message = f"{whose}, cannot be imported ({error}); install its distribution again"
            raise ToolchainError(message) from error
        if not isinstance(found, Registration) or found.name != name:
            message = f"{whose}, is no aotcuda.registry.Registration of that name; mend its entry point"
            raise ToolchainError(message)
        return found
    return None
