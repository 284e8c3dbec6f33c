"""Make CUDA toolkits of empty files, in the layout of NVIDIA's wheels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda.builder.plan import toolkits

if TYPE_CHECKING:
    from pathlib import Path


def toolkit(site: Path, major: int, version: str, *, linker: str = "", without: str = "") -> None:
    """Put a toolkit into the folder `site` of installed packages.

    Args:
        site: The folder.
        major: 12 or 13.
        version: The version of its compilers.
        linker: The version of nvJitLink, if it differs.
        without: A library that is missing.
    """
    layout = toolkits._LAYOUTS[major]
    files = [file for name, file in layout.libraries.items() if name != without]
    for file in (*files, f"{layout.home}/nvvm/libdevice/libdevice.10.bc"):
        path = site / "nvidia" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for folder in layout.include_dirs:
        (site / "nvidia" / folder).mkdir(parents=True, exist_ok=True)
    for name, number in ((layout.compiler, version), (layout.linker, linker or version)):
        about = site / f"{name.replace('-', '_')}-{number}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
