"""Read attributes of a kernel's code from the driver and the disassembler, for methods with Numba's names."""

from __future__ import annotations

import os

from ...errors import DependencyError, LaunchError, quoted
from ..launch.launch_config import dimensions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...manifest import Overload
    from ..images.device_kernel import DeviceKernel
    from ..images.images import Images
    from ..images.kernel_table import KernelTable
    from ..launch.arguments.argument_layout import PackedOverload

ATTRIBUTES = {"max_threads": 0, "shared": 1, "constant": 2, "local": 3, "registers": 4}
"""`CU_FUNC_ATTRIBUTE_*`: the most threads of a block, bytes, registers of a thread."""


def ask(images: Images, name: str, where: str, question: Callable[[OnThisGpu], Any]) -> Any:
    """Return `question(kernel)` for a kernel of `images` on the current GPU."""
    return images.use(lambda kernel_table: question(OnThisGpu(kernel_table, images, name, where)))


class OnThisGpu:
    """A kernel on the current GPU."""

    def __init__(self, kernel_table: KernelTable, images: Images, name: str, where: str) -> None:
        """Take the kernel `name` of `images`, which errors name `where`; make a context if there is none."""
        self._where = where
        self._kernel_table = kernel_table
        self._device = images.enter(self._kernel_table, ())
        library = self._kernel_table.library
        overloads = self._kernel_table.table(name).all_overloads()
        self._overloads = [each for each in overloads if library.has_variant(each.record, self._device)]

    def attribute(self, name: str, signature: str | None) -> int | dict[str, int]:
        """Return one of `ATTRIBUTES` of one overload; without a signature, of all overloads by signature."""
        if signature is not None:
            return self.device_kernel(signature).attribute(ATTRIBUTES[name])
        return {
            overload.record["signature"]: self._kernel(overload).attribute(ATTRIBUTES[name])
            for overload in self._overloads
        }

    def active_blocks(self, block: object, shared: int, signature: str | None) -> tuple[int, DeviceKernel]:
        """Return the number of blocks that a multiprocessor holds at once, and the overload on this GPU."""
        x, y, z = dimensions(block, "block", self._where)
        kernel = self.device_kernel(signature)
        if max(x * y * z, shared) >> 31:  # the driver's function takes 32-bit numbers
            from ..launch.launch_attributes import too_large  # noqa: PLC0415 (only errors come here)

            message = f"{self._where} cannot be launched: {too_large(kernel, (1, 1, 1), (x, y, z), shared)}"
            raise LaunchError(message)
        if shared > kernel.device.limit("shared") - kernel.static_shared:
            kernel.allow_shared()
        return kernel.active_blocks(x * y * z, shared), kernel

    def device_kernel(self, signature: str | None) -> DeviceKernel:
        """Return the overload of a signature; None means the only one.

        Raises:
            LaunchError: The kernel has no such signature, or several where none was named.
        """
        return self._kernel(self._find(signature))

    def disassemble(self, text: Callable[[str, str, str], str], signature: str | None) -> str | dict[str, str]:
        """Return `text(target, symbol, file)` for one overload; without a signature, for all by signature.

        Raises:
            LaunchError: The GPU uses no machine code of the package.
        """
        kernel_table = self._kernel_table
        choice = kernel_table.library.choices[self._device]
        if choice.kind != "sass" or choice.arch is None:
            gpu = kernel_table.library.driver.devices[self._device]
            message = f"{self._where} has no machine code for {gpu}: {choice}"
            raise LaunchError(message)
        arch = choice.arch

        def disassembled(record: Overload) -> str:
            fatbin = kernel_table.manifest["fatbins"][record.get("fatbin", 0)]
            image = next(image for image in fatbin["images"] if image["arch"] == arch)
            path = os.path.join(kernel_table.library.folder, fatbin["file"]["path"])
            # A part of a split wheel is in another package.
            return text(arch, record["symbol"], image.get("path", path))

        if signature is not None:
            return disassembled(self._find(signature).record)
        return {overload.record["signature"]: disassembled(overload.record) for overload in self._overloads}

    def _kernel(self, overload: PackedOverload) -> DeviceKernel:
        return self._kernel_table.device_kernel(overload, self._device)

    def _find(self, signature: str | None) -> PackedOverload:
        if signature is None and len(self._overloads) == 1:
            return self._overloads[0]
        for overload in self._overloads:
            if isinstance(signature, str) and overload.record["signature"] == signature:
                return overload
        problem = (
            "name one of its signatures" if signature is None else f"it has no signature {quoted(signature)}; it has"
        )
        signatures = ", ".join([overload.record["signature"] for overload in self._overloads])
        message = f"{self._where}: {problem}: {signatures}"
        raise LaunchError(message)


def cuda_core_kernel(images: Images, name: str, where: str, signature: str | None) -> Any:
    """Return the overload on the current GPU as a `cuda.core.Kernel`."""
    try:
        from cuda.core import Kernel as CoreKernel  # noqa: PLC0415 (only some programs have cuda.core)
    except ImportError:
        from ... import registry  # noqa: PLC0415 (only errors come here)

        message = f"cuda.core cannot be imported, so {where} has no cuda.core kernel: {registry.CUDA_CORE}"
        raise DependencyError(message) from None
    return CoreKernel.from_handle(ask(images, name, where, lambda kernel: kernel.device_kernel(signature).kernel.value))


def sass(images: Images, name: str, where: str, signature: str | None) -> str | dict[str, str]:
    """Return the current GPU's machine code, disassembled by `cuobjdump`; without a signature, by signature."""
    tool = _cuobjdump()

    def text(arch: str, symbol: str, path: str) -> str:
        return _run([tool, "--dump-sass", "--gpu-architecture", arch, "--function", symbol, path])

    return ask(images, name, where, lambda kernel: kernel.disassemble(text, signature))  # type: ignore[no-any-return]


def _cuobjdump() -> str:
    """Return the path of the disassembler: from CUDA_HOME, PATH, or NVIDIA's wheel."""
    from shutil import which  # noqa: PLC0415 (only inspections come here)

    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    path = which("cuobjdump", path=os.path.join(home, "bin")) if home else None
    path = path or which("cuobjdump")
    if path is None:
        try:
            from cuda.pathfinder import find_nvidia_binary_utility  # noqa: PLC0415
        except ImportError:
            pass
        else:
            path = find_nvidia_binary_utility("cuobjdump")
    if path is None:
        message = "cuobjdump, which disassembles, was not found: pip install nvidia-cuda-cuobjdump, or set CUDA_HOME"
        raise DependencyError(message)
    return path


def _run(command: list[str]) -> str:
    import subprocess  # noqa: PLC0415 (only inspections come here)

    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        message = f"{' '.join(command)} failed: {process.stderr.strip() or process.stdout.strip()}"
        raise LaunchError(message)
    return process.stdout
