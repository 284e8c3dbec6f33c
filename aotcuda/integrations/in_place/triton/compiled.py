"""Packaged variants in the place of Triton's `CompiledKernel`, for programs that warm kernels up before they launch.

A warm-up finds the variant by the rules of launches, and compiles nothing. Arguments of warm-ups may be tensors, dtypes
and objects that stand for a tensor, such as Triton's `MockTensor`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from functools import cached_property
from types import SimpleNamespace

from .... import manifest as manifests
from ....errors import AotcudaError, ImageError
from ....runtime.images import subset
from ....runtime.launch.arguments import arrays
from . import bases
from .kernel import MISSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ....manifest import Overload, Parameter
    from .kernel import InPlaceKernel

_MAX_THREADS, _LOCAL_BYTES, _REGISTERS = 0, 3, 4  # CU_FUNC_ATTRIBUTE_*
_ALIGNMENT = 16
_WARP = 32


class _Array:
    """An array of a dtype at an address, of which only the divisibility by 16 counts."""

    def __init__(self, typestr: str, address: int) -> None:
        self._typestr = typestr
        self._address = _ALIGNMENT + address % _ALIGNMENT

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = self._address, False
        return {"version": 3, "typestr": self._typestr, "shape": (1,), "strides": None, "data": data}


class CompiledKernel(bases.CompiledKernel):  # type: ignore[misc]  # Triton has no types
    """A packaged variant with the public attributes of Triton's class.

    Attributes:
        name: The name of its entry point in `kernel`.
        metadata_group: The files of Triton's cache; there are none.
    """

    def __init__(self, function: Any, packaged: InPlaceKernel, record: Overload) -> None:
        """Take the Triton function, its packaged kernel, and the record of the variant."""
        self._function = function
        self._packaged = packaged
        self._record = record
        self.name = record["symbol"]
        self.metadata_group: dict[str, str] = {}

    def __del__(self) -> None:
        """Do nothing: the module of the kernel stays loaded."""

    def loads(self) -> bool:
        """Load the variant; return False if it cannot be loaded."""
        try:
            self._init_handles()
        except AotcudaError:
            return False
        return True

    def _init_handles(self) -> None:
        _ = self._handles

    @cached_property
    def _handles(self) -> SimpleNamespace:
        kernel, target = self._packaged.on_gpu(self._record)
        function, module = kernel.handles()
        return SimpleNamespace(
            device=kernel.device,
            fixed=kernel.fixed,
            target=target,
            function=function,
            module=module,
            registers=kernel.attribute(_REGISTERS),
            spills=kernel.attribute(_LOCAL_BYTES) // 4,
            threads=kernel.attribute(_MAX_THREADS),
        )

    @property
    def function(self) -> int:
        """The driver's handle of the kernel, a `CUfunction`."""
        return int(self._handles.function)

    @property
    def module(self) -> int:
        """The driver's handle of the image, a `CUmodule`."""
        return int(self._handles.module)

    @property
    def n_regs(self) -> int:
        """The registers of a thread."""
        return int(self._handles.registers)

    @property
    def n_spills(self) -> int:
        """The words of local memory of a thread."""
        return int(self._handles.spills)

    @property
    def n_max_threads(self) -> int:
        """The most threads that a block may have."""
        return int(self._handles.threads)

    @cached_property
    def kernel(self) -> bytes:
        """The machine code for this GPU; the driver loads it, and finds `name` in it."""
        manifest, folder = self._packaged.manifest, self._packaged.folder
        entry = manifest["fatbins"][self._record.get("fatbin", 0)]
        path = next(
            (image["path"] for image in entry["images"] if image["arch"] == self._handles.target and "path" in image),
            "",
        )
        data = manifests.read_file(folder, entry["file"]) if not path else _content(path)
        return _cubin(data, self._handles.target, str(self._packaged))

    @cached_property
    def asm(self) -> dict[str, Any]:
        """The packaged code by kind: `cubin`."""
        return bases.asm({"cubin": self.kernel})

    @cached_property
    def hash(self) -> str:
        """A digest of the variant and of its package's code."""
        packaged = self._packaged
        text = json.dumps([packaged.manifest["fatbins"], packaged.manifest["module"], self.name], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def src(self) -> Any:
        """The source, types and constants of the variant, as Triton's `ASTSource`."""
        signature, constants, attributes = {}, {}, {}
        for number, (name, parameter) in enumerate(
            zip(self._function.arg_names, self._record["parameters"], strict=False)
        ):
            if parameter["kind"] == "constant":
                signature[name], constants[number,] = "constexpr", bases.constant(parameter["value"])
            else:
                signature[name] = parameter["type"].partition(":")[0]
                attributes[number,] = [["tt.divisibility", _ALIGNMENT]] if "divisor" in parameter else []
        return bases.source(self._function, signature, constants, attributes)

    @cached_property
    def metadata(self) -> Any:
        """The facts of the compilation, as a named tuple."""
        fixed = self._handles.fixed
        scratch = fixed.get("scratch")
        options = {parameter["name"]: parameter["value"] for parameter in self._options()}
        facts = {
            **bases.options(self._handles.device.capability, options),
            "name": self.name,
            "hash": self.hash,
            "shared": fixed["shared"],
            "num_warps": fixed["threads"] // _WARP,
            "warp_size": _WARP,
            "global_scratch_size": scratch["bytes"] if scratch else 0,
            "global_scratch_align": scratch["align"] if scratch else 1,
            "profile_scratch_size": 0,
            "profile_scratch_align": 1,
            "triton_version": self._packaged.manifest["toolchain"].get("triton"),
        }
        return bases.metadata(facts)

    @cached_property
    def packed_metadata(self) -> Any:
        """The facts that Triton's launch hooks get."""
        return bases.pack_metadata(self.metadata)

    @property
    def run(self) -> Callable[..., None]:
        """A function that launches: grid, stream, function, metadata, hooks, then the arguments."""
        return self._run

    def _run(  # in Triton's order
        self,
        grid_0: int,
        grid_1: int,
        grid_2: int,
        stream: int | None,
        function: object,
        packed_metadata: object,
        launch_metadata: object,
        launch_enter_hook: Callable[[Any], object] | None,
        launch_exit_hook: Callable[[Any], object] | None,
        *args: object,
    ) -> None:
        del function, packed_metadata
        launcher = self._packaged.configure((grid_0, grid_1, grid_2), stream=stream)
        if launch_enter_hook is not None:
            launch_enter_hook(launch_metadata)
        launcher(*args, **{parameter["name"]: parameter["value"] for parameter in self._options()})
        if launch_exit_hook is not None:
            launch_exit_hook(launch_metadata)

    def _options(self) -> list[Parameter]:
        """Return the parameters of the variant that are Triton's options, which follow the function's."""
        return self._record["parameters"][len(self._function.arg_names) :]


def find(function: Any, args: tuple[Any, ...], named: dict[str, Any], *, allows_misses: bool) -> CompiledKernel | None:
    """Return the packaged variant of a Triton function for arguments; None if Triton has to compile it.

    Args:
        function: The function.
        args: The arguments by position.
        named: The arguments by name.
        allows_misses: Warn once if no variant is packaged.

    Raises:
        AotcudaError: No variant is packaged, `allows_misses` is true, and nothing may be compiled here.
    """
    packaged = function.ready()
    if packaged is None:
        return None
    try:
        return CompiledKernel(function, packaged, packaged.variant(args, named))
    except MISSES as error:
        if allows_misses:
            packaged.allow_miss(error)
        return None


def as_launched(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a warm-up as a launch has them: what stands for a tensor describes an array."""
    args, named = bases.with_tensors(function, args, named)
    return tuple(map(_described, args)), {name: _described(value) for name, value in named.items()}


def _described(value: Any) -> Any:
    """Return an argument of a warm-up with the attributes that a launch reads."""
    if arrays.is_descriptor(type(value)):
        described = copy.copy(value)
        described.base = _described(bases.mock_tensor(value.base))
        return described
    if callable(getattr(value, "data_ptr", None)) and hasattr(value, "dtype"):
        return _Array(arrays.element(value.dtype), value.data_ptr())
    return value


def preload(function: Any, data: str) -> CompiledKernel | None:
    """Return the packaged variant that Triton's `specialization_data` describes; None if there is none."""
    packaged = function.ready()
    described = json.loads(data)
    if packaged is None or described["name"] != f"{function.__module__}.{function.__qualname__}":
        return None
    constants = {
        tuple(key): value for key, value in zip(described["constant_keys"], described["constant_vals"], strict=True)
    }
    attributes = {
        tuple(key): value for key, value in zip(described["attrs_keys"], described["attrs_vals"], strict=True)
    }
    names = function.arg_names
    for record in packaged.record()["overloads"]:
        if record.get("general"):
            continue
        pairs = zip(range(len(names)), names, record["parameters"], strict=False)
        fits = all(
            _is_described(
                parameter, described["signature"].get(name), constants.get((number,)), attributes.get((number,))
            )
            for number, name, parameter in pairs
        )
        options = record["parameters"][len(names) :]
        if fits and all(_is_option(each, described["options"]) for each in options):
            kernel = CompiledKernel(function, packaged, record)
            return kernel if kernel.loads() and _is_for(kernel, described.get("target")) else None
    return None


def _is_described(parameter: Parameter, kind: Any, value: Any, attributes: Any) -> bool:
    if parameter["kind"] == "constant":
        value = value["constexpr"] if isinstance(value, dict) and "constexpr" in value else value
        mine = bases.constant(parameter["value"])
        return (
            kind == "constexpr"
            and (type(mine) is type(value) or isinstance(value, str))
            and _text(mine) == _text(value)
        )
    is_multiple = ["tt.divisibility", _ALIGNMENT] in (attributes or [])
    return bool(kind == parameter["type"].partition(":")[0]) and is_multiple == ("divisor" in parameter)


def _text(value: Any) -> str:
    return (
        json.dumps(value)
        if value is None or isinstance(value, bool | int | float | str | list | tuple)
        else json.dumps(str(value))
    )


def _is_option(parameter: Parameter, options: dict[str, Any]) -> bool:
    value = options.get(parameter["name"])
    if parameter["name"] == "enable_fp_fusion" and parameter["value"] is None:
        return bool(value == bases.default_option("enable_fp_fusion"))
    return bool(parameter["value"] == value)


def _is_for(kernel: CompiledKernel, target: dict[str, Any] | None) -> bool:
    major, minor = kernel._handles.device.capability  # noqa: SLF001 (of this module)
    return target is None or bool(target.get("arch") == major * 10 + minor)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _cubin(data: bytes, target: str, where: str) -> bytes:
    """Return the cubin for a target in a fatbin; a fatbin with it alone if it cannot be decompressed here."""
    if os.path.basename(target).startswith("compute"):  # the driver has compiled PTX
        return subset.only([data], [target], where)
    from aotcuda.binary import fatbin  # noqa: PLC0415 (few programs read the code)

    try:
        return next(
            entry.content for entry in fatbin.read(data, where) if entry.arch == target and entry.kind == "sass"
        )
    except (ImageError, StopIteration):
        return subset.only([data], [target], where)
