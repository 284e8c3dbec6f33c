"""Compare an editable install's images with its sources, and replace them after an edit.

The JIT fallback compiles the edited sources. The first images stay loaded, since the user may undo the edit.
"""

from __future__ import annotations

import aotcuda
from aotcuda.common import stamp
from aotcuda.runtime import driver as drivers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from aotcuda.common.stamp import Stamp
    from aotcuda.manifest import Manifest
    from aotcuda.runtime.image_source import ImageSource
    from aotcuda.runtime.jit.fallback import Fallback
    from aotcuda.runtime.library import Library


class Staleness:
    """The comparison of a module's images with its sources; the caller has a lock."""

    def __init__(self, source: ImageSource, fallback: Callable[[], Fallback]) -> None:
        """Take the source of the images, and a function that returns the module's JIT fallback."""
        self._source = source
        self._fallback = fallback
        self._built: Stamp | None = None
        self._original: Library | None = None  # the images of the build, while images of edited sources replace them

    def changed(self) -> str | None:
        """Return a text for the edit since the build, such as "/src/k.py was edited"; None without an edit."""
        built = self._built
        if built is None:
            built = self._built = self._stamp_of(self._manifest())
        return built.changed()

    def replacement_for(self, compiled_from: Stamp | None) -> tuple[Library, Manifest, Stamp | None] | None:
        """Return the images that replace the loaded ones, their manifest and stamp; None if nothing was edited.

        A stamp describes the edited sources that images were compiled from; it is None for the images of the build.

        Args:
            compiled_from: The stamp of the loaded images.

        Raises:
            StaleBuildError: The sources were edited, and the JIT fallback may not or cannot compile them.
        """
        changed = self.changed()
        if changed is None:
            if compiled_from is None:
                return None
            library = self._original or self._source.load(self._fallback)  # the user has undone the edit
            self._fallback().forget()
            return library, self._manifest(), None
        if compiled_from is not None and compiled_from.changed() is None:
            return None
        message = f"{self._source.name} was built before {changed}; build it again: pip install -e ."
        driver = drivers.get()
        gpu = driver.devices[driver.current_device() or 0]
        fallback = self._fallback()
        fallback.forget()
        images = fallback.load_module(gpu, aotcuda.errors.StaleBuildError(message))
        return images, images.manifest, self._stamp_of(images.manifest)

    def keep_original(self, images: Library, old: Stamp | None, new: Stamp | None) -> None:
        """Keep the images of the build while images of edited sources replace them.

        Args:
            images: The images that are replaced.
            old: Their stamp, as for `replacement_for`.
            new: The stamp of the replacement.
        """
        if new is None:
            self._original = None
        elif old is None:
            self._original = images

    def retire(self, going: list[Library]) -> None:
        """Forget the build, and add its images to `going` if others replace them. This makes no calls."""
        if self._original is not None:
            going += [self._original]
        self._original = self._built = None

    def _manifest(self) -> Manifest:
        return self._source.manifest(self._fallback)

    def _stamp_of(self, manifest: Manifest) -> Stamp:
        return stamp.from_manifest(manifest, self._source.package_root)
