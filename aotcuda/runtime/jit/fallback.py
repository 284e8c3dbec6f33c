"""The JIT fallback: build images for a GPU, for argument types or for edited sources that the wheel does not serve.

The build of a wheel runs on the user's machine, and its images are loaded as a wheel's images are. It builds:

- An image of the module for one GPU, if no packaged image runs on the GPU: of several images, each that a launch needs.
- The whole module for one GPU, if the sources of an editable install have changed. It builds all kernels, because the
  kernels of an image share device globals.
- One kernel for one signature and one GPU, if no packaged overload accepts the arguments. This kernel has its own
  globals, like each of Numba's own compilations, and its own setup callbacks.

It searches images in this process, then in the cache, and compiles them if they are in neither. Callers launch them.
"""

from __future__ import annotations

import os

from ... import registry
from ...common.jit_build import CUBIN
from ...errors import AotcudaError, CompileError, ConfigError, LinkError, StaleBuildError
from .. import driver as drivers
from .. import new_lock
from ..images.choice import survey
from ..images.library import Library
from . import cache_key
from .compile import add_reason, obtain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ...common.jit_build import Request, Result
    from ...manifest import Fatbin, Image, Manifest
    from ..driver import Device
    from ..images.source import ImageSource

    Case = tuple[str | None, str | None]
    """A kernel and a signature; both are None for a whole module."""


WHOLE: Case = (None, None)

observers: list[Callable[[str], None]] = []
"""Functions that each launch of JIT-compiled code calls; `aotcuda.testing` adds one during its check."""


def is_allowed(setting: str) -> bool:
    """Return True if the fallback may compile; `AOTCUDA_FALLBACK` overrides the module's `setting`.

    Raises:
        ConfigError: `AOTCUDA_FALLBACK` has an unknown value.
    """
    variable = os.environ.get("AOTCUDA_FALLBACK")
    if variable and variable not in ("jit", "error"):
        message = f"AOTCUDA_FALLBACK is {variable!r}; write 'jit' or 'error'"
        raise ConfigError(message)
    return (variable or setting) == "jit"


class Fallback:
    """The fallback of one module.

    Attributes:
        loaded: The loaded images, by kernel, signature and compute capability.
    """

    def __init__(self, module: ImageSource) -> None:
        self._module = module
        self.loaded: dict[tuple[Case, tuple[int, int]], Library] = {}
        self._failed: dict[tuple[Case, tuple[int, int]], tuple[str, str]] = {}  # the entry's key and the error's text
        self._forgotten: list[Library] = []
        self._compiling = new_lock()  # one thread compiles, and the others wait
        self._lock = new_lock()  # for quick steps

    def build_inputs(self) -> Request | None:
        """Return the inputs of its builds; None if it may not compile for the module, or has no sources."""
        return self._module.build_inputs() if is_allowed(self._module.setting) else None

    def may_widen(self) -> bool:
        """Return True if it may compile kernels for more types; some front ends fix the types of their kernels."""
        inputs = self.build_inputs()
        if inputs is None:
            return False
        front_end = registry.find(inputs.frontend)
        return front_end is None or front_end.widens

    def load_module(self, gpu: Device, cause: AotcudaError) -> Library:
        """Return the images of the whole module for a GPU; see `load`."""
        return self.load(WHOLE, gpu, cause)

    def load(self, case: Case, gpu: Device, cause: AotcudaError) -> Library:
        """Return the images of a case for a GPU; compile and load them at the first call.

        Args:
            case: The kernel and the signature, or `WHOLE`.
            gpu: The GPU.
            cause: The error that a launch without the fallback would raise.

        Raises:
            AotcudaError: `cause`, if the fallback may not or cannot compile it.
        """
        inputs = self.build_inputs()
        if inputs is None:
            raise cause
        for observe in observers:
            observe(_first_line(cause))
        key = (case, gpu.capability)
        images = self.loaded.get(key)
        if images is None:
            with self._compiling:
                images = self.loaded.get(key) or self._compile(inputs, key, gpu, cause)
        return images

    def drop(self, library: Library) -> None:
        """Load images again at their next request; the old ones stay in the driver."""
        with self._lock:
            for key, images in list(self.loaded.items()):
                if images is library:
                    self._forgotten.append(library)
                    del self.loaded[key]

    def retire(self, going: list[Library]) -> None:
        """Forget all images and add them to `going`; after an interrupt, some may be in it twice."""
        with self._lock:
            self._forgotten += self.loaded.values()
            self.loaded.clear()
            going += self._forgotten
            self._forgotten = []

    def _compile(self, inputs: Request, key: tuple[Case, tuple[int, int]], gpu: Device, cause: AotcudaError) -> Library:
        request = inputs.case(*key[0], gpu.capability, gpu.driver_version)
        divided = self._module.divided() if key[0] == WHOLE and not isinstance(cause, StaleBuildError) else None
        if divided is not None:
            images = self._load_divided(divided, request, key, gpu, cause)
        else:
            result = self._obtain(request, key, gpu, cause)
            images = self._load(result.manifest, gpu, cause, result.folder, result.cubins.__getitem__)
        with self._lock:
            self.loaded[key] = images
        return images

    def _load_divided(
        self,
        packaged: Manifest,
        request: Request,
        key: tuple[Case, tuple[int, int]],
        gpu: Device,
        cause: AotcudaError,
    ) -> Library:
        """Return images that are compiled one by one, when they are needed; the packaged manifest describes them."""
        entry: Image = {"arch": request.target, "kind": "sass", "bytes": 0, "sha256": ""}
        images = [entry.copy() for _ in packaged["fatbins"]]
        fatbins: list[Fatbin] = [
            {**fatbin, "images": [image]} for fatbin, image in zip(packaged["fatbins"], images, strict=True)
        ]

        def read(index: int) -> bytes:
            with self._compiling:
                result = self._obtain(request._replace(image=index), key, gpu, cause)
            problem = _difference(result.manifest, packaged, index)
            if problem is not None:
                raise add_reason(
                    cause, f"{packaged['module']}: the image for {gpu} {problem}; build the package for it"
                )
            images[index]["path"] = os.path.join(result.folder, CUBIN)
            return result.image

        return self._load({**packaged, "fatbins": fatbins}, gpu, cause, "", read)

    def _obtain(self, request: Request, key: tuple[Case, tuple[int, int]], gpu: Device, cause: AotcudaError) -> Result:
        failed_entry, reason = self._failed.get(key, ("", ""))
        if failed_entry and failed_entry == cache_key.key(request):
            raise add_reason(cause, reason)
        try:
            return obtain(request, gpu, cause)
        except (CompileError, LinkError) as error:  # the user may remedy all others while the process runs
            self._failed[key] = cache_key.key(request), str(error)  # the error would keep the frames of the launch
            raise add_reason(cause, str(error)) from error
        except AotcudaError as error:
            raise add_reason(cause, str(error)) from error

    def _load(
        self, manifest: Manifest, gpu: Device, cause: AotcudaError, folder: str, read: Callable[[int], bytes]
    ) -> Library:
        """Return images that were compiled for all GPUs of a compute capability."""
        driver = drivers.get()
        choices = survey(manifest, driver)
        packaged = self._module.packaged_choice(gpu)
        reason = _first_line(cause) if packaged is None or packaged.arch is not None else packaged.why
        target = manifest["fatbins"][0]["images"][0]["arch"]
        choice = (packaged or choices[gpu.index]).compiled(target, f"compiled on this machine: {reason}")
        choices |= {item.index: choice for item in driver.devices if item.capability == gpu.capability}
        return Library(manifest, folder, choices, read=read, is_compiled=True)


def _difference(compiled: Manifest, packaged: Manifest, fatbin: int) -> str | None:
    """Return how the kernels of a compiled image differ from those of a packaged fatbin; None if they are equal."""

    def kernels(manifest: Manifest, index: int) -> dict[str, object]:
        overloads = [item for kernel in manifest["kernels"] for item in kernel["overloads"]]
        return {item["symbol"]: item["parameters"] for item in overloads if item.get("fatbin", 0) == index}

    ours, theirs = kernels(compiled, 0), kernels(packaged, fatbin)
    if ours == theirs:
        return None
    return "has other kernels than the packaged ones" if ours.keys() != theirs.keys() else "has other parameters"


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).partition("\n")[0]
