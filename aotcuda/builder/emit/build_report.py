"""Write the report of a build: seconds, bytes and hits of the build cache for each kernel and target."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aotcuda import manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aotcuda.builder.emit.built import Output

VERSION = 1


def render(built: Output) -> bytes:
    """Return the report as JSON.

    The seconds of a step that serves several kernels and targets are divided equally. The seconds of a unit from a
    shard are the shard's.
    """
    summary = built.summary
    units = _manifest_units(built.files)
    for step in summary.steps:
        for module, symbol, target in step.work:
            unit = units.setdefault(f"{module}.{symbol}", _unit(module, symbol, symbol, "", ""))
            entry = unit["targets"].setdefault(target, _target())
            entry["seconds"] += step.seconds / len(step.work)
            entry["cached"] |= step.cached
    for key, size in summary.code.items():
        name, _, target = key.rpartition(" ")
        units[name]["targets"].setdefault(target, _target())["bytes"] = size
    for unit in units.values():
        for entry in unit["targets"].values():
            entry["cached"] |= summary.whole
            entry["seconds"] = round(entry["seconds"], 4)
        unit["seconds"] = round(sum(entry["seconds"] for entry in unit["targets"].values()), 4)
    steps = sorted((step for step in summary.steps if not step.cached), key=lambda step: -step.seconds)
    report = {
        "version": VERSION,
        "seconds": round(summary.seconds, 3),
        "bytes": summary.size,
        "cache": {"reused": summary.reused, "made": summary.made, "whole": summary.whole},
        "units": [units[name] for name in sorted(units)],
        "images": _images(built.files),
        "steps": [{"title": step.title, "seconds": round(step.seconds, 4)} for step in steps],
    }
    return json.dumps(report, indent=1).encode() + b"\n"


def _unit(module: str, name: str, symbol: str, kind: str, signature: str) -> dict[str, Any]:
    return {
        "module": module,
        "name": name,
        "symbol": symbol,
        "kind": kind,
        "signature": signature,
        "seconds": 0.0,
        "targets": {},
    }


def _target() -> dict[str, Any]:
    return {"seconds": 0.0, "bytes": None, "cached": False}


def _manifests(files: Mapping[str, bytes]) -> list[manifest.Manifest]:
    return [manifest.parse(data, path) for path, data in files.items() if path.endswith(f"/{manifest.FILE_NAME}")]


def _manifest_units(files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Return the kernels and functions of the manifests, by module and symbol."""
    units: dict[str, dict[str, Any]] = {}
    for document in _manifests(files):
        module = document["module"]
        for kernel in document["kernels"]:
            for overload in kernel["overloads"]:
                image = document["fatbins"][overload.get("fatbin", 0)].get("name", "")
                symbol = f"{image}:{overload['symbol']}" if image else overload["symbol"]
                units[f"{module}.{symbol}"] = _unit(module, kernel["name"], symbol, "kernel", overload["signature"])
        for function in document["functions"]:
            name = function["name"]
            units[f"{module}.{name}"] = _unit(module, name, name, "function", function["signature"])
    return units


def _images(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [
        {"module": document["module"], "target": image["arch"], "kind": image["kind"], "bytes": image["bytes"]}
        for document in _manifests(files)
        for image in (*manifest.kernel_images(document), *document["ltoir"])
    ]
