"""Device functions of a packaged module, and groups of them under one name.

Numba's compilers accept any object that has a `_numba_type_`, so `@cuda.jit` kernels can call an exported function. The
attribute is computed when a compiler reads it: this module imports no compiler.
"""

from __future__ import annotations

import sys

from .. import manifest as manifests
from .. import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Linkable:
    """A packaged module whose files are linked for its device functions.

    Attributes:
        name: The module's name.
        path: The manifest's path; the files that it names are in its folder.
        manifest: The manifest.
    """

    __slots__ = ("manifest", "name", "path")

    def __init__(self, name: str, path: str, manifest: manifests.Manifest) -> None:
        self.name = name
        self.path = path
        self.manifest = manifest


class _Callable:
    """A name that kernels may call, for one or several packaged functions."""

    def __init__(self, linked: Linkable, name: str, records: Sequence[manifests.Function]) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = linked.name
        self._linked = linked
        self._records = records
        self._types: dict[str, Any] = {}
        prototypes = "\n".join([f"{record['prototype']}  // {record['signature']}" for record in records])
        self.__doc__ = f"{prototypes}\n\nKernels call it on the GPU; the host cannot."

    def __call__(self, *_args: object, **_named: object) -> Any:
        """Raise an error: kernels call a device function on the GPU.

        Raises:
            CallError: Always.
        """
        from .launch.arguments import explain  # noqa: PLC0415 (only errors come here)

        raise explain.host_call_error(str(self))

    if not TYPE_CHECKING:  # type checkers report launches of device functions, since they find no method

        def __getitem__(self, configuration: object) -> None:
            """Raise an error: a device function cannot be launched.

            Raises:
                CallError: Always.
            """
            del configuration
            from .launch.arguments import explain  # noqa: PLC0415 (only errors come here)

            raise explain.host_launch_error(str(self))

    def __str__(self) -> str:
        return f"{self.__module__}.{self.__name__}"

    @property
    def _numba_type_(self) -> object:
        """Return the type of this function for the compiler of Numba that reads the attribute.

        Both compilers of Numba read this name, and each needs another type.

        Raises:
            AttributeError: Another module reads it, such as Numba's compiler for the host.
        """
        caller = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 (no other way to know the compiler)
        compiler = registry.front_end_of_caller(caller)
        if compiler is None:
            callers = " and ".join(front_end.name for front_end in registry.BUILT_IN.values() if front_end.caller)
            message = f"{self} has no type here; it can be called inside kernels of {callers}"
            raise AttributeError(message, name="_numba_type_", obj=self)
        if compiler.name not in self._types:
            from importlib import import_module  # noqa: PLC0415 (a compiler, which is imported already, reads the attribute)

            interop = import_module(compiler.interop)
            self._types[compiler.name] = interop.numba_type(self._linked, self.__name__, self._records)
        return self._types[compiler.name]


class DeviceFunction(_Callable):
    """An exported device function: code that kernels call, packaged under a C name.

    Attributes:
        signature: Its signature.
        prototype: Its C prototype, as the packaged header has it.
    """

    def __init__(self, linked: Linkable, record: manifests.Function) -> None:
        super().__init__(linked, record["name"], [record])
        self.signature = record["signature"]
        self.prototype = record["prototype"]

    def __repr__(self) -> str:
        return f"<aotcuda device function {self}: {self.prototype}>"


class DeviceFunctionGroup(_Callable):
    """The exported device functions of one Python function, which kernels call by the Python function's name.

    The argument types of a call select the function, as for any overloaded function.

    Attributes:
        functions: The names of the functions, in the order of the configuration.
        signatures: Their signatures.
    """

    def __init__(self, linked: Linkable, name: str, records: Sequence[manifests.Function]) -> None:
        super().__init__(linked, name, records)
        self.functions = [record["name"] for record in records]
        self.signatures = [record["signature"] for record in records]

    def __repr__(self) -> str:
        return f"<aotcuda device functions {self}: {'; '.join(self.signatures)}>"


def read_functions(
    name: str, path: str, manifest: manifests.Manifest
) -> tuple[dict[str, DeviceFunction], dict[str, DeviceFunctionGroup]]:
    """Return the device functions of a module and their groups, by name; `path` is the path of its manifest."""
    linked = Linkable(name, path, manifest)
    functions = {record["name"]: DeviceFunction(linked, record) for record in manifest["functions"]}
    groups = {
        name: DeviceFunctionGroup(linked, name, records)
        for name, records in manifests.overload_groups(manifest).items()
    }
    return functions, groups
