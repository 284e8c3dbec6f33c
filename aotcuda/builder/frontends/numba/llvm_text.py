"""Read and change the text of LLVM IR, in either dialect of NVVM.

The linker generates code for a whole image, and LTOIR does not contain NVVM's options. Instructions and attributes of a
function remain in LTOIR, also when another project links it. Therefore `apply_options` writes options into
instructions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aotcuda.builder.plan import toolchain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options

_VALUE = r"%\"[^\"]*\"|[^\s,]+"
_FLAGS = "fast|nnan|ninf|nsz|arcp|contract|afn|reassoc"
_ARITHMETIC = re.compile(
    rf"^(?P<indent>\s*)(?P<result>{_VALUE}) = f(?P<kind>add|sub|mul) (?:(?:{_FLAGS}) )*"
    rf"(?P<type>half|bfloat|float|double) (?P<left>{_VALUE}), (?P<right>{_VALUE})(?P<rest>.*)$",
    re.MULTILINE,
)


def apply_options(text: str, options: Options) -> str:
    """Return the LLVM IR of a function with the options that LTOIR does not contain written into its instructions."""
    return without_contraction(text, flush=options.fastmath) if options.fma is False else text


def without_contraction(text: str, *, flush: bool) -> str:
    """Return LLVM IR whose additions and multiplications are not fused.

    Additions and multiplications become the intrinsics of `__fadd_rn` and `__fmul_rn`, which no compiler contracts.
    Half-precision numbers are computed in single precision and rounded again, which gives the same numbers.

    Args:
        text: The LLVM IR.
        flush: True to flush subnormal numbers to zero, as fast math does.
    """
    used: set[tuple[str, str]] = set()

    def call(match: re.Match[str]) -> str:
        indent, result, original = match["indent"], match["result"].strip('"'), match["type"]
        ty = "double" if original == "double" else "float"
        left, right, rest = match["left"], match["right"], match["rest"]
        lines = []
        if original != ty:
            operands = {"l": left, "r": right}
            lines += [
                f"{_new_value(result, side)} = fpext {original} {value} to {ty}{rest}"
                for side, value in operands.items()
            ]
            left, right = _new_value(result, "l"), _new_value(result, "r")
        if match["kind"] == "sub":
            lines.append(f"{_new_value(result, 'n')} = fsub {ty} -0.0, {right}{rest}")
            right = _new_value(result, "n")
        operation = "mul" if match["kind"] == "mul" else "add"
        name = f"llvm.nvvm.{operation}.rn.{'d' if ty == 'double' else 'ftz.f' if flush else 'f'}"
        used.add((name, ty))
        target = match["result"] if original == ty else _new_value(result, "w")
        lines.append(f"{target} = call {ty} @{name}({ty} {left}, {ty} {right}){rest}")
        if original != ty:
            lines.append(f"{match['result']} = fptrunc {ty} {target} to {original}{rest}")
        return "\n".join(indent + line for line in lines)

    text = _ARITHMETIC.sub(call, text)
    declared = [
        f"declare {ty} @{name}({ty}, {ty})" for name, ty in sorted(used) if f"declare {ty} @{name}(" not in text
    ]
    return "\n".join([text.rstrip("\n"), *declared, ""]) if declared else text


def _new_value(result: str, part: str) -> str:
    """Return a name for an additional value of the instruction with this `result`.

    The name has letters, because LLVM requires values with numbers to be in order.
    """
    return f'%"aotcuda.{part}.{result[1:].strip(chr(34))}"'


# A kernel is self-contained if its modules refer to no symbol of other modules. Both compilers make constants and
# string literals of a kernel internal, and name shared arrays after the kernel. Other data, such as an error code, may
# be shared with other kernels. Functions of the driver (`vprintf`, `malloc`) are symbols of other modules.
_DATA = re.compile(r'^(?P<name>@(?:"[^"]*"|[-\w.$]+)) = (?P<words>[^@\n]*?)\b(?:global|constant)\b', re.MULTILINE)

_OWN = re.compile(r"\b(?:internal|private|appending)\b|^(?!.*\bexternal\b).*\baddrspace\(3\)")
"""Words of definitions that belong to one kernel: internal names, lists for the compiler (`llvm.used`), and shared
arrays. A patch in `patches.py` of each compiler makes the names of shared arrays unique. Dynamic shared memory is
`external`, because the launch sets its size."""


_CALLED = re.compile(r'^(declare|define)\b[^@\n]*@"?([-\w.$]+)', re.MULTILINE)

_BUILT_IN = re.compile(r"llvm\.|__nv_")
"""The beginnings of names of functions that libNVVM replaces by instructions, or finds in libdevice."""


def is_self_contained(texts: Sequence[str]) -> bool:
    """Return True if the modules call only each other, and use no data that other modules could name."""
    functions = [match.groups() for text in texts for match in _CALLED.finditer(text)]
    defined = {name for word, name in functions if word == "define"}
    if any(name not in defined and not _BUILT_IN.match(name) for _, name in functions):
        return False
    data = (match for text in texts for match in _DATA.finditer(text))
    return all(_OWN.search(match["words"]) or not _is_used(match["name"], texts) for match in data)


def _is_used(name: str, texts: Sequence[str]) -> bool:
    """Return True if the modules name data outside of its definition."""
    pattern = re.compile(re.escape(name) + r"(?![-\w.$])")
    return any(text.count(name) > 1 and len(pattern.findall(text)) > 1 for text in texts)


# CUDA 12's verifier refuses floating-point atomic addition from compute capability 10.0 on: "atomicrmw does not support
# operation: 'fadd'" (12.9.86). The compiler generates the correct instruction, as CUDA 13 does. For these GPUs, the
# verifier therefore gets another text or another target than the compiler.
VERIFIER_TARGET = "compute_90"
"""A target that the verifier handles correctly, in the dialect of front ends that use one dialect for all GPUs."""

_ADDITION = re.compile(r"\batomicrmw (volatile )?fadd\b")


def verifier_misjudges(target: Target) -> bool:
    """Return True if the verifier refuses correct code for a target."""
    return toolchain.toolkit_version() < (13, 0) and target.capability >= (10, 0)


def without_additions(text: str) -> str:
    """Return a text for the verifier, with an operation that it accepts in place of additions."""
    return _ADDITION.sub(r"atomicrmw \1fsub", text)
