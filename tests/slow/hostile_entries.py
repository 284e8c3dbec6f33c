"""Change valid cache entries so that they try to break out of the cache, and read them as builds and launches do.

An entry may count as missing, give what an unchanged entry gives, or raise an error of one line. Files written outside
of the cache and the output folder, code that runs, and tracebacks are faults.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import shutil
import struct
import sys
import tomllib
import traceback
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aotcuda import manifest as manifests
from aotcuda.builder.cache import serialization
from aotcuda.builder.cache.settings import Settings
from aotcuda.builder.cache.store import Store
from aotcuda.builder.entry import api
from aotcuda.builder.write import output
from aotcuda.cache.entries import ENTRY, VERSION, Files, entry_bytes
from aotcuda.cli import main
from aotcuda.common.jit_build import Result
from aotcuda.errors import AotcudaError
from aotcuda.runtime.jit.cache import Cache
from support import jit_builds
from support.manifests import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

KEY = "ab" + "0" * 62
PLACES = ("folder", "archive")

NAMES = (
    "{outside}/planted.pth", "../planted.pth", "../../../../planted.pth", "./../planted", "a/../../planted", "..", ".",
    "", "//{outside}/planted", "sub/planted", "..\\..\\planted", "C:\\planted", "VALUE", "value ", "value\0.pth",
    "Entry.json", "\uff0e\uff0e/planted", "%2e%2e/planted", "planted\n", "x" * 300,
    "file://{outside}/planted", "\ud800",
)  # fmt: skip
"""Names that no file of an entry has; `{outside}` is a folder next to the cache."""

OUTPUTS = (
    *NAMES[:12], "pkg/../../planted.py", "pkg/k.py/../../../planted.py", "pkg/__init__.py", "pkg/_k.py", "pkg/k.PY",
    "pkg.pth", "sitecustomize.py", "pkg/k.aotcuda/../planted", "pkg/k.aotcuda/sources/planted.py", "pyproject.toml",
    "pkg/k.aotcuda/in-place", "other.aotcuda/manifest.json", "pkg/k.aotcuda/kernels.fatbin/x",
    ".git/hooks/pre-commit", "pkg-1.0.dist-info/RECORD", "pkg/k.aotcuda/link0_x/../y.fatbin",
)  # fmt: skip
"""Paths that no build of the project `pkg`, which gains the module `pkg.k`, writes."""

VALUES: tuple[Any, ...] = (
    None, True, -1, 2**70, float("nan"), "", "../../planted", "\x1b[2J", "\ud800", "os:system", "x" * 5000, [], {},
    [[]], {"b": [0, 10**9]}, {"t": []}, {"d": [[[], 1]]}, {"c": "LinkInput", "f": {}}, {"c": "Path", "f": {}}, {"d": 3},
)  # fmt: skip


class Outcome(NamedTuple):
    """The result of reading an entry: `missing`, `used`, `error` or `traceback`, and faults."""

    result: str
    faults: tuple[str, ...]


class Project:
    """A project that was built once with an empty cache, whose entries are then changed.

    Attributes:
        base: The folder of everything; changes of its other folders are faults.
        honest: The files that the build makes.
    """

    def __init__(self, base: Path) -> None:
        self.base = base.resolve()
        self.root, self.out = self.base / "project", self.base / "out"
        self.outside = self.base / "outside"
        self.outside.mkdir(parents=True)
        (self.outside / "witness").write_text("as it was\n")
        package = self.root / "pkg"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "_k.cu").write_text('extern "C" __global__ void first(int *x) { x[0] = 1; }\n')
        self.table = tomllib.loads(
            'arch = ["sm_90"]\n[modules."pkg.k"]\nfrontend = "cuda-cpp"\nsource = "pkg/_k.cu"\nkernels.first = {}\n'
        )
        (self.root / "pyproject.toml").write_text('[project]\nname = "pkg"\nversion = "1"\n')
        self._cache = self.base / "built"
        with _environment(AOTCUDA_BUILD_CACHE=str(self._cache), AOTCUDA_PROGRESS="0"):
            self.honest = api.build(self.table, self.root).files
        self._kept = {key: _entry(self._cache, key) for key in Files(str(self._cache)).stored()}
        (self.whole,) = (key for key, (record, _) in self._kept.items() if record["kind"] == "build")

    def entry(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return the record and the files of the entry of the whole build."""
        record, contents = self._kept[self.whole]
        return {**record}, {**contents}

    def read_build(self, place: str, spoil: Callable[[Raw], None]) -> Outcome:
        """Spoil the entry of the whole build, and build."""
        cache = self.base / "cache"
        raw = Raw(self.whole, *self.entry())
        spoil(raw)
        _fill(cache, place, [raw])
        with _environment(AOTCUDA_BUILD_CACHE=str(cache), AOTCUDA_PROGRESS="0"):
            return self._watched(self._build, [cache, self.out])

    def _build(self) -> str:
        """Build as `aotcuda build` does; a build that would compile stops there."""
        original = api._run
        api._run = _would_compile  # type: ignore[assignment]
        try:
            build = api.build(self.table, self.root)
        except _WouldCompileError:
            return "missing"
        finally:
            api._run = original
        written = output.write(build.files, self.out)
        for path in written:
            name = path.relative_to(self.out).as_posix()
            if name not in self.honest:
                message = f"{name!a} was written"
                raise AssertionError(message)
            if path.suffix in (".py", ".pyi") and b"planted" in path.read_bytes():
                message = f"{name} has the entry's text"
                raise AssertionError(message)
        return "used"

    def read_fallback(self, place: str, spoil: Callable[[Raw], None]) -> Outcome:
        """Spoil an entry of the JIT fallback, and look for it as a launch does; then list all of the cache."""
        del place  # no other machine sends its entries
        cache = self.base / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        manifest, data = jit_builds.manifest([kernel("k", "void(int32)")])
        record = {"module": "pkg.k", "kernel": "k", "signature": "void(int32)", "target": "sm_90"}
        Cache(str(cache), _ignore).put(KEY, Result(manifest, data), record)
        raw = Raw(KEY, *_entry(cache, KEY))
        spoil(raw)
        shutil.rmtree(Files(str(cache)).path(KEY))
        raw.store(cache)

        def read() -> str:
            entry = Cache(str(cache), _ignore).get(KEY)
            for command in (["cache", "list"], ["doctor"], ["inspect", str(cache)], ["cache", "clear"]):
                _run(command)
            return "missing" if entry is None else "used"

        with _environment(AOTCUDA_CACHE_DIR=str(cache), AOTCUDA_BUILD_CACHE="0"):
            return self._watched(read, [cache])

    def _watched(self, read: Callable[[], str], may_change: list[Path]) -> Outcome:
        initial = self._state(may_change)
        ran: list[str] = []
        _watching.append(ran)
        try:
            result, faults = read(), []
        except AotcudaError as error:
            result, faults = "error", [] if str(error).isprintable() else [f"an error of several lines: {error!a}"]
        except BaseException:  # noqa: BLE001 (no other exception may occur)
            result, faults = "traceback", [f"traceback: {traceback.format_exc()}"]
        finally:
            _watching.remove(ran)
        faults += [f"code ran: {event}" for event in ran]
        final = self._state(may_change)
        faults += [
            f"written: {path}" for path in sorted(final.keys() | initial) if final.get(path) != initial.get(path)
        ]
        for path in may_change:
            shutil.rmtree(path, ignore_errors=True)
        return Outcome(result, tuple(faults))

    def _state(self, less: list[Path]) -> dict[str, object]:
        states: dict[str, object] = {}
        for folder, folders, files in os.walk(self.base):
            folders[:] = [name for name in folders if Path(folder, name) not in less]
            for name in (*files, *folders):
                path = os.path.join(folder, name)  # noqa: PTH118 (names that pathlib would change)
                status = os.lstat(path)
                states[path] = (status.st_mode, status.st_size, status.st_mtime_ns * (name in files))
        return states


class Raw:
    """An entry before it is stored in a cache: its record and files, and later changes.

    Attributes:
        record: The record, without key and digests.
        contents: The files.
        twice: Names that the archive has twice.
        change_folder: A function that changes the stored entry's folder.
    """

    def __init__(self, key: str, record: dict[str, Any], contents: dict[str, bytes]) -> None:
        self.key = key
        self.record = {name: value for name, value in record.items() if name not in ("key", "files")}
        self.contents = contents
        self.twice: list[str] = []
        self.change_folder: Callable[[Path], None] = _ignore

    def _line(self) -> bytes:
        digests = {name: manifests.digest(data) for name, data in self.contents.items()}
        complete = {**self.record, "key": self.record.get("key", self.key), "files": digests}
        return entry_bytes(complete)

    def store(self, root: Path) -> None:
        """Store the entry in a cache's folder."""
        folder = Path(Files(str(root)).path(self.key))
        folder.mkdir(parents=True, mode=0o700)
        for path in (root, root / VERSION, folder.parent):
            path.chmod(0o700)
        (folder / ENTRY).write_bytes(self._line())
        for name, data in self.contents.items():
            path = os.path.normpath(os.path.join(folder, name))  # noqa: PTH118 (names that pathlib would change)
            if path.startswith(f"{folder}/"):
                with contextlib.suppress(OSError, ValueError):
                    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
                    Path(path).write_bytes(data)
        self.change_folder(folder)

    def archive(self) -> bytes:
        """Return the entry as a worker of an executor sends it."""
        stream = io.BytesIO()
        twice = [(name, b"twice") for name in self.twice]
        with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            warnings.simplefilter("ignore")  # that a name is there twice
            for name, data in ((ENTRY, self._line()), *self.contents.items(), *twice):
                with contextlib.suppress(ValueError, struct.error):
                    item = zipfile.ZipInfo("x")
                    item.filename = name
                    archive.writestr(item, data)
        return stream.getvalue()


def named(name: str, outside: Path) -> str:
    """Return one of `NAMES` with the path of the folder that must not change."""
    return name.replace("{outside}", str(outside))


def spoilt(seed: int, outside: Path, kind: str, place: str) -> Callable[[Raw], None]:
    """Return a function that damages an entry one to three times, by a seed."""
    chance = random.Random(seed)
    ways = [_rename, _add, _restructure, _flip, _link if place == "folder" else _double]
    ways += [_redirect, _redirect] if kind == "build" else []
    chosen = [chance.choice(ways) for _ in range(chance.choice((1, 1, 1, 2, 3)))]

    def spoil(raw: Raw) -> None:
        for way in chosen:
            way(raw, chance, outside)

    return spoil


def _rename(raw: Raw, chance: random.Random, outside: Path) -> None:
    name = chance.choice([*raw.contents])
    raw.contents[named(chance.choice(NAMES), outside)] = raw.contents.pop(name)


def _add(raw: Raw, chance: random.Random, outside: Path) -> None:
    raw.contents[named(chance.choice(NAMES), outside)] = b"import planted\n"


def _double(raw: Raw, chance: random.Random, outside: Path) -> None:
    raw.twice.append(chance.choice([ENTRY, *raw.contents, named(chance.choice(NAMES), outside)]))


def _restructure(raw: Raw, chance: random.Random, outside: Path) -> None:
    """Change the JSON of a file; the digests are those of the changed file."""
    name = chance.choice([*raw.contents])
    line, newline, rest = raw.contents[name].partition(b"\n")
    try:
        value = json.loads(line)
    except ValueError:
        try:
            value, newline, rest = json.loads(raw.contents[name]), b"", b""
        except ValueError:
            _flip(raw, chance, outside)
            return
    changed = json.dumps(_changed(value, chance)).encode()
    raw.contents[name] = changed + newline + (rest if chance.random() < 0.8 else rest[: len(rest) // 2])


REDIRECTED = ("plan", "carried name", "carried file", "function link")
"""The parts of an entry that decide which files a build writes and reads."""


def redirect(raw: Raw, attribute: str, path: str) -> None:
    """Give a file of a cached build another path."""
    reads, variables, [(result, [plan])] = serialization.decode(raw.contents["value"])
    (module,) = result.modules
    if attribute == "plan":
        plan = replace(plan, name=path)
    elif attribute == "function link":
        module = replace(module, function_links=((path, b"\nimport planted\n"),))
    else:
        ((name, file),) = module.carried
        module = replace(module, carried=((path, file) if attribute == "carried name" else (name, path),))
    stored = [(replace(result, modules=(module,)), [plan])]
    raw.contents["value"] = serialization.encode((reads, variables, stored))


def _redirect(raw: Raw, chance: random.Random, outside: Path) -> None:
    with contextlib.suppress(AttributeError, LookupError, TypeError, ValueError):  # an earlier change has spoilt it
        redirect(raw, chance.choice(REDIRECTED), named(chance.choice(OUTPUTS), outside))


def _flip(raw: Raw, chance: random.Random, outside: Path) -> None:
    del outside
    name = chance.choice([*raw.contents])
    data = bytearray(raw.contents[name] or b"x")
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    raw.contents[name] = bytes(data[: chance.choice((len(data), len(data) // 2))])


def _link(raw: Raw, chance: random.Random, outside: Path) -> None:
    """Replace a file of an entry, or a folder above it, by a link or a pipe."""
    target = chance.choice((outside / "witness", Path("/dev/zero"), "pipe", "folder above", "temporary folder"))

    def change(folder: Path) -> None:
        if target == "temporary folder":
            path = folder.parents[1] / "tmp"
            shutil.rmtree(path, ignore_errors=True)
            path.symlink_to(outside)
        elif target == "folder above":
            shutil.move(folder, folder.parents[2] / "moved")
            folder.symlink_to(folder.parents[2] / "moved")
        else:
            path = folder / chance.choice(sorted(item.name for item in folder.iterdir()))
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            os.mkfifo(path) if target == "pipe" else path.symlink_to(target)

    raw.change_folder = change


def _changed(value: Any, chance: random.Random) -> Any:
    """Return JSON with one part replaced, removed, renamed or repeated."""
    result = copy.deepcopy(value)
    holders = [*_holders(result)]
    if not holders:
        return chance.choice(VALUES)
    holder = chance.choice(holders)
    key = chance.choice([*holder]) if isinstance(holder, dict) else chance.randrange(len(holder))
    way = chance.randrange(4)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[chance.choice(("x", "", "../x", "f", "c"))] = holder.pop(key)
    elif way == 2 and isinstance(holder, list):
        holder.insert(0, holder[key])
    else:
        holder[key] = copy.deepcopy(chance.choice(VALUES))
    return result


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _holders(item)


def _entry(cache: Path, key: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    folder = Path(Files(str(cache)).path(key))
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    return json.loads(contents.pop(ENTRY))["record"], contents


def _fill(cache: Path, place: str, entries: Iterable[Raw]) -> None:
    """Store entries in an empty cache: as files of its folder, or as archives that a worker of an executor sends."""
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(mode=0o700)
    store = Store(Settings(folder=str(cache), writes=True, facts=""))
    for raw in entries:
        if place == "folder":
            raw.store(cache)
        else:
            store.receive(raw.key, raw.archive())


@contextlib.contextmanager
def _environment(**changes: str) -> Iterator[None]:
    original = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in original.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run(arguments: list[str]) -> None:
    """Run a command; it may print one line of an error, and no control characters."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main(arguments)
    text = errors.getvalue()
    if not (out.getvalue() + text).replace("\n", "").isprintable() or (status == 1 and text.count("\n") != 1):
        message = f"{arguments} printed {text!a} {out.getvalue()!a}"
        raise AssertionError(message)


class _WouldCompileError(Exception):
    """The build found nothing in its cache."""


def _would_compile(*_: object) -> None:
    raise _WouldCompileError


def _ignore(_: object) -> None:
    pass


_watching: list[list[str]] = []


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching:
        return
    if event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "pickle.find_class"):
        if arguments[0] != "uname":  # `aotcuda doctor` asks for the machine
            _watching[-1].append(f"{event} {arguments!a:.200}")
    elif event == "import" and arguments and str(arguments[0]).startswith("planted"):
        _watching[-1].append(f"import {arguments[0]}")


sys.addaudithook(_hear)
