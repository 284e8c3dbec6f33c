"""Compile settings of one function, written into its LLVM IR.

Code is generated in the link, for a whole image, and LTOIR does not keep NVVM's options. What a function has in its
instructions and attributes stays with it, also where another project links it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aotcuda.builder.config.model import Options

_VALUE = r"%\"[^\"]*\"|[^\s,]+"
_FLAGS = "fast|nnan|ninf|nsz|arcp|contract|afn|reassoc"
_ARITHMETIC = re.compile(
    rf"^(?P<indent>\s*)(?P<result>{_VALUE}) = f(?P<kind>add|sub|mul) (?:(?:{_FLAGS}) )*"
    rf"(?P<type>half|bfloat|float|double) (?P<left>{_VALUE}), (?P<right>{_VALUE})(?P<rest>.*)$",
    re.MULTILINE,
)


def applied(text: str, options: Options) -> str:
    """Return LLVM IR of a function with those of its options that LTOIR would lose."""
    return without_contraction(text, flush=options.fastmath) if options.fma is False else text


def without_contraction(text: str, *, flush: bool) -> str:
    """Return LLVM IR whose additions and multiplications stay apart.

    They become the intrinsics of `__fadd_rn` and `__fmul_rn`, which no compiler contracts. Half precision is computed
    in single precision: rounding twice gives the same numbers there.

    Args:
        text: LLVM IR in either dialect of NVVM.
        flush: Flush subnormal numbers to zero, as fast math does.
    """
    used: set[tuple[str, str]] = set()

    def call(found: re.Match[str]) -> str:
        indent, result, own = found["indent"], found["result"].strip('"'), found["type"]
        ty = "double" if own == "double" else "float"
        left, right, rest = found["left"], found["right"], found["rest"]
        lines = []
        if own != ty:
            wide = {"l": left, "r": right}
            lines += [f"{_named(result, side)} = fpext {own} {value} to {ty}{rest}" for side, value in wide.items()]
            left, right = _named(result, "l"), _named(result, "r")
        if found["kind"] == "sub":
            lines.append(f"{_named(result, 'n')} = fsub {ty} -0.0, {right}{rest}")
            right = _named(result, "n")
        operation = "mul" if found["kind"] == "mul" else "add"
        name = f"llvm.nvvm.{operation}.rn.{'d' if ty == 'double' else 'ftz.f' if flush else 'f'}"
        used.add((name, ty))
        target = found["result"] if own == ty else _named(result, "w")
        lines.append(f"{target} = call {ty} @{name}({ty} {left}, {ty} {right}){rest}")
        if own != ty:
            lines.append(f"{found['result']} = fptrunc {ty} {target} to {own}{rest}")
        return "\n".join(indent + line for line in lines)

    text = _ARITHMETIC.sub(call, text)
    declared = [
        f"declare {ty} @{name}({ty}, {ty})" for name, ty in sorted(used) if f"declare {ty} @{name}(" not in text
    ]
    return "\n".join([text.rstrip("\n"), *declared, ""]) if declared else text


def _named(result: str, part: str) -> str:
    """Return a name for a value beside `result`; numbered values must stay in order, so it has letters."""
    return f'%"aotcuda.{part}.{result[1:].strip(chr(34))}"'
