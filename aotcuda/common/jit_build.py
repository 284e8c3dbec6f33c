"""Declare the request and the result of a JIT build.

The run time makes a `Request`; the JIT cache is keyed by it, and `aotcuda.builder.entry.jit` builds it into a `Result`.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..manifest import File, Manifest

CUBIN = "kernels.cubin"


def cubin_name(index: int) -> str:
    """Return the name of the cubin of a fatbin in the manifest of a JIT build."""
    return f"kernels-{index}.cubin" if index else CUBIN


"""The file of a result's image."""


class Request(NamedTuple):
    """A request to the builder: a module's inputs, and one kernel for one signature, or all kernels.

    Attributes:
        module: The module's name.
        table: `[tool.aotcuda]`, as TOML has it.
        root: The folder that paths in the table are relative to.
        package_root: The folder that holds the package.
        names: The names in each module of the project's wheel; None for the names in the table.
        files: Paths of the files that the packaged images were built from; a wheel does not contain all of them.
        carried: The files in `root` that the wheel holds for the build, as its manifest lists them.
        kernel: The kernel to build; None for all kernels.
        signature: The kernel's argument types; None for the signatures in the table.
        capability: The GPU's compute capability; None before a GPU is chosen.
        driver: The CUDA version that the GPU's driver supports.
        image: The number of the only image to build, of a module with several; None for all images.
    """

    module: str
    table: dict[str, object]
    root: str
    package_root: str
    names: dict[str, list[str]] | None = None
    files: tuple[str, ...] = ()
    kernel: str | None = None
    signature: str | None = None
    capability: tuple[int, int] | None = None
    driver: tuple[int, int] = (0, 0)
    carried: tuple[File, ...] = ()
    image: int | None = None

    def case(
        self, kernel: str | None, signature: str | None, capability: tuple[int, int], driver: tuple[int, int]
    ) -> Request:
        """Return the request for a kernel with a signature on a GPU; None and None request the whole module."""
        return self._replace(kernel=kernel, signature=signature, capability=capability, driver=driver)

    @property
    def frontend(self) -> str:
        """Return the front end that the table names for the module; it may be unknown."""
        modules = self.table.get("modules")
        module = modules.get(self.module) if isinstance(modules, dict) else None
        frontend = module.get("frontend") if isinstance(module, dict) else None
        return str(frontend or self.table.get("frontend") or registry.DEFAULT)

    @property
    def is_project(self) -> bool:
        """Return True if the table comes from the pyproject.toml in `root`, on which the result then depends."""
        return self.names is None

    @property
    def target(self) -> str:
        """Return the GPU's target, `sm_90`; empty before a GPU is chosen."""
        return "sm_{}{}".format(*self.capability) if self.capability is not None else ""

    @property
    def record(self) -> dict[str, object]:
        """Return the request as the cache's entry stores it."""
        return {
            "format": 1,
            "module": self.module,
            "kernel": self.kernel,
            "signature": self.signature,
            "target": self.target,
            "image": self.image,
        }


class Result(NamedTuple):
    """The result of a JIT build.

    Attributes:
        manifest: The manifest, which lists what the result depends on.
        image: The cubins of all fatbins, one after the other.
        folder: The folder of its entry in the cache; empty if the cache has no entry.
    """

    manifest: Manifest
    image: bytes
    folder: str = ""

    @property
    def cubins(self) -> list[bytes]:
        """Return the cubin of each fatbin."""
        cubins, start = [], 0
        for fatbin in self.manifest["fatbins"]:
            end = start + fatbin["file"]["bytes"]
            cubins.append(self.image[start:end])
            start = end
        return cubins
