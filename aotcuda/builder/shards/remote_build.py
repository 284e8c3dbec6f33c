"""The process of a shard on a worker of an executor: unpack the project, build, and return the entries."""

from __future__ import annotations

import json
import os
import signal
import sys
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from aotcuda import registry
from aotcuda.builder.cache import archive, settings
from aotcuda.builder.compile import interrupt, process_tree
from aotcuda.builder.emit import progress
from aotcuda.builder.entry import api
from aotcuda.builder.plan import toolkits
from aotcuda.builder.shards.remote_job import ARCHIVE, ENTRIES, REQUEST, RESULT
from aotcuda.cache import entries
from aotcuda.errors import AotcudaError


def main() -> None:
    """Build the shard of the request in the current folder.

    The argument is the worker's process number. If the tools of this machine differ, the result has that as the error.
    """
    process_tree.end_with_parent(int(sys.argv[1]), signal.SIGTERM)
    folder = Path.cwd()
    request = json.loads((folder / REQUEST).read_bytes())
    _adopt_variables(request)
    os.environ["AOTCUDA_CACHE_DIR"] = str(folder / "cache")
    result: dict[str, Any] = {"error": "", "refused": False}
    with interrupt.raise_interrupts():
        try:
            difference = _difference(request["tools"], request["distributions"])
            if difference:
                result = {"error": difference, "refused": True}
            else:
                result["warnings"] = _build(folder, request)
        except AotcudaError as error:
            result["error"], result["class"] = str(error), type(error).__name__
    (folder / RESULT).write_text(json.dumps(result), encoding="utf-8")


def _adopt_variables(request: dict[str, Any]) -> None:
    """Replace the environment variables that a build depends on by the variables of the request."""
    patterns = ["AOTCUDA_*", *registry.variables(registry.names()).kept, *request["table"].get("watch-env", [])]
    for name in list(os.environ):
        if settings.changes_entries(name) or any(fnmatchcase(name, pattern) for pattern in patterns):
            del os.environ[name]
    os.environ.update(request["variables"])


def _difference(expected: dict[str, Any], distributions: list[str]) -> str:
    """Return the first difference between the tools of the build and of this machine; empty if there is none."""
    tools = json.loads(json.dumps(settings.tools(distributions, toolkits.installed())))
    for name in sorted({*expected, *tools}):
        if expected.get(name) != tools.get(name):
            tool = f"{name} {_text(tools[name])}" if name in tools else f"no {name}"
            return f"has {tool}, and the build has {_text(expected.get(name, 'none'))}"
    return ""


def _text(version: object) -> str:
    """Return a version, or the parts of one, as one line."""
    return ", ".join(map(_text, version)) if isinstance(version, list) else " ".join(str(version).split())


def _build(folder: Path, request: dict[str, Any]) -> list[str]:
    """Build the shard, and put its entries into a folder; return the warnings."""
    project = folder / "project"
    with zipfile.ZipFile(folder / ARCHIVE) as sent:
        sent.extractall(project)
    built = api.build(
        request["table"],
        project,
        [project / path for path in request["roots"]],
        shard=(request["index"], request["count"]),
        processes=1,
        watcher=progress.Progress(),
    )
    (folder / ENTRIES).mkdir()
    files = entries.Files(settings.default_folder(), archive.NAMES)
    for name in files.stored():
        record, contents = entries.read(files, name)
        (folder / ENTRIES / name).write_bytes(archive.pack(name, record, contents))
    return list(built.warnings)
