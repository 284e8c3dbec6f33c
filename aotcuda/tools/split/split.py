"""`aotcuda split`: make a wheel for each architecture from one wheel for all, in two ways.

- Variant wheels (PEP 817, PEP 825, drafts): an installer that knows the GPU takes one of them in place of the full
  wheel. Each holds the machine code for one compute capability, and the PTX.
- Provider packages: a main wheel with the PTX alone, and a package with the machine code for each compute capability,
  which the run time finds (`aotcuda.runtime.images.parts`).

Both hold in their metadata folder what it takes to make the full wheel again, byte for byte.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, Any

from aotcuda.errors import BuildError
from aotcuda.manifest import PARTS, digest
from aotcuda.runtime.images import subset
from aotcuda.runtime.images.parts import FORMAT, PROVIDER
from aotcuda.tools import wheel_archive
from aotcuda.tools.split import archive, join, wheel
from aotcuda.tools.split.wheel import RESTORE, FullWheel, Module

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from aotcuda.arch import Target

_NAMESPACE, _FEATURE = "nvidia", "sm_arch"
_VARIANTS = {
    "$schema": "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json",
    "default-priorities": {"namespace": [_NAMESPACE]},
    "providers": {
        _NAMESPACE: {
            "plugin-api": "nvidia_variant_provider.plugin:NvidiaVariantPlugin",
            "requires": ["nvidia-variant-provider"],
        }
    },
}
"""The part of `variant.json` that all variants share: which provider plugin knows the GPU."""


def run(path: Path, out: Path | None) -> list[Path]:
    """Split a wheel; return the files that were written, in the folders `variants` and `providers` of `out`.

    Raises:
        TargetError: It is no wheel, was split already, has no machine code, or could not be made again.
        ManifestError: A manifest or an image in it is altered.
        BuildError: The files cannot be written.
    """
    full = wheel.read(path)
    restore = {
        "format": FORMAT,
        "wheel": path.name,
        "sha256": digest(full.data),
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "originals": {
            name: full.files[f"{full.folder}/{name}"].decode(errors="surrogateescape")
            for name in ("RECORD", "METADATA")
        },
        **archive.describe(full.data, str(path)),
    }
    base = out or path.parent
    written = []
    for name, make in (("variants", _variants), ("providers", _providers)):
        folder = base / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                message = f"{folder} is not empty; empty it, or name another folder: --out DIR"
                raise BuildError(message)
            files = make(full, {**full.files, f"{full.folder}/{RESTORE}": _dumped(restore)}, folder)
        except OSError as error:
            message = f"{folder} cannot be written ({error.strerror}); name another folder: --out DIR"
            raise BuildError(message) from error
        if parts := [file for file in files if file.suffix == ".whl"]:
            join.made(parts)  # raises if the full wheel does not come back
        written += files
    return written


def _variants(full: FullWheel, files: dict[str, bytes], folder: Path) -> list[Path]:
    """Write the variant wheels, and the file that an index has beside them."""
    capabilities = [each for each in full.capabilities if wheel.suits_variant(full.modules, each)]
    variants, written = {}, []
    for capability in capabilities:
        label = _label(capability)
        variants[label] = {_NAMESPACE: {_FEATURE: [f"{capability[0]}{capability[1]}_real"]}}
        held = [
            module.taken(capability)
            | {target for target in module.targets if target.kind == "ptx" or target.capability not in capabilities}
            for module in full.modules
        ]
        part = _part(full, files, held, variant=label)
        part[f"{full.folder}/variant.json"] = _dumped({**_VARIANTS, "variants": {label: variants[label]}})
        written.append(folder / f"{full.path.stem}-{label}.whl")
        wheel_archive.write(written[-1], part, full.infos, full.folder)
    if variants:
        written.append(folder / f"{full.folder.removesuffix('.dist-info')}-variants.json")
        written[-1].write_bytes(_dumped({**_VARIANTS, "variants": variants}))
    return written


def _providers(full: FullWheel, files: dict[str, bytes], folder: Path) -> list[Path]:
    """Write the main wheel and the provider packages."""
    main = _part(full, files, [{one for one in module.targets if one.kind == "ptx"} for module in full.modules])
    main[f"{full.folder}/METADATA"] = _with_extras(full)
    written = [folder / full.path.name]
    wheel_archive.write(written[0], main, full.infos, full.folder)
    for capability in full.capabilities:
        name = _provider(full, capability)
        package = name.replace("-", "_")
        modules, parts = {}, {}
        for module in full.modules:
            if taken := module.taken(capability):
                file = f"{module.manifest['module']}.fatbin"
                parts[f"{package}/{file}"], held = _fatbin(full, module, taken, file)
                modules[module.manifest["module"]] = {**held, "whole": module.manifest["files"]["kernels"]["sha256"]}
        about = f"Machine code of {full.name} {full.version} for compute capability {_dotted(capability)}"
        parts[f"{package}/__init__.py"] = f'"""{about}."""\n'.encode()
        parts[f"{package}/{PROVIDER}"] = _dumped({"format": FORMAT, "version": full.version, "modules": modules})
        version = full.folder.removesuffix(".dist-info").partition("-")[2]
        own = f"{package}-{version}.dist-info"
        for inside, data in full.files.items():  # the licences are those of the full wheel
            if inside.startswith(f"{full.folder}/licenses/") or inside == f"{full.folder}/WHEEL":
                parts[inside.replace(full.folder, own, 1)] = data
        parts[f"{own}/METADATA"] = _metadata(full, name, about)
        written.append(folder / f"{package}-{full.path.stem.partition('-')[2]}.whl")
        wheel_archive.write(written[-1], parts, {f"{own}/RECORD": full.infos[f"{full.folder}/RECORD"]}, own)
    return written


def _part(
    full: FullWheel, files: dict[str, bytes], held: Sequence[Collection[Target]], variant: str | None = None
) -> dict[str, bytes]:
    """Return the files of a wheel with some of the images of each module."""
    found = dict(files)
    for module, targets in zip(full.modules, held, strict=True):
        if len(targets) == len(module.targets):
            continue
        others = [target for target in module.targets if target not in targets]
        found[module.fatbin], described = _fatbin(full, module, targets, module.fatbin.rpartition("/")[2])
        found[f"{module.folder}/{PARTS}"] = _dumped(
            {
                "format": FORMAT,
                "package": full.name,
                "version": full.version,
                "variant": variant,
                "elsewhere": {str(one): None if variant else _provider(full, one.capability) for one in others},
                **described,
            }
        )
    return found


def _fatbin(full: FullWheel, module: Module, targets: Collection[Target], name: str) -> tuple[bytes, dict[str, Any]]:
    """Return a fatbin with some images of a module, and its description."""
    archs = [str(target) for target in module.targets if target in targets]
    data = subset.only([full.files[module.fatbin]], archs, f"{full.path}/{module.fatbin}")
    return data, {"images": archs, "kernels": {"path": name, "bytes": len(data), "sha256": digest(data)}}


def _with_extras(full: FullWheel) -> bytes:
    """Return the metadata of the main wheel: an extra for each provider package, pinned exactly."""
    lines = []
    known = full.metadata.get_all("Provides-Extra") or []
    for capability in full.capabilities:
        label = _label(capability)
        lines += [] if label in known else [f"Provides-Extra: {label}"]
        lines.append(f"Requires-Dist: {_provider(full, capability)}=={full.version}; extra == '{label}'")
    head, gap, body = full.files[f"{full.folder}/METADATA"].partition(b"\n\n")
    return head.rstrip(b"\n") + b"\n" + "\n".join(lines).encode() + (gap + body or b"\n")


def _metadata(full: FullWheel, name: str, summary: str) -> bytes:
    """Return the metadata of a provider package."""
    given = full.metadata
    kept = ("License-Expression", "License", "License-File", "Requires-Python")
    lines = [f"Metadata-Version: {given['Metadata-Version']}", f"Name: {name}", f"Version: {full.version}"]
    lines.append(f"Summary: {summary}")
    lines += [f"{key}: {value}" for key in kept for value in given.get_all(key) or []]
    return "\n".join([*lines, f"Requires-Dist: {full.name}=={full.version}", ""]).encode()


def _provider(full: FullWheel, capability: tuple[int, int]) -> str:
    return f"{re.sub(r'[-_.]+', '-', full.name).lower()}-kernels-{_label(capability)}"


def _label(capability: tuple[int, int]) -> str:
    return f"sm{capability[0]}{capability[1]}"


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _dumped(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
