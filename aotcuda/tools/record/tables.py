"""Compare the records with `[tool.aotcuda]`."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from aotcuda import registry
from aotcuda.tools.record import notation, packs, project, variants

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A kernel with its recorded signatures that can be packaged.

    Attributes:
        source: The module that defines it.
        frontend: The compiler that launched it.
        path: The attributes that lead from the module to it.
        records: One for each signature.
    """

    source: str
    frontend: str
    path: str
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A launched function that no table can name, with the reason."""

    record: Record
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """The entries that the tables lack for one kernel.

    Attributes:
        wanted: The kernel.
        module: The module that packages it.
        new_module: True if the module has no table yet.
        kernel: Its key in the table.
        new_kernel: True if the table has no such key yet.
        records: The signatures that are missing, all of one kernel.
    """

    wanted: Wanted
    module: str
    new_module: bool
    kernel: str
    new_kernel: bool
    records: tuple[Record, ...]

    @property
    def is_by_hand(self) -> bool:
        """Return True if the user has to extend the kernel's entry, whose variants are products of lists."""
        return not self.new_kernel and variants.has_variants(self.records[0])

    @property
    def signatures(self) -> list[str]:
        """Return the missing signatures, each once."""
        return list(dict.fromkeys(record.signature for record in self.records if record.signature))

    @property
    def notes(self) -> list[str]:
        """Return notes for the reader of its table."""
        return variants.notes(self.records) if variants.has_variants(self.records[0]) else []

    @property
    def python(self) -> str | None:
        """Return the value of `python` if the key differs from it."""
        if self.kernel == self.wanted.path:
            return None
        return f"{self.wanted.source}:{self.wanted.path}" if "." in self.wanted.path else self.wanted.path


def sort(records: Iterable[Record], owner: Project) -> tuple[list[Wanted], list[LeftOut], Counter[str]]:
    """Divide records into those that can be packaged, those that cannot, and launches of other packages."""
    wanted: dict[tuple[str, str, str], list[Record]] = {}
    left_out: list[LeftOut] = []
    others: Counter[str] = Counter()
    for record in records:
        if record.kind != "kernel" or not (record.launches or record.declared):
            continue
        file = owner.file_of(record.module)
        packed = packs.is_packed(record, owner)
        if file is None and not packed and record.module not in ("__main__", "__mp_main__") and not _inside(record):
            others[record.module.partition(".")[0]] += record.count
            continue
        in_table = is_in_table(owner.aotcuda, record.module)
        reason = _reason(record, packed or file is not None, in_table=in_table)
        if reason:
            left_out.append(LeftOut(record=record, reason=reason))
        else:
            path = record.path or record.function
            wanted.setdefault((record.module, path, record.frontend), []).append(record)
    return [
        Wanted(source=source, path=path, frontend=frontend, records=tuple(found))
        for (source, path, frontend), found in sorted(wanted.items())
    ], left_out, others  # fmt: skip


def is_of_the_wheel(record: Record, owner: Project) -> bool:
    """Return True if a kernel is defined in a module for wheels, not in a test or script."""
    return owner.file_of(record.module) is not None and not project.is_test(record.file)


def _inside(record: Record) -> bool:
    """Return True if a file is in the project, outside environments."""
    return not record.file.startswith("/") and "site-packages" not in record.file


def is_in_table(settings: Mapping[str, Any], source: str) -> bool:
    """Return True if pyproject.toml has the variants of a source's kernels, and not a variants file."""
    modules = settings.get("modules")
    for name, table in (modules if _is_table(modules) else {}).items():
        own = table.get("source") if _is_table(table) else None
        if source in (own if isinstance(own, list) else [own]):
            return "variants" not in table and own not in (name, [name])
    return False


def _reason(record: Record, importable: bool, *, in_table: bool) -> str | None:
    if record.refused:
        return record.refused
    if project.is_test(record.file):
        return "it belongs to the tests"
    if not importable:
        return f"the project has no module {record.module}; import it by the name that it has in the wheel"
    if record.types_refused:
        return record.types_refused
    if problem := variants.refusal(record, for_table=in_table):
        return problem
    if record.path is None and ("<" in record.function or record.launches):
        if record.behind is not None:
            return (
                f"it is behind a decorator: {record.function} is a {record.behind} without a reference to it; "
                "let the decorator store it in `__wrapped__`"
            )
        inside = record.function.rpartition(".<locals>")[0]
        made = f"it is made inside {inside}() and " if inside else ""
        return f"{made}no name in its module leads to it; give it one at the module's top level"
    return None


class Tables:
    """The modules of `[tool.aotcuda]` with their kernels; the build reports malformed entries."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        names = settings.get("types")
        self._names = {key: text for key, text in names.items() if isinstance(text, str)} if _is_table(names) else {}
        self._made: dict[str, str] = {}
        self._frontend = settings.get("frontend", registry.DEFAULT)
        modules = settings.get("modules")
        self._modules = {
            name: value for name, value in (modules if _is_table(modules) else {}).items() if _is_table(value)
        }

    def additions(self, wanted: Iterable[Wanted]) -> list[Addition]:
        """Return the missing entries."""
        used = {name: set(_kernels(module)) | set(_functions(module)) for name, module in self._modules.items()}
        found = (self._addition(item, used) for item in wanted)
        return [item for item in found if item is not None]

    @property
    def default_frontend(self) -> str:
        """Return the front end of modules that name none."""
        return str(self._frontend)

    def frontend(self, module: str) -> str:
        """Return the front end of an existing module."""
        return str(self._modules[module].get("frontend", self._frontend))

    def _addition(self, wanted: Wanted, used: dict[str, set[str]]) -> Addition | None:
        module = self._module(wanted)
        new_module = module not in self._modules
        found = {} if new_module else self._matching(module, wanted)
        if variants.has_variants(wanted.records[0]):
            return self._in_variants(wanted, module, found, used)
        packaged = [text for value in found.values() for text in _signatures(value)]
        if found and not packaged:  # the build uses the signatures in the source
            packaged = [record.signature for record in wanted.records if record.declared and record.signature]
        records = tuple(
            record
            for record in wanted.records
            if not self._has(packaged, record.signature or "", adopt=module != wanted.source)
        )
        if not records:
            return None
        if found and not any(_signatures(value) for value in found.values()):
            records = wanted.records  # a signature in the table replaces those in the source
        names = used.setdefault(module, set())
        kernel = next(iter(found), None) or key_for(wanted.path, names)
        names.add(kernel)
        return Addition(
            wanted=wanted,
            module=module,
            new_module=new_module,
            kernel=kernel,
            new_kernel=not found,
            records=records,
        )

    def _in_variants(
        self, wanted: Wanted, module: str, found: Mapping[str, Any], used: dict[str, set[str]]
    ) -> Addition | None:
        """Return the missing variants of a kernel."""
        packaged = [value if _is_table(value) else {"signatures": value} for value in found.values()]
        missing = [item for item in wanted.records if not any(variants.covers(each, item) for each in packaged)]
        if not missing:
            return None
        names = used.setdefault(module, set())
        kernel = next(iter(found), None) or key_for(kernel_path(wanted.path), names)
        names.add(kernel)
        return Addition(
            wanted=wanted,
            module=module,
            new_module=module not in self._modules,
            kernel=kernel,
            new_kernel=not found,
            records=tuple(missing),
        )

    def _module(self, wanted: Wanted) -> str:
        """Return the module that packages kernels of a source; a new one packages them in place."""
        for name, module in self._modules.items():
            source = module.get("source")
            sources = source if isinstance(source, list) else [source]
            if wanted.source in sources and self.frontend(name) == wanted.frontend:
                return name
        name = wanted.source
        while self._made.setdefault(name, wanted.frontend) != wanted.frontend or name in self._modules:
            name += "_mlir" if wanted.frontend.endswith("mlir") else "_cuda"
        return name

    def _matching(self, module: str, wanted: Wanted) -> dict[str, Any]:
        """Return the kernels of a module that are made from one function."""
        names = {wanted.path, f"{wanted.source}:{wanted.path}"}
        return {
            name: value
            for name, value in _kernels(self._modules[module]).items()
            if (value.get("python", name) if _is_table(value) else name) in names
        }

    def _has(self, packaged: Iterable[str], launched: str, *, adopt: bool) -> bool:
        try:
            one = notation.parse(launched, self._names)
        except ValueError:
            return launched in packaged
        for text in packaged:
            try:
                if notation.accepts(notation.parse(text, self._names), one, adopt=adopt):
                    return True
            except ValueError:
                continue
        return False


def _kernels(module: Mapping[str, Any]) -> dict[str, Any]:
    kernels = module.get("kernels")
    return kernels if _is_table(kernels) else {}


def _functions(module: Mapping[str, Any]) -> dict[str, Any]:
    functions = module.get("functions")
    return functions if _is_table(functions) else {}


def _signatures(kernel: object) -> list[str]:
    if _is_table(kernel):
        kernel = kernel.get("signatures", kernel.get("signature", []))
    items = kernel if isinstance(kernel, list) else [kernel]
    return [item for item in items if isinstance(item, str)]


def kernel_path(path: str) -> str:
    """Return the path of a kernel without decorators: `softmax` of `softmax.fn.fn`."""
    return re.sub(r"(\.fn)+$", "", path)


def key_for(path: str, used: set[str]) -> str:
    """Return a key for a kernel: its Python name if that is free and valid."""
    last = path.rpartition(".")[2].lstrip("_") if path.rpartition(".")[2].startswith("__") else path.rpartition(".")[2]
    for name in (last, re.sub(r"\W", "_", path).lstrip("_")):
        if name.isidentifier() and not keyword.iskeyword(name) and name not in used and name != "aotcuda":
            return name
    number = next(number for number in range(2, 10**6) if f"{last}_{number}" not in used)
    return f"{last}_{number}"


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
