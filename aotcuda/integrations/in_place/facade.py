"""What `aotcuda.numba` has for a source that is packaged in place: `cuda`, types, and what is had from Numba."""

from __future__ import annotations

from aotcuda.integrations.in_place.deferred import (
    Declaration,
    Deferred,
    FromNumba,
    TypeName,
    exception,
    need,
    of_package,
)
from aotcuda.integrations.in_place.deferred import attribute as of_owner
from aotcuda.integrations.in_place.functions import Decorator, cuda_jit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.integrations.in_place.gpus import Context, Device, Gpus

_SCALARS = frozenset(
    [
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "boolean",
        "bool_",
        "bool",
        "void",
        "none",
        "char",
        "uchar",
        "short",
        "ushort",
        "int_",
        "uint",
        "intc",
        "uintc",
        "intp",
        "uintp",
        "size_t",
        "ssize_t",
        "long_",
        "ulong",
        "longlong",
        "ulonglong",
        "float_",
        "double",
        "byte",
        "b1",
        "i1",
        "i2",
        "i4",
        "i8",
        "u1",
        "u2",
        "u4",
        "u8",
        "f4",
        "f8",
        "c8",
        "c16",
        "bfloat16",
    ]
)
_DECLARED = frozenset(["from_dtype", "typeof", "declare_device"])
_DECORATORS = frozenset(
    ["jit", "njit", "vectorize", "guvectorize", "cfunc", "stencil", "reduce", "Reduce", "generated_jit"]
)

_found: dict[tuple[str, str], object] = {}


def attribute(package: str, name: str) -> object:
    """What a package has under a name.

    Raises:
        AttributeError: `__version__` of a Numba that is not installed.
    """
    if (package, name) not in _found:
        found = Cuda(package) if name == "cuda" else _made(package, package, name)
        if isinstance(found, type):  # which is another one once Numba was imported
            return found
        _found[package, name] = found
    return _found[package, name]


def gpus_of() -> Any:
    """The module that asks the driver, imported when something is asked of it."""
    from aotcuda.integrations.in_place import gpus  # noqa: PLC0415 (few sources ask)

    return gpus


def _made(package: str, owner: str, name: str) -> Any:
    """What stands for `name` of `owner`, which is the package or its `cuda`."""
    words = f"{owner}.{name}"

    def make() -> Any:
        whole = need(package, words)
        return of_package(whole, name) if owner == package else of_owner(of_owner(whole, "cuda"), name)

    if name == "__version__":
        return _version(package)
    if name.endswith(("Error", "Warning")):
        return exception(package, words, make)
    if name in _SCALARS or name == "types":
        return TypeName(package, words, make)
    if name in _DECLARED or _is_linkable(name):
        return Declaration(package, words, make)
    if name in _DECORATORS:
        return Decorator(package, words, make)
    return FromNumba(package, words, make)


def _is_linkable(name: str) -> bool:
    """Whether a name is of a class of what can be linked."""
    if not name[:1].isupper():
        return False
    from aotcuda.manifest import linkable  # noqa: PLC0415 (few sources link)

    return name in linkable.CLASSES


def _version(package: str) -> str:
    from importlib import metadata  # noqa: PLC0415 (few sources ask)

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        message = f"{package} is not installed, and has no version"
        raise AttributeError(message, name="__version__") from None


class Cuda(Deferred):
    """`numba.cuda` for a source that is packaged in place.

    Kernels are launched, and GPUs asked, without Numba. Names that mean something in kernels alone cost nothing. What
    else there is comes from Numba when it is called.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self.jit = cuda_jit(package)

    def of_numba(self) -> Any:
        """See Deferred."""
        return of_owner(need(self._package, f"{self._package}.cuda"), "cuda")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            message = f"{self!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
        if name in ("In", "Out", "InOut"):
            from aotcuda.integrations.in_place import hints  # noqa: PLC0415 (few sources name them)

            return getattr(hints, name)
        found = _made(self._package, f"{self._package}.cuda", name)
        if name == "cudadrv":
            from aotcuda.integrations.in_place.namespace import Namespace  # noqa: PLC0415 (few sources ask)

            found = Namespace(self._package, f"{self._package}.cuda.cudadrv", found.of_numba, self._of_driver())
        if not isinstance(found, type):
            self.__dict__[name] = found
        return found

    def _of_driver(self) -> dict[str, Any]:
        """What `cuda.cudadrv` has that the driver answers: programs ask it whether there is a GPU."""
        return {
            "devices.gpus": lambda: self.gpus,
            "devices.get_context": lambda: self.current_context,
            "error.CudaSupportError": lambda: self.CudaSupportError,
            "driver.CudaAPIError": lambda: gpus_of().failed(self._package),
        }

    def __repr__(self) -> str:
        return f"<{self._package}.cuda, in place>"

    @property
    def CudaSupportError(self) -> type[Exception]:  # noqa: N802 (Numba's name)
        """What is raised where there is no GPU, for `except`: Numba's class, where Numba was imported."""
        from aotcuda.integrations.in_place import gpus  # noqa: PLC0415 (few sources ask)

        return gpus.no_gpu(self._package)

    def is_available(self) -> bool:
        """Whether there is a GPU and a driver that works."""
        from aotcuda.integrations.in_place import gpus  # noqa: PLC0415 (as all that follow: few sources ask while they are imported)

        return gpus.is_available()

    def synchronize(self) -> None:
        """Wait for all work on the current GPU.

        Raises:
            RuntimeUnavailableError: There is no driver or no GPU.
            CudaError: A kernel has failed.
        """
        self.current_context().synchronize()

    def current_context(self, devnum: int | None = None) -> Context:
        """The current context; that of a GPU is made current in this thread if there is none.

        Args:
            devnum: The GPU, by default the current one.

        Raises:
            RuntimeUnavailableError: There is no driver or no GPU.
        """
        from aotcuda.integrations.in_place import gpus  # noqa: PLC0415

        return gpus.current_context(self._package, devnum)

    def get_current_device(self) -> Device:
        """The current GPU; errors as for `current_context`."""
        return self.current_context().device

    def select_device(self, device_id: int) -> Device:
        """Make a GPU's context current in this thread; errors as for `current_context`."""
        return self.current_context(device_id).device

    def list_devices(self) -> Gpus:
        """The GPUs."""
        return self.gpus

    @property
    def gpus(self) -> Gpus:
        """The GPUs."""
        from aotcuda.integrations.in_place import gpus  # noqa: PLC0415

        return gpus.Gpus(self._package)
