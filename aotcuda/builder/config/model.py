"""The content of `[tool.aotcuda]`: one frozen dataclass for each kind of table; `config.parser` makes them.

The fields' metadata defines how each key is read and documented. The schema and the tables in docs/configuration.md are
generated from it: after a change, run `python -m aotcuda.builder.config.schema --markdown docs/configuration.md`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aotcuda import registry
from aotcuda.builder.config import rules
from aotcuda.builder.config.front_end_shapes import FrontEndName, FrontEndValue
from aotcuda.builder.config.nvrtc_options import OptionList
from aotcuda.builder.config.settings import Record, setting
from aotcuda.builder.config.shapes import Choice, Flag, Integer, ListOf, Macro, TableOf, Text
from aotcuda.builder.config.target_list import TargetList

if TYPE_CHECKING:
    from aotcuda.arch import Target

_FLAG = Flag()
_FRONT_END = FrontEndName()
FMA_MEANING = "Fuse multiplications and additions; false keeps the rounding of both."
FMA = setting(_FLAG, FMA_MEANING, "false", default="`fma` of `options`")
"""The metadata of the key `fma` of one kernel or function, for front ends that have it."""

_STRINGS = ListOf(item=Text(), expected="a list of strings that are not empty")
_AXPY = '"void(float32, float32[::1], float32[::1])"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The compile options of a module."""

    fastmath: bool = field(
        default=False,
        metadata=setting(_FLAG, "Faster, less exact floating-point arithmetic.", "true"),
    )
    fma: bool | None = field(
        default=None,
        metadata=setting(_FLAG, FMA_MEANING, "false", default="the front end's own"),
    )
    lineinfo: bool = field(
        default=False,
        metadata=setting(_FLAG, "Keep line numbers for profilers. Not together with `debug`.", "true"),
    )
    debug: bool = field(
        default=False,
        metadata=setting(_FLAG, "Keep full debug information; `opt-level` becomes 0.", "false"),
    )
    opt_level: int = field(
        default=3,
        metadata=setting(Integer(0, 3), "The optimisation level of the compiler.", "2"),
    )
    max_registers: int = field(
        default=0,
        metadata=setting(Integer(0, 255), "The most registers of a thread; 0 leaves the choice to the compiler.", "64"),
    )
    include_dirs: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            _STRINGS,
            "Folders searched for headers of `.cu` files, in order, before the toolkit's own.",
            '["csrc/include"]',
        ),
    )
    defines: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata=setting(
            TableOf(name=rules.MACRO_NAME, value=Macro(), expected="a table of macros"),
            "Macros defined for `.cu` files; true and false become 1 and 0.",
            '{ TILE = "16" }',
        ),
    )
    nvrtc_options: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            OptionList(),
            "Further options for NVRTC, which compiles `.cu` files; see [the list](cuda-cpp.md#options-of-nvrtc).",
            '["--std=c++17"]',
        ),
    )

    def with_fma(self, fma: bool | None) -> Options:
        """Return the options of a kernel or function whose key `fma` has this value."""
        return self if fma is None else replace(self, fma=fma)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkItem:
    """A file that is linked into a module, or the device functions of another packaged module."""

    key: str
    path: str | None = field(
        default=None,
        metadata=setting(
            rules.LINK_PATH,
            "The file, relative to the project's folder; its suffix tells its kind.",
            '"csrc/table.cu"',
            default="either this or `module`",
        ),
    )
    module: str | None = field(
        default=None,
        metadata=setting(
            rules.PYTHON_MODULE,
            "A module of this wheel, or an installed one that aotcuda built: its device functions, their linked files, "
            "and its callbacks.",
            '"otherpkg.kernels"',
            default="either this or `path`",
            instead_of="path",
        ),
    )
    setup: str | None = field(
        default=None,
        metadata=setting(rules.CALLBACK, "Called once after the module was loaded.", '"mypkg._hooks:upload"'),
    )
    teardown: str | None = field(
        default=None,
        metadata=setting(rules.CALLBACK, "Called once before the module is unloaded.", '"mypkg._hooks:release"'),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A kernel or a device function: the keys of all front ends. Each front end has a subclass with further keys.

    Attributes:
        key: The key of its table, for messages.
        name: The name under which users launch or call it.
    """

    key: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """An importable module that the wheel gains.

    Attributes:
        types: The names for types in `[tool.aotcuda]`, each with its type.
    """

    key: str
    name: str
    source: Any = field(
        metadata=setting(
            FrontEndValue("source"),
            "The Python module with the functions, or a list of modules. "
            "The name of the packaged module itself packages it in place.",
            '"mypkg._kernels"',
        )
    )
    frontend: str | None = field(
        default=None,
        metadata=setting(
            _FRONT_END,
            "The front end of this module, if it differs from the project's.",
            '"numba-cuda-mlir"',
            default="the project's front end",
        ),
    )
    options: Options = field(
        default_factory=Options,
        metadata=setting(
            Record(cls=Options, expected="a table of options"),
            "Compile options of this module; each key replaces the one in `tool.aotcuda.options`.",
            "{ fastmath = true }",
            default="the values of `tool.aotcuda.options`",
        ),
    )
    link: tuple[LinkItem, ...] = field(
        default=(),
        metadata=setting(
            ListOf(
                item=Record(cls=LinkItem, expected="a path or a table", short="path"),
                expected="a list of files",
            ),
            "Files to link into the module: paths, or tables.",
            '["csrc/functions.cu"]',
        ),
    )
    functions: tuple[Entry, ...] = field(
        default=(),
        metadata=setting(
            FrontEndValue("functions"),
            "Device functions; the key is the C ABI name, the value a signature or a table.",
            '{ add_i32 = { python = "add", signature = "int32(int32, int32)" } }',
        ),
    )
    kernels: tuple[Entry, ...] = field(
        default=(),
        metadata=setting(
            FrontEndValue("kernels"),
            "Kernels; the key is the name they are launched by, the value a signature, a list of them or a table.",
            f"{{ axpy = [{_AXPY}] }}",
        ),
    )
    variants: str | None = field(
        default=None,
        metadata=setting(
            FrontEndValue("variants"),
            "A variants file of `aotcuda record --write`, relative to the project's folder. It adds kernels to those "
            "of `kernels`. For [Triton](triton.md#variants-that-a-run-used) only.",
            '"mypkg/ops/norm.variants.json"',
        ),
    )
    general: bool = field(
        default=True,
        metadata=setting(
            FrontEndValue("general"),
            "Compile also variants with fewer hints, which serve launches with "
            "[integers that are not recorded](triton-reference.md#other-integers). For Triton only.",
            "false",
        ),
    )
    pack: bool = field(
        default=False,
        metadata=setting(
            FrontEndValue("pack"),
            "`source` is a module of an installed package, which uses the kernels [without any change](packs.md). For "
            "Triton only.",
            "true",
        ),
    )
    pack_from: str | None = field(
        default=None,
        metadata=setting(
            FrontEndValue("pack-from"),
            "A folder with the package of `source`, in place of the environment's, for a pack of "
            "[several versions](packs.md#several-versions): `pip install --no-deps --target FOLDER PACKAGE`.",
            '"versions/fla-0.6.1"',
        ),
    )
    relocatable: bool = field(
        default=False,
        metadata=setting(
            FrontEndValue("relocatable"),
            "Link all `.cu` files of the module together, as `nvcc -rdc=true` does. For "
            "[CUDA C++](cuda-cpp.md#files) only.",
            "true",
        ),
    )
    types: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The content of `[tool.aotcuda]`."""

    arch: tuple[Target, ...] = field(
        metadata=setting(
            TargetList(),
            "The targets: `sm_XY` for machine code, `compute_XY` for PTX, or [another form](#targets). "
            "`AOTCUDA_ARCH` replaces it.",
            json.dumps(registry.DEFAULT_TARGETS),
        )
    )
    frontend: str = field(
        default=registry.DEFAULT,
        metadata=setting(_FRONT_END, "The front end; a module may name another one.", '"numba-cuda"'),
    )
    load: str = field(
        default="import",
        metadata=setting(
            Choice(("import", "first-use")),
            "The time to load the images: at import or at the first launch.",
            '"first-use"',
        ),
    )
    fallback: str = field(
        default="jit",
        metadata=setting(
            Choice(("jit", "error")),
            "If no code of the wheel fits a GPU or the arguments: compile, or raise.",
            '"error"',
        ),
    )
    known_faults: str = field(
        default="warn",
        metadata=setting(
            Choice(("warn", "error")),
            "For code that the compiler is [known to compile wrongly](frontends.md#known-faults): warn, or fail.",
            '"error"',
        ),
    )
    incomplete: str = field(
        default="warn",
        metadata=setting(
            Choice(("warn", "error")),
            "For a kernel that [a target cannot have](triton-reference.md#what-a-target-cannot-have): warn, or fail.",
            '"error"',
        ),
    )
    runtime: str = field(
        default="installed",
        metadata=setting(
            Choice(("installed", "bundled")),
            "The run time: the distribution aotcuda, on which the project depends, or a "
            "[copy in the wheel](shipping.md#wheels-that-hold-their-run-time).",
            '"bundled"',
        ),
    )
    prelude: str | None = field(
        default=None,
        metadata=setting(
            rules.PYTHON_MODULE,
            "A Python module that builds import before all sources; it may be outside the package. See "
            "[the order of imports](#what-a-build-imports).",
            '"_aot_prelude"',
        ),
    )
    types: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata=setting(
            TableOf(name=rules.TYPE_NAME, value=rules.TYPE, expected="a table of types"),
            "Names for types, for use in signatures and in other types of this table. See [types](#types).",
            '{ C2 = "complex128[:, ::1]" }',
        ),
    )
    watch: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            _STRINGS,
            "Globs of further files that the kernels depend on, relative to the project's folder or absolute; `**` is "
            "any number of folders. For files that [builds do not see](many-machines.md#what-a-build-sees).",
            '["data/*.h5"]',
        ),
    )
    watch_env: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            _STRINGS,
            "Environment variables that the kernels depend on; `MYPKG_*` is all names with this beginning. For "
            "variables that [builds do not see](many-machines.md#what-a-build-sees).",
            '["MYPKG_*"]',
        ),
    )
    host_abi: bool = field(
        default=False,
        metadata=setting(
            _FLAG,
            "Give the wheel a platform tag, since it depends on the host's system. A "
            "[bundled run time](shipping.md#wheels-that-hold-their-run-time) then has the C extension of the installed "
            "aotcuda.",
            "true",
        ),
    )
    options: Options = field(
        default_factory=Options,
        metadata=setting(
            Record(cls=Options, expected="a table of options"),
            "Compile options of all modules.",
            "{ fastmath = true }",
            default="see the next table",
        ),
    )
    modules: tuple[Module, ...] = field(
        metadata=setting(
            TableOf(
                name=rules.MODULE_NAME,
                value=Record(cls=Module, expected="a table"),
                expected="a table with at least one module",
                shortest=1,
                named=True,
            ),
            "The modules that the wheel gains; each key is a module's dotted name, in quotes.",
            f'{{ "mypkg.kernels" = {{ source = "mypkg._kernels", kernels = {{ axpy = {_AXPY} }} }} }}',
        )
    )
    arch_key: str = "tool.aotcuda.arch"
    frontend_key: str = "tool.aotcuda.frontend"

    def frontend_of(self, module: Module) -> str:
        """Return the name of the front end that compiles a module: the module's, or else the project's."""
        return module.frontend or self.frontend
