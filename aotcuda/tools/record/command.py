"""`aotcuda record`: run a command, add up its launches, and print, write or check the tables."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.common import foreign, project_file, uninstalled_hook
from aotcuda.errors import ConfigError
from aotcuda.tools.record import (
    collect,
    cuda_cpp,
    missing,
    not_launched,
    packs,
    process,
    pyproject,
    records,
    report,
    source_files,
    tables,
    variant_files,
)
from aotcuda.tools.record import dry as dry_runs
from aotcuda.tools.record.project import Project

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.tools.record.collect import Launches
    from aotcuda.tools.record.cuda_cpp import CudaCppAddition
    from aotcuda.tools.record.missing import Missing
    from aotcuda.tools.record.records import Record, Recorded
    from aotcuda.tools.record.tables import LeftOut, RecordedKernel


_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
"""A shell's exit statuses for a command that it cannot run."""


def run(
    command: Sequence[str],
    *,
    write: bool = False,
    check: bool = False,
    out: Path | None = None,
    dry: bool | None = None,
    gpus: Sequence[str] = (),
    packages: Sequence[str] = (),
) -> int:
    """Record a command and return its exit status.

    A command's own status is returned if it is not 0; for a signal it is 128 and the signal's number. After a command
    with status 0, the status is 1 if something could not be recorded, or if `check` is true and the tables lack
    something.
    In a dry run a command may fail because launches were not executed. Its status is then 0 if something was recorded.

    Args:
        command: The program and its arguments.
        write: Add missing entries to pyproject.toml and the variants files.
        check: Print the signatures of this run that the tables lack.
        out: The file to which runs add; by default a file next to pyproject.toml, or none with `check` alone.
        dry: True: execute no launch; None: execute launches if there is a GPU.
        gpus: The GPUs whose properties programs see in dry runs; the command runs once for each.
        packages: Import names of installed packages whose Triton kernels go into a pack.

    Raises:
        ConfigError: A file cannot be read, merged or written; pyproject.toml is as it was.
        TargetError: No GPU has one of these names.
        DependencyError: tomlkit is not installed, and `write` needs it.
    """
    project = replace(_project(required=write or check), packages=tuple(packages))
    if write:
        _check_writable(project)
    path = out or project.root / records.FILE_NAME
    accumulates = write or not check or out is not None
    if accumulates:
        records.check(path)  # fail now, and not after an hour of tests
    modes = [dry_runs.choose(project.aotcuda, dry=dry, gpu=gpu) for gpu in gpus or (None,)]
    try:
        status, launches = _run(command, modes, project)
    except OSError as error:
        remedy = "" if error.filename else "; set TMPDIR to a folder that can be written"  # an error of `tempfile`
        report.say(f"{command[0]} cannot be run: {error.strerror}{remedy}")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
    total = records.Recorded().plus(launches.records, launches.choices, launches.integers)
    runs = ""
    if accumulates and launches.records:
        total = _add(path, total, project, out)
        runs = f"; {total.runs} run{'s' * (total.runs != 1)} in {path}"
    elif accumulates:
        total = records.load(path)
    report.print_summary(launches, project, runs)
    report.print_first_result(launches)
    if total.records and (names := not_launched.find(total.records, project)):
        report.say(not_launched.describe(names, dry=modes[0].dry))
    report.print_files(launches)
    cuda_additions, cuda_left_out = cuda_cpp.plan(launches.cuda_cpp, project)
    for line in cuda_left_out:
        report.say(f"left out: {line}")
    is_complete = not check or _check(launches, cuda_additions, project)
    if write:
        project = replace(Project.read(project.root), packages=project.packages)  # the command may have changed it
        cuda_additions, _ = cuda_cpp.plan(launches.cuda_cpp, project)
        _write(total, launches, project, cuda_additions, launches.installed)
    elif not check:
        lacking = missing.find(total.records, cuda_additions, project.without_kernels(), launches.records)
        _print(lacking, [record for record in total.records if record.kind == "device"])
    report.print_gpus([item.gpu for item in modes], launches)
    if hook := uninstalled_hook.state(str(project.root)):
        report.say(hook)
    report.print_fixed_constants(tables.divide(total.records, project)[0], total.integers)
    has_problems = _print_problems(launches, check=check)
    if status and not modes[0].dry and not launches.records:
        report.print_failed_import(launches, project)
    if modes[0].dry and status:
        is_recorded = bool(launches.cuda_cpp) or any(record.launches for record in launches.records)
        report.print_failure(launches, project, status, is_recorded=is_recorded)
        status = 0 if is_recorded else status
    return status or int(has_problems or not is_complete)


def _run(command: Sequence[str], modes: Sequence[dry_runs.Mode], project: Project) -> tuple[int, Launches]:
    """Run the command in each mode; return the first exit status that is not 0, and all launches.

    Raises:
        OSError: The command cannot be run.
    """
    statuses, folders = [], []
    # A process that the command left behind may write into the folder while it is removed.
    with tempfile.TemporaryDirectory(prefix="aotcuda-record-", ignore_cleanup_errors=True) as parent:
        for number, mode in enumerate(modes):
            for line in mode.messages:
                report.say(line)
            folders.append(Path(parent, str(number)))
            folders[-1].mkdir()
            statuses.append(process.run(command, folders[-1], mode, project.types, _roots(project)))
        return next(filter(None, statuses), 0), collect.read(folders, project.root)


def merge(files: Sequence[Path], *, out: Path | None = None, packages: Sequence[str] = ()) -> None:
    """Merge files of other machines into the project: files of records, variants files and tuning files.

    Args:
        files: The files; of several choices for one GPU and one key of an autotuner, the last one counts.
        out: As for `run`.
        packages: As for `run`.

    Raises:
        ConfigError: A file is of another kind, or belongs to no module of the project. The files before it were
            merged; the files after it were not.
        DependencyError: tomlkit is not installed.
    """
    project = replace(_project(required=True), packages=tuple(packages))
    _check_writable(project)
    path = out or project.root / records.FILE_NAME
    for file in files:
        merged = variant_files.merge(file, project)
        if merged is not None:
            report.say(f"{file}: merged into {merged}")
            continue
        newest = records.load_given(file)
        total = _add(path, newest, project, out)
        report.say(f"{file}: merged into {path}")
        _write(total, newest, replace(Project.read(project.root), packages=project.packages))


def _roots(project: Project) -> list[Path]:
    """Return the folders of the project's packages; name the packages that are not installed here."""
    own = project.own_packages()
    absent = sorted(name for name in own if importlib.util.find_spec(name) is None)
    if absent:
        folders = " and ".join(dict.fromkeys(os.path.relpath(own[name], project.root) for name in absent))
        report.say(f"not installed: {', '.join(absent)}; the command imports from {folders}, as a build does")
    return list(dict.fromkeys(own.values()))


def _add(path: Path, more: Recorded, project: Project, out: Path | None) -> Recorded:
    """Add records to the file of records; have git ignore the file if it is in the project."""
    total = records.add(path, more)
    if out is None and project.text is not None and (git_file := records.ignore(project.root)):
        report.say(f"{git_file}: {records.FILE_NAME} added, so that git and sdists leave it out")
    return total


def _project(*, required: bool) -> Project:
    try:
        return Project.find(Path.cwd())
    except ConfigError as error:
        if required:
            raise
        report.say(f"{error}")
        return Project(root=Path.cwd(), text=None)


def _check_writable(project: Project) -> None:
    if project.text is None:
        message = f"there is no {project_file.FILE_NAME} in {project.root} or above; --write merges into one"
        raise ConfigError(message)
    pyproject.check(project.text)


def _check(launches: Launches, cuda_additions: Sequence[CudaCppAddition], project: Project) -> bool:
    """Print the launches that the tables lack; return True if they lack none."""
    launched = [record for record in launches.records if record.launches]
    if not launched and not launches.cuda_cpp:
        report.say("no kernel was launched, so nothing was recorded; run a command that launches the kernels")
        return True
    lacking = missing.find(launched, cuda_additions, project, launched)
    lines = [
        *report.missing_signatures(lacking.additions),
        *(f"missing: {line}" for line in cuda_cpp.describe(cuda_additions)),
        *report.missing_variants(lacking.modules),
    ]
    for line in lines:
        report.say(line)
    if not lines:
        left_out = [item for item in lacking.left_out if tables.is_for_wheel(item.record, project)]
        report.say(report.completeness(left_out))
    return not lines


def _write(
    total: Recorded,
    newest: Launches | Recorded,
    project: Project,
    cuda_additions: Sequence[CudaCppAddition] = (),
    installed: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the entries that the tables and the variants files lack, and print them.

    Args:
        total: The records and choices of all runs.
        newest: The records and choices of the last run.
        project: The project.
        cuda_additions: The missing entries of kernels in CUDA C++.
        installed: The distribution of each package that the command imported.
    """
    lacking = missing.find(total.records, cuda_additions, project, newest.records)
    if not lacking.kernels and not cuda_additions:
        report.say(_nothing_to_write(lacking.left_out, project))
        return
    files = variant_files.contents(lacking.modules, total.choices, newest.choices, total.integers)
    editor = pyproject.Editor(project.text or "")
    texts = cuda_cpp.write_files(project, cuda_additions)
    if lacking.has_tables:
        pyproject.add_targets(editor)
        lacking.add_tables(editor, project.front_end({}))
    required = _missing_requirements(project, lacking.kernels, installed)
    if required:
        editor.extend(("build-system", "requires"), required)
    if editor.is_changed:
        pyproject.write(project.pyproject, editor.text())
    package = packs.write_package(project) if any(item.settings.get("pack") for item in lacking.modules) else None
    written = [path for path, content in files.items() if variant_files.write(path, content)]
    if package is not None:
        report.say(f"{package.relative_to(project.root)}: written; importing the package lets others use its kernels")
    lines = [
        *report.additions(lacking.additions),
        *report.added_variants(lacking.modules, written, project),
        *(f"{source}: written, with the text that the command compiled" for source in texts),
        *(f"added to {line}" for line in cuda_cpp.describe(cuda_additions)),
        *cuda_cpp.remaining_steps(cuda_additions),
    ]
    if required:
        lines.append(f"added to build-system.requires, since the sources import them: {', '.join(required)}")
    if not lacking.has_tables and not required and not written:
        lines.append(f"{project.pyproject} has every signature that was recorded")
    for line in lines:
        report.say(line)


def _nothing_to_write(left_out: Sequence[LeftOut], project: Project) -> str:
    fact = "all launches were left out" if left_out else "no kernel of the project was launched"
    return f"{fact}, so there is nothing to write into {project.pyproject}; run a command that launches the kernels"


def _missing_requirements(
    project: Project, kernels: Sequence[RecordedKernel], installed: Mapping[str, str]
) -> list[str]:
    """Return the distributions that a build imports and that `build-system.requires` lacks."""
    system = project_file.table(project.data, "build-system")
    if "requires" not in system:
        return []  # `aotcuda init` writes the table
    sources = {kernel.source for kernel in kernels}
    has_triton = any(kernel.has_variants for kernel in kernels)
    exact = packs.requirements(sources, project, installed, has_triton=has_triton)
    imported = source_files.requirements(project, source_files.parse(project)[0], sources, installed)
    pinned = {*map(source_files.distribution, exact)}
    others = [item for item in imported if source_files.distribution(item) not in pinned]
    listed = {*map(source_files.distribution, project_file.strings(system["requires"]))}
    return [item for item in [*others, *exact] if source_files.distribution(item) not in listed]


def _print(lacking: Missing, devices: Sequence[Record]) -> None:
    """Print tables, and the device functions that their kernels call."""
    texts = []
    for part in lacking.parts():
        editor = pyproject.Editor("")
        part.add_tables(editor, registry.DEFAULT, with_comments=True)
        texts.append(editor.text())
    lines = "\n".join(filter(None, texts)).splitlines()
    if devices and lacking.additions:
        lines += ["", "# Device functions come along with the kernels that call them:"]
        lines += dict.fromkeys(
            f"#   {item.place}: {item.module}.{item.function} {item.signature or '(inlined)'}" for item in devices
        )
    if lines:
        foreign.show("\n".join(lines))
    sys.stdout.flush()


def _print_problems(launches: Launches, *, check: bool) -> bool:
    """Print the launches that were not recorded; return True if the exit status has to be 1."""
    problems = [f"{fact}:\n{trace.rstrip()}" for fact, trace in launches.failures]
    if not launches.started:
        problems.append(
            "no Python process of the command could be recorded; Python reads PYTHONPATH unless it is started with "
            "-I, -E or -S, or a program that starts it has removed PYTHONPATH from the environment"
        )
    for text in problems:
        report.say(text)
    return bool(launches.failures or (check and problems))
