"""Link items and signatures for kernels of any compiler that call a module's packaged device functions."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from aotcuda import manifest as manifests
from aotcuda.manifest import linkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aotcuda.manifest import Callbacks, Function
    from aotcuda.runtime.device_function import Linkable


class Key:
    """The key of a compiler's type for the packaged functions of one name."""

    def __init__(self, name: str) -> None:
        self.name = name


class LinkCallbacks(NamedTuple):
    """The module's callbacks as the two functions of a link item, or None."""

    setup: Callable[[Any], None] | None
    teardown: Callable[[Any], None] | None


_link_items: dict[tuple[str, str], list[Any]] = {}
"""The results of `link_items`, by path of the module and name of the compiler's module."""


def link_items(module: Linkable, classes: Any) -> list[Any]:
    """Return the link items for calls of a module's functions; each call returns the same objects.

    Compilers link each object once.

    Args:
        module: The packaged module.
        classes: The compiler's module with the classes of `linkable.CLASSES`.

    Raises:
        ManifestError: A packaged file is missing or altered.
    """
    key = (module.path, classes.__name__)
    if key not in _link_items:
        folder, manifest = os.path.dirname(module.path), module.manifest
        functions, *dependencies = linkable.files_to_link(manifest, _linker())
        packaged = manifests.read_file(folder, functions)
        callbacks = link_callbacks(manifest["callbacks"])
        first = classes.Fatbin(
            packaged, name=module.name, setup_callback=callbacks.setup, teardown_callback=callbacks.teardown
        )
        # A build with this link item packages the names of the callbacks.
        first.aotcuda_callbacks = manifest["callbacks"]
        _link_items[key] = [first]
        for file in dependencies:
            item_class = getattr(classes, linkable.CLASS_NAMES[os.path.splitext(file["path"])[1]])
            _link_items[key].append(item_class(manifests.read_file(folder, file), name=f"{module.name} {file['path']}"))
    return _link_items[key]


def _linker() -> int:
    """Return the major CUDA version of this process's linker."""
    from cuda.bindings import nvjitlink  # noqa: PLC0415 (both compilers use it)

    major: int = nvjitlink.version()[0]
    return major


def link_callbacks(callbacks: Sequence[Callbacks]) -> LinkCallbacks:
    """Return functions that run callbacks once for each loaded image.

    Numba calls a link item's callbacks once for each function through which a kernel reaches the item.
    """
    if not callbacks:
        return LinkCallbacks(None, None)
    handles: set[int] = set()

    def call(kind: str, code: Any) -> None:
        from aotcuda.runtime.images.callbacks import find  # noqa: PLC0415 (ctypes is not needed before)

        for item in callbacks:
            if name := item[kind]:  # type: ignore[literal-required]
                find(name)(code)

    def setup(code: Any) -> None:
        if int(code.handle) not in handles:
            handles.add(int(code.handle))
            call("setup", code)

    def teardown(code: Any) -> None:
        if int(code.handle) in handles:
            handles.remove(int(code.handle))
            call("teardown", code)

    return LinkCallbacks(setup, teardown)


def callable_from(module: Linkable, records: Sequence[Function], compiler: str) -> list[Function]:
    """Return the records of functions with the calling convention of `compiler`.

    Raises:
        TypeError: No function has it: the module was built with another compiler, which passes complex numbers,
            arrays or tuples differently.
    """
    variadic = [record["name"] for record in records if record["signature"].endswith(", ...)")]
    if variadic:
        message = (
            f"{module.name}.{variadic[0]} takes any number of arguments (...), which no compiler of Python can pass; "
            "call it from CUDA C++"
        )
        raise TypeError(message)
    built_with = module.manifest["frontend"]
    if built_with == compiler:
        return list(records)
    alike = [record for record in records if not _differs(record["signature"])]
    if not alike:
        names = " and ".join(f"{module.name}.{record['name']}" for record in records)
        signatures = " and ".join(record["signature"] for record in records)
        message = (
            f"{names} cannot be called from a kernel of {compiler}: the module was built with {built_with}, which "
            f"passes the arguments or the result of {signatures} differently; use numbers and pointers"
        )
        raise TypeError(message)
    return alike


def _differs(signature: str) -> bool:
    """Return True if compilers pass an argument or the result of a signature differently."""
    signature = re.sub(r"(datetime|timedelta)64\[\w+\]", "int64", signature)
    # The arguments are in the last outer pair of brackets. A result that is a tuple has an outer pair, too.
    depth, begin = 0, 0
    for index, character in enumerate(signature):
        depth += (character == "(") - (character == ")")
        if character == "(" and depth == 1:
            begin = index
    result, arguments = signature[:begin], signature[begin:]
    return "Tuple(" in result or re.search(r"complex|\[|Array\(|Tuple\(", arguments) is not None


def signature_names(record: Function, from_dtype: Callable[[Any], Any]) -> tuple[str, Mapping[str, Any]]:
    """Return a signature as text to evaluate, and the types of its records by name.

    Signatures have records such as `Record(x: float32)`; the manifest has NumPy's description of each.
    """
    text, types = record["signature"], {}
    described = record.get("records", {})
    for number, name in enumerate(sorted(described, key=len, reverse=True)):
        import numpy as np  # noqa: PLC0415 (a compiler has imported it)

        types[f"aotcuda_record{number}"] = from_dtype(np.dtype(_descr(described[name])))
        text = text.replace(name, f"aotcuda_record{number}")
    # The names of these types in signatures differ from Numba's names.
    text = re.sub(r"\b(datetime|timedelta)64\[(\w+)\]", lambda found: f"NP{found[1].capitalize()}({found[2]!r})", text)
    return re.sub(r"\bbool\b", "boolean", text), types


def signature(record: Function, from_dtype: Callable[[Any], Any], types: Any, sigutils: Any) -> tuple[Any, Any]:
    """Return the argument types and the result type of a function, from a compiler's modules."""
    text, names = signature_names(record, from_dtype)
    # `sigutils` evaluates the text with fewer names. The manifest was checked against its digest.
    args, result = sigutils.normalize_signature(eval(text, {}, {**vars(types), **names}))  # noqa: S307
    return tuple(args), result


def _descr(described: Any) -> Any:
    """Return NumPy's form of a structured type from JSON, with tuples for lists."""
    if isinstance(described, list):
        inner, shape = described
        return (_descr(inner), tuple(shape))
    if isinstance(described, dict):
        return {**described, "formats": [_descr(item) for item in described["formats"]]}
    return described
