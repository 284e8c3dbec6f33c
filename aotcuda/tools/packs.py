"""List the kernels that packs serve in this environment, and reasons against the others, for `check` and `doctor`.

This module, run as a script, imports the packages of a pack in a separate process.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from aotcuda.integrations.in_place.triton.pack_index import Packed

_SECONDS = 600
_MOST_SHOWN = 8


def status(name: str) -> dict[str, Any]:
    """Return the status of a pack as `--json` prints it: `problem`, and `kernels`, each with a reason if not served."""
    off = ("AOTCUDA_IN_PLACE", "AOTCUDA_BUILDING", "AOTCUDA_PACKS", "TRITON_INTERPRET")
    environ = {key: value for key, value in os.environ.items() if key not in off}
    with tempfile.TemporaryDirectory(prefix="aotcuda-packs-") as folder:
        out = Path(folder, "status.json")
        command = [sys.executable, "-W", "ignore", "-m", __name__, name, str(out)]
        try:
            done = subprocess.run(
                command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
            )
            found = json.loads(out.read_text(encoding="utf-8"))
        except subprocess.TimeoutExpired:
            found = {"problem": f"importing what it is for took more than {_SECONDS} s", "kernels": []}
        except (OSError, ValueError):
            text = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            found = {"problem": f"it cannot be looked at: {text or f'exit status {done.returncode}'}", "kernels": []}
    return {"pack": name, **found}


def render(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines on a pack: for each package the number of served kernels, and reasons for the others."""
    if found["problem"]:
        yield f"{found['pack']}: {found['problem']}"
    packages: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for kernel in found["kernels"]:
        key = tuple(str(kernel[name]) for name in ("distribution", "version", "triton", "installed"))
        packages.setdefault(key, []).append(kernel)
    for (distribution, version, triton, installed), kernels in packages.items():
        served = sum(kernel["reason"] is None for kernel in kernels)
        here = f"{distribution} {installed} is installed" if installed != "None" else f"{distribution} is not installed"
        yield (
            f"{found['pack']}: made from {distribution} {version} by Triton {triton}, and {here}: serves {served} of "
            f"{len(kernels)} kernels"
        )
        reasons: dict[str, list[str]] = {}
        for kernel in kernels:
            if kernel["reason"] is not None:
                reasons.setdefault(kernel["reason"], []).append(f"{kernel['source']}.{kernel['path']}")
        for reason, names in reasons.items():
            more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
            yield f"  not served: {', '.join(names[:_MOST_SHOWN])}{more}: {reason}"


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
    found = [
        packed for by_path in adoption.packaged_kernels().values() for items in by_path.values() for packed in items
    ]
    own = [packed for packed in found if packed.pack == name]
    problem = None if own else "its index is missing or damaged, or it has no kernels"
    return {"problem": problem, "kernels": [_kernel(packed) for packed in own]}


def _kernel(packed: Packed) -> dict[str, Any]:
    wanted = ("source", "path", "distribution", "version", "triton")
    described = {key: getattr(packed, key) for key in wanted}
    try:
        from aotcuda.integrations.in_place.triton import packs  # noqa: PLC0415 (it imports Triton)

        return {**described, "installed": packs.installed_version(packed), "reason": _reason(packed)}
    except Exception as error:  # noqa: BLE001 (of a foreign package)
        return {**described, "installed": None, "reason": f"{type(error).__name__}: {error}"}


def _reason(packed: Packed) -> str | None:
    """Return the reason for which a kernel is not served, or None."""
    from aotcuda.integrations.in_place.triton import bases, packs  # noqa: PLC0415 (as above)

    if not bases.is_installed:
        return "Triton is not installed"
    top = packed.source.partition(".")[0]
    try:
        value: Any = importlib.import_module(packed.source)
    except Exception as error:  # noqa: BLE001 (of a foreign package)
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == top
        return f"{top} is not installed" if is_missing else f"{packed.source} cannot be imported ({error})"
    for attribute in packed.path.split("."):
        value = getattr(value, attribute, None)
    while value is not None and not isinstance(value, bases.JITFunction):
        value = getattr(value, "fn", None)
    served = getattr(value, "_pack", None)
    if served is None:
        return "the installed package has no such kernel, or Triton is of a release that aotcuda does not know"
    return packs.problem(served.layers, packed)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(_examine(sys.argv[1])), encoding="utf-8")
