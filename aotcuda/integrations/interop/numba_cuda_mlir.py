"""Packaged device functions inside `@cuda.jit` kernels of numba-cuda-mlir.

As in `numba_cuda` here, a `_numba_type_` with a case for each packaged signature. The compiler lowers calls of its
own `ExternFunction` objects; one stands behind each case, and which of them a call means is known by its types.

What kernels of such calls need beyond what the compiler does for its own `declare_device` is in
`aotcuda.integrations.interop.numba_cuda_mlir_patches`.
`aotcuda/registry.py` has the releases that it was tested with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir import cuda
from numba_cuda_mlir._mlir import ir
from numba_cuda_mlir._mlir.dialects import func
from numba_cuda_mlir.compiler import ExternFunction
from numba_cuda_mlir.descriptor import mlir_target
from numba_cuda_mlir.lowering_utilities import get_or_insert_function
from numba_cuda_mlir.numba_cuda import types, typing
from numba_cuda_mlir.numba_cuda.core import sigutils
from numba_cuda_mlir.numba_cuda.np import numpy_support

from aotcuda.integrations.interop import packaged
from aotcuda.integrations.interop.numba_cuda_mlir_patches import bring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.manifest import Function
    from aotcuda.runtime.device_function import Linkable


class _Key:
    """What stands for one Python name's packaged functions as the key of their type."""

    def __init__(self, name: str) -> None:
        self.name = name


def numba_type(module: Linkable, name: str, records: Sequence[Function]) -> Any:
    """The type of `records`, which are called by one name and told apart by their signatures.

    Raises:
        ManifestError: A packaged file is missing or altered.
        TypeError: A signature cannot be called from here.
    """
    records = packaged.callable_from(module, records, "numba-cuda-mlir")
    mlir_target.ensure_initialized()
    key = _Key(f"{module.name}.{name}")
    links = tuple(packaged.link_items(module, cuda))
    functions = {}
    for record in records:
        args, result = packaged.signature(record, numpy_support.from_dtype, types, sigutils)
        signature = typing.signature(result, *args)
        functions[args] = ExternFunction(record["name"], signature, link=links, abi="c")
    template = typing.make_concrete_template(name, key, [function.sig for function in functions.values()])
    made = types.Function(template)

    def lower(builder: Any, target: Any, args: Any, keywords: Any) -> None:
        # Lowering knows the arguments' own types, which need not be those of a signature: typing says which is meant.
        given = tuple(builder.get_numba_type(arg.name) for arg in args)
        meant = made.get_call_type(mlir_target.typing_context, given, {})
        function = functions[tuple(meant.args)]
        bring(builder, function.link)
        if any(isinstance(ty, types.BaseTuple) for ty in (*meant.args, meant.return_type)):
            _call_with_tuples(builder, target, function, args)
        else:
            builder.lower_call_external_function(target, function, args, keywords)

    mlir_target.target_context.insert_func_defn([(lower, key, (types.VarArg(types.Any),))])
    mlir_target.typing_context.insert_user_function(key, template)
    return made


def _call_with_tuples(builder: Any, target: Any, function: ExternFunction, args: Any) -> None:
    """Lower a call as the compiler lowers those of its own device functions, whose tuples are their items.

    What it does for C functions takes a tuple for one MLIR type, of which there is none.
    """
    result = function.sig.return_type
    results = [builder.get_return_type(item) for item in _items(result)]
    inputs = [builder.get_argument_type(item) for arg in function.sig.args for item in _items(arg)]
    operands = builder._call_operands_from_vars(args, expected_types=function.sig.args)
    kind = ir.FunctionType.get(inputs=inputs, results=results)
    callee = get_or_insert_function(function.name, kind, builder.mlir_gpu_module)
    values = builder._call_results_tuple(func.call(result=results, callee=callee.name.value, operands_=operands))
    if results:
        returned = builder._unflatten_abi_value(result, iter(values))
        builder.store_var(target, builder.from_return(result, returned))


def _items(ty: Any) -> list[Any]:
    """What a type becomes as an argument or a result: itself, or the items of a tuple and of the tuples in it."""
    if isinstance(ty, types.BaseTuple):
        return [item for member in ty for item in _items(member)]
    return [] if ty == types.none else [ty]
