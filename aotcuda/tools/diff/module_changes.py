"""Find changes of a module other than its kernels: functions, images, drivers, settings, resources, sizes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda.arch import Target
from aotcuda.common import gpu_facts
from aotcuda.gpus import CAPABILITIES
from aotcuda.manifest import kernel_images
from aotcuda.tools.check.gpus import Driver, Gpu
from aotcuda.tools.check.predict import predict
from aotcuda.tools.diff.change import Change, added_and_removed, changed_keys, describe
from aotcuda.tools.diff.kernel_changes import most_threads
from aotcuda.version import is_older

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aotcuda.manifest import File, Image, Manifest
    from aotcuda.tools.inspect.report import Module, SymbolImage

_RESOURCES = ("size", "registers", "shared", "local", "constant")
_LABELS = {"size": "bytes of code"}

_SKIPPED = frozenset(
    [
        *("format", "floor", "generator", "module", "toolchain", "toolchains", "min_driver", "fallback", "options"),
        *("files", "fatbins"),
        *("ltoir", "kernels", "functions", "callbacks", "sources", "rebuild", "left_out"),
    ]
)
"""Keys with rules of their own, and keys on which users do not depend. Other keys are compared for equality."""

_CAPABILITIES = [row for row in CAPABILITIES if row.renamed is None]


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
        for row in _CAPABILITIES:
            if any(code.runs_on(row.number) for code in old) and not any(code.runs_on(row.number) for code in new):
                name = f"functions as {kind.upper()}"
                text = f"links for compute capability {gpu_facts.dotted(row.number)} found code, and find none"
                yield Change(kind="link", name=name, text=text, breaks=True, old=gpu_facts.dotted(row.number))
    versions = _ltoir_versions(after)
    for was in _ltoir_versions(before):
        if versions and not any(now[0] == was[0] and now <= was for now in versions):
            now = next((version for version in versions if version[0] == was[0]), versions[0])
            text = f"linkers of CUDA {gpu_facts.dotted(was)} refuse LTOIR of CUDA {gpu_facts.dotted(now)}"
            name = "functions as LTOIR"
            yield Change(
                kind="link", name=name, text=text, breaks=True, old=gpu_facts.dotted(was), new=gpu_facts.dotted(now)
            )


def _code(image: Image) -> Target:
    """Return an image of functions as a PTX target: both serve the same capabilities."""
    target = arch.parse(image["arch"])
    return Target("ptx", target.major, target.minor, target.suffix)


def gpu_support(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield GPUs and drivers that load another image, or none."""
    if not (before["kernels"] and after["kernels"]) or _choice_inputs(before) == _choice_inputs(after):
        return
    drivers = [Driver(str(branch), branch.cuda) for branch in gpu_facts.branches()]
    for row in _CAPABILITIES:
        gpu = Gpu(", ".join(row.examples), row.number)
        pairs = []
        for driver in drivers:
            was, now = predict(before, gpu, driver), predict(after, gpu, driver)
            if was.exists and was.image != now.image:
                pairs.append((driver, was.image, now.image))
        for (old, new), group in itertools.groupby(pairs, key=lambda pair: pair[1:]):
            yield _support_change(gpu, [driver.name for driver, *_ in group], old, new)


def _choice_inputs(manifest: Manifest) -> tuple[object, ...]:
    """Return the parts of a manifest that the choice of an image depends on."""
    images = [(image["arch"], image.get("cuda"), "absent" in image) for image in kernel_images(manifest)]
    return images, manifest["toolchain"]


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
    kernels = (kernel_images(before), kernel_images(after))
    for kind, sides in (("image", kernels), ("function image", (before["ltoir"], after["ltoir"]))):
        old, new = map(_sizes_by_target, sides)
        removed = {target: size for target, size in old.items() if target not in new}
        added = {target: size for target, size in new.items() if target not in old}
        if removed:
            yield Change(kind=kind, name=", ".join(removed), text="removed", old=removed)
        if added:
            yield Change(kind=kind, name=", ".join(added), text="added", new=added)
    if before["min_driver"] != after["min_driver"]:
        was, now = before["min_driver"], after["min_driver"]
        raised = bool(was and now and gpu_facts.version(now) > gpu_facts.version(was))
        text = f"the lowest was {was or 'unknown'} and is {now or 'unknown'}"
        yield Change(kind="driver", name="", text=text, breaks=raised, old=was, new=now)


def _sizes_by_target(images: Sequence[Image]) -> dict[str, int]:
    """Return the bytes of the images that are present; LTOIR is marked, since it has the targets of machine code."""
    sizes: dict[str, int] = {}
    for image in images:
        if "absent" not in image:
            target = image["arch"] + (" LTOIR" if image["kind"] == "ltoir" else "")
            sizes[target] = sizes.get(target, 0) + image["bytes"]
    return sizes


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
        pairs = {resource: (getattr(old[key], resource), getattr(new[key], resource)) for resource in _RESOURCES}
        pairs = {resource: pair for resource, pair in pairs.items() if pair[0] != pair[1]}
        if not pairs:
            continue
        text = ", ".join(
            f"{_LABELS.get(resource, resource)} {_number(was)} -> {_number(now)}"
            for resource, (was, now) in pairs.items()
        )
        threads = [min(bounds.get(name, 1024), _most_threads(side[key].registers or 0)) for side in (old, new)]
        breaks = threads[1] < threads[0]
        if breaks:
            text += f"; blocks of {threads[0]} threads fitted, and {threads[1]} do now"
        sides = [{resource: pair[side] for resource, pair in pairs.items()} for side in (0, 1)]
        title = f"of {name} on {target}"
        yield Change(kind="resources", name=title, text=text, breaks=breaks, old=sides[0], new=sides[1])


def _most_threads(registers: int) -> int:
    """Return the maximum of threads in a block if each thread has this number of registers.

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
        was, now = (sum(file["bytes"] for file in _fatbins(side, name)) for side in (before, after))
        if was != now:
            yield Change(kind="size", name=name, text=f"{was} -> {now} bytes", old=was, new=now)


def _fatbins(manifest: Manifest, name: str) -> list[File]:
    if name == "kernels":
        return [item["file"] for item in manifest["fatbins"]]
    return [manifest["files"]["functions"]] if "functions" in manifest["files"] else []


def _ltoir_versions(manifest: Manifest) -> list[tuple[int, int]]:
    """Return the CUDA versions of the functions' LTOIR. Linkers of this version or a later minor version accept it."""
    further = [other["versions"] for other in manifest.get("toolchains", ()) if other["ltoir"]]
    return [gpu_facts.pair(versions["cuda"]) for versions in (manifest["toolchain"], *further) if "cuda" in versions]
