"""Compare two objects of `aotcuda inspect --json`, and find the changes that would break users of the old build.

A user of a module calls its kernels from Python, launches them from C++ by symbol and parameter block, links its device
functions, and has a GPU and a driver. A change breaks users if one of these worked with the old build and fails with
the new one. Changes of speed or size do not break users.
"""

from __future__ import annotations

import itertools
import json
import textwrap
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from aotcuda import arch, registry
from aotcuda.arch import Target
from aotcuda.common import gpu_facts
from aotcuda.common.foreign import escape
from aotcuda.errors import TargetError
from aotcuda.gpus import CAPABILITIES
from aotcuda.tools.check.gpus import Driver, Gpu
from aotcuda.tools.check.predict import predict
from aotcuda.tools.inspect.collect import collect
from aotcuda.version import is_older

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aotcuda.manifest import Manifest

VERSION = 1
_WIDTH = 100
_LONGEST = 40
"""The most characters of a value in the text output. Longer values are in the JSON output only."""

_RESOURCES = {"bytes": "bytes of code"} | {name: name for name in ("registers", "shared", "local", "constant")}
"""The compared numbers of a kernel in an image, with the text for each."""

_WITH_RULES = frozenset(["callbacks", "fallback", "floor", "format", "options", "recipe"])
"""Settings with rules of their own. Other settings are compared for equality."""

_KERNEL_KEYS = frozenset(
    ("abi", "cooperative", "fatbin", "images", "kind", "launch_bounds", "name", "origin", "parameter_bytes")
) | {"parameters", "prototype", "signature", "symbol"}
"""Keys of a kernel with rules of their own, and keys on which users do not depend. Others are compared for equality."""

_GPUS = [row for row in CAPABILITIES if row.renamed is None]


@dataclass(frozen=True)
class Change:
    """One change.

    Attributes:
        kind: The subject: `module`, `kernel`, `function`, `link`, `gpu`, `image`, `function image`, `driver`,
            `setting`, `toolchain`, `resources`, `size`.
        name: The name of a kernel, a target or a key.
        change: The change in words.
        breaks: True if code that uses the old build may fail with the new one.
        old: The old value; None for an addition.
        new: The new value; None for a removal.
    """

    kind: str
    name: str
    change: str
    breaks: bool = False
    old: Any = None
    new: Any = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.change}" if self.name else f"{self.kind}: {self.change}"


Difference = dict[str, list[Change]]
"""The changes of each module."""


def read(target: str) -> dict[str, Any]:
    """Return the object of `aotcuda inspect --json` for a wheel, an importable module or package, or a folder.

    Raises:
        TargetError: There is no such build, or it is an image without a manifest.
        ManifestError: A manifest, or a file that it names, is missing, truncated, altered or of a newer version.
        ImageError: An image cannot be read.
    """
    report = collect(target)
    for module in report.modules:
        if not module.facts:
            message = f"{module.where} is an image without a manifest to compare; name a wheel, module or folder"
            raise TargetError(message)
    return report.json()


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Difference:
    """Return the changes between two objects of `aotcuda inspect --json`."""
    before, after = ({module["name"]: module for module in side["modules"]} for side in (old, new))
    changes: Difference = {name: [] for name in sorted(before.keys() | after.keys())}
    for change in _added_and_removed("module", before, after):
        changes[change.name].append(change)
    for name in before.keys() & after.keys():
        for rule in (_kernels, _functions, _gpu_support, _images, _settings, _resources):
            changes[name] += rule(before[name], after[name])
    return changes


def problem(difference: Difference) -> str | None:
    """Return the breaking changes in one line; None if there are none."""
    breaking = [f"{name}: {change}" for name, changes in difference.items() for change in changes if change.breaks]
    if not breaking:
        return None
    more = f", and {len(breaking) - 1} more" if len(breaking) > 1 else ""
    return f"users of the old build would break: {breaking[0]}{more}"


def as_json(difference: Difference) -> dict[str, object]:
    """Return the object that `aotcuda diff --json` prints."""
    modules = [
        {"name": name, "breaks": any(change.breaks for change in changes), "changes": [*map(asdict, changes)]}
        for name, changes in difference.items()
    ]
    return {"version": VERSION, "breaks": problem(difference) is not None, "modules": modules}


def render(difference: Difference) -> str:
    """Return the text output, with breaking changes first, marked by `!`."""
    blocks = []
    for name, changes in difference.items():
        lines = [escape(name)]
        for change in sorted(changes, key=lambda change: not change.breaks):
            lines += textwrap.wrap(
                escape(str(change)),
                _WIDTH,
                initial_indent="  ! " if change.breaks else "    ",
                subsequent_indent=" " * 8,
                break_long_words=False,
            )
        blocks.append("\n".join(lines if changes else [*lines, "    no differences"]))
    return "\n\n".join(blocks)


def _added_and_removed(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for name in sorted(old.keys() - new.keys()):
        yield Change(kind, name, "removed", breaks=True)
    for name in sorted(new.keys() - old.keys()):
        yield Change(kind, name, "added")


def _changed(kind: str, prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """Yield a change for each key with another value."""
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        if was != now:
            texts = (_text(was), _text(now))
            text = "changed" if max(map(len, texts)) > _LONGEST else f"was {texts[0]} and is {texts[1]}"
            yield Change(kind, f"{prefix}{key}", text, old=was, new=now)


def _text(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)


def _symbols(module: Mapping[str, Any], kind: str) -> dict[str, list[Any]]:
    """Return the kernels, or the exported device functions, by name; linked foreign functions have no signature."""
    symbols: dict[str, list[Any]] = {}
    for symbol in module["symbols"]:
        if symbol["kind"] == kind and symbol["signature"] is not None:
            symbols.setdefault(symbol["name"], []).append(symbol)
    return symbols


def _overloads(module: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    return {(item["name"], item["signature"]): item for items in _symbols(module, "kernel").values() for item in items}


def _kernels(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    names = _symbols(before, "kernel"), _symbols(after, "kernel")
    yield from _added_and_removed("kernel", *names)
    front_end = registry.find(after["settings"]["frontend"])
    failure = "are compiled by the JIT fallback, or fail" if front_end is None or front_end.widens else "fail"
    old, new = _overloads(before), _overloads(after)
    targets = [{image["arch"] for image in _of(side, "kernels")} for side in (before, after)]
    for key in (key for key in old if key[0] in names[1] and key not in new):
        text = f"the signature is no longer packaged; such calls {failure}"
        yield Change("kernel", " ".join(key), text, breaks=True, old=key[1])
    for key in (key for key in new if key[0] in names[0] and key not in old):
        yield Change("kernel", " ".join(key), "the signature is added", new=key[1])
    for key in (key for key in old if key in new):
        name = " ".join(key)
        yield from _overload(name, old[key], new[key])
        had, has = ({image["arch"] for image in side[key]["images"]} for side in (old, new))
        for target in sorted((had - has) & targets[1]):
            reason = _reason(after, key[0], target)
            text = f"the image for {target} has lost it: {reason}; such calls {failure}"
            yield Change("kernel", name, text, breaks=True, new=reason)
        for target in sorted((has - had) & targets[0]):
            yield Change("kernel", name, f"the image for {target} has gained it", old=_reason(before, key[0], target))


def _reason(module: Mapping[str, Any], kernel: str, target: str) -> str:
    """Return the reason that the image for a target lacks a kernel."""
    items = module.get("left_out", ())
    return next((item["reason"] for item in items if (item["kernel"], item["target"]) == (kernel, target)), "unknown")


def _overload(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    if old["symbol"] != new["symbol"]:
        text = f"its symbol was {old['symbol']} and is {new['symbol']}; C++ that launches it by that name breaks"
        yield Change("kernel", name, text, breaks=True, old=old["symbol"], new=new["symbol"])
    layouts = [[*map(_layout, side["parameters"])] for side in (old, new)]
    if layouts[0] != layouts[1] or old["parameter_bytes"] != new["parameter_bytes"]:
        text = f"its parameter layout differs: {_first_difference(old, new)}"
        text += "; C++ code that fills its parameter block must be compiled again"
        yield Change("kernel", name, text, breaks=True, old=layouts[0], new=layouts[1])
    names = [[*_names(side["parameters"])] for side in (old, new)]
    if names[0] != names[1]:
        text = f"its parameters were called {', '.join(names[0])} and are called {', '.join(names[1])}"
        yield Change("kernel", name, text, old=names[0], new=names[1])
    if old["cooperative"] != new["cooperative"]:
        text = "it is no longer launched cooperatively"
        if new["cooperative"]:
            text = "it is launched cooperatively now, so its grid must fit the GPU at once"
        yield Change("kernel", name, text, breaks=new["cooperative"])
    bounds = (old["launch_bounds"], new["launch_bounds"])
    if bounds[0] != bounds[1]:
        was, now = map(_bound, bounds)
        text = f"its blocks had {was} threads at most, and have {now}" if was != now else "its launch bounds changed"
        yield Change("kernel", name, text, breaks=now < was, old=bounds[0], new=bounds[1])
    others = ({key: value for key, value in side.items() if key not in _KERNEL_KEYS} for side in (old, new))
    for change in _changed("kernel", "", *others):
        yield Change("kernel", name, f"its {change.name} {change.change}", old=change.old, new=change.new)


def _names(parameters: list[Any]) -> Iterator[str]:
    """Yield the names of parameters and of tuple members."""
    for parameter in parameters:
        yield parameter["name"]
        yield from _names(parameter.get("members", []))


def _layout(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter without names, since neither arguments nor memory depend on names."""
    layout = {key: value for key, value in parameter.items() if key != "name"}
    return layout | {"members": [*map(_layout, layout["members"])]} if "members" in layout else layout


def _first_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Describe the first difference between two parameter blocks."""
    for first, second in zip(old["parameters"], new["parameters"], strict=False):
        for key in ("type", "offset", *sorted((first.keys() | second.keys()) - {"name", "members"})):
            if first.get(key) != second.get(key):
                return f"{key} of {second['name']} was {_text(first.get(key))} and is {_text(second.get(key))}"
    return f"the block had {old['parameter_bytes']} bytes and has {new['parameter_bytes']}"


def _bound(launch_bounds: list[int]) -> int:
    """Return the maximum of threads in a block that launch bounds allow."""
    return launch_bounds[0] if launch_bounds and launch_bounds[0] else 1024


def _functions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    old, new = (_symbols(side, "function") for side in (before, after))
    yield from _added_and_removed("function", old, new)
    for name in sorted(old.keys() & new.keys()):
        ((first, *_), (second, *_)) = old[name], new[name]
        for key in [key for key in ("prototype", "signature", "abi") if first[key] != second[key]][:1]:
            was, now = (str(side[key]).rstrip(";") for side in (first, second))
            yield Change("function", name, f"its {key} was {was} and is {now}", breaks=True, old=was, new=now)
        if first.get("records") != second.get("records"):
            yield Change("function", name, "the records in its signature have another memory layout", breaks=True)
    if old.keys() & new.keys():
        yield from _links(_of(before, "functions"), _of(after, "functions"))


def _links(before: list[Any], after: list[Any]) -> Iterator[Change]:
    """Yield lost code for linkers of device functions. Code for a capability links for every later one."""
    for kind in ("ltoir", "ptx"):
        codes = [[arch.parse(image["arch"]) for image in side if image["kind"] == kind] for side in (before, after)]
        old, new = ([Target("ptx", code.major, code.minor, code.suffix) for code in side] for side in codes)
        for row in _GPUS:
            if any(code.runs_on(row.number) for code in old) and not any(code.runs_on(row.number) for code in new):
                number = gpu_facts.dotted(row.number)
                text = f"links for compute capability {number} found code, and find none"
                yield Change("link", f"functions as {kind.upper()}", text, breaks=True, old=number)
    # A linker accepts LTOIR of its version of CUDA and of earlier minor versions.
    names = [
        [image["cuda"] for image in side if image["kind"] == "ltoir" and image["cuda"]] for side in (before, after)
    ]
    versions = [gpu_facts.pair(name) for name in dict.fromkeys(names[1])]
    for was in map(gpu_facts.pair, dict.fromkeys(names[0])):
        if versions and not any(now[0] == was[0] and now <= was for now in versions):
            now = next((version for version in versions if version[0] == was[0]), versions[0])
            pair = (gpu_facts.dotted(was), gpu_facts.dotted(now))
            text = f"linkers of CUDA {pair[0]} refuse LTOIR of CUDA {pair[1]}"
            yield Change("link", "functions as LTOIR", text, breaks=True, old=pair[0], new=pair[1])


def _of(module: Mapping[str, Any], content: str) -> list[Any]:
    """Return the images of the kernels or of the functions."""
    return [image for image in module["images"] if image["of"] == content]


def _gpu_support(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """Yield GPUs and drivers that load another image, or none."""
    old, new = _manifest(before), _manifest(after)
    if old == new or not (old["fatbins"][0]["images"] and _symbols(after, "kernel")):
        return
    drivers = [Driver(str(branch), branch.cuda) for branch in gpu_facts.branches()]
    for row in _GPUS:
        gpu = Gpu(", ".join(row.examples), row.number)
        pairs = []
        for driver in drivers:
            was, now = predict(old, gpu, driver), predict(new, gpu, driver)
            if was.exists and was.image != now.image:
                pairs.append((driver.name, was.image, now.image))
        for (first, second), group in itertools.groupby(pairs, key=lambda pair: pair[1:]):
            names = [name for name, *_ in group]
            span = "with driver " + (names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}")
            if second is None:
                text = f"{span}, {first} ran and nothing does"
            elif first is None:
                text = f"{span}, nothing ran and {second} does"
            else:
                compiled = first.startswith("sm_") and second.startswith("compute_")
                text = f"{span}, {first} was loaded and {second} is" + ", which the driver compiles first" * compiled
            name = gpu_facts.dotted(gpu.capability) + (f" ({gpu.name})" if gpu.name else "")
            yield Change("gpu", name, text, breaks=second is None, old=first, new=second)


def _manifest(module: Mapping[str, Any]) -> Manifest:
    """Return the keys of a manifest that the choice of an image reads."""
    keys = ("arch", "kind", "cuda")
    images = [{key: image[key] for key in keys if image[key]} for image in _of(module, "kernels")]
    return cast("Manifest", {"fatbins": [{"images": images}], "toolchain": {}, "min_driver": None, "kernels": []})


def _images(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """Yield added and removed images, their sizes and drivers; `_gpu_support` finds the users that this breaks."""
    for kind, content in (("image", "kernels"), ("function image", "functions")):
        old, new = (_sizes(_of(side, content)) for side in (before, after))
        if removed := {target: size for target, size in old.items() if target not in new}:
            yield Change(kind, ", ".join(removed), "removed", old=removed)
        if added := {target: size for target, size in new.items() if target not in old}:
            yield Change(kind, ", ".join(added), "added", new=added)
        was, now = (sum(image["packed"] for image in _of(side, content)) for side in (before, after))
        if was != now:
            yield Change("size", content, f"{was} -> {now} bytes", old=was, new=now)
    was, now = before["min_driver"], after["min_driver"]
    if was != now:
        raised = bool(was and now and gpu_facts.version(now) > gpu_facts.version(was))
        text = f"the lowest was {was or 'unknown'} and is {now or 'unknown'}"
        yield Change("driver", "", text, breaks=raised, old=was, new=now)


def _sizes(images: list[Any]) -> dict[str, int]:
    """Return the bytes for each target; LTOIR is marked, since it has the targets of machine code."""
    sizes: dict[str, int] = {}
    for image in images:
        target = image["arch"] + (" LTOIR" if image["kind"] == "ltoir" else "")
        sizes[target] = sizes.get(target, 0) + image["bytes"]
    return sizes


def _settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    old, new = before["settings"], after["settings"]
    was, now = old["fallback"], new["fallback"]
    if was != now:
        yield Change("setting", "fallback", f"was {was} and is {now}", breaks=now == "error", old=was, new=now)
    elif now == "jit" and old["recipe"] and not new["recipe"]:
        yield Change("setting", "fallback", "the build table was removed", breaks=True)
    yield from _changed("setting", "", *({key: side[key] for key in side.keys() - _WITH_RULES} for side in (old, new)))
    yield from _changed("setting", "options.", old["options"], new["options"])
    if new["callbacks"] and not old["callbacks"]:
        text = "the module has callbacks now, so loading it needs cuda-core"
        yield Change("setting", "callbacks", text, breaks=True)
    elif old["callbacks"] != new["callbacks"]:
        yield Change("setting", "callbacks", "changed")
    for name, key, newer in (
        ("manifest format", "format", new["format"] > old["format"]),
        ("oldest run time", "floor", is_older(old["floor"], new["floor"])),
    ):
        if old[key] != new[key]:
            text = f"was {old[key]} and is {new[key]}" + ("; an older run time refuses it" if newer else "")
            yield Change("setting", name, text, breaks=newer)
    yield from _changed("toolchain", "", before["toolchain"], after["toolchain"])
    others = ({"others": side["toolchains"]} if "toolchains" in side else {} for side in (before, after))
    yield from _changed("toolchain", "", *others)


def _resources(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """Yield changed resources of kernels in the images for the same target."""
    old, new = _overloads(before), _overloads(after)
    for key in (key for key in old if key in new):
        sides = [
            {image["arch"]: image for image in side[key]["images"] if image["kind"] == "sass"} for side in (old, new)
        ]
        for target in (target for target in sides[0] if target in sides[1]):
            was, now = (side[target] for side in sides)
            different = [name for name in _RESOURCES if was[name] != now[name]]
            texts = [f"{_RESOURCES[name]} {_number(was[name])} -> {_number(now[name])}" for name in different]
            bound = _bound(new[key]["launch_bounds"])
            threads = [min(bound, most_threads(image["registers"] or 0)) for image in (was, now)]
            if threads[1] < threads[0]:
                texts[-1] += f"; blocks of {threads[0]} threads fitted, and {threads[1]} do now"
            if different:
                yield Change(
                    "resources",
                    f"of {' '.join(key)} on {target}",
                    ", ".join(texts),
                    breaks=threads[1] < threads[0],
                    old={name: was[name] for name in different},
                    new={name: now[name] for name in different},
                )


def most_threads(registers: int) -> int:
    """Return the maximum of threads in a block if each thread has this number of registers.

    A block has 64 K registers (Programming Guide, table 31). A thread gets a multiple of 8, and warps come in fours
    (the occupancy calculator's "register allocation unit size" and "warp allocation granularity").
    """
    allocated = -(-max(registers, 1) // 8) * 8
    return 65536 // (allocated * 32) // 4 * 4 * 32


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)
