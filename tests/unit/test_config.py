"""Read `[tool.aotcuda]` into a Config."""

from __future__ import annotations

import dataclasses
import tomllib

import pytest

from aotcuda.arch import parse as target
from aotcuda.builder.config.model import Config, LinkItem, Options
from aotcuda.builder.config.parser import parse
from aotcuda.builder.frontends.numba.config import Function, Kernel

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
single = { signature = "void(int32[:])", launch-bounds = 128 }

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
    module, plain = config.modules
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
    assert [(kernel.name, kernel.python, kernel.launch_bounds, kernel.cooperative) for kernel in module.kernels] == [
        ("scale", "scale", (), False),
        ("axpy", "axpy", (), False),
        ("tiled", "matmul", (256, 2), True),
        ("single", "single", (128,), False),
    ]
    assert module.kernels[1] == Kernel(
        key=f"{key}.kernels.axpy",
        name="axpy",
        python="axpy",
        signatures=("void(float32, float32[::1])", "void(float64, float64[::1])"),
    )
    assert module.kernels[3].signatures == ("void(int32[:])",)
    assert (plain.key, plain.name) == ("tool.aotcuda.modules.plain", "plain")
    assert (module.frontend, plain.frontend) == (None, "numba-cuda-mlir")


def test_defaults() -> None:
    config = read(MINIMAL)
    assert (config.frontend, config.load, config.fallback, config.host_abi) == ("numba-cuda", "import", "jit", False)
    assert config.modules[0].options == Options()
    assert (Options().opt_level, Options().fastmath, Options().max_registers) == (3, False, 0)
    assert (config.modules[0].link, config.modules[0].functions) == ((), ())


def test_targets_are_sorted_without_duplicates() -> None:
    assert read(FULL).arch == tuple(target(text) for text in ("sm_75", "sm_90", "sm_90a", "compute_75", "compute_120f"))


def test_options_of_a_module_replace_the_common_ones_key_by_key() -> None:
    module, plain = read(FULL).modules
    assert plain.options == Options(
        lineinfo=True,
        opt_level=2,
        max_registers=64,
        include_dirs=("csrc/include", "vendor"),
        defines=(("TILE", "16"), ("WIDE", "4"), ("FAST", "1"), ("SLOW", "0")),
        nvrtc_options=("--std=c++17",),
    )
    assert module.options == dataclasses.replace(plain.options, fastmath=True, lineinfo=False, defines=(("TILE", "8"),))


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


def test_a_signature_over_several_lines_becomes_one_line() -> None:
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
