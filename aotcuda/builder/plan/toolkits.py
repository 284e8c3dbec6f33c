"""Find the installed CUDA toolkits, and choose one for each image.

NVIDIA's wheels install toolkits below the folder `nvidia` of installed packages. The toolkits of CUDA 12 and CUDA 13
have different names and folders, so both may be installed (extra `wide`). The bindings use the libraries that a process
has loaded. A worker loads the libraries of one toolkit first (`aotcuda.builder.plan.toolchain.load`), so it uses no
other.

If no toolkit is complete, the bindings find the machine's own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aotcuda import gpus
from aotcuda.arch import Target
from aotcuda.common import gpu_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class _Layout(NamedTuple):
    """The places of libraries and headers in the wheels of one major version of CUDA, below `nvidia`.

    Attributes:
        home: The folder that stands in for a toolkit's folder; it has `nvvm/libdevice`.
        libraries: By name, the libraries that are loaded; nvFatbin may be missing, since JIT builds pack nothing.
        compiler: The distribution whose version is the toolkit's.
        linker: The distribution of nvJitLink, which may be newer.
    """

    home: str
    libraries: Mapping[str, str]
    include_dirs: tuple[str, ...]
    compiler: str
    linker: str
    others: tuple[str, ...]


_LAYOUTS: Mapping[int, _Layout] = {
    12: _Layout(
        home="cuda_nvcc",
        libraries={
            "nvrtc": "cuda_nvrtc/lib/libnvrtc.so.12",
            "nvvm": "cuda_nvcc/nvvm/lib64/libnvvm.so",
            "nvjitlink": "nvjitlink/lib/libnvJitLink.so.12",
            "nvfatbin": "nvfatbin/lib/libnvfatbin.so.12",
        },
        include_dirs=("cuda_runtime/include", "cuda_cccl/include", "cuda_nvcc/include"),
        compiler="nvidia-cuda-nvrtc-cu12",
        linker="nvidia-nvjitlink-cu12",
        others=(
            "nvidia-cuda-cccl-cu12",
            "nvidia-cuda-nvcc-cu12",
            "nvidia-cuda-runtime-cu12",
            "nvidia-nvfatbin-cu12",
        ),
    ),
    13: _Layout(
        home="cu13",
        libraries={
            "nvrtc": "cu13/lib/libnvrtc.so.13",
            "nvvm": "cu13/lib/libnvvm.so.4",
            "nvjitlink": "cu13/lib/libnvJitLink.so.13",
            "nvfatbin": "cu13/lib/libnvfatbin.so.13",
        },
        include_dirs=("cu13/include", "cu13/include/cccl"),
        compiler="nvidia-cuda-nvrtc",
        linker="nvidia-nvjitlink",
        others=("nvidia-cuda-cccl", "nvidia-cuda-runtime", "nvidia-nvfatbin", "nvidia-nvvm"),
    ),
}
_OPTIONAL = ("nvfatbin",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """A complete set of compilers among installed packages.

    Attributes:
        cuda: The CUDA version of its compilers, `(12, 9)`.
        linker: The version of nvJitLink.
        home: The folder that stands in for a toolkit's folder.
    """

    cuda: tuple[int, int]
    linker: tuple[int, int]
    home: str
    libraries: Mapping[str, str]
    include_dirs: tuple[str, ...]
    libdevice: str

    def links(self, target: Target) -> bool:
        """Return True if the toolkit makes images for a target."""
        return self.code_target(target) is not None

    def code_target(self, target: Target) -> Target | None:
        """Return the target to compile for a link for `target`; None if the toolkit makes no such images."""
        return code_target(target, self.cuda, self.linker)


def code_target(target: Target, cuda: tuple[int, int], linker: tuple[int, int]) -> Target | None:
    """Return the target that compilers of version `cuda` compile for, if `target` is linked; None if it cannot be.

    A newer linker may support a target that the compilers do not. LTOIR links for all later GPUs, so code for the
    nearest lower compute capability is linked. There is no such code for targets with a suffix.
    """
    if _supports(cuda, target):
        return Target("sass", target.major, target.minor, target.suffix)
    if target.suffix or not _supports(linker, target):
        return None
    lower = [row.number for row in gpus.CAPABILITIES if row.number < target.capability and not row.renamed]
    numbers = [number for number in lower if _supports_capability(number, cuda)]
    return Target("sass", *max(numbers)) if numbers else None


def _supports_capability(number: tuple[int, int], cuda: tuple[int, int]) -> bool:
    """Return True if a CUDA version supports a compute capability; CUDA 12 supports some that the table lacks."""
    row = gpus.BY_NUMBER.get(number)
    return row.known_to(cuda) if row is not None else number < gpus.CAPABILITIES[0].number and cuda < (13, 0)


def _supports(cuda: tuple[int, int], target: Target) -> bool:
    return target.capability >= gpus.FIRST_WITH[target.suffix] and _supports_capability(target.capability, cuda)


def installed(paths: Sequence[str] | None = None) -> tuple[Toolkit, ...]:
    """Return the complete toolkits among the packages in `paths` (default: `sys.path`), the oldest first."""
    complete = []
    for layout in _LAYOUTS.values():
        toolkits = (_toolkit(path, layout) for path in (sys.path if paths is None else paths) if path)
        if (match := next((toolkit for toolkit in toolkits if toolkit is not None), None)) is not None:
            complete.append(match)
    return tuple(complete)


def _toolkit(path: str, layout: _Layout) -> Toolkit | None:
    folder = Path(path, "nvidia")
    if not folder.is_dir():
        return None
    libraries = {name: str(folder / file) for name, file in layout.libraries.items() if (folder / file).is_file()}
    libdevice = folder / layout.home / "nvvm" / "libdevice" / "libdevice.10.bc"
    # A folder without compilers, as other packages need it for their libraries, is no toolkit.
    if not {*layout.libraries} - {*_OPTIONAL} <= libraries.keys() or not libdevice.is_file():
        return None
    versions = [_version(path, name) for name in (layout.compiler, layout.linker)]
    if None in versions:
        return None
    compiler, linker = (gpu_facts.pair(text) for text in versions if text is not None)
    return Toolkit(
        cuda=compiler,
        linker=linker,
        home=str(folder / layout.home),
        libraries=libraries,
        include_dirs=tuple(str(folder / name) for name in layout.include_dirs if (folder / name).is_dir()),
        libdevice=str(libdevice),
    )


def distributions(toolkit: Toolkit) -> list[metadata.Distribution]:
    """Return the installed distributions of a toolkit."""
    layout, path = _LAYOUTS[toolkit.cuda[0]], str(Path(toolkit.home).parents[1])
    names = (layout.compiler, layout.linker, *layout.others)
    matches = (next(iter(metadata.distributions(path=[path], name=name)), None) for name in names)
    return [distribution for distribution in matches if distribution is not None]


def _version(path: str, name: str) -> str | None:
    for distribution in metadata.distributions(path=[path], name=name):
        return distribution.version
    return None


def supported_by_driver(driver: tuple[int, int], toolkits: Iterable[Toolkit]) -> list[Toolkit]:
    """Return the toolkits whose machine code a driver for this CUDA version loads."""
    return [toolkit for toolkit in toolkits if toolkit.linker[0] <= driver[0]]


def choose(target: Target, toolkits: Sequence[Toolkit]) -> Toolkit | None:
    """Return the toolkit that makes the image for a target: the oldest possible, for the widest range of drivers.

    If no toolkit supports the target, return the first, whose worker reports the error; None if there are none.
    """
    return next((toolkit for toolkit in toolkits if toolkit.links(target)), toolkits[0] if toolkits else None)


def capabilities(toolkits: Iterable[Toolkit]) -> tuple[tuple[int, int], ...]:
    """Return the compute capabilities that any of `toolkits` builds for and no newer toolkit has dropped, in order."""
    items = list(toolkits)
    rows = [row.number for row in gpus.CAPABILITIES if row.is_current]
    return tuple(number for number in rows if any(item.links(Target("sass", *number)) for item in items))
