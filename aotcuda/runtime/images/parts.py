"""Find the images of a module whose wheel was split: in its own wheel, and in provider packages.

`aotcuda split` leaves the manifest as it is, so a choice knows every image. It writes two files:

    mypkg/kernels.aotcuda/parts.json        the images that the wheel holds, and the provider packages of the others
    mypkg_kernels_sm90/provider.json        the images that a provider package holds, by module

An image that is not here gets the key `absent` in the manifest in memory: where it is, and the remedy.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.machinery import PathFinder

from aotcuda import manifest as manifests
from aotcuda.common.data_folder import PARTS
from aotcuda.errors import ManifestError
from aotcuda.runtime.images import subset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from aotcuda.manifest import File, Manifest

PROVIDER = "provider.json"
FORMAT = 1
"""The version of both files. Raise it when older readers would misread them."""

LARGEST = 1 << 20
"""The most bytes that one of these files may have."""

_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


class Parts:
    """The images of one module, and where they are.

    Attributes:
        kernels: The fatbin in the module's own data folder.
        faulty: The absent images whose absence is a fault of the installation: it has a variant for another GPU, or a
            provider package that does not belong to the wheel.
    """

    def __init__(self, data: bytes, folder: str, manifest: Manifest, root: str | None) -> None:
        """Read `parts.json`, look for provider packages, and mark the images in the manifest.

        Args:
            data: The content of `parts.json`.
            folder: The data folder.
            manifest: The module's manifest.
            root: The folder that holds the package; None looks for no provider package.

        Raises:
            ManifestError: A file is altered, or of a later format.
        """
        self.faulty: set[str] = set()
        self._held: dict[str, tuple[str, File]] = {}  # by target: the folder and the file of its fatbin
        absent: dict[str, str] = {}
        where = os.path.join(folder, PARTS)
        found = _parsed(data, where)
        try:
            self.kernels = self._hold(folder, found)
            answers: dict[str | None, tuple[str, bool]] = {}
            for target, name in found["elsewhere"].items():
                if name not in answers:
                    answers[name] = self._add(name, found, manifest, root) if name else (_of_variant(found), True)
                if target not in self._held:
                    absent[target], is_fault = answers[name]
                    self.faulty |= {target} if is_fault else set()
        except _MALFORMED:
            raise _altered(where) from None
        for image in manifest["images"]:
            if image["arch"] in self._held:
                inside, file = self._held[image["arch"]]
                image["path"] = os.path.join(inside, file["path"])
            else:
                image["absent"] = absent.get(image["arch"], "is missing; install the package again")

    def fatbin(self, manifest: Manifest) -> bytes:
        """Return a fatbin with the images that are here.

        Raises:
            ManifestError: A file is missing or altered.
        """
        files = {image["path"]: self._held[image["arch"]] for image in manifest["images"] if "path" in image}
        data = [manifests.read_file(*place) for place in files.values()]
        wanted = [image["arch"] for image in manifest["images"] if "path" in image]
        return subset.only(data, wanted, f"the fatbin of {manifest['module']}")

    def _hold(self, folder: str, part: Any) -> File:
        """Note the images of a fatbin in `folder`; return the fatbin's file."""
        given = part["kernels"]
        name = os.path.basename(given["path"])
        file: File = {"path": name, "bytes": int(given["bytes"]), "sha256": str(given["sha256"])}
        for target in part["images"]:
            self._held.setdefault(target, (folder, file))
        return file

    def _add(self, name: str, found: Any, manifest: Manifest, root: str | None) -> tuple[str, bool]:
        """Add the images of a provider package; return the reason if it has none, and whether that is a fault."""
        package, version = found["package"], found["version"]
        install = f"pip install {name}=={version}"
        if root is None:
            return f"is in {name}: {install}", False
        spec = PathFinder.find_spec(name.replace("-", "_"), [root, *sys.path])
        if spec is None or not spec.submodule_search_locations:
            return f"is in {name}, which is not installed: {install}", False
        folder = spec.submodule_search_locations[0]
        where = os.path.join(folder, PROVIDER)
        given = _parsed(manifests.content(where, LARGEST), where)
        try:
            if given["version"] != version:
                return f"is in {name} {given['version']}, and {package} is {version}: {install}", True
            module = given["modules"].get(manifest["module"])
            if module is None or module["whole"] != manifest["files"]["kernels"]["sha256"]:
                both = f"pip install --force-reinstall {package}=={version} {name}=={version}"
                return f"is in {name} {version}, which belongs to another build of {package} {version}: {both}", True
            self._hold(folder, module)
        except _MALFORMED:
            raise _altered(where) from None
        return "is missing; install the package again", True


def _of_variant(found: Any) -> str:
    package, version = found["package"], found["version"]
    return (
        f"is not in variant {found['variant']} of {package} {version}: install the variant for this GPU, or the wheel "
        f"for all, pip install --force-reinstall {package}=={version}"
    )


def _parsed(data: bytes, where: str) -> Any:
    """Return the content of a file of these formats."""
    try:
        found = json.loads(data)
        version = int(found["format"])
    except _MALFORMED:
        raise _altered(where) from None
    if version > FORMAT:
        message = (
            f"{where} has format {version}, newer than this aotcuda reads ({FORMAT}); upgrade it: "
            "pip install --upgrade aotcuda"
        )
        raise ManifestError(message)
    return found


def _altered(where: str) -> ManifestError:
    return ManifestError(f"{where} is not readable; it was truncated or altered. Install the package again.")
