"""Compare the prototypes of linked functions with the signatures that Python declares for them.

LTO links accept a call through a wrong prototype, and the kernel then reads garbage. NVRTC compares: a static assertion
for each declared function is appended to the source. The assertions compare machine-level types. `unsigned` for `int32`
and `const float *` for a pointer are equal; `float` for `int32` is an error. For the functions of another packaged
module the source is its C header.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from aotcuda.builder.link import nvrtc
from aotcuda.errors import CompileError, LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.protocol import CType, External, LinkInput

_CHECKER = """
template <class aotcuda_T> struct aotcuda_kind {
    static const int aotcuda_value =
        (__is_class(aotcuda_T) || __is_union(aotcuda_T)) ? 300 : 100 + (int)sizeof(aotcuda_T);
};
template <> struct aotcuda_kind<void> { static const int aotcuda_value = 0; };
template <> struct aotcuda_kind<float> { static const int aotcuda_value = 204; };
template <> struct aotcuda_kind<double> { static const int aotcuda_value = 208; };
template <class aotcuda_T> struct aotcuda_kind<aotcuda_T *> { static const int aotcuda_value = 400; };
template <class aotcuda_T> struct aotcuda_kind<aotcuda_T &> { static const int aotcuda_value = 400; };
template <int... aotcuda_K> struct aotcuda_list {};
template <class aotcuda_F> struct aotcuda_kinds;
template <class aotcuda_R, class... aotcuda_A> struct aotcuda_kinds<aotcuda_R(aotcuda_A...)> {
    typedef aotcuda_list<aotcuda_kind<aotcuda_R>::aotcuda_value, aotcuda_kind<aotcuda_A>::aotcuda_value...>
        aotcuda_type;
};
template <class aotcuda_R, class... aotcuda_A> struct aotcuda_kinds<aotcuda_R(aotcuda_A..., ...)> {
    typedef void aotcuda_type;
};
template <class aotcuda_A, class aotcuda_B> struct aotcuda_same { static const bool aotcuda_value = false; };
template <class aotcuda_A> struct aotcuda_same<aotcuda_A, aotcuda_A> { static const bool aotcuda_value = true; };
"""
"""Code that is appended to a source. All names begin with aotcuda_, because the source's macros apply to them."""

_KINDS = {
    "void": 0,
    "int8": 101,
    "int16": 102,
    "int32": 104,
    "int64": 108,
    "float16": 102,
    "float32": 204,
    "float64": 208,
    "struct": 300,
    "pointer": 400,
}
"""The number that `aotcuda_kind` in `_CHECKER` gives each type."""


def check(
    source: LinkInput, declarations: Sequence[External], target: Target, options: Options, include_dirs: Sequence[str]
) -> None:
    """Check that the functions `declarations`, all of which `source` defines, have the declared prototypes.

    Raises:
        LinkError: A prototype differs; the message shows both.
    """
    c_functions = [external for external in declarations if not external.name.startswith("_Z")]
    if not c_functions:
        return  # mangled names contain the parameters' types
    lines = [
        f"static_assert(aotcuda_same<aotcuda_kinds<decltype({external.name})>::aotcuda_type, "
        f"aotcuda_list<{', '.join(str(_KINDS[ty]) for ty in (external.result, *external.parameters))}>"
        ">::aotcuda_value, "
        f'"aotcuda: {external.name};");'
        for external in c_functions
    ]
    probe = replace(source, data=source.data + b"\n" + (_CHECKER + "\n".join(lines) + "\n").encode())
    try:
        nvrtc.compile_source(probe, target, options, include_dirs, lto=False)
    except CompileError as error:
        wrong = re.findall(r"aotcuda: (\w+);", str(error))
        function = next((external for external in c_functions if external.name in wrong), None)
        if function is None:
            return  # functions in a namespace are not visible by their plain names, and not checked
        remedy = (
            'make the two agree, with abi="c"'
            if source.header
            else (
                "make the two agree (in the Numba ABI a function returns int, and its first parameter is a "
                "pointer to its result)"
            )
        )
        message = (
            f"{source.name}: {function.name} is defined as {_definition_text(source, function.name)}, and Python "
            f"declares it as {_declaration_text(function)}{f' ({function.place})' if function.place else ''}; {remedy}"
        )
        raise LinkError(message) from None


def check_header(item: LinkInput, declarations: Iterable[External], target: Target, options: Options) -> None:
    """Compare declarations with the C header of `item`, which has another module's functions."""
    text = item.header.decode()
    names = set(re.findall(r"^AOTCUDA_DEVICE .*?\b(\w+)\(", text, re.MULTILINE))
    header_functions = [external for external in declarations if external.name in names]
    check(replace(item, kind="cu", data=item.header), header_functions, target, options, [])


def check_source(
    source: LinkInput, item: LinkInput, target: Target, options: Options, include_dirs: Sequence[str], asked_by: str
) -> None:
    """Check that the declarations in a CUDA C++ source agree with the C header of `item`, another packaged module.

    The header is appended to the source, and NVRTC compiles both. Errors begin with `asked_by`, the key that links
    `item`.
    """
    name = f"the header of {item.name}"
    data = source.data + f'\n#line 1 "{name}"\n'.encode() + item.header
    try:
        nvrtc.compile_source(replace(source, data=data), target, options, include_dirs, lto=False)
    except CompileError as error:
        # The compilation of the source alone reports all other errors.
        match = re.search(rf"^{re.escape(name)}\(\d+\): error: {_DIFFERS}.*\n(.*)$", str(error), re.MULTILINE)
        if match is None:
            return
        prototype = match[1].strip().removeprefix("AOTCUDA_DEVICE ")
        message = (
            f"{asked_by}: {source.name} declares a function of {item.name} otherwise than that module exports it; "
            f'write extern "C" __device__ {prototype}'
        )
        raise LinkError(message) from None


_DIFFERS = "(?:more than one instance of overloaded|cannot overload functions|linkage specification is incompatible)"


def _definition_text(source: LinkInput, name: str) -> str:
    """Return the function's prototype as the source has it."""
    text = source.data.decode(errors="replace")
    match = re.search(rf"([\w:<>*&\s]*?)\b{re.escape(name)}\s*\(([^)]*)\)", text)
    if match is None:
        return "something else"
    line = text.count("\n", 0, match.start() + len(match[0]) - len(match[0].lstrip())) + 1
    place = "" if source.header else f" ({source.name}:{line})"
    result = re.sub(
        r'\s+|extern|"C"|__device__|AOTCUDA_DEVICE|__forceinline__|__noinline__|static|inline', " ", match[1]
    ).split()
    parameters = " ".join(match[2].split())
    return f"{' '.join(result)} {name}({parameters}){place}"


def _declaration_text(external: External) -> str:
    return f"{_spell(external.result)} {external.name}({', '.join(map(_spell, external.parameters))})"


def _spell(ty: CType) -> str:
    return {"float32": "float", "float64": "double", "int32": "int", "pointer": "T *"}.get(ty, ty)
