"""Cases about numbers: arithmetic of integers, casts, powers, rounding, comparisons and math functions.

Each table has expressions of `a[i]` and `b[i]`; a case is one of them for one combination of types, with values at the
edges of the types.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from slow.conformance.case import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("float32", "float64")
MIXED = (
    *(("int8", "uint8"), ("uint8", "int8"), ("int8", "int32"), ("uint8", "int32"), ("int16", "uint32")),
    *(("int32", "uint32"), ("uint32", "int32"), ("int32", "int64"), ("uint32", "int64"), ("int64", "uint32")),
    *(("uint32", "uint64"), ("uint8", "uint64"), ("uint16", "int64")),
)
"""Pairs of types whose integers Numba combines to int64 or uint64."""
PAIRS = (*((one, one) for one in INTEGERS), *MIXED)


def edges(name: str) -> list[int]:
    """Return integers around zero and at the ends of a type."""
    low, high = int(np.iinfo(name).min), int(np.iinfo(name).max)
    return [0, 1, 3, 100, high, high // 2, high // 2 + 1] if low == 0 else [0, 1, 3, -1, -7, high, low]


def combined(a: str, b: str) -> str:
    """Return the result type of an integer operation on two types: unsigned if both types are."""
    return "uint64" if a in UNSIGNED and b in UNSIGNED else "int64"


def elementwise(name: str, expression: str, out: str, *columns: np.ndarray, **fields: Any) -> Case:
    """Return a case in which each thread computes an expression of one element."""
    arguments = dict(zip("abc", columns, strict=False))
    arguments["out"] = np.zeros(columns[0].size, out)
    body = f"i = cuda.grid(1)\nif i < out.size:\n    out[i] = {expression}"
    return Case(name=name, body=body, arguments=arguments, threads=columns[0].size, **fields)


def _edge_pairs(a: str, b: str, fits: Callable[[int, int], bool]) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(x, y) for x, y in product(edges(a), edges(b)) if fits(x, y)]
    return np.array([x for x, _ in pairs], a), np.array([y for _, y in pairs], b)


def _always(_: int, __: int) -> bool:
    return True


def _divides(x: int, y: int) -> bool:
    return y != 0 and not (x == -(2**63) and y == -1)


_OPERATIONS: dict[str, tuple[str, Callable[[int, int], bool]]] = {
    "add": ("a[i] + b[i]", _always),
    "subtract": ("a[i] - b[i]", _always),
    "multiply": ("a[i] * b[i]", _always),
    "floor-divide": ("a[i] // b[i]", _divides),
    "modulo": ("a[i] % b[i]", _divides),
    "and": ("a[i] & b[i]", _always),
    "or": ("a[i] | b[i]", _always),
    "xor": ("a[i] ^ b[i]", _always),
    "min": ("min(a[i], b[i])", _always),
    "max": ("max(a[i], b[i])", _always),
}


def _binary() -> Iterator[Case]:
    for (name, (expression, fits)), (a, b) in product(_OPERATIONS.items(), PAIRS):
        yield elementwise(f"{name}/{a}-{b}", expression, combined(a, b), *_edge_pairs(a, b, fits))
    for name, expression in (("add", "a[i] + b[i]"), ("subtract", "a[i] - b[i]"), ("multiply", "a[i] * b[i]")):
        for a, b in (("int32", "uint64"), ("uint64", "int64")):
            yield elementwise(
                f"{name}/{a}-{b}",
                expression,
                "float64",
                *_edge_pairs(a, b, _always),
                oracle="numba-cuda",
                why=_AS_SIGNED,
            )
    for a, b in PAIRS:
        columns = _edge_pairs(a, b, lambda _, y: y != 0)
        reference = "i = cuda.grid(1)\nout[i] = float(a[i]) / float(b[i])"
        yield elementwise(f"true-divide/{a}-{b}", "a[i] / b[i]", "float64", *columns, reference=reference)
    for a, b in (*PAIRS, ("int64", "uint64"), ("uint64", "int32")):
        oracle = {} if (a, b) in PAIRS else {"oracle": "numba-cuda", "why": _AS_SIGNED}
        lines = [f"    if a[i] {sign} b[i]:\n        bits += {1 << n}" for n, sign in enumerate(_SIGNS)]
        body = "\n".join(["i = cuda.grid(1)", "if i < out.size:", "    bits = 0", *lines, "    out[i] = bits"])
        x, y = _edge_pairs(a, b, _always)
        arguments = {"a": x, "b": y, "out": np.zeros(x.size, "int64")}
        yield Case(name=f"compare/{a}-{b}", body=body, arguments=arguments, threads=x.size, **oracle)


_AS_SIGNED = "uint64 with a signed integer: float64 in NumPy and Numba, and numba-cuda computes them as int64"
KEEPS_TYPE = "a negated, inverted or absolute integer: int64 in Numba, and numba-cuda keeps the type"
_SIGNS = ("<", "<=", ">", ">=", "==", "!=")


def _shifts() -> Iterator[Case]:
    for a in INTEGERS:
        bits = np.iinfo(a).bits
        by = [0, 1, 3, bits - 1, bits, 63]
        columns = [np.array(column) for column in zip(*product(edges(a), by), strict=True)]
        value = np.array([x for x, _ in product(edges(a), by)], a)
        for name, sign in (("shift-left", "<<"), ("shift-right", ">>")):
            for b in ("int64", "uint8"):
                amount = columns[1].astype(b)
                yield elementwise(f"{name}/{a}-{b}", f"a[i] {sign} b[i]", combined(a, b), value, amount)
            yield elementwise(f"{name}-by-constant/{a}", f"a[i] {sign} 3", combined(a, "int64"), np.array(edges(a), a))


_UNARY = {
    "negate": "-a[i]",
    "invert": "~a[i]",
    "absolute": "abs(a[i])",
    "not": "not a[i]",
    "truth": "bool(a[i])",
    "to-float": "float(a[i])",
    "square": "a[i] ** 2",
    "cube": "a[i] ** 3",
    "fourth-power": "a[i] ** 4",
    "plus-literal": "a[i] + 1",
    "times-literal": "a[i] * -3",
    "literal-minus": "2 - a[i]",
}


def _unary() -> Iterator[Case]:
    for (name, expression), a in product(_UNARY.items(), INTEGERS):
        signed = a in SIGNED or name in ("negate", "times-literal", "literal-minus", "plus-literal")
        out = {"not": "boolean", "truth": "boolean", "to-float": "float64"}.get(name, "int64" if signed else "uint64")
        if a == "uint64" and "literal" in name:
            continue  # a float64: in `float-arithmetic`
        column = np.array(edges(a), a)
        if name in _EXPONENTS:
            column = np.array([x for x in _bases(a) if abs(x) ** _EXPONENTS[name] < _EXACT], a)
        keeps_type = name in ("negate", "invert", "absolute") and a not in ("int64", "uint64")
        oracle = {"oracle": "numba-cuda", "why": KEEPS_TYPE} if keeps_type else {}
        yield elementwise(f"{name}/{a}", expression, out.replace("boolean", "bool"), column, **oracle)


_NARROW_POWER = "float32 to a power of int32 or int64: float64 in NumPy, and numba-cuda computes it in float32"
_EXPONENTS = {"square": 2, "cube": 3, "fourth-power": 4}
_EXACT = 2**53
"""The smallest number from which powers are inexact in float64, in which numba-cuda computes them."""


def _bases(a: str) -> list[int]:
    info = np.iinfo(a)
    return [x for x in (0, 1, 2, 3, -1, -7, 100, 200, 3000, 46341, 70000, 2**20 + 1) if info.min <= x <= info.max]


def _powers() -> Iterator[Case]:
    for a, b in PAIRS:
        pairs = [(x, y) for x in _bases(a) for y in (0, 1, 2, 3, 5, 8) if abs(x) ** y < _EXACT]
        x, y = np.array([x for x, _ in pairs], a), np.array([y for _, y in pairs], b)
        yield elementwise(f"power/{a}-{b}", "a[i] ** b[i]", combined(a, b), x, y)
    for a in FLOATS:
        values = np.array([0.0, 1.0, -1.5, 2.5, -3.0, 1e3, 0.1], a)
        for exponent in (2, 3, 4, -1, -2):
            rows = values[1:] if exponent < 0 else values
            yield elementwise(f"float-power/{a}-{exponent}", f"a[i] ** {exponent}", a, rows, ulps=2)
        for b in ("int32", "uint8", "int64"):
            pairs = [(float(x), y) for x in values[1:] for y in (0, 1, 2, 5)]
            columns = (np.array([x for x, _ in pairs], a), np.array([y for _, y in pairs], b))
            out = "float64" if a == "float64" or b != "uint8" else a
            narrow = a == "float32" and b != "uint8"
            oracle = {"oracle": "numba-cuda", "why": _NARROW_POWER} if narrow else {}
            ulps = 4 if out == "float64" else 8
            yield elementwise(f"float-power/{a}-{b}", "a[i] ** b[i]", out, *columns, ulps=ulps, **oracle)
    for a in ("int32", "uint32", "int64"):
        values = np.array([1, 2, 3, 10], a)
        yield elementwise(f"power-of-float/{a}", "a[i] ** 0.5", "float64", values, ulps=4)


def _casts() -> Iterator[Case]:
    for source, target in product(INTEGERS, INTEGERS):
        yield elementwise(f"cast/{source}-{target}", f"cuda.{target}(a[i])", target, np.array(edges(source), source))
        if source != target:
            yield elementwise(f"store/{source}-{target}", "a[i]", target, np.array(edges(source), source))
    for source, target in product(INTEGERS, FLOATS):
        yield elementwise(f"cast/{source}-{target}", f"cuda.{target}(a[i])", target, np.array(edges(source), source))
        yield elementwise(f"store/{source}-{target}", "a[i]", target, np.array(edges(source), source))
    for source, target in product(FLOATS, INTEGERS):
        values = [0.0, 0.5, 1.5, 100.75, 127.0, *([] if target in UNSIGNED else [-0.5, -1.5, -100.75, -128.0])]
        high = float(2 ** (min(np.iinfo(target).bits, 60) - 1))
        column = np.array([*values, *([high] if target in UNSIGNED else [])], source)
        yield elementwise(f"cast/{source}-{target}", f"cuda.{target}(a[i])", target, column)
        yield elementwise(f"store/{source}-{target}", "a[i]", target, column)
        outside = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, -1.0, 2.0**40], source)
        why = "Python and NumPy do not define the conversion of floats that are out of range"
        yield elementwise(
            f"cast-out-of-range/{source}-{target}",
            f"cuda.{target}(a[i])",
            target,
            outside,
            oracle="numba-cuda",
            why=why,
        )
    for source in FLOATS:
        column = np.array([0.0, -0.0, 0.5, 1e10, np.inf, np.nan, 1.0000000001, 3e38], source)
        for target in FLOATS:
            yield elementwise(f"cast/{source}-{target}", f"cuda.{target}(a[i])", target, column)
        yield elementwise(
            f"cast/{source}-int", "int(a[i])", "int64", np.array([0.5, -0.5, 2.5, -2.5, 1e15, -7.9], source)
        )
        yield elementwise(f"truth/{source}", "bool(a[i])", "bool", column)
        yield elementwise(f"not/{source}", "not a[i]", "bool", column)
    for target in (*INTEGERS, *FLOATS):
        yield elementwise(f"cast/bool-{target}", f"cuda.{target}(a[i])", target, np.array([True, False]))
        yield elementwise(f"store/bool-{target}", "a[i]", target, np.array([True, False]))


def _bools() -> Iterator[Case]:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    for name, expression, out in (
        ("add", "a[i] + b[i]", "int64"),
        ("multiply", "a[i] * b[i]", "int64"),
        ("and", "a[i] & b[i]", "bool"),
        ("or", "a[i] | b[i]", "bool"),
        ("xor", "a[i] ^ b[i]", "bool"),
        ("logical-and", "a[i] and b[i]", "bool"),
        ("logical-or", "a[i] or not b[i]", "bool"),
        ("equal", "a[i] == b[i]", "bool"),
        ("less", "a[i] < b[i]", "bool"),
        ("conditional", "5 if a[i] else -5", "int64"),
        ("of-comparison", "(a[i] == b[i]) + 1", "int64"),
        ("sum-of-comparisons", "(a[i] > b[i]) + (a[i] >= b[i])", "int64"),
    ):
        yield elementwise(f"bool/{name}", expression, out, a, b)
    for c in ("int8", "uint8", "int32", "float32"):
        x = np.array([1, 2, 3, 100], c)
        yield elementwise(f"bool/add-{c}", "a[i] + b[i]", "float32" if c == "float32" else combined(c, c), a, x)


_TIES = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, 2.51, -2.49, 7.0, 1e9 + 0.5, 0.0]


def _rounding() -> Iterator[Case]:
    for a in FLOATS:
        column = np.array(_TIES, a)
        for name, expression in (
            *(("round", "round(a[i])"), ("floor", "math.floor(a[i])"), ("ceil", "math.ceil(a[i])")),
            *(("trunc", "math.trunc(a[i])"), ("int", "int(a[i])")),
        ):
            yield elementwise(f"round/{name}-{a}", expression, "int64", column)
        for digits in (0, 1, 2):
            values = np.array([0.5, 1.5, 2.5, -2.5, 1.25, -0.125, 3.14159, 1e5], a)
            reference = f"i = cuda.grid(1)\nout[i] = round(float(a[i]), {digits})"
            expression = f"round(a[i], {digits})"
            yield elementwise(f"round/to-{digits}-{a}", expression, a, values, reference=reference, ulps=1)
    for a, b in product(FLOATS, FLOATS):
        pairs = [(x, y) for x in (5.5, -5.5, 1e10, 0.25, -7.0) for y in (2.0, -2.0, 0.5, -3.0)]
        columns = (np.array([x for x, _ in pairs], a), np.array([y for _, y in pairs], b))
        out = "float64" if "float64" in (a, b) else "float32"
        for name, expression in (
            *(("floor-divide", "a[i] // b[i]"), ("modulo", "a[i] % b[i]"), ("divide", "a[i] / b[i]")),
            *(("add", "a[i] + b[i]"), ("subtract", "a[i] - b[i]"), ("multiply", "a[i] * b[i]")),
        ):
            yield elementwise(f"float-arithmetic/{name}-{a}-{b}", expression, out, *columns, ulps=1)
    for a, b in (
        ("int32", "float32"),
        ("int8", "float32"),
        ("uint32", "float64"),
        ("int64", "float32"),
        ("uint64", "float64"),
    ):
        x = np.array(edges(a), a)
        y = np.array([0.5, -2.0, 3.25, 1.0, 8.0, -0.125, 2.0], b)
        out = "float32" if (a, b) == ("int8", "float32") else "float64"
        for name, sign in (("add", "+"), ("multiply", "*"), ("divide", "/"), ("floor-divide", "//")):
            expression = f"a[i] {sign} b[i]"
            reference = f"i = cuda.grid(1)\nout[i] = np.{out}(a[i]) {sign} np.{out}(b[i])"
            yield elementwise(f"float-arithmetic/{name}-{a}-{b}", expression, out, x, y, reference=reference, ulps=1)
    for literal in ("1", "-3"):
        name, column = f"float-arithmetic/uint64-plus-{literal}", np.array(edges("uint64"), "uint64")
        yield elementwise(name, f"a[i] + {literal}", "float64", column, oracle="numba-cuda", why=_AS_SIGNED)


def _extremes() -> Iterator[Case]:
    why = "min and max of NaN: Numba takes the number, and Python the first or the second argument"
    for a in FLOATS:
        values = [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf]
        x, y = (np.array(column, a) for column in zip(*product(values[2:], values), strict=True))
        yield elementwise(f"min/{a}", "min(a[i], b[i])", a, x, y)
        yield elementwise(f"max/{a}", "max(a[i], b[i])", a, x, y)
        odd = np.array([np.nan, 1.0, np.nan], a), np.array([1.0, np.nan, np.nan], a)
        yield elementwise(f"min/nan-{a}", "min(a[i], b[i])", a, *odd, oracle="numba-cuda", why=why)
        yield elementwise(f"max/nan-{a}", "max(a[i], b[i])", a, *odd, oracle="numba-cuda", why=why)
        x, y = (np.array(column, a) for column in zip(*product([*values, np.nan], [*values, np.nan]), strict=True))
        lines = [f"    if a[i] {sign} b[i]:\n        bits += {1 << n}" for n, sign in enumerate(_SIGNS)]
        body = "\n".join(["i = cuda.grid(1)", "if i < out.size:", "    bits = 0", *lines, "    out[i] = bits"])
        yield Case(
            name=f"compare/{a}", body=body, arguments={"a": x, "b": y, "out": np.zeros(x.size, "int64")}, threads=x.size
        )
    x, y = np.array([3, -3, 2**31 - 1, 5], "int32"), np.array([2.5, -3.5, 1.0, 5.0], "float64")
    yield elementwise("min/int32-float64", "min(a[i], b[i])", "float64", x, y)
    yield elementwise("max/int32-float64", "max(a[i], b[i])", "float64", x, y)
    yield elementwise("min/three", "min(a[i], b[i], 1)", "int64", x, np.array([7, -9, 0, 1], "int64"))
    for a, b in (("int64", "float64"), ("uint32", "float32"), ("uint64", "float64")):
        x, y = np.array(edges(a), a), np.array([0.5, -1.0, 3.0, 1e3, 2e19, -7.0, 4e9], b)
        yield elementwise(f"compare/{a}-{b}", "a[i] < b[i]", "bool", x, y)


_FUNCTIONS: dict[str, tuple[str, Sequence[float], int]] = {
    "sqrt": ("math.sqrt(a[i])", (0.0, 2.0, 1e10, 0.1), 0),
    "exp": ("math.exp(a[i])", (0.0, 1.0, -3.5, 10.0), 2),
    "expm1": ("math.expm1(a[i])", (0.0, 1e-5, -3.5, 2.0), 2),
    "log": ("math.log(a[i])", (0.5, 1.0, 10.0, 1e10), 2),
    "log1p": ("math.log1p(a[i])", (0.5, 1e-6, 10.0, 0.0), 2),
    "log2": ("math.log2(a[i])", (0.5, 1.0, 10.0, 1024.0), 2),
    "log10": ("math.log10(a[i])", (0.5, 1.0, 10.0, 1000.0), 3),
    "sin": ("math.sin(a[i])", (0.0, 1.0, -2.5, 100.0), 2),
    "cos": ("math.cos(a[i])", (0.0, 1.0, -2.5, 100.0), 2),
    "tan": ("math.tan(a[i])", (0.0, 1.0, -2.5, 0.1), 4),
    "asin": ("math.asin(a[i])", (0.0, 1.0, -0.5, 0.1), 4),
    "acos": ("math.acos(a[i])", (0.0, 1.0, -0.5, 0.1), 4),
    "atan": ("math.atan(a[i])", (0.0, 1.0, -0.5, 100.0), 4),
    "sinh": ("math.sinh(a[i])", (0.0, 1.0, -2.5, 3.0), 4),
    "cosh": ("math.cosh(a[i])", (0.0, 1.0, -2.5, 3.0), 4),
    "tanh": ("math.tanh(a[i])", (0.0, 1.0, -2.5, 0.1), 4),
    "fabs": ("math.fabs(a[i])", (0.0, -1.0, 2.5, -1e30), 0),
    "isnan": ("math.isnan(a[i])", (0.0, float("nan"), float("inf"), 1.0), 0),
    "isinf": ("math.isinf(a[i])", (0.0, float("nan"), float("inf"), float("-inf")), 0),
    "isfinite": ("math.isfinite(a[i])", (0.0, float("nan"), float("inf"), 1.0), 0),
    "erf": ("math.erf(a[i])", (0.0, 0.5, -1.5, 2.0), 4),
    "degrees": ("math.degrees(a[i])", (0.0, 1.0, -2.5, 10.0), 2),
    "radians": ("math.radians(a[i])", (0.0, 90.0, -180.0, 10.0), 2),
}

_FUNCTIONS_OF_TWO: dict[str, tuple[str, Sequence[tuple[float, float]], int]] = {
    "pow": ("math.pow(a[i], b[i])", ((2.0, 0.5), (10.0, -2.0), (-2.0, 3.0), (1.5, 10.0)), 4),
    "atan2": ("math.atan2(a[i], b[i])", ((1.0, 1.0), (-1.0, 2.0), (0.0, -1.0), (3.0, -4.0)), 4),
    "hypot": ("math.hypot(a[i], b[i])", ((3.0, 4.0), (-1.0, 2.0), (0.0, -1.0), (1e10, 1.0)), 2),
    "fmod": ("math.fmod(a[i], b[i])", ((5.5, 2.0), (-5.5, 2.0), (5.5, -2.0), (1e5, 0.3)), 0),
    "copysign": ("math.copysign(a[i], b[i])", ((5.5, -2.0), (-5.5, 2.0), (0.0, -0.0), (1.0, -1.0)), 0),
}


def _functions() -> Iterator[Case]:
    truth = ("isnan", "isinf", "isfinite")
    for (name, (expression, values, ulps)), a in product(_FUNCTIONS.items(), FLOATS):
        column = np.array(values, a)
        out = "bool" if name in truth else a
        yield elementwise(f"math/{name}-{a}", expression, out, column, ulps=ulps)
    for (name, (expression, rows, ulps)), a in product(_FUNCTIONS_OF_TWO.items(), FLOATS):
        columns = [np.array(column, a) for column in zip(*rows, strict=True)]
        yield elementwise(f"math/{name}-{a}", expression, a, *columns, ulps=ulps)
    for name, a in product(("sqrt", "exp", "log", "sin", "floor", "ceil", "fabs"), INTEGERS):
        out = "int64" if name in ("floor", "ceil") else "float64"
        column = np.array([1, 2, 3, 100], a)
        if name == "sqrt":
            column = np.array([2, 3, np.iinfo(a).max, 99], a)
        yield elementwise(f"math/{name}-{a}", f"math.{name}(a[i])", out, column, ulps=2)
    for a in FLOATS:
        x = np.array([1.1, -2.0, 1e8, 3.0], a)
        y = np.array([1.1, 0.5, 1e8, 1 / 3], a)
        z = np.array([-1.21, 1.0, -1e16, -1.0], a)
        if a == "float32":  # exact in float64, rounded once
            yield elementwise(f"math/fma-{a}", "cuda.fma(a[i], b[i], c[i])", a, x, y, z)
        yield elementwise(f"math/product-and-sum-{a}", "a[i] * b[i] - a[i]", a, x, y, ulps=4)
    for a in ("int32", "uint32", "int64", "uint64"):
        column = np.array(edges(a), a)
        mask = (1 << np.iinfo(a).bits) - 1
        reference = f"i = cuda.grid(1)\nout[i] = cuda.popc(a[i] & {mask})"
        yield elementwise(f"bits/popc-{a}", "cuda.popc(a[i])", "int64", column, reference=reference)
        leading = f"i = cuda.grid(1)\nout[i] = {np.iinfo(a).bits} - (a[i] & {mask}).bit_length()"
        yield elementwise(f"bits/clz-{a}", "cuda.clz(a[i])", "int64", column, reference=leading)
    for a in (*INTEGERS, *FLOATS):
        x, y = np.array([1, 2, 3, 4], a), np.array([5, 6, 7, 100], a)
        choice = np.array([True, False, True, False])
        yield elementwise(f"select/{a}", "cuda.selp(c[i], a[i], b[i])", a, x, y, choice)
        yield elementwise(f"conditional/{a}", "a[i] if c[i] else b[i]", a, x, y, choice)


def _complex() -> Iterator[Case]:
    for a, real in (("complex64", "float32"), ("complex128", "float64")):
        x = np.array([1 + 2j, -3.5 + 0.25j, 2 - 1j, 0.5j], a)
        y = np.array([0.5 - 1j, 2 + 2j, -1 + 0.125j, 3], a)
        for name, expression in (
            *(("add", "a[i] + b[i]"), ("subtract", "a[i] - b[i]"), ("multiply", "a[i] * b[i]")),
            *(
                ("divide", "a[i] / b[i]"),
                ("negate", "-a[i]"),
                ("times-real", "a[i] * 2"),
                ("conjugate", "a[i].conjugate()"),
            ),
        ):
            yield elementwise(f"complex/{name}-{a}", expression, a, x, y, ulps=4)
        for name, expression in (("real", "a[i].real"), ("imag", "a[i].imag"), ("abs", "abs(a[i])")):
            yield elementwise(f"complex/{name}-{a}", expression, real, x, y, ulps=4)
        yield elementwise(f"complex/equal-{a}", "a[i] == b[i]", "bool", x, np.array([*x[:2], *y[:2]], a))
        yield elementwise(f"complex/of-parts-{a}", "complex(a[i], b[i])", a, x.real.copy(), y.imag.copy())


def cases() -> Iterator[Case]:
    """Return all cases about numbers."""
    for part in (_binary, _shifts, _unary, _powers, _casts, _bools, _rounding, _extremes, _functions, _complex):
        yield from part()
