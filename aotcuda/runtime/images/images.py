"""Load and unload the images of a module, with the overloads of their kernels."""

# A program may import a module and launch nothing, so functions import what only launches need, above all `ctypes`.
#
# `Images` has the locks, the current `KernelTable` and the `ImageSource`. If images are unloaded, their table is
# retired, and launches get the current table from `Images`.

from __future__ import annotations

import time
from _thread import get_ident

from .. import errors, imported, importing, new_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from ...manifest import Kernel, Manifest
    from ..jit.fallback import Case, Fallback
    from .kernel_table import KernelCache, KernelTable
    from .library import Library
    from .source import ImageSource

    MakesFallback = Callable[[], Fallback]
    Result = TypeVar("Result")


class Images:
    """The images of one module: their source, and the loaded ones.

    Attributes:
        source: The source of its images.
        current: The current table; None until something loads images. Another thread may retire it at any time.
    """

    def __init__(self, source: ImageSource) -> None:
        self.source = source
        self.current: KernelTable | None = None
        self._retired: list[Retired] = []  # images that stay in the driver until their launches have ended
        self._starting = new_lock()  # a thread holds it while it loads or compiles images, and the others wait
        self._unloading = new_lock()  # a thread holds it while it unloads images
        self._lock = new_lock()  # for quick steps; a thread that holds it takes none of the other locks
        self._early: KernelTable | None = None  # the images of an editable install until the first launch compares them
        self._retiring: list[Library] = []  # images while `_retire` works on them
        self._retired_tables: list[KernelTable] = []  # their tables
        self._last_manifest: Manifest | None = None
        self._records: tuple[Manifest | None, dict[str, Kernel]] = (None, {})
        self._fallback: Fallback | None = None
        self._making = new_lock()  # for the fallback
        self._caches: dict[str, KernelCache] = {}  # for the current images, or for the next ones

    @property
    def manifest(self) -> Manifest:
        """Return the manifest of the module.

        Raises:
            ManifestError: It is missing, altered or of another format.
        """
        return self.source.manifest(self.fallback)

    @property
    def kernels(self) -> dict[str, Kernel]:
        """Return the records of the kernels by name, from the images that were loaded last, or from the manifest."""
        manifest, records = self._last_manifest or self.manifest, self._records
        if records[0] is not manifest:
            records = self._records = manifest, {kernel["name"]: kernel for kernel in manifest["kernels"]}
        return records[1]

    @property
    def jit_images(self) -> dict[tuple[Case, tuple[int, int]], Library]:
        """Return a copy of `Fallback.loaded`, the images that the JIT fallback has loaded."""
        return dict(self._fallback.loaded) if self._fallback is not None else {}

    def fallback(self) -> Fallback:
        """Return the JIT fallback; make it at the first call, since few programs need it."""
        if self._fallback is None:
            with importing:
                from ..jit.fallback import Fallback  # noqa: PLC0415 (few programs need it)

            with self._making:
                self._fallback = self._fallback or Fallback(self.source)
        return self._fallback

    def cache(self, name: str) -> KernelCache:
        """Return the cache of the kernel of this name."""
        with importing:
            from .kernel_table import KernelCache  # noqa: PLC0415 (an import makes no launcher)

        return self._caches.get(name) or self._caches.setdefault(name, KernelCache())

    def ready(self) -> KernelTable:
        """Return the table of the current images; load them if needed, compiled if the sources were edited.

        Raises:
            RuntimeUnavailableError: There is no driver, no GPU, or no image for any GPU.
            ManifestError: The fatbin is missing or altered.
            StaleBuildError: The module is editable and a source changed after the build.
            ForkError: The process forked after CUDA was started.
            CudaError: The driver cannot be started or refuses the images.
        """
        kernel_table = self.current
        if kernel_table is None:
            kernel_table = self._load()
        else:
            from .. import driver as drivers  # noqa: PLC0415 (an import of images imports it)

            drivers.check_fork()
        return kernel_table

    def use(self, function: Callable[..., Result], *args: object) -> Result:
        """Return `function(kernel_table, *args)` for the current images; they stay loaded until it returns.

        The images are loaded if needed. If another thread unloads them while the function compiles code, the function
        is called again with new images.

        Errors as for `ready`, and those of the function.
        """
        while True:
            kernel_table = self.current
            if kernel_table is None or not kernel_table.live:  # the second: in a forked process
                kernel_table = self.ready()
            uses, use = kernel_table.uses, object()
            try:
                uses[use] = get_ident()
                if kernel_table.live:  # checked after the use was entered, so an unload waits for it
                    return function(kernel_table, *args)
            except errors.UnloadedError:
                if kernel_table.live:  # images of another module
                    raise
            finally:
                uses.pop(use, None)
                if not kernel_table.live:
                    self._leave()

    def _leave(self) -> None:
        """Unload images that were retired during a launch which has ended, unless another thread waits for that."""
        from .. import driver as drivers  # noqa: PLC0415 (an import of images imports it)

        if drivers.forked:
            return
        try:
            self._finish_unloads(waits=False)
        except errors.AotcudaError:
            return  # the launch has succeeded, or has an error of its own

    def enter(
        self,
        kernel_table: KernelTable,
        addresses: Sequence[int],
        launch_streams: Sequence[object] = (),
        where: str = "",
    ) -> int:
        """Enter a context as `Library.enter` does; unload everything if a setup callback raises or is interrupted.

        Args:
            kernel_table: The table of the launch.
            addresses: The addresses of a launch's arrays, as for `Library.enter`.
            launch_streams: The stream of a launch and its `pending` items; empty if nothing is launched.
            where: The kernel of the launch, for errors.

        Raises:
            LaunchError: Setup callbacks would have to run while one of these streams is captured.
        """
        callbacks = kernel_table.library.callbacks
        if callbacks is not None and launch_streams:
            from ..launch import launch_problems  # noqa: PLC0415 (few modules have any)

            advice = f"call aotcuda.load({self.source.name!r}).preload()"
            launch_problems.check_capture(
                where, callbacks, kernel_table.library.driver, launch_streams, "the module", advice
            )
        try:
            return kernel_table.library.enter(addresses)
        except BaseException:
            if callbacks is not None and callbacks.failed is not None:
                with self._lock:
                    if kernel_table in (self.current, self._early):
                        self._retire()
            raise

    def preload(self) -> None:
        """Load everything now: the images, a context if there is none, and the code of every kernel on its GPU.

        Errors as for a launch.
        """
        if not self.manifest["kernels"]:
            return
        self.use(self._preload)

    def _preload(self, kernel_table: KernelTable) -> None:
        device = self.enter(kernel_table, ())
        for name in kernel_table.kernels:
            for overload in kernel_table.table(name).all_overloads():
                if kernel_table.library.has_variant(overload.record, device):
                    kernel_table.device_kernel(overload, device).load()

    def load_early(self) -> None:
        """Read, check and load at import; a missing driver, GPU or image is no error yet.

        Raises:
            ManifestError: The manifest or the fatbin is missing, altered or of a newer format version.
            CallbackError: A setup callback raised.
            DependencyError: The module has callbacks, and the package of their argument is not installed.
        """
        if not self.manifest["kernels"]:
            return
        with importing:
            from .. import driver as drivers  # noqa: PLC0415 (only launches need it)

        if not drivers.is_installed():  # for example an import in a container, which must not fail
            self.source.check()
            return
        try:
            kernel_table = self._load(early=True)
            kernel_table.library.load_all()
        except (errors.RuntimeUnavailableError, errors.CudaError, errors.ForkError):
            return  # the first launch reports it
        if kernel_table.library.callbacks is not None:
            self.enter(kernel_table, ())

    def unload(self) -> None:
        """Unload the images when their launches and kernels have ended.

        Code that a launch runs, such as a setup callback or a destructor, only marks the images: the launch unloads
        them when it ends.

        Raises:
            CallbackError: A teardown callback raised; the images were unloaded all the same.
            CudaError: The driver refuses.
        """
        has_forked = getattr(imported("driver"), "forked", False)  # another thread may import that module now
        with self._lock:
            self._retire()
            if has_forked:  # the images belong to the parent
                self._retired.clear()
        if not any(table.is_used_here() for table in self._tables_in_use()):
            self._finish_unloads(waits=True)

    def _finish_unloads(self, *, waits: bool) -> None:
        """Unload the retired images; errors as for `unload`.

        Args:
            waits: Whether to wait for launches and for other threads. The last launch that ends unloads the images
                that are left out.
        """
        while self._unloading.acquire(blocking=waits):
            try:
                self._unload_idle(waits=waits)
            finally:
                self._unloading.release()
            if not any(retired.is_idle() for retired in self._retired):  # a launch may have ended meanwhile
                return

    def _unload_idle(self, *, waits: bool) -> None:
        problem: Exception | None = None
        for retired in [*self._retired]:
            while waits and not retired.is_idle():
                time.sleep(0.001)
            if retired.is_idle():
                problem = retired.unload() or problem
                if retired in self._retired:  # otherwise a teardown callback that unloads has removed it
                    self._retired.remove(retired)
        if problem is not None:
            raise problem

    def _load(self, *, early: bool = False) -> KernelTable:
        with importing:
            from .. import driver as drivers  # noqa: PLC0415 (only launches need it)

        manifest = self.manifest  # damage is reported before a missing driver
        drivers.check_fork()
        with self._starting:
            if (kernel_table := self.current) is not None:
                return kernel_table
            while True:
                error: errors.AotcudaError | None = None if early else self.source.stale()
                if self._early is not None:
                    kernel_table = self._take_early(is_stale=error is not None)
                    if kernel_table is not None:
                        return kernel_table
                try:
                    if error is None:
                        library = self.source.load(self.fallback)
                except (errors.DriverTooOldError, errors.NoImageError) as problem:
                    if early:  # an import never compiles
                        raise
                    error = problem
                if error is not None:
                    driver = drivers.get()
                    library = self.fallback().load_module(driver.devices[driver.current_device() or 0], error)
                    manifest = library.manifest
                with self._lock:
                    current = self.current
                    if current is None and library.is_retired:  # another thread has unloaded compiled images meanwhile
                        continue
                    if current is None:
                        return self._make_current(library, manifest, early=early and self.source.is_editable)
                    # A launch of this thread, in a destructor for example, has loaded images meanwhile.
                    if current.library is not library:
                        self._retired.append(Retired([library]))
                    return current

    def _take_early(self, *, is_stale: bool) -> KernelTable | None:
        """Make the images that an import loaded the current ones; unload them instead if the sources were edited."""
        if is_stale:
            self._unload_quietly()
        with self._lock:
            kernel_table, self._early = self._early, None
            self.current = kernel_table or self.current
            return self.current

    def _unload_quietly(self) -> None:
        """Unload as at exit: errors of teardown callbacks are ignored."""
        try:
            self.unload()
        except (errors.CallbackError, errors.CudaError):
            return

    def _make_current(self, library: Library, manifest: Manifest, *, early: bool = False) -> KernelTable:
        """Make these the current images; early ones become current at the first launch."""
        with importing:
            from .. import driver as drivers  # noqa: PLC0415 (only launches need it)
            from .kernel_table import KernelTable  # noqa: PLC0415 (only launches need it)

        kernel_table = KernelTable(library, manifest, self.fallback, drivers.new_validity_flag(), self._caches)
        self._last_manifest = manifest
        if early:
            self._early = kernel_table
        else:
            self.current = kernel_table
        return kernel_table

    def _retire(self) -> None:
        """Retire the images: from now on launches load new ones."""
        try:
            self._retire_once()
        except BaseException:  # an interrupt: finish, because otherwise images would stay loaded for ever
            self._retire_once()
            raise

    def _retire_once(self) -> None:
        """Retire the images, or finish an interrupted call. Signals arrive after calls, so the steps make few calls."""
        kernel_table = self.current or self._early
        if kernel_table is not None:
            self._retiring += [kernel_table.library]
            self._retired_tables += [kernel_table]
            self.current, self._early, self._caches = None, None, {}
        if self._fallback is not None:  # it may have loaded images of an interrupted launch
            self._fallback.retire(self._retiring)
        if not self._retiring:
            return
        libraries = list(dict.fromkeys(self._retiring))
        for library in libraries:
            library.is_retired = True
        for table in self._retired_tables:
            table.retire()
        if not any(table.is_pinned for table in self._retired_tables):
            self._retired += [Retired(libraries, [*self._retired_tables])]
        self._retiring, self._retired_tables = [], []

    def _tables_in_use(self) -> list[KernelTable]:
        tables = [table for retired in self._retired for table in retired.tables]
        return tables if self.current is None else [*tables, self.current]


class Retired:
    """Images out of use.

    Attributes:
        libraries: The images, and those that the JIT fallback compiled in addition.
        tables: Their kernel tables, which know if a launch is in progress.
    """

    __slots__ = ("libraries", "tables")

    def __init__(self, libraries: list[Library], tables: Sequence[KernelTable] = ()) -> None:
        self.libraries = libraries
        self.tables = tables

    def is_idle(self) -> bool:
        """Return True if no launch is in progress; later launches use other images."""
        return not any(table.is_used() for table in self.tables)

    def unload(self) -> Exception | None:
        """Unload the images after their kernels have ended, and return the first error."""
        problem: Exception | None = None
        self.libraries[0].driver.wait_for_kernels()
        for library in self.libraries:
            try:
                library.unload()
            except Exception as error:  # noqa: BLE001 (returned after the other unloads)
                problem = problem or error
        return problem
