"""Store entries of the build cache: a damaged entry counts as missing, and a fault costs one warning."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda import registry
from aotcuda.builder.cache import archive, settings
from aotcuda.builder.cache import store as stores
from aotcuda.builder.cache.settings import Settings
from aotcuda.builder.cache.store import Store
from aotcuda.cache.entries import Files
from aotcuda.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME, OTHER = "ab" + "0" * 62, "cd" + "0" * 62
VALUE = {"kernels.cubin": b"\x7fELF", "about": (1, "two", [3])}


def cache_in(folder: Path, *, writes: bool = True) -> Settings:
    return Settings(folder=str(folder), writes=writes, facts="")


def types_of(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, object)


def put(store: Store, name: str = NAME, value: object = VALUE) -> None:
    store.put({name: value}, "build", {name: "pkg.k"})


@pytest.mark.parametrize("file", ["entry.json", "value"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "empty"])
def test_damaged_entry_is_missing_and_replaced(tmp_path: Path, file: str, damage: str) -> None:
    store = Store(cache_in(tmp_path / "cache"))
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


def test_entry_that_another_build_replaces_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(cache_in(tmp_path / "cache"))
    put(store, value=["old"])
    original = stores.entries.read_record

    def read_record(files: Files, key: str) -> dict[str, Any]:
        record = original(files, key)
        monkeypatch.setattr(stores.entries, "read_record", original)
        put(Store(cache_in(tmp_path / "cache")), value=["new"])
        return record

    monkeypatch.setattr(stores.entries, "read_record", read_record)
    assert store.get(types_of(NAME)) == {NAME: ["new"]}
    assert store.problems == []


def test_entry_of_another_format_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(cache_in(tmp_path / "cache"))
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
    put(Store(cache_in(folder)))
    folder.chmod(0o770)
    store = Store(cache_in(folder))
    assert store.get(types_of(NAME)) == {}
    put(store, OTHER)
    (problem,) = store.problems
    assert problem.startswith("the build continues without the build cache: ")
    assert f"chmod go-w {folder}" in problem
    folder.chmod(0o700)
    assert Store(cache_in(folder)).get(types_of(OTHER)) == {}


def test_full_folder_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(Store(cache_in(tmp_path / "cache")))
    store = Store(cache_in(tmp_path / "cache"))

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
    store = Store(cache_in(tmp_path / "cache"))
    store.put({NAME: object(), OTHER: 1}, "unit", {NAME: "a", OTHER: "b"})
    assert store.get(types_of(NAME, OTHER)) == {OTHER: 1}
    assert store.problems == []


def test_trimming_removes_the_longest_unused_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_in(tmp_path / "cache")
    store = Store(cache)
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
    store = Store(cache)
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


def altered(data: bytes) -> Iterator[bytes]:
    yield from (data[:length] for length in range(0, len(data), 7))
    for at in range(0, len(data), 3):
        yield data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]


def test_altered_archive_is_the_entry_or_none() -> None:
    record: dict[str, Any] = {"format": 1, "kind": "unit", "about": "k"}
    contents = {"value": b'{"b":[0,4]}\ncode'}
    data = archive.pack(NAME, record, contents)
    assert archive.unpack(data, NAME) == (record, contents)
    assert archive.unpack(data, OTHER) is None
    for wrong in altered(data):
        assert archive.unpack(wrong, NAME) in (None, (record, contents)), "times of the archive do not matter"
    assert archive.unpack(json.dumps(record).encode(), NAME) is None


def test_archives_are_stored_up_to_a_size_and_have_the_digest_of_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    record, contents = {"format": 1, "kind": "unit", "about": "k"}, {"value": b'{"b":[0,4]}\ncode'}
    data = archive.pack(NAME, record, contents)
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        files = {name: opened.read(name) for name in opened.namelist()}
    other = {**files, "value": files["value"].replace(b"code", b"core")}
    for changed, method in (
        (other, zipfile.ZIP_STORED),
        (files, zipfile.ZIP_DEFLATED),
        ({**files, "more": b""}, zipfile.ZIP_STORED),
        ({"value": files["value"]}, zipfile.ZIP_STORED),
    ):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as made:
            for name, content in changed.items():
                made.writestr(name, content)
        assert archive.unpack(stream.getvalue(), NAME) is None
    for limit, expected in ((len(data), (record, contents)), (len(data) - 1, None)):
        monkeypatch.setattr(archive, "LARGEST", limit)
        assert archive.unpack(data, NAME) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", "<home>/builds"),
        ("relative", "<here>/relative"),
        ("~/builds", "<here>/builds"),
        ("./off", "<here>/off"),
        ("./a:b", "<here>/a:b"),
        ("0", None),
    ],
)
def test_variable_names_the_place_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, expected: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", "~/home")
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", value)
    cache = settings.find(["numba-cuda"], (), Path())
    if cache is None or expected is None:
        assert cache is expected
        return
    folder = expected.replace("<home>", str(tmp_path / "home")).replace("<here>", str(tmp_path))
    assert (cache.folder, cache.writes) == (folder, True)


@pytest.mark.parametrize(("access", "writes"), [("read", False), ("read-write", True)])
def test_access_limits_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, access: str, *, writes: bool
) -> None:
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AOTCUDA_BUILD_CACHE_ACCESS", access)
    cache = settings.find([], (), Path())
    assert cache is not None
    put(Store(cache_in(tmp_path / "cache")))
    store = Store(cache)
    put(store, OTHER)
    assert store.get(types_of(NAME, OTHER)).keys() == ({NAME, OTHER} if writes else {NAME})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("AOTCUDA_BUILD_CACHE_ACCESS", "write", "AOTCUDA_BUILD_CACHE_ACCESS is 'write'; write 'read' or 'read-write'"),
        ("AOTCUDA_CACHE_SIZE", "big", "AOTCUDA_CACHE_SIZE is 'big'"),
        *(("AOTCUDA_BUILD_CACHE", value, f"is '{value}'; .* 0 for no cache") for value in ("off", "1")),
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


def test_measuring_is_due_by_size_and_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v1").mkdir()
    tally = tmp_path / "v1" / "written"
    monkeypatch.setattr(stores.time, "time", lambda: 1_000_000.0)
    for looked, sizes, cap, due in (
        (1_000_000, "60\n40\n", 100, False),
        (1_000_000, "60\n41\n", 100, True),
        (1_000_000 - 86_399, "1\n", 100, False),
        (1_000_000 - 86_400, "1\n", 100, True),
        (1_000_001, "1\n", 100, True),  # the clock was set back
    ):
        tally.write_text(f"{looked}\n{sizes}")
        assert stores._may_be_full(str(tmp_path), cap) is due, (looked, sizes)
    tally.unlink()
    assert stores._may_be_full(str(tmp_path), 100)


def test_put_says_if_each_value_was_stored(tmp_path: Path) -> None:
    about = {NAME: "a", OTHER: "b"}
    store = Store(cache_in(tmp_path / "cache"))
    assert store.put({NAME: 1, OTHER: 2}, "unit", about)
    assert not store.put({NAME: 1, OTHER: object()}, "unit", about)
    assert not Store(cache_in(tmp_path / "cache", writes=False)).put({NAME: 3}, "unit", about)
    assert Store(cache_in(tmp_path / "cache")).get(types_of(NAME)) == {NAME: 1}


def test_folder_that_may_only_be_read_is_not_trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(Store(cache_in(tmp_path / "cache")))
    monkeypatch.setenv("AOTCUDA_CACHE_SIZE", "0")
    stores.trim(cache_in(tmp_path / "cache", writes=False))
    assert Store(cache_in(tmp_path / "cache")).get(types_of(NAME)) == {NAME: VALUE}


def test_entry_that_others_can_write_is_not_read(tmp_path: Path) -> None:
    store = Store(cache_in(tmp_path / "cache"))
    put(store)
    Path(Files(str(tmp_path / "cache")).path(NAME)).chmod(0o777)
    assert store.get(types_of(NAME)) == {}
