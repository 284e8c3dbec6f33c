#!/usr/bin/env python3
"""Add up the sizes of the wheels that users download for each tool, with all that it requires.

    python bench/install_sizes.py --uv uv --wheel dist/aotcuda-0.1.0-cp311-abi3-linux_x86_64.whl

uv resolves the requirements for Linux x86-64 and Python 3.12, and installs nothing.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import tempfile
import tomllib
from pathlib import Path

RESULT = Path(__file__).parents[1] / "docs" / "results" / "install_sizes.json"

REQUIREMENTS = {
    "numba-cuda": "numba-cuda[cu13]",
    "triton": "triton\ntorch",
    "aotinductor": "torch",
    "warp": "warp-lang",
    "cupy": "cupy-cuda13x[ctk]",
    "kernels": "kernels\ntorch",
    "cuda.core": "cuda-core[cu13]\nnvidia-cuda-nvrtc",
    "cutile": "cuda-tile[tileiras]",
    "cute-dsl": "nvidia-cutlass-dsl",
    "flashinfer": "flashinfer-python\nflashinfer-cubin",
}
"""What users of a program with each tool install besides the program."""


def main() -> None:
    """Resolve each tool's requirements and write the sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uv", default="uv")
    parser.add_argument("--wheel", type=Path, required=True, help="aotcuda's own wheel")
    arguments = parser.parse_args()
    figures = {"aotcuda": {"packages": {arguments.wheel.name.split("-")[0]: [arguments.wheel.name.split("-")[1]]}}}
    figures["aotcuda"] |= {"bytes": arguments.wheel.stat().st_size}
    for name, requirements in REQUIREMENTS.items():
        figures[name] = measure(arguments.uv, requirements)
        print(name, figures[name]["bytes"] // 1_000_000, "MB")
    content = {
        "unit": "bytes of the downloaded files, for Linux x86-64 and Python 3.12",
        "day": str(dt.datetime.now(tz=dt.UTC).date()),
        "figures": figures,
    }
    RESULT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def measure(uv: str, requirements: str) -> dict[str, object]:
    """Return the packages that requirements bring, and the sum of their sizes."""
    platform = ("--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_28")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "requirements.txt").write_text(requirements, encoding="utf-8")
        command = (uv, "pip", "compile", "requirements.txt", *platform, "--format", "pylock.toml", "-q")
        lock = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    packages = tomllib.loads(lock)["packages"]
    sizes = {item["name"]: (item["version"], min(file["size"] for file in files(item))) for item in packages}
    return {
        "requirements": requirements.split("\n"),
        "bytes": sum(size for _, size in sizes.values()),
        "packages": sizes,
    }


def files(package: dict[str, list[dict[str, int]]]) -> list[dict[str, int]]:
    """Return the wheels of a package for the platform, or its sdist."""
    return package.get("wheels") or [package["sdist"]]  # type: ignore[list-item]


if __name__ == "__main__":
    main()
