"""Compile cuTile's kernels: cuda-tile makes Tile IR for each variant, tileiras one image for all variants of a module.

cuda-tile's export makes a cubin of one kernel. A module has one image for each GPU, so the Tile IR of all its kernels
is written into one bytecode file, in cuda-tile's form. tileiras is called as cuda-tile calls it, without line
information. cuda-tile's cache is not used.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import re
import struct
import subprocess
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends import error_table, python_source, variants
from aotcuda.builder.frontends.cutile import config
from aotcuda.builder.frontends.numba import private_parts
from aotcuda.builder.frontends.protocol import (
    Assembled,
    Assembler,
    CompiledKernel,
    Definition,
    Launch,
    LinkInput,
    ParameterBlock,
)
from aotcuda.builder.frontends.variants import plain_number
from aotcuda.builder.plan import toolchain
from aotcuda.builder.write import temporary
from aotcuda.common import gpu_facts as versions
from aotcuda.errors import AotcudaError, CompileError, SourceError, ToolchainError
from aotcuda.manifest.constants import encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.config.model import Options
    from aotcuda.builder.frontends.cutile.config import CutileUnit, Type
    from aotcuda.builder.frontends.protocol import LeftOut, Session
    from aotcuda.builder.frontends.variants import Constant
    from aotcuda.manifest import Argument, FixedLaunch, Parameter, Size

_DISTRIBUTION = "cuda-tile"
_COMPILERS = ("nvidia-cuda-tileiras", "nvidia-cuda-nvcc")
"""The distributions of tileiras and of its assembler, which have the same version."""

_TESTED = ("1.7.0",)
_PRIVATE_PARTS = {
    "cuda.tile._compile:_find_compiler_bin": "()",
    "cuda.tile._compile:_get_max_supported_bytecode_version": "(temp_dir, allow_dev=False)",
    "cuda.tile._compile:_CompilerBinary.run": "(self, args, flags, timeout_sec=None)",
    "cuda.tile._compile:_IrKeeper.__init__": (
        "(self, ann_func, func_hir, signatures, bytecode_version, sm_arch, log_cutile_ir, keep_all)"
    ),
    "cuda.tile._compile:_IrKeeper.get_final_ir": "(self, signature_index)",
    "cuda.tile._compile:_IrKeeper.get_dataflow_result": "(self, signature_index)",
    "cuda.tile._ir2bytecode:generate_bytecode_for_kernel": (
        "(func_body, dataflow_result, symbol, compiler_options, sm_arch, writer, anonymize_debug_attr)"
    ),
    "cuda.tile._bytecode.writer:write_bytecode": "(num_functions, buf, version)",
    "cuda.tile._passes.ast2hir:get_function_hir": "(pyfunc, mode)",
}
"""The private parts of cuda-tile that are used."""

_LAUNCH: FixedLaunch = {"threads": 1, "shared": 0}
"""The block of cuda-tile's launches: the driver reads the number of threads from the image."""

_KNOWN_TARGET = re.compile(r"=(sm_\d+)\b")
_RELEASE = re.compile(r"\bV(\d+\.\d+\.\d+)")


class CutileFrontEnd:
    """Implement `aotcuda.builder.frontends.protocol.FrontEnd` for cuTile."""

    def __init__(self) -> None:
        self._root = ""
        self._cuda = (0, 0)
        self._loaded: dict[tuple[str, str], tuple[CutileUnit, Any]] = {}

    def prepare(self, session: Session) -> dict[str, str]:
        self._root = session.root
        import cuda.tile._compile as compiling  # noqa: PLC0415 (imported at the first use: errors name the key)

        private_parts.check_release(_DISTRIBUTION, _TESTED, _PRIVATE_PARTS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of mismatched wheels, after which cuda-tile searches elsewhere
            try:
                binary = compiling._find_compiler_bin()  # cuda-tile stores the result
                # With the variable for the build's toolkit, tileiras would use ptxas and libNVVM of that toolkit in
                # place of those in its own folder.
                binary.pass_cuda_home_var = False
                tileiras = binary.path
                release = _RELEASE.search(_output(tileiras, "--version"))
            except OSError as error:
                message = f"{_DISTRIBUTION} finds no tileiras ({error}); install it: pip install 'aotcuda[cutile]'"
                raise ToolchainError(message) from None
            if release is None:
                message = f"{tileiras} has no readable version; install it again: pip install 'aotcuda[cutile]'"
                raise ToolchainError(message)
            _bytecode_version()
        self._cuda = versions.pair(release[1])
        known = _KNOWN_TARGET.findall(_output(tileiras, "--help"))
        for name in map(_gpu_name, session.targets):
            if name not in known:
                compiler = f"tileiras {versions.dotted(self._cuda)}"
                raise toolchain.unknown_target(name, session.arch_key, compiler, known)
        return {_DISTRIBUTION: version(_DISTRIBUTION), **dict.fromkeys(_COMPILERS, release[1])}

    def load(self, unit: CutileUnit) -> Any:
        """Implement FrontEnd.load: return the kernel that `@ct.kernel` made.

        Raises:
            SourceError: A source cannot be imported, or lacks the kernel.
        """
        import cuda.tile  # noqa: PLC0415 (imported at the first use)

        name, value = python_source.find(unit, unit.sources, self._root)
        if isinstance(value, cuda.tile.kernel):
            return value
        message = (
            f"{unit.key}: {name} is of type {type(value).__qualname__}, and no function with @ct.kernel; decorate it, "
            "or name another function"
        )
        raise SourceError(message)

    def resolve(self, unit: CutileUnit, loaded: Any) -> Iterator[tuple[CutileUnit, str]]:
        """Implement FrontEnd.resolve: a unit for each specialisation.

        Raises:
            CompileError: The table does not fit the function.
        """
        _check(unit, loaded)
        for completed in config.specialize(unit):
            self._loaded[completed.module, completed.symbol] = completed, loaded
            yield completed, completed.signature

    def compile_unit(
        self, unit: CutileUnit, loaded: Any, targets: Sequence[Target]
    ) -> dict[Target, CompiledKernel | LeftOut]:
        """Implement FrontEnd.compile_unit: to Tile IR; `assembler` makes the Tile IR of the whole module again.

        The compile cache names images by this Tile IR. Therefore it has no line numbers, as images have none, and it
        names the optimisation level for `assembler`.
        """
        return variants.compile_each(unit, targets, lambda target: self._kernel(unit, loaded, target))

    def _kernel(self, unit: CutileUnit, loaded: Any, target: Target) -> CompiledKernel:
        """Return a compiled kernel.

        Raises:
            CompileError: cuda-tile refuses it.
        """
        bytecode = self._bytecode([(unit, loaded)], target, with_lines=False)
        level = _options(loaded).opt_level_for_target(_gpu_name(target))
        parameters, layout = _parameters(unit, loaded)
        return CompiledKernel(
            code=(LinkInput(kind="cubin", name=unit.symbol, data=b"-O%d\n%b" % (level, bytecode)),),
            signature=unit.signature,
            parameters=tuple(parameters),
            parameter_block=ParameterBlock(
                size=max((offset + size for offset, size in layout), default=0),
                layout=tuple(layout),
                one_by_one=True,  # the driver may add tensor maps to the block
            ),
            launch=Launch(fixed=_LAUNCH, apart=tuple(_separate_arrays(unit, parameters))),
            definition=Definition(doc=inspect.getdoc(_function(loaded)) or "", arguments=tuple(_arguments(loaded))),
        )

    def assembler(self, target: Target) -> Assembler:
        """Implement FrontEnd.assembler: by tileiras."""
        from cuda.tile import _compile  # noqa: PLC0415 (imported at the first use)

        def assemble(module: str, inputs: Sequence[LinkInput], _: Options) -> Assembled:
            data, left_out = variants.assemble_kernels(module, inputs, lambda items: self._image(module, items, target))
            return Assembled(data=data, cuda=self._cuda, left_out=left_out)

        return Assembler(tools=[_compile._find_compiler_bin().path], assemble=assemble)

    def _image(self, module: str, inputs: Sequence[LinkInput], target: Target) -> bytes:
        """Return the image of some kernels.

        Raises:
            CompileError: tileiras refuses it, or the kernels have several levels.
        """
        units = [self._loaded[module, item.name] for item in inputs]
        bytecode = self._bytecode(units, target, with_lines=True)  # for the user's line in errors of tileiras
        levels = {_options(loaded).opt_level_for_target(_gpu_name(target)) for _, loaded in units}
        if len(levels) > 1:
            texts = ", ".join(map(str, sorted(levels)))
            message = (
                f"{module}: its kernels have different opt_level in @ct.kernel, {texts}, and are one image for "
                f"{target}; give them the same, or make two modules"
            )
            raise CompileError(message)
        return self._assemble(module, bytecode, target, levels.pop())

    def _bytecode(self, units: Sequence[tuple[CutileUnit, Any]], target: Target, *, with_lines: bool) -> bytes:
        """Return the Tile IR of some kernels, as one bytecode file."""
        from cuda.tile import _compile  # noqa: PLC0415 (imported at the first use)
        from cuda.tile._bytecode.writer import write_bytecode  # noqa: PLC0415
        from cuda.tile._ir2bytecode import generate_bytecode_for_kernel  # noqa: PLC0415
        from cuda.tile._passes.ast2hir import HirMode, get_function_hir  # noqa: PLC0415

        bytecode = bytearray()
        with write_bytecode(num_functions=len(units), buf=bytecode, version=_bytecode_version()) as writer:
            for unit, loaded in units:
                with _explain_errors(unit, target, self._root):
                    signature = _signature(unit, loaded)
                    keeper = _compile._IrKeeper(
                        ann_func=loaded._annotated_function,
                        func_hir=get_function_hir(_function(loaded), mode=HirMode.ENTRY_POINT),
                        signatures=[signature],
                        bytecode_version=writer.version,
                        sm_arch=_gpu_name(target),
                        log_cutile_ir=False,
                        keep_all=False,
                    )
                    generate_bytecode_for_kernel(
                        keeper.get_final_ir(0),
                        keeper.get_dataflow_result(0),
                        signature.symbol,
                        _options(loaded),
                        _gpu_name(target),
                        writer,
                        anonymize_debug_attr=not with_lines,
                    )
        return bytes(bytecode)

    def _assemble(self, module: str, bytecode: bytes, target: Target, level: int) -> bytes:
        from cuda.tile import _compile  # noqa: PLC0415 (imported at the first use)
        from cuda.tile._exception import TileCompilerError  # noqa: PLC0415

        with temporary.folder() as folder:
            source, output = folder / "module.bytecode", folder / "module.cubin"
            source.write_bytes(bytecode)
            flags = ["--gpu-name", _gpu_name(target), f"-O{level}"]
            try:
                _compile._find_compiler_bin().run([str(source), "-o", str(output)], flags)
            except TileCompilerError as error:
                head = f"{module}: tileiras refuses the kernels for {target}"
                raise _error_for(head, error, self._root) from error
            return output.read_bytes()


FRONT_END = CutileFrontEnd()


def _output(command: str, option: str) -> str:
    """Return the output of a program."""
    return subprocess.run([command, option], check=False, capture_output=True, text=True).stdout


def _gpu_name(target: Target) -> str:
    """Return cuda-tile's name for a target: `sm_90`, whose code runs on this architecture alone."""
    return f"sm_{target.major}{target.minor}"


@functools.cache
def _bytecode_version() -> Any:
    """Return the newest bytecode version that this tileiras accepts, which tileiras tells."""
    from cuda.tile import _compile  # noqa: PLC0415 (imported at the first use)

    with temporary.folder() as folder:
        return _compile._get_max_supported_bytecode_version(str(folder))


def _function(loaded: Any) -> Any:
    """Return the Python function of a kernel."""
    return loaded._annotated_function.pyfunc


def _options(loaded: Any) -> Any:
    return loaded._compiler_options


def _annotated_parameters(loaded: Any) -> list[tuple[inspect.Parameter, Any]]:
    """Return a kernel's parameters, each with its annotation."""
    function = loaded._annotated_function
    return list(zip(function.pysig.parameters.values(), function.parameter_annotations, strict=True))


def _check(unit: CutileUnit, loaded: Any) -> None:
    """Check that the table agrees with the function's parameters.

    Raises:
        CompileError: The table and the parameters contradict each other, or a parameter cannot be packaged.
    """
    plain: list[inspect.Parameter] = []
    constant: list[inspect.Parameter] = []
    for parameter, annotation in _annotated_parameters(loaded):
        kind = getattr(annotation, "KIND", "")
        array = getattr(annotation, "array", None)
        if kind != "leaf" or annotation.list is not None:
            argument = "a tuple" if kind != "leaf" else "a list of arrays"
            message = (
                f"{unit.key}: {unit.python} takes {argument}, {parameter.name}; packaged kernels cannot: pass its parts"
            )
            raise CompileError(message)
        if array is not None and (array.static_shape_dims or array.static_stride_dims):
            message = (
                f"{unit.key}: {parameter.name} of {unit.python} has static_shape_dims or static_stride_dims, "
                "which make extents constants at each launch; remove them, and make such an extent a parameter of "
                "type ct.Constant"
            )
            raise CompileError(message)
        (constant if annotation.constant else plain).append(parameter)
    names = [parameter.name for parameter in plain]
    if len(names) != len(unit.types):
        message = (
            f"{unit.key}.signature: {', '.join(map(str, unit.types)) or 'nothing'!r} has {len(unit.types)} types, and "
            f"{unit.python} takes {len(names)} arguments that are not constants: {', '.join(names) or 'none'}"
        )
        raise CompileError(message)
    _check_overlap(unit, [name for name, kind in zip(names, unit.types, strict=True) if kind.ndim])
    _check_constants(unit, constant, names)


def _check_constants(unit: CutileUnit, parameters: Sequence[inspect.Parameter], arguments: Sequence[str]) -> None:
    """Check that the table has values for the `ct.Constant` parameters without default, and for no others."""
    constants = [parameter.name for parameter in parameters]
    values = dict(unit.constants)
    for parameter in parameters:
        if parameter.name not in values and not _has_value(parameter):
            message = (
                f"{unit.key}.constants: {parameter.name} is missing, a ct.Constant of {unit.python}; "
                f"write for example constants = {{ {parameter.name} = 128 }}"
            )
            raise CompileError(message)
    for name in values:
        if name not in constants:
            hint = f"its constants are {', '.join(constants)}" if constants else "it has none"
            fact = "an argument" if name in arguments else "no parameter"
            message = f"{unit.key}.constants.{name}: {name} is {fact} of {unit.python}, and no ct.Constant; {hint}"
            raise CompileError(message)


def _check_overlap(unit: CutileUnit, arrays: Sequence[str]) -> None:
    """Check that the key `overlap` names two or more arrays."""
    if not unit.overlap:
        return
    wrong = next((name for name in unit.overlap if name not in arrays), None)
    if wrong is not None or len(set(unit.overlap)) < 2:
        problem = f"{wrong} is not an array of {unit.python}" if wrong else "a single array cannot overlap another one"
        message = f"{unit.key}.overlap: {problem}; name two or more of its arrays ({', '.join(arrays)}), or remove it"
        raise CompileError(message)


def _has_value(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.default, int | float)


def _value(unit: CutileUnit, parameter: inspect.Parameter) -> Constant:
    """Return the value of a constant: the value in the table, or the default in the source."""
    value: Constant = dict(unit.constants).get(parameter.name, parameter.default)
    return value if isinstance(value, bool) or not isinstance(value, int | float) else plain_number(value)


def _index_format(annotation: Any) -> str:
    """Return the `struct` character of an array's extents and strides from its annotation."""
    return "q" if annotation.array is not None and annotation.array.index_dtype.bitwidth == 64 else "i"


def _typed_parameters(unit: CutileUnit, loaded: Any) -> Iterator[tuple[inspect.Parameter, Any, Type | None]]:
    """Yield a kernel's parameters with their annotations and types; None for constants."""
    types = iter(unit.types)
    for parameter, annotation in _annotated_parameters(loaded):
        yield parameter, annotation, None if annotation.constant else next(types)


def _signature(unit: CutileUnit, loaded: Any) -> Any:
    """Return cuda-tile's `KernelSignature` of a variant: the compiler's assumptions, which launches check."""
    import cuda.tile as ct  # noqa: PLC0415 (imported at the first use)
    from cuda.tile import compilation  # noqa: PLC0415

    constraints: list[Any] = []
    for parameter, annotation, kind in _typed_parameters(unit, loaded):
        if kind is None:
            constraints.append(_value(unit, parameter))
        elif not kind.ndim:
            constraints.append(compilation.ScalarConstraint(getattr(ct, kind.scalar)))
        else:
            constraints.append(
                compilation.ArrayConstraint(
                    getattr(ct, kind.scalar),
                    kind.ndim,
                    index_dtype=ct.int64 if _index_format(annotation) == "q" else ct.int32,
                    stride_lower_bound_incl=0,
                    alias_groups=["overlap"] if parameter.name in unit.overlap else [],
                    may_alias_internally=kind.layout == "A",  # strides may be zero
                    stride_constant=[1 if axis == _unit_axis(kind) else None for axis in range(kind.ndim)],
                    stride_divisible_by=_stride_divisors(kind),
                    shape_divisible_by=[config.DIVISOR if kind.even else 1] * kind.ndim,
                    base_addr_divisible_by=config.DIVISOR if kind.aligned else 1,
                )
            )
    convention = compilation.CallingConvention.cutile_python_v2()
    return compilation.KernelSignature(constraints, convention, symbol=unit.symbol)


def _unit_axis(kind: Type) -> int | None:
    """Return the dimension whose elements are contiguous; None for any strides."""
    return {"C": kind.ndim - 1, "F": 0}.get(kind.layout)


def _stride_divisors(kind: Type) -> list[int]:
    """Return a divisor of each stride, in elements."""
    if not kind.aligned:
        return [1] * kind.ndim
    itemsize = 2 if kind.scalar == "bfloat16" else int(config.ELEMENTS[kind.scalar][2:])
    return [1 if axis == _unit_axis(kind) else config.DIVISOR // itemsize for axis in range(kind.ndim)]


def _parameters(unit: CutileUnit, loaded: Any) -> tuple[list[Parameter], list[tuple[int, int]]]:
    """Return the arguments of a launch, and offset and size of each machine-level parameter in the block.

    An array is its address, its extents and its strides in elements (cuda-tile's documentation, "Calling Conventions").
    """
    arguments: list[Parameter] = []
    layout: list[tuple[int, int]] = []

    def place(size: int) -> int:
        end = layout[-1][0] + layout[-1][1] if layout else 0
        layout.append((-(-end // size) * size, size))
        return layout[-1][0]

    for parameter, annotation, kind in _typed_parameters(unit, loaded):
        name = parameter.name
        if kind is None:
            value = _value(unit, parameter)
            argument: Parameter = {
                "name": name,
                "type": f"{name}={value!r}",
                "kind": "constant",
                "offset": 0,
                "value": encode(value),
            }
            if name in unit.chosen or name not in dict(unit.constants):
                argument["optional"] = True
        elif not kind.ndim:
            form = config.SCALARS[kind.scalar]
            offset = place(struct.calcsize(form))
            argument = {"name": name, "type": str(kind), "kind": "number", "offset": offset, "format": form}
        else:
            argument = {
                "name": name,
                "type": str(kind),
                "kind": "array",
                "offset": place(8),
                "dtype": config.ELEMENTS[kind.scalar],
                "ndim": kind.ndim,
                "layout": kind.layout,  # type: ignore[typeddict-item]
                "words": ["data"],
                "sizes": _sizes(name, kind, _index_format(annotation), place),
            }
            if kind.aligned:
                argument["divisor"] = config.DIVISOR
        arguments.append(argument)
    return arguments, layout


def _separate_arrays(unit: CutileUnit, parameters: Sequence[Parameter]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of arguments whose arrays the compiler assumes not to overlap."""
    arrays = [at for at, parameter in enumerate(parameters) if parameter["kind"] == "array"]
    for first, second in itertools.combinations(arrays, 2):
        if not {parameters[first]["name"], parameters[second]["name"]} <= {*unit.overlap}:
            yield first, second


def _sizes(name: str, kind: Type, form: str, place: Any) -> list[Size]:
    """Return an array's extents and strides, with the compiler's assumptions about them."""
    sizes: list[Size] = []
    extents = [config.DIVISOR if kind.even else 1] * kind.ndim
    for attribute, word, divisors in (("shape", "shape", extents), ("strides", "step", _stride_divisors(kind))):
        for axis, divisor in enumerate(divisors):
            size: Size = {
                "name": f"{name}.{attribute}[{axis}]",
                "type": "int64" if form == "q" else "int32",
                "word": f"{word}{axis}",
                "format": form,
                "offset": place(struct.calcsize(form)),
            }
            if attribute == "strides" and kind.layout == "A":
                size["least"] = 0
            if divisor > 1:
                size["divisor"] = divisor
            sizes.append(size)
    return sizes


def _arguments(loaded: Any) -> Iterator[Argument]:
    """Yield the arguments of a launch by name, with the defaults of constants in the source."""
    for parameter, annotation in _annotated_parameters(loaded):
        argument: Argument = {"name": parameter.name}
        if annotation.constant and _has_value(parameter):
            argument["default"] = encode(parameter.default)
        yield argument


@contextlib.contextmanager
def _explain_errors(unit: CutileUnit, target: Target, root: str) -> Iterator[None]:
    """Turn an exception of cuda-tile in this block into an error that names the key and the user's line."""
    try:
        yield
    except AotcudaError:
        raise
    except Exception as error:
        head = f"{unit.head}: cuda-tile cannot compile it for {target}"
        failure = _error_for(head, error, root)
        failure.fault = f"{unit.key}{str(failure).removeprefix(head)}"
        raise failure from error


def _error_for(head: str, error: Any, root: str) -> CompileError:
    """Return the error for a message of cuda-tile, with the user's line."""
    text = str(getattr(error, "message", None) or error or type(error).__name__)
    place: Any = getattr(error, "loc", None)
    file = getattr(place, "filename", None)
    where = error_table.relative(f"{file}:{place.line}", root) if file else ""
    return CompileError(error_table.explain(head, text, where))
