"""Make operators of PyTorch from packaged kernels: `aotcuda.torch.op`. `torch.compile` keeps each as one node.

For example::

    import aotcuda.torch
    import mypkg.kernels as k

    axpy = aotcuda.torch.op(k.axpy, forall="out", mutates=("out",))     # axpy(2.0, x, y, out)
    axpy = aotcuda.torch.op(k.axpy, forall="out", outputs={"out": "x"}) # out = axpy(2.0, x, y)

An operator is a `torch._ops.OpOverload` that `torch.library` registers. Its schema follows from the packaged signatures
of the kernel. On a GPU it launches the kernel on the current stream.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache

import torch

from aotcuda.errors import ArgumentError, LaunchError
from aotcuda.integrations import framework_checks
from aotcuda.runtime.kernel import Kernel
from aotcuda.runtime.launch.arguments import arrays, type_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

    from aotcuda import typing as types
    from aotcuda.manifest import Parameter

    Number = int | str | Callable[..., int]
    Grid = types.Dimensions | Callable[..., types.Dimensions]
    Output = str | Callable[..., torch.Tensor]

__all__ = ["op"]

_ARRAYS = frozenset(["array", "buffer", "elements", "record"])
_INTEGERS = "bBhHiIqQ"
_MOST_NUMBERS = 256
_libraries: dict[str, Any] = {}
"""The `torch.library.Library` of each operator, by name; PyTorch removes the operator with this object."""


def op(
    kernel: Kernel,
    *,
    grid: Grid | None = None,
    block: types.Dimensions | None = None,
    forall: Number | None = None,
    shared: int = 0,
    mutates: Sequence[str] = (),
    outputs: Mapping[str, Output] | None = None,
    name: str | None = None,
    signature: str | None = None,
    **attributes: Any,
) -> Any:
    """Make an operator of PyTorch that launches a packaged kernel.

    The arguments of the operator are the kernel's parameters, in order and under their names, without `outputs`. Arrays
    are `Tensor`; numbers are `int`, `float`, `bool` and `complex`, or `Scalar` where the packaged signatures differ in
    their type. The operator returns the tensors that `outputs` names. The arguments of each launch select the
    signature.

    Args:
        kernel: The kernel.
        grid: Blocks of the grid, as in `kernel[grid, block]`; or a function of the kernel's arguments that returns it.
        block: Threads of a block.
        forall: The number of threads, in place of a grid: an int, a function of the kernel's arguments, or the name of
            a tensor, for the number of its elements. A launch is fastest if `block` is given too.
        shared: Bytes of dynamic shared memory for each block.
        mutates: The names of the tensors that the kernel writes to.
        outputs: The names of the tensors that the operator allocates and returns, in order. The value of each is a
            function of the operator's arguments that allocates the tensor, or the name of a tensor to allocate it like
            (`torch.empty_like`). An operator that writes to its outputs alone can have `register_autograd`.
        name: The operator's name, `"namespace::name"`; by default the module's with underscores, and the kernel's.
        signature: The signature for the schema, if the packaged ones differ in the number of arguments or in which of
            them are arrays.
        attributes: Other options of `kernel.configure`, such as `cooperative`.

    Returns:
        The operator, `torch.ops.namespace.name.default`.

    Raises:
        ArgumentError: Neither `mutates` nor `outputs` names an array, or they do not fit the kernel, or PyTorch has an
            operator of this name already.
        LaunchError: The grid or block is not possible.
    """
    where = str(kernel)
    if type(kernel) is not Kernel:
        message = (
            f"{where}: aotcuda.torch.op needs a kernel of a module that the build made; Triton's kernels are launched "
            "by their grid alone, and kernels in place on Numba's default stream"
        )
        raise ArgumentError(message)
    framework_checks.check_configuration(kernel, grid, block, forall)
    if forall is not None and attributes:
        message = f"{where}: {next(iter(attributes))} is for configurations with a grid, and not for forall"
        raise LaunchError(message)
    allocated = dict(outputs or {})
    schema = _Schema(kernel, signature)
    schema.check(mutates, allocated)
    if isinstance(forall, str) and forall not in schema.tensors:
        schema.refuse(f"forall names {forall!r}, which is none of its arrays: {', '.join(schema.tensors) or 'none'}")
    qualified = name if name is not None else f"{re.sub('[^0-9A-Za-z_]', '_', kernel.__module__)}::{kernel.__name__}"
    namespace, separator, short = qualified.partition("::")
    if not (separator and namespace.isidentifier() and short.isidentifier()):
        schema.refuse(f"{qualified!r} is no name for an operator; write 'namespace::name'")
    if qualified in _libraries or hasattr(getattr(torch.ops, namespace), short):
        schema.refuse(f"PyTorch has an operator {qualified} already; give this one another name=")
    launcher = _OperatorLaunch(kernel, schema.names, allocated)
    launch = (
        launcher.by_grid(grid, block, shared, attributes)
        if forall is None
        else launcher.by_number(forall, block, shared)
    )
    library = torch.library.Library(namespace, "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag, *_exact_strides())
    library.define(f"{short}{schema.text(mutates, list(allocated))}", tags=tags)
    library.impl(short, _with_gpu_of_tensors(launcher.with_outputs(launch)), "CUDA")
    library.impl(short, _refuse_other_devices(where), "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, launcher.fake(schema), lib=library)
    _libraries[qualified] = library
    return getattr(getattr(torch.ops, namespace), short).default


class _Schema:
    """The parameters of a kernel as PyTorch's schema has them.

    Attributes:
        names: Their names, in order.
        tensors: The names of arrays, in order.
        overloads: Their records in the manifest, for each signature that fits the schema.
        only_packaged: True if other dtypes are refused, because the package forbids the JIT fallback.
    """

    def __init__(self, kernel: Kernel, signature: str | None) -> None:
        self._where = str(kernel)
        record: Any = kernel.images.kernels.get(kernel.__name__)
        self.only_packaged = kernel.images.manifest["fallback"] == "error"
        packaged = {overload["signature"]: overload["parameters"] for overload in record["overloads"]}
        listed = ", ".join(packaged)
        if signature is not None and signature not in packaged:
            self.refuse(f"it has no signature {signature!r}; it has {listed}")
        kinds = {text: [_is_array(parameter) for parameter in parameters] for text, parameters in packaged.items()}
        chosen = kinds[signature if signature is not None else next(iter(kinds))]
        self.overloads = [packaged[text] for text, arrays_of_text in kinds.items() if arrays_of_text == chosen]
        if signature is None and len(self.overloads) < len(packaged):
            self.refuse(f"its signatures differ in the number of arguments or in which are arrays; name one: {listed}")
        self.names = [parameter["name"] for parameter in self.overloads[0]]
        self._types = [self._type(column) for column in zip(*self.overloads, strict=True)]
        self.tensors = [name for name, kind in zip(self.names, self._types, strict=True) if kind == "Tensor"]

    def check(self, mutates: Sequence[str], outputs: Mapping[str, Output]) -> None:
        """Raise ArgumentError unless these name the arrays that the kernel writes to."""
        tensors = self.tensors
        if isinstance(mutates, str):
            self.refuse(f"mutates is a sequence of names; write ({mutates!r},)")
        if not mutates and not outputs:
            listed = ", ".join(tensors) or "none"
            self.refuse(
                f"name the arrays that it writes to (it has {listed}): mutates=(...), or outputs={{...}} for new ones"
            )
        for name in [*mutates, *outputs]:
            if name not in tensors:
                near = get_close_matches(name, tensors, 1)
                self.refuse(
                    f"it has no array {name!r}{f'; did you mean {near[0]}?' if near else f'; it has {tensors}'}"
                )
            column = [parameters[self.names.index(name)] for parameters in self.overloads]
            if all(parameter.get("readonly") for parameter in column):
                self.refuse(f"{name} was compiled as read-only, so the kernel cannot write to it")
        both = set(mutates) & outputs.keys()
        if both:
            self.refuse(f"{min(both)} is in mutates and in outputs; name it in one of them")
        for name, like in outputs.items():
            if isinstance(like, str) and (like not in tensors or like in outputs):
                self.refuse(f"{name} cannot be like {like!r}, which is no tensor among the operator's arguments")

    def text(self, mutates: Sequence[str], outputs: Sequence[str]) -> str:
        """Return the schema without the operator's name."""
        parts = []
        for number, (name, kind) in enumerate(zip(self.names, self._types, strict=True)):
            if name not in outputs:
                parts.append(f"{f'Tensor(a{number}!)' if name in mutates else kind} {name}")
        results = "Tensor" if len(outputs) == 1 else f"({', '.join(['Tensor'] * len(outputs))})"
        return f"({', '.join(parts)}) -> {results}"

    def refuse_types(self, args: Sequence[Any]) -> None:
        """Raise ArgumentError if no signature accepts the dtypes and dimensions of the tensors."""
        kinds = [(arrays.element(arg.dtype), arg.dim()) if isinstance(arg, torch.Tensor) else None for arg in args]
        if any(all(map(_fits, parameters, kinds)) for parameters in self.overloads):
            return
        tensors = ", ".join(type_names.array_name(*kind, "C") for kind in kinds if kind is not None)
        lines = [f"\n  packaged: {', '.join(item['type'] for item in parameters)}" for parameters in self.overloads]
        self.refuse(f"no packaged signature takes tensors {tensors}{''.join(lines)}")

    def refuse(self, problem: str) -> NoReturn:
        """Raise ArgumentError."""
        message = f"{self._where} as an operator of PyTorch: {problem}"
        raise ArgumentError(message)

    def _type(self, column: tuple[Parameter, ...]) -> str:
        types = {self._type_of(parameter) for parameter in column}
        return types.pop() if len(types) == 1 else "Scalar"

    def _type_of(self, parameter: Parameter) -> str:
        kind = parameter["kind"]
        if kind in _ARRAYS:
            return "Tensor"
        if kind in ("scalar", "number"):
            form = parameter["format"]
            return "bool" if form == "?" else "SymInt" if form in _INTEGERS else "float"
        if kind == "small":
            return "float"
        if kind == "complex":
            return "complex"
        if kind in ("pointer", "datetime"):
            return "int"
        return self.refuse(f"{parameter['name']} is {parameter['type']}, and operators have no such arguments")


class _OperatorLaunch:
    """The launches of an operator, from the operator's arguments to its results."""

    def __init__(self, kernel: Kernel, names: list[str], outputs: Mapping[str, Output]) -> None:
        self._kernel = kernel
        self._names = names
        self._inputs = [name for name in names if name not in outputs]
        self._allocators = [self._allocator(like) for like in outputs.values()]
        # The index of each kernel argument in the list of the operator's arguments and outputs.
        self._order = [[*self._inputs, *outputs].index(name) for name in names]

    def by_grid(self, grid: Any, block: Any, shared: int, attributes: dict[str, Any]) -> Callable[..., None]:
        """Return the launch with a grid; for a constant grid, the launcher itself."""
        kernel = self._kernel
        if not callable(grid):
            return (
                kernel.configure(grid, block, shared=shared, **attributes)
                if attributes
                else kernel[grid, block, None, shared]
            )
        if attributes:
            return lambda *args: kernel.configure(grid(*args), block, shared=shared, **attributes)(*args)
        return lambda *args: kernel[grid(*args), block, None, shared](*args)

    def by_number(self, n: Any, block: Any, shared: int) -> Callable[..., None]:
        """Return the launch over a number of threads."""
        kernel = self._kernel
        forall = lru_cache(_MOST_NUMBERS)(lambda number: kernel.forall(number, block, None, shared))
        if isinstance(n, int):
            return forall(n)
        at = self._names.index(n) if isinstance(n, str) else 0
        count = (lambda *args: args[at].numel()) if isinstance(n, str) else n
        if block is None:
            return lambda *args: forall(count(*args))(*args)
        forall(0)  # raises LaunchError if it is not a block

        def launch(*args: Any) -> None:
            number = count(*args)
            if number > 0:
                kernel[-(-number // block), block, None, shared](*args)
            else:
                forall(number)(*args)

        return launch

    def with_outputs(self, launch: Callable[..., None]) -> Callable[..., Any]:
        """Return a function that allocates the outputs, launches and returns the outputs."""
        allocators, order = self._allocators, self._order
        if not allocators:
            return launch

        def launch_with_outputs(*args: Any) -> Any:
            outputs = tuple([allocate(*args) for allocate in allocators])
            tensors = (*args, *outputs)
            launch(*[tensors[at] for at in order])
            return outputs if len(outputs) > 1 else outputs[0]

        return launch_with_outputs

    def fake(self, schema: _Schema) -> Callable[..., Any]:
        """Return the operator's function for tensors without data; it also checks their types."""

        def check(*args: Any) -> None:
            if schema.only_packaged:
                schema.refuse_types(args)

        return self.with_outputs(check)

    def _allocator(self, like: Output) -> Callable[..., torch.Tensor]:
        if not isinstance(like, str):
            return like
        at = self._inputs.index(like)
        return lambda *args: torch.empty_like(args[at], memory_format=torch.contiguous_format)


def _with_gpu_of_tensors(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that launches on the GPU of the first tensor; on machines with one GPU, `launch` itself."""
    if torch.cuda.device_count() <= 1:
        return launch

    def launch_on_gpu(*args: Any) -> Any:
        first = next((arg for arg in args if isinstance(arg, torch.Tensor) and arg.is_cuda), None)
        with torch.cuda.device(None if first is None else first.device):
            return launch(*args)

    return launch_on_gpu


def _refuse_other_devices(where: str) -> Callable[..., Any]:
    """Return the function that refuses tensors that are not on a CUDA GPU."""

    def refuse(*args: Any) -> NoReturn:
        devices = sorted({str(arg.device) for arg in args if isinstance(arg, torch.Tensor)})
        place = " and ".join(devices) or "no device"
        message = f"{where} runs on CUDA GPUs alone, and its tensors are on {place}; move them to a GPU: x.cuda()"
        raise ArgumentError(message)

    return refuse


def _exact_strides() -> tuple[Any, ...]:
    """Return the tag that makes Inductor keep the layout of an operator's arguments; older releases have none."""
    tag = getattr(torch.Tag, "needs_exact_strides", None)
    return () if tag is None else (tag,)


def _is_array(parameter: Parameter) -> bool:
    return parameter["kind"] in _ARRAYS


def _fits(parameter: Parameter, kind: tuple[str, int] | None) -> bool:
    """Return True if a parameter accepts tensors of this dtype and number of dimensions; None is no tensor."""
    if kind is None:
        return True
    return parameter.get("dtype") == kind[0] and parameter.get("ndim", kind[1]) == kind[1]
