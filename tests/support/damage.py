"""Damage real files and manifests at random, and read them with `aotcuda inspect` and the run time.

A reader may return a result, or raise an error of one line. Anything else is a fault.
"""

from __future__ import annotations

import copy
import functools
import json
import random
import sys
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any

from aotcuda import manifest as manifests
from aotcuda.errors import AotcudaError, ManifestError
from aotcuda.runtime import driver
from aotcuda.runtime.images.choice import choose
from aotcuda.runtime.launch.arguments.overloads import OverloadTable
from aotcuda.tools.inspect.collect import collect
from aotcuda.tools.inspect.table import render
from support import hostile, images, modules
from support import manifests as records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_SIGNATURE = (
    "void(float32, float64[:,::1], complex64, (int32, float32[::1]), Array(int8, 2, 'F', readonly=True), bool, int64*)"
)
_VALUES = (
    None, True, 0, -1, 7, 2**63, 2**64, 10**400, 0.5, float("inf"), float("nan"), "", "x", "\ud800", "\x1b[2J\n", "\0",
    "../../x", "x" * 5000, "\u202e", "sm_90", "sm_99999999999", "ptx", "tuple", "array", "record", "C", "<f4",
    [], {}, [[]], {"": None}, {"name": "x"}, [{"name": 3}],
)  # fmt: skip


@functools.cache
def sources() -> dict[str, bytes]:
    """Return real files by their suffixes: a fatbin with a cubin and PTX, a wheel, and a manifest."""
    code = [("sass", "sm_90", images.numba_cubin("sm_90")), ("ptx", "compute_75", images.numba_ptx("compute_75"))]
    manifest = hostile.text(functions=[hostile.function()])
    members = [(hostile.MANIFEST, manifest), ("mypkg/kernels.py", manifests.digest(manifest).encode())]
    return {
        ".fatbin": images.pack(code, "-compress-mode=none"),
        ".whl": hostile.wheel(members),
        ".json": manifests.dump(full_manifest()),
    }


@functools.cache
def full_manifest() -> manifests.Manifest:
    """Return a manifest with something under every key."""
    document, _ = modules.contents()
    parameters = records.overload(_SIGNATURE, "axpy")
    document["kernels"][1]["overloads"][0].update(  # type: ignore[typeddict-item]
        parameters=parameters["parameters"], parameter_bytes=parameters["parameter_bytes"]
    )
    document["kernels"][0]["overloads"][0]["raises"] = [
        {"code": 1, "exception": "ValueError", "arguments": "", "function": "f", "file": "f.py", "line": 3}
    ]
    document["kernels"][0]["overloads"][0]["resources"] = {
        "sm_90": {"registers": 8, "shared": 0, "local": None, "constant": 352}
    }
    document["callbacks"] = [{"setup": "mypkg:up", "teardown": None, "origin": "a.cu"}]
    document["toolchain"]["cuda"] = "13.0"
    document["handle"] = "cuda.core.ObjectCode"
    document["linked"] = [{"name": "a.cu", "symbols": ["scale", "plain"]}]  # no mangled ones: each takes a process
    document["function_links"] = [{"path": "link0_a.fatbin", "bytes": 3, "sha256": "0" * 64}]
    document["sources"] = [{"path": "mypkg/_kernels.py", "sha256": "0" * 64}]
    document["rebuild"] = {"table": {"arch": ["sm_90"]}, "names": {"mypkg.kernels": ["axpy"]}, "root": ".", "files": []}
    return document


def outcomes(suffix: str, seeds: Iterable[int], folder: Path) -> tuple[Counter[str], list[str]]:
    """Damage a file by each seed and read it. Return the counts of results, errors and faults, and their tracebacks."""
    path = folder / f"input{suffix}"
    if suffix == ".json":
        path = folder / "kernels.aotcuda" / "manifest.json"
        path.parent.mkdir()
        for name, content in modules.contents()[1].items():
            (path.parent / name).write_bytes(content)
    counts, tracebacks = Counter[str](), []
    for seed in seeds:
        data = mutate_manifest(seed) if suffix == ".json" and seed % 4 else damage(sources()[suffix], seed)
        path.write_bytes(data)
        try:
            if suffix == ".json":
                _load(data)
            report = collect(str(path.parent if suffix == ".json" else path))
            counts["results"] += 1
            assert (json.dumps(report.json()) if seed % 2 else render(report)).replace("\n", "").isprintable()
        except AotcudaError as error:
            counts["errors" if str(error).isprintable() else "faults"] += 1
        except BaseException:  # noqa: BLE001 (the oracle: nothing else may happen)
            counts["faults"] += 1
            tracebacks.append(f"seed {seed}: {traceback.format_exc()}")
    return counts, tracebacks


def _load(data: bytes) -> None:
    """Read a manifest, choose an image and make the overloads, as the run time does."""
    problem = ""
    try:
        document = manifests.parse(data, "manifest.json")
        for kernel in document["kernels"]:
            OverloadTable(kernel, document["module"], driver.new_validity_flag())
        choose(document, (9, 0), driver=(13, 0))
    except ManifestError as error:
        problem = str(error)
    assert problem.isprintable()


def damage(data: bytes, seed: int) -> bytes:
    """Return the data with one to ten flipped bits, or truncated. Half of the flips are in the headers at its ends."""
    chance = random.Random(seed)
    if seed % 3 == 0:
        return data[: chance.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 10))):
        edge = min(200, len(data))
        changed[chance.choice((chance.randrange(len(data)), chance.randrange(edge) - edge // 2))] ^= (
            1 << chance.randrange(8)
        )
    return bytes(changed)


def mutate_manifest(seed: int) -> bytes:
    """Return a manifest with one to four changes."""
    chance = random.Random(seed)
    value: Any = copy.deepcopy(full_manifest())
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # Python can write deeper JSON than it reads
    try:
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            _mutate(value, chance)
        return json.dumps(value, ensure_ascii=chance.random() < 0.9).encode(errors="surrogatepass")
    finally:
        sys.setrecursionlimit(limit)


def _mutate(value: Any, chance: random.Random) -> None:
    """Replace, remove, rename, move, repeat or nest one part of a manifest."""
    places = [*_places(value)]
    # The outermost keys are few among all.
    holder, key = chance.choice(places if chance.random() < 0.7 else places[: len(value)])
    action = chance.randrange(9)
    if action < 4:
        holder[key] = copy.deepcopy(chance.choice(_VALUES))
    elif action == 4:
        del holder[key]
    elif action == 5:
        source, place = chance.choice(places)
        holder[key] = copy.deepcopy(source[place])
    elif action == 6:
        holder[key] = chance.choice(([holder[key]], {"x": holder[key]}, [holder[key]] * 3))
    elif action == 7 and isinstance(holder, dict):
        holder[chance.choice(("x", "", "../x", "\ud800", key.upper()))] = holder.pop(key)
    else:
        nested: Any = None
        for _ in range(chance.choice((3, 100, 700))):
            nested = [nested] if chance.random() < 0.5 else {"members": [nested], "kind": "tuple"}
        holder[key] = nested


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place in JSON as its object or list with the key, the outer places first."""
    queue = [value]
    for holder in queue:
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            yield holder, key
            if isinstance(item, (dict, list)):
                queue.append(item)
