"""Packaged device functions inside `@cuda.jit` kernels of numba-cuda-mlir.

A packaged function has a `_numba_type_` with an overload for each packaged signature, as in the module `numba_cuda`.
The compiler lowers calls of its own `ExternFunction` objects; each overload has one, and a call selects it by its
types.

The patches at the end pass link items from helpers to kernels. `aotcuda/registry.py` has the tested releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir import caching, cuda
from numba_cuda_mlir._mlir import ir
from numba_cuda_mlir._mlir.dialects import func
from numba_cuda_mlir.compiler import ExternFunction
from numba_cuda_mlir.descriptor import mlir_target
from numba_cuda_mlir.lowering_utilities import get_or_insert_function
from numba_cuda_mlir.mlir_lowering import MLIRLower
from numba_cuda_mlir.numba_cuda import types, typing
from numba_cuda_mlir.numba_cuda.core import sigutils
from numba_cuda_mlir.numba_cuda.np import numpy_support

from aotcuda.integrations.interop import packaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotcuda.manifest import Function
    from aotcuda.runtime.device_function import Linkable


def numba_type(module: Linkable, name: str, records: Sequence[Function]) -> Any:
    """Return the type of `records`, overloads of one name.

    Raises:
        ManifestError: A packaged file is missing or altered.
        TypeError: Kernels of this compiler cannot call a signature.
    """
    records = packaged.callable_from(module, records, "numba-cuda-mlir")
    mlir_target.ensure_initialized()
    key = packaged.Key(f"{module.name}.{name}")
    links = tuple(packaged.link_items(module, cuda))
    functions = {}
    for record in records:
        args, result = packaged.signature(record, numpy_support.from_dtype, types, sigutils)
        signature = typing.signature(result, *args)
        functions[args] = ExternFunction(record["name"], signature, link=links, abi="c")
    template = typing.make_concrete_template(name, key, [function.sig for function in functions.values()])
    numba_function = types.Function(template)

    def lower(builder: Any, target: Any, args: Any, keywords: Any) -> None:
        # The types of the arguments may differ from all signatures; typing selects the overload.
        arg_types = tuple(builder.get_numba_type(arg.name) for arg in args)
        selected = numba_function.get_call_type(mlir_target.typing_context, arg_types, {})
        function = functions[tuple(selected.args)]
        _add_links(builder, function.link)
        if any(isinstance(ty, types.BaseTuple) for ty in (*selected.args, selected.return_type)):
            _call_with_tuples(builder, target, function, args)
        else:
            builder.lower_call_external_function(target, function, args, keywords)

    mlir_target.target_context.insert_func_defn([(lower, key, (types.VarArg(types.Any),))])
    mlir_target.typing_context.insert_user_function(key, template)
    return numba_function


def _call_with_tuples(builder: Any, target: Any, function: ExternFunction, args: Any) -> None:
    """Lower a call as the compiler does for its own device functions, with the items of tuples as arguments.

    The compiler's lowering of C functions needs one MLIR type for a tuple, and MLIR has none.
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
    """Return the types of the items of nested tuples; for another type the type itself."""
    if isinstance(ty, types.BaseTuple):
        return [item for member in ty for item in _items(member)]
    return [] if ty == types.none else [ty]


_LINKS = "aotcuda_links"
"""The key for link items of packaged modules: in the metadata of a compilation, and an attribute of its linker."""


def _add_links(builder: Any, items: Iterable[Any]) -> None:
    """Add `items` to the link of the kernel or helper that `builder` lowers, with LTO unless its author decided."""
    links = builder.metadata.setdefault(_LINKS, [])
    for item in items:
        if not any(item is other for other in links):
            links.append(item)
        builder.link_external_item(item)  # it links each object once
    # The compiler's default is LTO if an LTOIR file is linked. It does not detect LTOIR in these fatbins.
    options = builder.targetoptions
    if not any(options.get(name) for name in ("_lto_explicit", "_compile_output", "debug")):
        builder.targetoptions = {**options, "lto": True}


def _pass_links_from_helpers() -> None:
    # A helper that is not inlined is compiled separately, and its caller gets only its LTOIR: other link items would be
    # missing in the link, and the callbacks would never run.
    create, record = MLIRLower._create_resolved_linker, MLIRLower._record_ltoirs_from_linker

    def create_resolved_linker(self: Any) -> Any:
        linker = create(self)
        setattr(linker, _LINKS, self.metadata.get(_LINKS, []))
        return linker

    def record_ltoirs_from_linker(self: Any, linker: Any) -> None:
        record(self, linker)
        if items := getattr(linker, _LINKS, None):
            _add_links(self, [*items])

    MLIRLower._create_resolved_linker = create_resolved_linker
    MLIRLower._record_ltoirs_from_linker = record_ltoirs_from_linker


def _keep_out_of_the_disk_cache() -> None:
    # The files of `cache=True` record neither the callbacks nor the wheel whose code they contain.
    original = caching.MLIRCacheImpl.check_cachable

    def check_cachable(self: Any, cres: Any) -> bool:
        return not cres.metadata.get(_LINKS) and original(self, cres)

    caching.MLIRCacheImpl.check_cachable = check_cachable


_pass_links_from_helpers()
_keep_out_of_the_disk_cache()
