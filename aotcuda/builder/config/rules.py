"""Check names, signatures and paths in the configuration.

Each constant at the end is the shape of one kind of text: a pattern, which the JSON schema has too, and a function with
rules that a pattern cannot express. The function receives the text and returns the value for the configuration, or
raises ValueError with the fact and the remedy; the shape puts the key before them.
"""

from __future__ import annotations

import keyword
import re

from aotcuda.builder.config import keys
from aotcuda.builder.config.shapes import ListOf, Shape, TableOf, Text
from aotcuda.common import object_path
from aotcuda.manifest import linkable

LINK_SUFFIXES = tuple(linkable.KINDS)

_C_KEYWORDS = """
alignas alignof auto bool break case char const constexpr continue default do double else enum extern false float
for goto if inline int long nullptr register restrict return short signed sizeof static static_assert struct switch
thread_local true typedef typeof typeof_unqual union unsigned void volatile while asm fortran
"""
_CPP_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl
concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete
do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast
requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
# Names that CUDA C++, PTX or the generated header define, or that compiled code calls.
_CUDA_NAMES = """
threadIdx blockIdx blockDim gridDim warpSize WARP_SZ dim3 main malloc free memcpy memset printf vprintf
size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
"""
_VECTOR_TYPES = frozenset(
    f"{sign}{scalar}{width}"
    for scalar in ("char", "short", "int", "long", "longlong", "float", "double")
    for sign in (("",) if scalar in {"float", "double"} else ("", "u"))
    for width in range(1, 5)
)
_PAIRS = {")": "(", "]": "[", "}": "{"}
_LITERALS = re.compile(r"'[^']*'|\"[^\"]*\"")
_NAME = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*(?:\.\w+)*")

ELSEWHERE = re.compile(r"\w+(\.\w+)*:\w+")
"""The text of a type that a module defines, `package.module:name`."""


def c_name(text: str) -> str:
    """Check the C ABI name of a device function: it is also a name in C++, in CUDA and in the Python module."""
    for language, keywords in (("C", _C_KEYWORDS), ("C++", _CPP_KEYWORDS)):
        if text in keywords.split():
            raise _unusable(text, f"is a keyword of {language}, so no header can declare it")
    if text in _CUDA_NAMES.split() or text in _VECTOR_TYPES:
        raise _unusable(text, "is a name of CUDA C++ itself, so no header can declare it")
    if re.match(r"_[_A-Z]", text):
        raise _unusable(text, "is reserved for compilers, like all names that begin with __ or with _ and a capital")
    return attribute(text)


def attribute(text: str) -> str:
    """Return a name that the generated module gains as an attribute."""
    if text.startswith("__"):
        raise _unusable(text, "is reserved for Python and aotcuda, like all names that begin with __")
    if text == "aotcuda":
        raise _unusable(text, "is a name that the generated module uses itself")
    if text.strip("_") == "":
        remedy = f'choose another name, and name the function there: python = "{text}"'
        raise _unusable(text, "is no name in PTX", remedy)
    return python_name(text)


def python_name(text: str) -> str:
    """Return the name of a Python function."""
    if not text.isidentifier():
        raise _unusable(text, "is not a Python identifier, so no function can have it")
    if keyword.iskeyword(text):
        raise _unusable(text, "is a keyword of Python, so no function can have it")
    return text


def module_name(text: str) -> str:
    """Return the dotted name of a module that the wheel gains."""
    parts = dotted_name(text).split(".")
    if parts[0] == "aotcuda":
        raise _unusable(text, "is in aotcuda's own package", "put the module into a package of your own")
    if any(part.startswith("__") for part in parts):
        raise _unusable(text, "is reserved for Python, like all names that begin with __")
    return text


def dotted_name(text: str) -> str:
    """Return the dotted name of any module."""
    for part in text.split("."):
        if not part.isidentifier() or keyword.iskeyword(part):
            problem = "a keyword of Python" if part.isidentifier() else "not a Python identifier"
            module = re.sub(r"[/\\]", ".", text.removesuffix(".py")).removeprefix("src.")
            is_path = module != text and all(name.isidentifier() for name in module.split("."))
            example = module if is_path else "mypkg._kernels"
            raise _unusable(
                text,
                f"cannot be imported, because {keys.string(part)} is {problem}",
                f"give the dotted name of a module, such as {keys.string(example)}",
            )
    return text


def callback(text: str) -> str:
    """Return a setup or teardown callback, `package.module:function`."""
    module, _, function = text.partition(":")
    dotted_name(module)
    python_name(function)
    return text


def python_path(text: str) -> str:
    """Check the name of a Python function, a path of attributes and items, or `package.module:path`."""
    module, colon, path = text.rpartition(":")
    if colon:
        dotted_name(module)
    try:
        names = [part for part in object_path.split(path) if not part.startswith("[")]
    except ValueError:
        names = path.split(".")
    for name in names:
        python_name(name)
    return text


def type_text(text: str) -> str:
    """Return a type, or a part of a signature, on one line, with its brackets checked."""
    text = re.sub(r"\s*[\r\n]\s*", " ", text.strip())
    stack: list[str] = []
    for character in _LITERALS.sub("", text):
        if character in _PAIRS.values():
            stack.append(character)
        elif character in _PAIRS and not stack:
            message = f"{keys.string(text)} has a {character!r} too many; remove it"
            raise ValueError(message)
        elif character in _PAIRS and (opened := stack.pop()) != _PAIRS[character]:
            message = f"{keys.string(text)} has a {opened!r} that is not closed before a {character!r}; add its bracket"
            raise ValueError(message)
    if stack:
        message = f"{keys.string(text)} has a {stack[-1]!r} that is never closed; add its bracket"
        raise ValueError(message)
    return text


def _no_signature(text: str) -> str:
    """Return the fact and the remedy for a text that does not end as a signature does."""
    try:
        type_text(text)
    except ValueError as error:
        return str(error)
    types = " ".join(text.split()) or "float32, float32[::1]"
    result = "" if types.startswith("void") else "void"
    return (
        f"expected a signature in Numba's notation, found the string {keys.string(text)}; write the types of all "
        f"arguments in one string, with the result before them, as in {keys.string(f'{result}({types})')}"
    )


def names_in_type(text: str) -> list[str]:
    """Return the names in a type or a signature; none for a type of a module, `package.module:name`."""
    return [] if ELSEWHERE.fullmatch(text) else list(dict.fromkeys(_NAME.findall(text)))


def type_name(text: str) -> str:
    """Return a name for a type."""
    if text.startswith("__"):
        raise _unusable(text, "is reserved for Python, like all names that begin with __")
    return python_name(text)


def _unusable(name: str, problem: str, remedy: str = "choose another name") -> ValueError:
    return ValueError(f"{keys.string(name)} {problem}; {remedy}")


_WORD = "[A-Za-z_][A-Za-z0-9_]*"

MODULE_NAME = Text(
    "the dotted name of a module (ASCII letters, digits, underscores) as the key",
    rf"^{_WORD}(\.{_WORD})*$",
    module_name,
)
C_NAME = Text("a C identifier (ASCII letters, digits, underscores) as the key", f"^{_WORD}$", c_name)
KERNEL_NAME = Text("an identifier (ASCII letters, digits, underscores) as the key", f"^{_WORD}$", attribute)
MACRO_NAME = Text("a C identifier (ASCII letters, digits, underscores) as the key", f"^{_WORD}$")
PYTHON_PATH = Text(
    'the name of a Python function, or "package.module:name", with dots before attributes and brackets around items',
    r"^([^\s.:]+(\.[^\s.:]+)*:)?[^\s.:]+(\.[^\s.:]+)*$",
    python_path,
)
PYTHON_MODULE = Text("the dotted name of a Python module", r"^[^\s.:]+(\.[^\s.:]+)*$", dotted_name)
CALLBACK = Text('"package.module:function"', r"^[^\s.:]+(\.[^\s.:]+)*:[^\s.:]+$", callback)
LINK_PATH = Text(
    f"the path of a file that ends in {', '.join(LINK_SUFFIXES)}",
    rf"[^/]\.({'|'.join(LINK_SUFFIXES).replace('.', '')})$",
)
VARIANTS_PATH = Text("the path of a file that ends in .json", r"[^/]\.json$")
SIGNATURE = Text("a signature in Numba's notation", r"\)\s*$", type_text, _no_signature)
TYPE_NAME = Text("an identifier (ASCII letters, digits, underscores) as the key", f"^{_WORD}$", type_name)
TYPE = Text("a type, as signatures have it", r"\S", type_text)

PYTHON_MODULES = ListOf(
    item=PYTHON_MODULE,
    expected="the dotted name of a Python module or a list of them",
    shortest=1,
    single=True,
)


def kernels(value: Shape) -> TableOf:
    """Return a module's `kernels`, each of which has this shape."""
    return TableOf(name=KERNEL_NAME, value=value, expected="a table of kernels", named=True)


def functions(value: Shape) -> TableOf:
    """Return a module's `functions`, checked as its `kernels`."""
    return TableOf(name=C_NAME, value=value, expected="a table of functions", named=True)
