"""Where images come from that no wheel holds: an editable install's, or a source tree's that was never built."""

from __future__ import annotations

import os

from aotcuda.runtime import new_lock
from aotcuda.runtime.loader import Packaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.manifest import Manifest
    from aotcuda.runtime.driver import Device
    from aotcuda.runtime.images.choice import Choice
    from aotcuda.runtime.jit.fallback import Compiled, Fallback
    from aotcuda.runtime.jit.recipe import Recipe
    from aotcuda.runtime.library import Library


class Editable(Packaged):
    """The images of an editable install, which are built again from the project as it is."""

    is_editable = True

    def recipe(self) -> Recipe | None:
        """See Source; from the project's table of today."""
        from aotcuda.runtime.jit import recipe  # noqa: PLC0415 (as in Packaged)

        found = super().recipe()
        return found and recipe.project(self.name, self.package_root, found.files)


class Unbuilt:
    """A source tree that was never built: its first JIT build stands for its images."""

    is_editable = True

    def __init__(self, found: Recipe) -> None:
        self.name = found.module
        self.package_root = found.package_root
        self._recipe = found
        self._lock = new_lock()
        self._manifest: Manifest | None = None

    def manifest(self, fallback: Callable[[], Fallback]) -> Manifest:
        """See Source."""
        with self._lock:
            if self._manifest is None:
                self._manifest = self._first(fallback).manifest
            return self._manifest

    def load(self, fallback: Callable[[], Fallback]) -> Library:
        """See Source."""
        return self._first(fallback).library

    def check(self) -> bytes:
        """See Source; nothing was built."""
        return b""

    @property
    def setting(self) -> str:
        """See Source; as the project's table says."""
        return str(self._recipe.table.get("fallback", "jit"))

    def recipe(self) -> Recipe | None:
        """See Source; from the project's table of today."""
        from aotcuda.runtime.jit import recipe  # noqa: PLC0415 (as in Packaged)

        return recipe.project(self.name, self.package_root) or self._recipe

    @property
    def is_read(self) -> bool:
        """See Source."""
        return self._manifest is not None

    def packaged_choice(self, _device: Device) -> Choice | None:
        """See Source."""
        return None

    def _first(self, fallback: Callable[[], Fallback]) -> Compiled:
        from aotcuda.common import uninstalled_hook  # noqa: PLC0415 (only who builds comes here)
        from aotcuda.runtime import driver as drivers  # noqa: PLC0415 (see above)
        from aotcuda.runtime.jit.recipe import PYPROJECT  # noqa: PLC0415

        driver = drivers.get()
        gpu = driver.devices[driver.current_device() or 0]
        where = os.path.join(self._recipe.root, PYPROJECT)
        hint = uninstalled_hook.in_project(self._recipe.root)
        advice = f"{hint}, and build it" if hint else "build it"
        from aotcuda.errors import NoImageError  # noqa: PLC0415

        cause = NoImageError(f"{self.name} was never built, though {where} names it; {advice}: pip install -e .")
        return fallback().compiled((None, None), gpu, cause)
