"""A source tree that was never built: `aotcuda.load("mypkg.kernels")` makes the module that a build would have written.

There is no import hook: `import mypkg.kernels` fails as it must, because there is no such file. After `aotcuda.load`
the module is there for everybody, so a package that wants to be usable straight from its sources calls that in its
`__init__`. Everything in the module is compiled when it is first asked for.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

from aotcuda import missing_hook as forgotten
from aotcuda.errors import NoImageError
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.jit import fallback, recipe
from aotcuda.runtime.module import Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Manifest
    from aotcuda.runtime.driver import Device
    from aotcuda.runtime.images.choice import Choice
    from aotcuda.runtime.images.program import Program
    from aotcuda.runtime.jit.recipe import Recipe


class Unbuilt(Module):
    """A module with no manifest of its own: the late build's first one stands for it."""

    def __init__(self, namespace: dict[str, object], found: Recipe) -> None:
        stem = found.module.replace(".", os.sep)
        path = os.path.join(found.package_root, f"{stem}.aotcuda", "manifest.json")
        super().__init__(found.module, namespace, path, None, editable=True)
        self._recipe = found

    @property
    def setting(self) -> str:
        """See Module; as the project's table says."""
        return str(self._recipe.table.get("fallback", "jit"))

    def recipe(self) -> Recipe | None:
        """See Module; as the project's table is now."""
        return recipe.project(self.name, self.package_root) or self._recipe

    def packaged_choice(self, device: Device) -> Choice | None:
        """See Module."""
        del device
        return None

    def _read(self) -> Manifest:
        with self.lock:
            if self._manifest is None:
                self._manifest = self._first().artifact.manifest
            return self._manifest

    def load_packaged(self) -> Program:
        """See Module; the first late build."""
        program = self._first().program
        program.rescue = self._rescue
        return program

    def _first(self) -> fallback.Late:
        found = drivers.get()
        gpu = found.devices[found.current_device() or 0]
        where = os.path.join(self._recipe.root, recipe.PYPROJECT)
        hint = forgotten.in_project(self._recipe.root)
        advice = f"{hint}, and build it" if hint else "build it"
        cause = NoImageError(f"{self.name} was never built, though {where} names it; {advice}: pip install -e .")
        return self.fallback.whole(gpu, cause)


def load(name: str) -> Module | None:
    """The module called `name`, from the source tree that its package lies in; None if no pyproject.toml names it.

    The package is imported.
    """
    package, _, stem = name.rpartition(".")
    if not package:
        return None
    __import__(package)
    locations = list(getattr(sys.modules[package], "__path__", ()))
    for folder in locations:
        root = os.path.abspath(folder)
        for _ in package.split("."):
            root = os.path.dirname(root)
        found = recipe.project(name, root)
        if found is not None:
            generated = ModuleType(name, f"Made by aotcuda.load from {found.root}.")
            module = Unbuilt(vars(generated), found)
            vars(generated).update(__aotcuda__=module, __getattr__=module.attribute, __dir__=module.names)
            sys.modules[name] = generated
            setattr(sys.modules[package], stem, generated)
            return module
    return None
