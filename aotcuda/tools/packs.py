"""List the kernels that a pack serves in this environment, and reasons against the others, for `check` and `doctor`.

A separate process imports the pack and its packages; this module is also the script of that process. Without a GPU, the
process sees the stand-ins of dry runs, since packages may use Triton only with a GPU: one of the pack's first target,
since globals of the packages may depend on the GPU.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from aotcuda import arch
from aotcuda.common import distributions, object_path
from aotcuda.gpus import BY_NUMBER
from aotcuda.manifest import kernel_targets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from aotcuda.integrations.in_place.triton.pack_index import Packed

_SECONDS = 600
"""The most seconds for the imports of a pack's packages."""

_MOST_NAMES = 8
"""The most names of kernels in a line."""


def status(name: str, manifests: Iterable[Any] = ()) -> dict[str, Any]:
    """Return the status of a pack as `--json` prints it: `problem`, and `kernels`, each with a reason if not served.

    Args:
        name: The pack.
        manifests: The manifests of modules; those of the pack name the GPU to stand in for, and describe the kernels of
            a pack that cannot be imported.
    """
    own = [item for item in manifests if "pack" in item and item["module"].rpartition(".")[0] == name]
    targets = [target for item in own for target in kernel_targets(item) if arch.parse(target).capability in BY_NUMBER]
    facts = _status(name, targets)
    if facts["problem"] and not facts["kernels"]:
        facts["kernels"] = list(_described(own, facts["problem"]))
    return facts


def _described(manifests: Iterable[Any], problem: str) -> Iterator[dict[str, Any]]:
    """Yield the facts of kernels by the manifests of a pack; none is served."""
    for manifest in manifests:
        pack = manifest["pack"]
        common = {"source": pack["source"], "distribution": pack["distribution"], "version": pack["version"]}
        triton = manifest["toolchain"].get("triton", "")
        for kernel in dict.fromkeys(item["name"] for item in manifest["kernels"]):
            yield {**common, "path": kernel, "triton": triton, "installed": None, "reason": problem}


def _stand_ins(folder: str, targets: list[str]) -> dict[str, str]:
    """Return variables that make the separate process see the stand-ins of dry runs, if there is no GPU."""
    from aotcuda.tools.record import dry, process  # noqa: PLC0415 (a GPU is queried only if there are packs)

    if dry.has_gpu():
        return {}
    return {
        **dry.choose({"arch": targets}, dry=True, gpu=None).environ,
        **process.injected_environment(),
        "AOTCUDA_RECORD_FOLDER": folder,
        "TRITON_CACHE_DIR": str(Path(folder, "triton")),
    }


def _status(name: str, targets: list[str]) -> dict[str, Any]:
    disabling = ("AOTCUDA_IN_PLACE", "AOTCUDA_BUILDING", "AOTCUDA_PACKS", "TRITON_INTERPRET")
    environ = {key: value for key, value in os.environ.items() if key not in disabling}
    with tempfile.TemporaryDirectory(prefix="aotcuda-packs-") as folder:
        out = Path(folder, "status.json")
        command = [sys.executable, "-W", "ignore", "-m", __name__, name, str(out)]
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": _SECONDS}
        try:
            done = subprocess.run(command, env={**environ, **_stand_ins(folder, targets)}, check=False, **options)
        except subprocess.TimeoutExpired:
            problem = f"the imports of its packages took more than {_SECONDS} s"
            return {"pack": name, "problem": problem, "kernels": []}
        if out.exists():
            return {"pack": name, **json.loads(out.read_text(encoding="utf-8"))}
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        return {"pack": name, "problem": f"the process that imports its packages failed: {reason}", "kernels": []}


def is_served(facts: dict[str, Any]) -> bool:
    """Return True if this environment gets all kernels of a pack."""
    return not facts["problem"] and all(kernel["reason"] is None for kernel in facts["kernels"])


def render(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the lines on a pack: for each package the number of served kernels, and reasons for the others."""
    if facts["problem"]:
        yield f"{facts['pack']}: {facts['problem']}"
    packages: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for kernel in facts["kernels"]:
        key = tuple(str(kernel[name]) for name in ("distribution", "version", "triton", "installed"))
        packages.setdefault(key, []).append(kernel)
    for (distribution, version, triton, installed), kernels in packages.items():
        served = sum(kernel["reason"] is None for kernel in kernels)
        version_here = "is not installed" if installed == "None" else f"{installed} is installed"
        yield (
            f"{facts['pack']}: made from {distribution} {version} by Triton {triton}, and {distribution} "
            f"{version_here}: serves {served} of {len(kernels)} kernels"
        )
        reasons: dict[str, list[str]] = {}
        for kernel in kernels:
            if kernel["reason"] is not None:
                reasons.setdefault(kernel["reason"], []).append(f"{kernel['source']}.{kernel['path']}")
        for reason, names in reasons.items():
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            yield f"  not served: {', '.join(names[:_MOST_NAMES])}{more}: {reason}"


def names(manifests: Iterable[Any]) -> list[str]:
    """Return the names of the packs of modules, by their manifests."""
    return sorted({item["module"].rpartition(".")[0] for item in manifests if "pack" in item})


def _examine(name: str) -> dict[str, Any]:
    """Return the status of a pack in this process."""
    from aotcuda.integrations.in_place.triton import adoption  # noqa: PLC0415 (only the separate process needs it)

    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 (the status reports it)
        return {"problem": f"it cannot be imported ({error})", "kernels": []}
    kernels = [
        _kernel(packed)
        for by_path in adoption.packaged_kernels().values()
        for items in by_path.values()
        for packed in items
        if packed.pack == name
    ]
    problem = None if kernels else "its index is missing or damaged, or it has no kernels"
    return {"problem": problem, "kernels": kernels}


def _kernel(packed: Packed) -> dict[str, Any]:
    """Return the facts of a packaged kernel as `--json` prints them."""
    description = {key: getattr(packed, key) for key in ("source", "path", "distribution", "version", "triton")}
    try:
        from aotcuda.integrations.in_place.triton import packs  # noqa: PLC0415 (it imports Triton)

        return {**description, "installed": packs.installed_version(packed), "reason": _reason(packed)}
    except Exception as error:  # noqa: BLE001 (code of another package)
        return {**description, "installed": None, "reason": f"{type(error).__name__}: {error}"}


def _reason(packed: Packed) -> str | None:
    """Return the reason that a kernel is not served, or None."""
    from aotcuda.integrations.in_place.triton import bases, packs  # noqa: PLC0415 (they import Triton)

    if not bases.is_installed:
        return "Triton is not installed"
    top = packed.source.partition(".")[0]
    try:
        for package in distributions.packages_to_import(packed.source):
            importlib.import_module(package)
        value: Any = importlib.import_module(packed.source)
    except Exception as error:  # noqa: BLE001 (code of another package)
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == top
        return f"{top} is not installed" if is_missing else f"{packed.source} cannot be imported ({error})"
    value = object_path.walk(value, object_path.split(packed.path))
    while value is not None and not isinstance(value, bases.JITFunction):
        value = getattr(value, "fn", None)
    served = getattr(value, "_pack", None)
    if served is None:
        return "the installed package has no such kernel, or Triton is of a release that aotcuda does not know"
    return packs.problem(served.layers, packed)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(_examine(sys.argv[1])), encoding="utf-8")
