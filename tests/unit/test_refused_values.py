"""Test that values without a meaning are refused: layouts, launch bounds, patterns, environment variables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from numba.core import sigutils
from numba.cuda import types
from numba.np import numpy_support

from aotcuda.builder.cache import stamps
from aotcuda.builder.config import parser
from aotcuda.builder.frontends.numba import jit_options
from aotcuda.builder.frontends.numba.type_notation import Notation
from aotcuda.cli import main
from aotcuda.common import variables
from aotcuda.errors import CompileError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "layout", ["[::1, ::1]", "[::1, ::1, ::1]", "[:, ::1, :]", "[::2]", "[0:5]", "[1:]", "[:, 0:1]", "[::-1]"]
)
def test_brackets_without_layout_are_refused(layout: str) -> None:
    for text in ("void(float32{})", "void((int32, float32{}))", "int32(complex64{}, int64)"):
        with pytest.raises(ValueError, match=r"is not a layout; write \["):
            Notation(types, sigutils, numpy_support).parse(text.format(layout), {})


def test_layouts_are_read() -> None:
    for layout in ("[:]", "[::1]", "[:,:]", "[:, ::1]", "[::1, :]", "[ : , : , ::1 ]", "[::1,:,:]"):
        (array,), _ = Notation(types, sigutils, numpy_support).parse(f"void(float32{layout})", {})
        assert array.ndim == layout.count(",") + 1


BOUNDS: tuple[tuple[Any, str], ...] = (
    ((256, 2, 1, 5), "expected one to three positive integers"),
    ("256", "expected one to three positive integers"),
    (True, "expected one to three positive integers"),
    (0, "expected one to three positive integers"),
    ((256, -1), "expected one to three positive integers"),
    (5000, "5000 threads of a block are more than any GPU has (1024)"),
    ((256, 100), "100 blocks of a multiprocessor are more than any GPU has (32)"),
    ((512, 8), "4096 threads of a multiprocessor are more than any GPU has (2048)"),
    ((256, 2, 99), "99 blocks of a cluster are more than any GPU has (16)"),
)


@pytest.mark.parametrize(("bounds", "text"), BOUNDS)
def test_launch_bounds_of_decorator_are_checked(bounds: object, text: str) -> None:
    unit: Any = SimpleNamespace(key="tool.aotcuda.kernels.k", python="k")
    with pytest.raises(CompileError) as error:
        jit_options._bounds(unit, bounds)
    assert str(error.value).startswith(f"tool.aotcuda.kernels.k: @cuda.jit(launch_bounds={bounds!r}) of k: {text}")


@pytest.mark.parametrize(("bounds", "text"), BOUNDS[-3:])
def test_launch_bounds_of_table_are_checked(bounds: tuple[int, ...], text: str) -> None:
    kernel = {"signature": "void(int32)", "launch-bounds": list(bounds)}
    table = {"arch": ["sm_90"], "modules": {"pkg.k": {"source": "pkg._k", "kernels": {"k": kernel}}}}
    with pytest.raises(ConfigError) as error:
        parser.parse(table, environ={})
    assert str(error.value).startswith(f'tool.aotcuda.modules."pkg.k".kernels.k.launch-bounds: {text}')


@pytest.mark.parametrize(
    ("bounds", "expected"), [(None, ()), (256, (256,)), ([1024], (1024,)), ((256, 8), (256, 8)), ((128, 16, 16),) * 2]
)
def test_valid_launch_bounds_are_accepted(bounds: object, expected: tuple[int, ...]) -> None:
    unit: Any = SimpleNamespace(key="k", python="k")
    assert jit_options._bounds(unit, bounds) == expected


@pytest.mark.parametrize("pattern", ["data/*.h5", "nothing", "/no/such/file", "**/*.csv"])
def test_pattern_without_matches_causes_warning(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "data").mkdir()
    (error,) = stamps.watch_warnings(["data", pattern], tmp_path)
    assert error == f"tool.aotcuda.watch[1]: {pattern!r} matches no file in {tmp_path}; correct it, or add one"


@pytest.mark.parametrize("name", variables.VALUES)
def test_unknown_value_of_variable_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "ture")
    assert main(["cache", "dir"]) == 1
    assert capsys.readouterr().err.startswith(f"aotcuda: {name} is 'ture'; write '")
    assert main(["doctor"]) == 0
    assert f"{name}=ture ({name} is 'ture'; write '" in capsys.readouterr().out
    for value in ("", *variables.VALUES[name]):
        monkeypatch.setenv(name, value)
        variables.check()
