"""What a loader asks of where a module's images come from: of a wheel, an editable install, or a tree never built.

For type checkers alone; nothing imports this to run.
"""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.manifest import Outline
    from aotcuda.runtime.driver import Device
    from aotcuda.runtime.images.choice import Choice
    from aotcuda.runtime.jit.fallback import Fallback
    from aotcuda.runtime.jit.recipe import Recipe
    from aotcuda.runtime.loaded_library import LoadedLibrary


class Source(Protocol):
    """Where a module's images come from; `fallback` gives the module's JIT fallback.

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

    def outline(self, fallback: Callable[[], Fallback]) -> Outline:
        """The manifest of the images, as far as it was asked for."""

    def read(self) -> None:
        """Read what a driver would be started for, raising ManifestError if it is missing or altered."""

    def load(self, fallback: Callable[[], Fallback]) -> LoadedLibrary:
        """The images, loaded once more."""

    def check(self) -> None:
        """Raise ManifestError unless the images can be loaded, as far as their files tell."""

    @property
    def setting(self) -> str:
        """Whether the fallback may compile, as the package says: `"jit"` or `"error"`."""

    def recipe(self) -> Recipe | None:
        """What the fallback builds from; None if there is nothing."""

    def packaged_choice(self, device: Device) -> Choice | None:
        """What a GPU takes, or why it takes nothing, going by what is packaged alone; None if nothing was."""
