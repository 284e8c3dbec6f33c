"""A compiler's errors as errors of the build: with the configuration's key, and the user's file and line."""

from __future__ import annotations

import difflib
import math
import operator
import os
import re
import sys
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, FunctionType

    from aotcuda.builder.frontends.numba.config import NumbaUnit

_RETURNS = re.compile(r"No conversion from (.+) to (.+) for '\$.*return_(?:value|const)")
_PLACES = re.compile(r'File "([^"]+)", line (\d+)|(?: at|Raised from) (\S+) \((\d+)\)|\((\S+):(\d+)\)')
_RAISED_FROM = re.compile(r"\.? Raised from (?:None|\S+ \(\d+\))$", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NOISE = re.compile(r"^(Failed in \w+ mode pipeline.*|During: .*|<source elided>|\s*\^+|\s*)$")
_REASON = re.compile(r"^\s*(No implementation|Unknown attribute|Untyped global)", re.MULTILINE)
_CALL = re.compile(r"^No implementation of .* found for signature:\s*>>> (.*)")
_FUNCTION = re.compile(r"^\s*No implementation of function Function\(<(?:built-in )?function (\w+)", re.MULTILINE)
_COMPILERS = frozenset(["numba", "numba_cuda", "numba_cuda_mlir", "llvmlite", "numpy"])

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NO_ATTRIBUTE = re.compile(r"^module '([\w.]+)' has no attribute '(\w+)'")

_SIZE = r"\bu?int\d+\b"
_NUMBER = r"Literal\[int\]\(-?\d+\)|u?int\d+|float\d+|complex\d+|bool"
_GLOBAL = r"\A\w+: (?:Failed in [^\n]*\n)*Untyped global name '(\w+)': Cannot determine Numba type of <class"
_OF_MATH = "|".join(sorted(name for name in vars(math) if not name.startswith("_")))
_KNOWN = tuple(
    (re.compile(pattern), what, remedy)
    for pattern, what, remedy in [
        (
            r"set_try_status|mark_try_block|end_try_block|exception_match",
            "try and except are not compiled for GPUs",
            "test for what may go wrong before it does",
        ),
        (
            (
                r"format spec in f-strings|printing unimplemented for values of type unicode_type|"
                r"Function\(<class 'str'>\) found for signature|Literal\[str\]\(<object type:|"
                r"unsupported opcode \((?:FORMAT_|CONVERT_VALUE|BUILD_(?:TEMPLATE|INTERPOLATION))|"
                r">>> mod\(Literal\[str\]"
            ),
            "it makes text of values, as an f-string does",
            'GPUs have no text but constants: give print the parts, as in print("x is", x[i])',
        ),
        (
            (
                r"Function\(<function (?:\w+\.)?array at [^>]*>\) found for signature:\s*>>> array\((?:shape=)?"
                rf"({_SIZE}|(?:Uni)?Tuple\((?:[^()]|\(\w+\))*?{_SIZE}(?:[^()]|\(\w+\))*\))"
            ),
            "the size of an array must be known when it is compiled, and {0} is known at run time alone",
            "make it a constant, or take cuda.shared.array(0, dtype), which is as large as the launch makes it",
        ),
        (
            r"Function\(<function (?:\w+\.)?array at [^>]*>\) found for signature:\s*>>> array\([^\n]*",
            "cuda.shared.array and cuda.local.array take a shape and the type of an element",
            "write for example cuda.local.array(4, float32)",
        ),
        (
            r"Keyword arguments are not supported, yet|AssertionError: assert (?:not )?kw\w*",
            "a function that takes its arguments by position alone is called with keywords",
            "give them in order, without names",
        ),
        (
            r"UnsupportedBytecodeError: The 'with \(context manager\)",
            "with statements are not compiled for GPUs",
            "do what it does outside the kernel",
        ),
        (
            r"unsupported opcode \(IMPORT_(?:NAME|FROM)\)",
            "it imports a module, which happens on the host alone",
            "import it at the top of the file",
        ),
        (
            r"unsupported opcode \((?:STORE|DELETE)_GLOBAL\)",
            "it sets or deletes a global variable, of which compiled code has the value alone",
            "take an array as an argument, and write to an element of it",
        ),
        (
            (
                r"(?s)\A(?!.*_array_allocate).*?"
                r"(?:NRT required but not enabled|\b(?:new_dict|DictType|ListType|build_list)\b|list\(undefined\))"
            ),
            "it makes a list or a dict, for which memory would be allocated on the GPU",
            "use a tuple, an array that is an argument, or cuda.local.array of a constant size",
        ),
        (
            r"has no attribute 'build_set'|assignment build_set\(",
            "it makes a set, for which memory would be allocated on the GPU",
            "use a tuple, or an array that is an argument",
        ),
        (
            r"OverloadSelector object at \S+, \(List\(|NotImplementedError: lowering (?:static_)?getitem",
            "it takes an element of what has none on a GPU, such as a list of the module's",
            "make it a tuple, or an array of NumPy's",
        ),
        (
            rf">>> [gs]etitem\(({_NUMBER}), ",
            "it takes an element of a number, {0}",
            "if that is a parameter which is an array, say so in the signature, as with float32[::1]",
        ),
        (
            r"AttributeError: '(?:Float|Integer|Boolean|Complex)\w*' object has no attribute '(?:dtype|ndim)'",
            "it gives a number to a function that takes an array",
            "if that is a parameter which is an array, say so in the signature, as with float32[::1]",
        ),
        (
            r"cannot index array\(\w+, (\d+)d, \w+\) with (\d+) indices",
            "it gives {1} indices to a {0}d array",
            "make the two agree; a signature has a colon for each dimension, as in float32[:, ::1]",
        ),
        (
            r"[Uu]nsupported array index type (float\d+|complex\d+)",
            "an index is {0}",
            "convert it, as with int(x); if it is a parameter, make it an integer in the signature",
        ),
        (
            (
                r">>> setitem\((array\([^()]*\)), [^\n]*, "
                r"((?:readonly )?array\([^()]*\)|Literal\[str\]\([^()\n]*\)|unicode_type|none)\)\n"
            ),
            "it stores {1} in {0}",
            "an element takes a number of its type",
        ),
        (
            rf"Function\(<built-in function ({_OF_MATH})>\) found for signature:\s*>>> \1\((array\([^()]*\))",
            "{0} is called with a whole {1}",
            "give it an element, as in x[i]",
        ),
        (
            r"getitem\(type\(\w+Dispatcher\(<function (\S+) at",
            "it launches {0}, and only the host launches kernels",
            "launch it from the host, or call a function that both kernels call",
        ),
        (
            r"wrong tuple length for .*expected (\d+), got (\d+)",
            "it takes {0} values out of a tuple of {1}",
            "make the two agree",
        ),
        (
            r"ValueError: (?:not enough|too many) values to unpack \(expected (\d+)",
            "it calls a function that takes {0} arguments with another number of them",
            "give it as many",
        ),
        (
            r"Cannot unify (.+) and (.+) for '(\w+?)(?:\.\d+)*'",
            "{2} is {0} in one place and {1} in another",
            "give a variable one type",
        ),
        (
            r"Illegal IR, del found at",
            "del is not compiled for GPUs",
            "leave it out",
        ),
        (
            r"NotImplementedError: NotImplemented lowering call to",
            "it calls what numba-cuda-mlir has no code for",
            "write out what it computes, or see whether the front end numba-cuda has it",
        ),
        (
            r"KeyError: <ufunc '(\w+)'>",
            "NumPy's {0} is not among what kernels can call",
            "of one number take math's function, or an operator; else write out what it computes",
        ),
        (
            (
                r"scipy [\d.]+\+ is required for linear algebra|"
                r"Unknown attribute '\w+' of type Module\(<module 'numpy\.linalg'|\nin linalg\.py"
            ),
            "it calls NumPy's linear algebra, which is not there for GPUs",
            "write out what it computes",
        ),
        (
            r"Untyped global name '(\w+)': Cannot determine Numba type of <class '[\w.]*\.(?:\w*(?i:ufunc)|Vectorized)",
            "{0} is made by @vectorize, which makes functions of whole arrays",
            "call the plain function, or one with @cuda.jit(device=True)",
        ),
        (
            rf"{_GLOBAL} 'builtin_function_or_method'>",
            "Python's {0} is not among what kernels can call",
            "write out what it computes",
        ),
        (
            rf"{_GLOBAL} '(?:\w+\.)*(\w+)'>",
            "{0} is of type {1}, which kernels cannot use",
            "make it a number, a tuple or an array of NumPy's, or take it as an argument",
        ),
        (
            r"Unknown attribute '\w+' of type Module\(<module 'numpy\.random'",
            "NumPy's random numbers are not there for GPUs",
            "take the states of numba.cuda.random as an argument: xoroshiro128p_uniform_float32(states, i)",
        ),
        (
            r"Unknown attribute '(\w+)' of type Module\(<module 'numpy'",
            "NumPy's {0} is not among what kernels can call",
            "write it out; arrays come as arguments",
        ),
    ]
)
"""What a compiler says, in its own terms, of code that has no counterpart on a GPU; what that is, and what to do."""


class RaisesError(Exception):
    """A function with the C ABI raises or returns None, for which that ABI has no channel."""


@contextmanager
def explained(unit: NumbaUnit, python: FunctionType, root: str, compiler_error: type[Exception]) -> Iterator[None]:
    """Turn what is raised while `python` is compiled into a CompileError that names the unit.

    Paths are shown relative to `root`; `compiler_error` is the class of the errors that the compiler words for users.
    """
    head = f"{unit.key}: {unit.signature}"
    try:
        yield
    except CompileError as error:
        text = relative(str(error), root)
        if text.startswith("tool.aotcuda"):
            raise
        where = "" if _named(text, root) else f" ({_place('', error, python, root)})"
        first, *rest = text.split("\n")
        reason, mark, remedy = first.partition("; ")
        raise CompileError("\n".join([f"{head}: {reason}{where}{mark}{remedy}", *rest])) from error
    except RaisesError as error:
        message = f"{head}: a function with the C ABI cannot {relative(str(error), root)}"
        raise CompileError(message) from error
    except Exception as error:
        raise CompileError(_message(head, error, unit, python, root, compiler_error)) from error


def relative(text: str, root: str) -> str:
    """`text` with the paths in it made relative to `root`."""
    prefix = root.rstrip("/")
    return text.replace(f"{prefix}/", "") if prefix else text


def place(function: FunctionType, root: str) -> str:
    """`mypkg/_kernels.py:12`, where `function` begins."""
    return f"{relative(function.__code__.co_filename, root)}:{function.__code__.co_firstlineno}"


def _message(
    head: str, error: Exception, unit: NumbaUnit, python: FunctionType, root: str, compiler_error: type[Exception]
) -> str:
    """The reason and the user's file and line in the first line; the compiler's whole message, indented, below it."""
    said = relative(_COLOUR.sub("", str(error)), root) or _failed_assertion(error)
    files = dict.fromkeys(Path(frame.f_code.co_filename).name for frame in _frames(error))
    told = "\n".join([f"{type(error).__name__}: {said}", *(f"in {name}" for name in files)])
    for pattern, what, remedy in _KNOWN:
        if found := pattern.search(told):
            where = _place(said[found.start() :], error, python, root)
            return f"{head}: {what.format(*found.groups())} ({where}); {remedy}"
    if isinstance(error, compiler_error):
        return _compiler_message(head, said, error, unit, python, root)
    first, _, rest = _RAISED_FROM.sub("", said).partition("\n")
    message = f"{head}: {type(error).__name__}: {first} ({_place(said, error, python, root)}){_did_you_mean(first)}"
    return "\n".join(filter(None, [message, _indented(rest)]))


def _did_you_mean(said: str) -> str:
    """Which of a module's names comes nearest to one that it has not."""
    found = _NO_ATTRIBUTE.search(said)
    names = dir(sys.modules[found[1]]) if found and found[1] in sys.modules else []
    near = difflib.get_close_matches(found[2], names, n=1) if found else []
    return f"; did you mean {near[0]}?" if near else ""


def _compiler_message(head: str, plain: str, error: Exception, unit: NumbaUnit, python: FunctionType, root: str) -> str:
    start = found.start() if (found := _REASON.search(plain)) else 0
    where = _place(plain[start:], error, python, root)
    if returned := _RETURNS.search(plain):
        return f"{head}: {_returned(unit, *returned.groups())} ({where}); {_remedy(unit)}"
    if "_array_allocate" in plain:
        return f"{head}: it makes an array on the device, which a packaged kernel cannot do ({where}); pass one in"
    lines = [line.strip() for line in plain[start:].splitlines() if not _NOISE.match(line)]
    reason = (lines or ["the compiler refuses it"])[0].rstrip(".")
    if call := _CALL.search(plain[start:].lstrip()):
        reason = f"No implementation of {_ADDRESS.sub('', call[1])}"
        if (named := _FUNCTION.search(plain[start:])) and _is_numpys(named[1]):
            remedy = f"NumPy's {named[1]} is not among what kernels can call: write it out; arrays come as arguments"
            return f"{head}: {reason} ({where}); {remedy}\n{_indented(plain)}"
    return f"{head}: {reason} ({where})\n{_indented(plain)}"


def _is_numpys(name: str) -> bool:
    """Whether NumPy has a function of that name, and it is no operator: plain functions of others have other words."""
    return callable(getattr(sys.modules.get("numpy"), name, None)) and not hasattr(operator, name)


def _failed_assertion(error: Exception) -> str:
    """The compiler's own line, of an error without words."""
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].line or "").strip() if frames else ""


def _place(text: str, error: Exception, python: FunctionType, root: str) -> str:
    """File and line of what could not be compiled: the first of the user's in the compiler's message; callers follow.

    Some errors have no line, or none but those of the compiler's own library. The compiler was looking at the user's,
    though: the objects that worked on it know it, and so do the statements that they worked on.
    """
    if named := _named(text, root):
        return named
    seen = [error, *(value for frame in _frames(error) for value in _looked_at(frame))]
    places = [where for value in seen if (where := _own(_loc(value), root))]
    vague = _beginnings(python, root)
    return next((where for where in places if where not in vague), next(iter(places), place(python, root)))


def _frames(error: Exception) -> list[FrameType]:
    """The frames that an error, and those that it came from, went through; the innermost first."""
    found: list[FrameType] = []
    cause: BaseException | None = error
    while cause is not None:
        found = [*found, *reversed([frame for frame, _ in traceback.walk_tb(cause.__traceback__)])]
        cause = cause.__cause__ or cause.__context__
    return found


def _looked_at(frame: FrameType) -> Iterator[object]:
    """What a compiler's function was working on: statements and expressions first, then its own object."""
    for name, value in frame.f_locals.items():
        if name != "self":
            yield value
    yield frame.f_locals.get("self")


def _named(text: str, root: str) -> str | None:
    """The first line of the user's that a message names."""
    for parts in _PLACES.findall(text):
        path, line = filter(None, parts)
        if own := _own_path(path, root):
            return f"{own}:{line}"
    return None


def _loc(value: object) -> object:
    if type(value).__module__.partition(".")[0] in _COMPILERS:
        with suppress(Exception):  # some of their objects look names up in tables of their own
            return getattr(value, "loc", None)
    return None


def _own(loc: object, root: str) -> str | None:
    path = _own_path(getattr(loc, "filename", None), root)
    return f"{path}:{loc.line}" if path else None  # type: ignore[attr-defined]


def _own_path(path: object, root: str) -> str | None:
    """`path` relative to `root`, if it is a file of the user's: not of a compiler, nor installed below `root`."""
    if not isinstance(path, str) or not path or path.startswith("<"):
        return None
    whole = Path(os.path.normpath(Path(root, path)))
    if not whole.is_relative_to(root):
        return None
    parts = whole.relative_to(root).parts
    installed = parts[0] in _COMPILERS or "site-packages" in parts or "dist-packages" in parts
    return None if installed else whole.relative_to(root).as_posix()


def _beginnings(python: FunctionType, root: str) -> set[str]:
    """The lines with which a function begins, which the compiler names where it knows no other."""
    code = python.__code__
    lines = [line for _, _, line in code.co_lines() if line is not None]
    first = range(code.co_firstlineno, min((line for line in lines if line > code.co_firstlineno), default=0))
    path = relative(code.co_filename, root)
    return {f"{path}:{line}" for line in (*first, code.co_firstlineno)}


def _returned(unit: NumbaUnit, found: str, promised: str) -> str:
    if unit.kind == "kernel":
        return f"a kernel returns nothing, and this one returns {found}"
    if found == "none":
        return f"it returns nothing in some cases, where its signature says {promised}"
    return f"it returns {found}, where its signature says {promised}"


def _remedy(unit: NumbaUnit) -> str:
    return "store the result in an array" if unit.kind == "kernel" else "make the two agree"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
