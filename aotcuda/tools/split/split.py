"""`aotcuda split`: make a wheel for each architecture from one wheel for all, in two ways.

- Variant wheels (PEP 817, PEP 825, drafts): an installer that can query the GPU installs one of them in place of the
  full wheel. Each has the machine code for one compute capability, and the PTX.
- Provider packages: a main wheel with the PTX alone, and a package with the machine code for each compute capability,
  which the run time finds (`aotcuda.runtime.images.parts`).

The metadata folders of variants and main wheel hold the data to restore the full wheel, byte for byte.
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING

from aotcuda.errors import BuildError
from aotcuda.manifest import PARTS, digest
from aotcuda.runtime.images import subset
from aotcuda.runtime.images.parts import FORMAT
from aotcuda.tools import wheel_archive
from aotcuda.tools.split import archive, join, wheel
from aotcuda.tools.split.wheel import RESTORE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
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


def run(path: Path, out: Path | None) -> list[Path]:
    """Split a wheel into the folders `variants` and `providers` of `out`, and return the written files.

    After an error neither folder has files.

    Raises:
        TargetError: It is not a wheel, was split already, has no machine code, or could not be restored.
        ManifestError: A manifest or an image in it is altered.
        BuildError: The files cannot be written.
    """
    full, data = wheel.read(path), path.read_bytes()
    originals = {name: full.wheel.files[f"{full.wheel.metadata}/{name}"] for name in ("RECORD", "METADATA")}
    restore = {
        "format": FORMAT,
        "wheel": path.name,
        "sha256": digest(data),
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "originals": {name: content.decode(errors="surrogateescape") for name, content in originals.items()},
        **archive.describe(data, str(path)),
    }
    files = {**full.wheel.files, f"{full.wheel.metadata}/{RESTORE}": _json(restore)}
    parent, written = out or path.parent, []
    writers = ((parent / "variants", _write_variants), (parent / "providers", _write_providers))
    try:
        for folder, _ in writers:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                message = f"{folder} is not empty; empty it, or name another folder: --out DIR"
                raise BuildError(message)
        with ExitStack() as undo:
            for folder, write in writers:
                undo.callback(shutil.rmtree, folder, ignore_errors=True)
                paths = write(full, files, folder)
                if wheels := [path for path in paths if path.suffix == ".whl"]:
                    join.full_wheel(wheels)  # raises an error if the full wheel cannot be restored
                written += paths
            undo.pop_all()
    except OSError as error:
        message = f"{folder} cannot be written ({error.strerror}); name another folder: --out DIR"
        raise BuildError(message) from error
    return written


def _write_variants(full: FullWheel, files: dict[str, bytes], folder: Path) -> list[Path]:
    """Write the variant wheels, and the file that lists them for installers; return the files."""
    capabilities = [capability for capability in full.capabilities if full.has_variant(capability)]
    variants, written = {}, []
    for capability in capabilities:
        label = _label(capability)
        variants[label] = {"nvidia": {"sm_arch": [f"{capability[0]}{capability[1]}_real"]}}
        targets = [
            module.targets_for(capability)
            | {target for target in module.targets if target.kind == "ptx" or target.capability not in capabilities}
            for module in full.modules
        ]
        part = _part(full, files, targets, variant=label)
        part[f"{full.wheel.metadata}/variant.json"] = _json({**_VARIANTS, "variants": {label: variants[label]}})
        written.append(folder / f"{full.wheel.path.stem}-{label}.whl")
        wheel_archive.write(written[-1], part, full.wheel)
    if variants:
        written.append(folder / f"{full.wheel.metadata.removesuffix('.dist-info')}-variants.json")
        written[-1].write_bytes(_json({**_VARIANTS, "variants": variants}))
    return written


def _write_providers(full: FullWheel, files: dict[str, bytes], folder: Path) -> list[Path]:
    """Write the main wheel and the provider packages; return the files."""
    main = _part(
        full, files, [{target for target in module.targets if target.kind == "ptx"} for module in full.modules]
    )
    main[f"{full.wheel.metadata}/METADATA"] = _with_extras(full)
    written = [folder / full.wheel.path.name]
    wheel_archive.write(written[0], main, full.wheel)
    version = full.wheel.metadata.removesuffix(".dist-info").partition("-")[2]
    for capability in full.capabilities:
        name = _provider_name(full, capability)
        package = name.replace("-", "_")
        metadata = f"{package}-{version}.dist-info"
        written.append(folder / f"{package}-{full.wheel.path.stem.partition('-')[2]}.whl")
        summary = f"Machine code of {full.name} {full.version} for compute capability {capability[0]}.{capability[1]}"
        part = {f"{package}/__init__.py": f'"""{summary}."""\n'.encode()}
        for module in full.modules:
            if targets := module.targets_for(capability):
                part |= _image_files(full, module, targets, f"{package}/{module.manifest['module']}")
        part[f"{metadata}/METADATA"] = _metadata(full, name, summary)
        for inside, data in full.wheel.files.items():
            if inside.startswith(f"{full.wheel.metadata}/licenses/") or inside == f"{full.wheel.metadata}/WHEEL":
                part[inside.replace(full.wheel.metadata, metadata, 1)] = data
        wheel_archive.write(written[-1], part, full.wheel, metadata)
    return written


def _part(
    full: FullWheel, files: dict[str, bytes], targets: Sequence[Collection[Target]], variant: str | None = None
) -> dict[str, bytes]:
    """Return the files of a wheel that has, of each module in order, the images for one item of `targets`."""
    part = dict(files)
    for module, chosen in zip(full.modules, targets, strict=True):
        if len(chosen) < len(module.targets):
            part |= _image_files(full, module, chosen, module.folder, variant)
    return part


def _image_files(
    full: FullWheel, module: Module, targets: Collection[Target], folder: str, variant: str | None = None
) -> dict[str, bytes]:
    """Return the files for some images of a module: a fatbin, and its `parts.json`."""
    archs = [str(target) for target in module.targets if target in targets]
    kernels = module.manifest["files"]["kernels"]
    data = subset.only([full.wheel.files[module.fatbin]], archs, f"{full.wheel.path}/{module.fatbin}")
    others = [target for target in module.targets if target not in targets]
    description = {
        "format": FORMAT,
        "package": full.name,
        "version": full.version,
        "variant": variant,
        "module": module.manifest["module"],
        "whole": kernels["sha256"],
        "images": archs,
        "kernels": {"path": kernels["path"], "bytes": len(data), "sha256": digest(data)},
        "elsewhere": {str(other): None if variant else _provider_name(full, other.capability) for other in others},
    }
    return {f"{folder}/{kernels['path']}": data, f"{folder}/{PARTS}": _json(description)}


def _with_extras(full: FullWheel) -> bytes:
    """Return the metadata of the main wheel: the full wheel's, and an extra for each provider package."""
    lines, extras = [], full.about.get_all("Provides-Extra") or []
    for capability in full.capabilities:
        label = _label(capability)
        lines += [] if label in extras else [f"Provides-Extra: {label}"]
        lines.append(f"Requires-Dist: {_provider_name(full, capability)}=={full.version}; extra == '{label}'")
    head, gap, body = full.wheel.files[f"{full.wheel.metadata}/METADATA"].partition(b"\n\n")
    return head.rstrip(b"\n") + b"\n" + "\n".join(lines).encode() + (gap + body or b"\n")


def _metadata(full: FullWheel, name: str, summary: str) -> bytes:
    """Return the metadata of a provider package; its licence is the full wheel's."""
    copied = ("License-Expression", "License", "License-File", "Requires-Python")
    lines = [
        f"Metadata-Version: {full.about['Metadata-Version']}",
        f"Name: {name}",
        f"Version: {full.version}",
        f"Summary: {summary}",
        *(f"{key}: {value}" for key in copied for value in full.about.get_all(key) or []),
        f"Requires-Dist: {full.name}=={full.version}",
    ]
    return "\n".join([*lines, ""]).encode()


def _provider_name(full: FullWheel, capability: tuple[int, int]) -> str:
    return f"{re.sub(r'[-_.]+', '-', full.name).lower()}-kernels-{_label(capability)}"


def _label(capability: tuple[int, int]) -> str:
    return f"sm{capability[0]}{capability[1]}"


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
