"""What one launcher has learnt: the fast paths for arguments like those that it was given."""

from __future__ import annotations

import ctypes

import aotcuda
from aotcuda.runtime.launch_config import allow_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.runtime.arguments.overloads import Group
    from aotcuda.runtime.fast import Records
    from aotcuda.runtime.fast.python import Bind, FastPath
    from aotcuda.runtime.launch_config import Configuration
    from aotcuda.runtime.loaded import Loaded
    from aotcuda.runtime.loaded_library import DeviceKernel

_MOST_KEPT = 64


class Learnt:
    """The fast paths in Python of one launcher, and what it has told the extension.

    Both are kept by the context that they are for, 0 where that does not matter.
    """

    __slots__ = ("_configuration", "_paths", "_records", "_taught", "_verified", "_where")

    def __init__(
        self, configuration: Configuration, records: Records | None, verified: set[DeviceKernel], where: str
    ) -> None:
        """`verified` has the kernels that can take the configuration, and is added to; the rest as for `Launcher`."""
        self._configuration = configuration
        self._records = records
        self._verified = verified
        self._where = where
        self._paths: dict[tuple[Group, int], FastPath] = {}
        self._taught: set[tuple[Group, int]] = set()

    def known(self, loaded: Loaded, group: Group) -> FastPath | None:
        """The fast path for arguments of a group, if there is one or can be unasked."""
        library = loaded.library
        try:
            context = 0 if library.device >= 0 else library.driver.current_context()
        except aotcuda.errors.CudaError:  # for which no launch has to fail
            return None
        found = self._paths.get((group, context))
        if found is not None or self._records is not None or library.device < 0:
            return found
        if (group, context) in self._taught:
            return None
        # Another launcher of the kernel had such arguments; what it learnt from those checks these by itself.
        factory = group.fast.get(self._configuration.stream is not None)
        kernels = self._device_kernels(loaded, group, library.device) if factory is not None else None
        if factory is None or kernels is None:
            return None
        return self._bind(factory, loaded, (group, context), library.device, kernels)

    def learn(self, loaded: Loaded, group: Group, args: tuple[object, ...]) -> FastPath | None:
        """Teach a fast path arguments like these; what it is, where it is one in Python.

        None is for debug builds, nor with `AOTCUDA_SYNCHRONIZE`: these launches wait for the kernel.
        """
        library = loaded.library
        if library.synchronous:
            return None
        context, device = 0, library.device
        if device < 0:  # there are several GPUs, or callbacks, which have to see each context
            try:
                context, device = library.driver.current_context(), library.driver.current_device() or 0
            except aotcuda.errors.CudaError:  # the launch was made
                return None
        if (group, context) in self._taught:
            return None
        if library.callbacks is not None and not library.callbacks.has_seen(context):
            return None  # a setup callback that launches; other threads have to wait for its end
        if len(self._taught) >= _MOST_KEPT:
            self._taught.clear()
            self._paths.clear()
        key = group, context
        try:
            self._taught.add(key)
            return self._teach(loaded, key, device, args)
        except BaseException:  # an interrupt: the next launch teaches it
            self._taught.discard(key)
            raise

    def _teach(self, loaded: Loaded, key: tuple[Group, int], device: int, args: tuple[object, ...]) -> FastPath | None:
        group, library = key[0], loaded.library
        kernels = self._device_kernels(loaded, group, device)
        if kernels is None:
            return None
        if self._records is not None and not any(map(_is_for_python, kernels)):
            from aotcuda.runtime.fast import learning  # noqa: PLC0415 (where the extension is)

            if learning.learn(self._records, library, group, kernels, args, self._configuration.shared):
                return None
        factory = loaded.learn_fast_path(group, args, given=self._configuration.stream is not None)
        return None if factory is None else self._bind(factory, loaded, key, device, kernels)

    def _bind(
        self, factory: Bind, loaded: Loaded, key: tuple[Group, int], device: int, kernels: list[DeviceKernel]
    ) -> FastPath:
        """The Python path of a group and a context, for this launcher's configuration; no argument is asked."""
        ready = ctypes.c_void_p.from_param  # what ctypes would otherwise do at every call
        targets = [
            (self._configuration.of(kernel).on_streams(cooperative=kernel.cooperative), ready(kernel.kernel.value))
            for kernel in kernels
        ]
        fast = factory(loaded.library.driver.launch, targets, self._configuration.stream or 0, key[1], device)
        self._paths[key] = fast
        return fast

    def _device_kernels(self, loaded: Loaded, group: Group, device: int) -> list[DeviceKernel] | None:
        """The overloads of a group, ready to launch; None if any of them needs the general path."""
        found = []
        try:
            for overload in group.overloads:
                if loaded.is_compiled_elsewhere(overload, device):
                    return None  # looking it up could compile it
                kernel = loaded.device_kernel(overload, device)
                allow_once(self._configuration, kernel, self._where, self._verified)
                if kernel.watch is not None or loaded.known_kernel(overload, device) is not kernel:
                    return None  # the latter has callbacks of its own, which have to see each context
                found.append(kernel)
        except aotcuda.errors.AotcudaError:  # of an overload that was not the one launched: who launches it is told
            return None
        return found


def _is_for_python(kernel: DeviceKernel) -> bool:
    """Whether the extension has no way to launch a kernel."""
    return kernel.cooperative or (kernel.fixed is not None and "cluster" in kernel.fixed)
