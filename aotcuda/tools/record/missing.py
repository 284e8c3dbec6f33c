"""Find the entries that pyproject.toml and the variants files lack for recorded launches, and add them to a text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotcuda.tools.record import cuda_cpp, pyproject, tables, variant_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aotcuda.tools.record.cuda_cpp import CudaCppAddition
    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.pyproject import Editor
    from aotcuda.tools.record.records import Record
    from aotcuda.tools.record.tables import Addition, LeftOut, RecordedKernel
    from aotcuda.tools.record.variant_files import VariantModule


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """The entries that a project lacks.

    Attributes:
        kernels: The recorded kernels that can be packaged.
        left_out: The records that cannot be packaged.
        additions: The missing entries of pyproject.toml, except of kernels in CUDA C++.
        modules: The modules whose variants are in files, each with its missing variants.
        cuda_cpp: The missing entries of kernels in CUDA C++.
    """

    kernels: Sequence[RecordedKernel]
    left_out: Sequence[LeftOut]
    additions: Sequence[Addition]
    modules: Sequence[VariantModule]
    cuda_cpp: Sequence[CudaCppAddition]

    @property
    def has_tables(self) -> bool:
        """Return True if pyproject.toml lacks an entry."""
        return bool(self.additions or self.cuda_cpp or any(module.settings for module in self.modules))

    def parts(self) -> list[Missing]:
        """Return the entries of kernels, of variants files and of CUDA C++ apart, as each may name the same module."""
        return [
            replace(self, modules=(), cuda_cpp=()),
            replace(self, additions=(), cuda_cpp=()),
            replace(self, additions=(), modules=()),
        ]

    def add_tables(self, editor: Editor, default_front_end: str, *, with_comments: bool = False) -> None:
        """Add the missing entries of pyproject.toml."""
        pyproject.add_kernels(editor, self.additions, default_front_end, with_comments=with_comments)
        for module in self.modules:
            settings = module.settings
            comments = {}
            if with_comments:
                settings = settings or {"variants": module.file_name}
                comments = {"": [f"--write adds {module.count} to the variants file"]} if module.missing else {}
            pyproject.add_entries(editor, ("tool", "aotcuda", "modules", module.name), settings, comments)
        cuda_cpp.add_kernels(editor, self.cuda_cpp)


def find(
    records: Iterable[Record],
    cuda_additions: Sequence[CudaCppAddition],
    project: Project,
    newest: Iterable[Record],
) -> Missing:
    """Return the entries that a project lacks.

    Args:
        records: The records of all runs.
        cuda_additions: The missing entries of kernels in CUDA C++.
        project: The project.
        newest: The records of the last run. Earlier ones may be of a version of a kernel with other parameters.

    Raises:
        ConfigError: A variants file is damaged.
    """
    keys = {record.key for record in newest}
    kernels, left_out, _ = tables.divide(records, project)
    in_tables: list[RecordedKernel] = []
    in_files: list[RecordedKernel] = []
    for kernel in kernels:
        is_in_file = kernel.has_variants and not tables.has_entry(kernel.source, kernel.path, project)
        (in_files if is_in_file else in_tables).append(kernel)
    in_tables = [
        variant_files.select_version(kernel, keys, {}) if kernel.has_variants else kernel for kernel in in_tables
    ]
    return Missing(
        kernels=kernels,
        left_out=left_out,
        additions=tables.additions(in_tables, project),
        modules=variant_files.plan(in_files, project, keys),
        cuda_cpp=cuda_additions,
    )
