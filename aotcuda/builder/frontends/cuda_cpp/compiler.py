"""Compile the files of a module with NVRTC: once to read their declarations, then once for each target."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

from cuda.bindings import nvrtc as bindings

from aotcuda.builder.compile import flows, pool
from aotcuda.builder.emit.c_header import c_types
from aotcuda.builder.frontends.cuda_cpp import declarations, parameters
from aotcuda.builder.frontends.protocol import (
    CompiledFunction,
    CompiledKernel,
    Division,
    Launch,
    LinkInput,
    ParameterBlock,
)
from aotcuda.builder.link import inputs, nvrtc, preconditions, symbols, translation_units
from aotcuda.builder.link.included_headers import Headers
from aotcuda.builder.link.symbols import Symbols
from aotcuda.common import foreign, suggest
from aotcuda.common.scalar_types import FORMATS
from aotcuda.errors import AotcudaError, CompileError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.cache.compile_cache import CompileCache
    from aotcuda.builder.config.model import Module, Options
    from aotcuda.builder.frontends.cuda_cpp.config import CppUnit
    from aotcuda.builder.frontends.cuda_cpp.declarations import CppType, Declaration
    from aotcuda.builder.frontends.protocol import GpuQuery, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a module.

    Attributes:
        item: The file as a link input.
        folders: Folders of headers, in addition to the folder of the file.
        names: The C++ name expressions of its kernels that are compiled.
        symbols: The symbols of these kernels, by name expression.
        declared: Its kernels and functions, by symbol.
        ptx: PTX with debug information.
    """

    item: LinkInput
    folders: tuple[str, ...]
    names: tuple[str, ...] = ()
    symbols: Mapping[str, str]
    declared: Mapping[str, Declaration]
    ptx: bytes = b""

    @property
    def has_kernels(self) -> bool:
        """Return True if the file defines kernels, named in the table or not."""
        return any(declaration.is_kernel for declaration in self.declared.values())


class CudaCppFrontEnd:
    """Implement `aotcuda.builder.frontends.protocol.FrontEnd`."""

    _cache: CompileCache

    def __init__(self) -> None:
        self._root = ""
        self._target: Target | None = None
        self._modules: dict[str, tuple[File, ...]] = {}
        self._errors: dict[str, AotcudaError] = {}
        self._signatures: dict[tuple[str, str, str], CppUnit] = {}
        self._units: dict[tuple[str, str, str], CppUnit] = {}
        self._images: dict[tuple[str, str], tuple[File, ...]] = {}
        self._unused: dict[str, tuple[File, ...]] = {}

    def prepare(self, session: Session) -> dict[str, str]:
        """Implement FrontEnd.prepare; NVRTC needs no preparation."""
        self._root, self._cache = session.root, session.cache
        _, major, minor = bindings.nvrtcVersion()
        return {"nvrtc": f"{major}.{minor}"}

    @contextlib.contextmanager
    def importing(self, target: Target) -> Iterator[Iterable[GpuQuery]]:
        """Implement FrontEnd.importing: the declarations of files may depend on the target."""
        self._target = target
        yield ()

    def load(self, unit: CppUnit) -> tuple[File, ...]:
        """Return the files of the unit's module with their declarations.

        Raises:
            SourceError: A file cannot be read, or none has the kernel.
            CompileError: A file does not compile.
        """
        if unit.module in self._errors:
            raise self._errors[unit.module]
        if unit.module not in self._modules:
            assert self._target is not None  # noqa: S101 (`importing` comes first)
            try:
                self._modules[unit.module] = _load_files(unit, self._root, self._target, self._cache)
            except AotcudaError as error:  # all kernels of the module have this error
                self._errors[unit.module] = error
                raise
        files = self._modules[unit.module]
        if unit.kind == "kernel":
            _file_of(unit, files)
        return files

    def resolve(self, unit: CppUnit, files: tuple[File, ...]) -> Iterator[tuple[CppUnit, str]]:
        """Implement FrontEnd.resolve: with the file and the symbol of the unit, and the C++ types of a kernel.

        Raises:
            CompileError: The table contradicts the declaration, or no launch could choose this kernel.
            SourceError: No file defines the kernel or the function.
        """
        completed = self._completed(unit, files)
        yield completed, self._signature(completed, files)

    def _completed(self, unit: CppUnit, files: tuple[File, ...]) -> CppUnit:
        """Return the unit with its file and its symbol."""
        if unit.kind == "function":
            file = next((file for file in files if unit.name in file.declared), files[0])
            return replace(unit, origin=f"{file.item.name}:{unit.name}", file=file.item.name)
        file, name = _file_of(unit, files)
        origin = f"{file.item.name}:{name.partition('<')[0]}"
        first = self._units.setdefault((unit.module, file.item.name, file.symbols[name]), unit)
        if first.signature_key != unit.signature_key:
            message = (
                f"{unit.signature_key}: {unit.expression} is packaged already, as {first.expression} of "
                f"{first.signature_key}; remove one of them"
            )
            raise SourceError(message)
        path = file.item.name
        image = path if len(files) > 1 else ""  # `divide` gives it the image of its group
        return replace(unit, origin=origin, symbol=file.symbols[name], file=path, expression=name, image=image)

    def divide(
        self, units: Sequence[CppUnit], linked: Sequence[Symbols], targets: Sequence[Target], config: Module
    ) -> Division:
        """Implement FrontEnd.divide: files that refer to each other are one image, each other file is its own."""
        module, options = config.name, config.options
        files = {file.item.name: file for file in self._modules[module]}
        references = _references(files, targets, options, _source_key(module), self._cache)
        groups = translation_units.divide(references, linked, config.key, relocatable=config.relocatable)
        for group in groups:
            translation_units.check_weak(group, {path: files[path].ptx for path in group.files}, config.key)
        used = {unit.file for unit in units}
        with_units = [group for group in groups if used.intersection(group.files)]
        names = {group: ", ".join(group.files) if len(with_units) > 1 else "" for group in groups}
        images = {path: names[group] for group in groups for path in group.files}
        unused = [path for group in groups if group not in with_units for path in group.files]
        for group in with_units:
            of_image = [file for path, file in files.items() if path in group.files]
            self._images[module, names[group]] = tuple(of_image)
        self._unused[module] = tuple(files[path] for path in unused)
        for unit in units:
            if unit.kind == "function" and (other := translation_units.referred(unit.file, references)):
                path, name = other[0], translation_units.plain_name(other[1])
                message = (
                    f"{unit.key}: {unit.file} exports a function and refers to {name} of {path}; the file of "
                    "an exported function may refer to no other file, so define it there"
                )
                raise SourceError(message)
        divided = [
            replace(
                unit,
                image=images[unit.file],
                batch=f"{module} ({images[unit.file]})" if images[unit.file] else module,
                sources=next(group.files for group in groups if unit.file in group.files),
                expressions=(),
            )
            if unit.kind == "kernel"
            else replace(unit, sources=(unit.file,), expressions=())
            for unit in units
        ]
        kernel_images = {unit.image for unit in divided if unit.kind == "kernel"}
        linked_images = frozenset(names[group] for group in with_units if group.has_links) & kernel_images
        return Division(
            units=tuple(divided),
            linked=linked_images,
            needed=translation_units.needed_functions([group for group in groups if group.has_links], references),
            variables=tuple(
                (name, symbol, names[group], size)
                for name, (symbol, group, size) in sorted(translation_units.variables(groups, references).items())
                if group in with_units and names[group] in kernel_images
            ),
            warnings=tuple(
                f"{config.key}.source: no kernel of the table is in {path}, and no such file refers to it; remove it"
                for path in unused
            ),
        )

    def sources(self, unit: CppUnit, files: tuple[File, ...]) -> tuple[LinkInput, ...]:
        """Implement FrontEnd.sources: the files of its image, and files of the module that no image has."""
        unused = self._unused.get(unit.module, ())
        return tuple(file.item for file in files if file.item.name in unit.sources or file in unused)

    def declared(self, unit: CppUnit, files: tuple[File, ...]) -> object:
        """Implement FrontEnd.declared: the declarations of the files for the target of `importing`."""
        return [(file.names, file.symbols, file.declared) for file in files if file.item.name in unit.sources]

    def _signature(self, unit: CppUnit, files: tuple[File, ...]) -> str:
        if unit.kind == "function":
            return _function(unit, files).signature
        declaration = _kernel(unit, files)
        signature = parameters.make_arguments(declaration, dict(unit.stated), unit.key).signature
        first = self._signatures.setdefault((unit.module, unit.name, signature), unit)
        if first.symbol != unit.symbol:
            message = (
                f"{unit.signature_key}: {unit.expression} takes {signature} as {first.expression} does, so a launch "
                "cannot choose between the two by its arguments; make two kernels"
            )
            raise CompileError(message)
        return signature

    def compile_unit(
        self, unit: CppUnit, files: tuple[File, ...], targets: Sequence[Target]
    ) -> dict[Target, CompiledKernel] | dict[Target, CompiledFunction]:
        """Implement FrontEnd.compile_unit: kernels share the code of their files; `generate` compiles functions."""
        if unit.kind == "function":
            return dict.fromkeys(targets, _function(unit, files))
        return {target: self._kernel(unit, files, target) for target in targets}

    def _kernel(self, unit: CppUnit, files: tuple[File, ...], target: Target) -> CompiledKernel:
        declaration = _kernel(unit, files)
        arguments = parameters.make_arguments(declaration, dict(unit.stated), unit.key)
        code = self._code(unit.module, unit.image, unit.options, target)
        if unit.unfused and not unit.options.debug:
            code = tuple(replace(item, unfused=(unit.symbol,)) for item in code)
        return CompiledKernel(
            code=code,
            signature=arguments.signature,
            parameters=arguments.parameters,
            parameter_block=ParameterBlock(
                size=declaration.parameter_bytes,
                layout=tuple((item.offset, item.size) for item in declaration.parameters),
                one_by_one=declaration.alignment > _ALIGNMENT,
            ),
            launch=Launch(
                cooperative=unit.cooperative, launch_bounds=declaration.launch_bounds, block=declaration.block
            ),
            has_functions=True,
        )

    @functools.cache  # noqa: B019 (it lives as long as the child that it runs in)
    def _code(self, module: str, image: str, options: Options, target: Target) -> tuple[LinkInput, ...]:
        """Return the compiled files of an image, for the kernels of a batch."""
        return tuple(
            LinkInput(
                kind="ptx" if options.debug else "ltoir",
                name=file.item.name,
                data=_compile_file(file, file.item, target, options, _source_key(module), lto=not options.debug),
            )
            for file in self._images.get((module, image), self._modules[module])
        )

    def generate(
        self,
        code: Mapping[CppUnit, bytes],
        loaded: Mapping[CppUnit, tuple[File, ...]],
        target: Target,
        options: Options,
        form: Literal["ltoir", "ptx"] = "ltoir",
    ) -> tuple[LinkInput, ...]:
        """Implement FrontEnd.generate: compile the file of the functions, without its kernels.

        Raises:
            CompileError: The functions are in several files, or the file does not compile without kernels.
        """
        paths = list(dict.fromkeys(unit.file for unit in code))
        if len(paths) > 1:
            message = (
                f"the functions of one module must be in one file, and these are in {' and '.join(paths)}; make a "
                "module for each file, or include one in the other"
            )
            raise CompileError(message)
        unit = next(iter(code))
        file = next(file for file in loaded[unit] if file.item.name == unit.file)
        compile_item = functools.partial(
            _compile_file, replace(file, names=()), target=target, options=options, key=_source_key(unit.module)
        )
        if not file.has_kernels:
            data = compile_item(item=file.item, lto=form == "ltoir")
        else:
            try:
                data = compile_item(item=_without_kernels(file.item, "inline"), lto=form == "ltoir")
            except CompileError:  # `template __global__ void k<float>(...)` cannot be inline: these stay functions
                data = compile_item(item=_without_kernels(file.item, ""), lto=form == "ltoir")
        return (LinkInput(kind=form, name=file.item.name, data=data),)


FRONT_END = CudaCppFrontEnd()

_ALIGNMENT = 16
"""The alignment of the first parameter on every GPU.

ptxas aligns each parameter by its address, not by its offset in the block, so parameters with a larger alignment have
other offsets on some GPUs (KPARAM_INFO in `cuobjdump -elf`).
"""

_QUALIFIERS = ("launch_bounds", "cluster_dims", "block_size", "maxnreg")


def _without_kernels(item: LinkInput, specifier: str) -> LinkInput:
    """Return the file with its kernels turned into device functions, each with a further specifier.

    Entry points would be in every image that links the file. Inline functions without callers produce no code.
    """
    head = f"#undef __global__\n#define __global__ __device__ {specifier}\n"
    head += "#undef __grid_constant__\n#define __grid_constant__\n"
    head += "".join(f"#undef __{name}__\n#define __{name}__(...)\n" for name in _QUALIFIERS)
    return replace(item, data=f'{head}#line 1 "{item.name}"\n'.encode() + item.data)


def _source_key(module: str) -> str:
    """Return the configuration key of a module's files."""
    return f'tool.aotcuda.modules."{module}".source'


def _compile_file(file: File, item: LinkInput, target: Target, options: Options, key: str, *, lto: bool) -> bytes:
    os.chdir("/")  # NVRTC writes the current folder into LTOIR
    try:
        return nvrtc.compile_source(item, target, options, file.folders, lto=lto, names=file.names)
    except CompileError as error:
        raise preconditions.not_compiled(item, target, options, file.folders, key, str(error), file.names) from None


def _load_files(unit: CppUnit, root: str, target: Target, cache: CompileCache) -> tuple[File, ...]:
    """Return the files of the unit's module, with their declarations."""
    key = _source_key(unit.module)
    inputs_by_path: dict[str, tuple[LinkInput, list[str]]] = {}
    for path in unit.sources:
        absolute = Path(root, path)
        try:
            data = foreign.content(absolute)
        except foreign.UnreadableError as error:
            message = f"{key}: {path} {error}; {inputs.remedy_for(absolute, Path(root))}"
            raise SourceError(message) from None
        folder = str(inputs.place(absolute, Path(root)).parent)
        inputs_by_path[path] = LinkInput(kind="cu", name=path, data=data, folder=folder), []
    keys: dict[tuple[str, str], str] = {}
    for expression, where in unit.expressions:
        path, name = _find_kernel(expression, {path: item.data for path, (item, _) in inputs_by_path.items()}, where)
        inputs_by_path[path][1].append(name)
        keys.setdefault((path, name), where)
    folders = tuple(str(Path(root, folder)) for folder in unit.options.include_dirs)
    files = {
        path: File(item=item, folders=folders, names=tuple(dict.fromkeys(names)), symbols={}, declared={})
        for path, (item, names) in inputs_by_path.items()
    }

    def name_headers() -> dict[str, str]:
        return {
            path: cache.name_with([file.item], unit.options, folders, "declarations", file.names, target)
            for path, file in files.items()
        }

    names_before = name_headers()
    cached: dict[str, _Description] = cache.find(names_before, lambda _: _Description)
    tasks = []
    for path, file in files.items():
        keys_of_file = {name: keys[path, name] for name in file.names}
        run = functools.partial(_read_file, file, target, unit.options, key, keys_of_file, cached.get(path))
        tasks.append(pool.Task(f"declarations of {path}", run, key=key))
    described = dict(zip(files, flows.run(tasks, os.cpu_count() or 1, lambda _: None), strict=True))
    new = {path: description for path, (_, description) in described.items() if path not in cached}
    names_after = name_headers()  # a header may have been edited during the compilation
    unchanged = {path: names for path, names in names_before.items() if names == names_after[path]}
    cache.store(new, unchanged, {path: f"declarations of {path}" for path in new}, "declarations")
    return tuple(file for file, _ in described.values())


def _references(
    files: Mapping[str, File], targets: Sequence[Target], options: Options, key: str, cache: CompileCache
) -> dict[str, dict[Target, Symbols]]:
    """Return the symbols of each file for each target, from PTX with the options and instances of the build."""
    work = {(path, target): file for path, file in files.items() for target in targets}

    def names() -> dict[tuple[str, Target], str]:
        return {
            (path, target): cache.name_with([file.item], options, file.folders, "references", file.names, target)
            for (path, target), file in work.items()
        }

    before = names()
    found: dict[tuple[str, Target], Symbols] = cache.find(before, lambda _: Symbols)
    missing = [item for item in work if item not in found]
    tasks = []
    for path, target in missing:
        run = functools.partial(_read_references, work[path, target], target, options, key)
        tasks.append(pool.Task(f"references of {path} for {target}", run, key=key))
    new = dict(zip(missing, flows.run(tasks, os.cpu_count() or 1, lambda _: None), strict=True))
    after = names()
    unchanged = {item: name for item, name in before.items() if name == after[item]}
    cache.store(new, unchanged, {item: f"references of {item[0]} for {item[1]}" for item in new}, "references")
    return {path: {target: (found | new)[path, target] for target in targets} for path in files}


def _read_references(file: File, target: Target, options: Options, key: str) -> Symbols:
    return symbols.in_ptx(_compile_file(file, file.item, target, options, key, lto=False))


def _find_kernel(expression: str, texts: Mapping[str, bytes], where: str = "") -> tuple[str, str]:
    """Return the file of a kernel, which is found by text search, and its C++ name expression.

    Raises:
        SourceError: Two files define it, or it names another file; `where` is the key of the kernel.
    """
    path, colon, name = expression.partition(".cu:")
    if colon and not name.startswith(":"):
        if f"{path}.cu" in texts:
            return f"{path}.cu", name
        message = f"{where}: {path}.cu is no file of source; the files there are {', '.join(texts)}"
        raise SourceError(message)
    plain = _last_name(expression)
    paths = [path for path, text in texts.items() if plain in _kernels_in(text)]
    defining = [path for path in paths if _defines(texts[path], plain)]
    if len(defining) > 1:
        places, named = " and in ".join(defining), f"{defining[0]}:{expression}"
        message = f'{where}: {expression} is in {places}; name the file of the kernel, as "{named}"'
        raise SourceError(message)
    return (defining or paths or [*texts])[0], expression


def _defines(text: bytes, name: str) -> bool:
    """Return True if a text seems to give a kernel a body."""
    return re.search(rb"__global__[^;{}]*\b%b\s*\([^;{}]*\)\s*\{" % name.encode(), text) is not None


def _last_name(expression: str) -> str:
    """Return the last name of an expression: `scale` of `ns::scale<ns::Point>`."""
    return expression.partition("<")[0].rpartition(":")[2].strip()


def _kernels_in(text: bytes) -> list[str]:
    """Return the names of kernels that a text seems to declare, for the search and for suggestions."""
    return [name.decode() for name in re.findall(rb"__global__(?:[^;{}()]|\([^;{}()]*\))*?\b(?!__)(\w+)\s*\(", text)]


# NVRTC reports errors of name expressions in a generated file; other errors are in the file or in a header.
_FILE_ERROR = re.compile(r"^(?!__nv_name_map)\S.*\(\d+\): (?:catastrophic )?error: ", re.MULTILINE)
_NAME_ERROR = re.compile(r"^__nv_name_map\(\d+\): error: (.*)$", re.MULTILINE)
_INPUT = re.compile(r'Input name expression was: " ?(.*?)"')


_Description = tuple[bytes, dict[str, str]]
"""PTX with debug information, and the symbols of kernels by their names."""


def _read_file(
    file: File, target: Target, options: Options, key: str, keys: Mapping[str, str], cached: _Description | None
) -> tuple[File, _Description]:
    """Return a file and its declarations.

    Raises:
        CompileError: The file does not compile.
        SourceError: The file has no kernel of a configured name.
    """
    os.chdir("/")
    try:
        described = cached or _describe(file, target, options)
    except CompileError as error:
        log = str(error).partition("\n")[2]
        if _FILE_ERROR.search(log) is None and _NAME_ERROR.search(log):
            _refuse_name(file, log, keys)
        raise preconditions.not_compiled(
            file.item, target, options, file.folders, key, str(error), file.names
        ) from None
    ptx, symbols = described
    for name, symbol in symbols.items():
        if "_GLOBAL__N__" in symbol:
            message = (
                f"{keys[name]}: {name} of {file.item.name}, or a type that it names, is in a namespace without a "
                "name; move it out of the namespace"
            )
            raise SourceError(message)
    kernels = [symbols[name] for name in file.names]
    return replace(file, symbols=symbols, declared=declarations.read(ptx, kernels), ptx=ptx), described


def _describe(file: File, target: Target, options: Options) -> _Description:
    def describe(data: bytes) -> _Description:
        return nvrtc.describe_source(replace(file.item, data=data), target, options, file.folders, file.names)

    source = file.item.data
    try:
        ptx, symbols = describe(declarations.with_facts(source, file.names))
    except CompileError:  # the errors of the file alone are shorter
        ptx, symbols = describe(source)
    if found := declarations.enumerations(ptx, [symbols[name] for name in file.names]):
        with contextlib.suppress(CompileError):  # a macro may have the name of a member
            ptx = declarations.mark_signs(ptx, describe(declarations.with_signs(source, file.names, found))[0], found)
    return ptx, symbols


def _refuse_name(file: File, log: str, keys: Mapping[str, str]) -> NoReturn:
    """Raise the error for the first name that NVRTC refuses."""
    reason = _NAME_ERROR.findall(log)[0]
    refused = "".join((_INPUT.search(log) or [""] * 2)[1].split())
    name = next((name for name in keys if "".join(name.split()) == refused), next(iter(keys)))
    path, plain = file.item.name, _last_name(name)
    kernels = list(dict.fromkeys(_kernels_in(file.item.data)))
    if "which instance of function template" in reason and "<" in name:
        problem = f"does not fit {_template(file.item.data, plain)}in {path}; give as many arguments of the same kinds"
    elif "which instance of function template" in reason:
        problem = f'is a template in {path}; name its instances: instances = ["{name}<float>"]'
    elif "which instance of overloaded function" in reason:
        problem = f"is declared several times in {path}, for different types; give each another name"
    elif f'identifier "{plain}" is undefined' in reason or "has no member" in reason:
        hint = suggest.did_you_mean(plain, kernels, f"it has {', '.join(kernels) or 'none'}")
        problem = f"is not a kernel of {path}; {hint}"
    elif "non-__global__" in reason or "must form address" in reason:
        problem = f"is not a kernel of {path}, but something else; declare it __global__"
    else:
        problem = f"cannot be compiled by NVRTC from {path}: {reason}"
    message = f"{keys[name]}: {name} {problem}"
    raise SourceError(message)


def _template(text: bytes, name: str) -> str:
    """Return the head of a kernel's template, `template <class T, int N> `, if the text shows it."""
    pattern = rb"template\s*(<[^{};]*>)\s*(?=[^{};<>]*__global__[^{};]*\b%b\s*\()" % name.encode()
    match = re.search(pattern, text)
    return f"template {' '.join(match[1].decode(errors='replace').split())} " if match else "the template "


def _is_static(text: bytes, name: str) -> bool:
    """Return True if a text seems to define a kernel as `static`."""
    heads = re.findall(rb"([^;{}]*)\b%b\s*\([^;{}]*\)\s*\{" % name.encode(), text)
    return any({b"static", b"__global__"} <= {*head.split()} for head in heads)


def _file_of(unit: CppUnit, files: Sequence[File]) -> tuple[File, str]:
    """Return the file of a kernel, and its C++ name expression."""
    path, name = unit.file, unit.expression
    if not path:
        path, name = _find_kernel(unit.expression, {file.item.name: file.item.data for file in files}, unit.key)
    return next(file for file in files if file.item.name == path), name


def _kernel(unit: CppUnit, files: Sequence[File]) -> Declaration:
    file, name = _file_of(unit, files)
    declaration = file.declared.get(file.symbols[name])
    if declaration is None or not declaration.is_kernel:
        problem = f"{file.item.name} declares {name} and does not define it; give it a body there, without static"
        included = Headers([file.item], Path(file.item.folder or "/"), file.folders).names
        headers = {header: path.read_bytes() for header, path in included.items()}
        texts = {file.item.name: file.item.data, **headers}
        if path := next((path for path, text in texts.items() if _is_static(text, _last_name(name))), None):
            problem = f"{name} of {path} is static, so nothing outside of {file.item.name} can use it; remove static"
        message = f"{unit.signature_key}: {problem}"
        raise SourceError(message)
    return declaration


def _function(unit: CppUnit, files: Sequence[File]) -> CompiledFunction:
    """Return the declaration of an exported function.

    Raises:
        SourceError: No file defines it with C linkage.
        CompileError: One of its types differs between C and Numba.
    """
    file = next((file for file in files if unit.name in file.declared), None)
    declaration = file.declared[unit.name] if file is not None else None
    if file is None or declaration is None or declaration.is_kernel:
        paths = " and ".join(file.item.name for file in files)
        mangled = any(re.search(rf"^_Z\d+{unit.name}[a-zA-Z]", symbol) for file in files for symbol in file.declared)
        problem = (
            'only as a C++ function; write extern "C" before __device__' if mangled else "nowhere; define it there"
        )
        if declaration is not None or any(unit.name in _kernels_in(file.item.data) for file in files):
            problem = "as a kernel (__global__); list it under kernels"
        message = f'{unit.key}: {paths} defines the function extern "C" __device__ {unit.name} {problem}'
        raise SourceError(message)
    where = f"{unit.key}: {unit.name} of {file.item.name}:{declaration.line}"
    types = [_numba_type(item.type, f"{where}: parameter {item.name}") for item in declaration.parameters]
    result = "void" if declaration.result.text == "void" else _numba_type(declaration.result, f"{where}: the result")
    if declaration.is_variadic:
        if unit.signature:
            message = (
                f"{unit.key}.signature: {unit.name} takes any number of arguments (...), which no caller in Python can "
                "pass; remove the signature, or export a function with a fixed number"
            )
            raise CompileError(message)
        types.append("...")
    return CompiledFunction(
        ir=b"",
        signature=unit.signature or f"{result}({', '.join(types)})",
        result=_c_type(declaration.result),
        parameters=tuple((_c_type(item.type), item.name) for item in declaration.parameters),
        is_variadic=declaration.is_variadic,
    )


_NAMES = {form: "boolean" if name == "bool" else name for name, form in FORMATS.items() if name != "float16"}
"""Numba's types by `struct` character."""


def _numba_type(kind: CppType, where: str) -> str:
    """Return Numba's type for a C++ type.

    Raises:
        CompileError: C and Numba pass the type in different ways.
    """
    if kind.element is not None:
        element = kind.element
        number = _NAMES.get(element.form) if element.element is None and not element.is_complex else None
        return f"CPointer({number})" if number else "voidptr"
    if kind.form in _NAMES and not kind.is_complex:
        return _NAMES[kind.form]
    message = f"{where} is {kind.text}, which C and Numba pass in different ways; use a number or a pointer"
    raise CompileError(message)


def _c_type(kind: CppType) -> str:
    if kind.element is not None:
        element = kind.element
        text = (
            c_types.SCALARS.get(element.form, "void") if element.element is None and not element.is_complex else "void"
        )
        return f"{'const ' if element.constant else ''}{text} *"
    return c_types.SCALARS.get(kind.form, "void")
