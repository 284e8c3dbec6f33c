"""Explain the errors of all compilers and linkers in one line, by one table: place: fact; remedy.

The table lists the most common mistakes. Errors that it does not list are quoted.
"""

from __future__ import annotations

import re
import tempfile
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NOISE = re.compile(r"^\s*(?:\w+: )?(?:Failed in \w+ mode pipeline.*|During: .*|<source elided>|\^+)?\s*$")
_ERROR = re.compile(r"\b(?:error|fatal)\s*:\s*(.+)", re.IGNORECASE)
_MACHINE_DETAILS = (
    r"/(?:[^\s/]+/)*(?:site|dist)-packages/|\.? Raised from (?:None|\S+ \(\d+\))$| at 0x\w+",
    r"{}/(?:[^\s/]+/)*",
)
"""A pattern of text that depends on the machine, and one for paths in its temporary folder."""
NEWER_LTOIR = "newer version of nvJitLink|LTOIR arch newer than target"
"""A pattern of the linker's log for inputs that were compiled by a newer CUDA, or for a newer GPU."""

_SIZE = r"\bu?int\d+\b"
_NUMBER = r"Literal\[int\]\(-?\d+\)|u?int\d+|float\d+|complex\d+|bool"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of an error by a row of the table.

    Attributes:
        fact: The fact; empty if the error's own words are quoted.
        remedy: The remedy.
        start: The position of the row's pattern in the text.
    """

    fact: str
    remedy: str
    start: int


# Each row has a pattern for "TypeOfTheException: message", the fact and the remedy. Numbers in braces are groups of the
# pattern. docs/troubleshooting.md lists the mistakes.
_ROWS = [
    # Numba's compilers.
    (
        r"set_try_status|mark_try_block|end_try_block|exception_match",
        "try and except are not compiled for GPUs",
        "check for the fault before it happens",
    ),
    (
        (
            r"format spec in f-strings|_get_str_slice_view|_length'\)|"
            r"attribute '\w+' of type (?:Literal\[str\]|unicode_type)|"
            r"printing unimplemented for values of type unicode_type|Function\(<class 'str'>\) found for signature|"
            r"Literal\[str\]\(<object type:|>>> mod\(Literal\[str\]|"
            r"unsupported opcode \((?:FORMAT_|CONVERT_VALUE|BUILD_(?:TEMPLATE|INTERPOLATION))"
        ),
        "it makes or reads text, as an f-string does",
        'pass the parts to print, as in print("x is", x[i])',
    ),
    (
        (
            r"Function\(<function (?:\w+\.)?array at [^>]*>\) found for signature:\s*>>> array\((?:shape=)?"
            rf"({_SIZE}|(?:Uni)?Tuple\((?:[^()]|\(\w+\))*?{_SIZE}(?:[^()]|\(\w+\))*\))"
        ),
        "the size of a shared or local array must be a constant, and it is of type {0}",
        "write a constant, or use cuda.shared.array(0, dtype), whose size the launch sets",
    ),
    (
        r"No conversion from none to (.+) for '\$.*return_(?:value|const)",
        "its signature returns {0}, and it returns nothing",
        "return a value, or move a kernel from functions to kernels, with a signature void(...)",
    ),
    (
        r"No conversion from (.+) to none for '\$.*return_(?:value|const)",
        "a kernel returns nothing, and this one returns {0}",
        "store the result in an array",
    ),
    (
        (
            r"_array_allocate|numpy_empty_nd|lowering call to <built-in function (?:zeros|empty)>|"
            r"Function\(<(?:built-in )?function (?:zeros|ones|empty|full)\b"
        ),
        "it makes an array on the device, which a packaged kernel cannot do",
        "pass an array as an argument",
    ),
    (
        (
            r"NRT required but not enabled|\b(?:new_dict|DictType|ListType|build_list|build_map)\b|list\(undefined\)|"
            r"has no attribute 'build_set'|assignment build_set\(|"
            r"'(?:dict|list|set)': Cannot determine Numba type|attribute '\w+' of type (?:reflected )?(?:list|set)\("
        ),
        "it makes a list, dict or set, for which memory would be allocated on the GPU",
        "use a tuple, an array that is an argument, or cuda.local.array of a constant size",
    ),
    (
        (
            r"cannot index array\(|indexing \d+-D array with \d+-D index|either a scalar linear index or \d+ indices|"
            rf"Cannot cast (?:Uni)?Tuple\([^\n]*\) to u?int\d+|"
            rf">>> setitem\(array\(.*?, \d+d, \w+\), (?:{_NUMBER}|(?:Uni)?Tuple\(.*\)), array\(|"
            r"lowering setitem .* with types \[Array\(.*?, \d+, .*, Array\("
        ),
        "an array is indexed by fewer or more numbers than it has dimensions",
        "give it as many indices as its type has dimensions, which are two in float32[:, ::1]",
    ),
    (
        (
            rf">>> [gs]etitem\((?:{_NUMBER}), |"
            r"'(?:Float|Integer|Boolean|Complex)\w*' object has no attribute '(?:dtype|ndim)'"
        ),
        "a number is used as an array",
        "if the parameter is an array, write an array type in the signature, such as float32[::1]",
    ),
    (
        r"KeyError: <ufunc '(\w+)'>|Unknown attribute '(\w+)' of type Module\(<module '[\w.]+'",
        "kernels cannot call {0}{1}",
        "use an operator or the math module's function for each number, or write its computation out",
    ),
    (
        r"Untyped global name '(\w+)': Cannot determine Numba type of <class '(?:\w+\.)*(\w+)'>",
        "{0} has type {1}, which kernels cannot use",
        "make it a number, a tuple or a NumPy array, or pass it as an argument",
    ),
    (
        r"No implementation of [^\n]* found for signature:\s*>>> (.*)",
        "No implementation of {0}",
        "pass arguments of types that it accepts, or write its computation out",
    ),
    # NVRTC.
    *[
        (
            rf'identifier "({names})" is undefined',
            "",
            f"write #include {header}, which brings {{0}}",
        )
        for header, names in [
            ("<cuda/std/cstdint>", r"u?int(?:8|16|32|64|ptr)_t|U?INT(?:8|16|32|64|PTR|MAX)_(?:MIN|MAX)|SIZE_MAX"),
            ("<cuda/std/climits>", r"(?:S?CHAR|SHRT|INT|L?LONG)_(?:MIN|MAX)|U(?:CHAR|SHRT|INT|L?LONG)_MAX|CHAR_BIT"),
            ("<cuda/std/cmath>", "INFINITY|NAN"),
            ("<cuda_fp16.h>", "(?:__)?half2?"),
            ("<cuda_bf16.h>", "(?:__)?nv_bfloat162?"),
        ]
    ],
    (
        r"host functions are not allowed|__host__ function is not allowed",
        "",
        "mark it __device__, or move the kernels into a file without host code",
    ),
    (r"Formal parameter space overflowed", "", "pass arrays or pointers in place of large structs and tuples"),
    # The linker.
    (
        r"bad input: does not match type NVJITLINK_INPUT_LTOIR(.+)$",
        "{0} is no LTOIR",
        "make it by nvcc -rdc=true -dlto -ltoir",
    ),
    (
        r"newer version of nvJitLink",
        "an input holds LTOIR of a newer CUDA than this linker's",
        "build it with the toolkit's CUDA version or an older one, or link its source",
    ),
    (
        r"(\d+)(\d) in LTOIR arch newer than target arch",
        "an input holds LTOIR for compute capability {0}.{1}, which is newer",
        "compile it for the lowest target, as with nvcc -dlto -arch, or list sm_{0}{1} and later ones in arch",
    ),
    (
        r"(?:Unresolved extern function|Undefined reference to) '([^']+)'",
        "nothing defines {0}, which the code uses",
        "link the file that defines it, or add it to a source of .cu files",
    ),
    (
        r"Entry function '([^']+)' uses too much shared data \((0x\w+) bytes, (0x\w+) max\)",
        "{0} has {1} bytes of shared memory of a fixed size, and {2} are the most",
        "make it smaller, or give it no size in the source and its bytes at the launch",
    ),
]


def find(text: str) -> Explanation | None:
    """Return the explanation by the first row of the table whose pattern is in `text`; None if no row fits."""
    for pattern, fact, remedy in _ROWS:  # compiled here, since builds without errors need no pattern
        if found := re.search(pattern, text, re.MULTILINE):
            groups = [str(int(group, 16)) if group.startswith("0x") else group for group in found.groups("")]
            return Explanation(strip_machine_details(fact.format(*groups)), remedy.format(*groups), found.start())
    return None


def explain(head: str, text: str, place: Callable[[str], str] | str = "") -> str:
    """Return `head: fact (place); remedy`.

    If no row of the table matches `text`, the fact is a quotation: the text after the first "error:", or the first line
    that is not empty. All lines of `text` follow, indented.

    Args:
        head: The key, or the module and the target.
        text: The type of the exception and its message, or the log.
        place: The user's file and line, or a function that finds both in the rest of `text` from
            the match of a row.
    """
    text = _COLOUR.sub("", text).strip().removesuffix(":")
    row = find(text)
    where = place if isinstance(place, str) else place(text[row.start if row else 0 :])
    where = f" ({where})" if where else ""
    if row and row.fact:
        return f"{head}: {row.fact}{where}; {row.remedy}"
    lines = [strip_machine_details(line).rstrip() for line in text.splitlines()]
    quoted = [line.strip().rstrip(".") for line in lines if not _NOISE.match(line)] or ["the compiler refuses it"]
    fact = next((found[1] for line in quoted if (found := _ERROR.search(line))), quoted[0])
    first = f"{head}: {fact}{where}{f'; {row.remedy}' if row else ''}"
    return "\n".join([first, *(f"    {line}".rstrip() for line in lines if len(quoted) > 1)])


def error_text(error: BaseException) -> str:
    """Return an exception's type and message; for an empty message, the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {str(error) or (frames[-1].line if frames else '')}"


def relative(text: str, root: str) -> str:
    """Return `text` with the paths in it made relative to `root`."""
    prefix = root.rstrip("/")
    return text.replace(f"{prefix}/", "") if prefix else text


def strip_machine_details(text: str) -> str:
    """Return text without addresses, folders of temporary files and of packages, and places in compilers."""
    details, below = _MACHINE_DETAILS
    with suppress(OSError):  # there is no temporary folder
        details += "|" + below.format(re.escape(tempfile.gettempdir()))
    return re.sub(details, "", text)
