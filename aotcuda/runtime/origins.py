"""Where a module's images come from: what was packaged, the same of an editable install, or a source tree never built.

Nothing is imported here that a module that is never launched has no need of: `ctypes` above all.
"""

from __future__ import annotations

import os
from _thread import RLock

from aotcuda import manifest as manifests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from aotcuda.manifest import Outline
    from aotcuda.runtime.driver import Device
    from aotcuda.runtime.images.choice import Choice
    from aotcuda.runtime.images.loaded_library import LoadedLibrary
    from aotcuda.runtime.jit.fallback import Buildable, Compiled, Fallback
    from aotcuda.runtime.jit.recipe import Recipe

    class Source(Protocol):
        """Where a module's images come from.

        Attributes:
            name: The module's name.
            package_root: The folder that holds its package.
            is_editable: Whether launches hold the images against their sources.
        """

        name: str
        package_root: str
        is_editable: bool

        @property
        def is_read(self) -> bool:
            """Whether the manifest was read."""

        def outline(self, fallback: OnDemand) -> Outline:
            """The manifest of the images, as far as it was asked for."""

        def load(self, fallback: OnDemand) -> LoadedLibrary:
            """The images, loaded once more."""

        @property
        def setting(self) -> str:
            """Whether the fallback may compile, as the package says: `"jit"` or `"error"`."""

        def recipe(self) -> Recipe | None:
            """What the fallback builds from; None if there is nothing."""

        def packaged_choice(self, device: Device) -> Choice | None:
            """What a GPU takes, or why it takes nothing, going by what is packaged alone; None if nothing was."""


class OnDemand:
    """The JIT fallback of a module, made when it is first asked for: few programs ever need it."""

    __slots__ = ("_lock", "_module", "made")

    def __init__(self, module: Buildable) -> None:
        self._module = module
        self._lock = RLock()
        self.made: Fallback | None = None

    def get(self) -> Fallback:
        """The fallback."""
        if self.made is None:
            from aotcuda.runtime.jit.fallback import Fallback  # noqa: PLC0415 (see above)

            with self._lock:
                self.made = self.made or Fallback(self._module)
        return self.made


class Packaged:
    """The images of a wheel; see `Source`."""

    is_editable = False

    def __init__(self, name: str, path: str, sha256: str | None, package_root: str, index: str | None = None) -> None:
        self.name = name
        self.package_root = package_root
        self._path = path
        self._sha256 = sha256
        self._index = index
        self._lock = RLock()
        self._outline: Outline | None = None

    def outline(self, _fallback: OnDemand | None = None) -> Outline:
        """See Source."""
        if self._outline is None:
            with self._lock:
                if self._outline is None:
                    self._outline = manifests.outline(self._path, sha256=self._sha256, index=self._index)
        return self._outline

    def load(self, _fallback: OnDemand) -> LoadedLibrary:
        """See Source."""
        from aotcuda.runtime.images.loaded_library import LoadedLibrary  # noqa: PLC0415 (see above)

        return LoadedLibrary(self.outline().head, os.path.dirname(self._path))

    @property
    def setting(self) -> str:
        """See Source."""
        return self.outline().head["fallback"]

    def recipe(self) -> Recipe | None:
        """See Source."""
        from aotcuda.runtime.jit import recipe  # noqa: PLC0415 (few programs ever need it)

        return recipe.packaged(self.outline().whole(), self.package_root)

    @property
    def is_read(self) -> bool:
        """See Source."""
        return self._outline is not None

    def packaged_choice(self, device: Device) -> Choice | None:
        """See Source."""
        from aotcuda.runtime import driver as drivers  # noqa: PLC0415 (see above)
        from aotcuda.runtime.images.choice import choose  # noqa: PLC0415 (see above)

        return choose(self.outline().head, device.capability, driver=drivers.get().version, gpu=str(device))


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
        self._lock = RLock()
        self._outline: Outline | None = None

    def outline(self, fallback: OnDemand) -> Outline:
        """See Source."""
        with self._lock:
            if self._outline is None:
                self._outline = manifests.Outline.of(self._first(fallback).manifest)
            return self._outline

    def load(self, fallback: OnDemand) -> LoadedLibrary:
        """See Source."""
        return self._first(fallback).library

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
        return self._outline is not None

    def packaged_choice(self, _device: Device) -> Choice | None:
        """See Source."""
        return None

    def _first(self, fallback: OnDemand) -> Compiled:
        from aotcuda import missing_hook  # noqa: PLC0415 (only who builds comes here)
        from aotcuda.runtime import driver as drivers  # noqa: PLC0415 (see above)
        from aotcuda.runtime.jit.recipe import PYPROJECT  # noqa: PLC0415

        driver = drivers.get()
        gpu = driver.devices[driver.current_device() or 0]
        where = os.path.join(self._recipe.root, PYPROJECT)
        hint = missing_hook.in_project(self._recipe.root)
        advice = f"{hint}, and build it" if hint else "build it"
        from aotcuda.errors import NoImageError  # noqa: PLC0415

        cause = NoImageError(f"{self.name} was never built, though {where} names it; {advice}: pip install -e .")
        return fallback.get().compiled((None, None), gpu, cause)
