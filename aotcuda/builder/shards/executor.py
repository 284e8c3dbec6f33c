"""Submit the shards of a build to an executor: a Dask cluster, or any `concurrent.futures.Executor`.

`AOTCUDA_EXECUTOR` names it. Each job is one shard with the project's files as one archive, and returns entries of the
build cache. Then the build continues from that cache alone.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import io
import logging
import os
import sys
import time
import zipfile
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from aotcuda import errors, registry
from aotcuda.builder.cache import settings
from aotcuda.builder.cache.store import Store
from aotcuda.builder.project import files
from aotcuda.builder.shards import remote_job
from aotcuda.common import foreign
from aotcuda.errors import BuildError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from aotcuda.builder.cache.settings import Settings
    from aotcuda.builder.compile.job import Job
    from aotcuda.builder.emit.progress import Progress
    from aotcuda.builder.plan.toolkits import Toolkit

    Future = concurrent.futures.Future[tuple[dict[str, Any], dict[str, bytes]]]

VARIABLE = "AOTCUDA_EXECUTOR"
_DASK = "dask://"
_FORMS = f"{_DASK}HOST:PORT, or module:function that returns a concurrent.futures.Executor"

_TICK = 0.5
"""Seconds between two checks of the executor."""
_TIME_LIMIT = 20.0
"""Seconds after which a scheduler that does not answer, or has no worker, is an error."""
_LARGEST = 1 << 31
"""The size limit of a file that is sent, in bytes."""
_ATTEMPTS = 3
"""The number of times that a job is submitted if its worker is lost."""
_LEAST_KERNELS = 8
"""The fewest kernels in a job: to compile them takes as long as to start the compiler."""
_MANY_KERNELS = 200
"""With this many kernels for each worker, there are two jobs for each, so that slow workers can do fewer."""


def fill(
    name: str,
    job: Job,
    table: Mapping[str, object],
    roots: Sequence[Path],
    installed: Sequence[Toolkit],
    watcher: Progress,
) -> list[str]:
    """Have an executor compile all units of a job into its cache; return the warnings of the shards.

    Args:
        name: The value of `AOTCUDA_EXECUTOR`.
        job: The job.
        table: The configuration.
        roots: The folders of the project's packages.
        installed: The installed toolkits.
        watcher: The display of progress.

    Raises:
        ConfigError: `AOTCUDA_EXECUTOR` names no executor.
        BuildError: The executor does not answer, a worker has other tools or is lost, or the project cannot be sent.
        AotcudaError: A kernel cannot be compiled.
    """
    root = Path(job.root)
    archive = pack_project(root, _named_paths(job))
    if not name.startswith(_DASK) and not all(name.partition(":")[::2]):
        message = f"{VARIABLE} is {name!r}; write {_FORMS}"
        raise ConfigError(message)
    store = Store(cast("Settings", job.cache))
    executors = Dask(name, watcher) if name.startswith(_DASK) else Executors(name, root)
    try:
        units = sum(len(plan.units) for plan in job.plans)
        slots = executors.slots
        count = max(1, min(2 * slots if units >= _MANY_KERNELS * slots else slots, units // _LEAST_KERNELS))
        request = _request(job, table, roots, installed)
        requests = [{**request, "index": index, "count": count} for index in range(1, count + 1)]
        return _run(executors, archive, requests, store, watcher)
    finally:
        executors.close()


def pack_project(root: Path, named: Sequence[Path] = ()) -> bytes:
    """Return the project's files as one archive.

    Hidden files, environments, results of builds and links that lead out of the project are left out.

    Args:
        root: The project's folder.
        named: Files and folders that the build reads, which may be among the results of builds.

    Raises:
        BuildError: A file cannot be read.
    """
    wanted = {path for path in named if path.is_file()}
    for top in (root, *(path for path in named if path.is_dir())):
        for folder, folders, names in files.walk(str(top)):
            folders[:] = [name for name in folders if _is_sent(Path(folder, name), root)]
            wanted |= {Path(folder, name) for name in names if not name.startswith(".") and not name.endswith(".pyc")}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(wanted):
            if path.is_file() and path.resolve().is_relative_to(root):
                info = zipfile.ZipInfo(path.relative_to(root).as_posix(), (1980, 1, 1, 0, 0, 0))
                archive.writestr(info, foreign.read(path, _LARGEST, error=BuildError), zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _is_sent(folder: Path, root: Path) -> bool:
    return not files.is_result(folder) and folder.resolve().is_relative_to(root)


def _named_paths(job: Job) -> list[Path]:
    """Return the files and folders that a job names.

    Raises:
        BuildError: One is outside of the project, so it is not sent.
    """
    root = Path(job.root)
    paths = [*map(Path, job.sources.extensions.values())]
    for item in job.plans:
        paths += [root / link.path for link in item.config.link if link.path is not None]
        paths += [root / folder for folder in item.config.options.include_dirs]
    packages = [Path(folder, name.partition(".")[0]) for folder in job.sources.import_roots for name in job.names]
    for path in [*map(Path, job.sources.import_roots), *packages, *paths]:
        if path.exists() and not path.resolve().is_relative_to(root):
            message = f"{VARIABLE}: {path} is outside of the project and is not sent to workers; unset the variable"
            raise BuildError(message)
    return paths


def _request(
    job: Job, table: Mapping[str, object], roots: Sequence[Path], installed: Sequence[Toolkit]
) -> dict[str, Any]:
    """Return the settings that all jobs share."""
    front_ends = sorted({plan.frontend for plan in job.plans})
    compiler_variables = registry.variables(front_ends)
    distributions = [
        name for item in map(registry.find, front_ends) if item is not None for name in item.all_distributions
    ]
    variables = {
        name: value
        for name, value in os.environ.items()
        if settings.changes_entries(name)
        or name == "AOTCUDA_ARCH"
        or name in compiler_variables.kept
        or any(fnmatchcase(name, pattern) for pattern in job.sources.watched_variables)
    }
    return {
        "table": table,
        "roots": [path.relative_to(job.root).as_posix() for path in roots],
        "variables": variables,
        "distributions": distributions,
        "tools": settings.tools(distributions, installed),
    }


def _run(
    executors: Executors, archive: bytes, requests: Sequence[dict[str, Any]], store: Store, watcher: Progress
) -> list[str]:
    """Run the jobs, and store the entries that they return; a job whose worker was lost runs again."""
    remaining = {request["index"]: request for request in requests}
    warnings: dict[str, None] = {}
    lost = ""
    for _ in range(_ATTEMPTS):
        executor, sent = executors.make(archive)
        futures: dict[Future, int] = {}
        try:
            for index, request in remaining.items():
                futures[executor.submit(remote_job.run, sent, request)] = index
            for future in _wait_for_each(futures, len(requests), executors, watcher):
                index = futures[future]
                try:
                    result, entries = future.result()
                except Exception as error:
                    if not _is_lost(error):
                        message = (
                            f"{VARIABLE}: shard {index} of {len(requests)}: {_one_line(error)}; correct the workers"
                        )
                        raise BuildError(message) from error
                    lost = _one_line(error)
                    continue
                _store_entries(store, result, entries, f"{index} of {len(requests)}")
                warnings |= dict.fromkeys(result["warnings"])
                del remaining[index]
        except concurrent.futures.BrokenExecutor as error:  # while jobs were submitted
            lost = _one_line(error)
        finally:
            _stop(executor, list(futures))
            watcher.clear()
        if not remaining:
            return list(warnings)
    message = (
        f"{VARIABLE}: shard {', '.join(map(str, remaining))} of {len(requests)} was lost with its worker {_ATTEMPTS} "
        f"times ({lost}); read the logs of the workers, and give them more memory"
    )
    raise BuildError(message)


def _is_lost(error: Exception) -> bool:
    """Return True if the worker of a job has ended. Dask may be missing, so its error is compared by name."""
    lost = (concurrent.futures.BrokenExecutor, concurrent.futures.CancelledError)
    return isinstance(error, lost) or type(error).__name__ == "KilledWorker"


def _wait_for_each(
    futures: Collection[Future], count: int, executors: Executors, watcher: Progress
) -> Iterator[Future]:
    """Yield futures as they end, and check the executor meanwhile."""
    pending = {*futures}
    while pending:
        title = f"{count - len(pending)} of {count} shards on {executors.name}"
        watcher.show(title, count - len(pending), count)
        ended, pending = concurrent.futures.wait(pending, _TICK, concurrent.futures.FIRST_COMPLETED)
        watcher.tick()
        executors.check()
        yield from ended


def _store_entries(store: Store, result: Mapping[str, Any], entries: Mapping[str, bytes], shard: str) -> None:
    """Store the entries of a job, or raise its error in its own class."""
    worker, error = result["worker"], result["error"]
    if result.get("refused"):
        message = f"{VARIABLE}: the worker {worker} {error}; install the same there"
        raise BuildError(message)
    if error and "class" in result:
        raise getattr(errors, result["class"], BuildError)(error)
    if error:
        message = f"{VARIABLE}: shard {shard} on {worker}: {error}"
        raise BuildError(message)
    for name, data in entries.items():
        if not store.receive(name, data):
            problem = next(iter(store.problems), "it is damaged")
            message = f"{VARIABLE}: an entry from the worker {worker} cannot be stored: {problem}; build again"
            raise BuildError(message)


def _stop(executor: concurrent.futures.Executor, futures: Sequence[Future]) -> None:
    """Cancel the jobs that have not ended, and end the workers if the executor can."""
    is_done = all(future.done() for future in futures)
    for future in futures:
        future.cancel()
    if not is_done:
        with suppress(Exception):  # only the process pools of Python 3.14 and newer have it
            executor.terminate_workers()  # type: ignore[attr-defined]
    try:
        executor.shutdown(wait=is_done, cancel_futures=True)
    except TypeError:  # Dask has an older interface
        executor.shutdown(wait=False)


class Executors:
    """An executor that the user's function returns.

    Attributes:
        name: The executor's name in messages.
    """

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        module, _, function = name.partition(":")
        sys.path.append(str(root))
        try:
            self._function = getattr(importlib.import_module(module), function)
            self._next: concurrent.futures.Executor | None = self._create()
        except errors.AotcudaError:
            raise
        except Exception as error:
            message = f"{VARIABLE}: {name} gives no executor ({_one_line(error)}); write {_FORMS}"
            raise ConfigError(message) from error
        finally:
            sys.path.remove(str(root))

    def _create(self) -> concurrent.futures.Executor:
        executor = self._function()
        if not isinstance(executor, concurrent.futures.Executor):
            message = f"{VARIABLE}: {self.name} returned a {type(executor).__qualname__}; write {_FORMS}"
            raise ConfigError(message)
        return executor

    def make(self, archive: bytes) -> tuple[concurrent.futures.Executor, Any]:
        """Return an executor, and the archive in the form that jobs receive."""
        executor, self._next = self._next or self._create(), None
        return executor, archive

    @property
    def slots(self) -> int:
        """Return the number of jobs that run at a time."""
        counts = [getattr(self._next, name, None) for name in ("num_workers", "_max_workers")]
        return next((number for number in counts if isinstance(number, int) and number > 0), os.cpu_count() or 1)

    def check(self) -> None:
        """Raise an error if no more results can come."""

    def close(self) -> None:
        """Do nothing, because `_stop` ends each executor."""


class Dask(Executors):
    """The executor of a Dask cluster."""

    def __init__(self, name: str, watcher: Progress) -> None:
        self.name = name
        self._address = name.removeprefix(_DASK)
        try:
            distributed: Any = importlib.import_module("distributed")
        except ImportError as error:
            message = f"{VARIABLE}: {name} needs Dask, which is not installed ({error}); run: pip install aotcuda[dask]"
            raise errors.ToolchainError(message) from error
        for logger in ("distributed", "distributed.client"):  # a lost connection is reported in one line here
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        watcher.show(f"connecting to {name}", 0, 0)
        try:
            self._client: Any = distributed.Client(self._address, timeout=_TIME_LIMIT, set_as_default=False)
        except Exception as error:
            message = (
                f"{VARIABLE}: no scheduler answers at {self._address} within {_TIME_LIMIT:.0f} seconds "
                f"({_one_line(error)}); start one (dask scheduler), or correct the address"
            )
            raise BuildError(message) from error
        try:
            self._wait_for_a_worker(watcher)
        except BaseException:
            self.close()
            raise

    def _wait_for_a_worker(self, watcher: Progress) -> None:
        end = time.monotonic() + _TIME_LIMIT
        while not self.slots:
            if time.monotonic() > end:
                message = (
                    f"{VARIABLE}: the scheduler at {self._address} has no workers; start some: "
                    f"dask worker {self._address}"
                )
                raise BuildError(message)
            watcher.show(f"waiting for a worker of {self.name}", 0, 0)
            time.sleep(_TICK)

    def make(self, archive: bytes) -> tuple[concurrent.futures.Executor, Any]:
        """Return the client's executor, and the archive, of which each worker gets one copy."""
        return self._client.get_executor(pure=False), self._client.scatter(archive, broadcast=True)

    @property
    def slots(self) -> int:
        """Return the threads of all workers."""
        return sum(self._client.nthreads().values())

    def check(self) -> None:
        """Raise an error if the scheduler does not answer."""
        if self._client.status != "running":
            message = f"{VARIABLE}: the scheduler at {self._address} does not answer; start it, and build again"
            raise BuildError(message)

    def close(self) -> None:
        """Close the connection to the cluster."""
        with suppress(Exception):  # the scheduler may have ended
            self._client.close(timeout=_TICK)


def _one_line(error: BaseException) -> str:
    """Return an error in one line, with its class."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
