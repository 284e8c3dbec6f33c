"""Hostile cache entries: valid entries with other names, kinds and contents, and the code that reads them as builds do.

An entry may count as missing, give the value of a valid entry or another value of the right type, or end in an error
of one line. A file written outside of the cache and the output folder, code that runs, and a traceback are faults.
"""

from __future__ import annotations

import contextlib
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import fsspec

from aotcuda import manifest as manifests
from aotcuda.builder import api, output
from aotcuda.builder.build_cache import remote, serialization
from aotcuda.builder.build_cache.settings import FORMAT, Settings
from aotcuda.builder.build_cache.store import Store
from aotcuda.builder.frontends.protocol import CompiledKernel, LinkInput
from aotcuda.cache.entries import ENTRY, VERSION, Files, entry_bytes
from aotcuda.cli import main
from aotcuda.common.jit_build import Result
from aotcuda.errors import AotcudaError
from aotcuda.runtime.jit.cache import Cache
from support import late
from support.damage import mutated
from support.manifests import kernel

if TYPE_CHECKING:
    from collections.abc import Callable

    Change = Callable[["Entry"], None]

KEY = "ab" + "0" * 62
URL = "memory://hostile/cache"
WAYS = (("build", "folder"), ("build", "memory"), ("value", "folder"), ("value", "memory"), ("fallback", "folder"))
"""The kinds of entries, and the place of each: a folder, or a URL of fsspec."""

NAMES = (
    "{outside}/planted.pth", "../planted.pth", "../../../../planted.pth", "a/../../planted", "..", "", "/",
    "sub/planted", "sub\\planted", "C:\\planted", "VALUE", "value ", "value\0.pth", "entry.json ", "x\u202e",
    "planted\n", "x" * 300, "file://{outside}/planted", "\ud800",
)  # fmt: skip
"""Names that no file of an entry has; `{outside}` is a folder next to the cache."""

OUTPUTS = (
    *NAMES[:8], "pkg/../../planted.py", "pkg/k.py/../../../planted.py", "pkg/__init__.py", "pkg/k.PY", "pkg.pth",
    "sitecustomize.py", "pkg/k.aotcuda/planted", "pkg/k.aotcuda/sources/../../planted.py", "pkg/k.aotcuda/in-place",
    "other.aotcuda/manifest.json", "pyproject.toml", "pkg-1.0.dist-info/RECORD", "pkg/k.aotcuda/link0_x.so",
)  # fmt: skip
"""Paths that no build of the project `pkg` with the module `pkg.k` writes."""

VALUES: tuple[Any, ...] = (
    None, True, -1, 2**70, float("nan"), "", "x", "../../planted", "\x1b[2J", "\ud800", "os:system", "x" * 5000, [], {},
    [[]], {"b": [0, 10**9]}, {"b": [0, 1]}, {"t": []}, {"d": [[[], 1]]}, {"c": "LinkInput", "f": {}},
    {"c": "CompiledKernel", "f": {}}, {"c": "Path", "f": {}}, {"c": 3, "f": {}}, {"d": 3}, {"d": [[1]]}, {"x": 1},
    {"c": "External", "f": {"name": 1, "result": 2, "parameters": 3}},
)  # fmt: skip

KERNEL = CompiledKernel(
    code=(LinkInput(kind="ltoir", name="k", data=b"code"),),
    needed=(),
    signature="void(int32)",
    parameters=({"kind": "scalar", "name": "x", "type": "int32", "offset": 0, "format": "i"},),  # type: ignore[typeddict-item]
    parameter_bytes=4,
    layout=((0, 4),),
    cooperative=False,
    launch_bounds=(),
    carveout=None,
)


class Outcome(NamedTuple):
    """The outcome of an entry, `missing`, `used` or `error`, and the faults."""

    result: str
    faults: tuple[str, ...]


class Entry:
    """An entry before it is in a cache.

    Attributes:
        record: The record, without key and digests.
        contents: The files.
        digests: The digests in the record; None for the right ones.
        twice: Names that the archive has twice.
        change_folder: Called with the folder of the written entry.
        change_archive: Changes the bytes of the archive.
    """

    def __init__(self, key: str, record: dict[str, Any], contents: dict[str, bytes]) -> None:
        self.key = key
        self.record = {name: value for name, value in record.items() if name not in ("key", "files")}
        self.contents = {**contents}
        self.digests: dict[str, Any] | None = None
        self.twice: list[str] = []
        self.change_folder: Callable[[Path], None] = _ignore
        self.change_archive: Callable[[bytes], bytes] = bytes

    def _record_bytes(self) -> bytes:
        digests = {name: manifests.digest(data) for name, data in self.contents.items()}
        return entry_bytes({**self.record, "key": self.record.get("key", self.key), "files": self.digests or digests})

    def write(self, root: Path) -> None:
        """Write the entry to the folder of a cache."""
        folder = Path(Files(str(root)).path(self.key))
        folder.mkdir(parents=True, mode=0o700)
        for path in (root, root / VERSION, folder.parent):
            path.chmod(0o700)
        (folder / ENTRY).write_bytes(self._record_bytes())
        for name, data in self.contents.items():
            path = os.path.normpath(os.path.join(folder, name))  # noqa: PTH118 (names that pathlib would change)
            if path.startswith(f"{folder}/"):
                with contextlib.suppress(OSError, ValueError):
                    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
                    Path(path).write_bytes(data)
        self.change_folder(folder)

    def upload(self) -> None:
        """Write the entry to the URL, as an archive."""
        stream = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            warnings.simplefilter("ignore")  # a name may be there twice
            twice = [(name, b"twice") for name in self.twice]
            for name, data in ((ENTRY, self._record_bytes()), *self.contents.items(), *twice):
                with contextlib.suppress(ValueError, struct.error):
                    item = zipfile.ZipInfo("x")
                    item.filename = name
                    archive.writestr(item, data)
        system, path = fsspec.url_to_fs(URL)
        system.makedirs(f"{path}/{VERSION}/{self.key[:2]}", exist_ok=True)
        system.pipe_file(f"{path}/{VERSION}/{self.key[:2]}/{self.key}.zip", self.change_archive(stream.getvalue()))

    def change_files(self, added: dict[str, bytes], removed: str | None = None) -> None:
        """Add files to a cached build, and remove one."""
        reads, variables, built = serialization.decode(self.contents["value"])
        built.files.update(added)
        if removed is not None:
            del built.files[removed]
        self.contents["value"] = serialization.encode((reads, variables, built))


class Project:
    """A project that was built once. Its cache entries are then changed and read.

    Attributes:
        outside: A folder that no entry may change.
        files: The files of the build.
    """

    def __init__(self, base: Path) -> None:
        self.base = base.resolve()
        self.root, self.out, self.cache = self.base / "project", self.base / "out", self.base / "cache"
        self.outside = self.base / "outside"
        self.outside.mkdir(parents=True)
        (self.outside / "witness").write_text("unchanged\n")
        package = self.root / "pkg"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "_k.cu").write_text('extern "C" __global__ void first(int *x) { x[0] = 1; }\n')
        self.table = tomllib.loads(
            'arch = ["sm_90"]\n[modules."pkg.k"]\nfrontend = "cuda-cpp"\nsource = "pkg/_k.cu"\nkernels.first = {}\n'
        )
        (self.root / "pyproject.toml").write_text('[project]\nname = "pkg"\nversion = "1"\n')
        built = self.base / "built"
        with mock.patch.dict(os.environ, AOTCUDA_BUILD_CACHE=str(built), AOTCUDA_PROGRESS="0"):
            self.files = api.build(self.table, self.root).files
        entries = [(key, *_entry(built, key)) for key in Files(str(built)).stored()]
        self._entries = [row for row in entries if row[1]["kind"] in ("build", "index")]

    def read(self, kind: str, place: str, change: Change) -> Outcome:
        """Put a changed entry in an empty cache, and read it as a build, a build's worker or a launch does."""
        shutil.rmtree(self.cache, ignore_errors=True)
        self.cache.mkdir(mode=0o700)
        for entry in getattr(self, f"_{kind}_entries")():
            if entry.record.get("kind") != "index":
                change(entry)
            entry.write(self.cache) if place == "folder" else entry.upload()
        settings = {
            "AOTCUDA_BUILD_CACHE": "0" if kind == "fallback" else str(self.cache) if place == "folder" else URL,
            "AOTCUDA_CACHE_DIR": str(self.cache if kind == "fallback" else self.cache / "own"),
            "AOTCUDA_PROGRESS": "0",
        }
        try:
            with mock.patch.dict(os.environ, settings):
                return self._watched(lambda: getattr(self, f"_read_{kind}")(place))
        finally:
            fsspec.url_to_fs(URL)[0].store.clear()

    def _build_entries(self) -> list[Entry]:
        return [Entry(*row) for row in self._entries]

    def _read_build(self, _: str) -> str:
        """Build as `aotcuda build` does. A build that would compile stops there."""
        with mock.patch.object(api, "_run", side_effect=_WouldCompileError):
            try:
                found = api.build(self.table, self.root)
            except _WouldCompileError:
                return "missing"
        for path in output.write(found.files, self.out):
            name = path.relative_to(self.out).as_posix()
            assert name in self.files, f"{name!a} was written"
            assert path.suffix not in (".py", ".pyi") or b"planted" not in path.read_bytes(), name
        return "used"

    def _value_entries(self) -> list[Entry]:
        return [Entry(KEY, {"format": FORMAT, "kind": "unit", "about": "k"}, {"value": serialization.encode(KERNEL)})]

    def _read_value(self, place: str) -> str:
        url = None if place == "folder" else URL
        folder = str(self.cache if place == "folder" else self.cache / "own")
        settings = Settings(folder=folder, url=url, writes=True, sends=False, facts="")
        found = Store(settings, remote.fetch, remote.send).get({KEY: CompiledKernel})
        if not found:
            return "missing"
        serialization.encode(found[KEY])  # all parts are values
        return "used" if isinstance(found[KEY].code, tuple) else "no kernel"

    def _fallback_entries(self) -> list[Entry]:
        whole, data = late.manifest([kernel("k", "void(int32)")])
        record = {"module": "pkg.k", "kernel": "k", "signature": "void(int32)", "target": "sm_90"}
        Cache(str(self.cache), _ignore).put(KEY, Result(whole, data), record)
        entry = Entry(KEY, *_entry(self.cache, KEY))
        shutil.rmtree(Files(str(self.cache)).path(KEY))
        return [entry]

    def _read_fallback(self, _: str) -> str:
        found = Cache(str(self.cache), _ignore).get(KEY)
        for command in (["cache", "list"], ["inspect", str(self.cache)], ["cache", "clear"]):
            _run(command)
        return "missing" if found is None else "used"

    def _watched(self, read: Callable[[], str]) -> Outcome:
        before = self._state()
        executed: list[str] = []
        _watching.append(executed)
        try:
            result, faults = read(), []
        except AotcudaError as error:
            result, faults = "error", [] if str(error).isprintable() else [f"an error of several lines: {error!a}"]
        except BaseException:  # noqa: BLE001 (the oracle: nothing else may happen)
            result, faults = "traceback", [f"traceback: {traceback.format_exc()}"]
        finally:
            _watching.remove(executed)
        faults += [f"code ran: {event}" for event in executed]
        after = self._state()
        faults += [f"written: {path}" for path in sorted(after.keys() | before) if after.get(path) != before.get(path)]
        shutil.rmtree(self.out, ignore_errors=True)
        return Outcome(result, tuple(faults))

    def _state(self) -> dict[str, object]:
        """Return the state of each file outside of the cache and the output folder."""
        found: dict[str, object] = {}
        for folder, folders, files in os.walk(self.base):
            folders[:] = [name for name in folders if Path(folder, name) not in (self.cache, self.out)]
            for name in (*files, *folders):
                path = os.path.join(folder, name)  # noqa: PTH118 (names that pathlib would change)
                status = os.lstat(path)
                found[path] = (status.st_mode, status.st_size, status.st_mtime_ns * (name in files))
        return found


def insert_outside(name: str, outside: Path) -> str:
    """Return one of `NAMES` with the path of the folder that no entry may change."""
    return name.replace("{outside}", str(outside))


def random_change(seed: int, outside: Path, kind: str, place: str) -> Change:
    """Return a function that changes an entry in one to three ways."""
    chance = random.Random(seed)
    changes = [_rename, _add, _retype, _restructure, _flip]
    changes += [_link] if place == "folder" else [_repeat, _flip_archive]
    changes += [_redirect, _redirect] if kind == "build" else []
    chosen = [chance.choice(changes) for _ in range(chance.choice((1, 1, 1, 2, 3)))]

    def change(entry: Entry) -> None:
        for function in chosen:
            function(entry, chance, outside)

    return change


def _rename(entry: Entry, chance: random.Random, outside: Path) -> None:
    name = chance.choice([*entry.contents])
    entry.contents[insert_outside(chance.choice(NAMES), outside)] = entry.contents.pop(name)


def _add(entry: Entry, chance: random.Random, outside: Path) -> None:
    entry.contents[insert_outside(chance.choice(NAMES), outside)] = b"import planted\n"


def _repeat(entry: Entry, chance: random.Random, outside: Path) -> None:
    entry.twice.append(chance.choice([ENTRY, *entry.contents, insert_outside(chance.choice(NAMES), outside)]))


def _retype(entry: Entry, chance: random.Random, _: Path) -> None:
    name = chance.choice([*entry.record, "key", "files", "format", "kind"])
    if name == "files":
        entry.digests = chance.choice(({"value": "0" * 64}, {"../x": "0" * 64}, {"value": None}, {"value": [1]}))
    else:
        entry.record[name] = chance.choice((None, 0, 3, "unit", "build", "\x1b[31m", "x" * 5000, [], {"a": 1}))


def _restructure(entry: Entry, chance: random.Random, outside: Path) -> None:
    """Change the JSON of a file. The digests are those of the changed file."""
    name = chance.choice([*entry.contents])
    line, newline, rest = entry.contents[name].partition(b"\n")
    for text, end in ((line, newline + rest), (entry.contents[name], b"")):
        with contextlib.suppress(ValueError):
            changed = mutated(json.loads(text), chance, VALUES)
            entry.contents[name] = json.dumps(changed, indent=None if end else 1, sort_keys=True).encode() + end
            return
    _flip(entry, chance, outside)


def _redirect(entry: Entry, chance: random.Random, outside: Path) -> None:
    """Give a file of a build another path or another text."""
    with contextlib.suppress(AttributeError, LookupError, TypeError, ValueError):  # another change came first
        _, _, built = serialization.decode(entry.contents["value"])
        name, other = chance.choice([*built.files]), insert_outside(chance.choice(OUTPUTS), outside)
        planted = built.files[name] + b"\nimport planted\n"
        entry.change_files(
            *chance.choice((({other: built.files[name]}, name), ({other: planted},), ({name: planted},)))
        )


def _flip(entry: Entry, chance: random.Random, _: Path) -> None:
    name = chance.choice([*entry.contents])
    data = bytearray(entry.contents[name] or b"x")
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    entry.contents[name] = bytes(data[: chance.choice((len(data), len(data) // 2))])


def _flip_archive(entry: Entry, chance: random.Random, _: Path) -> None:
    position, end = chance.random(), chance.choice((1.0, 1.0, chance.random()))

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[int(position * len(data))] ^= 0x41
        return bytes(changed[: int(end * len(data))])

    entry.change_archive = change


def _link(entry: Entry, chance: random.Random, outside: Path) -> None:
    """Replace a file of an entry, the entry, or a folder of the cache, by a link or a pipe."""
    replaced = chance.choice(("file", "file", "entry", "shard", "tmp"))
    target = chance.choice((outside / "witness", Path("/dev/zero"), None))

    def change(folder: Path) -> None:
        root = folder.parents[2]
        if replaced == "tmp":
            shutil.rmtree(root / VERSION / "tmp", ignore_errors=True)
            (root / VERSION / "tmp").symlink_to(outside)
        elif replaced != "file":
            path = folder if replaced == "entry" else folder.parent
            shutil.move(path, root / "moved")
            path.symlink_to(root / "moved")
        else:
            path = folder / chance.choice(sorted(item.name for item in folder.iterdir()))
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            path.symlink_to(target) if target else os.mkfifo(path)

    entry.change_folder = change


def _entry(cache: Path, key: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the record and the files of an entry."""
    folder = Path(Files(str(cache)).path(key))
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    return json.loads(contents.pop(ENTRY))["record"], contents


def _run(arguments: list[str]) -> None:
    """Run a command, and check that it prints at most one line of an error and no control characters."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main(arguments)
    assert (out.getvalue() + errors.getvalue()).replace("\n", "").isprintable(), arguments
    assert status != 1 or errors.getvalue().count("\n") == 1, arguments


class _WouldCompileError(Exception):
    """The build found nothing in its cache."""


def _ignore(_: object) -> None:
    pass


_watching: list[list[str]] = []


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching:
        return
    if event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "pickle.find_class"):
        _watching[-1].append(f"{event} {arguments!a:.200}")
    elif event == "import" and arguments and str(arguments[0]).startswith("planted"):
        _watching[-1].append(f"import {arguments[0]}")


sys.addaudithook(_audit)
