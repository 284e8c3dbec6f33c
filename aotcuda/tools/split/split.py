"""`aotcuda split`: make a wheel for each architecture from one wheel for all, in two ways.

- Variant wheels (PEP 817, PEP 825, drafts): an installer that can query the GPU installs one of them in place of the
  full wheel. Each has the machine code for one compute capability, and the PTX.
- Provider packages: a main wheel with the PTX alone, and a package with the machine code for each compute capability,
  which the run time finds (`aotcuda.runtime.images.parts`).
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from aotcuda.errors import BuildError
from aotcuda.manifest import PARTS, digest
from aotcuda.runtime.images import subset
from aotcuda.runtime.images.parts import FORMAT, whole
from aotcuda.tools import wheel_archive
from aotcuda.tools.split import wheel

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from aotcuda.arch import Target
    from aotcuda.tools.split.wheel import FullWheel, Module

_VARIANTS = {
    "$schema": "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json",
    "default-priorities": {"namespace": ["nvidia"]},
    "providers": {
        "nvidia": {
            "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
            "requires": ["nvidia-variant-provider"],
        }
    },
}
"""The part that each `variant.json` has: the plugin with which installers query the GPU."""


class _Part(NamedTuple):
    """A wheel to write: its path, its files, and the folder of its metadata."""

    path: Path
    files: dict[str, bytes]
    metadata: str


def run(path: Path, out: Path | None) -> list[Path]:
    """Split a wheel into the folders `variants` and `providers` of `out`, and return the written files.

    Nothing is written before the wheel is checked and all parts are made.

    Raises:
        TargetError: It is not a wheel, was altered, was split already, or has no machine code.
        ManifestError: A manifest or an image in it is altered.
        ImageError: An image cannot be read.
        BuildError: The files cannot be written; neither folder has new files.
    """
    full, parent = wheel.read(path), out or path.parent
    variants, providers = parent / "variants", parent / "providers"
    parts, index = _variants(full, variants)
    parts += _providers(full, providers)
    return _write(full, (variants, providers), parts, index)


def _write(full: FullWheel, folders: Sequence[Path], parts: Sequence[_Part], index: Mapping[Path, bytes]) -> list[Path]:
    """Write the wheels and the index; after an error, remove what was written."""
    folder = folders[0]
    with ExitStack() as undo:
        try:
            for folder in folders:
                if not folder.is_dir():
                    folder.mkdir(parents=True)
                    undo.callback(shutil.rmtree, folder, ignore_errors=True)
                elif any(folder.iterdir()):
                    message = f"{folder} is not empty; empty it, or name another folder: --out DIR"
                    raise BuildError(message)
            for part in parts:
                folder = part.path.parent
                undo.callback(part.path.unlink, missing_ok=True)
                wheel_archive.write(part.path, part.files, full.wheel, part.metadata)
            for file, data in index.items():
                folder = file.parent
                undo.callback(file.unlink, missing_ok=True)
                file.write_bytes(data)
        except OSError as error:
            message = f"{folder} cannot be written ({error.strerror}); name another folder: --out DIR"
            raise BuildError(message) from error
        undo.pop_all()
    return [*(part.path for part in parts), *index]


def _variants(full: FullWheel, folder: Path) -> tuple[list[_Part], dict[Path, bytes]]:
    """Return the variant wheels, and the file that lists them for installers."""
    capabilities = [capability for capability in full.capabilities if full.has_variant(capability)]
    metadata = full.wheel.metadata
    variants, parts = {}, []
    for capability in capabilities:
        label = _label(capability)
        variants[label] = {"nvidia": {"sm_arch": [f"{capability[0]}{capability[1]}_real"]}}
        targets = [
            module.targets_for(capability)
            | {target for target in module.targets if target.kind == "ptx" or target.capability not in capabilities}
            for module in full.modules
        ]
        files = _files(full, targets, variant=label)
        files[f"{metadata}/{wheel.VARIANT}"] = _json({**_VARIANTS, "variants": {label: variants[label]}})
        parts.append(_Part(folder / f"{full.wheel.path.stem}-{label}.whl", files, metadata))
    index = folder / f"{metadata.removesuffix('.dist-info')}-variants.json"
    return parts, {index: _json({**_VARIANTS, "variants": variants})} if variants else {}


def _providers(full: FullWheel, folder: Path) -> list[_Part]:
    """Return the main wheel and the provider packages."""
    old_metadata = full.wheel.metadata
    main = _files(full, [{target for target in module.targets if target.kind == "ptx"} for module in full.modules])
    main[f"{old_metadata}/METADATA"] = _with_extras(full)
    parts = [_Part(folder / full.wheel.path.name, main, old_metadata)]
    version = old_metadata.removesuffix(".dist-info").rpartition("-")[2]
    for capability in full.capabilities:
        name = _provider_name(full, capability)
        package = name.replace("-", "_").replace(".", "_")
        metadata = f"{package}-{version}.dist-info"
        summary = (
            f"Machine code of {full.wheel.name} {full.wheel.version} for compute capability "
            f"{capability[0]}.{capability[1]}"
        )
        files = {f"{package}/__init__.py": f'"""{summary}."""\n'.encode()}
        for module in full.modules:
            if targets := module.targets_for(capability):
                files |= _image_files(full, module, targets, f"{package}/{module.manifest['module']}")
        files[f"{metadata}/METADATA"] = _metadata(full, name, summary)
        for inside, data in full.wheel.files.items():
            if inside.startswith(f"{old_metadata}/licenses/") or inside == f"{old_metadata}/WHEEL":
                files[inside.replace(old_metadata, metadata, 1)] = data
        path = folder / f"{package}-{full.wheel.path.stem.partition('-')[2]}.whl"
        parts.append(_Part(path, files, metadata))
    return parts


def _files(full: FullWheel, targets: Sequence[Collection[Target]], variant: str | None = None) -> dict[str, bytes]:
    """Return the files of a wheel that has, of each module in order, the images for one item of `targets`."""
    part = dict(full.wheel.files)
    for module, chosen in zip(full.modules, targets, strict=True):
        if len(chosen) < len(module.targets):
            part |= _image_files(full, module, chosen, module.folder, variant)
    return part


def _image_files(
    full: FullWheel, module: Module, targets: Collection[Target], folder: str, variant: str | None = None
) -> dict[str, bytes]:
    """Return the files for some images of a module: its fatbins, and their `parts.json`."""
    archs = [str(target) for target in module.targets if target in targets]
    written, files = {}, []
    for fatbin in module.manifest["fatbins"]:
        path, inside = fatbin["file"]["path"], f"{module.folder}/{fatbin['file']['path']}"
        kept = [image["arch"] for image in fatbin["images"] if image["arch"] in archs]
        data = subset.only([full.wheel.files[inside]], kept, f"{full.wheel.path}/{inside}")
        written[f"{folder}/{path}"] = data
        files.append({"path": path, "bytes": len(data), "sha256": digest(data)})
    others = [target for target in module.targets if target not in targets]
    description = {
        "format": FORMAT,
        "package": full.wheel.name,
        "version": full.wheel.version,
        "variant": variant,
        "module": module.manifest["module"],
        "whole": whole(module.manifest),
        "images": archs,
        "fatbins": files,
        "elsewhere": {str(other): None if variant else _provider_name(full, other.capability) for other in others},
    }
    return {**written, f"{folder}/{PARTS}": _json(description)}


def _with_extras(full: FullWheel) -> bytes:
    """Return the metadata of the main wheel: the full wheel's, and an extra for each provider package."""
    lines, extras = [], full.wheel.about.get_all("Provides-Extra") or []
    for capability in full.capabilities:
        label = _label(capability)
        lines += [] if label in extras else [f"Provides-Extra: {label}"]
        lines.append(f"Requires-Dist: {_provider_name(full, capability)}=={full.wheel.version}; extra == '{label}'")
    data = full.wheel.files[f"{full.wheel.metadata}/METADATA"]
    end = b"\r\n" if b"\r\n" in data else b"\n"
    head, gap, body = data.partition(end * 2)
    return head.rstrip(end) + b"".join([end + line.encode() for line in lines]) + (gap + body or end)


def _metadata(full: FullWheel, name: str, summary: str) -> bytes:
    """Return the metadata of a provider package; its licence is the full wheel's."""
    copied, about = ("License-Expression", "License", "License-File", "Requires-Python"), full.wheel.about
    lines = [
        f"Metadata-Version: {about['Metadata-Version']}",
        f"Name: {name}",
        f"Version: {full.wheel.version}",
        f"Summary: {summary}",
        *(f"{key}: {value}" for key in copied for value in about.get_all(key) or []),
        f"Requires-Dist: {full.wheel.name}=={full.wheel.version}",
    ]
    return "\n".join([*lines, ""]).encode()


def _provider_name(full: FullWheel, capability: tuple[int, int]) -> str:
    return f"{re.sub(r'[-_.]+', '-', full.wheel.name).lower()}-kernels-{_label(capability)}"


def _label(capability: tuple[int, int]) -> str:
    return f"sm{capability[0]}{capability[1]}"


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
