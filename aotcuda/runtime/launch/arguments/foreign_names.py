"""The private names of other libraries that launches use. All other names that launches use are documented.

A library may rename them in any release. Launches then work without the name, as the field `otherwise` describes.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class PrivateName:
    """A private name of a library.

    Attributes:
        module: The module that has the name; for an attribute of objects, the module of their class.
        path: The name; dots separate attributes of an object of the module.
        reason: Why a launch uses it.
        otherwise: The behaviour of launches where the library lacks the name.
    """

    __slots__ = ("_parts", "module", "otherwise", "path", "reason")

    def __init__(self, module: str, path: str, reason: str, otherwise: str) -> None:
        self.module = module
        self.path = path
        self._parts = path.split(".")
        self.reason = reason
        self.otherwise = otherwise

    def find(self) -> Any:
        """Return the object of this name; None if the module is not imported or has no such name."""
        item: Any = sys.modules.get(self.module)
        for part in self._parts:
            item = getattr(item, part, None)
        return item


TORCH_STREAM = PrivateName(
    "torch",
    "_C._cuda_getCurrentRawStream",
    "The handle of PyTorch's current stream on a GPU in 0.1 us; torch.cuda.current_stream() makes an object, in 1 us.",
    "Launches neither use PyTorch's current stream nor wait for it.",
)
CUPY_STREAM = PrivateName(
    "cupy_backends.cuda.stream",
    "__pyx_capi__",
    "C functions that give CuPy's current stream in 10 ns; cupy.cuda.get_current_stream() makes an object, in 0.2 us.",
    "The C path calls cupy.cuda.get_current_stream().",
)
CUPY_INTERFACE_VERSION = PrivateName(
    "cupy",
    "_util.CUDA_ARRAY_INTERFACE_EXPORT_VERSION",
    "The value of the environment variable of this name when CuPy was imported: below 3 its arrays name no stream.",
    "Its arrays name a stream, which is CuPy's default.",
)
CUPY_CONTIGUOUS = PrivateName(
    "cupy",
    "_c_contiguous",
    "The attribute tells in 10 ns if an array is C-contiguous; flags.c_contiguous takes 0.5 us, strides 0.15 us.",
    "Arrays are read by __cuda_array_interface__.",
)

ALL = (TORCH_STREAM, CUPY_STREAM, CUPY_INTERFACE_VERSION, CUPY_CONTIGUOUS)
