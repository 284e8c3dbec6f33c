"""A module's images, loaded into the driver."""

# Launches take no lock. An unload retires the images first: `Images` has other ones or none, and the validity flags
# of the overloads are empty. Then the unload waits for launches in progress. See `Images.unload`.

from __future__ import annotations

import ctypes
import os

from ... import manifest as manifests
from .. import driver as drivers
from .. import errors, importing
from .device_kernel import DeviceKernel, OpenLibrary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...manifest import FixedLaunch, Manifest, Overload
    from ..driver import Device
    from ..launch.arguments.argument_layout import PackedOverload
    from .callbacks import Callbacks
    from .choice import Choice


class Library:
    """The images of a module, loaded.

    Attributes:
        driver: The driver that holds them.
        manifest: The manifest that describes them.
        folder: The folder of the manifest.
        device: The ordinal of the only GPU; -1 if there are several GPUs, or callbacks.
        callbacks: The module's callbacks; None if it has none.
        is_compiled: Whether the images were compiled on this machine.
        is_retired: Whether the images are unloaded once the launches in progress have ended.
        synchronous: Whether launches wait for their kernels (`AOTCUDA_SYNCHRONIZE`).
        launches: The fixed launch parameters of JIT-compiled kernels that are launched by their grid, by symbol.
    """

    __slots__ = (
        "_choices",
        "_compiled",
        "_handles",
        "_is_unloaded",
        "_kernels",
        "_library",
        "_owned",
        "_read",
        "_where",
        "callbacks",
        "device",
        "driver",
        "folder",
        "is_compiled",
        "is_retired",
        "launches",
        "manifest",
        "synchronous",
    )

    def __init__(
        self,
        manifest: Manifest,
        folder: str,
        choices: dict[int, Choice] | None = None,
        *,
        read: Callable[[int], bytes] | None = None,
        is_compiled: bool = False,
    ) -> None:
        """Choose the images, and load the fatbin that callbacks need; nothing needs a context.

        Any other fatbin is loaded when one of its kernels or variables is used first.

        Args:
            manifest: The module's manifest.
            folder: The folder of the manifest.
            choices: The image for each GPU; by default the result of `survey`.
            read: Returns a fatbin by its index; by default from the file in `folder`.
            is_compiled: Whether the images were compiled on this machine, by `read` if they were not before.

        Raises:
            ManifestError: The fatbin is missing, truncated or altered.
            RuntimeUnavailableError: There is no driver or no GPU, or none of the GPUs has an image.
            CudaError: The driver refuses the fatbin.
            DependencyError: The module has callbacks, and the package of their argument is not installed.
        """
        self._where = manifest["module"]
        self.manifest = manifest
        self._choices = choices
        self.folder = folder
        self._handles: dict[int, ctypes.c_void_p] = {}  # the loaded fatbins, without that of `callbacks.handle`
        self._compiled: dict[int, bytes] = {}  # fatbins that `compile` has read, until they are loaded
        self._kernels: dict[tuple[int, str], ctypes.c_void_p] = {}  # by fatbin and symbol
        self._read = read or (lambda index: manifests.read_file(folder, manifest["fatbins"][index]["file"]))
        self._is_unloaded = False
        self.is_retired = False
        self.synchronous = _is_synchronous()
        self.launches: dict[str, dict[str, FixedLaunch]] = {}
        self.is_compiled = is_compiled
        if is_compiled and manifest.get("by_grid"):
            overloads = [item for kernel in manifest["kernels"] for item in kernel["overloads"]]
            self.launches = {item["symbol"]: item["launches"] for item in overloads}
        self.driver = drivers.get()
        self._library = OpenLibrary(self.driver, self._where)
        self.device = 0 if len(self.driver.devices) == 1 else -1
        if not any(self.has_image(device.index) for device in self.driver.devices):
            raise self.choices[0].error(self._where)
        self.callbacks: Callbacks | None = None
        if manifest.get("callbacks"):
            with importing:
                from . import callbacks  # noqa: PLC0415 (few modules have any)

            fatbin = next(item.get("fatbin", 0) for item in manifest["callbacks"])
            data = self._for_tegra(self._read(fatbin), fatbin)
            handle, library = callbacks.open_handle(manifest, data)
            self._handles[fatbin] = ctypes.c_void_p(library)
            self._owned = fatbin
            self.callbacks = callbacks.Callbacks(manifest, handle, self.driver)
            self.device = -1

    def _handle(self, fatbin: int) -> ctypes.c_void_p:
        """Return the driver's handle of a fatbin, and load it first if needed. The caller holds the library's lock."""
        handle = self._handles.get(fatbin)
        if handle is None:
            data = self._compiled.pop(fatbin, b"") or self._for_tegra(self._read(fatbin), fatbin)
            handle, load = ctypes.c_void_p(), self.driver.call["cuLibraryLoadData"]
            try:
                code = load(ctypes.byref(handle), data, None, None, 0, None, None, 0)
                if not code:
                    self._handles[fatbin] = handle
            except BaseException:  # an interrupt during the call, which takes milliseconds
                if handle.value and fatbin not in self._handles:
                    self.driver.call["cuLibraryUnload"](handle)
                raise
            self.driver.check(code, f"the driver refused the images of {self._where}")
        return handle

    def compile(self, fatbin: int) -> None:
        """Compile an image that is needed next; a call without a lock and outside of a launch does not delay others."""
        if self.is_compiled and fatbin not in self._handles and fatbin not in self._compiled:
            self._compiled[fatbin] = self._read(fatbin)

    def load_all(self) -> None:
        """Load all fatbins with an image for one of the GPUs.

        Raises:
            UnloadedError: Another thread unloads the images.
            CudaError: The driver refuses a fatbin.
        """
        for fatbin in range(len(self.manifest["fatbins"])):
            if not any(self._is_in(fatbin, device.index) for device in self.driver.devices):
                continue
            self.compile(fatbin)
            with self._library.lock:
                self._library.check_open()
                self._handle(fatbin)

    @property
    def choices(self) -> dict[int, Choice]:
        """Return the choice of image for each GPU, by ordinal."""
        if self._choices is None:
            with importing:
                from .choice import survey  # noqa: PLC0415 (few launches have to choose)

            self._choices = survey(self.manifest, self.driver)
        return self._choices

    def choice_for(self, capability: tuple[int, int]) -> Choice:
        """Return the choice for the GPUs of a compute capability; this machine has such a GPU."""
        return next(choice for choice in self.choices.values() if choice.capability == capability)

    def has_image(self, device: int) -> bool:
        """Return True if one of the images runs on a GPU."""
        if self._choices is None and self._has_exact_image(self.driver.devices[device]):
            return True
        return self.choices[device].arch is not None

    def _has_exact_image(self, device: Device) -> bool:
        """Return True if there is machine code for exactly this GPU, and the driver can load it.

        Most packages have such code, and `has_image` then computes no choice.
        """
        target = "sm_{}{}".format(*device.capability)
        general = self.manifest["toolchain"].get("cuda", "")
        for image in manifests.kernel_images(self.manifest):
            if image["arch"] == target and "absent" not in image:
                major = image.get("cuda", general).partition(".")[0]
                return major.isdecimal() and device.driver_version[0] >= int(major)
        return False

    def _for_tegra(self, data: bytes, fatbin: int) -> bytes:
        """Return a fatbin for the driver: on a machine with a Tegra GPU, only the chosen images.

        The driver might choose machine code for desktop GPUs there, and NVIDIA does not promise that it runs.
        """
        if self.is_compiled or not any(device.is_tegra() for device in self.driver.devices):
            return data
        chosen = {choice.arch for choice in self.choices.values()}
        images = self.manifest["fatbins"][fatbin]["images"]
        targets = [item["arch"] for item in images if item["arch"] in chosen]
        if len(targets) == len(images):
            return data
        with importing:
            from . import subset  # noqa: PLC0415 (few machines need it)

        return subset.only([data], targets, f"the fatbin of {self._where}")

    @property
    def is_loaded(self) -> bool:
        """Return True if the driver holds one of the images."""
        return bool(self._handles)

    def current_device(self) -> int | None:
        """Return the ordinal of the GPU of a launch; None if no context is current."""
        return self.device if self.device >= 0 else self.driver.current_device()

    def enter(self, addresses: Sequence[int]) -> int:
        """Return the ordinal of the GPU to launch on, make a context current, and run the setup callbacks for it.

        A current context stays. Without one, use the primary context of the GPU that has the first array, or of GPU 0.

        Raises:
            CallbackError: A callback raised.
        """
        device = self.driver.current_device()
        if device is None:
            homes = (self.driver.pointer_device(address) for address in addresses if address)
            device = next((home for home in homes if home is not None), 0)
            self.driver.make_current(device)
        self.set_up()
        return device

    def set_up(self) -> None:
        """Run the setup callbacks if they have not run for the current context.

        Raises:
            CallbackError: A callback raised.
        """
        if self.callbacks is not None:
            self.callbacks.set_up()

    def device_kernel(self, overload: PackedOverload, device: int) -> DeviceKernel:
        """Look an overload up on a GPU.

        Raises:
            NoImageError: No packaged image runs on that GPU.
            DriverTooOldError: An image needs a newer driver.
            UnloadedError: Another thread unloads the images.
            MissingVariantError: The image for that GPU lacks this variant, or its fatbin has no image for the target.
            CudaError: The driver does not find the kernel in the image, or cannot load it.
        """
        if not self.has_image(device):
            raise self.choices[device].error(self._where)
        symbol = overload.record["symbol"]
        gpu = self.driver.devices[device]
        fixed = self._fixed_launch(overload, gpu)
        with self._library.lock:
            self._library.check_open()
            self._handle(overload.record.get("fatbin", 0))
        try:
            with self._library.lock:
                self._library.check_open()
                return self._look_up(overload, gpu, fixed)
        except errors.UnloadedError:
            raise
        except errors.CudaError as error:
            message = (
                f"{symbol} of {self._where} could not be loaded from {self.choices[device].arch} on {gpu}: {error}"
            )
            raise errors.CudaError(message, name=error.name, code=error.code) from None

    def variable(self, symbol: str, where: str, fatbin: int = 0) -> tuple[int, int]:
        """Return the address and the size of a device variable of a fatbin on the GPU of the current context.

        Raises:
            UnloadedError: Another thread unloads the images.
            CudaError: The images have no such variable; the message begins with `where`.
        """
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        results = (ctypes.byref(address), ctypes.byref(size))
        with self._library.lock:
            self._library.check_open()
            code = self.driver.call["cuLibraryGetGlobal"](*results, self._handle(fatbin), symbol.encode())
        self.driver.check(code, f"{where} is no variable of the loaded images")
        return address.value, size.value

    def _look_up(self, overload: PackedOverload, gpu: Device, fixed: FixedLaunch | None) -> DeviceKernel:
        symbol, fatbin = overload.record["symbol"], overload.record.get("fatbin", 0)
        library = self._handle(fatbin)
        kernel = self._kernels.get((fatbin, symbol))
        if kernel is None:
            kernel = ctypes.c_void_p()
            code = self.driver.call["cuLibraryGetKernel"](ctypes.byref(kernel), library, symbol.encode())
            self.driver.check(code, "the kernel was not found in the loaded images")
            self._kernels[fatbin, symbol] = kernel
        watch = None
        if "raises" in overload.record:
            with importing:
                from .debug_exceptions import Watch  # noqa: PLC0415 (only debug builds need it)

            watch = Watch(self.driver, library, overload.record, f"{symbol} of {self._where}")
        return DeviceKernel(self._library, gpu, kernel, overload.record, watch, fixed)

    def has_variant(self, record: Overload, device: int) -> bool:
        """Return False for a variant that is packaged for other GPUs and is not in the image for this one."""
        launches = self.launches.get(record["symbol"]) or record.get("launches")
        if launches:
            return self.choices[device].arch in launches
        return self._is_in(record.get("fatbin", 0), device)

    def _is_in(self, fatbin: int, device: int) -> bool:
        """Return False for a fatbin without an image for the target that the module uses on a GPU."""
        first, *others = [{image["arch"] for image in item["images"]} for item in self.manifest["fatbins"]]
        if all(targets == first for targets in others):
            return True
        return self.choices[device].arch in [first, *others][fatbin]

    def _fixed_launch(self, overload: PackedOverload, gpu: Device) -> FixedLaunch | None:
        """Return the fixed launch parameters of an overload on a GPU; None if the launch sets them."""
        launches = self.launches.get(overload.record["symbol"]) or overload.record.get("launches")
        if not self.has_variant(overload.record, gpu.index):
            variant = f"{overload.record['symbol']} of {self._where}, {overload.record['signature']},"
            message = f"{variant} is not in the image for {gpu}: {self.choices[gpu.index]}"
            raise errors.MissingVariantError(message)
        return launches[self.choices[gpu.index].arch or ""] if launches else None

    def unload(self) -> None:
        """Run the teardown callbacks and unload the images; no launch of them may be in progress.

        After an interrupt, call it again; it skips images that were already unloaded.

        Raises:
            CallbackError: A callback raised; the images were unloaded all the same.
            CudaError: The driver refuses.
        """
        if self._is_unloaded:
            return
        callbacks, unload = self.callbacks, self.driver.call["cuLibraryUnload"]
        self._library.close()  # a kernel of another library may have the handle of one of these
        self._is_unloaded, self.callbacks = True, None  # an interrupt after a call must not repeat it
        codes = []
        try:
            if callbacks is not None:
                callbacks.tear_down()
        finally:
            if callbacks is not None:
                self._handles.pop(self._owned, None)
                callbacks.release()  # which unloads that fatbin
            while self._handles:
                codes.append(unload(self._handles.popitem()[1]))
        for code in codes:
            self.driver.check(code, f"{self._where} could not be unloaded")


def _is_synchronous() -> bool:
    if not os.environ.get("AOTCUDA_SYNCHRONIZE"):
        return False
    with importing:
        from ..streams import launches_wait  # noqa: PLC0415 (few programs set the variable)

    return launches_wait()
