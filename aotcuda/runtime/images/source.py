"""Find a module's images: in a wheel, an editable install, or a source tree that was never built."""

from __future__ import annotations

import os

from ... import manifest as manifests
from .. import errors, importing, new_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeAlias

    from ...common.jit_build import Request
    from ...common.stamp import Stamp
    from ...errors import StaleBuildError
    from ...manifest import Manifest
    from ..driver import Device
    from .choice import Choice
    from .library import Library
    from .parts import Parts

    MakesFallback = Callable[[], Any]
    """A function that returns the module's `aotcuda.runtime.jit.fallback.Fallback`."""
    ImageSource: TypeAlias = "Packaged | Unbuilt"


class Packaged:
    """The images of a wheel.

    Attributes:
        name: The module's name.
        package_root: The folder with the module's package.
        is_editable: Whether the first launch compares the images with their sources.
    """

    is_editable = False

    def __init__(self, name: str, path: str, sha256: str | None, package_root: str) -> None:
        self.name = name
        self.package_root = package_root
        self._path = path
        self._sha256 = sha256
        self._lock = new_lock()
        self._manifest: Manifest | None = None
        self._parts: Parts | None = None

    def manifest(self, _fallback: MakesFallback | None = None) -> Manifest:
        """Return the manifest that describes the images; a wheel needs no JIT fallback for that."""
        if self._manifest is None:
            with self._lock:
                if self._manifest is None:
                    self._manifest = self._read()
        return self._manifest

    def load(self, _fallback: MakesFallback) -> Library:
        """Load the images and return them; a fatbin that is loaded later is compared with its digest then."""
        with importing:
            from .library import Library  # noqa: PLC0415 (only launches need the driver)

        if not self._has_all_files():
            self.check()
        try:
            library = Library(self.manifest(), os.path.dirname(self._path), read=self._fatbin)
        except (errors.RuntimeUnavailableError, errors.CudaError):
            self.check()  # damage is reported rather than a missing driver
            raise
        if self._parts is not None:
            self._warn(self._parts, library.choices.values())
        return library

    def check(self) -> None:
        """Raise ManifestError if a fatbin is missing or altered."""
        for index in range(len(self.manifest()["fatbins"])):
            self._fatbin(index)

    def _has_all_files(self) -> bool:
        """Return True if all fatbins exist in the sizes of the manifest; False for a split wheel, which has others."""
        folder = os.path.dirname(self._path)
        try:
            return self._parts is None and all(
                os.stat(os.path.join(folder, item["file"]["path"])).st_size == item["file"]["bytes"]
                for item in self.manifest()["fatbins"]
            )
        except OSError:
            return False

    def _fatbin(self, index: int) -> bytes:
        manifest = self.manifest()
        if self._parts is not None:
            return self._parts.fatbin(manifest, index)
        return manifests.read_file(os.path.dirname(self._path), manifest["fatbins"][index]["file"])

    def _read(self) -> Manifest:
        folder = os.path.dirname(self._path)
        manifest = manifests.read(self._path, sha256=self._sha256)
        if os.path.lexists(os.path.join(folder, manifests.PARTS)):
            with importing:
                from . import parts  # noqa: PLC0415 (few wheels were split)

            data = manifests.content(os.path.join(folder, manifests.PARTS), parts.LARGEST)
            self._parts = parts.Parts(data, folder, manifest, self.package_root)
        return manifest

    def _warn(self, parts: Parts, choices: Iterable[Choice]) -> None:
        """Warn if a GPU uses a worse image because the installed parts of a split wheel do not fit together."""
        with importing:
            import warnings  # noqa: PLC0415 (few wheels were split)

        with importing:
            from ...errors import FallbackWarning  # noqa: PLC0415 (few wheels were split)
            from ..launch.arguments.host_arrays import caller_depth  # noqa: PLC0415 (few wheels were split)

        for choice in choices:
            if choice.better in parts.faulty:
                reason = dict(choice.rejected)[choice.better]
                message = f"{self.name} runs with {choice.arch} on {choice.gpu}, since {choice.better} {reason}"
                warnings.warn(message, FallbackWarning, stacklevel=caller_depth())

    def origins(self) -> set[str]:
        """Return the source modules and files of the kernels and functions."""
        manifest = self.manifest()
        return {item["origin"].rpartition(":")[0] for item in (*manifest["kernels"], *manifest["functions"])}

    @property
    def setting(self) -> str:
        """Return the package's value of `fallback`: `"jit"` or `"error"`."""
        return self.manifest()["fallback"]

    def build_inputs(self) -> Request | None:
        """Return the inputs of the JIT fallback; None for Triton in place, where Triton compiles missing variants."""
        with importing:
            from ..jit import build_inputs  # noqa: PLC0415 (few programs ever need it)

        manifest = self.manifest()
        if manifest.get("in_place") and manifest.get("by_grid"):
            return None
        return build_inputs.packaged(manifest, self.package_root)

    def divided(self) -> Manifest | None:
        """Return the manifest if the JIT fallback can compile images of the module one by one; None otherwise.

        Variants that are launched by their grid depend on the target, and a module of one image is compiled as a whole.
        """
        manifest = self.manifest()
        return manifest if len(manifest["fatbins"]) > 1 and not manifest.get("by_grid") else None

    def changed(self) -> str | None:
        """Return a text for the edit since the build, such as "/src/k.py was edited"; None for a wheel."""
        return None

    def stale(self) -> StaleBuildError | None:
        """Return the error if the sources of an editable install were edited after the build."""
        return None

    @property
    def is_read(self) -> bool:
        """Return True if the manifest has been read."""
        return self._manifest is not None

    def packaged_choice(self, device: Device) -> Choice | None:
        """Return the choice of a packaged image for a GPU; None if nothing is packaged."""
        with importing:
            from .. import driver as drivers  # noqa: PLC0415 (only launches need the driver)
            from .choice import choose  # noqa: PLC0415 (only launches need the driver)

        return choose(self.manifest(), device.capability, driver=drivers.get().version, gpu=str(device))


class Editable(Packaged):
    """The images of an editable install; the JIT fallback builds from the current state of the project."""

    is_editable = True
    _built: Stamp | None = None

    def changed(self) -> str | None:
        """Implement Packaged.changed."""
        if self._built is None:
            with importing:
                from ...common import stamp  # noqa: PLC0415 (wheels have none)

            self._built = stamp.from_manifest(self.manifest(), self.package_root)
        return self._built.changed()

    def stale(self) -> StaleBuildError | None:
        """Implement Packaged.stale."""
        changed = self.changed()
        if changed is None:
            return None
        with importing:
            from ...errors import StaleBuildError  # noqa: PLC0415 (only errors come here)

        return StaleBuildError(f"{self.name} was built before {changed}; build it again: pip install -e .")

    def build_inputs(self) -> Request | None:
        """Implement Packaged.build_inputs with the project's table as it is now."""
        with importing:
            from ..jit import build_inputs  # noqa: PLC0415 (few programs ever need it)

        request = super().build_inputs()
        return request and build_inputs.project(self.name, self.package_root, request.files)


class Unbuilt:
    """A source tree that was never built; the first JIT build makes its images."""

    is_editable = True

    def __init__(self, request: Request) -> None:
        self.name = request.module
        self.package_root = request.package_root
        self._request = request
        self._lock = new_lock()
        self._manifest: Manifest | None = None

    def manifest(self, fallback: MakesFallback) -> Manifest:
        """Implement Packaged.manifest."""
        with self._lock:
            if self._manifest is None:
                self._manifest = self._build(fallback).manifest
            return self._manifest

    def load(self, fallback: MakesFallback) -> Library:
        """Implement Packaged.load."""
        return self._build(fallback)

    def check(self) -> None:
        """Implement Packaged.check: nothing was built."""

    def origins(self) -> set[str]:
        """Implement Packaged.origins, from the project's table."""
        modules: Any = self._request.table["modules"]
        sources = modules[self.name].get("source", ())
        return {sources} if isinstance(sources, str) else set(map(str, sources))

    @property
    def setting(self) -> str:
        """Implement Packaged.setting, from the project's table."""
        return str(self._request.table.get("fallback", "jit"))

    def build_inputs(self) -> Request | None:
        """Implement Packaged.build_inputs with the project's table as it is now."""
        with importing:
            from ..jit import build_inputs  # noqa: PLC0415 (few programs ever need it)

        return build_inputs.project(self.name, self.package_root) or self._request

    def divided(self) -> Manifest | None:
        """Implement Packaged.divided: only a build of the whole module tells its images."""
        return None

    def changed(self) -> str | None:
        """Implement Packaged.changed: each build is of the current sources."""
        return None

    def stale(self) -> StaleBuildError | None:
        """Implement Packaged.stale."""
        return None

    @property
    def is_read(self) -> bool:
        """Implement Packaged.is_read."""
        return self._manifest is not None

    def packaged_choice(self, _device: Device) -> Choice | None:
        """Implement Packaged.packaged_choice."""
        return None

    def _build(self, fallback: MakesFallback) -> Library:
        with importing:
            from ...common import uninstalled_hook  # noqa: PLC0415 (only a first build needs it)
            from .. import driver as drivers  # noqa: PLC0415 (only launches need the driver)
            from ..jit.build_inputs import PYPROJECT  # noqa: PLC0415

        driver = drivers.get()
        gpu = driver.devices[driver.current_device() or 0]
        where = os.path.join(self._request.root, PYPROJECT)
        hint = uninstalled_hook.project_fault(self._request.root)
        remedy = f"{hint}, and build it" if hint else "build it"
        with importing:
            from ...errors import NoImageError  # noqa: PLC0415

        cause = NoImageError(f"{self.name} was never built, though {where} names it; {remedy}: pip install -e .")
        library: Library = fallback().load_module(gpu, cause)
        return library
