"""Register front ends, with the properties that builder, run time and tools need without an import of a front end.

`BUILT_IN` has aotcuda's own front ends. The distribution of another front end registers it with an entry point:

    [project.entry-points."aotcuda.frontends"]
    my-front-end = "mypkg.registration:FRONT_END"        # a `Registration`; its import should be fast

Entry points are read only for names that are not in the table, since reading them would slow down a cold start.
"""

from __future__ import annotations

from typing import NamedTuple

from .gpus import default_targets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GROUP = "aotcuda.frontends"
"""The group of entry points."""

DEFAULT = "numba-cuda"

CUDA = 13
"""The major version of CUDA of the compilers that messages recommend by default."""

CUDA_CORE = "pip install 'cuda-core[cu13]', or 'cuda-core[cu12]' for a driver of CUDA 12"
"""The requirement for cuda.core: without an extra it lacks `cuda-bindings` and cannot be imported."""

TOOLKITS: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "cu13": ((13, 0), (13, 0)),
    "cu12": ((12, 9), (12, 9)),
    "wide": ((13, 0), (13, 5)),
}
"""The extras with compilers: the CUDA versions of the compilers and of their linker, as pyproject.toml pins them.

`wide` also has the compilers of `cu12`, and its newer linker makes images for GPUs that the compilers do not know.
"""


DEFAULT_TARGETS = default_targets(TOOLKITS[f"cu{CUDA}"][0])
"""`arch` for a new project, for the toolkit that the recommended extra pins."""


class Variables(NamedTuple):
    """The environment variables that concern a front end's compiler.

    Attributes:
        prefixes: Prefixes of variables with settings. Builds remove these variables, so results do not depend on them.
        kept: Variables with such a prefix that builds do not remove, since they name folders of headers.
        given: Variables that builds set, with their values.
        files: Files in a project's folder from which the compiler reads settings.
    """

    prefixes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()


class Registration(NamedTuple):
    """The properties of a front end that need no import of the front end.

    Attributes:
        name: The name in `frontend` of `[tool.aotcuda]`, and in manifests.
        tables: The module that reads kernels and functions from the configuration: see
            `aotcuda.builder.frontends.protocol.Tables`.
        compiler: The module, or `module:object`, that compiles: see `aotcuda.builder.frontends.protocol.FrontEnd`.
        requires: The requirement for builds; `{cuda}` represents the major version of CUDA.
        jit_requires: The requirement for the JIT fallback; empty if it is `requires`.
        package: The package of the compiler, which the JIT fallback needs; empty without one.
        tested: The releases of the compiler that were tested (tools/matrix.py), the newest last; others are refused.
            The extras of pyproject.toml accept all of them.
        requirements_by_release: Further requirements of releases that do not work with the newest dependencies.
        distributions: Prefixes of names of the distributions that the compiler imports, besides `package` and
            `internals`; the compiled code depends on their versions.
        packages: The packages of its objects; other front ends refuse functions from these packages.
        internals: The compiler's top-level packages. Their queries of the machine do not count as queries of sources.
        imports: The package that sources import.
        variables: The environment variables that concern the compiler.
        waiting: Decorators (`module.name`) that do not run the decorated function.
        caller: The package whose code reads the type of a device function; empty if kernels cannot call any.
        interop: The module that makes types of device functions.
        kernel_abi: The name of the calling convention of kernels in `aotcuda inspect`; empty for `name`.
        widens: True if the JIT fallback may compile kernels for types that are not in the table.
        in_place: The module that sources import if they are packaged in place; empty if they cannot be.
        assembles: True if the front end makes images itself, for all targets, without a toolkit.
        suffix: The suffix of sources that are no Python modules.
        host_code: True if images have code for the host's processor, so wheels with them have a platform tag.
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
        """Return prefixes of the names of all distributions whose versions change the compiled code."""
        names = (self.package.replace("-", "_"), *self.internals, *self.distributions)
        return tuple(dict.fromkeys(name for name in names if name))

    def requirement(self, *, jit: bool = False, cuda: int = CUDA) -> str:
        """Return the requirement, `aotcuda[cu13]`, with compilers of CUDA `cuda` or the nearest major version."""
        return ((jit and self.jit_requires) or self.requires).replace("{cuda}", str(max(12, min(cuda, CUDA))))

    def requirement_for_extra(self, extra: str) -> str:
        """Return the requirement with the compilers of an extra in `TOOLKITS`: `aotcuda[wide]`."""
        return self.requires.replace("cu{cuda}", extra)


_NUMBA = Variables(
    prefixes=("NUMBA_", "LLVM_OVERRIDE_PRODUCER"),  # libNVVM writes the second variable's value into LTOIR
    kept=("NUMBA_CUDA_INCLUDE_PATH", "NUMBA_CUDA_NVRTC_EXTRA_SEARCH_PATHS"),
    given=(("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1"),),
    files=(".numba_config.yaml",),
)
"""The variables that both of Numba's compilers read."""

_FURTHER_TRITON_PREFIXES = (
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
"""Prefixes of the variables that Triton reads and that do not begin with its name (`triton/knobs.py`, `GetEnv.hpp`)."""

BUILT_IN: Mapping[str, Registration] = {
    "numba-cuda": Registration(
        "numba-cuda",
        tables="aotcuda.builder.frontends.numba.config",
        compiler="aotcuda.builder.frontends.numba_cuda.compiler:FRONT_END",
        requires="aotcuda[cu{cuda}]",
        jit_requires="aotcuda[jit-cu{cuda}]",
        package="numba_cuda",
        tested=("0.30.1", "0.30.2", "0.30.3", "0.30.4"),
        # Their import fails with later releases of Numba.
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
        variables=Variables(prefixes=("TRITON_", "MLIR_", *_FURTHER_TRITON_PREFIXES)),
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
        ToolchainError: Its registration is wrong.
    """
    return BUILT_IN.get(name) or _registered(name)


def names() -> tuple[str, ...]:
    """Return all registered front ends, aotcuda's own first."""
    from importlib.metadata import entry_points  # noqa: PLC0415 (see the head of this file)

    others = {entry.name for entry in entry_points(group=GROUP)} - BUILT_IN.keys()
    return (*BUILT_IN, *sorted(others))


def front_end_of_caller(module: str) -> Registration | None:
    """Return the front end whose compiler's code in `module` may call device functions."""
    for front_end in BUILT_IN.values():
        if front_end.caller and f"{module}.".startswith(f"{front_end.caller}."):
            return front_end
    return None


def front_end_of_module(module: str) -> Registration | None:
    """Return the front end to which a module belongs."""
    for front_end in BUILT_IN.values():
        if any(f"{module}.".startswith(f"{package}.") for package in front_end.packages):
            return front_end
    return None


def internals(name: str) -> tuple[str, ...]:
    """Return the packages whose queries of the machine do not count as queries of sources in a build."""
    return tuple(dict.fromkeys([package for item in _built_in_and([name]) for package in item.internals]))


def variables(names: Iterable[str]) -> Variables:
    """Return the environment variables that affect builds with the front ends `names`.

    The variables of aotcuda's own front ends are always included, since a source may import any compiler.
    """
    sets = [item.variables for item in _built_in_and(names)]
    return Variables(
        tuple(dict.fromkeys([prefix for item in sets for prefix in item.prefixes])),
        tuple(dict.fromkeys([name for item in sets for name in item.kept])),
        tuple(dict.fromkeys([pair for item in sets for pair in item.given])),
        tuple(dict.fromkeys([name for item in sets for name in item.files])),
    )


def requirement(name: str, *, jit: bool = False, cuda: int = CUDA) -> str:
    """Return the requirement for the front end `name`, which the configuration has checked."""
    front_end = find(name)
    return front_end.requirement(jit=jit, cuda=cuda) if front_end is not None else f"aotcuda[cu{CUDA}]"


def _built_in_and(names: Iterable[str]) -> list[Registration]:
    """Return aotcuda's own front ends, and the front ends called `names`."""
    others = [item for name in names if name not in BUILT_IN and (item := find(name)) is not None]
    return [*BUILT_IN.values(), *others]


def _registered(name: str) -> Registration | None:
    from importlib.metadata import entry_points  # noqa: PLC0415 (see the head of this file)

    from .errors import ToolchainError  # noqa: PLC0415 (as above)

    for entry in entry_points(group=GROUP, name=name):
        subject = f"the front end {name}, registered as {entry.value}"
        try:
            front_end = entry.load()
        except (ImportError, AttributeError) as error:
            message = f"{subject}, cannot be imported ({error}); install its distribution again"
            raise ToolchainError(message) from error
        if not isinstance(front_end, Registration) or front_end.name != name:
            message = f"{subject}, is no aotcuda.registry.Registration of that name; mend its entry point"
            raise ToolchainError(message)
        return front_end
    return None
