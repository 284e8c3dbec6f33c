"""Find the images of a module whose wheel was split: in its own wheel, and in provider packages.

`aotcuda split` does not change the manifest, so a choice sees every image. Next to each fatbin with some of the
images, in a data folder and in a provider package, `parts.json` lists its images and the places of the others:

    mypkg/kernels.aotcuda/parts.json
    mypkg_kernels_sm90/mypkg.kernels/parts.json

Its list `fatbins` has the files in the order of the manifest's; some of them may have no image.

In memory, the manifest gets the key `absent` for each image that is not installed, with its place and the remedy.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import PathFinder

from ... import manifest as manifests
from ...common.data_folder import PARTS
from ...errors import ManifestError
from . import subset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...manifest import File, Manifest

FORMAT = 2
"""The version of the file. Raise it if older readers would misread the file."""

LARGEST = 1 << 20
"""The most bytes that the file may have."""


class Parts:
    """The images of one module, and their folders.

    Attributes:
        files: The fatbins in the module's own data folder, in the manifest's order.
        faulty: The absent images that a wrong installation lacks: the wheel is a variant for another GPU, or a provider
            package does not belong to the wheel.
    """

    def __init__(self, data: bytes, folder: str, manifest: Manifest, root: str | None) -> None:
        """Read `parts.json`, look for provider packages, and mark the images in the manifest.

        Args:
            data: The content of `parts.json`.
            folder: The data folder.
            manifest: The module's manifest.
            root: The folder with the package; None to skip the search for provider packages.

        Raises:
            ManifestError: A file is altered, or has a later format.
        """
        self.faulty: set[str] = set()
        self._places: dict[str, tuple[str, list[File]]] = {}  # by target: the folder and the files of its fatbins
        absent: dict[str, str] = {}
        part = _parse(data, os.path.join(folder, PARTS))
        self.files: list[File] = part["fatbins"]
        self._count = len(manifest["fatbins"])
        self._add_images(folder, part)
        problems: dict[str, tuple[str, bool]] = {}
        for target, name in part["elsewhere"].items():
            if name not in problems:
                problems[name] = self._add(name, part, root) if name else (_variant_problem(part), True)
            if target not in self._places:
                absent[target], is_fault = problems[name]
                self.faulty |= {target} if is_fault else set()
        for index, fatbin in enumerate(manifest["fatbins"]):
            for image in fatbin["images"]:
                if image["arch"] in self._places:
                    data_folder, files = self._places[image["arch"]]
                    image["path"] = os.path.join(data_folder, files[index]["path"])
                else:
                    image["absent"] = absent.get(image["arch"], "is missing; install the package again")

    def fatbin(self, manifest: Manifest, index: int) -> bytes:
        """Return one of the fatbins with the images that are installed.

        Raises:
            ManifestError: A file is missing or altered.
        """
        present = {item["path"]: item["arch"] for item in manifest["fatbins"][index]["images"] if "path" in item}
        places = [self._places[target] for target in present.values()]
        data = [manifests.read_file(folder, files[index]) for folder, files in places]
        targets = [image["arch"] for image in manifest["fatbins"][index]["images"] if "path" in image]
        return subset.only(data, targets, f"{manifest['fatbins'][index]['file']['path']} of {manifest['module']}")

    def _add_images(self, folder: str, part: Any) -> None:
        if len(part["fatbins"]) == self._count:
            for target in part["images"]:
                self._places.setdefault(target, (folder, part["fatbins"]))

    def _add(self, name: str, own_part: Any, root: str | None) -> tuple[str, bool]:
        """Add the images of a provider package; return the problem if it has none, and True if that is a fault."""
        package, version = own_part["package"], own_part["version"]
        install = f"pip install {name}=={version}"
        if root is None:
            return f"is in {name}: {install}", False
        spec = PathFinder.find_spec(name.replace("-", "_"), [root, *sys.path])
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        folder = os.path.join(*folders[:1], own_part["module"])
        where = os.path.join(folder, PARTS)
        if not folders or not os.path.lexists(where):
            return f"is in {name}, which is not installed: {install}", False
        part = _parse(manifests.content(where, LARGEST), where)
        if part["version"] != version:
            return f"is in {name} {part['version']}, and {package} is {version}: {install}", True
        if part["whole"] != own_part["whole"]:
            command = f"pip install --force-reinstall {package}=={version} {name}=={version}"
            return f"is in {name} {version}, which belongs to another build of {package} {version}: {command}", True
        self._add_images(folder, part)
        return "is missing; install the package again", True


def whole(manifest: Manifest) -> str:
    """Return the digest by which the parts of one build know each other."""
    return manifests.digest("".join(item["file"]["sha256"] for item in manifest["fatbins"]).encode())


def _variant_problem(part: Any) -> str:
    package, version = part["package"], part["version"]
    return (
        f"is not in variant {part['variant']} of {package} {version}: install the variant for this GPU, or the wheel "
        f"for all, pip install --force-reinstall {package}=={version}"
    )


def _parse(data: bytes, where: str) -> Any:
    """Return the content of `parts.json`; each value has its type."""
    try:
        content = json.loads(data)
        version = int(content["format"])
        if version <= FORMAT:
            texts = {key: str(content[key]) for key in ("package", "version", "variant", "module", "whole")}
            return {
                **texts,
                "images": list(map(str, content["images"])),
                "fatbins": [
                    {
                        "path": os.path.basename(file["path"]),
                        "bytes": int(file["bytes"]),
                        "sha256": str(file["sha256"]),
                    }
                    for file in content["fatbins"]
                ],
                "elsewhere": {target: str(name or "") for target, name in content["elsewhere"].items()},
            }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        message = f"{where} is not readable; it was truncated or altered. Install the package again."
        raise ManifestError(message) from None
    message = (
        f"{where} has format {version}, newer than this aotcuda reads ({FORMAT}); upgrade it: "
        "pip install --upgrade aotcuda"
    )
    raise ManifestError(message)
