"""Write Numba's types in the notation of `[tool.aotcuda]`; refuse types that packaged kernels cannot have.

Types are distinguished by the names of their classes, because Numba, Numba-CUDA and Numba-CUDA-MLIR have
separate classes with the same names.
"""

from __future__ import annotations

import inspect
import json
import sys

import aotcuda_recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import FunctionType
    from typing import Any

    from aotcuda_recorder.log import Facts

_SCALARS = frozenset(
    ["boolean", "float16", "float32", "float64", "bfloat16", "complex64", "complex128"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
_SPELLINGS = {"bool": "boolean", "__nv_bfloat16": "bfloat16", "void*": "voidptr"}
_FRONT_ENDS = ("numba.cuda.np.numpy_support", "numba.np.numpy_support", "numba_cuda_mlir.numba_cuda.np.numpy_support")
_RANDOM = ("numba.cuda.random", "numba_cuda_mlir.numba_cuda.random")


class RefusedError(Exception):
    """A type that no signature in `[tool.aotcuda]` can name, or that no packaged kernel accepts."""


def signature(function: FunctionType, args: Iterable[Any], result: Any = None) -> Facts:
    """Return the `signature` of a call of a function, and as `types_refused` a reason against packaging it."""
    texts, problems = [], []
    names = [*inspect.signature(function).parameters]
    for index, ty in enumerate(args):
        try:
            texts.append(spell(ty, function.__globals__))
        except RefusedError as error:
            name = repr(names[index]) if index < len(names) else str(index + 1)
            problems.append(f"argument {name} {error}")
            texts.append(str(ty))
    try:
        returned = "void" if result is None or str(result) in ("none", "void") else spell(result, function.__globals__)
    except RefusedError:
        returned = str(result)
    facts: Facts = {"signature": f"{returned}({', '.join(texts)})"}
    return facts | ({"types_refused": "; ".join(problems)} if problems else {})


def spell(ty: Any, namespace: Mapping[str, object]) -> str:
    """Return a type in the notation of signatures.

    Args:
        ty: The type.
        namespace: The globals of the function's module, which may have names for records.

    Raises:
        RefusedError: It cannot be written, or no packaged kernel accepts it.
    """
    classes = {cls.__name__ for cls in type(ty).__mro__}
    if "Literal" in classes and getattr(ty, "literal_type", None) is not None:
        return spell(ty.literal_type, namespace)
    if "Array" in classes:
        return _array(ty, namespace)
    if type(ty).__name__ == "UniTuple":
        return f"UniTuple({spell(ty.dtype, namespace)}, {ty.count})"
    if type(ty).__name__ == "Tuple":
        members = [spell(item, namespace) for item in ty]
        return f"Tuple(({', '.join(members)}{',' if len(members) == 1 else ''}))"
    if "CPointer" in classes:
        return f"CPointer({spell(ty.dtype, namespace)})"
    if classes & {"NPDatetime", "NPTimedelta"}:
        return f"{type(ty).__name__}({ty.unit!r})"
    if "Record" in classes:
        return _record(ty, namespace)
    text = _SPELLINGS.get(str(ty), str(ty))
    if text not in _SCALARS and text != "voidptr":
        message = f"is of type {ty}, which a packaged kernel cannot accept"
        raise RefusedError(message)
    return text


def _array(ty: Any, namespace: Mapping[str, object]) -> str:
    element = spell(ty.dtype, namespace)
    if {"Array", "BaseTuple", "CPointer", "RawPointer"} & {cls.__name__ for cls in type(ty.dtype).__mro__}:
        message = f"is an array of {ty.dtype}, which a packaged kernel cannot accept"
        raise RefusedError(message)
    # Fields of a record may have any offset, so Numba treats every array of records as unaligned.
    aligned = ty.aligned or "Record" in {cls.__name__ for cls in type(ty.dtype).__mro__}
    if not ty.mutable or not aligned or ty.ndim == 0:
        extra = ("" if ty.mutable else ", readonly=True") + ("" if aligned else ", aligned=False")
        return f"Array({element}, {ty.ndim}, {ty.layout!r}{extra})"
    dims = [":"] * ty.ndim
    if ty.layout == "C":
        dims[-1] = "::1"
    elif ty.layout == "F":
        dims[0] = "::1"
    return f"{element}[{', '.join(dims)}]"


def _record(ty: Any, namespace: Mapping[str, object]) -> str:
    """Return the name of a record in the module or in the project's table."""
    from_dtype = next((sys.modules[name].from_dtype for name in _FRONT_ENDS if name in sys.modules), None)
    for name, value in (*namespace.items(), *_types_of_the_project()):
        if type(value).__module__.partition(".")[0] == "numpy" and getattr(value, "names", None) and from_dtype:
            value = from_dtype(value)  # noqa: PLW2901 (the type for which the dtype stands)
        if type(value).__name__ == type(ty).__name__ and str(value) == str(ty):
            return name
    for name in _RANDOM:
        states = getattr(sys.modules.get(name), "xoroshiro128p_type", None)
        if states is not None and str(states) == str(ty):
            return "xoroshiro128p_type"
    fields = ", ".join(getattr(ty, "fields", ()))
    message = f"is a record ({fields}) whose dtype has no name in the function's module; give it one there"
    raise RefusedError(message)


def _types_of_the_project() -> Iterator[tuple[str, Any]]:
    """Return objects that `[tool.aotcuda.types]` names in imported modules: `particle = "mypkg.dtypes:particle"`."""
    for name, text in json.loads(aotcuda_recorder.environ[aotcuda_recorder.TYPES] or "{}").items():
        module, colon, attribute = text.strip().partition(":")
        if colon:
            value: object = sys.modules.get(module)
            for part in attribute.split("."):
                value = getattr(value, part, None)
            yield name, value
