"""The shape that a manifest must have, as a table; checked where nothing vouches for a manifest's bytes.

The run time reads manifests whose SHA-256 the generated module knows, so it pays for none of this. `aotcuda inspect`
reads whatever it is given. The table says what `aotcuda.manifest` declares as types; a test holds the two together.
"""

from __future__ import annotations

import itertools
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Optional:
    """A key that may be missing."""

    def __init__(self, spec: object) -> None:
        self.spec = spec


class Mapping:
    """An object with any keys, whose values are of one shape."""

    def __init__(self, spec: object) -> None:
        self.spec = spec


class Either:
    """One of some strings."""

    def __init__(self, *values: str) -> None:
        self.values = values
        self.what = f"one of {', '.join(values)}"


class Maybe:
    """Null, or of that shape."""

    def __init__(self, spec: object) -> None:
        self.spec = spec


class Text:
    """A string of some form."""

    def __init__(self, pattern: str, what: str) -> None:
        self.pattern = re.compile(pattern, re.ASCII | re.DOTALL)
        self.what = what


class Below:
    """A whole number from 0 to one less than that."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.what = f"a whole number below {end:,}"


ARCH = Text(r"(sm|compute)_\d{2,3}[af]?", "a target such as sm_90")
VERSION = Text(r"\d{1,4}(\.\d{1,4}){0,3}", "a version")
DTYPE = Text(r"bfloat16|[<>|=][A-Za-z]\d{1,9}([\[{].*)?", "a type string")
BLOCK = Below(1 << 16)
"""An offset in the parameter block; the driver takes 32,764 bytes."""

# `int` stands for sizes and counts, `float` for whole numbers that may be negative.
FILE = {"path": str, "bytes": int, "sha256": str}
IMAGE = {
    "arch": ARCH,
    "kind": Either("sass", "ptx", "ltoir"),
    "bytes": int,
    "sha256": str,
    "min_driver": Optional(Maybe(str)),
}
PARAMETER: dict[str, Any] = {
    "name": str,
    "type": str,
    "kind": Either("scalar", "complex", "pointer", "datetime", "record", "array", "type", "tuple"),
    "offset": BLOCK,
    "format": Optional(Either(*"?bBhHiIqQefd")),
    "dtype": Optional(DTYPE),
    "ndim": Optional(Below(65)),
    "layout": Optional(Either(*"CFA")),
    "readonly": Optional(bool),
    "aligned": Optional(bool),
    "words": Optional([str]),
}
PARAMETER["members"] = Optional([PARAMETER])
RESOURCES = {"registers": int, "shared": int, "local": Maybe(int), "constant": int}
RAISED = {"code": int, "exception": str, "arguments": str, "function": str, "file": str, "line": int}
OVERLOAD = {
    "signature": str,
    "symbol": str,
    "parameters": [PARAMETER],
    "parameter_bytes": BLOCK,
    "cooperative": bool,
    "launch_bounds": [int],
    "carveout": Maybe(float),
    "resources": Mapping(RESOURCES),
    "raises": Optional([RAISED]),
}
KERNEL = {"name": str, "origin": str, "overloads": [OVERLOAD]}
FUNCTION = {
    "name": str,
    "origin": str,
    "signature": str,
    "abi": Either("c"),
    "prototype": str,
    "records": Optional(Mapping(object)),
}
CALLBACKS = {"setup": Maybe(str), "teardown": Maybe(str), "origin": str}
LINKED = {"name": str, "symbols": [str]}
SOURCE = {"path": str, "sha256": str}
READ = {"ask": str, "path": str, "answer": Maybe(object)}
REBUILD = {"table": Mapping(object), "names": Mapping([str]), "root": str, "files": [FILE]}
MANIFEST = {
    "format": int,
    "generator": str,
    "module": str,
    "frontend": str,
    "toolchain": Mapping(str),
    "min_driver": Maybe(str),
    "load": Either("import", "first-use"),
    "fallback": Either("jit", "error"),
    "options": Mapping(object),
    "files": {"kernels": Optional(FILE), "functions": Optional(FILE), "header": Optional(FILE)},
    "images": [IMAGE],
    "ltoir": [IMAGE],
    "kernels": [KERNEL],
    "functions": [FUNCTION],
    "callbacks": Optional([CALLBACKS]),
    "handle": Optional(str),
    "linked": Optional([LINKED]),
    "function_links": Optional([FILE]),
    "sources": [SOURCE],
    "reads": Optional([READ]),
    "variables": Optional(Mapping(Maybe(str))),
    "rebuild": Optional(REBUILD),
}

_NEEDED = {
    "scalar": ("format",),
    "complex": ("format",),
    "pointer": (),
    "datetime": ("dtype",),
    "record": ("dtype",),
    "array": ("dtype", "ndim", "layout", "words"),
    "type": ("dtype",),
    "tuple": ("members",),
}
"""By the `kind` of a parameter, the keys that it has."""

_WORD = re.compile(r"(?:zero|one|items|itemsize|data|(?:shape|stride|step)(\d{1,2}))", re.ASCII)

_NAMES = {
    str: "a string",
    int: "a whole number from 0 to 2**63 - 1",
    float: "a whole number",
    bool: "true or false",
}


def problem(value: object) -> str | None:
    """The first thing that is wrong with a manifest, and where: "kernels[3].name is not a string"; None if nothing is.

    Raises:
        RecursionError: Its parameters are nested too deeply.
    """
    return next(itertools.chain(_problems(value, MANIFEST, ""), _contradictions(value)), None)


def _contradictions(value: Any) -> Iterator[str]:
    """What is wrong with a manifest whose parts are right."""
    cuda = value["toolchain"].get("cuda")
    if cuda is not None:
        yield from _problems(cuda, VERSION, "toolchain.cuda")
    archs = [image["arch"] for image in value["images"]]
    if len(set(archs)) < len(archs):
        yield "images lists a target twice"


def _problems(value: Any, spec: Any, where: str) -> Iterator[str]:
    if isinstance(spec, Maybe):
        if value is not None:
            yield from _problems(value, spec.spec, where)
    elif isinstance(spec, list):
        yield from _list_problems(value, spec[0], where)
    elif isinstance(spec, (Mapping, dict)):
        yield from _object_problems(value, spec, where)
    elif not _fits(value, spec):
        yield f"{where} is not {_NAMES[spec] if isinstance(spec, type) else spec.what}"


def _list_problems(value: Any, spec: Any, where: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{where} is not a list"
    elif spec is not str or not all(isinstance(item, str) for item in value):
        for at, item in enumerate(value):
            yield from _problems(item, spec, f"{where}[{at}]")


def _object_problems(value: Any, spec: Mapping | dict[str, Any], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where or 'it'} is not an object"
        return
    if isinstance(spec, Mapping):
        for key, item in value.items():
            yield from _problems(item, spec.spec, f"{where}[{key[:80]!a}]")
        return
    inner = f"{where}." if where else ""
    for key, of in spec.items():
        is_optional = isinstance(of, Optional)
        if key in value:
            yield from _problems(value[key], of.spec if is_optional else of, inner + key)
        elif not is_optional:
            yield f"{inner}{key} is missing"
    if spec is PARAMETER:
        yield from _parameter_problems(value, inner)


def _parameter_problems(value: dict[str, Any], inner: str) -> Iterator[str]:
    """What a parameter whose parts are right lacks for its kind."""
    yield from (f"{inner}{key} is missing" for key in _NEEDED[value["kind"]] if key not in value)
    if value["kind"] != "array":
        return
    if not value["words"]:
        yield f"{inner}words is empty"
    for word in value["words"]:
        known = _WORD.fullmatch(word)
        if not known or int(known[1] or -1) >= value["ndim"]:
            yield f"{inner}words names something that an array of {value['ndim']} dimensions does not have"


def _fits(value: object, spec: Any) -> bool:
    if isinstance(spec, Either):
        return isinstance(value, str) and value in spec.values
    if isinstance(spec, Text):
        return isinstance(value, str) and spec.pattern.fullmatch(value) is not None
    if isinstance(spec, Below):
        return type(value) is int and 0 <= value < spec.end
    if spec in (int, float):
        return type(value) is int and (0 if spec is int else -(2**63)) <= value < 2**63
    return isinstance(value, spec)
