"""Store entries of the build cache: a damaged entry counts as missing, and a fault costs one warning."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from unittest.mock import Mock

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from aotcuda import registry
from aotcuda.builder.cache import remote, settings
from aotcuda.builder.cache import store as stores
from aotcuda.builder.cache.settings import Settings
from aotcuda.builder.cache.store import Store
from aotcuda.cache.entries import VERSION, Files
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME, OTHER = "ab" + "0" * 62, "cd" + "0" * 62
VALUE = {"kernels.cubin": b"\x7fELF", "about": (1, "two", [3])}


def cache_in(folder: Path | None, url: str | None = None, *, writes: bool = True, sends: bool = False) -> Settings:
    base = str(folder) if folder is not None else None
    return Settings(folder=base, url=url, writes=writes, sends=sends, facts="")


def open_store(cache: Settings) -> Store:
    return Store(cache, remote.fetch, remote.send)


def types_of(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, object)


def put(store: Store, name: str = NAME, value: object = VALUE) -> None:
    store.put({name: value}, "build", {name: "pkg.k"})


@pytest.fixture
def bucket() -> Iterator[str]:
    MemoryFileSystem.store.clear()
    yield "memory://bucket/aotcuda"
    MemoryFileSystem.store.clear()


@pytest.mark.parametrize("file", ["entry.json", "value"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "empty"])
def test_damaged_entry_is_missing_and_replaced(tmp_path: Path, file: str, damage: str) -> None:
    store = open_store(cache_in(tmp_path / "cache"))
    put(store)
    path = Path(Files(str(tmp_path / "cache")).path(NAME), file)
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": data[:-1], "flipped": data[:-1] + bytes([data[-1] ^ 1]), "empty": b""}[damage])
    assert store.get(types_of(NAME)) == {}
    problems = store.problems.copy()
    assert problems == ([] if damage == "gone" else [damage_warning(tmp_path / "cache")])
    put(store)
    assert store.get(types_of(NAME, OTHER)) == {NAME: VALUE}
    assert store.problems == problems


def damage_warning(place: Path | str) -> str:
    return (
        f"the build cache in {place} has entries that are damaged or of another version; their results are made again"
    )


def test_damage_gives_one_warning_for_each_place(tmp_path: Path, bucket: str) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        store = open_store(cache_in(folder, bucket, sends=True))
        put(store)
        put(store, OTHER)
    for name in (NAME, OTHER):
        Path(Files(str(tmp_path / "two")).path(name), "value").write_bytes(b"")
    for file in MemoryFileSystem.store.values():
        file.truncate(100)
    store = open_store(cache_in(tmp_path / "two", bucket))
    assert store.get(types_of(NAME, OTHER)) == store.get(types_of(NAME)) == {}
    assert store.problems == [damage_warning(tmp_path / "two"), damage_warning(bucket)]
    put(open_store(cache_in(tmp_path / "three", bucket, sends=True)))
    store = open_store(cache_in(tmp_path / "four", bucket))
    assert store.get(types_of(NAME)) == {NAME: VALUE}, "a build that may write replaced it"
    assert store.problems == []


def test_entry_that_another_build_replaces_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(cache_in(tmp_path / "cache"))
    put(store, value=["old"])
    original = stores.entries.read_record

    def read_record(files: Files, key: str) -> dict[str, Any]:
        record = original(files, key)
        monkeypatch.setattr(stores.entries, "read_record", original)
        put(open_store(cache_in(tmp_path / "cache")), value=["new"])
        return record

    monkeypatch.setattr(stores.entries, "read_record", read_record)
    assert store.get(types_of(NAME)) == {NAME: ["new"]}
    assert store.problems == []


def test_entry_of_another_format_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(cache_in(tmp_path / "cache"))
    original = stores.entries.write
    monkeypatch.setattr(
        stores.entries,
        "write",
        lambda files, key, record, *args, **options: original(files, key, {**record, "format": 1}, *args, **options),
    )
    put(store)
    assert store.get(types_of(NAME)) == {}
    assert store.problems == [damage_warning(tmp_path / "cache")]


def test_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    put(open_store(cache_in(folder)))
    folder.chmod(0o770)
    store = open_store(cache_in(folder))
    assert store.get(types_of(NAME)) == {}
    put(store, OTHER)
    (problem,) = store.problems
    assert problem.startswith("the build continues without the build cache: ")
    assert f"chmod go-w {folder}" in problem
    folder.chmod(0o700)
    assert open_store(cache_in(folder)).get(types_of(OTHER)) == {}


def test_full_folder_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(open_store(cache_in(tmp_path / "cache")))
    store = open_store(cache_in(tmp_path / "cache"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stores.entries.os, "rename", full)
    put(store, OTHER)
    put(store, OTHER)
    place = tmp_path / "cache"
    problem = f"the build stores nothing in its cache: {place} cannot be written (No space left on device)"
    assert store.problems == [problem]
    assert store.get(types_of(NAME, OTHER)) == {NAME: VALUE}


def test_value_that_cannot_be_encoded_is_not_stored(tmp_path: Path) -> None:
    store = open_store(cache_in(tmp_path / "cache"))
    store.put({NAME: object(), OTHER: 1}, "unit", {NAME: "a", OTHER: "b"})
    assert store.get(types_of(NAME, OTHER)) == {OTHER: 1}
    assert store.problems == []


def test_trimming_removes_the_longest_unused_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_in(tmp_path / "cache")
    store = open_store(cache)
    names = [f"{number:064x}" for number in range(5)]
    for age, name in enumerate(reversed(names)):
        put(store, name, bytes(10_000))
        os.utime(Path(Files(str(tmp_path / "cache")).path(name), "entry.json"), (age, age))
    store.get(types_of(names[4]))
    monkeypatch.setenv("AOTCUDA_CACHE_SIZE", "25K")
    stores.trim(cache)
    assert set(store.get(types_of(*names))) == {names[0], names[4]}


def test_cache_is_measured_when_it_may_be_full_or_daily(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, trims, original = cache_in(tmp_path / "cache"), [], stores.entries.trim
    monkeypatch.setattr(stores.entries, "trim", lambda *arguments: trims.append(1) or original(*arguments))
    monkeypatch.setenv("AOTCUDA_CACHE_SIZE", "25K")
    now = int(stores.time.time())
    monkeypatch.setattr(stores.time, "time", lambda: now)
    store = open_store(cache)
    for number in range(4):
        put(store, f"{number:064x}", bytes(10_000))
        stores.trim(cache)
    assert len(trims) == 3, "the first time, and twice because of new entries"
    monkeypatch.setattr(stores.time, "time", lambda: now + 86_401)
    stores.trim(cache)
    assert len(trims) == 4
    (tmp_path / "cache" / "v1" / "written").write_bytes(b"damaged\n")
    stores.trim(cache)
    assert len(trims) == 5


def test_entry_at_a_url_fills_the_folder(tmp_path: Path, bucket: str) -> None:
    put(open_store(cache_in(tmp_path / "one", bucket)))
    assert MemoryFileSystem.store == {}, "a URL is read only"
    assert open_store(cache_in(None, bucket)).get(types_of(NAME)) == {}
    put(open_store(cache_in(tmp_path / "one", bucket, sends=True)))
    store = open_store(cache_in(tmp_path / "two", bucket))
    assert store.get(types_of(NAME, OTHER)) == {NAME: VALUE}
    MemoryFileSystem.store.clear()
    assert open_store(cache_in(tmp_path / "two", bucket)).get(types_of(NAME)) == {NAME: VALUE}


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://host/x?signature=a/b", "https://host/x/{}?signature=a/b"),
        ("https://host/x/", "https://host/x/{}"),
        ("memory://a?b", "/a?b/{}"),
    ],
)
def test_query_of_a_web_address_follows_the_entry(monkeypatch: pytest.MonkeyPatch, url: str, place: str) -> None:
    """In URLs of other protocols, a question mark is part of the name."""

    class Empty:
        requested: ClassVar[list[str]] = []

        def cat_file(self, path: str) -> bytes:
            self.requested.append(path)
            raise FileNotFoundError

        def cat(self, paths: list[str], *, on_error: str) -> dict[str, bytes | Exception]:
            assert on_error == "return"
            self.requested.extend(paths)
            return {path: FileNotFoundError() for path in paths}

    base = url if url.startswith("http") else url.removeprefix("memory:/")
    monkeypatch.setattr("fsspec.url_to_fs", lambda _: (Empty(), base))
    assert remote.fetch(url, [NAME]) == ({}, None)
    assert Empty.requested == [place.format(f"{VERSION}/{NAME[:2]}/{NAME}.zip")]


def altered(data: bytes) -> Iterator[bytes]:
    yield from (data[:length] for length in range(0, len(data), 7))
    for at in range(0, len(data), 3):
        yield data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]


def test_altered_entry_at_a_url_is_the_entry_or_none() -> None:
    record: dict[str, Any] = {"format": 1, "kind": "unit", "about": "k"}
    contents = {"value": b'{"b":[0,4]}\ncode'}
    data = remote.pack(NAME, record, contents)
    assert remote.unpack(data, NAME) == (record, contents)
    assert remote.unpack(data, OTHER) is None
    for wrong in altered(data):
        assert remote.unpack(wrong, NAME) in (None, (record, contents)), "times of the archive do not matter"
    assert remote.unpack(json.dumps(record).encode(), NAME) is None


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("nosuchthing://bucket", "nosuchthing"),
        ("http://127.0.0.1:1/cache", "127.0.0.1"),
    ],
)
def test_unusable_url_costs_one_warning(tmp_path: Path, url: str, text: str) -> None:
    store = open_store(cache_in(tmp_path / "cache", url, sends=True))
    store.get(types_of(OTHER))
    put(store)
    put(store, OTHER)
    assert len(store.problems) == 1
    assert text in store.problems[0]
    assert store.get(types_of(NAME)) == {NAME: VALUE}


class Silent(MemoryFileSystem):  # type: ignore[misc]
    """A store that never answers."""

    protocol = "silent"
    answer = threading.Event()

    def cat_file(self, *_: object, **__: object) -> bytes:
        self.answer.wait()
        raise FileNotFoundError


def test_url_without_an_answer_is_used_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("silent", Silent, clobber=True)
    monkeypatch.setattr(remote, "TIME_LIMIT", 0.05)
    store = open_store(cache_in(tmp_path / "cache", "silent://bucket"))
    assert store.get(types_of(NAME)) == {}
    assert store.get(types_of(OTHER)) == {}
    assert len(store.problems) == 1
    assert "silent://bucket does not answer within" in store.problems[0]
    Silent.answer.set()


def test_entries_that_come_too_late_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The build reads the found entries while the thread may still add some."""
    last = threading.Event()

    class Slow:
        def cat(self, places: list[str], **_: object) -> Mock:
            def answers() -> Iterator[tuple[str, bytes]]:
                yield places[0], b"damaged"
                last.wait()
                yield places[1], b"damaged"

            return Mock(items=answers)

    monkeypatch.setattr(remote, "_open", lambda url: (Slow(), url))
    monkeypatch.setattr(remote, "TIME_LIMIT", 0.05)
    entries, problem = remote.fetch("slow://x", [NAME, OTHER])
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "aotcuda-cache")
    last.set()
    thread.join()
    assert OTHER not in entries
    assert problem == "slow://x does not answer within 0 seconds"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ("<home>/builds", None, True, False)),
        ("relative", ("<here>/relative", None, True, False)),
        ("~/builds", ("<here>/builds", None, True, False)),
        ("./off", ("<here>/off", None, True, False)),
        ("./a:b", ("<here>/a:b", None, True, False)),
        ("s3://bucket/x", ("<home>/builds", "s3://bucket/x", True, False)),
        ("0", None),
    ],
)
def test_variable_names_the_place_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, expected: tuple[str, str | None, bool, bool] | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", "~/home")
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", value)
    cache = settings.find(["numba-cuda"], (), Path())
    if cache is None or expected is None:
        assert cache is expected
        return
    folder = expected[0].replace("<home>", str(tmp_path / "home")).replace("<here>", str(tmp_path))
    assert (cache.folder, cache.url, cache.writes, cache.sends) == (folder, *expected[1:])


@pytest.mark.parametrize(("access", "writes", "sends"), [("read", False, False), ("read-write", True, True)])
def test_access_limits_folder_and_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, access: str, *, writes: bool, sends: bool
) -> None:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE_ACCESS", access)
    cache = settings.find([], (), Path())
    assert cache is not None
    put(open_store(cache_in(tmp_path / "cache")))
    store = open_store(cache)
    put(store, OTHER)
    assert store.get(types_of(NAME, OTHER)).keys() == ({NAME, OTHER} if writes else {NAME})
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", "s3://bucket")
    cache = settings.find([], (), Path())
    assert cache is not None
    assert (cache.writes, cache.sends) == (True, sends), "the user's own folder is written"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("AOTCUDA_BUILD_CACHE_ACCESS", "write", "AOTCUDA_BUILD_CACHE_ACCESS is 'write'; write 'read' or 'read-write'"),
        ("AOTCUDA_CACHE_SIZE", "big", "AOTCUDA_CACHE_SIZE is 'big'"),
        *(("AOTCUDA_BUILD_CACHE", value, f"is '{value}'; .* 0 for no cache") for value in ("off", "1")),
        ("AOTCUDA_BUILD_CACHE", "s3:b", "is 's3:b'; .* ./s3:b"),
        ("AOTCUDA_BUILD_CACHE", "://b/x", "is '://b/x'; write a URL with a protocol"),
    ],
)
def test_invalid_values_of_variables_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path))
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        settings.find([], (), Path())


@pytest.mark.parametrize(
    ("names", "is_different"),
    [
        (("AOTCUDA_UNTESTED", "AOTCUDA_CACHE_KEY", "PYTHONOPTIMIZE", "NUMBA_CUDA_INCLUDE_PATH"), True),
        (("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "UV_FIND_LINKS", "AOTCUDA_PROGRESS", "LANG", "TERM"), False),
    ],
)
def test_variables_that_change_builds_have_other_entries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: tuple[str, ...], *, is_different: bool
) -> None:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path))
    for name in names:
        monkeypatch.delenv(name, raising=False)
        before = settings.find(["numba-cuda"], (), tmp_path)
        monkeypatch.setenv(name, "1")
        assert (before != settings.find(["numba-cuda"], (), tmp_path)) is is_different, name


def test_numbas_configuration_file_has_other_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path))
    before = settings.find(["numba-cuda"], (), tmp_path)
    (tmp_path / ".numba_config.yaml").write_text("opt: 0\n")
    assert before != settings.find(["numba-cuda"], (), tmp_path)


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_another_release_of_a_compiler_has_other_entries(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        "simplecache::http://user:secret@localhost:1/x",
        "no-such://u:secret@host/x",
        "http://localhost:1/x?key=a&token=secret",
    ],
)
def test_warning_has_no_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(f"400, message:\n  cannot connect to url='{url}'")
    monkeypatch.setattr(remote, "_open", Mock(side_effect=error))
    _, problem = remote.fetch(url, ["ab"])
    assert problem is not None
    assert "secret" not in problem
    assert "\n" not in problem
    assert "localhost:1/x" in problem or "host/x" in problem


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (
            ModuleNotFoundError("", name="fsspec"),
            "s3://x needs fsspec, which is not installed: pip install 'aotcuda[cache]'",
        ),
        (ModuleNotFoundError("", name="s3fs"), "s3://x needs s3fs, which is not installed: pip install it"),
    ],
)
def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, error: ImportError, problem: str) -> None:
    monkeypatch.setattr(remote, "_open", Mock(side_effect=error))
    assert remote.send("s3://x", {}) == problem
