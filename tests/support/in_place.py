"""Write sources that are packaged in place, with images that have no code."""

from __future__ import annotations

import ast
import importlib
import re
from typing import TYPE_CHECKING, Any

from aotcuda import manifest as manifests
from support import manifests as generated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

package = "numba"
"""The package from which sources import `cuda`: `numba` for numba-cuda, or `numba_cuda_mlir`."""


def without(*packages: str) -> str:
    """Return code for an interpreter in which packages are not installed."""
    return f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


NO_NUMBA = without("numba", "numba_cuda", "numba_cuda_mlir", "_numba_cuda_redirector")


def named(text: str) -> str:
    """Return a message about `numba` with the name and the extra of `package`."""
    return re.sub(r"\bnumba\b", package, text.replace("jit-cu13", f"jit-{'mlir-' * (package != 'numba')}cu13"))


def write(
    root: Path,
    text: str,
    kernels: dict[str, tuple[str, ...]],
    *,
    name: str = "mypkg.solver",
    editable: bool = False,
    eager: tuple[str, ...] = (),
    values: Mapping[str, object] = {},
    more: Sequence[dict[str, Any]] = (),
    **changes: object,
) -> Path:
    """Write a source and the files of its build; return the data folder.

    Args:
        root: A folder of `sys.path`.
        text: The source.
        kernels: The signatures of each packaged kernel, by the name of its function.
        name: The module's name.
        editable: True for an editable install.
        eager: Kernels whose decorators name signatures.
        values: The values that kernels read during the build, by kernel.
        more: Records of other kernels.
        changes: Keys of the manifest.
    """
    text = text.replace("from aotcuda.numba import", f"from aotcuda.{package} import")
    lines = first_lines(text)
    records = []
    for kernel, signatures in kernels.items():
        record = generated.kernel(kernel, *signatures)
        record |= {"origin": f"{name}:{kernel}", "defined": f"{name}:{kernel}:{lines[kernel]}"}
        if kernel in values:
            record["values"] = values[kernel]
        if kernel not in eager:
            for overload in record["overloads"]:
                _make_exact(overload["parameters"])
        records.append(record)
    path = f"{name.replace('.', '/')}.py"
    listed = [{"path": path, "sha256": manifests.digest(text.encode())}]
    options: dict[str, Any] = {"name": name, "load": "first-use", "in_place": True, "sources": listed, **changes}
    folder = generated.write(root, [*records, *more], **options)
    (root / path).write_text(text)
    mark(folder, {name: folder / manifests.FILE_NAME}, editable=editable)
    return folder


def first_lines(text: str) -> dict[str, int]:
    """Return the first line of each function in a source, decorators included."""
    return {
        node.name: min([node.lineno, *(item.lineno for item in node.decorator_list)])
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    }


def mark(folder: Path, modules: dict[str, Path], *, editable: bool = False) -> None:
    """Write the mark of a source that is packaged in place, with the manifests of modules."""
    folder.mkdir(exist_ok=True)
    lines = [manifests.EDITABLE if editable else manifests.WHEEL]
    lines += [f"{name} {manifests.digest(path.read_bytes())}" for name, path in modules.items()]
    (folder / manifests.IN_PLACE).write_text("".join(f"{line}\n" for line in lines))
    importlib.invalidate_caches()


def _make_exact(parameters: list[dict[str, Any]]) -> None:
    for parameter in parameters:
        if parameter["kind"] in ("scalar", "complex"):
            parameter["exact"] = True
        _make_exact(parameter.get("members", []))
