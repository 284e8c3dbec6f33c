"""Compare two builds and find the changes that would break users of the old build.

A user of a module calls its kernels from Python, launches them from C++ by symbol and parameter block, links its device
functions, and has a GPU and a driver. A change breaks users if one of these worked with the old build and fails with
the new one. Changes of speed or size do not break users.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aotcuda.binary import targets
from aotcuda.binary.targets import PackagedModule
from aotcuda.common.foreign import escape
from aotcuda.errors import TargetError
from aotcuda.tools.diff import kernel_changes, module_changes
from aotcuda.tools.diff.change import Change
from aotcuda.tools.inspect import collect

if TYPE_CHECKING:
    from aotcuda.manifest import Manifest
    from aotcuda.tools.inspect.report import Module

VERSION = 1
_WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class Difference:
    """All differences between two builds, by module."""

    modules: dict[str, list[Change]] = field(default_factory=dict)

    def problem(self) -> str | None:
        """Return the breaking changes in one line; None if there are none."""
        breaking = [(name, change) for name, changes in self.modules.items() for change in changes if change.breaks]
        if not breaking:
            return None
        name, first = breaking[0]
        more = f", and {len(breaking) - 1} more" if len(breaking) > 1 else ""
        return f"users of the old build would break: {name}: {_line(first)}{more}"

    def json(self) -> dict[str, object]:
        """Return the object that `--json` prints."""
        return {
            "version": VERSION,
            "breaks": self.problem() is not None,
            "modules": [
                {
                    "name": name,
                    "breaks": any(change.breaks for change in changes),
                    "changes": [
                        {
                            "kind": change.kind,
                            "name": change.name,
                            "change": change.text,
                            "breaks": change.breaks,
                            "old": change.old,
                            "new": change.new,
                        }
                        for change in changes
                    ],
                }
                for name, changes in self.modules.items()
            ],
        }

    def render(self) -> str:
        """Return the text output, with breaking changes first, marked by `!`."""
        blocks = []
        for name, changes in self.modules.items():
            lines = [escape(name)]
            for change in sorted(changes, key=lambda change: not change.breaks):
                mark = "!" if change.breaks else " "
                lines += textwrap.wrap(
                    escape(_line(change)),
                    _WIDTH,
                    initial_indent=f"  {mark} ",
                    subsequent_indent=" " * 8,
                    break_long_words=False,
                )
            blocks.append("\n".join(lines if changes else [*lines, "    no differences"]))
        return "\n\n".join(blocks)


def compare(old: str, new: str) -> Difference:
    """Compare two builds.

    Args:
        old: A wheel, an importable module or package, or a folder.
        new: The build to compare with it.

    Raises:
        TargetError: There is no such build, or nothing in it was built by aotcuda.
        ManifestError: A manifest, or a file that it names, is missing, truncated, altered or of a newer version.
        ImageError: An image cannot be read.
    """
    before, after = _read(old), _read(new)
    modules: dict[str, list[Change]] = {}
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            modules[name] = [Change(kind="module", name=name, text="removed", breaks=True)]
        elif name not in before:
            modules[name] = [Change(kind="module", name=name, text="added")]
        else:
            modules[name] = _changes(before[name], after[name])
    return Difference(modules=modules)


@dataclass(frozen=True, kw_only=True)
class _Side:
    """One build of a module: its manifest and the report on its images."""

    manifest: Manifest
    report: Module


def _read(target: str) -> dict[str, _Side]:
    sides = {}
    for module in targets.find(target):
        if not isinstance(module, PackagedModule):
            message = f"{module.where} is an image without a manifest to compare; name a wheel, module or folder"
            raise TargetError(message)
        sides[module.manifest["module"]] = _Side(manifest=module.manifest, report=collect.module_report(module))
    return sides


def _changes(old: _Side, new: _Side) -> list[Change]:
    before, after = old.manifest, new.manifest
    return [
        *kernel_changes.kernels(before, after),
        *module_changes.functions(before, after),
        *module_changes.gpu_support(before, after),
        *module_changes.images(before, after),
        *module_changes.settings(before, after),
        *module_changes.resources(old.report, new.report, after),
        *module_changes.sizes(before, after),
    ]


def _line(change: Change) -> str:
    return f"{change.kind} {change.name}: {change.text}" if change.name else f"{change.kind}: {change.text}"
