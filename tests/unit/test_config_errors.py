"""Errors of `[tool.aotcuda]` name the key, the fact and the remedy; tests/data/errors/config.txt has the cases."""

from __future__ import annotations

import tomllib

import pytest

from aotcuda import registry
from aotcuda.builder.config.parser import parse
from aotcuda.errors import ConfigError
from support.errors import assert_message, cases

K = 'kernels = { axpy = "void(float32[:])" }'
ARCH = 'arch = ["sm_90"]'


def message(text: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(tomllib.loads(text), environ=environ)
    return str(caught.value)


def assert_refused(text: str, expected: str) -> None:
    assert_message(message(text), expected)


def top(text: str) -> str:
    """Return a configuration in which only the top-level keys in `text` are in doubt."""
    given = tomllib.loads(text)
    rest = {"arch": '["sm_90"]', "modules": f'{{ "pkg.k" = {{ source = "pkg._k", {K} }} }}'}
    return text + "".join(f"\n{key} = {value}" for key, value in rest.items() if key not in given)


def module(text: str) -> str:
    """Return the same for keys of one module."""
    given = tomllib.loads(text)
    rest = {"source": 'source = "pkg._k"', "kernels": K}
    return "\n".join([ARCH, '[modules."pkg.k"]', text, *(line for key, line in rest.items() if key not in given)])


FUNCTIONS = f'{ARCH}\n[modules."pkg.k"]\nsource = "pkg._k"\n{K}\n[modules."pkg.k".functions]\n'
KERNELS = f'{ARCH}\n[modules."pkg.k"]\nsource = "pkg._k"\n[modules."pkg.k".kernels]\n'


@cases("config.txt", "common keys")
def test_common_keys(text: str, expected: str) -> None:
    assert_refused(top(text), expected)


@cases("config.txt", "arch")
def test_arch(text: str, expected: str) -> None:
    assert_refused(top(text), expected)


@cases("config.txt", "modules")
def test_modules(text: str, expected: str) -> None:
    assert_refused(module(text), expected)


@cases("config.txt", "functions")
def test_functions(text: str, expected: str) -> None:
    assert_refused(FUNCTIONS + text, expected)


@cases("config.txt", "kernels")
def test_kernels(text: str, expected: str) -> None:
    assert_refused(KERNELS + text, expected)


@cases("config.txt", "module names")
def test_module_names(text: str, expected: str) -> None:
    assert_refused(f'{ARCH}\n[modules."{text}"]\nsource = "pkg._k"\n{K}', expected)


@cases("config.txt", "what clashes")
def test_clashing_names(text: str, expected: str) -> None:
    assert_refused(f"{ARCH}\n{text}", expected)


@pytest.mark.parametrize("bad", ["sm_9", "sm_90b", "SM_90", "lto_90", "Native", "sm_90\n", "sm_\u0669\u0660"])
def test_unknown_target_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match=r"^tool\.aotcuda\.arch\[1\]: expected sm_XY \(machine code\) or compute_XY"):
        parse(tomllib.loads(top("")) | {"arch": ["sm_90", bad]}, environ={})


def test_missing_arch_shows_an_example() -> None:
    assert_refused(
        "",
        "tool.aotcuda.arch: this key is missing; write for example "
        'arch = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_75"]',
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
    assert [one.name for one in parse(tomllib.loads(text), environ={}).modules] == ["a", "ab"]


def test_error_of_common_options_names_their_table() -> None:
    text = top("options.opt-level = 9").replace(K, f"{K}, options = {{ fastmath = true }}")
    assert message(text).startswith("tool.aotcuda.options.opt-level: ")


@pytest.mark.parametrize("front_end", registry.names())
def test_errors_end_with_an_example_for_the_front_end(front_end: str) -> None:
    start = f'{ARCH}\n[modules."pkg.k"]\nfrontend = "{front_end}"'
    accepted = {"source": 'source = "k.cu"' if front_end == "cuda-cpp" else 'source = "pkg._k"'}
    for key in ("source", "functions", "kernels"):
        others = [line for name, line in accepted.items() if name != key]
        error = message("\n".join([start, *others, f"{key} = 3", *([K] if key == "source" else [])]))
        example = error.partition("; write for example ")[2]
        if example:
            accepted[key] = example
        else:
            assert key == "functions"
            assert error.endswith("remove them, or move them to a module of another front end")
    (found,) = parse(tomllib.loads("\n".join([start, *accepted.values()])), environ={}).modules
    assert found.frontend == front_end


def test_long_values_are_shortened() -> None:
    assert message(top(f'load = "{"z" * 1000}"')).count("z") == 57


def test_configuration_that_is_not_a_table_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^tool\.aotcuda: expected a table, found the integer 3$"):
        parse(3, environ={})  # type: ignore[arg-type]
