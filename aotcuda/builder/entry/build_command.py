"""Build a project into a folder, for build systems without a hook: `aotcuda build`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from aotcuda.builder.emit import build_report, report
from aotcuda.builder.entry import api
from aotcuda.builder.project import output_conflicts
from aotcuda.builder.write import depfile as depfiles
from aotcuda.builder.write import output
from aotcuda.common import foreign, project_file, uninstalled_hook
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def build_project(
    project: Path,
    out: Path | None = None,
    show: Callable[[str], None] = lambda _: None,
    *,
    bill: Path | None = None,
    depfile: Path | None = None,
    stamp: Path | None = None,
    quiet: bool = False,
    verbose: bool = False,
    shard: tuple[int, int] | None = None,
    from_cache_only: bool = False,
    costs: Path | None = None,
    report_file: Path | None = None,
) -> list[Path]:
    """Build a project into a folder without a wheel and return the files; unchanged files are not written again.

    Args:
        project: A folder with a pyproject.toml, or that file.
        out: The output folder, `build/aotcuda` in the project by default. It has the layout of a wheel.
        show: Takes each warning, note and line of the summary.
        bill: The file for the bill of materials.
        depfile: The file for the dependencies of the build, as a rule for make and ninja.
        stamp: A file that every successful build writes. The rule's target is then this file, and the rule names the
            outputs, so a removed output is built again. Files that the previous build wrote and this one does not are
            removed.
        quiet: Leave out the summary.
        verbose: Add the slowest steps to the summary.
        shard: Compile one shard into the build cache and write no files: the number of the shard, and of all shards.
        from_cache_only: Use the results of shards in the build cache, or fail.
        costs: The report of an earlier build, to divide the kernels among shards by their seconds.
        report_file: The file for the report: seconds, bytes and hits of the build cache for each kernel and target.

    Raises:
        AotcudaError: The build failed; nothing has been written.
    """
    is_file = os.path.isfile(project)  # noqa: PTH113 (pathlib raises where a name is too long)
    path = project if is_file else project / project_file.FILE_NAME
    table = read_table(path)
    option_files = {"--sbom": bill, "--depfile": depfile, "--stamp": stamp, "--report": report_file}
    output_conflicts.check_options(option_files, path)
    hint = uninstalled_hook.project_fault(str(path.parent))
    folder = out if out is not None else path.parent / "build" / "aotcuda"
    time_file = stamp if stamp is not None else depfile  # build systems compare its time with the times of sources
    since = output.now(time_file) if time_file is not None else None
    seconds = _costs(costs) if costs is not None else {}
    built = api.build(
        table,
        path.parent,
        with_dependencies=depfile is not None,
        shard=shard,
        from_cache_only=from_cache_only,
        costs=seconds,
    )
    if shard is not None:
        for text in [*(f"warning: {text}" for text in built.warnings), *(() if quiet else built.notes)]:
            show(text)
        if report_file is not None:
            output.replace(report_file, build_report.render(built))
        return []
    output_conflicts.check_files(option_files, folder, built.files, built.depends)
    read = [path.resolve(), *built.depends]
    targets = [stamp] if stamp is not None else [folder / name for name in built.files]
    if stamp is not None:
        read += [folder / name for name in built.files]
    depfile_warnings = depfiles.warnings(targets, read) if depfile is not None else []
    for text in [*([hint] if hint else []), *built.warnings, *depfile_warnings]:
        show(f"warning: {text}")
    for text in built.notes:
        show(text)
    with output.write_around(built.files, folder, since) as paths:
        if stamp is not None:
            depfiles.remove_stale(stamp, built.files, folder)
        outputs = [*paths, *(output.write_bill(bill, built.sbom) if bill is not None else ())]
        if report_file is not None:
            output.replace(report_file, build_report.render(built))
        if depfile is not None:
            output.replace(depfile, depfiles.render([stamp] if stamp is not None else outputs, read))
        if stamp is not None:
            output.replace(stamp, depfiles.stamp(built.files, folder), since)
    for text in () if quiet else report.summary(built.summary, verbose=verbose):
        show(text)
    return outputs


def _costs(path: Path) -> dict[str, float]:
    """Return the seconds of each kernel and function in the report of an earlier build, by module and symbol.

    Raises:
        ConfigError: The file is no report.
    """
    try:
        units = json.loads(path.read_bytes())["units"]
        return {f"{unit['module']}.{unit['symbol']}": float(unit["seconds"]) for unit in units}
    except (OSError, ValueError, LookupError, TypeError) as error:
        message = f"{path}: it is no report of a build ({error}); name a file that aotcuda build --report has written"
        raise ConfigError(message) from None


def read_table(path: Path) -> Mapping[str, Any]:
    """Read `[tool.aotcuda]` from a pyproject.toml.

    Raises:
        ConfigError: There is no such file or table, or it cannot be read.
    """
    try:
        read = project_file.read(path)
    except foreign.UnreadableError as error:
        message = f"{path} {error}"
        raise ConfigError(message) from None
    if read is None:
        message = f"{path} does not exist; name a folder with a pyproject.toml"
        raise ConfigError(message)
    table = project_file.table(read[1], "tool").get("aotcuda")
    if isinstance(table, list):
        raise ConfigError(project_file.LISTED)
    if not isinstance(table, dict):
        message = f"{path} has no [tool.aotcuda] table; the documentation's first page shows one"
        raise ConfigError(message)
    return table
