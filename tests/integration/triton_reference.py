"""Compile the variants of a project by Triton itself: `triton_reference.py PROJECT` prints keys and cubins as JSON."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CAPABILITIES = (80, 90)


def run(project: Path, folder: Path) -> list[tuple[str, int, str, str, bytes]]:
    """Return kernel, number of the variant, target, symbol and cubin of each variant; in another process."""
    environment = {
        **os.environ,
        "AOTCUDA_BUILDING": "1",  # sources in place get Triton itself
        "PYTHONPATH": os.pathsep.join([str(project), os.environ.get("PYTHONPATH", "")]),
        "TRITON_CACHE_DIR": str(folder / "cache"),
        "TRITON_DISABLE_LINE_INFO": "1",
    }
    command = [sys.executable, __file__, str(project)]
    text = subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout
    return [(*key, bytes.fromhex(cubin)) for *key, cubin in json.loads(text.splitlines()[-1])]


def main(project: Path) -> None:
    """Compile all variants."""
    found = []
    for path in sorted(project.rglob("*.variants.json")):
        content = json.loads(path.read_text())
        for name, kernel in content["kernels"].items():
            function = getattr(importlib.import_module(content["source"]), name)
            for number, variant in enumerate(kernel["variants"]):
                for capability in [int(target[3:]) for target in variant.get("arch", [])] or CAPABILITIES:
                    symbol, cubin = compile_variant(function, variant, capability)
                    found.append((name, number, f"sm_{capability}{'a' * (capability >= 90)}", symbol, cubin.hex()))
    print(json.dumps(found))


def compile_variant(function: Any, variant: dict[str, Any], capability: int) -> tuple[str, bytes]:
    """Compile a variant of a variants file by Triton itself; return its symbol and cubin."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    while not hasattr(function, "params"):
        function = function.fn  # below autotuners and heuristics
    types = iter(variant["types"])
    signature, values, hints = {}, {}, {}
    for at, parameter in enumerate(function.params):
        kind, _, hint = ("constexpr" if parameter.is_constexpr else next(types)).partition(":")
        if kind in ("constexpr", "none") or hint == "1":
            value = 1 if hint == "1" else variant["constexprs"].get(parameter.name)
            values[(at,)] = getattr(tl, value["dtype"]) if isinstance(value, dict) else value
            kind = "constexpr"
        elif hint:
            hints[(at,)] = [["tt.divisibility", 16]]
        signature[parameter.name] = kind
    options = {name: value for name, value in variant.items() if name not in ("types", "constexprs", "arch")}
    options = {"enable_fp_fusion": True} | options  # as aotcuda has it: newer releases warn without
    source = ASTSource(function, signature, values, hints)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return compiled.metadata.name, compiled.asm["cubin"]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
