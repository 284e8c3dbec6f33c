"""Proxies for objects of Numba. A proxy imports Numba when the program first uses it.

Compilers do not see proxies. A function that Numba compiles gets a copy of its module's names in which each proxy is
replaced by its object, and a proxy that a foreign kernel names has the type of its object.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType
    from typing import Any

_CLASSES = ("Error", "Warning")
_exceptions: dict[str, type] = {}

_SNAPSHOT = "__aotcuda_numba__"
"""The name under which a module keeps the copy of its names that Numba compiles with."""


class Proxy:
    """A stand-in for an object of Numba."""

    def of_numba(self) -> Any:
        """Return the object, importing Numba if necessary.

        Raises:
            DependencyError: Numba is not installed.
        """
        raise NotImplementedError

    @property
    def _numba_type_(self) -> object:
        """Return the type of the object for the calling compiler."""
        found = self.of_numba()
        own = getattr(found, "_numba_type_", None)
        if own is not None:
            return own
        # The caller is a compiler's function `typeof`, or one in the same module.
        asking: dict[str, Any] = sys._getframe(1).f_globals  # noqa: SLF001 (nothing else identifies the compiler)
        if "typeof" not in asking:
            message = f"{self!r} has no type here"
            raise AttributeError(message, name="_numba_type_", obj=self)
        return asking["types"].Module(found) if isinstance(found, type(sys)) else asking["typeof"](found)


class NumbaProxy(Proxy):
    """A stand-in for an object under a name of Numba. Calls, subscripts and tests resolve it; attributes do not.

    Args:
        package: `numba` or `numba_cuda_mlir`.
        words: The name for error messages: `numba.cuda.to_device`.
        make: Returns the object.
    """

    def __init__(self, package: str, words: str, make: Callable[[], Any]) -> None:
        object.__setattr__(self, "_package", package)
        object.__setattr__(self, "_words", words)
        object.__setattr__(self, "_make", make)

    _package: str
    _words: str
    _make: Callable[[], Any]

    def of_numba(self) -> Any:
        """Implement Proxy.of_numba."""
        if "_found" not in self.__dict__:
            need(self._package, self._words)
            self.__dict__["_found"] = self._make()
        return self.__dict__["_found"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            message = f"{self._words} has no attribute {name!r} before Numba is imported"
            raise AttributeError(message, name=name, obj=self)
        words = f"{self._words}.{name}"
        if name.endswith(_CLASSES):
            return exception(self._package, words, lambda: attribute(self.of_numba(), name))
        return NumbaProxy(self._package, words, lambda: attribute(self.of_numba(), name))

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.of_numba(), name, value)

    def __call__(self, *args: object, **options: object) -> Any:
        """Call the object.

        Raises:
            DependencyError: Numba is not installed.
        """
        return self.of_numba()(*map(resolved, args), **{name: resolved(value) for name, value in options.items()})

    def __getitem__(self, key: object) -> Any:
        return type(self)(self._package, f"{self._words}[{_shown(key)}]", lambda: self.of_numba()[resolved(key)])

    def __instancecheck__(self, instance: object) -> bool:
        return is_imported(self._package) and isinstance(instance, self.of_numba())

    def __iter__(self) -> Any:
        return iter(self.of_numba())

    def __bool__(self) -> bool:
        return bool(self.of_numba())

    def __eq__(self, other: object) -> bool:
        return other is self or bool(self.of_numba() == resolved(other))

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return self._words


class DeclarationProxy(NumbaProxy):
    """A function that declares something for kernels at the top of a module. Its result is a proxy too."""

    def __call__(self, *args: object, **options: object) -> Any:
        """Return a proxy for the declaration."""

        def make() -> Any:
            given = {name: resolved(value) for name, value in options.items()}
            return self.of_numba()(*map(resolved, args), **given)

        return NumbaProxy(self._package, f"{self._words}(...)", make)


class TypeProxy(NumbaProxy):
    """A type. A call with types gives a signature or another type; a call with a number converts the number."""

    def __call__(self, *args: object, **options: object) -> Any:
        """Return a signature, another type, or a converted number."""
        numpy: Any = sys.modules.get("numpy")
        kind = getattr(numpy, str(self._words.rpartition(".")[2]), None)
        if kind is not None and len(args) == 1 and isinstance(args[0], int | float | complex | numpy.generic):
            return kind(args[0])
        words = f"{self._words}({', '.join(map(_shown, args))})"
        given = {name: resolved(value) for name, value in options.items()}
        return TypeProxy(self._package, words, lambda: self.of_numba()(*map(resolved, args), **given))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeProxy) and (other._package, other._words) == (self._package, self._words)

    def __hash__(self) -> int:
        return hash(self._words)

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)
        return TypeProxy(self._package, f"{self._words}.{name}", lambda: attribute(self.of_numba(), name))


def exception(package: str, words: str, make: Callable[[], Any]) -> Any:
    """Return a class of Numba's errors or warnings, or a class without instances if Numba is not imported.

    `except` clauses and warning filters name such classes, and they accept no proxies. Numba's warning about copies of
    host arrays is aotcuda's own warning in place.
    """
    if is_imported(package):
        return make()
    name = words.rpartition(".")[2]
    if name == "NumbaPerformanceWarning":
        from aotcuda.errors import HostArrayWarning  # noqa: PLC0415 (few sources name it)

        return HostArrayWarning
    if words not in _exceptions:
        _exceptions[words] = type(name, (Warning if name.endswith("Warning") else Exception,), {})
    return _exceptions[words]


def resolved(value: object) -> Any:
    """Return a value with every proxy replaced by its object, in lists, tuples and dicts too."""
    if isinstance(value, Proxy):
        return value.of_numba()
    if type(value) is list or type(value) is tuple:
        return type(value)([resolved(item) for item in value])
    if type(value) is dict:
        return {name: resolved(item) for name, item in value.items()}
    return value


def real_function(function: FunctionType) -> FunctionType:
    """Return a copy of a function that Numba can compile: proxies among its names are replaced by their objects."""
    from types import CellType, FunctionType  # noqa: PLC0415 (few programs need Numba)

    cells = function.__closure__
    closure = None if cells is None else tuple([CellType(resolved(cell.cell_contents)) for cell in cells])
    found = FunctionType(
        function.__code__, _snapshot(function.__globals__), function.__name__, function.__defaults__, closure
    )
    found.__kwdefaults__ = function.__kwdefaults__
    found.__module__, found.__qualname__, found.__doc__ = (
        function.__module__,
        function.__qualname__,
        function.__doc__,
    )
    return found


def _snapshot(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return a module's names without proxies, and add names that the module has gained since the last call.

    All functions of the module that Numba compiles share this dict, so they can name each other.
    """
    found: dict[str, Any] = namespace.setdefault(_SNAPSHOT, {})
    changed = {
        name: value for name, value in list(namespace.items()) if found.get(name) is not value and name != _SNAPSHOT
    }
    found.update({name: value for name, value in changed.items() if not isinstance(value, Proxy)})
    for name, value in changed.items():
        if isinstance(value, Proxy) and name not in found:
            found[name] = value  # for `of_numba`, since two functions may name each other
            found[name] = value.of_numba()
    return found


def need(package: str, what: str) -> Any:
    """Import Numba's package with its module for GPUs, and return the package.

    Args:
        package: The package's name.
        what: The reason, for the message.

    Raises:
        DependencyError: The package is not installed.
    """
    from contextlib import suppress  # noqa: PLC0415 (few programs need Numba)
    from importlib import import_module  # noqa: PLC0415

    try:
        if package == "numba":
            with suppress(ImportError):  # see aotcuda.builder.frontends.numba_cuda
                import_module("_numba_cuda_redirector")
        import_module(f"{package}.cuda")
        return import_module(package)
    except ModuleNotFoundError as error:
        from aotcuda.errors import DependencyError  # noqa: PLC0415 (as above)

        message = f"{what} is Numba's own, and {error.name} is not installed: pip install {requirement(package)!r}"
        raise DependencyError(message) from None


def is_imported(package: str) -> bool:
    """Return True if Numba's module for GPUs is imported; before that its classes have no instances."""
    return f"{package}.cuda" in sys.modules


def requirement(package: str) -> str:
    """Return the requirement that installs Numba's package for this machine's driver: `aotcuda[jit-cu13]`."""
    from aotcuda import registry  # noqa: PLC0415 (only errors name it)
    from aotcuda.runtime import driver  # noqa: PLC0415 (as above)

    found = next(item for item in registry.BUILT_IN.values() if item.imports == package)
    return found.requirement(jit=True, cuda=(driver.installed_version() or (registry.CUDA, 0))[0])


def attribute(owner: Any, name: str) -> Any:
    """Return an attribute of an object, or import the submodule of that name."""
    try:
        return getattr(owner, name)
    except AttributeError:
        if not isinstance(owner, type(sys)):
            raise
        from importlib import import_module  # noqa: PLC0415 (as in need)

        try:
            return import_module(f"{owner.__name__}.{name}")
        except ModuleNotFoundError:
            message = f"{owner.__name__} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=owner) from None


def of_package(package: Any, name: str) -> Any:
    """Return an attribute of a compiler's package, or a type; numba-cuda-mlir has types in a module of their own."""
    try:
        return attribute(package, name)
    except AttributeError:
        types = getattr(package, "types", None) or attribute(package, "types")
        found = getattr(types, name, None)
        if found is None:
            raise
        return found


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    if isinstance(value, slice):
        return f":{'' if value.stop is None else value.stop}:{value.step}" if value.step else ":"
    return repr(value)
