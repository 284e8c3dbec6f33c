"""Describe packs: the packages of their kernels, and the index that `import mypack` reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aotcuda import manifest
from aotcuda.common import distributions as installed
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aotcuda.builder.config.model import Module


def origin(module: Module) -> manifest.Pack | None:
    """Return the package of a pack's module, in the process that compiled it; None if it is in no pack.

    Raises:
        ConfigError: No installed distribution has the source.
    """
    if not module.pack:
        return None
    (source,) = module.source
    distribution = installed.of_module(source)
    if distribution is not None:
        return {"source": source, "distribution": distribution.name, "version": distribution.version}
    message = f"{module.key}.source: {source} is in no installed distribution; install the package with pip"
    raise ConfigError(message)


def files(modules: Iterable[Module], built: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the index of each pack by its path in the wheel.

    Args:
        modules: The modules of the build.
        built: The files of the build, manifests included.
    """
    packs: dict[str, list[object]] = {}
    for name in sorted(item.name for item in modules if item.pack):
        data = built[f"{name.replace('.', '/')}{manifest.FOLDER_SUFFIX}/{manifest.FILE_NAME}"]
        document: manifest.Manifest = json.loads(data)
        kernels = {
            item["name"]: [item["origin"].partition(":")[2], item["digest"]]
            for item in document["kernels"]
            if "digest" in item
        }
        entry = {"module": name, **document["pack"], "triton": document["toolchain"]["triton"], "kernels": kernels}
        packs.setdefault(name.rpartition(".")[0], []).append(entry)
    return {
        f"{name.replace('.', '/')}/__init__{manifest.FOLDER_SUFFIX}/{manifest.PACK}": _index(modules)
        for name, modules in packs.items()
    }


def distributions(built: Mapping[str, bytes]) -> dict[str, tuple[str, str]]:
    """Return distribution and version of the source of each module of a pack, by the indexes in a build's files."""
    indexes = [
        json.loads(data) for path, data in built.items() if path.endswith(f"{manifest.FOLDER_SUFFIX}/{manifest.PACK}")
    ]
    return {item["module"]: (item["distribution"], item["version"]) for index in indexes for item in index["modules"]}


def _index(modules: list[object]) -> bytes:
    document = {"format": "aotcuda pack", "version": 1, "modules": modules}
    return (json.dumps(document, indent=1) + "\n").encode()
