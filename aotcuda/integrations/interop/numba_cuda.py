"""Packaged device functions inside `@cuda.jit` kernels of numba-cuda.

Numba reads the type of an object from its attribute `_numba_type_`. The attribute of a packaged function is computed
when Numba compiles a kernel that calls it: a foreign function with the C ABI for each packaged signature, linked with
the module's LTOIR (and PTX, for links without LTO), its link items and its callbacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import _numba_cuda_redirector  # type: ignore[import-untyped]  # noqa: F401 (see aotcuda.builder.frontends.numba_cuda)
from numba import cuda
from numba.cuda import types, typing
from numba.cuda.codegen import ExternalCodeLibrary
from numba.cuda.core import sigutils
from numba.cuda.core.callconv import CUDACABICallConv
from numba.cuda.core.funcdesc import ExternalFunctionDescriptor
from numba.cuda.descriptor import cuda_target
from numba.cuda.np import numpy_support

from aotcuda.integrations.interop import packaged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.manifest import Function
    from aotcuda.runtime.device_function import Linkable


def numba_type(module: Linkable, name: str, records: Sequence[Function]) -> Any:
    """Return the Numba type of `records`, overloads of one name.

    Raises:
        ManifestError: A packaged file is missing or altered.
        TypeError: Kernels of this compiler cannot call a signature.
    """
    records = packaged.callable_from(module, records, "numba-cuda")
    typing_context, target_context = cuda_target.typing_context, cuda_target.target_context
    key = packaged.Key(f"{module.name}.{name}")
    library = ExternalCodeLibrary(f"{key.name} (packaged)", target_context.codegen())
    for item in packaged.link_items(module, cuda):
        library.add_linking_file(item)
    signatures = []
    for record in records:
        args, result = packaged.signature(record, numpy_support.from_dtype, types, sigutils)
        signatures.append(typing.signature(result, *args))
        descriptor = ExternalFunctionDescriptor(record["name"], result, args, CUDACABICallConv(target_context))
        target_context.insert_user_function(key, descriptor, libs=(library,))
    template = typing.make_concrete_template(name, key, signatures)
    typing_context.insert_user_function(key, template)
    return types.Function(template)
