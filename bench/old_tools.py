"""Compare a wheel with the tools of CUDA 12.0, which must assemble its PTX and read its fatbins.

    python bench/old_tools.py dist/*.whl --out docs/results/old_tools.json

The tools are ptxas and nvJitLink, installed from NVIDIA's wheels into a temporary folder. They read the same formats as
the drivers for CUDA 12.0 (525).

nvJitLink refuses each image, because images are linked already. The number in its error shows whether it could read the
fatbin: 2 means that it could not, and 3 that it could.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from machine import describe

from aotcuda.arch import parse
from aotcuda.binary import fatbin
from aotcuda.builder.link import nvfatbin
from aotcuda.builder.link.images import Image

TOOLS = ("nvidia-cuda-nvcc-cu12==12.0.*", "nvidia-nvjitlink-cu12==12.0.*")
PTX, FATBIN = 2, 4  # nvJitLinkInputType
KERNEL = """.version 8.0
.target sm_75
.address_size 64
.extern .func called();
.visible .entry k() { call called; ret; }
"""
FUNCTION = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .func called() { ret; }\n"


def install(folder: Path) -> None:
    """Install the tools into `folder`."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", folder, *TOOLS], check=True)


def assemble(ptxas: Path, text: bytes, arch: str, folder: Path) -> str:
    """Assemble PTX; return `assembled`, or the first line of ptxas's error."""
    source = folder / "image.ptx"
    source.write_bytes(text.rstrip(b"\0"))
    ptxas.chmod(0o755)
    done = subprocess.run(
        [ptxas, f"-arch={arch}", source, "-o", folder / "image.cubin"], capture_output=True, text=True, check=False
    )
    return "assembled" if done.returncode == 0 else (done.stderr or done.stdout).splitlines()[0]


class Linker:
    """Call nvJitLink 12.0. The names of its functions contain its version."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))

    def call(self, name: str, *arguments: object) -> int:
        return int(getattr(self.library, f"__nvJitLink{name}_12_0")(*arguments))

    def link(self, arch: str, *inputs: tuple[int, bytes]) -> str:
        """Link the inputs; return `linked`, or the error."""
        handle, options = ctypes.c_void_p(), (ctypes.c_char_p * 1)(f"-arch={arch}".encode())
        self.call("Create", ctypes.byref(handle), 1, options)
        try:
            for kind, data in inputs:
                if self.call("AddData", handle, kind, data, ctypes.c_size_t(len(data)), b"input"):
                    return self.log(handle)
            return self.log(handle) if self.call("Complete", handle) else "linked"
        finally:
            self.call("Destroy", ctypes.byref(handle))

    def log(self, handle: ctypes.c_void_p) -> str:
        size = ctypes.c_size_t()
        self.call("GetErrorLogSize", handle, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        self.call("GetErrorLog", handle, text)
        return text.value.decode().strip()


def pack_function(options: list[str]) -> bytes:
    """Return a fatbin with the PTX of a device function, packed with nvFatbin's `options`."""
    handle = nvfatbin.nvfatbin.create(options, len(options))
    text = FUNCTION.encode() + b"// " + b"x" * 4000 + b"\n\0"
    nvfatbin.nvfatbin.add_ptx(handle, text, len(text), "75", "called", "")
    data = bytearray(nvfatbin.nvfatbin.size(handle))
    nvfatbin.nvfatbin.get(handle, data)
    nvfatbin.nvfatbin.destroy(handle)
    return bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install(folder)
        ptxas = folder / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"
        linker = Linker(folder / "nvidia" / "nvjitlink" / "lib" / "libnvJitLink.so.12")
        linked = {
            label: linker.link("sm_75", (PTX, KERNEL.encode() + b"\0"), (FATBIN, pack_function(options)))
            for label, options in (("not compressed", ["-compress=false"]), ("LZ4", nvfatbin.LZ4))
        }
        results["a device function in a fatbin is linked"] = linked
        for wheel in arguments.wheels:
            results[wheel.name] = _read_wheel(wheel, ptxas, linker, folder)
    report = {**describe(), "tools": "CUDA 12.0: " + ", ".join(TOOLS), "results": results}
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


def _read_wheel(wheel: Path, ptxas: Path, linker: Linker, folder: Path) -> dict[str, object]:
    results: dict[str, object] = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith("/kernels.fatbin"):
                continue
            data = archive.read(name)
            outcomes = {}
            for entry in fatbin.read(data, name):
                if entry.kind == "ptx":
                    outcomes[entry.arch] = assemble(ptxas, entry.content, "sm_90", folder)
                elif entry.arch in {"sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90"}:  # the targets of CUDA 12.0
                    outcomes[entry.arch] = linker.link(entry.arch, (FATBIN, data))
            results[name] = outcomes
            results[f"{name}, packed with Zstandard"] = linker.link("sm_75", (FATBIN, repack(data, name)))
    return results


def repack(data: bytes, name: str) -> bytes:
    """Return a fatbin with the machine code of another one, packed as in wheels for CUDA 13."""
    entries = [entry for entry in fatbin.read(data, name) if entry.kind == "sass"]
    images = [Image(parse(entry.arch), entry.content, (13, 0), (13, 0)) for entry in entries]
    options = nvfatbin.options(image.cuda for image in images)
    return nvfatbin.join([nvfatbin.pack(name, options, image.target, image.data) for image in images])


if __name__ == "__main__":
    main()
