"""Find changes of a module other than its kernels: functions, images, drivers, settings, resources, sizes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda.arch import Target
from aotcuda.common import gpu_facts
from aotcuda.gpus import CAPABILITIES
from aotcuda.tools.check.gpus import Driver, Gpu
from aotcuda.tools.check.predict import predict
from aotcuda.tools.diff.change import Change, added_and_removed, changed_keys, describe
from aotcuda.tools.diff.kernel_changes import most_threads
from aotcuda.version import is_older

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aotcuda.manifest import Image, Manifest
    from aotcuda.tools.inspect.report import Module, SymbolImage

_RESOURCES = ("size", "registers", "shared", "local", "constant")
_LABELS = {"size": "bytes of code"}

_SKIPPED = frozenset(
    [
        *("format", "floor", "generator", "module", "toolchain", "toolchains", "min_driver", "fallback", "options"),
        *("files", "images"),
        *("ltoir", "kernels", "functions", "callbacks", "sources", "rebuild"),
    ]
)
"""Keys with own rules, and keys on which users do not depend. Other keys are compared for equality."""


_KNOWN = [row for row in CAPABILITIES if row.renamed is None]


def functions(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield the changes of exported device functions and of their LTOIR."""
    old, new = ({function["name"]: function for function in side["functions"]} for side in (before, after))
    yield from added_and_removed("function", old, new)
    for name in sorted(old.keys() & new.keys()):
        keys = [key for key in ("prototype", "signature", "abi") if old[name].get(key) != new[name].get(key)]
        for key in keys[:1]:  # a prototype is the signature in C
            was, now = (str(side[name].get(key)).rstrip(";") for side in (old, new))
            text = f"its {key} was {was} and is {now}"
            yield Change(kind="function", name=name, text=text, breaks=True, old=was, new=now)
        if old[name].get("records") != new[name].get("records"):
            text = "the records in its signature have another memory layout"
            yield Change(kind="function", name=name, text=text, breaks=True)
    if old.keys() & new.keys():
        yield from _linkable(before, after)


def _linkable(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield lost code for linkers of device functions. Code for a capability links for every later one."""
    for kind in ("ltoir", "ptx"):
        old, new = ([_code(image) for image in side["ltoir"] if image["kind"] == kind] for side in (before, after))
        for row in _KNOWN:
            if any(code.runs_on(row.number) for code in old) and not any(code.runs_on(row.number) for code in new):
                name = f"functions as {kind.upper()}"
                text = f"links for compute capability {gpu_facts.dotted(row.number)} found code, and find none"
                yield Change(kind="link", name=name, text=text, breaks=True, old=gpu_facts.dotted(row.number))
    written = _ltoir(after)
    for was in _ltoir(before):
        if written and not any(now[0] == was[0] and now <= was for now in written):
            now = next((one for one in written if one[0] == was[0]), written[0])
            text = f"linkers of CUDA {gpu_facts.dotted(was)} refuse LTOIR of CUDA {gpu_facts.dotted(now)}"
            name = "functions as LTOIR"
            yield Change(
                kind="link", name=name, text=text, breaks=True, old=gpu_facts.dotted(was), new=gpu_facts.dotted(now)
            )


def _code(image: Image) -> Target:
    """Return the PTX target for all GPUs for which an image of functions can be linked."""
    target = arch.parse(image["arch"])
    return Target("ptx", target.major, target.minor, target.suffix)


def gpu_support(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield GPUs and drivers that load another image, or none."""
    decides = [
        ([(image["arch"], image.get("cuda")) for image in side["images"]], side["toolchain"])
        for side in (before, after)
    ]
    if not (before["kernels"] and after["kernels"]) or decides[0] == decides[1]:
        return
    drivers = [Driver(str(branch), branch.cuda) for branch in gpu_facts.branches()]
    for row in _KNOWN:
        gpu = Gpu(", ".join(row.examples), row.number)
        pairs = []
        for driver in drivers:
            was, now = predict(before, gpu, driver), predict(after, gpu, driver)
            if was.exists and (was.packaged, was.image) != (now.packaged, now.image):
                pairs.append((driver, was.image, now.image))
        for (old, new), group in itertools.groupby(pairs, key=lambda pair: pair[1:]):
            yield _support_change(gpu, [driver.name for driver, *_ in group], old, new)


def _support_change(gpu: Gpu, drivers: Sequence[str], old: str | None, new: str | None) -> Change:
    span = drivers[0] if len(drivers) == 1 else f"{drivers[0]} to {drivers[-1]}"
    name = f"{gpu_facts.dotted(gpu.capability)}" + (f" ({gpu.name})" if gpu.name else "")
    if new is None:
        text = f"with driver {span}, {old} ran and nothing does"
    elif old is None:
        text = f"with driver {span}, nothing ran and {new} does"
    else:
        text = f"with driver {span}, {old} was loaded and {new} is"
        if old.startswith("sm_") and new.startswith("compute_"):
            text += ", which the driver compiles first"
    return Change(kind="gpu", name=name, text=text, breaks=new is None, old=old, new=new)


def images(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield added and removed images; `gpu_support` finds the users that this breaks."""
    for kind, listed in (("image", "images"), ("function image", "ltoir")):
        old, new = (_sizes_of(side[listed]) for side in (before, after))  # type: ignore[literal-required]
        removed = {target: size for target, size in old.items() if target not in new}
        added = {target: size for target, size in new.items() if target not in old}
        if removed:
            yield Change(kind=kind, name=", ".join(removed), text="removed", old=removed)
        if added:
            yield Change(kind=kind, name=", ".join(added), text="added", new=added)
    if before["min_driver"] != after["min_driver"]:
        was, now = before["min_driver"], after["min_driver"]
        raised = bool(was and now and gpu_facts.version(now) > gpu_facts.version(was))
        text = f"the lowest was {was or 'not known'} and is {now or 'not known'}"
        yield Change(kind="driver", name="", text=text, breaks=raised, old=was, new=now)


def _sizes_of(images: Sequence[Image]) -> dict[str, int]:
    """Return bytes by target; LTOIR has the targets of machine code and is marked."""
    return {image["arch"] + (" LTOIR" if image["kind"] == "ltoir" else ""): image["bytes"] for image in images}


def settings(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield changes of fallback, loading, front end, options, callbacks, manifest format, toolchain."""
    if before["fallback"] != after["fallback"]:
        was, now = before["fallback"], after["fallback"]
        yield Change(kind="setting", name="fallback", text=describe(was, now), breaks=now == "error", old=was, new=now)
    elif after["fallback"] == "jit" and "rebuild" in before and "rebuild" not in after:
        yield Change(kind="setting", name="fallback", text="the build table was removed", breaks=True)
    for key, was, now in changed_keys(before, after, _SKIPPED):
        yield Change(kind="setting", name=key, text=describe(was, now), old=was, new=now)
    for key, was, now in changed_keys(before["options"], after["options"], frozenset()):
        yield Change(kind="setting", name=f"options.{key}", text=describe(was, now), old=was, new=now)
    if after["callbacks"] and not before["callbacks"]:
        text = "the module has callbacks now, so loading it needs cuda-core"
        yield Change(kind="setting", name="callbacks", text=text, breaks=True)
    elif before["callbacks"] != after["callbacks"]:
        yield Change(kind="setting", name="callbacks", text="changed")
    yield from _run_time(before, after)
    for tool, was, now in changed_keys(before["toolchain"], after["toolchain"], frozenset()):
        yield Change(kind="toolchain", name=tool, text=describe(was, now), old=was, new=now)
    old, new = ([other["versions"] for other in side.get("toolchains", ())] for side in (before, after))
    if old != new:
        yield Change(kind="toolchain", name="others", text=describe(old or None, new or None), old=old, new=new)


def _run_time(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield changes that decide which run times read the manifest."""
    for name, was, now, newer in (
        ("manifest format", before["format"], after["format"], after["format"] > before["format"]),
        ("oldest run time", before["floor"], after["floor"], is_older(before["floor"], after["floor"])),
    ):
        if was != now:
            text = f"was {was} and is {now}" + ("; an older run time refuses it" if newer else "")
            yield Change(kind="setting", name=name, text=text, breaks=newer)


def resources(before: Module, after: Module, manifest: Manifest) -> Iterator[Change]:
    """Yield changed resources of kernels in the images for the same target.

    Args:
        before: The old build's images.
        after: The new build's images.
        manifest: The new build's manifest, for the launch bounds.
    """
    overloads = (
        (f"{kernel['name']} {item['signature']}", item)
        for kernel in manifest["kernels"]
        for item in kernel["overloads"]
    )
    bounds = {name: most_threads(item["launch_bounds"]) for name, item in overloads}
    old, new = (_kernel_images(side) for side in (before, after))
    for key in (key for key in old if key in new):
        name, target = key
        pairs = {what: (getattr(old[key], what), getattr(new[key], what)) for what in _RESOURCES}
        pairs = {what: pair for what, pair in pairs.items() if pair[0] != pair[1]}
        if not pairs:
            continue
        text = ", ".join(
            f"{_LABELS.get(what, what)} {_number(was)} -> {_number(now)}" for what, (was, now) in pairs.items()
        )
        fits = [min(bounds.get(name, 1024), _fitting(side[key].registers or 0)) for side in (old, new)]
        if fits[1] < fits[0]:
            text += f"; blocks of {fits[0]} threads fitted, and {fits[1]} do now"
        sides = [{what: pair[side] for what, pair in pairs.items()} for side in (0, 1)]
        title = f"of {name} on {target}"
        yield Change(kind="resources", name=title, text=text, breaks=fits[1] < fits[0], old=sides[0], new=sides[1])


def _fitting(registers: int) -> int:
    """Return the maximum of threads in a block for which a GPU has registers.

    A block has 64 K registers (Programming Guide, table 31). A thread gets a multiple of 8, and warps come in fours
    (the occupancy calculator's "register allocation unit size" and "warp allocation granularity").
    """
    allocated = -(-max(registers, 1) // 8) * 8
    warps = 65536 // (allocated * 32) // 4 * 4
    return warps * 32


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _kernel_images(module: Module) -> dict[tuple[str, str], SymbolImage]:
    return {
        (f"{symbol.name} {symbol.signature}", image.arch): image
        for symbol in module.symbols
        if symbol.kind == "kernel"
        for image in symbol.images
        if image.kind == "sass"
    }


def sizes(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield changed sizes of the compressed fatbins."""
    for name in ("kernels", "functions"):
        was, now = (side["files"][name]["bytes"] if name in side["files"] else 0 for side in (before, after))
        if was != now:
            yield Change(kind="size", name=name, text=f"{was} -> {now} bytes", old=was, new=now)


def _ltoir(manifest: Manifest) -> list[tuple[int, int]]:
    """Return the CUDA versions of the functions' LTOIR. Linkers of this version or a later minor version accept it."""
    versions = [manifest["toolchain"], *(one["versions"] for one in manifest.get("toolchains", ()) if one["ltoir"])]
    return [gpu_facts.pair(one["cuda"]) for one in versions if "cuda" in one]
