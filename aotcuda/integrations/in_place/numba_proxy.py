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

_EXCEPTION_SUFFIXES = ("Error", "Warning")
_exceptions: dict[str, type] = {}

_SNAPSHOT = "__aotcuda_numba__"
"""The name under which a module stores the copy of its names that Numba compiles with."""


class Proxy:
    """A stand-in for an object of Numba."""

    def numba_object(self) -> Any:
        """Return the object, importing Numba if necessary.

        Raises:
            DependencyError: Numba is not installed.
        """
        raise NotImplementedError

    @property
    def _numba_type_(self) -> object:
        """Return the type of the object for the calling compiler."""
        value = self.numba_object()
        type_of_object = getattr(value, "_numba_type_", None)
        if type_of_object is not None:
            return type_of_object
        # The caller is a compiler's function `typeof`, or a function in the module of `typeof`.
        compiler: dict[str, Any] = sys._getframe(1).f_globals  # noqa: SLF001 (nothing else identifies the compiler)
        if "typeof" not in compiler:
            message = f"{self!r} has no type here"
            raise AttributeError(message, name="_numba_type_", obj=self)
        return compiler["types"].Module(value) if isinstance(value, type(sys)) else compiler["typeof"](value)


class NumbaProxy(Proxy):
    """A stand-in for an object under a name of Numba.

    Attributes and subscripts give proxies, so `isinstance`, `except` and the top of a module need no Numba. Calls and
    tests import Numba, except calls that declare something for kernels: those of types give proxies, too.

    Args:
        package: `numba` or `numba_cuda_mlir`.
        label: The name in error messages: `numba.cuda.to_device`.
        make: A function that returns the object.
        declares: True for a type, and for a function that declares something for kernels.
        known: Functions that return objects without Numba, by their path below this object.
    """

    def __init__(
        self,
        package: str,
        label: str,
        make: Callable[[], Any],
        *,
        declares: bool = False,
        known: dict[str, Callable[[], Any]] | None = None,
    ) -> None:
        self.__dict__.update(_package=package, _label=label, _make=make, _declares=declares, _known=known or {})

    _package: str
    _label: str
    _make: Callable[[], Any]
    _declares: bool
    _known: dict[str, Callable[[], Any]]

    def numba_object(self) -> Any:
        """Implement Proxy.numba_object."""
        if "_object" not in self.__dict__:
            import_numba(self._package, self._label)
            self.__dict__["_object"] = self._make()
        return self.__dict__["_object"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            message = f"{self._label} has no attribute {name!r} before Numba is imported"
            raise AttributeError(message, name=name, obj=self)
        if name in self._known:
            return self._known[name]()
        label = f"{self._label}.{name}"
        if name.endswith(_EXCEPTION_SUFFIXES):
            return exception(self._package, label, lambda: attribute(self.numba_object(), name))
        known = {path.partition(".")[2]: make for path, make in self._known.items() if path.startswith(f"{name}.")}
        return self._proxy(label, lambda: attribute(self.numba_object(), name), known)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.numba_object(), name, value)

    def __call__(self, *args: object, **options: object) -> Any:
        """Call the object, or return a proxy for the declaration; a type converts a number without Numba.

        Raises:
            DependencyError: Numba is not installed.
        """

        def call() -> Any:
            named = {name: resolve(value) for name, value in options.items()}
            return self.numba_object()(*map(resolve, args), **named)

        if not self._declares:
            return call()
        numpy: Any = sys.modules.get("numpy")
        kind = getattr(numpy, self._label.rpartition(".")[2], None)
        if kind is not None and len(args) == 1 and isinstance(args[0], int | float | complex | numpy.generic):
            return kind(args[0])
        return self._proxy(f"{self._label}({', '.join(map(_text_of, args))})", call)

    def __getitem__(self, key: object) -> Any:
        return self._proxy(f"{self._label}[{_text_of(key)}]", lambda: self.numba_object()[resolve(key)])

    def _proxy(self, label: str, make: Callable[[], Any], known: dict[str, Callable[[], Any]] | None = None) -> Any:
        return NumbaProxy(self._package, label, make, declares=self._declares, known=known)

    def __instancecheck__(self, instance: object) -> bool:
        return is_imported(self._package) and isinstance(instance, self.numba_object())

    def __iter__(self) -> Any:
        return iter(self.numba_object())

    def __bool__(self) -> bool:
        return self._declares or bool(self.numba_object())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NumbaProxy) and (other._package, other._label) == (self._package, self._label):
            return True
        return not self._declares and bool(self.numba_object() == resolve(other))

    def __hash__(self) -> int:
        return hash(self._label)

    def __repr__(self) -> str:
        return self._label


def exception(package: str, label: str, make: Callable[[], Any]) -> Any:
    """Return a class of Numba's errors or warnings, or a class without instances if Numba is not imported.

    `except` clauses and warning filters name these classes, and accept no proxies. Numba's warning about copies of
    host arrays is aotcuda's own warning in place.
    """
    if is_imported(package):
        return make()
    name = label.rpartition(".")[2]
    if name == "NumbaPerformanceWarning":
        from ...errors import HostArrayWarning  # noqa: PLC0415 (few sources name it)

        return HostArrayWarning
    if label not in _exceptions:
        _exceptions[label] = type(name, (Warning if name.endswith("Warning") else Exception,), {})
    return _exceptions[label]


def resolve(value: object) -> Any:
    """Return a value with all proxies replaced by their objects, also in lists, tuples and dicts."""
    if isinstance(value, Proxy):
        return value.numba_object()
    if type(value) is list or type(value) is tuple:
        return type(value)([resolve(item) for item in value])
    if type(value) is dict:
        return {name: resolve(item) for name, item in value.items()}
    return value


def compilable_function(function: FunctionType) -> FunctionType:
    """Return a copy of a function that Numba can compile: proxies among its names are replaced by their objects."""
    from types import CellType, FunctionType  # noqa: PLC0415 (few programs need Numba)

    cells = function.__closure__
    closure = None if cells is None else tuple([CellType(resolve(cell.cell_contents)) for cell in cells])
    copy = FunctionType(
        function.__code__, _snapshot(function.__globals__), function.__name__, function.__defaults__, closure
    )
    for attribute in ("__kwdefaults__", "__module__", "__qualname__", "__doc__"):
        setattr(copy, attribute, getattr(function, attribute))
    return copy


def _snapshot(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return a module's names without proxies, and add names that the module has gained since the last call.

    All functions of the module that Numba compiles share this dict, so they can name each other.
    """
    copy: dict[str, Any] = namespace.setdefault(_SNAPSHOT, {})
    changed = {
        name: value for name, value in list(namespace.items()) if copy.get(name) is not value and name != _SNAPSHOT
    }
    copy.update({name: value for name, value in changed.items() if not isinstance(value, Proxy)})
    for name, value in changed.items():
        if isinstance(value, Proxy) and name not in copy:
            copy[name] = value  # two functions may name each other
            copy[name] = value.numba_object()
    return copy


def import_numba(package: str, what: str) -> Any:
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
        from ...errors import DependencyError  # noqa: PLC0415 (as above)

        message = f"{what} is Numba's own, and {error.name} is not installed: pip install {requirement(package)!r}"
        raise DependencyError(message) from None


def is_imported(package: str) -> bool:
    """Return True if Numba's module for GPUs is imported; before that its classes have no instances."""
    return f"{package}.cuda" in sys.modules


def requirement(package: str) -> str:
    """Return the requirement that installs Numba's package for this machine's driver: `aotcuda[jit-cu13]`."""
    from ... import registry  # noqa: PLC0415 (only errors name it)
    from ...runtime import driver  # noqa: PLC0415 (as above)

    front_end = next(item for item in registry.BUILT_IN.values() if item.imports == package)
    return front_end.requirement(jit=True, cuda=(driver.installed_version() or (registry.CUDA, 0))[0])


def attribute(owner: Any, name: str) -> Any:
    """Return an attribute of an object, or import the submodule of that name."""
    try:
        return getattr(owner, name)
    except AttributeError:
        if not isinstance(owner, type(sys)):
            raise
        from importlib import import_module  # noqa: PLC0415 (as in `import_numba`)

        try:
            return import_module(f"{owner.__name__}.{name}")
        except ModuleNotFoundError:
            message = f"{owner.__name__} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=owner) from None


def package_attribute(package: Any, name: str) -> Any:
    """Return an attribute of a compiler's package, or a type; numba-cuda-mlir has types in a module of their own."""
    try:
        return attribute(package, name)
    except AttributeError:
        types = getattr(package, "types", None) or attribute(package, "types")
        value = getattr(types, name, None)
        if value is None:
            raise
        return value


def _text_of(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_text_of, value))
    if isinstance(value, slice):
        return f":{'' if value.stop is None else value.stop}:{value.step}" if value.step else ":"
    return repr(value)
