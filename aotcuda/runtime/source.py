"""What a loader asks of where a module's images come from: of a wheel, an editable install, or a tree never built.

For type checkers alone; nothing imports this to run.
"""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.manifest import Manifest
    from aotcuda.runtime.driver import Device
    from aotcuda.runtime.images.choice import Choice
    from aotcuda.runtime.jit.fallback import Fallback
    from aotcuda.runtime.jit.recipe import Recipe
    from aotcuda.runtime.library import Library


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

    def manifest(self, fallback: Callable[[], Fallback]) -> Manifest:
        """Return the manifest that describes the images."""

    def load(self, fallback: Callable[[], Fallback]) -> Library:
        """The images, loaded once more."""

    def check(self) -> bytes:
        """Return the packaged images; raise ManifestError if their file is missing or altered."""

    @property
    def setting(self) -> str:
        """Whether the fallback may compile, as the package says: `"jit"` or `"error"`."""

    def recipe(self) -> Recipe | None:
        """What the fallback builds from; None if there is nothing."""

    def packaged_choice(self, device: Device) -> Choice | None:
        """What a GPU takes, or why it takes nothing, going by what is packaged alone; None if nothing was."""
