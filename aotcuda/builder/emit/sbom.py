"""Write the software bill of materials of a wheel's GPU code: CycloneDX 1.6, for PEP 770.

https://github.com/CycloneDX/specification/blob/master/schema/bom-1.6.schema.json, https://peps.python.org/pep-0770/. It
has no time, no serial number and no path of the machine, so a second build writes the same file.

The components are the packaged modules, the linked files and modules, and the compilers, linkers and headers (which
include libraries of device code, such as libdevice); `dependencies` lists them for each module. The property
`aotcuda:role` has the kind of a component.
"""

from __future__ import annotations

import json
from contextlib import suppress
from importlib import metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aotcuda.builder.plan import toolkits
from aotcuda.version import __version__

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from aotcuda.builder.compile.job import BuiltModule, LinkedItem, Result
    from aotcuda.builder.plan.toolkits import Toolkit

FILE_NAME = "aotcuda.cdx.json"
"""The name of the file in a wheel, in the folder `sboms` of the metadata."""

RUN_TIME = "aotcuda"
"""The reference of the copy of the run time that a wheel may hold."""

_ROLE = "aotcuda:role"
_LONG = 100
"""Longer texts in the field `License` are full licence texts, not names."""


def make(
    modules: Mapping[str, Sequence[tuple[Result, BuiltModule]]],
    installed: Sequence[Toolkit],
    packages: Mapping[str, tuple[str, str]] = MappingProxyType({}),
) -> bytes:
    """Return the bill of materials of a build; `packages` has the distribution that each module of a pack is from."""
    components = {_ref(module): _component("library", _ref(module), module, "module") for module in modules}
    uses: dict[str, set[str]] = {}
    tools: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}  # modules have one toolchain, or a few
    for module, parts in modules.items():
        used = uses[_ref(module)] = set()
        for result, built in parts:
            used |= {_ref(item.module) for item in built.linked if item.module in modules}
            if (versions := tuple(result.toolchain.items())) not in tools:
                tools[versions] = list(_tool_components(result.toolchain, installed))
            for component in (*tools[versions], *_links(built.linked, modules), *_source(packages.get(module))):
                used.add(component["bom-ref"])
                components.setdefault(component["bom-ref"], component)
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [{"type": "application", "name": "aotcuda", "version": __version__}]},
        },
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(uses.get(ref, ()))} for ref in sorted(components)],
    }
    return _dump(document)


def with_run_time(bom: bytes) -> bytes:
    """Return a bill of materials with the copy of the run time that the wheel holds; every module uses it."""
    document = json.loads(bom)
    about = {"version": __version__, "purl": f"pkg:pypi/aotcuda@{__version__}"}
    licences = [{"license": {"id": "Apache-2.0"}}]
    copy = _component("library", RUN_TIME, "aotcuda", "run time", **about, licenses=licences)
    components = {item["bom-ref"]: item for item in (*document["components"], copy)}
    uses = {item["ref"]: {*item["dependsOn"]} for item in document["dependencies"]} | {RUN_TIME: set()}
    for ref in uses:
        if ref.startswith(_ref("")):
            uses[ref].add(RUN_TIME)
    document["components"] = [components[ref] for ref in sorted(components)]
    document["dependencies"] = [{"ref": ref, "dependsOn": sorted(uses[ref])} for ref in sorted(uses)]
    return _dump(document)


def _dump(document: object) -> bytes:
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _ref(module: str) -> str:
    return f"module:{module}"


def _component(kind: str, ref: str, name: str, role: str, **values: Any) -> dict[str, Any]:
    fields = {key: value for key, value in values.items() if value}
    return {"type": kind, "bom-ref": ref, "name": name, **fields, "properties": [{"name": _ROLE, "value": role}]}


def _tool_components(versions: Mapping[str, str], installed: Iterable[Toolkit]) -> Iterator[dict[str, Any]]:
    """Yield the compilers: distributions among a toolchain's versions, and the toolkit's."""
    for name, version in versions.items():
        try:
            about = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            continue  # a part of the toolkit, or Python
        if about["Version"] == version:
            yield _distribution_component(about, "application", "compiler")
    toolkit = next((item for item in installed if ".".join(map(str, item.cuda)) == versions["cuda"]), None)
    if toolkit is None:
        # The machine's own: no installed file has its licence; NVIDIA's page does (docs.nvidia.com/cuda/eula).
        version, terms = versions["cuda"], [{"license": {"name": "NVIDIA Software License Agreement"}}]
        ref = f"cuda-toolkit@{version}"
        yield _component("application", ref, "NVIDIA CUDA Toolkit", "compiler", version=version, licenses=terms)
    else:
        for item in toolkits.distributions(toolkit):
            yield _distribution_component(item.metadata, "application", "compiler")


def _links(items: Iterable[LinkedItem], modules: Container[str]) -> Iterator[dict[str, Any]]:
    """Yield the linked modules of other distributions, and the linked files."""
    for item in items:
        if item.module and item.module not in modules:
            yield _module_component(item.module)
        elif not item.module:
            hashes = [{"alg": "SHA-256", "content": item.sha256}]
            terms = [{"expression": item.licence}] if item.licence else []
            ref = f"file:{item.name}:{item.sha256[:16]}"
            yield _component("file", ref, item.name, "linked", hashes=hashes, licenses=terms)


def _source(package: tuple[str, str] | None) -> Iterator[dict[str, Any]]:
    """Yield the distribution that a pack's module is compiled from."""
    if package is None:
        return
    name, version = package
    purl = _purl(name, version)
    licences: list[dict[str, Any]] = []
    with suppress(metadata.PackageNotFoundError):  # it may be in another folder
        about = metadata.metadata(name)
        licences = _licences(about) if about["Version"] == version else []
    yield _component("library", purl, name, "source", version=version, purl=purl, licenses=licences)


def _module_component(name: str) -> dict[str, Any]:
    owners = metadata.packages_distributions().get(name.partition(".")[0], ())
    if not owners:
        return _component("library", _ref(name), name, "linked")
    return _distribution_component(metadata.metadata(min(owners)), "library", "linked")


def _distribution_component(about: metadata.PackageMetadata, kind: str, role: str) -> dict[str, Any]:
    """Return the component of a distribution. The argument is metadata, since each access parses the file again."""
    name, version = about["Name"], about["Version"]
    purl = _purl(name, version)
    return _component(kind, purl, name, role, version=version, licenses=_licences(about), purl=purl)


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{version.replace('+', '%2B')}"


def _licences(about: metadata.PackageMetadata) -> list[dict[str, Any]]:
    """Return the licences in a distribution's metadata."""
    if "License-Expression" in about:
        return [{"expression": about["License-Expression"]}]
    (text, *_) = about.get_all("License") or [""]
    if text and "\n" not in text and len(text) < _LONG and text != "UNKNOWN":
        return [{"license": {"name": text}}]
    classifiers = about.get_all("Classifier") or []
    names = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License :: ")]
    return [{"license": {"name": name}} for name in names]
