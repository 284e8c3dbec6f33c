"""The content of `aotcuda.numba` for a source module that is packaged in place: `cuda`, types, and proxies."""

from __future__ import annotations

from .functions import cuda_jit, host_decorator
from .numba_proxy import NumbaProxy, Proxy, exception, import_numba, package_attribute
from .numba_proxy import attribute as attribute_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .gpus import Context, Device, Gpus

_SCALARS = frozenset(
    [
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "bfloat16", "complex64", "complex128", "boolean", "bool_", "bool"),
        *("void", "none", "char", "uchar", "short", "ushort", "int_", "uint", "intc", "uintc", "intp", "uintp"),
        *("size_t", "ssize_t", "long_", "ulong", "longlong", "ulonglong"),
        *("float_", "double", "byte", "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16"),
    ]
)
_DECLARED = frozenset(["types", "from_dtype", "typeof", "declare_device"])
_DECORATORS = frozenset(
    ["jit", "njit", "vectorize", "guvectorize", "cfunc", "stencil", "reduce", "Reduce", "generated_jit"]
)

_objects: dict[tuple[str, str], object] = {}
"""The results of `attribute`."""


def attribute(package: str, name: str) -> object:
    """Return the object that a source gets under a name of the package.

    Raises:
        AttributeError: `__version__` of a Numba that is not installed.
    """
    if (package, name) not in _objects:
        value = Cuda(package) if name == "cuda" else _proxy(package, package, name)
        if isinstance(value, type):  # importing Numba replaces the class
            return value
        _objects[package, name] = value
    return _objects[package, name]


def _proxy(package: str, owner: str, name: str, known: dict[str, Callable[[], Any]] | None = None) -> Any:
    """Return the stand-in for `name` of `owner`, which is the package or its `cuda`; `known` as for NumbaProxy."""
    label = f"{owner}.{name}"

    def make() -> Any:
        numba = import_numba(package, label)
        return package_attribute(numba, name) if owner == package else attribute_of(attribute_of(numba, "cuda"), name)

    if name == "__version__":
        return _version(package)
    if name.endswith(("Error", "Warning")):
        return exception(package, label, make)
    if name in _DECORATORS:
        return host_decorator(package, label.partition(".")[2])
    declares = name in _SCALARS or name in _DECLARED or _is_linkable(name)
    return NumbaProxy(package, label, make, declares=declares, known=known)


def _is_linkable(name: str) -> bool:
    """Return True for the name of a class of linkable items."""
    if not name[:1].isupper():
        return False
    from ...manifest import linkable  # noqa: PLC0415 (few sources link)

    return name in linkable.CLASSES


def _version(package: str) -> str:
    from importlib import metadata  # noqa: PLC0415 (few sources query the version)

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        message = f"{package} is not installed, and has no version"
        raise AttributeError(message, name="__version__") from None


class Cuda(Proxy):
    """`numba.cuda` for a source that is packaged in place.

    Launches and GPU queries need no Numba. Other names are proxies.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self.jit = cuda_jit(package)

    def numba_object(self) -> Any:
        """Implement Proxy.numba_object."""
        return attribute_of(import_numba(self._package, f"{self._package}.cuda"), "cuda")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            message = f"{self!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
        if name in ("In", "Out", "InOut"):
            from . import argument_annotations  # noqa: PLC0415 (few sources name them)

            return getattr(argument_annotations, name)
        known = self._driver_names() if name == "cudadrv" else None
        proxy = _proxy(self._package, f"{self._package}.cuda", name, known)
        if not isinstance(proxy, type):
            self.__dict__[name] = proxy
        return proxy

    def _driver_names(self) -> dict[str, Any]:
        """Return the names of `cuda.cudadrv` that need only the driver; programs use them to find a GPU."""

        def api_error() -> type[Exception]:
            from . import gpus  # noqa: PLC0415 (few sources query GPUs at import)

            return gpus.driver_error_class(self._package)

        return {
            "devices.gpus": lambda: self.gpus,
            "devices.get_context": lambda: self.current_context,
            "error.CudaSupportError": lambda: self.CudaSupportError,
            "driver.CudaAPIError": api_error,
        }

    def __repr__(self) -> str:
        return f"<cuda of aotcuda.{self._package}, in place>"

    @property
    def CudaSupportError(self) -> type[Exception]:  # noqa: N802 (Numba's name)
        """Return the class of the error for a missing GPU; Numba's class if Numba is imported."""
        from . import gpus  # noqa: PLC0415 (few sources query GPUs at import)

        return gpus.missing_gpu_class(self._package)

    def is_available(self) -> bool:
        """Return True if there is a GPU and a working driver."""
        from . import gpus  # noqa: PLC0415 (few sources query GPUs at import)

        return gpus.is_available()

    def synchronize(self) -> None:
        """Wait for all work on the current GPU.

        Raises:
            RuntimeUnavailableError: There is no driver or no GPU.
            CudaError: A kernel has failed.
        """
        self.current_context().synchronize()

    def current_context(self, devnum: int | None = None) -> Context:
        """Return the current context; if there is none, make the context of a GPU current in this thread.

        Args:
            devnum: The GPU's ordinal; by default the current GPU, or 0.

        Raises:
            RuntimeUnavailableError: There is no driver or no GPU.
        """
        from . import gpus  # noqa: PLC0415 (few sources query GPUs at import)

        return gpus.current_context(self._package, devnum)

    def get_current_device(self) -> Device:
        """Return the current GPU; errors as for `current_context`."""
        return self.current_context().device

    def select_device(self, device_id: int) -> Device:
        """Make a GPU's context current in this thread; errors as for `current_context`."""
        return self.current_context(device_id).device

    def list_devices(self) -> Gpus:
        """Return the GPUs."""
        return self.gpus

    @property
    def gpus(self) -> Gpus:
        """Return the GPUs."""
        from . import gpus  # noqa: PLC0415 (few sources query GPUs at import)

        return gpus.Gpus(self._package)
