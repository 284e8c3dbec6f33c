"""How an argument that a kernel does not take becomes one that it takes, in the words of the library that is used."""

from __future__ import annotations

from aotcuda.runtime import module_of
from aotcuda.runtime.arguments import arrays, host_arrays, names, scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from aotcuda.manifest import Parameter

_ARRAYS = ("array", "buffer", "elements")
_NUMBERS = ("scalar", "complex", "number")
_SEQUENCES = (list, tuple, range, bytes, bytearray, memoryview)


def conversion(parameter: Parameter, arg: object, args: Iterable[object]) -> str | None:
    """An expression that makes of an argument what its parameter takes, and what it is; None where none is known.

    Args:
        parameter: The parameter's entry in the manifest.
        arg: The argument.
        args: All of the launch: new arrays are made in the library that the others are of.
    """
    name, kind = parameter["name"], parameter["kind"]
    if kind == "tuple":
        return f"tuple({name})" if isinstance(arg, list) else None
    if kind in _NUMBERS:
        if arrays.family(arg) is not None or host_arrays.is_host(arg):
            return f"{name}.item(), the number in an array of one element" if hasattr(type(arg), "item") else None
        is_int = scalars.family(parameter) == "int" and scalars.kind_of(arg) == "float"
        return f"int({name}), or {name} // 2 in place of {name} / 2" if is_int else None
    dtype = names.type_name(parameter["dtype"]) if kind in _ARRAYS else ""
    if not dtype.isidentifier():
        return None
    if isinstance(arg, _SEQUENCES):
        return f"{_new(name, dtype, args)}; a {names.class_of(arg)} is no array, and on no GPU"
    read = arrays.reader(arg)
    view = read(arg, [], 0) if read is not None else None
    if view is None or view[0] == parameter["dtype"]:
        return None
    way = f"{name}.to(torch.{dtype})" if _library(arg) == "torch" else f'{name}.astype("{dtype}")'
    return f"{way}, a copy" if hasattr(type(arg), way.removeprefix(f"{name}.").partition("(")[0]) else None


def onto_the_gpu(name: str, arg: object) -> str:
    """What copies an array to the GPU, in its own library."""
    return {
        "torch": f"{name}.cuda()",
        "jax": f'jax.device_put({name}, jax.devices("gpu")[0])',
    }.get(_library(arg), "cupy.asarray")


def _new(name: str, dtype: str, args: Iterable[object]) -> str:
    used = [_library(arg) for arg in args if arrays.family(arg) is not None]
    ways = {
        "torch": f'torch.tensor({name}, dtype=torch.{dtype}, device="cuda")',
        "jax": f'jax.numpy.asarray({name}, "{dtype}")',
    }
    return next((ways[each] for each in used if each in ways), f'cupy.asarray({name}, "{dtype}")')


def _library(arg: object) -> str:
    """The top package of an array's class; JAX's arrays are of a package of their own."""
    top = next((module_of(kind) for kind in type(arg).__mro__ if module_of(kind) == "torch"), module_of(type(arg)))
    return top.partition(".")[0].replace("jaxlib", "jax")
