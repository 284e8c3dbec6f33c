"""Packaged kernels in Numba's simulator, which runs their sources on the CPU with NumPy arrays.

With `NUMBA_ENABLE_CUDASIM=1` the tests of a package need no GPU. As in a launch, the arguments select a packaged
signature, and numbers get its types. Arguments that no signature accepts are refused if the package forbids the JIT
fallback.
"""

from __future__ import annotations

from importlib import import_module

from aotcuda import registry
from aotcuda.errors import ArgumentError, DependencyError, LaunchError, SourceError, quoted
from aotcuda.runtime.launch.launch_attributes import OPTIONS, unknown_text
from aotcuda.runtime.launch.launch_config import block_of_elements, number_of_elements

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from aotcuda.common.jit_build import Request
    from aotcuda.manifest import Kernel, Manifest
    from aotcuda.runtime.launch.arguments.argument_layout import PackedOverload

_FRONT_END = registry.DEFAULT
"""The only front end with a simulator."""

_MOST_WRAPPERS = 8
"""The most decorators' objects around a function; an object may be its own wrapped function."""


class Simulator:
    """The exports of one module, from its sources.

    Attributes:
        kernels: The kernels by name.
        functions: The Python functions behind the exported device functions, by name.
    """

    def __init__(self, module: str, frontend: str, fallback: str) -> None:
        self.kernels: dict[str, SimulatedKernel] = {}
        self.functions: dict[str, Any] = {}
        self._module = module
        self._fallback = fallback
        if frontend != _FRONT_END:
            message = (
                f"{module} was built with {frontend}, which has no simulator; run without NUMBA_ENABLE_CUDASIM, on a "
                "machine with a GPU"
            )
            raise LaunchError(message)

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Simulator:
        """Make the exports of a module that was built.

        Raises:
            LaunchError: Its front end has no simulator.
            SourceError: A source cannot be imported, or lacks a function.
        """
        simulator = cls(manifest["module"], manifest["frontend"], manifest["fallback"])
        for kernel in manifest["kernels"]:
            simulator._add_kernel(kernel["name"], kernel["origin"], kernel)
        for function in manifest["functions"]:
            simulator._add_function(function["name"], function["origin"])
        return simulator

    @classmethod
    def from_table(cls, module: str, request: Request) -> Simulator:
        """Make the exports of a tree that was never built; kernels accept any arguments. Errors as for `from_manifest`.

        Args:
            module: The module's name.
            request: The project's table.
        """
        simulator = cls(module, request.frontend, "jit")
        modules: Any = request.table["modules"]
        table = modules[module]
        sources = [table["source"]] if isinstance(table["source"], str) else table["source"]
        for kind in ("kernels", "functions"):
            for name, entry in table.get(kind, {}).items():
                python = entry.get("python", name) if isinstance(entry, dict) else name
                origin = python if ":" in python else f"{_source_module(sources, python)}:{python}"
                if kind == "kernels":
                    simulator._add_kernel(name, origin, None)
                else:
                    simulator._add_function(name, origin)
        return simulator

    def _add_kernel(self, name: str, origin: str, record: Kernel | None) -> None:
        kernel = _kernel_of_simulator(self._find(name, origin))
        self.kernels[name] = SimulatedKernel(self._module, name, kernel, record, self._fallback)

    def _add_function(self, name: str, origin: str) -> None:
        self.functions[name] = self._find(name, origin)

    def _find(self, name: str, origin: str) -> Any:
        """Return the Python object of an export."""
        module, _, path = origin.partition(":")
        try:
            item: Any = import_module(module)
            for part in path.split("."):
                item = getattr(item, part)
        except (ImportError, AttributeError) as error:
            message = (
                f"{self._module}.{name} cannot run in Numba's simulator: its source {origin} is not here ({error})"
            )
            raise SourceError(message) from error
        return item


class SimulatedKernel:
    """A kernel that Numba's simulator runs: `kernel[grid, block](*args)` and `kernel.forall(n)(*args)`.

    Attributes:
        signatures: The packaged signatures; empty if the module was never built.
    """

    def __init__(self, module: str, name: str, kernel: Any, record: Kernel | None, fallback: str) -> None:
        self.__module__ = module
        self.__name__ = self.__qualname__ = name
        self.signatures = [overload["signature"] for overload in record["overloads"]] if record is not None else []
        self._kernel = kernel
        self._fallback = fallback
        self._record = record
        self._table: Any = None
        if record is not None:
            from aotcuda.runtime import driver  # noqa: PLC0415 (no driver is loaded by it)
            from aotcuda.runtime.launch.arguments.overloads import OverloadTable  # noqa: PLC0415

            self._table = OverloadTable(record, str(self), driver.new_validity_flag())

    def __getitem__(self, configuration: Any) -> Callable[..., None]:
        """Return the kernel with a configuration; the stream has no effect.

        Raises:
            LaunchError: The configuration has another number of items.
        """
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            message = (
                f"{self} cannot be launched: write [grid, block], [grid, block, stream] or [grid, block, stream, "
                f"shared], not [{quoted(configuration)}]"
            )
            raise LaunchError(message)
        grid, block, _, shared = (*configuration, 0, 0)[:4]
        return self._launcher((grid, block, 0, shared), "[grid, block]")

    def forall(self, n: int, block: int | None = None, stream: object = 0, shared: int = 0) -> Callable[..., None]:
        """Return the kernel over `n` threads.

        Raises:
            LaunchError: `n` is negative, or the block is not possible.
        """
        del stream
        threads = 1 if block is None else block_of_elements(block, str(self))  # each thread is a thread of the CPU
        grid = -(-number_of_elements(n, str(self)) // threads)
        return self._launcher((grid, threads, 0, shared) if grid else None, ".forall(n)")

    def __call__(self, *_args: object, **_named: object) -> NoReturn:
        """Raise an error that shows how a kernel is launched.

        Raises:
            CallError: Always.
        """
        from aotcuda.runtime.launch.arguments import errors  # noqa: PLC0415 (only errors come here)

        raise errors.configuration_error(str(self), self.__name__)

    def _launcher(self, configuration: tuple[object, ...] | None, expression: str) -> Callable[..., None]:
        """Return a function that launches with a configuration, which errors show as `how`; None launches nothing."""

        def launch(*args: object, **named: object) -> None:
            if named:
                from aotcuda.runtime.launch.arguments import errors  # noqa: PLC0415 (only errors come here)

                raise errors.keyword_error(str(self), f"{self.__name__}{expression}", self._record, named)
            converted = self._convert(args)
            if configuration is not None:
                self._kernel[configuration](*converted)

        return launch

    def configure(self, grid: object, block: object, *, stream: object = 0, shared: int = 0, **options: object) -> Any:
        """Return the kernel with a configuration; other launch attributes have no effect.

        Raises:
            LaunchError: An option is unknown.
        """
        for name in options.keys() - OPTIONS:
            message = f"{self} cannot be launched: {unknown_text(name)}"
            raise LaunchError(message)
        return self[grid, block, stream, shared]

    def _convert(self, args: tuple[object, ...]) -> Sequence[object]:
        """Convert the arguments to the types of the packaged signature that accepts them.

        Raises:
            ArgumentError: No signature accepts them, and the package forbids the JIT fallback.
        """
        if self._table is None:
            return args
        as_on_gpu = tuple([_AsDeviceArray(arg) if _is_array(arg) else arg for arg in args])
        selection = self._table.select(as_on_gpu, 0)
        if selection is None:
            from aotcuda.runtime.jit.fallback import is_allowed  # noqa: PLC0415 (few launches come here)

            if not is_allowed(self._fallback):
                refusal: ArgumentError = self._table.refusal(as_on_gpu)
                raise refusal
            return args
        overload, slot, *_ = selection
        overload.slots.append(slot)
        return _convert_numbers(args, overload)

    def __str__(self) -> str:
        return f"{self.__module__}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<aotcuda kernel {self}, in Numba's simulator>"


class _AsDeviceArray:
    """A NumPy array with the interface of an array on a GPU, for the comparison with signatures."""

    def __init__(self, array: Any) -> None:
        interface = array.__array_interface__
        self.__cuda_array_interface__ = {
            "shape": interface["shape"],
            "typestr": interface["typestr"],
            "descr": interface["descr"],
            "strides": interface["strides"],
            "data": interface["data"],
            "version": 3,
            "stream": None,
        }


def _is_array(value: object) -> bool:
    import numpy as np  # noqa: PLC0415 (the simulator needs it)

    return isinstance(value, np.ndarray)


def _convert_numbers(args: tuple[object, ...], overload: PackedOverload) -> list[object]:
    import numpy as np  # noqa: PLC0415 (the simulator needs it)

    values = []
    for parameter, arg in zip(overload.parameters, args, strict=True):
        if parameter["kind"] == "scalar":
            values.append(np.dtype(parameter["format"]).type(arg))
        elif parameter["kind"] == "complex":
            values.append(np.dtype({"f": "c8", "d": "c16"}[parameter["format"]]).type(arg))
        else:
            values.append(arg)
    return values


def _kernel_of_simulator(function: Any) -> Any:
    """Return a kernel of the simulator for an object of a source module."""
    try:
        cuda: Any = import_module("numba.cuda")
    except ImportError as error:
        message = f"Numba's simulator needs {error.name}, which is not installed: pip install numba-cuda"
        raise DependencyError(message) from None
    kind = getattr(cuda, "FakeCUDAKernel", ())
    wrappers: list[Any] = []
    while not isinstance(function, kind):
        if type(function).__name__ == "function":
            return cuda.jit(function)
        wrappers.append(function)
        inner = [value for value in vars(function).values() if isinstance(value, kind)]
        inner += [getattr(function, name, None) for name in ("py_func", "python_func", "__wrapped__")]
        function = next((item for item in inner if item is not None), None)
        if function is None or len(wrappers) > _MOST_WRAPPERS:
            problem = f"{quoted(wrappers[0])} is not a kernel"
            message = f"{problem}; Numba's simulator runs functions of @cuda.jit, and plain functions"
            raise SourceError(message)
    return function


def _source_module(sources: Sequence[str], python: str) -> str:
    """Return the source module that defines a function."""
    first = python.partition(".")[0]
    return next((name for name in sources if hasattr(import_module(name), first)), sources[0])
