"""`aotcuda record`: run a command, add up what it launched, and print, write or check the tables."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aotcuda.common import foreign, project_file, uninstalled_hook
from aotcuda.errors import ConfigError
from aotcuda.tools.init import project_sources
from aotcuda.tools.record import (
    collect,
    cuda_cpp,
    packs,
    process,
    project,
    pyproject,
    records,
    report,
    tables,
    variant_files,
)
from aotcuda.tools.record import dry as dry_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aotcuda.tools.record.collect import CudaCppLaunches, Run
    from aotcuda.tools.record.project import Project
    from aotcuda.tools.record.records import Recorded


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
    gpu: str | None = None,
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
        dry: True: execute no launch; False: execute launches; None: execute them if there is a GPU.
        gpu: The GPU whose properties programs see in a dry run.
        packages: Import names of installed packages whose Triton kernels go into a pack.

    Raises:
        ConfigError: A file cannot be read, merged or written; pyproject.toml is as it was.
        TargetError: No GPU is called `gpu`.
        DependencyError: tomlkit is not installed, and `write` needs it.
    """
    owner = replace(_project(needed=write or check), packages=tuple(packages))
    if write:
        _check_writable(owner)
    path = out or owner.root / records.FILE_NAME
    accumulates = write or not check or out is not None
    if accumulates:
        records.check(path)  # fail now, and not after an hour of tests
    mode = dry_runs.choose(owner.aotcuda, dry=dry, gpu=gpu)
    report.say(mode.said)
    with tempfile.TemporaryDirectory(prefix="aotcuda-record-") as folder:
        try:
            status = process.run(command, Path(folder), mode, project_file.table(owner.aotcuda, "types"))
        except OSError as error:
            report.say(f"{command[0]} cannot be run: {error.strerror}")
            return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        done = collect.read(Path(folder), owner.root)
    total = records.Recorded().plus(done.records, done.choices)
    if accumulates:
        total = _add(path, total, owner, out) if done.records else records.load(path)
    runs = f"; {total.runs} run{'s' * (total.runs != 1)} in {path}" if accumulates and done.records else ""
    report.print_summary(done, owner, runs)
    report.print_first_result(done)
    for line in cuda_cpp.plan(done.cuda_cpp, owner)[1]:
        report.say(f"left out: {line}")
    missing = _check(done, owner) if check else []
    if write:
        reread = replace(project.read(owner.root), packages=owner.packages)
        _write(total, reread, done.installed, done.cuda_cpp)
    elif not check:
        _print(total, owner)
        if text := cuda_cpp.render(cuda_cpp.plan(done.cuda_cpp, owner)[0]):
            foreign.show(text.removesuffix("\n"))
    has_problems = _print_problems(done, check=check)
    if mode.dry and status:
        recorded = bool(done.cuda_cpp) or any(item.launches for item in done.records)
        report.print_failure(status, recorded=recorded)
        status = 0 if recorded else status
    return status or int(bool(missing) or has_problems)


def merge(files: Sequence[Path], *, out: Path | None = None) -> None:
    """Merge files of other machines into the project: files of records, variants files and tuning files.

    Args:
        files: The files; of several choices for one GPU and one key of an autotuner, the last one counts.
        out: As for `run`.

    Raises:
        ConfigError: A file is of another kind, or belongs to no module of the project. The files before it were
            merged; the files after it were not.
        DependencyError: tomlkit is not installed.
    """
    owner = _project(needed=True)
    _check_writable(owner)
    path = out or owner.root / records.FILE_NAME
    for file in files:
        kind = variant_files.kind_of(file)
        if kind is None:
            every = _add(path, records.load_given(file), owner, out)
            report.say(f"{file}: merged into {path}")
            _write(every, project.read(owner.root), {}, ())
        else:
            report.say(f"{file}: merged into {variant_files.merge(file, kind, owner)}")


def _add(path: Path, more: Recorded, owner: Project, out: Path | None) -> Recorded:
    every = records.add(path, more)
    if out is None and owner.text is not None and (ignoring := records.ignore(owner.root)):
        report.say(f"{ignoring}: {records.FILE_NAME} added, so that git and sdists leave it out")
    return every


def _project(*, needed: bool) -> Project:
    try:
        return project.find(Path.cwd())
    except ConfigError as error:
        if needed:
            raise
        report.say(f"{error}")
        return project.Project(root=Path.cwd(), text=None)


def _check_writable(owner: Project) -> None:
    if owner.text is None:
        message = f"there is no {project_file.FILE_NAME} in {owner.root} or above; --write merges into one"
        raise ConfigError(message)
    pyproject.check(owner.text)


def _check(done: Run, owner: Project) -> list[str]:
    launched = [item for item in done.records if item.launches]
    if not launched and not done.cuda_cpp:
        report.say("no kernel was launched, so nothing was recorded; run a command that launches the kernels")
        return []
    wanted, left_out, _ = tables.sort(launched, owner)
    in_toml, in_files = variant_files.split(wanted, owner)
    missing = report.missing_signatures(tables.Tables(owner.aotcuda).additions(in_toml))
    missing += [f"missing: {line}" for line in cuda_cpp.describe(cuda_cpp.plan(done.cuda_cpp, owner)[0])]
    missing += report.missing_variants(variant_files.plan(in_files, owner))
    of_wheel = [item for item in left_out if tables.is_of_the_wheel(item.record, owner)]
    for line in missing:
        report.say(line)
    if not missing:
        report.say(report.completeness(of_wheel))
    return missing


def _write(every: Recorded, owner: Project, installed: Mapping[str, str], launched: Sequence[CudaCppLaunches]) -> None:
    wanted, left_out, _ = tables.sort(every.records, owner)
    files_of_cpp, _ = cuda_cpp.plan(launched, owner)
    if not wanted and not files_of_cpp:
        what = "all launches were left out" if left_out else "no kernel of the project was launched"
        report.say(
            f"{what}, so there is nothing to write into {owner.pyproject}; run a command that launches the kernels"
        )
        return
    in_toml, in_files = variant_files.split(wanted, owner)
    known = tables.Tables(owner.aotcuda)
    additions = known.additions(in_toml)
    modules = variant_files.plan(in_files, owner)
    files = [(module.file, module.merged()) for module in modules if module.missing]
    tunings = [(module.tuning_file, variant_files.with_choices(module, every.choices)) for module in modules]
    files += [(path, content) for path, content in tunings if content is not None]
    new = {module.module: module.settings for module in modules if module.settings}
    required = _required(owner, {item.source for item in wanted}, installed)
    if additions or new or required or files_of_cpp:
        editor = pyproject.Editor(owner.text or "")
        cuda_cpp.write(editor, files_of_cpp)
        if required:
            editor.extend(("build-system", "requires"), required)
        pyproject.add_kernels(editor, additions, known.default_frontend)
        pyproject.add_settings(editor, new)
        pyproject.write(owner.pyproject, editor.text())
    package = packs.write_package(owner) if any(item.get("pack") for item in new.values()) else None
    written = [path for path, content in files if variant_files.write(path, content)]
    if package is not None:
        report.say(f"{package.relative_to(owner.root)}: written; importing the package lets others use its kernels")
    for line in [
        *report.additions(additions),
        *report.notes(additions),
        *report.added_variants(modules, written, owner),
    ]:
        report.say(line)
    for line in cuda_cpp.describe(files_of_cpp):
        report.say(f"added to {line}")
    if required:
        report.say(f"added to build-system.requires, since the sources import them: {', '.join(required)}")
    if not additions and not new and not written and not required and not files_of_cpp:
        report.say(f"{owner.pyproject} has every signature that was recorded")
    if fault := uninstalled_hook.project_fault(str(owner.root)):
        report.say(f"{fault}, or the wheel has no kernels; `aotcuda init` adds it")


def _required(owner: Project, sources: set[str], installed: Mapping[str, str]) -> list[str]:
    """Return the distributions that a build imports and that `build-system.requires` lacks."""
    if "requires" not in project_file.table(owner.data, "build-system"):
        return []  # `aotcuda init` writes the table
    wanted = project_sources.requirements(owner, project_sources.trees(owner), sources, installed)
    exact = packs.requirements(sources, owner, installed)
    names = {*map(project_sources.name_of, exact)}
    others = [item for item in wanted if project_sources.name_of(item) not in names]
    return project_sources.missing(owner, [*others, *exact])


def _print(every: Recorded, owner: Project) -> None:
    """Print the tables for all records, by the existing modules."""
    wanted, _, _ = tables.sort(every.records, owner)
    in_toml, in_files = variant_files.split(wanted, owner)
    modules = project_file.table(owner.aotcuda, "modules")
    bare = {
        name: {key: value for key, value in module.items() if key not in ("kernels", "functions")}
        for name, module in modules.items()
        if isinstance(module, dict)
    }
    known = tables.Tables({**owner.aotcuda, "modules": bare})
    text = report.render(known.additions(in_toml), [item for item in every.records if item.kind == "device"])
    text += report.render_variants(variant_files.plan(in_files, owner))
    if text:
        foreign.show(text.removesuffix("\n"))
    sys.stdout.flush()


def _print_problems(done: Run, *, check: bool) -> bool:
    """Print the launches that were not recorded; return True if the exit status has to be 1."""
    found = [f"{what}:\n{trace.rstrip()}" for what, trace in done.failures]
    found += [_WITHOUT_SIMULATOR.format(frontend) for frontend in sorted(done.without_gpu)]
    if not done.started:
        found.append(
            "no Python process of the command could be recorded; Python reads PYTHONPATH unless it is started with "
            "-I, -E or -S, or a program that starts it has removed PYTHONPATH from the environment"
        )
    for text in found:
        report.say(text)
    return bool(done.failures or done.without_gpu or (check and found))


_WITHOUT_SIMULATOR = (
    "launches of {} cannot be executed here: there is no GPU, and that front end has no simulator; record without "
    "--execute"
)
