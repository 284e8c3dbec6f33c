"""Launch packaged kernels in JAX's programs: `jax.jit` compiles `aotcuda.jax.call` into a launch on XLA's stream.

For example::

    import aotcuda.jax
    import mypkg.kernels as k

    @jax.jit
    def axpy(x, y):
        return aotcuda.jax.call(k.axpy, jax.ShapeDtypeStruct(x.shape, x.dtype), forall=x.size)(2.0, x, y)

XLA launches the kernel by its FFI, without a callback into Python, a copy or a wait.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from aotcuda.common.scalar_types import NAMED
from aotcuda.errors import ArgumentError
from aotcuda.integrations import framework_checks
from aotcuda.runtime.launch import xla_call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from aotcuda import typing as types
    from aotcuda.runtime.kernel import Kernel

__all__ = ["call"]

_TARGET, _RECORDED = "aotcuda_launch", "aotcuda_launch_recorded"
_SEQUENTIAL = ("sequential", "sequential_unrolled")
_registered: list[bool] = []
"""One item after the registration of the handlers."""


def call(
    kernel: Kernel,
    result_shape_dtypes: Any,
    *,
    grid: types.Dimensions | None = None,
    block: types.Dimensions | None = None,
    forall: int | None = None,
    shared: int = 0,
    outputs: Sequence[str] = (),
    input_output_aliases: Mapping[int, int] | None = None,
    vmap_method: str | None = None,
    command_buffer: bool = False,
) -> Callable[..., Any]:
    """Return a function of JAX arrays and Python numbers that launches a packaged kernel; call it while JAX traces.

    The arguments of the function are the kernel's parameters in order, without the results. The results are the last
    parameters, or those that `outputs` names. Numbers are compiled into the program, so they cannot be traced values.
    Arrays are row-major. The memory of a result is not initialized, unless an argument is an alias of it.

    Args:
        kernel: The kernel.
        result_shape_dtypes: Shape and dtype of each result, as `jax.ffi.ffi_call` takes them: one
            `jax.ShapeDtypeStruct`, or a sequence of them.
        grid: Blocks of the grid, as in `kernel[grid, block]`.
        block: Threads of a block, as in `kernel[grid, block]`.
        forall: The number of threads, in place of a grid, as in `kernel.forall(n)`.
        shared: Bytes of dynamic shared memory for each block.
        outputs: The names of the parameters that are results and not arguments, in the order of the results.
        input_output_aliases: The number of an argument, with the number of the result that is the same array. The
            kernel changes the array in place; JAX copies the argument before the launch, unless it is donated.
        vmap_method: The behaviour of `jax.vmap`: None refuses, `"sequential"` launches once for each element of the
            batch.
        command_buffer: Let XLA record the launch into its command buffers, CUDA graphs, together with its own kernels.
            The module's images then stay loaded until the process ends; `unload()` does not remove them.

    Returns:
        The function; it returns one array, or a list where `result_shape_dtypes` is a sequence.

    Raises:
        ArgumentError: The options do not fit together. The function raises it if no packaged signature accepts the
            arguments.
        LaunchError: The grid or block is not possible. The function raises it if this GPU cannot have them.
        DependencyError: The function raises it if this installation of aotcuda has no extension.
    """
    where = str(kernel)
    framework_checks.check_kernel(kernel, "aotcuda.jax.call")
    framework_checks.check_configuration(kernel, grid, block, forall)
    if vmap_method is not None and vmap_method not in _SEQUENTIAL:
        message = (
            f"{where}: vmap_method is {vmap_method!r}; write 'sequential', since a launch is for one call's shapes"
        )
        raise ArgumentError(message)
    is_sequence = isinstance(result_shape_dtypes, list | tuple)
    results = list(result_shape_dtypes) if is_sequence else [result_shape_dtypes]
    aliases = dict(input_output_aliases or {})
    if not results:
        message = f"{where}: a launch must have a result, and result_shape_dtypes has none"
        raise ArgumentError(message)

    def launch(*args: Any) -> Any:
        parameters, places, arrays, numbers = _arguments(kernel, args, results, outputs, aliases)
        _check_numbers(kernel, parameters, places)
        number, identity = xla_call.prepare(
            kernel.images,
            kernel.__name__,
            where,
            parameters,
            places,
            (len(arrays), len(results)),
            (grid, block, shared),
            forall,
            pinned=command_buffer,
        )
        _register()
        ffi_call = jax.ffi.ffi_call(
            _RECORDED if command_buffer else _TARGET,
            result_shape_dtypes,
            input_output_aliases={numbers[at]: result for at, result in aliases.items()},
            vmap_method=vmap_method,
        )
        return ffi_call(*arrays, launch=np.int64(number), identity=np.int64(identity))

    return launch


def _arguments(
    kernel: Kernel, args: tuple[Any, ...], results: list[Any], outputs: Sequence[str], aliases: dict[int, int]
) -> tuple[list[object], list[xla_call.Place | None], list[Any], dict[int, int]]:
    """Return the kernel's arguments, their places, the array arguments, and the number of each array by argument."""
    where = str(kernel)
    parameters: list[Any] = []
    places: list[xla_call.Place | None] = []
    arrays: list[Any] = []
    numbers: dict[int, int] = {}
    for at, arg in enumerate(args):
        if not _is_array(arg):
            parameters.append(arg)
            places.append(None)
            continue
        numbers[at] = len(arrays)
        places.append(xla_call.Place(len(arrays), is_result=False))
        arrays.append(jnp.asarray(arg))
        parameters.append(arrays[-1])
    for at, result in aliases.items():
        _check_alias(where, at, result, args, results, numbers)
    if len(set(aliases.values())) < len(aliases):
        raise xla_call.argument_error(where, f"input_output_aliases names a result twice: {aliases}")
    separate = [number for number in range(len(results)) if number not in aliases.values()]
    positions = _positions(kernel, len(args), len(separate), outputs)
    for position, number in sorted(zip(positions, separate, strict=True)):
        parameters.insert(position, results[number])
        places.insert(position, xla_call.Place(number, is_result=True))
    shaped = [
        arg if place is None else xla_call.Shaped(number, tuple(arg.shape), _typestr(arg.dtype))
        for number, (arg, place) in enumerate(zip(parameters, places, strict=True))
    ]
    return shaped, places, arrays, numbers


def _positions(kernel: Kernel, arguments: int, results: int, outputs: Sequence[str]) -> list[int]:
    """Return the positions of the parameters that are results and not arguments; there are `results` of them."""
    if not outputs:
        return list(range(arguments, arguments + results))
    where, names = str(kernel), _names(kernel)
    if isinstance(outputs, str) or len(set(outputs)) != results or len(outputs) != results:
        problem = f"outputs is {outputs!r}; name one parameter for each of the {results} results without an alias"
        raise xla_call.argument_error(where, problem)
    for name in outputs:
        if name not in names:
            raise xla_call.argument_error(where, f"it has no parameter {name!r}; it has {', '.join(names)}")
    return [names.index(name) for name in outputs]


def _check_alias(
    where: str, at: int, result: int, args: tuple[Any, ...], results: list[Any], numbers: dict[int, int]
) -> None:
    if at not in numbers or not 0 <= result < len(results):
        missing = "array" if at not in numbers else "result"
        problem = f"input_output_aliases has {at}: {result}, and there is no such {missing}"
        raise xla_call.argument_error(where, problem)
    argument, shape_dtype = jnp.asarray(args[at]), results[result]
    if tuple(argument.shape) != tuple(shape_dtype.shape) or argument.dtype != shape_dtype.dtype:
        problem = (
            f"argument {at} is {argument.dtype}{list(argument.shape)}, and result {result}, its alias, is "
            f"{shape_dtype.dtype}{list(shape_dtype.shape)}"
        )
        raise xla_call.argument_error(where, problem)


def _check_numbers(kernel: Kernel, parameters: list[object], places: list[xla_call.Place | None]) -> None:
    """Raise ArgumentError for an array in place of a number."""
    record: Any = kernel.images.kernels.get(kernel.__name__)
    for overload in record["overloads"] if record is not None else ():
        if len(overload["parameters"]) != len(parameters):
            continue
        for parameter, place in zip(overload["parameters"], places, strict=True):
            if (
                place is not None
                and not place.is_result
                and parameter["kind"] in ("scalar", "complex", "number", "small")
            ):
                name, kind = parameter["name"], parameter["type"]
                problem = (
                    f"{name} is an array of JAX where the kernel takes {kind} by value, which must be known "
                    "while the program is traced; pass a Python number (static_argnames of jax.jit), or make the "
                    "parameter an array"
                )
                raise xla_call.argument_error(str(kernel), problem)


def _names(kernel: Kernel) -> list[str]:
    record: Any = kernel.images.kernels.get(kernel.__name__)
    return [parameter["name"] for parameter in record["overloads"][0]["parameters"]] if record is not None else []


def _is_array(arg: object) -> bool:
    """Return True if JAX must pass an argument; numbers of Python and NumPy are packed."""
    return isinstance(arg, jax.Array | np.ndarray)


def _typestr(dtype: Any) -> str:
    """Return NumPy's type string of a dtype, or the name of a dtype that NumPy lacks, such as bfloat16."""
    numpy_dtype = np.dtype(dtype)
    has_name = numpy_dtype.name in NAMED or numpy_dtype.kind == "V"
    return str(numpy_dtype.name if has_name else numpy_dtype.str)


def _register() -> None:
    """Register the handlers with JAX, once."""
    if not _registered:
        launches, records, refuses = xla_call.handlers()
        jax.ffi.register_ffi_target(_TARGET, launches, platform="CUDA")
        jax.ffi.register_ffi_target(_RECORDED, records, platform="CUDA")
        for target in (_TARGET, _RECORDED):
            jax.ffi.register_ffi_target(target, refuses, platform="cpu")
        _registered.append(True)
