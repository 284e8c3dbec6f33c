"""Compare the records with `[tool.aotcuda]`."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aotcuda.common.project_file import strings, table
from aotcuda.tools.record import notation, packs, variants
from aotcuda.tools.record.project import is_test, sources_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedKernel:
    """A kernel that can be packaged, with its recorded signatures.

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

    @property
    def has_variants(self) -> bool:
        """Return True if the front end packages variants."""
        return variants.has_variants(self.records[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A launched function that no table can name, with the reason."""

    record: Record
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """The entries that the tables lack for one kernel.

    Attributes:
        kernel: The kernel.
        module: The module that packages it.
        key: Its key in the table.
        is_new: True if the table has no such key yet.
        records: The records whose signatures or variants are missing.
    """

    kernel: RecordedKernel
    module: str
    key: str
    is_new: bool
    records: tuple[Record, ...]

    @property
    def is_by_hand(self) -> bool:
        """Return True if the user has to extend the kernel's entry, or move its variants to a variants file."""
        return self.kernel.has_variants

    @property
    def place(self) -> str:
        """Return the place of its key in pyproject.toml."""
        return f'tool.aotcuda.modules."{self.module}".kernels.{self.key}'

    @property
    def is_known(self) -> bool:
        """Return True if a run launched the kernel, or its source has signatures."""
        return any(record.launches or record.declared for record in self.records)

    @property
    def signatures(self) -> list[str]:
        """Return the missing signatures, each once."""
        return list(dict.fromkeys(record.signature for record in self.records if record.signature))

    @property
    def notes(self) -> list[str]:
        """Return notes for the reader of its table."""
        return variants.notes(self.records) if self.kernel.has_variants else []

    @property
    def comments(self) -> list[str]:
        """Return comments for the kernel's key: its place, its launches, options of `@cuda.jit`, and notes."""
        record = self.records[0]
        count = sum(record.count for record in self.records)
        options = ", ".join(f"{name}={value!r}" for name, value in sorted(record.options.items()))
        decorator = f"; @cuda.jit({options})" if options and not self.kernel.has_variants else ""
        return [f"{record.place}, {count} launch{'es' * (count != 1)}{decorator}", *self.notes]

    @property
    def value(self) -> Any:
        """Return the value of a new kernel's key."""
        path = self.kernel.path
        python = None if path == self.key else f"{self.kernel.source}:{path}" if "." in path else path
        if self.kernel.has_variants:
            return variants.tables(self.records, python)
        if not self.signatures:  # a build finds them in the source
            return {} if python is None else {"python": python}
        return self.signatures if python is None else {"python": python, "signatures": self.signatures}


def divide(records: Iterable[Record], project: Project) -> tuple[list[RecordedKernel], list[LeftOut], Counter[str]]:
    """Divide records into kernels that can be packaged, records that cannot, and launches of other packages."""
    kernels: dict[tuple[str, str, str], list[Record]] = {}
    left_out: list[LeftOut] = []
    others: Counter[str] = Counter()
    for record in records:
        if record.kind != "kernel" or not (record.launches or record.declared):
            continue
        is_packed = packs.is_packed(record, project)
        is_importable = is_packed or project.file_of(record.module) is not None
        if not is_importable and record.module not in ("__main__", "__mp_main__") and not _is_in_project(record):
            others[record.module.partition(".")[0]] += record.count
        elif reason := _reason(record, project, is_importable=is_importable):
            left_out.append(LeftOut(record=record, reason=reason))
        else:
            path = record.path or record.function
            kernels.setdefault((record.module, path, record.frontend), []).append(record)
    packageable = [
        RecordedKernel(source=source, path=path, frontend=frontend, records=tuple(items))
        for (source, path, frontend), items in sorted(kernels.items())
    ]
    return packageable, left_out, others


def is_for_wheel(record: Record, project: Project) -> bool:
    """Return True if a kernel is defined in a module for wheels, not in a test or script."""
    return project.file_of(record.module) is not None and not is_test(record.file)


def _is_in_project(record: Record) -> bool:
    """Return True if a file is in the project, outside environments."""
    return not record.file.startswith("/") and "site-packages" not in record.file


def has_entry(source: str, path: str, project: Project) -> bool:
    """Return True if a table of pyproject.toml names the kernel at a path of a source."""
    return any(source in sources_of(module) and _entries(module, source, path) for module in project.modules.values())


def _is_generated(source: str, project: Project) -> bool:
    """Return True if a generated module packages kernels of a source."""
    return any(
        source in sources_of(module) and sources_of(module) != [name] and module.get("pack") is not True
        for name, module in project.modules.items()
    )


def _reason(record: Record, project: Project, *, is_importable: bool) -> str | None:
    """Return the reason for which no table can name a function, or None."""
    if record.refused:
        return record.refused
    if is_test(record.file):
        return "it belongs to the tests"
    if not is_importable:
        return f"the project has no module {record.module}; import it by the name that it has in the wheel"
    if record.types_refused:
        return record.types_refused
    if problem := variants.refusal(record):
        return problem
    if variants.is_tuned(record) and _is_generated(record.module, project):
        return (
            "it is autotuned, and autotuned kernels are packaged in place; name its own module as source of a module "
            "of the same name"
        )
    if record.path is None and ("<" in record.function or record.launches):
        if record.behind is not None:
            return (
                f"it is behind a decorator: {record.function} is a {record.behind} without a reference to it; "
                "let the decorator store it in `__wrapped__`"
            )
        maker = record.function.rpartition(".<locals>")[0]
        place = f"it is made inside {maker}() and " if maker else ""
        return f"{place}no name in its module leads to it; give it one at the module's top level"
    return None


def additions(
    kernels: Iterable[RecordedKernel], project: Project, generated: Mapping[str, str] = MappingProxyType({})
) -> list[Addition]:
    """Return the entries that the tables lack.

    Args:
        kernels: The kernels.
        project: The project.
        generated: By source, the names of new modules that are generated; others are packaged in place.
    """
    tables = _Tables(project, generated)
    return [item for kernel in kernels if (item := tables.addition(kernel)) is not None]


class _Tables:
    """The modules of `[tool.aotcuda]`, and the keys of new modules and kernels."""

    def __init__(self, project: Project, generated: Mapping[str, str]) -> None:
        self._project = project
        self._generated = generated
        self._modules = project.modules
        self._new_modules: dict[str, str] = {}  # with their front ends
        self._keys = {
            name: {*table(module, "kernels"), *table(module, "functions")} for name, module in self._modules.items()
        }

    def addition(self, kernel: RecordedKernel) -> Addition | None:
        """Return the entries that the tables lack for a kernel, or None."""
        module = self._module(kernel)
        entries = self._entries(module, kernel)
        if kernel.has_variants:
            missing: Sequence[Record] = _missing_variants(kernel, entries)
        else:
            missing = self._missing_signatures(kernel, entries, in_place=module == kernel.source)
        if not missing:
            return None
        keys = self._keys.setdefault(module, set())
        path = kernel_path(kernel.path) if kernel.has_variants else kernel.path
        key = next(iter(entries), None) or key_for(path, keys)
        keys.add(key)
        return Addition(kernel=kernel, module=module, key=key, is_new=not entries, records=tuple(missing))

    def _module(self, kernel: RecordedKernel) -> str:
        """Return the module that packages kernels of a source, or the name of a new one."""
        for name, module in self._modules.items():
            if kernel.source in sources_of(module) and self._project.front_end(module) == kernel.frontend:
                return name
        name = self._generated.get(kernel.source, kernel.source)
        while name in self._modules or self._new_modules.setdefault(name, kernel.frontend) != kernel.frontend:
            name += "_mlir" if kernel.frontend.endswith("mlir") else "_cuda"
        return name

    def _entries(self, module: str, kernel: RecordedKernel) -> dict[str, Any]:
        """Return the entries of a module that name a kernel's function."""
        return _entries(self._modules.get(module), kernel.source, kernel.path)

    def _missing_signatures(
        self, kernel: RecordedKernel, entries: dict[str, Any], *, in_place: bool
    ) -> Sequence[Record]:
        packaged = [text for value in entries.values() for text in _signatures(value)]
        uses_source = bool(entries) and not packaged  # the build uses the signatures in the source
        if uses_source:
            packaged = [record.signature for record in kernel.records if record.declared and record.signature]
        missing = [
            record for record in kernel.records if not self._is_accepted(record.signature, packaged, adopt=not in_place)
        ]
        # A signature in the table replaces the ones in the source.
        return kernel.records if missing and uses_source else missing

    def _is_accepted(self, launched: str | None, packaged: Sequence[str], *, adopt: bool) -> bool:
        """Return True if one of the packaged signatures accepts the arguments of a launch."""
        types = self._project.types
        try:
            signature = notation.parse(launched or "", types)
        except ValueError:
            return launched in packaged
        for text in packaged:
            try:
                if notation.accepts(notation.parse(text, types), signature, adopt=adopt):
                    return True
            except ValueError:  # the build reports it
                continue
        return False


def _entries(module: Any, source: str, path: str) -> dict[str, Any]:
    """Return the entries of a module's table that name a function."""
    names = (kernel_path(path), f"{source}:{kernel_path(path)}")
    return {
        name: value
        for name, value in table(module, "kernels").items()
        if kernel_path(str(_first(value).get("python", name) if isinstance(_first(value), dict) else name)) in names
    }


def _first(value: Any) -> Any:
    """Return the first item of a list; other values are unchanged."""
    return value[0] if isinstance(value, list) and value else value


def _missing_variants(kernel: RecordedKernel, entries: dict[str, Any]) -> list[Record]:
    return [
        record for record in kernel.records if not any(variants.covers(value, record) for value in entries.values())
    ]


def _signatures(kernel: object) -> list[str]:
    """Return the signatures in the value of a kernel's key."""
    if isinstance(kernel, dict):
        kernel = kernel.get("signatures", kernel.get("signature", []))
    return strings(kernel if isinstance(kernel, list) else [kernel])


def kernel_path(path: str) -> str:
    """Return the path of a kernel without decorators: `softmax` of `softmax.fn.fn`."""
    return re.sub(r"(\.fn)+$", "", path)


def key_for(path: str, used: set[str]) -> str:
    """Return a key for a kernel: its Python name if that is free and valid."""
    whole = re.sub(r"\W+", "_", path).strip("_")
    name = path.rpartition(".")[2]
    name = (name.lstrip("_") if name.startswith("__") else name) if name.isidentifier() else whole
    for key in (name, whole):
        if key.isidentifier() and not keyword.iskeyword(key) and key not in used and key != "aotcuda":
            return key
    number = next(number for number in range(2, 10**6) if f"{name}_{number}" not in used)
    return f"{name}_{number}"
