"""Record the kernels that this process launches; see `aotcuda record`.

Every Python process of a recorded command imports this module, so it does little: when the program imports the modules
of Numba and Triton that launch kernels, it patches them. It never imports Numba or Triton.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

FOLDER = "AOTCUDA_RECORD_FOLDER"
"""The environment variable that names the folder where the processes of a recorded command write."""

TARGET = "AOTCUDA_RECORD_DRY"
"""The environment variable with the target's properties as JSON; it is not set if launches are executed."""

TYPES = "AOTCUDA_RECORD_TYPES"
"""The environment variable with the project's named types as JSON."""

ROOTS = "AOTCUDA_RECORD_ROOTS"
"""The environment variable with the folders from which packages of the project are imported."""

HOME = "AOTCUDA_RECORD_HOME"
"""The environment variable with the user's home folder; `HOME` names another one if launches are not executed."""

environ = {name: os.environ.get(name, "") for name in (FOLDER, TARGET, TYPES, ROOTS, HOME)}
"""The variables at the start of the process; the program may change its environment before it imports Numba."""

_RECORDERS = {
    "numba.cuda.dispatcher": "numba_cuda",
    "numba_cuda_mlir.descriptor": "numba_cuda_mlir",
    "triton.runtime.autotuner": "triton",
    "triton.runtime.jit": "triton",
}
"""Modules to patch, and the modules of this package that record their launches."""

_DRY = {
    "cuda.core": "dry_libraries",
    "cupy": "dry_libraries",
    "numba.cuda.cudadrv.driver": "dry_libraries",
    "numba.cuda.cudadrv.nvvm": "dry_libraries",
    "numba.cuda.dispatcher": "dry_numba_cuda",
    "numba_cuda_mlir.descriptor": "dry_numba_cuda_mlir",
    "numba_cuda_mlir.numba_cuda.cudadrv.driver": "dry_libraries",
    "numba_cuda_mlir.numba_cuda.cudadrv.nvvm": "dry_libraries",
    "torch": "dry_libraries",
    "triton.runtime.autotuner": "dry_triton",
    "triton.runtime.driver": "dry_triton",
    "triton.runtime.jit": "dry_triton",
}
"""Modules to patch first if launches are not executed, and the modules of this package that patch them."""

_NVML = "pynvml"
"""The last part of the names of NVIDIA's module for NVML, and of copies in other packages."""

_AOTCUDA = os.path.abspath(os.path.join(__file__, *[os.pardir] * 5))
"""The folder of aotcuda."""

_patches: dict[str, list[str]] = {}
"""Modules to patch, and the modules of this package that patch them, in order."""


def start() -> None:
    """Begin to record, if `AOTCUDA_RECORD_FOLDER` names a folder."""
    folder = environ[FOLDER]
    if not os.path.isdir(folder):
        return
    os.close(os.open(os.path.join(folder, "started"), os.O_WRONLY | os.O_CREAT, 0o600))
    sys.meta_path[:0] = [
        own_module("common", "after_import").Finder(_patch_for),
        *([stand_in("cupy").Finder()] if environ[TARGET] else []),
    ]
    sys.path += [root for root in environ[ROOTS].split(os.pathsep) if root and root not in sys.path]  # after all others
    sys.excepthook = _record_end(sys.excepthook)
    for table in (_DRY, _RECORDERS) if environ[TARGET] else (_RECORDERS,):
        for name, patch in table.items():
            _patches.setdefault(name, []).append(patch)
    for name in _patches:  # a .pth file of the environment may have imported Numba already
        if name in sys.modules:
            _patch(name, sys.modules[name])


def _record_end(hook: Callable[..., object]) -> Callable[..., object]:
    """Wrap the hook for the exception that ends the program, to store a failed import."""

    def record(kind: type[BaseException], error: BaseException, trace: object) -> object:
        if isinstance(error, ImportError):
            from aotcuda_recorder import log  # noqa: PLC0415 (most programs do not fail)

            with log.guard("the exception that ended the program cannot be recorded"):
                item = {"kind": "import", "error": str(error), "name": error.name, "python": sys.executable}
                log.write_first({**item, "missing": isinstance(error, ModuleNotFoundError)})
        return hook(kind, error, trace)

    return record


def _patch_for(name: str) -> Callable[[ModuleType], None] | None:
    """Return the function that patches a module; None for a module that is not patched."""
    return (lambda module: _patch(name, module)) if _patches_of(name) else None


def _patch(module_name: str, module: ModuleType) -> None:
    import importlib  # noqa: PLC0415 (most processes launch nothing)

    from aotcuda_recorder import log  # noqa: PLC0415

    with log.guard(f"the launches of {module_name} cannot be recorded"):
        for name in _patches_of(module_name):
            importlib.import_module(f"aotcuda_recorder.{name}").patch(module)


def _patches_of(module_name: str) -> list[str]:
    """Return the modules of this package that patch a module."""
    if environ[TARGET] and module_name.rpartition(".")[2] == _NVML:
        return ["dry_libraries"]
    return _patches.get(module_name, [])


def own_module(package: str, name: str) -> Any:
    """Return a module of a package of aotcuda's, imported under another name: aotcuda may not be importable here."""
    import importlib.util  # noqa: PLC0415 (processes without a record need no module)

    alias = f"aotcuda_recorder.{package}"
    if alias not in sys.modules:
        folder = os.path.join(_AOTCUDA, package)
        spec = importlib.util.spec_from_file_location(
            alias, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        assert spec is not None  # noqa: S101 (it is a Python file)
        sys.modules[alias] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{alias}.{name}")


def stand_in(name: str) -> Any:
    """Return a module of `aotcuda.stand_ins`."""
    return own_module("stand_ins", name)
