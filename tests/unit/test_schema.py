"""Compare the JSON schema and the reference page with the parser of `aotcuda.builder.config`."""

from __future__ import annotations

import copy
import functools
import operator
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import validate_pyproject.api
import validate_pyproject.errors
import validate_pyproject.plugins

from aotcuda.builder.config import schema
from aotcuda.builder.config.model import Options
from aotcuda.builder.config.parser import parse
from aotcuda.builder.config.settings import settings
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"

GOOD: dict[str, Any] = {
    "arch": ["sm_75", "sm_100f", "compute_90"],
    "frontend": "numba-cuda-mlir",
    "load": "first-use",
    "fallback": "error",
    "known-faults": "error",
    "incomplete": "error",
    "prelude": "pkg._prelude",
    "types": {"C2": "complex128[:, ::1]"},
    "host-abi": True,
    "options": {
        "fastmath": True,
        "lineinfo": False,
        "debug": False,
        "opt-level": 0,
        "max-registers": 255,
        "include-dirs": ["include"],
        "defines": {"TEXT": "text", "NUMBER": 3, "FLAG": True},
        "nvrtc-options": ["--std=c++17"],
    },
    "modules": {
        "pkg.kernels": {
            "source": "pkg._kernels",
            "frontend": "numba-cuda",
            "options": {"fastmath": False},
            "link": ["a.cu", {"path": "b.o", "setup": "pkg._hooks:setup", "teardown": "pkg._hooks:teardown"}],
            "functions": {"add": {"python": "plus", "signature": "int32(int32)"}, "clamp": "float32(float32)"},
            "kernels": {
                "one": "void(int32)",
                "several": ["void(int32)", "void(int64)"],
                "full": {
                    "python": "p",
                    "signatures": ["void(int8)"],
                    "launch-bounds": [256, 2, 1],
                    "cooperative": True,
                },
                "short": {"signature": "void(int8)", "launch-bounds": 64},
            },
        },
        "other": {"source": ["pkg.more", "pkg.again"], "functions": {"sub": "int32(int32)"}},
    },
}

OPEN = {"modules", "functions", "kernels", "defines", "types"}
"""Tables whose keys are names that the user chooses."""


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    jsonschema.Draft7Validator.check_schema(schema.tool_schema("aotcuda"))
    return jsonschema.Draft7Validator(schema.tool_schema("aotcuda"))


def is_accepted(table: dict[str, Any]) -> bool:
    try:
        parse(table, environ={})
    except ConfigError:
        return False
    return True


def places(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the path to each value inside `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def with_change(path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> dict[str, Any]:
    """Return GOOD after `change(container, key)` at `path`."""
    table = copy.deepcopy(GOOD)
    container: Any = table
    for key in path[:-1]:
        container = container[key]
    change(container, path[-1])
    return table


def replace_value(path: tuple[Any, ...], value: object) -> dict[str, Any]:
    return with_change(path, lambda container, key: container.__setitem__(key, value))


WRONG: list[object] = [
    None, True, 1, -1, 1000, 1.5, "", "text", "a b", "sm_9", "x.cpp", "a:b", [], [1], [1, 1, 1, 1], [""], {},
    {"zz": 1},
]  # fmt: skip


@pytest.mark.parametrize("path", list(places(GOOD)), ids=lambda path: ".".join(map(str, path)))
def test_schema_and_parser_agree(path: tuple[Any, ...], validator: jsonschema.Draft7Validator) -> None:
    tables = [replace_value(path, value) for value in WRONG]
    tables.append(with_change(path, lambda container, key: container.pop(key)))
    for table in tables:
        assert validator.is_valid(table) == is_accepted(table) or _is_beyond_the_schema(table), (path, table)


def _is_beyond_the_schema(table: dict[str, Any]) -> bool:
    """Return True if the parser refuses `table` for a reason that a schema cannot express."""
    with pytest.raises(ConfigError) as caught:
        parse(table, environ={})
    beyond = (
        "has neither functions nor kernels",
        "is not a Python identifier",
        "is none of the modules in",
        "builds pass only options of the language on",
        "are more than any GPU has",
    )
    return any(reason in str(caught.value) for reason in beyond)


def test_unknown_keys_are_refused_by_both(validator: jsonschema.Draft7Validator) -> None:
    for path in [(), *places(GOOD)]:
        is_table = isinstance(functools.reduce(operator.getitem, path, GOOD), dict)
        if is_table and not OPEN.intersection(path[-1:]):
            table = replace_value((*path, "unknown"), True)
            assert not validator.is_valid(table), path
            assert not is_accepted(table), path


def test_schema_and_parser_accept_the_good_table(validator: jsonschema.Draft7Validator) -> None:
    validator.validate(GOOD)
    assert is_accepted(GOOD)


def test_every_default_in_the_schema_is_the_parsers() -> None:
    properties = schema.tool_schema("aotcuda")["properties"]
    config = parse({name: GOOD[name] for name in ("arch", "modules")}, environ={})
    assert {key: value["default"] for key, value in properties.items() if "default" in value} == {
        "frontend": config.frontend,
        "load": config.load,
        "known-faults": config.known_faults,
        "incomplete": config.incomplete,
        "runtime": config.runtime,
        "fallback": config.fallback,
        "types": dict(config.types),
        "watch": [*config.watch],
        "watch-env": [*config.watch_env],
        "host-abi": config.host_abi,
    }
    options = properties["options"]["properties"]
    del options["fma"]  # each front end has a default of its own
    assert {key for key, value in options.items() if "default" in value} == set(options)
    explicit = {**GOOD, "options": {key: value["default"] for key, value in options.items()}}
    assert parse(explicit, environ={}).options == Options()


def test_every_key_has_a_meaning_and_a_valid_example() -> None:
    for _, _, cls in schema._SECTIONS:
        for name, (_, entry) in settings(cls).items():
            assert entry.meaning.endswith("."), name
            value = tomllib.loads(f"value = {entry.example}")["value"]
            assert jsonschema.Draft7Validator(entry.shape.schema()).is_valid(value), name


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        (("archs",), [], "tool.aotcuda"),
        (("modules", "pkg.kernels", "functions", "add"), {"sig": "int32(int32)"}, "kernels.functions"),
        (("modules", "pkg.kernels", "kernels", "one"), [1], "kernels.kernels"),
    ],
)
def test_validate_pyproject_refuses_wrong_tables(path: tuple[Any, ...], value: object, key: str) -> None:
    validate = validate_pyproject.api.Validator(
        [validate_pyproject.plugins.PluginWrapper("aotcuda", schema.tool_schema)]
    )
    validate({"project": {"name": "pkg", "version": "1"}, "tool": {"aotcuda": GOOD}})
    with pytest.raises(validate_pyproject.errors.ValidationError, match=re.escape(key)):
        validate({"tool": {"aotcuda": replace_value(path, value)}})


def test_page_has_the_generated_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert schema.replace_generated(page) == page, (
        "run python -m aotcuda.builder.config.schema --markdown docs/configuration.md"
    )


def test_examples_of_the_page_are_valid(validator: jsonschema.Draft7Validator) -> None:
    page = PAGE.read_text(encoding="utf-8")
    head, _, remainder = page.partition(schema.BEGIN)
    generated, _, tail = remainder.partition(schema.END)
    fences = re.compile(r"^```toml\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
    texts = [*fences.findall(head), "\n".join(fences.findall(generated)), *fences.findall(tail)]
    assert len(texts) > 1
    minimal = {
        "arch": ["sm_90"],
        "modules": {"mypkg.kernels": {"source": "mypkg._kernels", "kernels": {"k": "void()"}}},
    }
    for text in texts:
        table = minimal | tomllib.loads(text)["tool"]["aotcuda"]  # some show a part of a table
        validator.validate(table)
        parse(table, environ={})
