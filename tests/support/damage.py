"""Real files and manifests, damaged in every way that can be counted, and what `aotcuda inspect` says to each.

What may come of it: an answer, or exit status 1 and one line on standard error; from the run time's reader a manifest
that overloads can be made from, or a ManifestError. Whatever else it is counts as a traceback.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import random
import sys
import tempfile
import traceback
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aotcuda import manifest as manifests
from aotcuda.cli import main
from aotcuda.errors import AotcudaError, ManifestError
from aotcuda.runtime import driver
from aotcuda.runtime.arguments.overloads import OverloadTable
from aotcuda.runtime.images.choice import choose
from aotcuda.tools.inspect.collect import collect
from aotcuda.tools.inspect.table import render
from support import hostile, images, modules
from support import manifests as records

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 4000
_SIGNATURE = (
    "void(float32, float64[:,::1], complex64, (int32, float32[::1]), Array(int8, 2, 'F', readonly=True), bool, int64*)"
)


class Job(NamedTuple):
    """A piece of the damage: `what` says which, and it is number `start` to `stop` of it."""

    what: str
    start: int
    stop: int
    step: int = 1


class Outcome(NamedTuple):
    """Counts of outcomes, and tracebacks."""

    counts: Counter[str]
    tracebacks: list[str]


@functools.cache
def sources() -> dict[str, tuple[str, bytes]]:
    """By name, the suffix and content of the files that bits are flipped in."""
    code = ("sass", "sm_90", images.numba_cubin("sm_90"))
    ptx = ("ptx", "compute_75", images.numba_ptx("compute_75"))
    ltoir = images.pack([("ltoir", "sm_90", images.ltoir("axpy", "sm_90"))], "-compress-mode=size")
    listed = {"path": "functions.fatbin", "bytes": len(ltoir), "sha256": manifests.digest(ltoir)}
    image = {"arch": "sm_90", "kind": "ltoir", "bytes": len(images.ltoir("axpy", "sm_90")), "sha256": ""}
    manifest = hostile.text(files={"functions": listed}, ltoir=[image], functions=[hostile.function()])
    wheel = hostile.wheel(
        [
            ("mypkg/kernels.aotcuda/manifest.json", manifest),
            ("mypkg/kernels.aotcuda/functions.fatbin", ltoir),
            ("mypkg/kernels.py", manifests.digest(manifest).encode()),
        ]
    )
    return {
        "cubin": (".cubin", code[2]),
        "fatbin in Zstandard": (".fatbin", images.pack([code, ptx], "-compress-mode=size")),
        "fatbin in LZ4": (".fatbin", images.pack([code, ptx], "-compress-mode=speed", "-compress-all")),
        "wheel": (".whl", wheel),
        "manifest": (".json", manifests.dump(whole())),
    }


@functools.cache
def whole() -> manifests.Manifest:
    """Return a manifest with something under every key."""
    found, _ = modules.contents()
    parameters = records.overload(_SIGNATURE, "axpy")
    found["kernels"][1]["overloads"][0].update(  # type: ignore[typeddict-item]
        parameters=parameters["parameters"], parameter_bytes=parameters["parameter_bytes"]
    )
    found["kernels"][0]["overloads"][0]["raises"] = [
        {"code": 1, "exception": "ValueError", "arguments": "", "function": "f", "file": "f.py", "line": 3}
    ]
    found["kernels"][0]["overloads"][0]["resources"] = {
        "sm_90": {"registers": 8, "shared": 0, "local": None, "constant": 352}
    }
    found["callbacks"] = [{"setup": "mypkg:up", "teardown": None, "origin": "a.cu"}]
    found["toolchain"]["cuda"] = "13.0"
    found["handle"] = "cuda.core.ObjectCode"
    found["linked"] = [{"name": "a.cu", "symbols": ["scale", "plain"]}]  # no mangled ones: each takes a process
    found["function_links"] = [{"path": "link0_a.fatbin", "bytes": 3, "sha256": "0" * 64}]
    found["sources"] = [{"path": "mypkg/_kernels.py", "sha256": "0" * 64}]
    found["rebuild"] = {"table": {"arch": ["sm_90"]}, "names": {"mypkg.kernels": ["axpy"]}, "root": ".", "files": []}
    return found


def jobs(mutations: int) -> list[Job]:
    """All damage there is, in pieces: every bit, every length, and so many mutated manifests for either reader."""
    found = []
    for name, (_, data) in sources().items():
        found += _pieces(f"flipped bits of a {name}", 8 * len(data))
        found += _pieces(f"truncations of a {name}", len(data))
    found += _pieces("mutated manifests, inspected", mutations)
    found += _pieces("mutated manifests, read by the run time", mutations)
    return found


def _pieces(what: str, count: int) -> list[Job]:
    return [Job(what, start, min(start + _PIECE, count)) for start in range(0, count, _PIECE)]


def run(job: Job) -> Outcome:
    """Do it."""
    counts, tracebacks = Counter[str](), []
    with tempfile.TemporaryDirectory() as folder:
        for data, suffix in _inputs(job):
            try:
                outcome = _read(data) if job.what.endswith("run time") else _inspect(Path(folder), data, suffix)
            except BaseException:  # noqa: BLE001 (whatever it is, it must not happen)
                outcome = "tracebacks"
                tracebacks.append(traceback.format_exc())
            counts.update(["inputs", outcome])
    return Outcome(counts, tracebacks)


def _inputs(job: Job) -> Iterator[tuple[bytes, str]]:
    numbers = range(job.start, job.stop, job.step)
    if job.what.startswith("mutated"):
        for number in numbers:
            yield mutated(number), ".json"
        return
    suffix, data = sources()[job.what.partition(" of a ")[2]]
    for number in numbers:
        if job.what.startswith("truncations"):
            yield data[:number], suffix
        else:
            damaged = bytearray(data)
            damaged[number // 8] ^= 1 << number % 8
            yield bytes(damaged), suffix


def _inspect(folder: Path, data: bytes, suffix: str) -> str:
    """Return what `aotcuda inspect` does, in this process; at times all of it, beginning with the command line."""
    path = folder / f"input{suffix}"
    if suffix == ".json":
        path = folder / "kernels.aotcuda" / "manifest.json"
        if not path.parent.exists():
            path.parent.mkdir()
            for name, content in modules.contents()[1].items():
                (path.parent / name).write_bytes(content)
    path.write_bytes(data)
    target = str(path.parent if suffix == ".json" else path)
    number = zlib.crc32(data)
    if number % 20 == 0:
        return _whole_command(target, ["--json"] if number % 40 else [])
    try:
        report = collect(target)
    except AotcudaError as error:
        return "errors" if str(error).isprintable() else "tracebacks"
    text = json.dumps(report.json()) if number % 2 else render(report)
    return "answers" if text.replace("\n", "").isprintable() else "tracebacks"


def _whole_command(target: str, form: list[str]) -> str:
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main(["inspect", *form, target])
    said = errors.getvalue()
    if status == 0:
        return "answers" if not said else "tracebacks"
    is_line = said.startswith("aotcuda: ") and said[-1] == "\n" and said[:-1].isprintable()
    return "errors" if status == 1 and is_line else "tracebacks"


def _read(data: bytes) -> str:
    """As the run time does: the manifest, which image a GPU would take, and the layouts of all overloads."""
    try:
        found = manifests.parse(data, "manifest.json")
        for kernel in found["kernels"]:
            OverloadTable(kernel, found["module"], driver.live_mark())
        choose(found, (9, 0), driver=(13, 0))
    except ManifestError as error:
        return "errors" if str(error).isprintable() else "tracebacks"
    return "answers"


_VALUES = (
    None, True, False, 0, -1, 1, 7, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, float("inf"),
    float("nan"), "", "x", "\ud800", "\udfff\ud800", "\x1b[2J", "a\nb", "\0", "../../x", "/", "x" * 5000, "\u202e",
    "sm_90", "sm_99999999999", "compute_", "ptx", "tuple", "array", "record", "datetime", "C", "zero", "<f4",
    [], {}, [[]], [None], {"": None}, {"name": "x"}, [{"name": 3}],
)  # fmt: skip


def mutated(seed: int) -> bytes:
    """Return a manifest with one to four changes to its shape or its values; at times to its bytes as well."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # what is nested so deeply that it cannot be read can be written all the same
    try:
        return _mutated(random.Random(seed))
    finally:
        sys.setrecursionlimit(limit)


def _mutated(chance: random.Random) -> bytes:
    value: Any = copy.deepcopy(whole())
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        value = _changed(value, chance)
    binary = bytearray(json.dumps(value, ensure_ascii=chance.random() < 0.9).encode(errors="surrogatepass"))
    if chance.random() < 0.1 and binary:
        for _ in range(chance.choice((1, 3))):
            binary[chance.randrange(len(binary))] = chance.choice(b'{}[]",:\\0e-+.\0\xff\xed 9')
    return bytes(binary)


def _changed(value: Any, chance: random.Random) -> Any:
    places = list(_places(value))
    if not places:
        return copy.deepcopy(chance.choice(_VALUES))
    # Keys of the manifest itself are few among all.
    holder, key = chance.choice(places if chance.random() < 0.7 else places[: len(value)])
    how = chance.randrange(9)
    if how < 4:
        holder[key] = copy.deepcopy(chance.choice(_VALUES))
    elif how == 4:
        del holder[key]
    elif how == 5:  # what belongs elsewhere
        other, at = chance.choice(places)
        holder[key] = copy.deepcopy(other[at])
    elif how == 6:
        holder[key] = chance.choice(([holder[key]], {"x": holder[key]}, [holder[key]] * 3))
    elif how == 7 and isinstance(holder, dict):
        holder[chance.choice(("x", "", "\ud800", key.upper(), key + " "))] = holder.pop(key)
    else:
        nested: Any = chance.choice(_VALUES[:5])
        for _ in range(chance.choice((3, 100, 700))):
            nested = [nested] if chance.random() < 0.5 else {"members": [nested], "kind": "tuple"}
        holder[key] = nested
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in it: the object or list, and the key; the outer ones first."""
    queue = [value]
    for holder in queue:
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            yield holder, key
            if isinstance(item, (dict, list)):
                queue.append(item)
