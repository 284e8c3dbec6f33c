"""Refuse keys of `[tool.aotcuda]` that are valid alone and contradict each other.

All checks read a parsed configuration, and raise ConfigError with the keys that clash.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.builder.config import keys, rules
from aotcuda.builder.frontends import loading
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.builder.config.model import Config, Module, Options


def check(config: Config) -> None:
    """Run every check of this module, in the order of the file."""
    _check_options(f"{keys.ROOT}.options", config.options)
    _check_types(dict(config.types))
    _check_prelude(config)
    for module in config.modules:
        _check_options(f"{module.key}.options", module.options)
        _check_fma(module)
        _check_content(module)
        _check_links(module)
        loading.tables(config.frontend_of(module)).check(module)
        if is_in_place(module, config.frontend_of(module)):
            _check_in_place(module)
        if module.pack or module.pack_from:
            _check_pack(config, module)
    _check_module_names(config)
    _check_case(config.modules)
    _check_c_names(config.modules)
    _check_linked_modules(config)
    _check_function_names(config.modules)


def _check_options(key: str, options: Options) -> None:
    if options.debug and options.lineinfo:
        message = (
            f"{key}: debug and lineinfo are both true, and debug information has the line numbers already; "
            "set one of them to false"
        )
        raise ConfigError(message)


def _check_fma(module: Module) -> None:
    """Refuse fused multiply-adds in one kernel of a module that is linked without them."""
    for entry in (*module.kernels, *module.functions):
        if getattr(entry, "fma", None) and module.options.fma is False:
            message = (
                f"{entry.key}.fma: true, and fma is false in the options of {module.key}, which act on all of its "
                "code; leave fma out there, and write fma = false at the other kernels"
            )
            raise ConfigError(message)


def _check_types(types: Mapping[str, str]) -> None:
    """Refuse a name for a type whose definition contains the name, directly or through other names."""
    for start, text in types.items():
        if "/" in text:
            dotted = text.replace("/", ".").replace(".py:", ":")
            message = f"{keys.ROOT}.types.{start}: {keys.string(text)} has a path; write {keys.string(dotted)}"
            raise ConfigError(message)
        queue: list[tuple[str, ...]] = [(start,)]
        while queue:
            path = queue.pop()
            for name in rules.names_in_type(types[path[-1]]):
                if name == start:
                    message = (
                        f"{keys.ROOT}.types.{start}: it is made of itself ({' -> '.join([*path, start])}); define "
                        "one of them by another type"
                    )
                    raise ConfigError(message)
                if name in types and name not in path:
                    queue.append((*path, name))


def _check_prelude(config: Config) -> None:
    for module in config.modules:
        if module.name == config.prelude:
            message = (
                f"{keys.ROOT}.prelude: {keys.string(module.name)} is the module of {module.key}, which the build "
                "writes; name another module"
            )
            raise ConfigError(message)


def _check_content(module: Module) -> None:
    if not (module.functions or module.kernels or module.variants):
        message = (
            f"{module.key}: the module has neither functions nor kernels; aotcuda record --write -- COMMAND adds the "
            "kernels that COMMAND launches; or add one here, or remove the module"
        )
        raise ConfigError(message)
    functions = {function.name: function.key for function in module.functions}
    for kernel in module.kernels:
        if kernel.name in functions:
            message = f"{kernel.key}: the name is already used by {functions[kernel.name]}; rename one of them"
            raise ConfigError(message)


def _check_links(module: Module) -> None:
    keys_by_path: dict[str, str] = {}
    for item in module.link:
        name = item.path or item.module or ""
        path = posixpath.normpath(name)
        if path in keys_by_path:
            message = f"{item.key}: {keys.string(name)} is listed already as {keys_by_path[path]}; remove one of them"
            raise ConfigError(message)
        keys_by_path[path] = item.key


def is_in_place(module: Module, front_end: str) -> bool:
    """Return True if a module is packaged in place: its source launches the packaged kernels, nothing is generated.

    The module is its own source, or belongs to a pack. Only some front ends support it; see
    `aotcuda.registry.Registration.in_place`.
    """
    registration = registry.find(front_end)
    is_own = tuple(loading.tables(front_end).modules(module)) == (module.name,)
    return bool(registration and registration.in_place and (module.pack or is_own))


def _check_pack(config: Config, module: Module) -> None:
    sources = loading.tables(config.frontend_of(module)).modules(module)
    if not module.pack:
        problem = "it is for packs; write pack = true as well"
    elif len(sources) != 1 or sources[0].partition(".")[0] == module.name.partition(".")[0]:
        problem = "the source of a pack is one module of another package; remove pack, or name that module in source"
    elif "." not in module.name:
        problem = f'a pack is a package with an __init__.py; call the module "{module.name}.kernels"'
    elif config.runtime == "bundled":
        problem = 'packs use the installed run time; remove runtime = "bundled"'
    else:
        return
    message = f"{module.key}.{'pack' if module.pack else 'pack-from'}: {problem}"
    raise ConfigError(message)


def _check_module_names(config: Config) -> None:
    """Refuse a generated module that is a source, or a package of another module: it is a single file."""
    generated = [module for module in config.modules if not is_in_place(module, config.frontend_of(module))]
    for module in config.modules:
        sources = loading.tables(config.frontend_of(module)).modules(module)
        for other in generated:
            if other.name in sources:
                whose = "this very module" if other is module else f"the module of {other.key}"
                message = (
                    f"{module.key}.source: {keys.string(other.name)} is {whose}, which the build writes; name the "
                    "module that holds the Python functions"
                )
                raise ConfigError(message)
            for key, name in ((module.key, module.name), *((f"{module.key}.source", name) for name in sources)):
                if name.startswith(f"{other.name}."):
                    message = (
                        f"{key}: {keys.string(name)} needs a package {keys.string(other.name)}, but {other.key} makes "
                        "a single file of that name; rename one of them"
                    )
                    raise ConfigError(message)


def _check_case(modules: Sequence[Module]) -> None:
    """Refuse two modules, or packages of modules, whose names differ in case alone: some file systems ignore case."""
    found: dict[str, tuple[str, Module]] = {}
    for module in modules:
        parts = module.name.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            known, other = found.setdefault(name.casefold(), (name, module))
            if known != name:
                message = (
                    f"{module.key}: {keys.string(name)} and {keys.string(known)} of {other.key} differ in case alone, "
                    "and are one file on systems that ignore case (Windows, macOS); rename one of them"
                )
                raise ConfigError(message)


def _check_c_names(modules: Sequence[Module]) -> None:
    """Refuse two modules whose C headers would have one file name, or equal names in C but for case."""
    keys_by_name: dict[str, str] = {}
    for module in modules:
        name = module.name.replace(".", "_")
        if name.casefold() in keys_by_name:
            message = (
                f"{module.key}: its names in C begin with {name}_, as those of {keys_by_name[name.casefold()]}, so no "
                "program could include the headers of both; rename one of the modules"
            )
            raise ConfigError(message)
        keys_by_name[name.casefold()] = module.key


def _check_in_place(module: Module) -> None:
    """Check that each Python function of an in-place module represents one kernel."""
    keys_by_function: dict[str, str] = {}
    for kernel in module.kernels:
        python = getattr(kernel, "python", kernel.name)
        if python in keys_by_function:
            message = (
                f"{kernel.key}: {python} is packaged already, by {keys_by_function[python]}, and in place a function "
                "is one kernel; list the signatures of both under one of them"
            )
            raise ConfigError(message)
        keys_by_function[python] = kernel.key


def _check_linked_modules(config: Config) -> None:
    """Refuse modules that link each other in a circle: a module is built after those that it links."""
    modules = config.modules
    modules_by_name = {module.name: module for module in modules}
    for module in modules:
        for item in module.link:
            other = modules_by_name.get(item.module or "")
            if other is None:
                continue
            if other is module:
                message = (
                    f"{item.key}: {other.name} is this very module, whose kernels can call its functions already; "
                    "remove the item"
                )
                raise ConfigError(message)
            if not other.functions:
                front_end = config.frontend_of(other)
                message = (
                    f"{item.key}: {other.name} exports no device functions, so there is nothing to link; list them in "
                    f"{other.key}.functions, or remove the item"
                    if "functions" in loading.tables(front_end).SHAPES
                    else f"{item.key}: {other.name} is compiled by {front_end}, whose modules export no device "
                    "functions, so there is nothing to link; remove the item"
                )
                raise ConfigError(message)
            if module in all_linked(other, modules):
                direct = any(back.module == module.name for back in other.link)
                detour = "" if direct else ", by way of others,"
                message = (
                    f"{item.key}: {other.name}{detour} links {module.name} in its turn, so neither can be built first; "
                    "move the functions that both need into a third module"
                )
                raise ConfigError(message)


def all_linked(module: Module, modules: Sequence[Module]) -> list[Module]:
    """Return the modules of the wheel that `module` links, directly or through others."""
    modules_by_name = {item.name: item for item in modules}
    linked_modules: list[Module] = []
    queue = [module]
    while queue:
        for item in queue.pop().link:
            other = modules_by_name.get(item.module or "")
            if other is not None and other not in linked_modules:
                linked_modules.append(other)
                queue.append(other)
    return linked_modules


def _check_function_names(modules: Sequence[Module]) -> None:
    """Refuse two C ABI names that are equal: two modules of a wheel may be linked together."""
    keys_by_name: dict[str, str] = {}
    for module in modules:
        for function in module.functions:
            if function.name in keys_by_name:
                message = (
                    f"{function.key}: the C ABI name is already used by {keys_by_name[function.name]}, and modules of "
                    "a wheel may be linked together; rename one of them"
                )
                raise ConfigError(message)
            keys_by_name[function.name] = function.key
