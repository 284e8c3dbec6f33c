"""Cache entries that were made to break out: valid ones, changed in names, kinds and contents, and read as builds do.

Allowed is that an entry counts as missing, that it is taken and gives what an honest one gives or another value of the
right type, or an error of one line. Anything written outside of the cache and the output folder, code that runs, and
tracebacks are faults.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from support.manifests import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY = "ab" + "0" * 62
PLACES = ("folder", "file", "memory")

NAMES = (
    "{outside}/planted.pth", "../planted.pth", "../../../../planted.pth", "./../planted", "a/../../planted", "x/../x",
    "..", ".", "", "/", "//{outside}/planted", "sub/planted", "sub\\planted", "..\\..\\planted", "C:\\planted", "VALUE",
    "Value", "value ", "value.", "value\0", "value\0.pth", "\0", "entry.json ", "Entry.json", "valu\u0435", "x\u202e",
    "\uff0e\uff0e/planted", "%2e%2e/planted", "~/planted", "planted\n", "x" * 300, "x/" * 150 + "planted",
    "file://{outside}/planted", "con", "\ud800",
)  # fmt: skip
"""Names that no file of an entry has; `{outside}` is a folder beside the cache."""

OUTPUTS = (
    *NAMES[:20], "pkg/../../planted.py", "pkg/k.py/../../../planted.py", "pkg/__init__.py", "pkg/_k.py", "pkg/k.PY",
    "PKG/k.py", "pkg/k.pth", "pkg.pth", "planted.pth", "sitecustomize.py", "pkg/other.py", "pkg/k.aotcuda/../planted",
    "pkg/k.aotcuda/planted", "pkg/k.aotcuda/sources/../../planted.py", "pkg/k.aotcuda/sources/planted.py",
    "pkg/k.aotcuda/in-place", "pkg/_k.aotcuda/in-place", "../x.aotcuda/in-place", "other.aotcuda/manifest.json",
    "pkg/k.aotcuda/kernels.fatbin/x", "pkg/k.aotcuda/MANIFEST.json", "pyproject.toml", ".git/hooks/pre-commit",
    "pkg-1.0.dist-info/RECORD", "pkg/k.aotcuda/link0_x.so", "pkg/k.aotcuda/link0_x/../y.fatbin",
)  # fmt: skip
"""Paths that no build of the project `pkg`, which gains the module `pkg.k`, writes."""

VALUES: tuple[Any, ...] = (
    None, True, -1, 2**70, 1e308, float("nan"), "", "x", "\0", "../../planted", "\x1b[2J", "\u202e", "\ud800",
    "os:system", "x" * 5000, [], {}, [[]], {"b": [0, 10**9]}, {"b": [0, 1]}, {"t": []}, {"d": [[[], 1]]},
    {"c": "LinkInput", "f": {}}, {"c": "CompiledKernel", "f": {}}, {"c": "Path", "f": {}}, {"c": 3, "f": {}},
    {"c": "External", "f": {"name": 1, "result": 2, "parameters": 3}}, {"d": 3}, {"d": [[1]]}, {"x": 1},
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
    """The outcome of an entry: `missing`, `taken` or `error`, and faults."""

    came: str
    faults: tuple[str, ...]


class Project:
    """A project that was built once with an empty cache, whose entries are then changed.

    Attributes:
        base: The folder that all lies in; its other folders are watched.
        honest: What the build makes.
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
        with _cache_of(cache, place, self.base) as (url, put):
            for key, (record, contents) in self._kept.items():
                if record["kind"] in ("build", "index"):
                    put(raw if key == self.whole else Raw(key, record, contents))
            settings = {"AOTCUDA_BUILD_CACHE": url, "AOTCUDA_CACHE_DIR": str(cache / "own"), "AOTCUDA_PROGRESS": "0"}
            with _environment(**settings):
                return self._watched(self._build, [self.base / "elsewhere", cache, self.out])

    def _build(self) -> str:
        """Build as `aotcuda build` does; a build that would compile stops there."""
        original = api._run
        api._run = _would_compile  # type: ignore[assignment]
        try:
            found = api.build(self.table, self.root)
        except _WouldCompileError:
            return "missing"
        finally:
            api._run = original
        written = output.write(found.files, self.out)
        for path in written:
            name = path.relative_to(self.out).as_posix()
            if name not in self.honest:
                message = f"{name!a} was written"
                raise AssertionError(message)
            if path.suffix in (".py", ".pyi") and b"planted" in path.read_bytes():
                message = f"{name} has the entry's text"
                raise AssertionError(message)
        return "taken"

    def read_value(self, place: str, spoil: Callable[[Raw], None]) -> Outcome:
        """Spoil the entry of a compiled kernel, and look for it as a build's worker does."""
        contents = {"value": serialization.encode(KERNEL)}
        raw = Raw(KEY, {"format": FORMAT, "kind": "unit", "about": "k"}, contents)
        spoil(raw)
        cache = self.base / "cache"
        with _cache_of(cache, place, self.base) as (url, put):
            put(raw)

            def read() -> str:
                settings = Settings(
                    folder=str(cache / "own" if "://" in url else cache),
                    url=url if "://" in url else None,
                    writes=True,
                    sends=False,
                    facts="",
                )
                found = Store(settings, remote.fetch, remote.send).get({KEY: CompiledKernel})
                if not found:
                    return "missing"
                serialization.encode(found[KEY])  # a value in all its parts
                found[KEY].code[0:1]
                return "taken"

            return self._watched(read, [self.base / "elsewhere", cache])

    def read_fallback(self, place: str, spoil: Callable[[Raw], None]) -> Outcome:
        """Spoil an entry of the JIT fallback, and look for it as a launch does; then list all of the cache."""
        del place  # it has no URL
        cache = self.base / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        whole, data = late.manifest([kernel("k", "void(int32)")])
        record = {"module": "pkg.k", "kernel": "k", "signature": "void(int32)", "target": "sm_90"}
        Cache(str(cache), _ignore).put(KEY, Result(whole, data), record)
        raw = Raw(KEY, *_entry(cache, KEY))
        spoil(raw)
        shutil.rmtree(Files(str(cache)).path(KEY))
        raw.lay(cache)

        def read() -> str:
            found = Cache(str(cache), _ignore).get(KEY)
            for command in (["cache", "list"], ["doctor"], ["inspect", str(cache)], ["cache", "clear"]):
                _run(command)
            return "missing" if found is None else "taken"

        with _environment(AOTCUDA_CACHE_DIR=str(cache), AOTCUDA_BUILD_CACHE="0"):
            return self._watched(read, [cache])

    def _watched(self, read: Callable[[], str], may_change: list[Path]) -> Outcome:
        before = self._state(may_change)
        ran: list[str] = []
        _watching.append(ran)
        try:
            came, faults = read(), []
        except AotcudaError as error:
            came, faults = "error", [] if str(error).isprintable() else [f"an error of several lines: {error!a}"]
        except BaseException:  # noqa: BLE001 (whatever it is, it must not happen)
            came, faults = "traceback", [f"traceback: {traceback.format_exc()}"]
        finally:
            _watching.remove(ran)
        faults += [f"code ran: {what}" for what in ran]
        after = self._state(may_change)
        faults += [f"written: {path}" for path in sorted(after.keys() | before) if after.get(path) != before.get(path)]
        for path in may_change:
            shutil.rmtree(path, ignore_errors=True)
        return Outcome(came, tuple(faults))

    def _state(self, less: list[Path]) -> dict[str, object]:
        found: dict[str, object] = {}
        for folder, folders, files in os.walk(self.base):
            folders[:] = [name for name in folders if Path(folder, name) not in less]
            for name in (*files, *folders):
                path = os.path.join(folder, name)  # noqa: PTH118 (names that pathlib would change)
                status = os.lstat(path)
                found[path] = (status.st_mode, status.st_size, status.st_mtime_ns * (name in files))
        return found


class Raw:
    """An entry before it is laid in a cache: its record and files, and what is done to it afterwards.

    Attributes:
        record: The record, without key and digests.
        contents: The files.
        digests: Made from the files where None.
        twice: Names that the archive has twice.
        laid: Called with the folder of the entry once it is there.
        spoil_archive: Changes the bytes of the archive.
    """

    def __init__(self, key: str, record: dict[str, Any], contents: dict[str, bytes]) -> None:
        self.key = key
        self.record = {name: value for name, value in record.items() if name not in ("key", "files")}
        self.contents = contents
        self.digests: dict[str, Any] | None = None
        self.twice: list[str] = []
        self.laid: Callable[[Path], None] = _ignore
        self.spoil_archive: Callable[[bytes], bytes] = bytes

    def _line(self) -> bytes:
        digests = {name: manifests.digest(data) for name, data in self.contents.items()}
        whole = {**self.record, "key": self.record.get("key", self.key), "files": self.digests or digests}
        return entry_bytes(whole)

    def lay(self, root: Path) -> None:
        """Lay the entry in a cache's folder."""
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
        self.laid(folder)

    def archive(self) -> bytes:
        """Return the entry as a URL has it."""
        stream = io.BytesIO()
        twice = [(name, b"twice") for name in self.twice]
        with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            warnings.simplefilter("ignore")  # that a name is there twice
            for name, data in ((ENTRY, self._line()), *self.contents.items(), *twice):
                with contextlib.suppress(ValueError, struct.error):
                    item = zipfile.ZipInfo("x")
                    item.filename = name
                    archive.writestr(item, data)
        return self.spoil_archive(stream.getvalue())


def named(name: str, outside: Path) -> str:
    """Return one of `NAMES` with the folder that is to stay as it is."""
    return name.replace("{outside}", str(outside))


def spoilt(seed: int, outside: Path, kind: str, place: str) -> Callable[[Raw], None]:
    """Return what spoils an entry in one to three ways, by a seed."""
    chance = random.Random(seed)
    ways: list[Callable[[Raw, random.Random, Path], None]] = [_rename, _add, _retype, _restructure, _flip]
    ways += [_link] if place == "folder" else [_double, _flip_archive]
    ways += [_redirect, _redirect] if kind == "build" else [_remanifest] if kind == "fallback" else []
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


def _retype(raw: Raw, chance: random.Random, outside: Path) -> None:
    del outside
    name = chance.choice([*raw.record, "key", "files", "format", "kind"])
    if name == "files":
        raw.digests = chance.choice(({"value": "0" * 64}, {"../x": "0" * 64}, {"value": None}, {"value": [1]}))
    else:
        raw.record[name] = chance.choice((None, 0, 3, "unit", "build", "\x1b[31m", "x" * 5000, [], {"a": 1}))


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


def _remanifest(raw: Raw, chance: random.Random, outside: Path) -> None:
    """Change the manifest of an entry of the fallback."""
    del outside
    if manifests.FILE_NAME in raw.contents:
        with contextlib.suppress(ValueError):
            changed = _changed(json.loads(raw.contents[manifests.FILE_NAME]), chance)
            raw.contents[manifests.FILE_NAME] = json.dumps(changed, indent=1, sort_keys=True).encode()


def _redirect(raw: Raw, chance: random.Random, outside: Path) -> None:
    """Have the build's files lie elsewhere, or say something else."""
    with contextlib.suppress(AttributeError, LookupError, TypeError, ValueError):  # another way has spoilt it before
        reads, variables, built = serialization.decode(raw.contents["value"])
        files = built.files
        name = chance.choice([*files])
        way = chance.randrange(4)
        if way == 0:
            files[named(chance.choice(OUTPUTS), outside)] = files.pop(name)
        elif way == 1:
            files[named(chance.choice(OUTPUTS), outside)] = b"import planted\n"
        elif way == 2:
            files[name] = files[name] + b"\nimport planted\n"
        else:
            path = [each for each in files if each.endswith(manifests.FILE_NAME)][0]  # noqa: RUF015 (LookupError)
            files[path] = manifests.dump(_changed(json.loads(files[path]), chance))
        raw.contents["value"] = serialization.encode((reads, variables, built))


def _flip(raw: Raw, chance: random.Random, outside: Path) -> None:
    del outside
    name = chance.choice([*raw.contents])
    data = bytearray(raw.contents[name] or b"x")
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    raw.contents[name] = bytes(data[: chance.choice((len(data), len(data) // 2))])


def _flip_archive(raw: Raw, chance: random.Random, outside: Path) -> None:
    del outside
    number, cut = chance.random(), chance.random()

    def spoil(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[int(number * len(data))] ^= 0x41
        return bytes(changed[: len(data) if cut < 0.7 else int(cut * len(data))])

    raw.spoil_archive = spoil


def _link(raw: Raw, chance: random.Random, outside: Path) -> None:
    """Put something that is no regular file in the place of an entry's file, or of a folder above it."""
    what = chance.choice(("witness", "/dev/zero", "pipe", "folder", "loop"))
    above = chance.choice((None, None, "entry", "shard", "tmp", "written"))

    def laid(folder: Path) -> None:
        root = folder.parents[2]
        if above in ("tmp", "written"):
            path = root / VERSION / above
            shutil.rmtree(path, ignore_errors=True)
            path.symlink_to(outside if above == "tmp" else outside / "witness")
        elif above is not None:
            path = folder if above == "entry" else folder.parent
            shutil.move(path, root / "moved")
            path.symlink_to(root / "moved")
        else:
            path = folder / chance.choice(sorted(item.name for item in folder.iterdir()))
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            if what == "pipe":
                os.mkfifo(path)
            elif what == "folder":
                path.mkdir()
            else:
                path.symlink_to({"witness": outside / "witness", "loop": path}.get(what, Path(what)))

    raw.laid = laid


def _changed(value: Any, chance: random.Random) -> Any:
    """Return JSON with one part replaced, removed, renamed or repeated."""
    found = copy.deepcopy(value)
    holders = [*_holders(found)]
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
    return found


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _holders(item)


def _entry(cache: Path, key: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    folder = Path(Files(str(cache)).path(key))
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    return json.loads(contents.pop(ENTRY))["record"], contents


@contextlib.contextmanager
def _cache_of(cache: Path, place: str, base: Path) -> Iterator[tuple[str, Callable[[Raw], None]]]:
    """Return an empty cache: what `AOTCUDA_BUILD_CACHE` names, and what lays an entry in it."""
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(mode=0o700)
    url = {"folder": str(cache), "file": f"file://{base}/elsewhere", "memory": "memory://hostile/cache"}[place]

    def put(raw: Raw) -> None:
        if place == "folder":
            raw.lay(cache)
        else:
            system, path = fsspec.url_to_fs(url)
            system.makedirs(f"{path}/{VERSION}/{raw.key[:2]}", exist_ok=True)
            system.pipe_file(f"{path}/{VERSION}/{raw.key[:2]}/{raw.key}.zip", raw.archive())

    try:
        yield url, put
    finally:
        if place == "memory":
            fsspec.url_to_fs(url)[0].store.clear()


@contextlib.contextmanager
def _environment(**changes: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run(arguments: list[str]) -> None:
    """Run a command; what it prints is one line to an error, and nothing that a terminal acts upon."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main(arguments)
    said = errors.getvalue()
    if not (out.getvalue() + said).replace("\n", "").isprintable() or (status == 1 and said.count("\n") != 1):
        message = f"{arguments} printed {said!a} {out.getvalue()!a}"
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
