"""Read `[tool.aotcuda]`; errors name the key, the fact and the remedy (tests/data/errors/config.txt)."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import TYPE_CHECKING

import pytest

from aotcuda import registry
from aotcuda.arch import parse as target
from aotcuda.builder.config import settings
from aotcuda.builder.config.front_end_shapes import FrontEndValue
from aotcuda.builder.config.model import Config, LinkItem, Module, Options
from aotcuda.builder.config.parser import parse
from aotcuda.builder.frontends import loading
from aotcuda.builder.frontends.numba.config import Function, Kernel
from aotcuda.errors import ConfigError
from support.errors import assert_message, cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FULL = """
arch = ["sm_90", "compute_75", "sm_75", "sm_90", "sm_90a", "compute_120f"]
frontend = "numba-cuda"
load = "first-use"
fallback = "error"
host-abi = true

[options]
lineinfo = true
opt-level = 2
max-registers = 64
include-dirs = ["csrc/include", "vendor"]
defines = { TILE = "16", WIDE = 4, FAST = true, SLOW = false }
nvrtc-options = ["--std=c++17"]

[modules."mypkg.kernels"]
source = "mypkg._kernels"
link = [
  "csrc/functions.cu",
  { path = "csrc/table.cu", setup = "mypkg._hooks:upload", teardown = "mypkg._hooks:release" },
]
options = { fastmath = true, lineinfo = false, defines = { TILE = 8 } }

[modules."mypkg.kernels".functions]
add_i32 = { python = "add", signature = "int32(int32, int32)" }
clamp = "float32(float32, float32, float32)"

[modules."mypkg.kernels".kernels]
scale = "void(float32, float32[::1])"
axpy = ["void(float32, float32[::1])", "void(float64, float64[::1])"]
tiled = { python = "matmul", signatures = ["void(float32[:,::1])"], launch-bounds = [256, 2], cooperative = true }

[modules.plain]
source = "mypkg.more"
frontend = "numba-cuda-mlir"
kernels = { axpy = "void(float32[:])" }
"""

MINIMAL = """
arch = ["sm_90"]
modules."pkg.k" = { source = "pkg._k", kernels = { axpy = "void(float32[:])" } }
"""


def read(text: str, **environ: str) -> Config:
    return parse(tomllib.loads(text), environ=environ)


def test_every_key_is_read() -> None:
    config = read(FULL)
    assert (config.frontend, config.load, config.fallback, config.host_abi) == (
        "numba-cuda",
        "first-use",
        "error",
        True,
    )
    module, other = config.modules
    key = 'tool.aotcuda.modules."mypkg.kernels"'
    assert (module.key, module.name, module.source) == (key, "mypkg.kernels", ("mypkg._kernels",))
    assert module.link == (
        LinkItem(key=f"{key}.link[0]", path="csrc/functions.cu"),
        LinkItem(
            key=f"{key}.link[1]", path="csrc/table.cu", setup="mypkg._hooks:upload", teardown="mypkg._hooks:release"
        ),
    )
    assert module.functions == (
        Function(key=f"{key}.functions.add_i32", name="add_i32", python="add", signature="int32(int32, int32)"),
        Function(
            key=f"{key}.functions.clamp", name="clamp", python="clamp", signature="float32(float32, float32, float32)"
        ),
    )
    signatures = ("void(float32, float32[::1])", "void(float64, float64[::1])")
    assert module.kernels == (
        Kernel(key=f"{key}.kernels.scale", name="scale", python="scale", signatures=signatures[:1]),
        Kernel(key=f"{key}.kernels.axpy", name="axpy", python="axpy", signatures=signatures),
        Kernel(
            key=f"{key}.kernels.tiled",
            name="tiled",
            python="matmul",
            signatures=("void(float32[:,::1])",),
            launch_bounds=(256, 2),
            cooperative=True,
        ),
    )
    assert (other.key, other.name) == ("tool.aotcuda.modules.plain", "plain")
    assert (module.frontend, other.frontend) == (None, "numba-cuda-mlir")


def with_nul(value: object) -> Iterator[object]:
    """Yield copies of a value, each with a NUL character in another string or key."""
    if isinstance(value, str):
        yield f"{value}\0"
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in with_nul(item))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield {f"{key}\0": item, **value}
            yield from ({**value, key: other} for other in with_nul(item))


def test_nul_in_any_string_is_refused() -> None:
    tables = [*with_nul(tomllib.loads(FULL))]
    assert len(tables) > 50
    for table in tables:
        with pytest.raises(ConfigError, match=r"^tool\.aotcuda\.\S.*: \".*\" has a NUL character; remove it$"):
            parse(table, environ={})  # type: ignore[arg-type]


def test_targets_are_sorted_without_duplicates() -> None:
    assert read(FULL).arch == tuple(target(text) for text in ("sm_75", "sm_90", "sm_90a", "compute_75", "compute_120f"))


def test_module_options_replace_common_options_by_key() -> None:
    module, other = read(FULL).modules
    assert other.options == Options(
        lineinfo=True,
        opt_level=2,
        max_registers=64,
        include_dirs=("csrc/include", "vendor"),
        defines=(("TILE", "16"), ("WIDE", "4"), ("FAST", "1"), ("SLOW", "0")),
        nvrtc_options=("--std=c++17",),
    )
    assert module.options == dataclasses.replace(other.options, fastmath=True, lineinfo=False, defines=(("TILE", "8"),))


def test_debug_turns_optimisation_off() -> None:
    module = 'source = "pkg._k", kernels = { axpy = "void(float32[:])" }'
    config = read(
        f"""
        arch = ["sm_90"]
        options = {{ debug = true, opt-level = 2 }}
        modules = {{ a = {{ {module} }}, b = {{ {module}, options = {{ debug = false }} }} }}
        """
    )
    assert config.options.opt_level == 0
    assert [(module.options.debug, module.options.opt_level) for module in config.modules] == [(True, 0), (False, 2)]


def test_signature_over_several_lines_becomes_one_line() -> None:
    text = MINIMAL.replace('"void(float32[:])"', '"""\n  void(float32,\n       float32[:])\n"""')
    assert read(text).modules[0].kernels[0].signatures == ("void(float32, float32[:])",)


@pytest.mark.parametrize("value", ["compute_80,sm_80", " sm_80 , compute_80 ;; sm_80 "])
def test_environment_replaces_arch(value: str) -> None:
    for text in (MINIMAL, MINIMAL.replace('arch = ["sm_90"]', "")):
        assert read(text, AOTCUDA_ARCH=value).arch == (target("sm_80"), target("compute_80"))


def test_alias_may_have_the_name_of_its_type() -> None:
    """`module:name` does not refer to the alias `name`."""
    table = {
        "arch": ["sm_90"],
        "types": {"particle": "mypkg.dtypes:particle", "particles": "particle[::1]"},
        "modules": {"mypkg.kernels": {"source": "mypkg._kernels", "kernels": {"k": "void(particles)"}}},
    }
    assert dict(parse(table, environ={}).types)["particle"] == "mypkg.dtypes:particle"


K = 'kernels = { axpy = "void(float32[:])" }'
ARCH = 'arch = ["sm_90"]'


def message(text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(tomllib.loads(text), environ=environ)
    return str(caught.value)


def top(text: str) -> str:
    """Return a configuration in which only the top-level keys of `text` are in doubt."""
    table = tomllib.loads(text)
    defaults = {"arch": '["sm_90"]', "modules": f'{{ "pkg.k" = {{ source = "pkg._k", {K} }} }}'}
    return text + "".join(f"\n{key} = {value}" for key, value in defaults.items() if key not in table)


def module(text: str) -> str:
    """Return a configuration in which only the keys of one module are in doubt."""
    table = tomllib.loads(text)
    defaults = {"source": 'source = "pkg._k"', "kernels": K}
    return "\n".join([ARCH, '[modules."pkg.k"]', text, *(line for key, line in defaults.items() if key not in table)])


SOURCE = f'{ARCH}\n[modules."pkg.k"]\nsource = "pkg._k"\n'
SECTIONS: dict[str, Callable[[str], str]] = {
    "common keys": top,
    "arch": top,
    "modules": module,
    "functions": lambda text: f'{SOURCE}{K}\n[modules."pkg.k".functions]\n{text}',
    "kernels": lambda text: f'{SOURCE}[modules."pkg.k".kernels]\n{text}',
    "module names": lambda text: f'{ARCH}\n[modules."{text}"]\nsource = "pkg._k"\n{K}',
    "clashes": lambda text: f"{ARCH}\n{text}",
}


@pytest.mark.parametrize(
    ("section", "text", "expected"),
    [
        pytest.param(section, *case.values, id=f"{section}-{case.id}")
        for section in SECTIONS
        for case in cases("config.txt", section).args[1]
    ],
)
def test_wrong_configuration_is_refused(section: str, text: str, expected: str) -> None:
    assert_message(message(SECTIONS[section](text)), expected)


@pytest.mark.parametrize("bad", ["sm_9", "sm_90b", "SM_90", "lto_90", "Native", "sm_90\n", "sm_\u0669\u0660"])
def test_unknown_target_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match=r"^tool\.aotcuda\.arch\[1\]: expected sm_XY \(machine code\) or compute_XY"):
        parse(tomllib.loads(top("")) | {"arch": ["sm_90", bad]}, environ={})


def test_missing_arch_shows_an_example() -> None:
    assert message("") == (
        "tool.aotcuda.arch: this key is missing; write for example "
        'arch = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_75"]'
    )


def test_invalid_variable_is_named_instead_of_the_key() -> None:
    assert message(top(""), AOTCUDA_ARCH="sm_80;sm80") == (
        'AOTCUDA_ARCH: expected sm_XY (machine code) or compute_XY (PTX), found the string "sm80"; write "sm_80"'
    )
    assert message(top(""), AOTCUDA_ARCH=" ; ,") == (
        "AOTCUDA_ARCH: the list names no target; write for example AOTCUDA_ARCH='sm_90;compute_75'"
    )


def test_two_modules_may_have_kernels_of_one_name() -> None:
    text = f'{ARCH}\n[modules.a]\nsource = "s"\n{K}\n[modules.ab]\nsource = "s"\n{K}'
    assert [item.name for item in parse(tomllib.loads(text), environ={}).modules] == ["a", "ab"]


def test_error_of_common_options_names_their_table() -> None:
    text = top("options.opt-level = 9").replace(K, f"{K}, options = {{ fastmath = true }}")
    assert message(text).startswith("tool.aotcuda.options.opt-level: ")


@pytest.mark.parametrize("front_end", registry.names())
def test_errors_end_with_an_example_for_the_front_end(front_end: str) -> None:
    start = f'{ARCH}\n[modules."pkg.k"]\nfrontend = "{front_end}"'
    accepted = {"source": 'source = "k.cu"' if front_end == "cuda-cpp" else 'source = "pkg._k"'}
    for key in ("source", "functions", "kernels"):
        lines = [line for name, line in accepted.items() if name != key]
        error = message("\n".join([start, *lines, f"{key} = 3", *([K] if key == "source" else [])]))
        example = error.partition("; write for example ")[2]
        if example:
            accepted[key] = example
        else:
            assert key == "functions"
            assert error.endswith("remove the key, or move it to a module of another front end")
    (config_module,) = parse(tomllib.loads("\n".join([start, *accepted.values()])), environ={}).modules
    assert config_module.frontend == front_end


FRONT_END_KEYS = [
    key for key, (_, setting) in settings.settings(Module).items() if isinstance(setting.shape, FrontEndValue)
]


@pytest.mark.parametrize("key", FRONT_END_KEYS)
@pytest.mark.parametrize("front_end", registry.names())
def test_each_front_end_reads_or_refuses_each_key(front_end: str, key: str) -> None:
    source = "" if key == "source" else f'source = "{"k.cu" if front_end == "cuda-cpp" else "pkg._k"}"'
    text = f'{ARCH}\n[modules."pkg.k"]\nfrontend = "{front_end}"\n{source}\n{key} = 3'
    shapes = loading.tables(front_end).SHAPES
    expected = ": expected " if key in shapes else f"{front_end} has no {key}; "
    assert expected in message(text)


def test_long_values_are_shortened() -> None:
    assert message(top(f'load = "{"z" * 1000}"')).count("z") == 57


def test_configuration_that_is_not_a_table_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^tool\.aotcuda: expected a table, found the integer 3$"):
        parse(3, environ={})  # type: ignore[arg-type]
