"""Read and change LLVM IR, as text in either dialect of NVVM.

The linker generates code for a whole image, and LTOIR does not contain NVVM's options. Instructions and attributes stay
with their function, also when another project links it, so `apply_options` writes options into these.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aotcuda.builder import toolchain

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
    """Return LLVM IR of a function with the options that LTOIR would lose."""
    return without_contraction(text, flush=options.fastmath) if options.fma is False else text


def without_contraction(text: str, *, flush: bool) -> str:
    """Return LLVM IR whose additions and multiplications are not fused.

    They become the intrinsics of `__fadd_rn` and `__fmul_rn`, which no compiler contracts. Half precision is computed
    in single precision: rounding twice gives the same numbers.

    With `flush`, subnormal numbers are flushed to zero, as fast math does.
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
    """Return a name for a further value next to `result`; numbered values must stay in order, so it has letters."""
    return f'%"aotcuda.{part}.{result[1:].strip(chr(34))}"'


# A kernel is self-contained if its modules refer to nothing outside. The two compilers make a kernel's own data
# internal (constants, string literals), or name it after the kernel (shared arrays). Data with any other name may be
# shared with other kernels, such as an error code. Functions of the driver (`vprintf`, `malloc`) are outside too.
_DATA = re.compile(r'^(?P<name>@(?:"[^"]*"|[-\w.$]+)) = (?P<words>[^@\n]*?)\b(?:global|constant)\b', re.MULTILINE)

_OWN = re.compile(r"\b(?:internal|private|appending)\b|^(?!.*\bexternal\b).*\baddrspace\(3\)")
"""Words of definitions that belong to one kernel: internal names, lists for the compiler (`llvm.used`), and shared
arrays, whose names are unique by a patch. Dynamic shared memory is `external`, since the launch sets its size."""


_CALLED = re.compile(r'^(declare|define)\b[^@\n]*@"?([-\w.$]+)', re.MULTILINE)

_BUILT_IN = re.compile(r"llvm\.|__nv_")
"""Functions that libNVVM replaces by instructions, or finds in libdevice."""


def is_self_contained(texts: Sequence[str]) -> bool:
    """Return True if the modules call nothing else, and use no data that others could name."""
    functions = [match.groups() for text in texts for match in _CALLED.finditer(text)]
    defined = {name for word, name in functions if word == "define"}
    if any(name not in defined and not _BUILT_IN.match(name) for _, name in functions):
        return False
    found = (match for text in texts for match in _DATA.finditer(text))
    return all(_OWN.search(match["words"]) or not _is_used(match["name"], texts) for match in found)


def _is_used(name: str, texts: Sequence[str]) -> bool:
    """Return True if the modules name data outside of its definition."""
    whole = re.compile(re.escape(name) + r"(?![-\w.$])")
    return any(text.count(name) > 1 and len(whole.findall(text)) > 1 for text in texts)


# CUDA 12's verifier refuses floating-point atomic addition from compute capability 10.0 on: "atomicrmw does not support
# operation: 'fadd'" (12.9.86). Without the verifier it becomes the same instruction as for older GPUs and by CUDA 13.
# For these GPUs, the verifier therefore gets another text or another target than the compiler.
OLDER = "compute_90"
"""A target that the verifier handles correctly, in the dialect of front ends that use one dialect for all GPUs."""

_ADDITION = re.compile(r"\batomicrmw (volatile )?fadd\b")


def verifier_misjudges(target: Target) -> bool:
    """Return True if the verifier refuses correct code for a target."""
    return toolchain.toolkit_version() < (13, 0) and target.capability >= (10, 0)


def without_additions(text: str) -> str:
    """Return a text for the verifier, with an operation that it accepts in place of additions."""
    return _ADDITION.sub(r"atomicrmw \1fsub", text)
