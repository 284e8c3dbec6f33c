"""Explain the errors of all compilers and linkers in one line, by one table: place: fact; remedy.

A row is worth its place if many users make the mistake and the compiler's own words do not name the remedy.
"""

from __future__ import annotations

import re
import tempfile
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NOISE = re.compile(r"^\s*(?:\w+: )?(?:Failed in \w+ mode pipeline.*|During: .*|<source elided>|\^+)?\s*$")
_ERROR = re.compile(r"\b(?:error|fatal)\s*:\s*(.+)", re.IGNORECASE)
_SHED = re.compile(
    r"/(?:[^\s/]+/)*(?:site|dist)-packages/|"
    rf"{re.escape(tempfile.gettempdir())}/(?:[^\s/]+/)*|\.? Raised from (?:None|\S+ \(\d+\))$| at 0x\w+"
)
NEWER_LTOIR = "newer version of nvJitLink|LTOIR arch newer than target"
"""In the linker's log if an input was compiled by a newer CUDA, or for a newer GPU."""

_SIZE = r"\bu?int\d+\b"
_DIMENSIONS = "give it as many indices as its type has dimensions, which are two in float32[:, ::1]"
_MEMORY = (
    "it makes a list, dict or set, for which memory would be allocated on the GPU",
    "use a tuple, an array that is an argument, or cuda.local.array of a constant size",
)
_NUMBER = r"Literal\[int\]\(-?\d+\)|u?int\d+|float\d+|complex\d+|bool"


@dataclass(frozen=True, slots=True)
class Explanation:
    """A row that fits a text: an empty `fact` keeps the compiler's words; `start` is the match's place."""

    fact: str
    remedy: str
    start: int


# A pattern over "TypeOfTheException: message", the fact with the pattern's groups, and the remedy.
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
        'give print the parts, as in print("x is", x[i])',
    ),
    (
        (
            r"Function\(<function (?:\w+\.)?array at [^>]*>\) found for signature:\s*>>> array\((?:shape=)?"
            rf"({_SIZE}|(?:Uni)?Tuple\((?:[^()]|\(\w+\))*?{_SIZE}(?:[^()]|\(\w+\))*\))"
        ),
        "the size of an array must be known when it is compiled, and {0} is known at run time alone",
        "make it a constant, or use cuda.shared.array(0, dtype), whose size the launch sets",
    ),
    (
        r"unsupported opcode \(IMPORT_(?:NAME|FROM)\)",
        "a function imports a module, which only the host can do",
        "import it at the top of the file",
    ),
    (
        r"unsupported opcode \((?:STORE|DELETE)_GLOBAL\)",
        "a function sets or deletes a global variable, whose value is compiled in",
        "write to an element of an array that is an argument",
    ),
    (
        r"No conversion from (.+) to none for '\$.*return_(?:value|const)",
        "a kernel returns nothing, and this one returns {0}",
        "store the result in an array",
    ),
    (
        r"No conversion from none to (.+) for '\$.*return_(?:value|const)",
        "it returns nothing in some cases, and its signature returns {0}",
        "make the two agree",
    ),
    (
        r"No conversion from (.+) to (.+) for '\$.*return_(?:value|const)",
        "it returns {0}, and its signature returns {1}",
        "make the two agree",
    ),
    (
        r"scipy [\d.]+\+ is required for linear algebra",
        "NumPy's linear algebra is not compiled for GPUs",
        "write its computation out",
    ),
    (
        r"_array_allocate|numpy_empty_nd|lowering call to <built-in function (?:zeros|empty)>",
        "it makes an array on the device, which a packaged kernel cannot do",
        "pass one in",
    ),
    (
        (
            r"NRT required but not enabled|\b(?:new_dict|DictType|ListType|build_list|build_map)\b|list\(undefined\)|"
            r"has no attribute 'build_set'|assignment build_set\(|'add' of type range_iter_|"
            r"'(?:dict|list|set|frozenset|bytearray|sorted)': Cannot determine Numba type|"
            r"attribute '\w+' of type (?:reflected )?(?:list|set)\(|'bytes' object has no attribute 'type'|"
            r"Unknown attribute '(?:List|Dict|Set)' of type Module\(<module 'numba\.typed'|"
            r"attribute '\w+' of type Module\(<module 'collections'"
        ),
        *_MEMORY,
    ),
    (
        r"yield in a closure|\bGenerator'>|'NoneType' object has no attribute 'get_function_type'",
        "generators are not compiled for GPUs",
        "write a for loop over range(...)",
    ),
    (
        r"unsupported opcode \(LOAD_BUILD_CLASS\)",
        "it defines a class, which only the host can do",
        "store values in a tuple or in a NumPy record",
    ),
    (
        r"unsupported opcode \(UNPACK_EX\)",
        "a starred name gets several values",
        "name each of them, or use a slice of the tuple",
    ),
    # Dimensions of arrays and lengths of tuples.
    (
        r"cannot index array\(.*?, (\d+)d, \w+\) with (\d+) indices",
        "a {0}-D array is indexed as a {1}-D one",
        _DIMENSIONS,
    ),
    (
        r"indexing (\d+)-D array with (\d+)-D index",
        "a {0}-D array is indexed as a {1}-D one",
        _DIMENSIONS,
    ),
    (
        r"either a scalar linear index or (\d+) indices for memref.*, got (\d+)",
        "a {0}-D array is indexed as a {1}-D one",
        _DIMENSIONS,
    ),
    (
        r"Cannot cast UniTuple\([^\n]*? x (\d+)\) to u?int\d+",
        "a 1-D array is indexed as a {0}-D one",
        _DIMENSIONS,
    ),
    (
        r"Cannot cast Tuple\([^\n]*\) to u?int\d+",
        "a 1-D array is indexed as one of several dimensions",
        _DIMENSIONS,
    ),
    (
        (
            rf">>> setitem\(array\(.*?, (\d+)d, \w+\), (?:{_NUMBER}|(?:Uni)?Tuple\(.*\)), array\(|"
            rf"lowering setitem .* with types \[Array\(.*?, (\d+), .*, Array\("
        ),
        "an array is stored where one number belongs, since an index is missing",
        _DIMENSIONS,
    ),
    (
        r"KeyError: <ufunc '(add|subtract|multiply|divide|floor_divide|remainder|power|negative|maximum|minimum)'>",
        "it computes with whole arrays, or calls NumPy's {0}",
        "index each array, with as many indices as it has dimensions; for numbers write an operator",
    ),
    (
        r"failed to unpack u?(?:int|float)\d+",
        "one number is unpacked into several names",
        "write one name; cuda.grid(2) gives two numbers, cuda.grid(1) one",
    ),
    (
        r"wrong tuple length for .*expected (\d+), got (\d+)",
        "a tuple of {1} is unpacked into {0} names",
        "write as many names as it has values; .shape has one for each dimension",
    ),
    (
        r"tuple index out of range",
        "a tuple has no value of this index",
        ".shape and .strides have one for each dimension, counted from 0",
    ),
    (
        r"OverloadSelector object at \S+, \(List\(|NotImplementedError: lowering (?:static_)?getitem",
        "a value of this type has no elements on a GPU, for example a global list",
        "make it a tuple or a NumPy array",
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
        r"NotImplementedError: NotImplemented lowering call to",
        "it calls a function for which numba-cuda-mlir has no code",
        "write its computation out, or use the front end numba-cuda",
    ),
    (
        r"KeyError: <ufunc '(\w+)'>",
        "kernels cannot call NumPy's {0}",
        "use the math module's function for one number, or an operator",
    ),
    (
        r"Untyped global name '(\w+)': Cannot determine Numba type of <class '(?:\w+\.)*(\w+)'>",
        "{0} has type {1}, which kernels cannot use",
        "make it a number, a tuple or a NumPy array, or pass it as an argument",
    ),
    (
        r"Unknown attribute '(\w+)' of type Module\(<module '([\w.]+)'",
        "kernels cannot call {1}.{0}",
        "write its computation out; pass arrays as arguments",
    ),
    (
        r"No implementation of [^\n]* found for signature:\s*>>> (.*)",
        "No implementation of {0}",
        "pass arguments of types that it accepts, or write its computation out",
    ),
    (r"(Unknown attribute '\w+' of type [^\n]*)", "{0}", "use an attribute that this type has in kernels"),
    # Triton.
    (
        r"tt\.return",
        "it returns a value, as device functions do and kernels cannot",
        "name a kernel that calls it",
    ),
    (
        r"Cannot access global variable (\w+) from within @jit",
        "it uses the global variable {0}, which is no constexpr",
        "write {0} = tl.constexpr(...) where it is defined, or make it an argument",
    ),
    (
        r"type (fp8\w+) not supported in this architecture. The supported fp8 dtypes are \(([^)]*)\)",
        "this target does not have {0}",
        "use one of {1}, or list targets that have it: sm_89 and later have fp8e4nv",
    ),
    # NVRTC.
    (r"^nvrtc: error: (.+)$", "{0}", "correct nvrtc-options, each of which is one option"),
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
    # The linker.
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
        r"\w+ '([^']+)' requires \.target (sm_\w+) or higher",
        "it uses {0}, which GPUs before {1} do not have",
        "list {1} and later ones in arch, or remove it of the code for older GPUs",
    ),
    (
        r"(?:Unresolved extern function|Undefined reference to) '([^']+)'",
        "nothing defines {0}, which is called or declared with declare_device",
        "link the file that defines it",
    ),
    (
        r"Entry function '([^']+)' uses too much shared data \((0x\w+) bytes, (0x\w+) max\)",
        "{0} has {1} bytes of shared memory of a fixed size, and {2} are the most",
        "make it smaller, or give it no size in the source and its bytes at the launch",
    ),
    (
        r"uses too much global constant data \((0x\w+) bytes, (0x\w+) max\)",
        "constants of all its code have {0} bytes, and an image has {1} for all of them",
        "make arrays smaller or pass them as arguments, or make the kernels two modules",
    ),
    (
        r"does not match type NVJITLINK_INPUT_(?:PTX|LTOIR|CUBIN|FATBIN|OBJECT|LIBRARY)(.+)$",
        "{0} has other content than its suffix says",
        "make it again",
    ),
]


def find(text: str) -> Explanation | None:
    """Return the first row of the table whose pattern is in `text`, filled in."""
    for pattern, fact, remedy in _ROWS:  # which are compiled here: builds without errors need none of them
        if found := re.search(pattern, text, re.MULTILINE):
            groups = [str(int(one, 16)) if one.startswith("0x") else one for one in found.groups("")]
            return Explanation(strip_machine_details(fact.format(*groups)), remedy.format(*groups), found.start())
    return None


def explain(head: str, text: str, place: Callable[[str], str] | str = "") -> str:
    """Return `head: fact (place); remedy`.

    Without a row for `text`, the fact is the compiler's own: its first line behind "error:", or else its first line
    that is not empty. The rest of the text follows, indented.

    Args:
        head: The key, or the module and the target.
        text: The type of the exception and its message, or the log.
        place: The user's file and line, or a function that finds them in the text from the match on.
    """
    text = _COLOUR.sub("", text).strip().removesuffix(":")
    row = find(text)
    where = place if isinstance(place, str) else place(text[row.start if row else 0 :])
    where = f" ({where})" if where else ""
    if row and row.fact:
        return f"{head}: {row.fact}{where}; {row.remedy}"
    lines = [strip_machine_details(line).rstrip() for line in text.splitlines()]
    said = [line.strip().rstrip(".") for line in lines if not _NOISE.match(line)] or ["the compiler refuses it"]
    fact = next((found[1] for line in said if (found := _ERROR.search(line))), said[0])
    first = f"{head}: {fact}{where}{f'; {row.remedy}' if row else ''}"
    return "\n".join([first, *(f"    {line}".rstrip() for line in lines if len(said) > 1)])


def named(error: BaseException) -> str:
    """Return an exception's type and message; for an empty message, the line of code that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {str(error) or (frames[-1].line if frames else '')}"


def relative(text: str, root: str) -> str:
    """Return `text` with the paths in it made relative to `root`."""
    prefix = root.rstrip("/")
    return text.replace(f"{prefix}/", "") if prefix else text


def strip_machine_details(text: str) -> str:
    """Return text without addresses, folders of temporary files and of packages, and places in compilers."""
    return _SHED.sub("", text)
