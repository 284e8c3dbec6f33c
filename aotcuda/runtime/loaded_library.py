"""A module's images, loaded into the driver, and their kernels on each GPU."""

# Launches take no lock. What keeps those who use loaded images and those who unload them apart: who unloads puts the
# images out of use first. Their loader has other ones or none, the marks of their overloads are empty, and
# `OpenLibrary` refuses what asks the driver about them. Then it waits for the launches that were under way, of which
# slots that are not back tell, and the extension's counts. `Loader.unload` does all this.

from __future__ import annotations

import ctypes
import os
from weakref import ref

import aotcuda
from aotcuda import manifest as manifests
from aotcuda.gpus import TEGRA
from aotcuda.runtime import driver as drivers
from aotcuda.runtime import new_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda.manifest import FixedLaunch, Manifest, Overload
    from aotcuda.runtime.arguments.argument_layout import PackedOverload
    from aotcuda.runtime.driver import Device, Driver
    from aotcuda.runtime.images.callbacks import Callbacks
    from aotcuda.runtime.images.choice import Choice
    from aotcuda.runtime.images.debug_exceptions import Watch

_MAX_THREADS, _STATIC_SHARED = 0, 1  # CU_FUNC_ATTRIBUTE_*
_MAX_DYNAMIC_SHARED, _CARVEOUT = 8, 9
_LARGE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED


class OpenLibrary:
    """Images in the driver, and their handle, until they are closed.

    Closing and calls with the handles of what the images hold keep each other out by a lock. Launches take none:
    images that are closed stay in the driver until those that are under way have ended (see `Loader.unload`).

    Attributes:
        driver: The driver that holds them.
        handle: The driver's handle (`CUlibrary`), once `loaded` has told it.
        lock: What is held around calls with the handles, and asked by `check_open` when it is held.
    """

    __slots__ = ("_closed", "_where", "driver", "handle", "lock")

    def __init__(self, driver: Driver, where: str) -> None:
        self._closed = False
        self.lock = new_lock()
        self._where = where
        self.driver = driver
        self.handle = ctypes.c_void_p()

    def loaded(self, handle: ctypes.c_void_p) -> None:
        """Note the driver's handle."""
        self.handle = handle

    # No context manager of its own: an interrupt between a lock and the block that holds it would leave it locked.
    def check_open(self) -> None:
        """Refuse calls with images that are closed.

        Raises:
            UnloadedError: They are.
        """
        if self._closed:
            raise aotcuda.errors.UnloadedError.of(self._where)

    def close(self) -> None:
        """Let no more calls use the images."""
        with self.lock:
            self._closed = True


class DeviceKernel:
    """One overload on one GPU, ready to launch.

    Attributes:
        device: The GPU.
        kernel: The driver's handle (`CUkernel`).
        threads: The most threads that a block may have, by the registers it takes and its launch bounds.
        static_shared: Bytes of shared memory that every block has.
        cooperative: Whether it is launched cooperatively.
        most_threads: The most threads of a block by its author's launch bounds; 0 if there are none.
        watch: What a debug kernel raises; None for other kernels.
        fixed: Block, shared memory and cluster that it is launched with; None where users say them.
        verified: Configurations that it can take.
        blocks: Block sizes of most occupancy, by bytes of dynamic shared memory.
    """

    __slots__ = (
        "_dynamic",
        "_library",
        "_unasked",
        "blocks",
        "cooperative",
        "device",
        "fixed",
        "kernel",
        "most_threads",
        "static_shared",
        "threads",
        "verified",
        "watch",
    )

    def __init__(
        self,
        library: OpenLibrary,
        device: Device,
        kernel: ctypes.c_void_p,
        record: Overload,
        watch: Watch | None = None,
        fixed: FixedLaunch | None = None,
    ) -> None:
        self._library = library
        self._dynamic = False
        self.device = device
        self.kernel = kernel
        self.cooperative = record["cooperative"]
        self.threads = self.attribute(_MAX_THREADS)
        self.static_shared = self.attribute(_STATIC_SHARED)
        bounds = record["launch_bounds"]
        self.most_threads = max(bounds[0], 0) if bounds else 0
        self.watch = watch
        self.fixed = fixed
        self.blocks: dict[int, int] = {}
        self.verified: set[object] = set()
        self._unasked: tuple[int, ...] = ()
        carveout = record["carveout"]
        if carveout is not None:
            self._set(_CARVEOUT, carveout)

    def allow_shared(self) -> None:
        """Let launches have as much dynamic shared memory as the GPU has; the driver's default is 48 KiB."""
        if not self._dynamic:
            self._set(_MAX_DYNAMIC_SHARED, self.device.limit("shared_optin") - self.static_shared)
            self._dynamic = True

    def unasked(self) -> tuple[int, ...]:
        """The largest configuration that needs neither an opt-in nor a closer look.

        Grid and block in x, y and z, bytes of dynamic shared memory, threads of a block.
        """
        if not self._unasked:
            device = self.device
            extents = [device.limit(f"{what}_{axis}") for what in ("grid", "block") for axis in "xyz"]
            threads = min(device.limit("threads"), self.threads, self.most_threads or self.threads)
            self._unasked = (*extents, max(device.limit("shared") - self.static_shared, 0), threads)
        return self._unasked

    def best_block(self, shared: int) -> int:
        """The block size of most occupancy with so many bytes of dynamic shared memory; it needs a current context."""
        block = self.blocks.get(shared)
        if block is None:
            from aotcuda.runtime import occupancy  # noqa: PLC0415 (few launches leave the block to it)

            block = self.blocks[shared] = occupancy.best_block(self, shared)
        return block

    def allow_large_clusters(self) -> None:
        """Let launches have clusters of more than 8 blocks, which not every GPU with clusters has."""
        self._set(_LARGE_CLUSTERS, 1)

    def attribute(self, attribute: int) -> int:
        """One of the driver's attributes of a kernel (`CU_FUNC_ATTRIBUTE_*`)."""
        value = ctypes.c_int()
        problem = f"the driver did not tell attribute {attribute} of a kernel on {{gpu}}"
        self.ask(problem, "cuKernelGetAttribute", ctypes.byref(value), attribute, self.kernel, self.device.handle)
        return value.value

    def load(self) -> None:
        """Load the kernel's code into the current context, which the driver else does at its first launch."""
        function = ctypes.c_void_p()
        self.ask("a kernel could not be loaded on {gpu}", "cuKernelGetFunction", ctypes.byref(function), self.kernel)

    def _set(self, attribute: int, value: int) -> None:
        problem = f"the driver did not take attribute {attribute} = {value} on {{gpu}}"
        self.ask(problem, "cuKernelSetAttribute", attribute, value, self.kernel, self.device.handle)

    def ask(self, problem: str, function: str, *args: object) -> None:
        """Call a function of the driver with this kernel's handle among its arguments.

        `problem` begins its error, with the GPU in the place of `{gpu}`: to name it takes a question to the driver.
        """
        driver = self._library.driver
        with self._library.lock:
            self._library.check_open()
            code = driver.call[function](*args)
        if code:
            raise driver.error(code, problem.format(gpu=self.device))


class _Guest:
    """Stands for a thread in a setup callback, and goes with its frame, however that ends."""

    __slots__ = ("__weakref__",)


class LoadedLibrary:
    """The images of a module, loaded.

    Attributes:
        driver: The driver that holds them.
        folder: Where their manifest lies.
        device: The ordinal of the only GPU, -1 if a launch has to find out or to see to the callbacks.
        callbacks: The module's callbacks; None if it has none.
        synchronous: Whether launches wait for their kernels (`AOTCUDA_SYNCHRONIZE`).
        launches: How the kernels of JIT-compiled images are launched, by symbol, where users say the grid alone.
    """

    __slots__ = (
        "_choices",
        "_guests",
        "_handles",
        "_is_gone",
        "_is_kept",
        "_library",
        "_manifest",
        "_where",
        "callbacks",
        "device",
        "driver",
        "folder",
        "launches",
        "synchronous",
    )

    def __init__(
        self,
        manifest: Manifest,
        folder: str,
        image: bytes = b"",
        choices: dict[int, Choice] | None = None,
        *,
        fatbin: bytes = b"",
    ) -> None:
        """Load the module's fatbin, or `image` if that is given; nothing needs a context yet.

        Args:
            manifest: The module's manifest.
            folder: Where the manifest lies.
            image: The images.
            choices: What each GPU takes; by default what `survey` says.
            fatbin: The module's fatbin, if the caller has read it.

        Raises:
            ManifestError: The fatbin is missing, truncated or altered.
            RuntimeUnavailableError: There is no driver or no GPU, or none of the GPUs has an image.
            CudaError: The driver refuses the fatbin.
            DependencyError: The module has callbacks, and what they are given is not installed.
        """
        self._is_kept = True  # as long as there is nothing
        self._where = manifest["module"]
        self._manifest = manifest
        self._choices = choices
        self.folder = folder
        self._handles: dict[str, ctypes.c_void_p] = {}  # by symbol
        self._guests: set[ref[_Guest]] = set()  # threads in a setup callback
        self._is_gone = False
        self.synchronous = _is_synchronous()
        data = image or fatbin or manifests.read_file(folder, manifest["files"]["kernels"])
        self.launches: dict[str, dict[str, FixedLaunch]] = {}
        if image and manifest.get("by_grid"):  # compiled on this machine
            overloads = [item for kernel in manifest["kernels"] for item in kernel["overloads"]]
            self.launches = {item["symbol"]: item["launches"] for item in overloads}
        self.driver = drivers.get()
        self._library = OpenLibrary(self.driver, self._where)
        self.device = 0 if len(self.driver.devices) == 1 else -1
        if not any(self.has_image(device.index) for device in self.driver.devices):
            raise self.choices[0].error(self._where)
        if not image:
            data = self._for_tegra(data)
        self.callbacks: Callbacks | None = None
        if manifest.get("callbacks"):
            from aotcuda.runtime.images import callbacks  # noqa: PLC0415 (few modules have any)

            handle, library = callbacks.open_handle(manifest, data)
            self._library.loaded(ctypes.c_void_p(library))
            self.callbacks = callbacks.Callbacks(manifest, handle, self.driver)
            self.device = -1
            return
        load, handle = self.driver.call["cuLibraryLoadData"], self._library.handle
        try:
            code = load(ctypes.byref(handle), data, None, None, 0, None, None, 0)
            self._is_kept = False
        except BaseException:  # an interrupt that came meanwhile, as the driver takes its time
            if handle.value:
                self.driver.call["cuLibraryUnload"](handle)
            raise
        self.driver.check(code, f"the driver refused the images of {self._where}")

    def keep(self) -> None:
        """Note that somebody sees to it that they leave the driver; what nobody has kept goes with this object."""
        self._is_kept = True

    def __del__(self) -> None:
        """Take out of the driver what nobody has kept: an interrupt came before their module had them."""
        is_kept = getattr(self, "_is_kept", True)  # without, it came before there was anything
        if not (is_kept or self._is_gone or drivers.forked) and self._library.handle.value:
            self.driver.call["cuLibraryUnload"](self._library.handle)

    @property
    def choices(self) -> dict[int, Choice]:
        """What each GPU takes, and why, by its ordinal."""
        if self._choices is None:
            from aotcuda.runtime.images.choice import survey  # noqa: PLC0415 (few launches have to choose)

            self._choices = survey(self._manifest, self.driver)
        return self._choices

    def has_image(self, device: int) -> bool:
        """Whether a GPU takes one of the images."""
        if self._choices is None and self._has_own(self.driver.devices[device]):
            return True
        return self.choices[device].arch is not None

    def _has_own(self, device: Device) -> bool:
        """Whether there is machine code for exactly this GPU, which is taken before all else, and the driver takes it.

        Most packages have it where they run, and need not weigh anything up then.
        """
        wanted = "sm_{}{}".format(*device.capability)
        general = self._manifest["toolchain"].get("cuda", "")
        for image in self._manifest["images"]:
            if image["arch"] == wanted:
                major = image.get("cuda", general).partition(".")[0]
                return major.isdecimal() and device.driver_version[0] >= int(major)
        return False

    def _for_tegra(self, data: bytes) -> bytes:
        """What the driver is handed of the fatbin `data`: where one of the GPUs is Tegra's, what is taken alone.

        The driver might take a desktop GPU's machine code there, which NVIDIA does not promise to run.
        """
        if all(device.capability not in TEGRA for device in self.driver.devices):
            return data
        taken = {choice.arch for choice in self.choices.values() if choice.arch}
        if taken == {item["arch"] for item in self._manifest["images"]}:
            return data
        from aotcuda.runtime.images import subset  # noqa: PLC0415 (few machines need it)

        return subset.only(data, taken, f"the fatbin of {self._where}")

    def current_device(self) -> int | None:
        """Return the ordinal of the GPU that a launch goes to, None if no context is current."""
        return self.device if self.device >= 0 else self.driver.current_device()

    def enter(self, addresses: Sequence[int]) -> int:
        """The ordinal of the GPU to launch on, with a context current in this thread.

        A context that is current already stays so. Else it is the primary one of the GPU that the arguments' first
        array lies on, or of GPU 0. The module's callbacks have seen the context.

        Raises:
            CallbackError: A callback raised.
        """
        device = self.driver.current_device()
        if device is None:
            found = (self.driver.pointer_device(address) for address in addresses if address)
            device = next((index for index in found if index is not None), 0)
            self.driver.make_current(device)
        if self.callbacks is not None:
            self.set_up()
        return device

    def set_up(self) -> None:
        """Run the setup callbacks if the current context has not seen them yet.

        Raises:
            CallbackError: A callback raised.
            UnloadedError: Another thread unloads the images.
        """
        guest = _Guest()
        with self._library.lock:
            self._library.check_open()
            self._guests.add(ref(guest, self._guests.discard))
            callbacks = self.callbacks
        try:
            if callbacks is not None:
                callbacks.set_up()
        finally:
            del guest  # an error's traceback has this frame

    def device_kernel(self, overload: PackedOverload, device: int) -> DeviceKernel:
        """Look an overload up on a GPU.

        Raises:
            NoImageError: No packaged image runs on that GPU.
            DriverTooOldError: One would, with a newer driver.
            UnloadedError: Another thread unloads the images.
            CudaError: The driver does not find the kernel in the image, or cannot load it.
        """
        if not self.has_image(device):
            raise self.choices[device].error(self._where)
        symbol = overload.record["symbol"]
        gpu = self.driver.devices[device]
        try:
            with self._library.lock:
                self._library.check_open()
                return self._look_up(overload, gpu)
        except aotcuda.errors.UnloadedError:
            raise
        except aotcuda.errors.CudaError as error:
            message = (
                f"{symbol} of {self._where} could not be loaded from {self.choices[device].arch} on {gpu}: {error}"
            )
            raise aotcuda.errors.CudaError(message, name=error.name, code=error.code) from None

    def _look_up(self, overload: PackedOverload, gpu: Device) -> DeviceKernel:
        symbol, library = overload.record["symbol"], self._library.handle
        kernel = self._handles.get(symbol)
        if kernel is None:
            kernel = ctypes.c_void_p()
            code = self.driver.call["cuLibraryGetKernel"](ctypes.byref(kernel), library, symbol.encode())
            self.driver.check(code, "the kernel was not found in the loaded images")
            self._handles[symbol] = kernel
        watch = None
        if "raises" in overload.record:
            from aotcuda.runtime.images.debug_exceptions import Watch  # noqa: PLC0415 (only debug builds need it)

            watch = Watch(self.driver, library, overload.record, f"{symbol} of {self._where}")
        return DeviceKernel(self._library, gpu, kernel, overload.record, watch, self._fixed(overload, gpu))

    def _fixed(self, overload: PackedOverload, gpu: Device) -> FixedLaunch | None:
        """How the image for a GPU has to be launched, where that does not stand in the launch."""
        launches = self.launches.get(overload.record["symbol"]) or overload.record.get("launches")
        return launches[self.choices[gpu.index].arch or ""] if launches else None

    def close(self) -> None:
        """Begin to unload: whoever asks for something of the images gets an UnloadedError from now on."""
        self._library.close()

    def is_idle(self) -> bool:
        """Whether no thread is in a setup callback."""
        return not self._guests

    def unload(self) -> None:
        """Take the images out of the driver, after the teardown callbacks; no launch of theirs may be under way.

        Who is interrupted calls it once more; what went already is not taken out again.

        Raises:
            CallbackError: A callback raised; the images are gone all the same.
            CudaError: The driver refuses.
        """
        if self._is_gone:
            return
        callbacks, unload, handle = self.callbacks, self.driver.call["cuLibraryUnload"], self._library.handle
        self._is_gone, self.callbacks = True, None  # nothing is called from here on but what takes them out
        if callbacks is None:
            code = unload(handle)
            self.driver.check(code, f"{self._where} could not be unloaded")
            return
        try:
            callbacks.tear_down()
        finally:
            callbacks.release()


def _is_synchronous() -> bool:
    if not os.environ.get("AOTCUDA_SYNCHRONIZE"):
        return False
    from aotcuda.runtime.streams import launches_wait  # noqa: PLC0415 (for who looks for a fault)

    return launches_wait()
