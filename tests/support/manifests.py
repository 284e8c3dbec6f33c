"""Write packaged modules as builds do, with images of the right layout and without code."""

from __future__ import annotations

import re
import shutil
import struct
from typing import TYPE_CHECKING, Any

from aotcuda import manifest as manifests

if TYPE_CHECKING:
    from pathlib import Path

_FATBIN_KINDS = {"ptx": 1, "sass": 2, "ltoir": 8}
_NUMBERS = "bool boolean int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64"
_SCALARS = dict(zip(_NUMBERS.split(), "??bBhHiIqQefd", strict=True))
_COMPLEX = {"complex64": "f", "complex128": "d"}


def image(target: str, payload: bytes = b"code of the image") -> tuple[dict[str, Any], bytes]:
    """Return an image's record and its entry in a fatbin; `target` is `sm_90` or `compute_75`."""
    kind = "sass" if target.startswith("sm_") else "ptx"
    number = int("".join(filter(str.isdigit, target)))
    payload += bytes(-len(payload) % 8)
    header = struct.pack("<HHIQQIIQQ16x", _FATBIN_KINDS[kind], 0x101, 64, len(payload), 0, 0, number, 0, 0)
    return image_record(target, kind, payload), header + payload


def image_record(arch: str, kind: str, data: bytes) -> dict[str, Any]:
    """Return the manifest's record of an image."""
    return {"arch": arch, "kind": kind, "bytes": len(data), "sha256": manifests.digest(data)}


def file(path: str, data: bytes) -> dict[str, Any]:
    """Return the manifest's record of a file in the data folder."""
    return {"path": path, "bytes": len(data), "sha256": manifests.digest(data)}


def fatbin(entries: list[bytes]) -> bytes:
    """Return a fatbin of entries."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def parameter(name: str, type_: str, offset: int, *, readonly: bool = False) -> tuple[dict[str, Any], int]:
    """Return a parameter of a Numba type in the layout of numba-cuda, and the offset after it."""
    record: dict[str, Any] = {"name": name, "type": type_}
    if match := re.fullmatch(r"Array\((\w+), (\d), '([CFA])'(, readonly=True)?\)", type_):
        element, ndim, layout, constant = match.groups()
        axes = [":"] * int(ndim)
        if layout != "A" and axes:
            axes[-1 if layout == "C" else 0] = "::1"
        type_, readonly = f"{element}[{','.join(axes)}]", bool(constant)
    if type_.startswith("("):
        members = []
        for index, member in enumerate(_split(type_[1:-1])):
            part, offset = parameter(f"{name}{index}", member, offset)
            members.append(part)
        return {**record, "kind": "tuple", "offset": members[0]["offset"], "members": members}, offset
    if type_.endswith("]"):
        return _array(record, type_, offset, readonly=readonly)
    if type_.endswith("*"):
        offset = _align(offset, 8)
        return {**record, "kind": "pointer", "offset": offset}, offset + 8
    if type_ in _COMPLEX:
        size = struct.calcsize(_COMPLEX[type_])
        offset = _align(offset, size)
        return {**record, "kind": "complex", "format": _COMPLEX[type_], "offset": offset}, offset + 2 * size
    size = struct.calcsize(_SCALARS[type_])
    offset = _align(offset, size)
    return {**record, "kind": "scalar", "format": _SCALARS[type_], "offset": offset}, offset + size


def overload(
    signature: str, symbol: str, *, readonly: tuple[str, ...] = (), names: str = "abcdefgh", **changes: object
) -> dict[str, Any]:
    """Return an overload of a signature such as `void(float32, float32[::1])`; `changes` replace its keys."""
    parameters = []
    offset = 0
    types = _split(signature.removeprefix("void(").removesuffix(")"))
    for name, type_ in zip(names, types, strict=False):
        record, offset = parameter(name, type_, offset, readonly=name in readonly)
        parameters.append(record)
    return {
        "signature": signature,
        "symbol": symbol,
        "parameters": parameters,
        "parameter_bytes": offset,
        "cooperative": False,
        "launch_bounds": [],
        "carveout": None,
        "resources": {},
        **changes,
    }


def kernel(name: str, *signatures: str, **changes: Any) -> dict[str, Any]:
    """Return a kernel with these signatures; `changes` go to each overload."""
    overloads = [overload(signature, f"{name}_{index}", **changes) for index, signature in enumerate(signatures)]
    return {"name": name, "origin": f"mypkg._kernels:{name}", "overloads": overloads}


def function(name: str) -> dict[str, Any]:
    """Return an exported device function."""
    return {
        "name": name,
        "origin": f"mypkg._kernels:{name}",
        "signature": "int32(int32, int32)",
        "abi": "c",
        "prototype": f"int32_t {name}(int32_t, int32_t)",
    }


def make(**changes: Any) -> dict[str, Any]:
    """Return the manifest of a module without kernels and functions; `changes` replace its keys."""
    return {
        "format": manifests.FORMAT,
        "floor": manifests.FLOOR,
        "generator": "aotcuda 0.1.0",
        "module": "mypkg.kernels",
        "frontend": "numba-cuda",
        "toolchain": {"cuda": "13.0"},
        "min_driver": "580.65",
        "load": "import",
        "fallback": "jit",
        "options": {},
        "files": {},
        "fatbins": [],
        "ltoir": [],
        "kernels": [],
        "functions": [],
        "callbacks": [],
        "handle": "cuda.core.ObjectCode",
        "linked": [],
        "function_links": [],
        "sources": [],
        **changes,
    }


def write(
    root: Path,
    kernels: list[dict[str, Any]],
    *,
    name: str = "mypkg.kernels",
    targets: tuple[str, ...] = ("sm_80", "sm_90", "compute_75"),
    functions: tuple[str, ...] = (),
    load: str = "import",
    editable: bool = False,
    data: bytes | None = None,
    other_targets: tuple[str, ...] | None = None,
    **changes: object,
) -> Path:
    """Write a packaged module under `root`, a folder for `sys.path`, and return its data folder.

    The module has a fatbin for each index that its overloads have. `data` replaces the first, `other_targets` are those
    of the others, and `changes` replace keys of the manifest. A target such as `compute_75@12.0` has another CUDA
    version than the toolchain.
    """
    *packages, module = name.split(".")
    folder = root.joinpath(*packages)
    folder.mkdir(parents=True, exist_ok=True)
    for depth in range(1, len(packages) + 1):
        root.joinpath(*packages[:depth], "__init__.py").touch()
    record = make(
        module=name,
        toolchain={"cuda": "13.0", "numba-cuda": "0.30.4"},
        load=load,
        fallback="error",
        kernels=kernels,
        functions=[function(name) for name in functions],
    )
    data_folder = folder / (module + manifests.FOLDER_SUFFIX)
    data_folder.mkdir(exist_ok=True)
    overloads = [overload for kernel in kernels for overload in kernel["overloads"]]
    for index in range(max((overload.get("fatbin", 0) for overload in overloads), default=-1) + 1):
        own = targets if other_targets is None or not index else other_targets
        images = [image(target.partition("@")[0], b"code of image %d" % index) for target in own]
        for (described, _), target in zip(images, own, strict=True):
            if "@" in target:
                described["cuda"] = target.partition("@")[2]
        binary = fatbin([entry for _, entry in images]) if data is None or index else data
        path = manifests.fatbin_name(index)
        (data_folder / path).write_bytes(binary)
        record["fatbins"].append({"file": file(path, binary), "images": [image for image, _ in images]})
    record.update(changes)
    text = manifests.dump(record)  # type: ignore[arg-type]
    (data_folder / manifests.FILE_NAME).write_bytes(text)
    # Python uses bytecode of the same second and size, though the text is new.
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    (folder / f"{module}.py").write_text(
        "# Generated by aotcuda 0.1.0 from [tool.aotcuda] in pyproject.toml; do not edit.\n"
        "import aotcuda as _aotcuda\n"
        "\n"
        f'__aotcuda__ = _aotcuda.load(__name__, manifest="{data_folder.name}/{manifests.FILE_NAME}", '
        f'sha256="{manifests.digest(text)}", load="{load}", editable={editable})\n'
        "__getattr__ = __aotcuda__.attribute\n"
        "__dir__ = __aotcuda__.names\n"
    )
    return data_folder


def _array(record: dict[str, Any], type_: str, offset: int, *, readonly: bool) -> tuple[dict[str, Any], int]:
    element, _, dimensions = type_[:-1].partition("[")
    axes = [axis for axis in dimensions.split(",") if axis]
    layout = "C" if axes[-1:] == ["::1"] else "F" if axes[:1] == ["::1"] else "A"
    if element in _COMPLEX:
        kind, size = "c", 2 * struct.calcsize(_COMPLEX[element])
    else:
        form = _SCALARS[element]
        kind = {"?": "b"}.get(form, "f" if form in "efd" else "u" if form.isupper() else "i")
        size = struct.calcsize(form)
    words = ["zero", "zero", "items", "itemsize", "data"]
    words += [f"shape{axis}" for axis in range(len(axes))] + [f"stride{axis}" for axis in range(len(axes))]
    offset = _align(offset, 8)
    record |= {
        "kind": "array",
        "offset": offset,
        "dtype": f"{'|' if size == 1 else '<'}{kind}{size}",
        "ndim": len(axes),
        "layout": layout if axes else "C",
        "readonly": readonly,
        "words": words,
    }
    return record, offset + 8 * len(words)


def _align(offset: int, size: int) -> int:
    return -(-offset // size) * size


def _split(types: str) -> list[str]:
    """Split a list of types at the commas outside of brackets."""
    items, depth, start = [], 0, 0
    for at, character in enumerate(types):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            items.append(types[start:at].strip())
            start = at + 1
    return [*items, types[start:].strip()] if types.strip() else []
