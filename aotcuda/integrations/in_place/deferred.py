"""What is Numba's own, and is had from it when it is first needed: nothing here imports Numba before that.

Compilers never meet these objects. A function that Numba is to compile after all gets a copy of its module's names in
which each of them is what it stands for; and one that a kernel of somebody else's names is typed by what it stands for.
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


class Deferred:
    """Something that stands for an object of Numba's."""

    def of_numba(self) -> Any:
        """That object.

        Raises:
            DependencyError: Numba is not installed.
        """
        raise NotImplementedError

    @property
    def _numba_type_(self) -> object:
        """The type of that object to the compiler that asks."""
        found = self.of_numba()
        own = getattr(found, "_numba_type_", None)
        if own is not None:
            return own
        # Whoever asks by this name is a compiler's function `typeof`, or one beside it.
        asking: dict[str, Any] = sys._getframe(1).f_globals  # noqa: SLF001 (nothing else tells who asks)
        if "typeof" not in asking:
            message = f"{self!r} has no type here"
            raise AttributeError(message, name="_numba_type_", obj=self)
        return asking["types"].Module(found) if isinstance(found, type(sys)) else asking["typeof"](found)


class FromNumba(Deferred):
    """Whatever Numba has under a name; it is had when it is called, or asked for more than names.

    Args:
        package: `numba` or `numba_cuda_mlir`.
        words: What to call it in errors: `numba.cuda.to_device`.
        make: Gives the object.
    """

    def __init__(self, package: str, words: str, make: Callable[[], Any]) -> None:
        object.__setattr__(self, "_package", package)
        object.__setattr__(self, "_words", words)
        object.__setattr__(self, "_make", make)

    _package: str
    _words: str
    _make: Callable[[], Any]

    def of_numba(self) -> Any:
        """See Deferred."""
        if "_found" not in self.__dict__:
            need(self._package, self._words)
            self.__dict__["_found"] = self._make()
        return self.__dict__["_found"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            message = f"{self._words} has no attribute {name!r} before it is had from Numba"
            raise AttributeError(message, name=name, obj=self)
        words = f"{self._words}.{name}"
        if name.endswith(_CLASSES):
            return exception(self._package, words, lambda: attribute(self.of_numba(), name))
        return FromNumba(self._package, words, lambda: attribute(self.of_numba(), name))

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.of_numba(), name, value)

    def __call__(self, *args: object, **options: object) -> Any:
        """Call Numba's.

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


class Declaration(FromNumba):
    """What declares something for kernels to use, at the top of a module: its result is deferred as well."""

    def __call__(self, *args: object, **options: object) -> Any:
        """Declare it."""

        def make() -> Any:
            given = {name: resolved(value) for name, value in options.items()}
            return self.of_numba()(*map(resolved, args), **given)

        return FromNumba(self._package, f"{self._words}(...)", make)


class TypeName(FromNumba):
    """A type: with types in brackets it is a signature or another type, with a number that number, converted."""

    def __call__(self, *args: object, **options: object) -> Any:
        """A signature, another type, or a number."""
        numpy: Any = sys.modules.get("numpy")
        kind = getattr(numpy, str(self._words.rpartition(".")[2]), None)
        if kind is not None and len(args) == 1 and isinstance(args[0], int | float | complex | numpy.generic):
            return kind(args[0])
        words = f"{self._words}({', '.join(map(_shown, args))})"
        given = {name: resolved(value) for name, value in options.items()}
        return TypeName(self._package, words, lambda: self.of_numba()(*map(resolved, args), **given))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeName) and (other._package, other._words) == (self._package, self._words)

    def __hash__(self) -> int:
        return hash(self._words)

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)
        return TypeName(self._package, f"{self._words}.{name}", lambda: attribute(self.of_numba(), name))


def exception(package: str, words: str, make: Callable[[], Any]) -> Any:
    """A class of Numba's errors or warnings: where Numba was not imported, one of which there is never an instance.

    Such classes are named by `except` and by filters of warnings, which take no stand-ins. What Numba warns of in
    place, copies of the host's arrays, is aotcuda's own warning.
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
    """A value with what Numba has in the place of what stands for it, in lists, tuples and dicts too."""
    if isinstance(value, Deferred):
        return value.of_numba()
    if type(value) is list or type(value) is tuple:
        return type(value)([resolved(item) for item in value])
    if type(value) is dict:
        return {name: resolved(item) for name, item in value.items()}
    return value


def real_function(function: FunctionType) -> FunctionType:
    """A function as Numba can compile it: where names of its module stand for something of Numba's, they are that."""
    from types import CellType, FunctionType  # noqa: PLC0415 (only who needs Numba comes here)

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
    """The names of a module as Numba can take them; names that came since are added.

    The functions in there that are Numba's to compile see this very dict, so they may name each other.
    """
    found: dict[str, Any] = namespace.setdefault(_SNAPSHOT, {})
    changed = {
        name: value for name, value in list(namespace.items()) if found.get(name) is not value and name != _SNAPSHOT
    }
    found.update({name: value for name, value in changed.items() if not isinstance(value, Deferred)})
    for name, value in changed.items():
        if isinstance(value, Deferred) and name not in found:
            found[name] = value  # until the next line is done with it: two functions may name each other
            found[name] = value.of_numba()
    return found


def need(package: str, what: str) -> Any:
    """Numba's package, imported with its module for GPUs.

    Args:
        package: Its name.
        what: What it is needed for.

    Raises:
        DependencyError: It is not installed.
    """
    from contextlib import suppress  # noqa: PLC0415 (only who needs Numba comes here)
    from importlib import import_module  # noqa: PLC0415

    try:
        if package == "numba":
            with suppress(ImportError):  # see aotcuda.builder.frontends.numba_cuda
                import_module("_numba_cuda_redirector")
        import_module(f"{package}.cuda")
        return import_module(package)
    except ModuleNotFoundError as error:
        from aotcuda.errors import DependencyError  # noqa: PLC0415 (likewise)

        message = f"{what} is Numba's own, and {error.name} is not installed: pip install {requirement(package)!r}"
        raise DependencyError(message) from None


def is_imported(package: str) -> bool:
    """Whether a program has Numba's module for GPUs: nothing can be an instance of its classes otherwise."""
    return f"{package}.cuda" in sys.modules


def requirement(package: str) -> str:
    """What pip installs for Numba's package: `aotcuda[jit-cu13]`, or that for the driver there is."""
    from aotcuda import registry  # noqa: PLC0415 (only errors name it)
    from aotcuda.runtime import driver  # noqa: PLC0415 (likewise)

    found = next(item for item in registry.BUILT_IN.values() if item.imports == package)
    return found.requirement(jit=True, cuda=(driver.installed_version() or (registry.CUDA, 0))[0])


def attribute(owner: Any, name: str) -> Any:
    """An attribute of an object, or a module of a package that was not imported yet."""
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
    """What a compiler's package has under a name; numba-cuda-mlir has its types in a module of their own."""
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
