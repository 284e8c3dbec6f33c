"""Results of decorators in a source that is packaged in place: kernels, device functions, host functions.

They are made during the import of the source, and only store the function. The first launch finds the packaged
kernel.
"""

from __future__ import annotations

from . import numba_proxy
from .numba_proxy import Proxy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType
    from typing import Any, NoReturn

    from .kernel import PackagedKernel

_NONE: dict[Any, Any] = {}
"""No options, or no launchers; nothing writes to it."""

_FunctionType: Any = type(lambda: None)  # this avoids an import of the module types


class Function(Proxy):
    """A decorated Python function.

    Attributes:
        py_func: The function.
    """

    def __init__(
        self, package: str, decorator: str, function: FunctionType, args: tuple[object, ...], options: dict[str, object]
    ) -> None:
        # Each new object may start the garbage collector, so this creates few.
        self.__module__, self.__name__, self.__qualname__, self.__doc__ = (
            function.__module__,
            function.__name__,
            function.__qualname__,
            function.__doc__,
        )
        self.py_func = self.__wrapped__ = function
        self._package = package
        self._decorator = decorator
        self._args = args
        self._options = options or _NONE
        self._numba: Any = None

    def numba_object(self) -> Any:
        """Return the result of Numba's own decorator (see Proxy)."""
        if self._numba is None:
            result = self._decorate(*self._args, **self._options)
            self._numba = self._numba or result  # `_decorate` may have decorated this function for another function
        return self._numba

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "py_func":
            message = f"{type(self).__name__} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)
        attributes = vars(self.py_func)
        return attributes[name] if name in attributes else getattr(self.numba_object(), name)

    def __reduce__(self) -> str:
        return self.__qualname__

    def __str__(self) -> str:
        return f"{self.__module__}.{self.__qualname__}"

    def __repr__(self) -> str:
        return f"<{self}, in place>"

    def _decorate(self, *args: object, **options: object) -> Any:
        """Return the result of Numba's decorator with these arguments."""
        what = f"{self._package}.{self._decorator}, which makes {self},"
        decorator: Any = numba_proxy.import_numba(self._package, what)
        for name in self._decorator.split("."):
            decorator = numba_proxy.attribute(decorator, name)
        function = numba_proxy.compilable_function(self.py_func)
        named = {name: numba_proxy.resolve(value) for name, value in options.items()}
        if args or named:
            return decorator(*map(numba_proxy.resolve, args), **named)(function)
        return decorator(function)


class HostFunction(Function):
    """A function for the host that Numba compiles when it is called."""

    def __call__(self, *args: object, **options: object) -> Any:
        """Call it.

        Raises:
            DependencyError: Numba is not installed.
        """
        return self.numba_object()(*args, **options)


class DeviceFunction(Function):
    """A function for kernels to call."""

    def __call__(self, *_args: object, **_named: object) -> NoReturn:
        """Raise an error: device functions cannot be called from the host.

        Raises:
            CallError: Always.
        """
        from ...runtime.launch.arguments import explain  # noqa: PLC0415 (only errors come here)

        raise explain.host_call_error(str(self))


class Kernel(Function):
    """A kernel. `kernel[grid, block](*args)` launches a packaged overload with Numba's semantics.

    The class also serves device functions that are decorated without `device=True`; they are never launched.
    """

    def __init__(
        self, package: str, decorator: str, function: FunctionType, args: tuple[object, ...], options: dict[str, object]
    ) -> None:
        super().__init__(package, decorator, function, args, options)
        self._as_built: Any = None  # the packaged kernel, once it is known to be as built
        self._found: PackagedKernel | None = None
        self._is_as_built = False
        self._numba_kernel: Any = None

    def __getitem__(self, configuration: object) -> Any:
        """Return a launcher for `grid, block`, and optionally a stream and bytes of dynamic shared memory.

        Raises:
            LaunchError: The grid, the block or the shared memory is not possible.
            ArgumentError: The stream is not a stream.
            ManifestError: A packaged file was altered.
            DependencyError: The kernel is not packaged, and Numba is not installed.
        """
        packaged = self._as_built
        return (self._launchable() if packaged is None else packaged)[configuration]

    def forall(self, ntasks: int, tpb: int = 0, stream: object = 0, sharedmem: int = 0) -> Any:
        """Return a launcher with at least `ntasks` threads; the kernel must ignore further threads.

        Args:
            ntasks: The number of threads.
            tpb: Threads of a block; by default the number with the highest occupancy.
            stream: As in a configuration.
            sharedmem: Bytes of dynamic shared memory for each block.

        Raises:
            LaunchError: `ntasks` is negative, or the block is not possible.
        """
        return self._launchable().forall(ntasks, tpb, stream, sharedmem)

    def configure(self, griddim: object, blockdim: object, stream: object = 0, sharedmem: int = 0) -> Any:
        """Return a launcher, as the subscript does."""
        return self[griddim, blockdim, stream, sharedmem]

    def __call__(self, *_args: object, **_named: object) -> NoReturn:
        """Raise an error: a launch needs a configuration.

        Raises:
            CallError: Always; it is a ValueError, like Numba's error.
        """
        from ...runtime.launch.arguments import explain  # noqa: PLC0415 (only errors come here)

        raise explain.configuration_error(str(self), self.__name__)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name not in vars(self.py_func):
            packaged = self.packaged()
            if packaged is not None and hasattr(packaged, name):
                return getattr(packaged, name)
        return super().__getattr__(name)

    def numba_object(self) -> Any:
        """Return a dispatcher for other kernels to call, without signatures (see Proxy)."""
        if self._numba is None:
            result = self._decorate(**self._options)
            self._numba = self._numba or result
        return self._numba

    def packaged(self) -> PackagedKernel | None:
        """Return the packaged kernel, or None.

        Raises:
            ManifestError: A packaged file was altered.
            StaleBuildError: The source has changed since the build.
        """
        if self._found is None:
            from . import lookup  # noqa: PLC0415 (not before something is launched)

            self._found = lookup.find_numba_kernel(self, self.py_func)
        return self._found

    def _launchable(self) -> Any:
        """Return the packaged kernel, or Numba's own.

        The first launch compares the values that the kernel reads with those of the build.
        """
        if self._numba_kernel is None:
            packaged = self.packaged()
            if packaged is not None and self._is_as_built:
                return packaged
            from . import lookup  # noqa: PLC0415 (as in `packaged`)

            difference = lookup.value_difference(packaged, self.py_func) if packaged is not None else None
            if packaged is not None and difference is None:
                self._is_as_built = True
                self._as_built = packaged
                return packaged
            lookup.allow_numba(self.py_func, self._package, difference)
            self._numba_kernel = self._decorate(*self._args, **self._options) if self._args else self.numba_object()
        return self._numba_kernel


def cuda_jit(package: str) -> Callable[..., Any]:
    """Return `cuda.jit` of a package."""

    def jit(func_or_sig: object = None, device: object = False, *rest: object, **options: Any) -> Any:
        if rest:  # further positional arguments, in Numba's order
            options |= dict(zip(("inline", "forceinline", "link", "debug", "opt", "lineinfo"), rest, strict=False))
        if device:
            options["device"] = device
        kind = DeviceFunction if device else Kernel
        function = _python_function(func_or_sig)
        if function is not None:
            return kind(package, "cuda.jit", function, (), options)
        args = () if func_or_sig is None else (func_or_sig,)

        def decorate(function: Any) -> Any:
            return kind(package, "cuda.jit", _python_function(function) or function, args, options)

        return decorate

    return jit


def host_decorator(package: str, name: str) -> Callable[..., Any]:
    """Return a decorator of a package, such as `njit`, whose functions are compiled at their first call."""

    def decorator(*args: object, **options: object) -> Any:
        function = _python_function(args[0]) if args else None
        if function is not None:
            return HostFunction(package, name, function, args[1:], options)

        def decorate(function: Any) -> Any:
            return HostFunction(package, name, _python_function(function) or function, args, options)

        return decorate

    return decorator


def _python_function(value: object) -> FunctionType | None:
    """Return the Python function of a decorator's argument; None for another argument."""
    if isinstance(value, Function):
        return value.py_func
    return value if isinstance(value, _FunctionType) else None
