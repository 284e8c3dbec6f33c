"""Which images of a module are launched now, and how they come and go.

Nothing is imported here that a module that is never launched has no need of: `ctypes` above all.

A `Loader` has the lock, what is loaded, and where images come from: a `Source`, which is `Packaged` for what a wheel
brought (`aotcuda.runtime.origins` has the others).
"""

from __future__ import annotations

import os
from _thread import RLock

from aotcuda import lazy_errors as errors
from aotcuda import manifest as manifests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from aotcuda.manifest import Manifest, Outline
    from aotcuda.runtime.driver import Device
    from aotcuda.runtime.images.choice import Choice, Tier
    from aotcuda.runtime.jit.fallback import Buildable, Fallback
    from aotcuda.runtime.jit.recipe import Recipe
    from aotcuda.runtime.jit.sources import Sources
    from aotcuda.runtime.loaded import Loaded
    from aotcuda.runtime.loaded_library import LoadedLibrary

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


_PATIENCE = 100
"""Milliseconds that an unload waits for launches of other threads."""


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
        from aotcuda.runtime.loaded_library import LoadedLibrary  # noqa: PLC0415 (see above)

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


class Kept:
    """What a kernel keeps for as long as the same images are launched; emptied with them.

    Attributes:
        launchers: Its launchers, by configuration.
        shared: What its launchers share.
    """

    __slots__ = ("_found", "launchers", "shared")

    def __init__(self) -> None:
        self.launchers: dict[object, Any] = {}
        self.shared: dict[object, Any] = {}
        self._found: Any = self.launchers

    def configurations(self, make: Callable[[dict[object, Any]], Any]) -> Any:
        """What finds the launchers: what `make` makes of them, once."""
        if self._found is self.launchers:
            self._found = make(self.launchers)
        return self._found

    def clear(self) -> None:
        """Drop it all; a launcher that somebody holds has its own still."""
        self._found.clear()  # the launchers, and those that it has at hand besides
        self.shared.clear()


class Loader:
    """What is launched of one module.

    Attributes:
        source: Where its images come from.
        fallback: Its JIT fallback.
        current: What is loaded; None until something needs it. One that was read may be out of use a moment later.
        asks: Whether `ready` has to be asked at each launch.
        leaving: Images that are out of use, and stay in the driver until launches of them have ended.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.asks = source.is_editable
        self.fallback = OnDemand(source)
        self.current: Loaded | None = None
        self.leaving: list[tuple[list[LoadedLibrary], list[Loaded]]] = []
        self._lock = RLock()
        self._replaced: list[Loaded] = []  # launches of them may still be under way
        self._aside: LoadedLibrary | None = None  # the first images, while edited sources are launched in their place
        self._launched: Outline | None = None
        self._sources: Sources | None = None
        self._kept: dict[str, Kept] = {}

    @property
    def manifest(self) -> Manifest:
        """The manifest that the module came with.

        Raises:
            ManifestError: It is missing, altered or of a newer format version.
        """
        return self.outline.whole()

    @property
    def outline(self) -> Outline:
        """The same, of which no more is read than what is asked for; errors likewise."""
        return self.source.outline(self.fallback)

    @property
    def launched(self) -> Outline:
        """The manifest of the images that were launched last; before there are any, the module's own."""
        return self._launched or self.outline

    def kept(self, name: str) -> Kept:
        """What the kernel of this name keeps."""
        return self._kept.setdefault(name, Kept())

    def choices(self) -> dict[int, Choice]:
        """What each GPU of this machine takes, and why, by the GPU's ordinal.

        Raises:
            RuntimeUnavailableError: There is no driver or no GPU.
            CudaError: The driver cannot be started.
        """
        loaded = self.current  # another thread may unload it
        if loaded is not None:
            return dict(loaded.library.choices)
        from aotcuda.runtime import driver as drivers  # noqa: PLC0415 (see above)
        from aotcuda.runtime.loaded_library import survey  # noqa: PLC0415

        return survey(self.outline.head, drivers.get())

    def tiers(self) -> dict[str, list[Tier]]:
        """What each overload of each kernel takes on each GPU; errors as for `choices`."""
        from aotcuda.runtime.images.choice import Tier  # noqa: PLC0415 (see above)

        loaded = self.current
        compiled = self.fallback.made.loaded if self.fallback.made is not None else {}
        manifest = (loaded.outline if loaded is not None else self.outline).whole()
        found: dict[str, list[Tier]] = {kernel["name"]: [] for kernel in manifest["kernels"]}
        for choice in self.choices().values():
            taken = choice
            whole = compiled.get(((None, None), choice.capability))
            if choice.arch is None and whole is not None:
                taken = whole.choice
            for kernel in manifest["kernels"]:
                found[kernel["name"]] += [Tier(overload["signature"], taken) for overload in kernel["overloads"]]
        for ((name, signature), _), one in list(compiled.items()):
            if name is not None and signature is not None:
                found.setdefault(name, []).append(Tier(signature, one.choice))
        return found

    def is_read(self) -> bool:
        """Whether the manifest was read."""
        return self.source.is_read

    def changed(self) -> str | None:
        """What was edited since the images were built, None if nothing was."""
        found = self._sources
        if found is None:
            found = self._sources = self._sources_of(self.manifest)
        return found.changed()

    def ready(self) -> Loaded:
        """The images, loaded and up to date; every launch asks for them.

        Raises:
            RuntimeUnavailableError: There is no driver, no GPU, or no image for any GPU.
            ManifestError: The fatbin is missing or altered.
            StaleBuildError: The module is editable and a source changed after the build.
            ForkError: The process forked after CUDA was started.
            CudaError: The driver cannot be started or refuses the images.
        """
        from aotcuda.runtime import driver as drivers  # noqa: PLC0415 (see above)

        drivers.check_fork()
        loaded = self.current or self._load()
        if not self.asks:
            return loaded
        with self._lock:  # of threads that find an edit, one has it compiled, and the others wait
            return self._of_today(self.current or self._load())

    def enter(self, loaded: Loaded, addresses: Sequence[int]) -> int:
        """`LoadedLibrary.enter`; if a setup callback raises, all is unloaded, and the next launch starts anew."""
        try:
            return loaded.library.enter(addresses)
        except errors.CallbackError:
            with self._lock:
                if self.current is loaded:
                    self._retire()
            self.sweep()  # or, where a launch has come here, that launch at its end
            raise

    def preload(self) -> None:
        """Load everything now: the images, a context if there is none, and the code of every kernel on its GPU.

        Errors as for a launch.
        """
        if not self.outline.names:
            return
        loaded = self.ready()
        device = self.enter(loaded, ())
        for name in loaded.outline.names:
            for overload in loaded.table(name).overloads:
                loaded.device_kernel(overload, device).load()

    def load_early(self) -> None:
        """What an import with `load = "import"` does: read, check and load; what the machine lacks is no error yet.

        Raises:
            ManifestError: The manifest or the fatbin is missing, altered or of a newer format version.
            CallbackError: A setup callback raised.
            DependencyError: The module has callbacks, and what they are given is not installed.
        """
        if not self.outline.names:
            return
        try:
            loaded = self._load(early=True)
        except (errors.RuntimeUnavailableError, errors.CudaError, errors.ForkError):
            return  # the first launch will say so
        if loaded.library.callbacks is not None:
            self.enter(loaded, ())

    def unload(self) -> None:
        """Take the images out of the driver, once the kernels that were launched have ended. A launch loads them again.

        Other threads may launch meanwhile. Launches that they are in the midst of come first; those that take longer
        than a tenth of a second keep the images loaded, and the next launch or `unload` takes them out.

        Raises:
            CallbackError: A teardown callback raised; the images are gone all the same.
            CudaError: The driver refuses.
        """
        with self._lock:
            self._retire()
        if self.sweep():
            return
        from time import sleep  # noqa: PLC0415 (few come here)

        for _ in range(_PATIENCE):
            sleep(0.001)
            if self.sweep():
                return

    def sweep(self) -> bool:
        """Take images that are out of use out of the driver, unless launches of them are under way; whether all went.

        Errors as for `unload`.
        """
        with self._lock:
            leaving, self.leaving = self.leaving, []
            error: Exception | None = None
            for item in leaving:
                libraries, users = item
                if not all([each.is_idle() for each in libraries] + [each.is_idle() for each in users]):
                    self.leaving.append(item)
                    continue
                for library in libraries:
                    try:
                        library.unload()
                    except Exception as problem:  # noqa: BLE001 (raised below: the others must go too)
                        error = error or problem
            if error is not None:
                raise error
            return not self.leaving

    def _load(self, *, early: bool = False) -> Loaded:
        # Before the driver starts: it leaves the processor's caches empty, and imports after it take twice as long.
        from aotcuda.runtime import driver as drivers  # noqa: PLC0415 (see above)
        from aotcuda.runtime import loaded, loaded_library  # noqa: F401, PLC0415

        if not early:
            from aotcuda.runtime.arguments import overloads  # noqa: F401, PLC0415

        outline = self.outline  # a damaged one is said before a missing driver
        drivers.check_fork()  # before the lock, which a thread of the parent may have held
        with self._lock:
            if self.current is None:
                try:
                    library = self.source.load(self.fallback)
                except (errors.DriverTooOldError, errors.NoImageError) as error:
                    if early:  # an import never compiles
                        raise
                    compiled = self.fallback.get().compiled((None, None), drivers.get().devices[0], error)
                    return self._launch(compiled.library, manifests.Outline.of(compiled.manifest))
                return self._launch(library, outline)
            return self.current

    def _of_today(self, loaded: Loaded) -> Loaded:
        """What is to be launched for the sources as they are now: what is loaded, or what replaces it.

        Raises:
            StaleBuildError: The sources were edited, and the JIT fallback may not or cannot compile them.
        """
        from aotcuda.runtime import driver as drivers  # noqa: PLC0415 (see above)

        changed = self.changed()
        if changed is None:
            if loaded.sources is None:
                return loaded
            library = self._aside or self.source.load(self.fallback)  # the edit was taken back
            self.fallback.get().forget()
            self._aside = None
            return self._launch(library, self.outline)
        if loaded.sources is None:
            self._aside = loaded.library
        elif loaded.sources.changed() is None:
            return loaded
        message = f"{self.source.name} was built before {changed}; build it again: pip install -e ."
        driver = drivers.get()
        gpu = driver.devices[driver.current_device() or 0]
        fallback = self.fallback.get()
        fallback.forget()
        compiled = fallback.compiled((None, None), gpu, errors.StaleBuildError(message))
        sources = self._sources_of(compiled.manifest)
        return self._launch(compiled.library, manifests.Outline.of(compiled.manifest), sources)

    def _launch(self, library: LoadedLibrary, outline: Outline, sources: Sources | None = None) -> Loaded:
        """From now on launch these images, in place of the ones launched so far."""
        from aotcuda.runtime.loaded import Loaded  # noqa: PLC0415 (see above)

        loaded = Loaded(library, outline, self.fallback, sources)
        before, self.current, self._launched = self.current, loaded, outline
        if before is not None:
            self._replaced = [each for each in self._replaced if not each.is_idle()]
            self._put_out_of_use(before)
        return loaded

    def _retire(self) -> None:
        """Put the images out of use: from now on launches load new ones."""
        loaded, self.current = self.current, None
        if loaded is None:
            return
        libraries = [loaded.library] if self._aside is None else [loaded.library, self._aside]
        if self.fallback.made is not None:
            libraries += self.fallback.made.withdraw()
        self._aside = self._sources = None
        libraries = list(dict.fromkeys(libraries))
        for library in libraries:
            library.close()
        self._put_out_of_use(loaded)
        users, self._replaced = self._replaced, []
        self.leaving.append((libraries, users))

    def _put_out_of_use(self, loaded: Loaded) -> None:
        loaded.retire()
        self._replaced.append(loaded)
        for kept in list(self._kept.values()):
            kept.clear()

    def _sources_of(self, manifest: Manifest) -> Sources:
        from aotcuda.runtime.jit.sources import Sources  # noqa: PLC0415 (only editable installs come here)

        return Sources(self.source.package_root, manifest)
