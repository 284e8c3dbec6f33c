"""Find changes of kernels: signatures, symbols, parameter blocks, launch bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aotcuda import registry
from aotcuda.manifest import kernel_targets
from aotcuda.tools.diff.change import Change, added_and_removed, changed_keys, describe, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aotcuda.manifest import Kernel, Manifest, Overload

_SKIPPED = frozenset(
    ["signature", "symbol", "fatbin", "parameters", "parameter_bytes", "cooperative", "launch_bounds", "resources"]
)
"""Keys with rules of their own, and keys that repeat facts of the images. Other keys are compared for equality."""


def kernels(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield the changes of all kernels."""
    old, new = ({kernel["name"]: kernel for kernel in side["kernels"]} for side in (before, after))
    yield from added_and_removed("kernel", old, new)
    for name in sorted(old.keys() & new.keys()):
        yield from _overloads(old[name], new[name], _result_of_removal(after))
    yield from _left_out(before, after)


def _left_out(before: Manifest, after: Manifest) -> Iterator[Change]:
    """Yield kernels that the image for a target has lost or gained, because it cannot have them (`left_out`)."""
    old, new = _reasons(before), _reasons(after)
    for kernel, signature, target in sorted(new.keys() & _compiled(before)):
        reason = new[kernel, signature, target]
        text = f"the image for {target} has lost it: {reason}; such calls {_result_of_removal(after)}"
        yield Change(kind="kernel", name=f"{kernel} {signature}", text=text, breaks=True, new=reason)
    for kernel, signature, target in sorted(old.keys() & _compiled(after)):
        text = f"the image for {target} has gained it"
        yield Change(kind="kernel", name=f"{kernel} {signature}", text=text, old=old[kernel, signature, target])


def _reasons(manifest: Manifest) -> dict[tuple[str, str, str], str]:
    """Return the reasons in `left_out` by kernel, signature and target."""
    return {
        (item["kernel"], item["signature"], item["target"]): item["reason"] for item in manifest.get("left_out", ())
    }


def _compiled(manifest: Manifest) -> set[tuple[str, str, str]]:
    """Return kernel, signature and target of all code in the images."""
    overloads = [(kernel["name"], item["signature"]) for kernel in manifest["kernels"] for item in kernel["overloads"]]
    return {(*overload, target) for overload in overloads for target in kernel_targets(manifest)} - {
        *_reasons(manifest)
    }


def _result_of_removal(after: Manifest) -> str:
    """Describe the result of launches with a signature that was removed."""
    front_end = registry.find(after["frontend"])
    return "are compiled by the JIT fallback, or fail" if front_end is None or front_end.widens else "fail"


def _overloads(before: Kernel, after: Kernel, result_of_removal: str) -> Iterator[Change]:
    name = before["name"]
    old, new = ({item["signature"]: item for item in side["overloads"]} for side in (before, after))
    for signature in (item for item in old if item not in new):
        text = f"the signature is no longer packaged; such calls {result_of_removal}"
        yield Change(kind="kernel", name=f"{name} {signature}", text=text, breaks=True, old=signature)
    for signature in (item for item in new if item not in old):
        yield Change(kind="kernel", name=f"{name} {signature}", text="the signature is added", new=signature)
    for signature in (item for item in old if item in new):
        for change in _overload(old[signature], new[signature]):
            yield replace(change, name=f"{name} {signature}")


def _overload(old: Overload, new: Overload) -> Iterator[Change]:
    if old["symbol"] != new["symbol"]:
        text = f"its symbol was {old['symbol']} and is {new['symbol']}; C++ that launches it by that name breaks"
        yield Change(kind="kernel", name="", text=text, breaks=True, old=old["symbol"], new=new["symbol"])
    layouts = [[_layout(parameter) for parameter in side["parameters"]] for side in (old, new)]
    sizes = (old["parameter_bytes"], new["parameter_bytes"])
    if layouts[0] != layouts[1] or sizes[0] != sizes[1]:
        text = (
            f"its parameter layout differs: {_first_difference(old, new)}; C++ code that fills its parameter block "
            "must be compiled again"
        )
        yield Change(kind="kernel", name="", text=text, breaks=True, old=layouts[0], new=layouts[1])
    names = [[*_names(side["parameters"])] for side in (old, new)]
    if names[0] != names[1]:
        text = f"its parameters were called {', '.join(names[0])} and are called {', '.join(names[1])}"
        yield Change(kind="kernel", name="", text=text, old=names[0], new=names[1])
    if old["cooperative"] != new["cooperative"]:
        text = "it is launched cooperatively now, so its grid must fit the GPU at once"
        if old["cooperative"]:
            text = "it is no longer launched cooperatively"
        yield Change(kind="kernel", name="", text=text, breaks=new["cooperative"])
    if old["launch_bounds"] != new["launch_bounds"]:
        yield _bounds(old["launch_bounds"], new["launch_bounds"])
    for key, was, now in changed_keys(old, new, _SKIPPED):
        yield Change(kind="kernel", name="", text=f"its {key} {describe(was, now)}", old=was, new=now)


def _names(parameters: Sequence[Any]) -> Iterator[str]:
    """Yield the names of parameters and of tuple members."""
    for parameter in parameters:
        yield parameter["name"]
        yield from _names(parameter.get("members", ()))


def _layout(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter without names, since neither arguments nor memory depend on names."""
    layout = {key: value for key, value in parameter.items() if key not in {"name", "members"}}
    if "members" in parameter:
        layout["members"] = [_layout(member) for member in parameter["members"]]
    return layout


def _first_difference(old: Overload, new: Overload) -> str:
    """Describe the first difference between two parameter blocks."""
    for first, second in zip(old["parameters"], new["parameters"], strict=False):
        for key in ("type", "offset", *sorted(first.keys() | second.keys())):
            if key in {"name", "members"}:
                continue
            was, now = first.get(key), second.get(key)
            if was != now:
                return f"{key} of {second['name']} was {value_text(was)} and is {value_text(now)}"
    return f"the block had {old['parameter_bytes']} bytes and has {new['parameter_bytes']}"


def _bounds(old: Sequence[int], new: Sequence[int]) -> Change:
    """Return the change of launch bounds; a lower maximum of threads breaks launches that used it."""
    was, now = most_threads(old), most_threads(new)
    text = f"its blocks had {was} threads at most, and have {now}" if was != now else "its launch bounds changed"
    return Change(kind="kernel", name="", text=text, breaks=now < was, old=list(old), new=list(new))


def most_threads(launch_bounds: Sequence[int]) -> int:
    """Return the maximum of threads in a block that launch bounds allow."""
    return launch_bounds[0] if launch_bounds and launch_bounds[0] else 1024
