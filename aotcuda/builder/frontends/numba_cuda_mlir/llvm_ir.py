"""Read and change LLVM IR, as text in either dialect of libNVVM.

GPUs before compute capability 10.0 are compiled from LLVM 7's dialect, with typed pointers, later ones from LLVM 20's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aotcuda.builder.frontends.protocol import External

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aotcuda.builder.frontends.protocol import CType

_DYNAMIC = "__dynamic_shmem__"

# Functions of NVVM, libdevice and the driver's device runtime.
_PROVIDED = re.compile(r"llvm\.|__nv_|nvvm|vprintf$|__assertfail$|malloc$|free$|memcpy$|memset$")

# `declare float @name(float, i8*)` in both dialects of LLVM IR, with attributes before and after.
_DECLARATION = re.compile(r'^declare\s+(?P<head>.*?)@(?P<name>"[^"]+"|[\w.$-]+)\((?P<parameters>.*)\)', re.MULTILINE)
_DEFINITION = re.compile(r'^define\s.*?@("[^"]+"|[\w.$-]+)\(', re.MULTILINE)
_SCALARS = {"void": "void", "float": "float32", "double": "float64", "half": "float16", "ptr": "pointer"}
_AGGREGATE_POINTER = re.compile(r"(?:%[\w.]+|.*[]}>])\s*\*")

_DEBUG_VERSION = '!"Debug Info Version"'


def _next_metadata(text: str) -> int:
    return 1 + max(map(int, re.findall(r"^!(\d+) = ", text, re.MULTILINE)))


def normalize(text: str, root: str) -> str:
    """Return LLVM IR that libNVVM accepts, with paths relative to `root`."""
    # libNVVM's verifier requires the alignment of 128-bit integers, which the older dialect's layout lacks.
    if "-i128:128:128" not in text:
        text = text.replace("-i64:64:64-", "-i64:64:64-i128:128:128-", 1)
    # Shared memory has no initial value. The compiler removes the value from bitcode, but not from text.
    text = re.sub(r"(addrspace\(3\) global .*?) zeroinitializer", r"\1 undef", text)
    # Dynamic shared memory follows all other shared memory only if its array is external.
    text = re.sub(rf"(@{_DYNAMIC}\w* = )internal (.*?) undef", r"\1external \2", text)
    # The older dialect's printer omits the kind of debug information if it is line numbers alone. Debug information
    # without a version is ignored.
    text = text.replace("emissionKind: ,", "emissionKind: DebugDirectivesOnly,")
    if "!llvm.dbg.cu" in text and _DEBUG_VERSION not in text:
        number = _next_metadata(text)
        text += f"\n!llvm.module.flags = !{{!{number}}}\n!{number} = !{{i32 1, {_DEBUG_VERSION}, i32 3}}\n"
    text = _with_one_argument_each(text)
    prefix = re.escape(_escape(root.rstrip("/")))
    return re.sub(rf'(!DIFile\(.*?directory: )"{prefix}/?', r'\1"', text)


def _escape(text: str) -> str:
    """Return `text` in the form of quoted text in LLVM IR."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in text.encode())


_ARGUMENT = re.compile(r"(= !DILocalVariable\(.*?)(arg: \d+), (scope: !\d+)")


def _with_one_argument_each(text: str) -> str:
    # The arguments of an inlined helper are described as arguments of the function around it, which has its own
    # arguments with these numbers; libNVVM refuses two arguments of one number.
    seen: set[tuple[str, str]] = set()

    def keep_first(match: re.Match[str]) -> str:
        if (match[2], match[3]) in seen:
            return f"{match[1]}{match[3]}"
        seen.add((match[2], match[3]))
        return match[0]

    return _ARGUMENT.sub(keep_first, text)


def with_constants(text: str, symbol: str, constants: Mapping[int, int]) -> str:
    """Return LLVM IR whose kernel has constants in place of 64-bit parameters, by the parameters' numbers.

    If one of these parameters has another type, the compiler has another array layout, and the text is unchanged.
    """
    defined = re.search(rf'^define\b[^\n]*@"?{re.escape(symbol)}"?\((.*)\)[^\n]*\{{\n', text, re.MULTILINE)
    if defined is None:
        return text
    types = re.sub(r"\{.*?\}", "{}", defined[1]).split(", ")  # a complex number is a struct of two
    if not all(number < len(types) and re.fullmatch(rf"i64(?: %{number})?", types[number]) for number in constants):
        return text
    end = text.index("\n}", defined.end())
    body = re.sub(
        r"%(\d+)(?![\w.])",
        lambda found: str(constants.get(int(found[1]), found[0])),
        text[defined.end() : end],
    )
    return text[: defined.end()] + body + text[end:]


_ARITHMETIC = re.compile(r"= (fadd|fsub|fmul|fdiv|frem|fcmp) (?!fast )")
_DIVISION = re.compile(r"= fdiv (?:fast )?float (\S+), ([^\s,]+)")
_PRECISE = re.compile(r"@__nv_(cosf|expf|log10f|log2f|logf|powf|sinf|tanf)\b")
_QUOTIENT = "__nv_fast_fdividef"


def with_fast_math(text: str) -> str:
    """Return LLVM IR with fast math in each instruction, as Numba-CUDA writes it.

    The compiler sets fast math by options of libNVVM, which LTOIR does not contain. Options of the linker would apply
    to every kernel of the image.
    """
    text = _DIVISION.sub(rf"= call float @{_QUOTIENT}(float \1, float \2)", text)
    if f"@{_QUOTIENT}" in text and f"declare float @{_QUOTIENT}" not in text:
        text += f"\ndeclare float @{_QUOTIENT}(float, float)\n"
    return _ARITHMETIC.sub(r"= \1 fast ", _PRECISE.sub(r"@__nv_fast_\1", text))


def with_register_limit(text: str, symbol: str, registers: int) -> str:
    """Return LLVM IR whose kernel limits the registers of a thread.

    The compiler passes the limit to its linker. In an image with other kernels, the limit must be an annotation of the
    one kernel.
    """
    marked = re.search(rf'^!\d+ = !\{{(.*@{re.escape(symbol)}), !"kernel", i32 1\}}$', text, re.MULTILINE)
    if marked is None:
        message = f"{symbol} is not a kernel in its LLVM IR"
        raise LookupError(message)
    number = _next_metadata(text)
    text = re.sub(r"^(!nvvm\.annotations = !\{.*)\}$", rf"\1, !{number}}}", text, flags=re.MULTILINE)
    return f'{text}\n!{number} = !{{{marked[1]}, !"maxnreg", i32 {registers}}}\n'


_ERROR_CODE = "__numba_cuda_mlir_error_code"
_STORED = re.compile(
    rf"^( *)(%[\w.]+) = cmpxchg (?:volatile )?(i32\*|ptr) @{_ERROR_CODE},.*?(, !dbg !\d+)?$", re.MULTILINE
)
_PLACES = tuple(f"{register}{axis}" for register in ("tid", "ctaid") for axis in "xyz")


def with_reports(text: str, symbol: str) -> str:
    """Return LLVM IR of a debug kernel that stores error codes in variables that the run time reads.

    The compiler has one error code for all kernels of an image, and does not record the thread. The run time reads
    variables that are named after the kernel: the code, and the place of the first thread that stored a code.
    """
    count = 0

    def store_place(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        indent, result, pointer, debug = match[1], match[2], match[3], match[4] or ""
        to = "i32*" if pointer == "i32*" else "ptr"
        lines = [match[0], f"{indent}%first{count} = extractvalue {{ i32, i1 }} {result}, 1{debug}"]
        for name in _PLACES:
            register, axis = name[:-1], name[-1]
            value, place = f"%{name}.{count}", f"%at.{name}.{count}"
            lines += [
                f'{indent}{value} = call i32 asm "mov.u32 $0, %{register}.{axis};", "=r"(){debug}',
                f"{indent}{place} = select i1 %first{count}, {to} @{symbol}__{name}__, {to} @{symbol}__other__{debug}",
                f"{indent}store i32 {value}, {to} {place}{debug}",
            ]
        return "\n".join(lines)

    text = _STORED.sub(store_place, text)
    text = re.sub(rf"^@{_ERROR_CODE} = .*$", f"@{symbol}__errcode__ = global i32 0", text, flags=re.MULTILINE)
    text = text.replace(f"@{_ERROR_CODE}", f"@{symbol}__errcode__")
    places = "".join(f"@{symbol}__{name}__ = global i32 0\n" for name in (*_PLACES, "other"))
    return text.replace("\n\n", f"\n\n{places}", 1)


def externals(text: str) -> tuple[External, ...]:
    """Return the functions that a module in LLVM IR calls and that a link input has to define."""
    defined = {name.strip('"') for name in _DEFINITION.findall(text)}
    externals: dict[str, External] = {}
    for match in _DECLARATION.finditer(text):
        name = match["name"].strip('"')
        if name in defined or _PROVIDED.match(name):
            continue
        parameters = tuple(_c_type(part) for part in _split(match["parameters"]))
        externals.setdefault(name, External(name=name, result=_c_type(match["head"]), parameters=parameters))
    return tuple(externals.values())


def _split(text: str) -> Iterator[str]:
    """Yield the parameters of a declaration; commas inside of braces and brackets separate members."""
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += (character in "{[(<") - (character in "}])>")
        if character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if text[start:].strip():
        yield text[start:]


def _c_type(text: str) -> CType:
    """Return the type in texts like `float`, `i8* nocapture` or `noundef zeroext i1`."""
    text = text.strip()
    if text.startswith(("{", "[", "<", "%")):
        return "pointer" if _AGGREGATE_POINTER.match(text) else "struct"
    for word in text.split():
        if word.endswith("*"):
            return "pointer"
        if word in _SCALARS:
            return _SCALARS[word]
        if word.startswith("i") and word[1:].isdigit():
            return f"int{max(int(word[1:]), 8)}"
    return "struct"
