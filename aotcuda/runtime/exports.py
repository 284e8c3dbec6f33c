"""What a packaged module exports, by name: kernels, device functions, and groups of functions of one Python name."""

from __future__ import annotations

from aotcuda.manifest import overloaded
from aotcuda.runtime.device_function import DeviceFunction, DeviceFunctionGroup
from aotcuda.runtime.kernel import Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda import manifest as manifests
    from aotcuda.runtime.module import Module

    Export = Kernel | DeviceFunction | DeviceFunctionGroup


class Exports:
    """The exports of one module.

    Attributes:
        kernels: Its kernels by name.
        functions: Its device functions by name.
        groups: Functions that can be called by one name.
    """

    __slots__ = ("_module", "_namespace", "functions", "groups", "kernels")

    def __init__(self, module: Module, namespace: dict[str, object]) -> None:
        manifest = module.manifest
        self._module = module
        self._namespace = namespace
        self.kernels = {record["name"]: Kernel(module, record) for record in manifest["kernels"]}
        self.functions = {record["name"]: DeviceFunction(module, record) for record in manifest["functions"]}
        self.groups = {
            name: DeviceFunctionGroup(module, name, records) for name, records in overloaded(manifest).items()
        }

    def names(self) -> list[str]:
        """Their names, in order."""
        return sorted([*self.kernels, *self.functions, *self.groups])

    def get(self, name: str) -> Export | None:
        """The export of a name, None if there is none."""
        return self.kernels.get(name) or self.functions.get(name) or self.groups.get(name)

    def attribute(self, name: str) -> object:
        """For the generated module's `__getattr__`: an export, kept as an ordinary attribute from then on.

        Raises:
            AttributeError: There is no such export.
        """
        value: object = self.names() if name == "__all__" else self.get(name)
        if value is None:
            raise self._unknown(name)
        self._namespace[name] = value
        return value

    def replace_kernels(self, records: list[manifests.Kernel]) -> None:
        """Let the kernels be those of `records`; objects that users hold become the new kernels of their name."""
        before, after = self.kernels, {}
        for record in records:
            kernel = before.get(record["name"])
            if kernel is None:
                kernel = Kernel(self._module, record)
            else:
                kernel.renew(record)
            after[record["name"]] = kernel
        self.kernels = after
        for name, kernel in before.items():
            if name not in after:
                kernel.forget()
            self._namespace.pop(name, None)
        self._namespace.pop("__all__", None)

    def forget_names(self) -> None:
        """Remove what `attribute` kept, because the module is being executed again."""
        for name in ("__all__", *self.names()):
            self._namespace.pop(name, None)

    def _unknown(self, name: str) -> AttributeError:
        from difflib import get_close_matches  # noqa: PLC0415 (only errors come here)

        near = get_close_matches(name, self.names(), n=1)
        hint = f". Did you mean {near[0]!r}?" if near else ""
        return AttributeError(f"module {self._module.name!r} has no attribute {name!r}{hint}", name=name)
