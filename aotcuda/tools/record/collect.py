"""Read the files that processes of a recorded command wrote (`inject/aotcuda_recorder/log.py`)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aotcuda.tools.record.records import Choice, Record, merge, merged_choices
from aotcuda.tools.record.sizes import Integers, merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_T = TypeVar("_T")

_FACTS = (
    "frontend", "kind", "module", "function", "signature", "options", "line", "path", "behind", "refused",
    "types_refused", "declared",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCppLaunches:
    """The launches of one kernel in CUDA C++.

    Attributes:
        digest: SHA-256 of its source text.
        text: Its source text.
        name: Its name, with the arguments of a template.
        site: `file:line` of the first launch.
        made: `file:line` where the program passes the text to a library.
        options: The options of NVRTC.
        types: NumPy's name for the type of each argument; `[]` marks arrays.
        cooperative: All blocks run at once.
        parameters: The types or sizes that the table needs, by parameter.
        count: The number of launches.
    """

    digest: str
    text: str
    name: str
    site: str
    made: str
    options: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    cooperative: bool = False
    parameters: tuple[tuple[str, str], ...] = ()
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """The launches of one command.

    Attributes:
        records: The functions that it launched or compiled.
        choices: The configs that autotuners chose.
        integers: The integers of launches of Triton's kernels.
        cuda_cpp: Its launches of kernels in CUDA C++.
        started: The recorder ran in at least one of its Python processes.
        installed: The distribution of each imported package, by the name of the package.
        results: The first reads of results of launches that were not executed: the call and `file:line`.
        failures: Launches that could not be recorded, with tracebacks.
        failed_imports: The imports that ended processes: the message, the module or None, the Python, and True if there
            is no such module.
        refused: The first launches whose arguments Numba refused: `file:line`, and the fact.
        files: Files of the user that the command wrote after it had timed configs without executing launches.
    """

    records: tuple[Record, ...]
    choices: tuple[Choice, ...]
    integers: tuple[Integers, ...]
    cuda_cpp: tuple[CudaCppLaunches, ...]
    started: bool
    installed: dict[str, str]
    results: tuple[tuple[str, str], ...]
    failures: tuple[tuple[str, str], ...]
    failed_imports: tuple[tuple[str, str | None, str, bool], ...] = ()
    refused: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def read(folders: Sequence[Path], root: Path) -> Launches:
    """Read all files in the folders, one for each run of the command; paths below `root` become relative to it."""
    facts = [item for folder in folders for path in sorted(folder.glob("*.jsonl")) for item in _file(path)]

    def select(kind: str) -> list[dict[str, Any]]:
        return [item for item in facts if item["kind"] == kind]

    def each(items: Iterable[_T]) -> tuple[_T, ...]:
        return tuple(dict.fromkeys(items))

    return Launches(
        records=tuple(merge(_record(item, root) for item in facts if item["kind"] in ("kernel", "device"))),
        choices=tuple(merged_choices(_choice(item) for item in select("choice"))),
        integers=tuple(merged(map(_integers, select("integers")))),
        cuda_cpp=each(_cuda_cpp(item, root) for item in select("cuda-cpp")),
        started=all((folder / "started").exists() for folder in folders),
        installed={
            name: distribution for item in select("installed") for name, distribution in item["packages"].items()
        },
        results=tuple((item["call"], _relative(item["site"], root)) for item in select("result")),
        failures=each((item["fact"], item["traceback"]) for item in select("failure")),
        failed_imports=each(
            (item["error"], item["name"], item["python"], item["missing"]) for item in select("import")
        ),
        refused=each(f"{_relative(item['site'], root)}: {item['fact']}" for item in select("refused")),
        files=each(item["path"] for item in select("file")),
    )


def _file(path: Path) -> list[dict[str, Any]]:
    counts = memoryview(path.with_suffix(".counts").read_bytes()).cast("Q")
    facts = []
    for line in path.read_bytes().splitlines():
        try:
            item = json.loads(line)
        except ValueError:  # the process was killed while it wrote this
            continue
        facts.append({**item, "count": counts[item["slot"]]})
    return facts


def _record(item: dict[str, Any], root: Path) -> Record:
    return Record(
        **{name: item[name] for name in _FACTS if name in item},
        file=_relative(item["file"], root),
        site=_relative(item["site"], root) if "site" in item else None,
        launches={item["gpu"]: item["count"]} if item["count"] else {},
    )


def _cuda_cpp(item: dict[str, Any], root: Path) -> CudaCppLaunches:
    facts: dict[str, Any] = {name: item[name] for name in ("digest", "text", "name", "cooperative", "count")}
    facts |= {name: tuple(item[name]) for name in ("options", "types")}
    facts |= {name: _relative(item[name], root) for name in ("site", "made")}
    return CudaCppLaunches(**facts, parameters=tuple(item["parameters"].items()))


def _choice(item: dict[str, Any]) -> Choice:
    facts: dict[str, Any] = {name: item.get(name) for name in ("module", "function", "path", "keys", "key", "config")}
    timings = {item["gpu"]: item["timings"]} if "timings" in item else {}
    return Choice(**facts, launches={item["gpu"]: item["count"]}, timings=timings)


def _integers(item: dict[str, Any]) -> Integers:
    facts: dict[str, Any] = {name: item[name] for name in ("module", "function", "path", "names", "equal")}
    return Integers(**facts, rows=[item["values"]])


def _relative(path: str, root: Path) -> str:
    """Return a path, perhaps with a line number, relative to the project; links to the project count as the project."""
    if Path(path).is_absolute():
        for absolute in (Path(path), Path(os.path.realpath(path))):
            if absolute.is_relative_to(root):
                return absolute.relative_to(root).as_posix()
    return path
