"""The build cache's entries: whole or not there, here and at a URL; what is wrong is said once and ends nothing."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from aotcuda import registry
from aotcuda.builder.build_cache import remote, settings
from aotcuda.builder.build_cache import store as stores
from aotcuda.builder.build_cache.settings import Settings
from aotcuda.builder.build_cache.store import Store
from aotcuda.cache.entries import VERSION, Files
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME, OTHER = "ab" + "0" * 62, "cd" + "0" * 62
VALUE = {"kernels.cubin": b"\x7fELF", "about": (1, "two", [3])}


def where(folder: Path | None, url: str | None = None, *, writes: bool = True, sends: bool = False) -> Settings:
    base = str(folder) if folder is not None else None
    return Settings(folder=base, url=url, writes=writes, sends=sends, facts="")


def opened(found: Settings) -> Store:
    return Store(found, remote.fetch, remote.send)


def any_of(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, object)


def put(store: Store, name: str = NAME, value: object = VALUE) -> None:
    store.put({name: value}, "build", {name: "pkg.k"})


@pytest.fixture
def bucket() -> Iterator[str]:
    MemoryFileSystem.store.clear()
    yield "memory://bucket/aotcuda"
    MemoryFileSystem.store.clear()


def test_stored_entry_is_found_by_name(tmp_path: Path) -> None:
    put(opened(where(tmp_path / "cache")))
    store = opened(where(tmp_path / "cache"))
    assert store.get(any_of(NAME, OTHER)) == {NAME: VALUE}
    assert store.problems == []


@pytest.mark.parametrize("file", ["entry.json", "value"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "empty"])
def test_a_damaged_entry_counts_as_missing_and_is_replaced(tmp_path: Path, file: str, damage: str) -> None:
    store = opened(where(tmp_path / "cache"))
    put(store)
    path = Path(Files(str(tmp_path / "cache")).path(NAME), file)
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": data[:-1], "flipped": data[:-1] + bytes([data[-1] ^ 1]), "empty": b""}[damage])
    assert store.get(any_of(NAME)) == {}
    said = store.problems.copy()
    assert said == ([] if damage == "gone" else [spoilt(tmp_path / "cache")])
    put(store)
    assert store.get(any_of(NAME)) == {NAME: VALUE}
    assert store.problems == said


def spoilt(place: Path | str) -> str:
    return (
        f"the build cache in {place} has entries that are damaged or of another version; their results are made again"
    )


def test_damage_is_said_once_for_each_place(tmp_path: Path, bucket: str) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        store = opened(where(folder, bucket, sends=True))
        put(store)
        put(store, OTHER)
    for name in (NAME, OTHER):
        Path(Files(str(tmp_path / "two")).path(name), "value").write_bytes(b"")
    for file in MemoryFileSystem.store.values():
        file.truncate(100)
    store = opened(where(tmp_path / "two", bucket))
    assert store.get(any_of(NAME, OTHER)) == store.get(any_of(NAME)) == {}
    assert store.problems == [spoilt(tmp_path / "two"), spoilt(bucket)]
    put(opened(where(tmp_path / "three", bucket, sends=True)))
    store = opened(where(tmp_path / "four", bucket))
    assert store.get(any_of(NAME)) == {NAME: VALUE}, "what is damaged there is replaced by who may write"
    assert store.problems == []


def test_entry_that_another_build_replaces_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(where(tmp_path / "cache"))
    put(store, value=["old"])
    original = stores.entries.read_record

    def read_record(files: Files, key: str) -> dict[str, Any]:
        record = original(files, key)
        monkeypatch.setattr(stores.entries, "read_record", original)
        put(opened(where(tmp_path / "cache")), value=["new"])
        return record

    monkeypatch.setattr(stores.entries, "read_record", read_record)
    assert store.get(any_of(NAME)) == {NAME: ["new"]}
    assert store.problems == []


def test_an_entry_of_another_format_counts_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(where(tmp_path / "cache"))
    original = stores.entries.write
    monkeypatch.setattr(
        stores.entries,
        "write",
        lambda files, key, record, *args, **named: original(files, key, {**record, "format": 1}, *args, **named),
    )
    put(store)
    assert store.get(any_of(NAME)) == {}
    assert store.problems == [spoilt(tmp_path / "cache")]


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "cache"
    put(opened(where(folder)))
    folder.chmod(mode)
    store = opened(where(folder))
    assert store.get(any_of(NAME)) == {}
    put(store, OTHER)
    (problem,) = store.problems
    assert problem.startswith("the build continues without the build cache: ")
    assert f"chmod go-w {folder}" in problem
    folder.chmod(0o700)
    assert opened(where(folder)).get(any_of(OTHER)) == {}


def test_entry_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    store = opened(where(tmp_path / "cache"))
    put(store)
    Path(Files(str(tmp_path / "cache")).path(NAME)).chmod(0o777)
    assert store.get(any_of(NAME)) == {}


def test_entries_are_read_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(opened(where(tmp_path / "cache")))
    store = opened(where(tmp_path / "cache"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stores.entries.os, "rename", full)
    put(store, OTHER)
    put(store, OTHER)
    place = tmp_path / "cache"
    said = f"the build stores nothing in its cache: {place} cannot be written (No space left on device)"
    assert store.problems == [said]
    assert store.get(any_of(NAME, OTHER)) == {NAME: VALUE}


def test_value_that_cannot_be_stored_is_left_out(tmp_path: Path) -> None:
    store = opened(where(tmp_path / "cache"))
    store.put({NAME: object(), OTHER: 1}, "unit", {NAME: "a", OTHER: "b"})
    assert store.get(any_of(NAME, OTHER)) == {OTHER: 1}
    assert store.problems == []


def test_the_cap_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = where(tmp_path / "cache")
    store = opened(found)
    names = [f"{number:064x}" for number in range(5)]
    for age, name in enumerate(reversed(names)):
        put(store, name, bytes(10_000))
        entry = Path(Files(str(tmp_path / "cache")).path(name), "entry.json")
        os.utime(entry, (age, age))
    store.get(any_of(names[4]))  # what was used last stays
    monkeypatch.setenv("AOTCUDA_CACHE_SIZE", "25K")
    stores.trim(found)
    assert set(store.get(any_of(*names))) == {names[0], names[4]}


def test_cache_is_looked_through_when_it_may_be_full_or_once_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, looked, original = where(tmp_path / "cache"), [], stores.entries.trim
    monkeypatch.setattr(stores.entries, "trim", lambda *given: looked.append(1) or original(*given))
    monkeypatch.setenv("AOTCUDA_CACHE_SIZE", "25K")
    store = opened(found)
    for number in range(4):
        put(store, f"{number:064x}", bytes(10_000))
        stores.trim(found)
    assert len(looked) == 3, "the first time, and twice because of what was written since"
    now = stores.time.time()
    monkeypatch.setattr(stores.time, "time", lambda: now + 86_401)
    stores.trim(found)
    assert len(looked) == 4
    (tmp_path / "cache" / "v1" / "written").write_bytes(b"damaged\n")
    stores.trim(found)
    assert len(looked) == 5
    assert len(list(Files(str(tmp_path / "cache")).stored())) == 2


def test_a_url_fills_the_folder(tmp_path: Path, bucket: str) -> None:
    put(opened(where(tmp_path / "one", bucket, sends=True)))
    store = opened(where(tmp_path / "two", bucket))
    assert store.get(any_of(NAME, OTHER)) == {NAME: VALUE}
    MemoryFileSystem.store.clear()
    assert opened(where(tmp_path / "two", bucket)).get(any_of(NAME)) == {NAME: VALUE}


@pytest.mark.parametrize("name", ["[r]", "a*b", "a b", "é", "%20", "#1"])
def test_a_url_may_have_any_name(tmp_path: Path, name: str) -> None:
    url = f"file://{tmp_path / name}"
    put(opened(where(tmp_path / "one", url, sends=True)))
    store = opened(where(tmp_path / "two", url))
    assert store.get(any_of(NAME, OTHER)) == {NAME: VALUE}
    assert store.problems == []


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://host/x?signature=a/b", "https://host/x/{}?signature=a/b"),
        ("http://host/x/?a=1&b=2", "http://host/x/{}?a=1&b=2"),
        ("https://host/x/", "https://host/x/{}"),
        ("memory://a?b", "/a?b/{}"),
    ],
)
def test_an_entry_lies_behind_the_path_of_a_url(monkeypatch: pytest.MonkeyPatch, url: str, place: str) -> None:
    """A web address may have a query, by which a store knows who may read; elsewhere a question mark is a letter."""

    class Empty:
        asked: ClassVar[list[str]] = []

        def cat_file(self, path: str) -> bytes:
            self.asked.append(path)
            raise FileNotFoundError

        def cat(self, paths: list[str], *, on_error: str) -> dict[str, bytes | Exception]:
            assert on_error == "return"
            self.asked.extend(paths)
            return {path: FileNotFoundError() for path in paths}

    base = url if url.startswith("http") else url.removeprefix("memory:/")
    monkeypatch.setattr("fsspec.url_to_fs", lambda _: (Empty(), base))
    assert remote.fetch(url, [NAME]) == ({}, None)
    assert Empty.asked == [place.format(f"{VERSION}/{NAME[:2]}/{NAME}.zip")]


def test_a_url_is_read_only_unless_it_is_to_be_written(tmp_path: Path, bucket: str) -> None:
    put(opened(where(tmp_path / "one", bucket)))
    assert MemoryFileSystem.store == {}
    assert opened(where(None, bucket)).get(any_of(NAME)) == {}


def altered(data: bytes) -> Iterator[bytes]:
    yield from (data[:length] for length in range(0, len(data), 7))
    for at in range(0, len(data), 3):
        yield data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]


def test_whatever_lies_at_a_url_is_the_entry_or_none() -> None:
    record: dict[str, Any] = {"format": 1, "kind": "unit", "about": "k"}
    contents = {"value": b'{"b":[0,4]}\ncode'}
    data = remote.pack(NAME, record, contents)
    assert remote.unpack(data, NAME) == (record, contents)
    assert remote.unpack(data, OTHER) is None
    for wrong in altered(data):
        assert remote.unpack(wrong, NAME) in (None, (record, contents)), "times and such are of no matter"
    assert remote.unpack(json.dumps(record).encode(), NAME) is None


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nosuchthing://bucket", "nosuchthing"),
        ("http://127.0.0.1:1/cache", "127.0.0.1"),
        ("file:///proc/no/such", "/proc/no/such"),
    ],
)
def test_a_url_that_cannot_be_used_is_said_once_and_the_folder_serves(tmp_path: Path, url: str, said: str) -> None:
    store = opened(where(tmp_path / "cache", url, sends=True))
    store.get(any_of(OTHER))
    put(store)
    put(store, OTHER)
    assert len(store.problems) == 1
    assert said in store.problems[0]
    assert store.get(any_of(NAME)) == {NAME: VALUE}


class Silent(MemoryFileSystem):  # type: ignore[misc]
    """A store that takes every question and never answers."""

    protocol = "silent"
    answer = threading.Event()

    def cat_file(self, *_: object, **__: object) -> bytes:
        self.answer.wait()
        raise FileNotFoundError


def test_a_url_that_does_not_answer_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("silent", Silent, clobber=True)
    monkeypatch.setattr(remote, "PATIENCE", 0.05)
    store = opened(where(tmp_path / "cache", "silent://bucket"))
    assert store.get(any_of(NAME)) == {}
    assert store.get(any_of(OTHER)) == {}
    assert len(store.problems) == 1
    assert "silent://bucket does not answer within" in store.problems[0]
    Silent.answer.set()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ("<home>/builds", None, True, False)),
        ("relative", ("<here>/relative", None, True, False)),
        ("~/builds", ("<here>/builds", None, True, False)),
        ("./~", ("<here>/~", None, True, False)),
        ("./off", ("<here>/off", None, True, False)),
        ("./a:b", ("<here>/a:b", None, True, False)),
        ("s3://bucket/x", ("<home>/builds", "s3://bucket/x", True, False)),
        ("0", None),
    ],
)
def test_where_the_cache_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, expected: tuple[str, str | None, bool, bool] | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", "~/home")
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", value)
    found = settings.find(["numba-cuda"], (), Path())
    if found is None or expected is None:
        assert found is expected
        return
    folder = expected[0].replace("<home>", str(tmp_path / "home")).replace("<here>", str(tmp_path))
    assert (found.folder, found.url, found.writes, found.sends) == (folder, *expected[1:])


def test_compilers_settings_have_entries_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def facts() -> str:
        found = settings.find(["numba-cuda"], (), tmp_path)
        assert found is not None
        return found.facts

    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path))
    found = {facts()}
    (tmp_path / ".numba_config.yaml").write_text("opt: 0\n")
    found.add(facts())
    monkeypatch.setenv("NUMBA_CUDA_INCLUDE_PATH", "/somewhere")
    found.add(facts())
    assert len(found) == 3


@pytest.mark.parametrize(("access", "writes", "sends"), [("read", True, False), ("read-write", True, True)])
def test_url_is_written_only_with_access_read_write(
    monkeypatch: pytest.MonkeyPatch, access: str, *, writes: bool, sends: bool
) -> None:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "s3://bucket")
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE_ACCESS", access)
    found = settings.find([], (), Path())
    assert found is not None
    assert (found.writes, found.sends) == (writes, sends)


def test_a_folder_may_be_for_reading_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path / "cache"))
    put(opened(where(tmp_path / "cache")))
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE_ACCESS", "read")
    found = settings.find([], (), Path())
    assert found is not None
    store = opened(found)
    put(store, OTHER)
    assert store.get(any_of(NAME, OTHER)) == {NAME: VALUE}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("AOTCUDA_BUILD_CACHE_ACCESS", "write", "AOTCUDA_BUILD_CACHE_ACCESS is 'write'; write 'read' or 'read-write'"),
        ("AOTCUDA_CACHE_SIZE", "big", "AOTCUDA_CACHE_SIZE is 'big'"),
        *(("AOTCUDA_BUILD_CACHE", value, f"is '{value}'; .* 0 for no cache") for value in ("off", "False", "1", "00")),
        *(("AOTCUDA_BUILD_CACHE", value, f"is '{value}'; .* ./{value}") for value in ("s3:b", "file:/x", "http:/x/y")),
        *(("AOTCUDA_BUILD_CACHE", value, f"is '{value}'; write a URL with a protocol") for value in ("://", "://b/x")),
    ],
)
def test_variables_with_values_that_say_nothing_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path))
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        settings.find([], (), Path())


@pytest.mark.parametrize(
    ("names", "have_entries_of_their_own"),
    [
        (("AOTCUDA_UNTESTED", "AOTCUDA_CACHE_KEY", "PYTHONOPTIMIZE"), True),
        (("PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER"), False),
        (("UV_FIND_LINKS", "PIP_INDEX_URL", "VIRTUAL_ENV", "AOTCUDA_PROGRESS", "LANG", "TERM"), False),
    ],
)
def test_entries_are_for_the_variables_that_change_builds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: tuple[str, ...], *, have_entries_of_their_own: bool
) -> None:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path))
    for name in names:
        monkeypatch.delenv(name, raising=False)
        before = settings.find([], (), Path())
        monkeypatch.setenv(name, "1")
        assert (before != settings.find([], (), Path())) is have_entries_of_their_own, name


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_another_release_of_a_compiler_has_entries_of_its_own(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each distribution that a front end consists of."""
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path))
    registered = registry.BUILT_IN[name]
    for package in sorted({registered.package, *registered.internals, "nvidia_nvfatbin"}):
        before = settings.find([name], (), Path())
        assert before is not None
        release = tmp_path / package / f"{package.replace('-', '_')}-99.0.dist-info"
        release.mkdir(parents=True)
        monkeypatch.syspath_prepend(str(release.parent))
        assert before != settings.find([name], (), Path()), package


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@localhost:1/x",
        "http://user:a@secret@localhost:1/x",
        "simplecache::http://user:secret@localhost:1/x",
        "no-such://u:secret@host/x",
        "http://localhost:1/x?key=secret",
        "http://localhost:1/x?key=a&token=secret",
    ],
)
def test_a_warning_has_no_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(given: str) -> NoReturn:
        message = f"400, message:\n  cannot connect to url='{given}'"
        raise OSError(message)

    monkeypatch.setattr(remote, "_opened", unreachable)
    _, problem = remote.fetch(url, ["ab"])
    assert problem is not None
    assert "secret" not in problem
    assert "\n" not in problem
    assert "localhost:1/x" in problem or "host/x" in problem


def test_missing_package_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(error: ImportError) -> str | None:
        def opened(_: str) -> NoReturn:
            raise error

        monkeypatch.setattr(remote, "_opened", opened)
        return remote.send("s3://x", {})

    assert without(ModuleNotFoundError("", name="fsspec")) == (
        "s3://x needs fsspec, which is not installed: pip install 'aotcuda[cache]'"
    )
    assert without(ModuleNotFoundError("", name="s3fs")) == "s3://x needs s3fs, which is not installed: pip install it"
    assert without(ImportError('HTTPFileSystem requires "aiohttp" to be installed.')) == (
        's3://x needs a package that is not installed (HTTPFileSystem requires "aiohttp" to be installed): '
        "pip install it"
    )
