"""Packaged device functions inside `@cuda.jit` kernels of numba-cuda-mlir.

As in `aotcuda.interop.numba_cuda`, a `_numba_type_` with a case for each packaged signature. The compiler lowers calls
of its own `ExternFunction` objects; one stands behind each case, and which of them a call means is known by its types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir import cuda
from numba_cuda_mlir.compiler import ExternFunction
from numba_cuda_mlir.descriptor import mlir_target
from numba_cuda_mlir.numba_cuda import types, typing
from numba_cuda_mlir.numba_cuda.core import sigutils
from numba_cuda_mlir.numba_cuda.np import numpy_support

from aotcuda.interop import packaged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.manifest import Function
    from aotcuda.runtime.module import Module


class _Key:
    """What stands for one Python name's packaged functions as the key of their type."""

    def __init__(self, name: str) -> None:
        self.name = name


def numba_type(module: Module, name: str, records: Sequence[Function]) -> Any:
    """The type of `records`, which are called by one name and told apart by their signatures.

    Raises:
        ManifestError: A packaged file is missing or altered.
        TypeError: A signature cannot be called from here.
    """
    packaged.check_abi(module, records, "numba-cuda-mlir")
    mlir_target.ensure_initialized()
    key = _Key(f"{module.name}.{name}")
    links = tuple(packaged.link_items(module, cuda))
    functions = {}
    for record in records:
        args, result = _parse(record)
        signature = typing.signature(result, *args)
        functions[args] = ExternFunction(record["name"], signature, link=links, abi="c")
    template = typing.make_concrete_template(name, key, [function.sig for function in functions.values()])
    made = types.Function(template)

    def lower(builder: Any, target: Any, args: Any, keywords: Any) -> None:
        # Lowering knows the arguments' own types, which need not be those of a signature: typing says which is meant.
        given = tuple(builder.get_numba_type(arg.name) for arg in args)
        meant = made.get_call_type(mlir_target.typing_context, given, {})
        builder.lower_call_external_function(target, functions[tuple(meant.args)], args, keywords)

    mlir_target.target_context.insert_func_defn([(lower, key, (types.VarArg(types.Any),))])
    mlir_target.typing_context.insert_user_function(key, template)
    return made


def _parse(record: Function) -> tuple[tuple[Any, ...], Any]:
    text, names = packaged.signature_names(record, numpy_support.from_dtype)
    args, result = sigutils.normalize_signature(eval(text, {}, {**vars(types), **names}))  # noqa: S307 (checked JSON)
    return tuple(args), result
