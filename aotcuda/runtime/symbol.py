"""Device variables of a packaged module: their addresses, and copies between them and host memory."""

from __future__ import annotations

import ctypes
from contextlib import suppress

from ..errors import CudaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .driver import Driver
    from .images.images import Images
    from .images.kernel_table import KernelTable


class Symbol:
    """A `__device__` or `__constant__` variable of a module's images.

    The first use loads the images, as a launch does. Each GPU has its own copy of a variable; methods use the copy of
    the current context's GPU, or of GPU 0. Images that the JIT fallback compiled have variables of their own.

    Attributes:
        name: Its name in C++: `"table"`, `"physics::table"`, or a mangled one.
    """

    def __init__(self, name: str, images: Images) -> None:
        self.name = name
        self._images = images
        named = [item for item in images.manifest.get("globals", {}) if item.partition(".cu:")[2] == name]
        if len(named) > 1:
            places = " and in ".join(item.removesuffix(f":{name}") for item in named)
            message = f'{self._where} is in {places}; name the file too: symbol("{named[0]}")'
            raise CudaError(message, name="CUDA_ERROR_NOT_FOUND", code=500)

    @property
    def address(self) -> int:
        """Return the address on the GPU. It changes when the images are loaded again.

        Raises:
            CudaError: The images have no such variable.
        """
        return self._images.use(self._find)[0]

    @property
    def nbytes(self) -> int:
        """Return the size in bytes, from the manifest if it has it; errors as for `address`."""
        listed = self._images.manifest.get("globals", {}).get(self.name)
        return listed["bytes"] if listed is not None and "bytes" in listed else self._images.use(self._find)[1]

    def copy_from(self, host: object) -> None:
        """Wait for all kernels on the GPU, copy host memory into the variable, and wait for the copy.

        Args:
            host: Bytes, a NumPy array or anything else with Python's buffer protocol, of exactly `nbytes` bytes.

        Raises:
            TypeError: `host` has no buffer.
            ValueError: `host` has another size.
            CudaError: The driver refuses, or the images have no such variable.
        """
        data = self._view(host, "copy_from").tobytes()
        self._images.use(self._copy_from, data)

    def _copy_from(self, kernel_table: KernelTable, data: bytes) -> None:
        driver = kernel_table.library.driver
        address = self._checked_address(kernel_table, len(data), "copy_from")
        self._check(driver, "cuCtxSynchronize")  # the copy waits for blocking streams alone
        self._check(driver, "cuMemcpyHtoD_v2", address, data, len(data))
        self._check(
            driver, "cuStreamSynchronize", None
        )  # the copy may return before the GPU has all data of pageable memory

    def copy_to(self, host: object) -> None:
        """Wait for all kernels on the GPU, and copy the variable into host memory.

        Args:
            host: A writable, contiguous buffer of exactly `nbytes` bytes, as a NumPy array.

        Raises:
            TypeError: `host` has no buffer, or a buffer that cannot be written.
            ValueError: `host` has another size.
            CudaError: The driver refuses, or the images have no such variable.
        """
        view = self._view(host, "copy_to")
        if view.readonly or not view.c_contiguous:
            message = f"{self._where}.copy_to needs a writable, contiguous buffer; give a new array or a bytearray"
            raise TypeError(message)
        self._images.use(self._copy_to, view)

    def _copy_to(self, kernel_table: KernelTable, view: memoryview) -> None:
        driver = kernel_table.library.driver
        address = self._checked_address(kernel_table, view.nbytes, "copy_to")
        self._check(driver, "cuCtxSynchronize")  # the copy waits for blocking streams alone
        self._check(driver, "cuMemcpyDtoH_v2", (ctypes.c_char * view.nbytes).from_buffer(view), address, view.nbytes)

    def __repr__(self) -> str:
        return f"<aotcuda.Symbol {self.name} of {self._images.source.name}>"

    @property
    def _where(self) -> str:
        return f"{self._images.source.name}: symbol({self.name!r})"

    @property
    def _mangled(self) -> str:
        """Return the name in the images. A name without a namespace is not mangled (Itanium C++ ABI, 5.1.2)."""
        parts = self.name.split("::")
        return self.name if len(parts) == 1 else f"_ZN{''.join(f'{len(part)}{part}' for part in parts)}E"

    def _find(self, kernel_table: KernelTable) -> tuple[int, int]:
        self._images.enter(kernel_table, ())
        library, variables = kernel_table.library, kernel_table.manifest.get("globals", {})
        listed = variables.get(self.name)
        if listed is not None:
            kernel_table.compile(listed["fatbin"])
            return library.variable(listed["symbol"], self._where, listed["fatbin"])
        last = max(len(kernel_table.manifest["fatbins"]) - 1, 0)
        for fatbin in range(last):
            with suppress(CudaError):
                return library.variable(self._mangled, self._where, fatbin)
        return library.variable(self._mangled, self._where, last)

    def _view(self, host: object, method: str) -> memoryview:
        try:
            return memoryview(host)  # type: ignore[arg-type]  # any object is tried
        except TypeError:
            kind = type(host).__name__
            message = f"{self._where}.{method} needs host memory, such as a NumPy array or bytes, and not {kind}"
            raise TypeError(message) from None

    def _checked_address(self, kernel_table: KernelTable, size: int, method: str) -> int:
        address, nbytes = self._find(kernel_table)
        if size != nbytes:
            message = f"{self._where}.{method}: the variable has {nbytes} bytes, and the buffer {size}; make them equal"
            raise ValueError(message)
        return address

    def _check(self, driver: Driver, function: str, *arguments: object) -> None:
        driver.check(driver.call[function](*arguments), f"{self._where} could not be copied")
