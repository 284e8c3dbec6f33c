"""Make a packaged module by hand from real images, to inspect and to damage it."""

from __future__ import annotations

import sys
import zipfile
from typing import TYPE_CHECKING, Any

from aotcuda import manifest
from support import images, manifests

if TYPE_CHECKING:
    from pathlib import Path

SASS = ("sm_75", "sm_90")
PTX = "compute_75"


def _kernel(name: str, **signatures: str) -> dict[str, Any]:
    """Return a kernel with a signature for each symbol, without parameters."""
    changes: dict[str, Any] = {"parameters": [], "parameter_bytes": 0, "launch_bounds": [0, 0, 0]}
    overloads = [manifests.overload(signature, symbol, **changes) for symbol, signature in signatures.items()]
    return manifests.kernel(name) | {"overloads": overloads}


def contents(name: str = "mypkg.kernels") -> tuple[Any, dict[str, bytes]]:
    """Return the manifest of a module with two kernels, one for two signatures, and a function, with its fatbins."""
    has_compilers = sys.platform != "win32"  # without them the images have no code
    kernel_images = [("sass", arch, images.numba_cubin(arch) if has_compilers else b"code") for arch in SASS]
    kernel_images.append(("ptx", PTX, images.numba_ptx(PTX) if has_compilers else b"code"))
    function_images = [("ltoir", arch, images.ltoir("axpy", arch) if has_compilers else b"code") for arch in SASS]
    fatbins = {
        key: images.pack(items, "-compress-mode=size") if has_compilers else b"code"
        for key, items in (("kernels", kernel_images), ("functions", function_images))
    }
    content = manifests.make(
        module=name,
        toolchain={"numba-cuda": "0.30.4", "nvjitlink": "13.0"},
        files={"functions": manifests.file("functions.fatbin", fatbins["functions"])},
        fatbins=[
            {
                "file": manifests.file("kernels.fatbin", fatbins["kernels"]),
                "images": [manifests.image_record(arch, kind, data) for kind, arch, data in kernel_images],
            }
        ],
        ltoir=[manifests.image_record(arch, kind, data) for kind, arch, data in function_images],
        kernels=[
            _kernel(
                "smooth", tiled="void(float32[::1], float32[::1])", scratch="void(float64[::1], float64[::1], int32)"
            ),
            _kernel("axpy", axpy="void(float32, float32[::1], float32[::1])"),
        ],
        functions=[
            manifests.function("add_i32") | {"origin": "mypkg._kernels:add", "prototype": "int add_i32(int x, int y);"}
        ],
    )
    return content, {f"{key}.fatbin": data for key, data in fatbins.items()}


def write(root: Path, content: manifest.Manifest, fatbins: dict[str, bytes]) -> Path:
    """Write a module below `root`, the folder with its package, and return its data folder."""
    base = root.joinpath(*content["module"].split("."))
    folder = base.with_name(f"{base.name}{manifest.FOLDER_SUFFIX}")
    folder.mkdir(parents=True)
    data = manifest.dump(content)
    (folder / manifest.FILE_NAME).write_bytes(data)
    for name, fatbin in fatbins.items():
        (folder / name).write_bytes(fatbin)
    base.with_name(f"{base.name}.py").write_text(f"raise RuntimeError('imported')\nSHA = {manifest.digest(data)!r}\n")
    return folder


def write_package(root: Path, *names: str) -> Path:
    """Write a package `mypkg` that must not be imported, with modules of these names, and return its folder."""
    for name in names or ("mypkg.kernels",):
        write(root, *contents(name))
    package = root / "mypkg"
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    return package


def write_wheel(root: Path, *names: str) -> Path:
    """Write the package as a wheel, and return its path."""
    write_package(root / "content", *names)
    wheel = root / "mypkg-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((root / "content").rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(root / "content"))
    return wheel
