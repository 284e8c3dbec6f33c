"""Read and write entries at a URL, by fsspec: one archive for each, which has the digest of every byte in it.

No URL may delay a build: a URL that does not answer within `TIME_LIMIT` seconds is not used.
"""

from __future__ import annotations

import io
import re
import threading
import time
import zipfile
from typing import TYPE_CHECKING, Any

from aotcuda import manifest
from aotcuda.cache import entries
from aotcuda.cache.entries import ENTRY, VERSION, entry_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Packed = tuple[dict[str, Any], dict[str, bytes]]
    Fetched = tuple[dict[str, Packed | None], str | None]

TIME_LIMIT = 20.0
"""Seconds for all requests of one call."""

VALUE = "value"
NAMES = frozenset([VALUE])
"""The files of an entry."""

LARGEST = entries.LARGEST_FILE + entries.LARGEST_RECORD
"""Bytes that an archive may have."""

_TICK = 0.5

_SECRETS = re.compile(r"(?<=//)[^/\s]*@|(?<=\?)[^\s'\"]+")
"""The user name, password and query of a URL; a query may be a key."""

_GLOB = re.compile(r"[*?\[]")
"""Characters for which fsspec reads a path as a pattern for several files."""

_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


def fetch(url: str, names: list[str], tick: Callable[[], None] = lambda: None) -> Fetched:
    """Return the checked entries at a URL, None for damaged ones, and the reason why no more can be fetched, if any.

    `tick` is called from time to time meanwhile.
    """
    packed: dict[str, Packed | None] = {}

    def work() -> None:
        system, base = _open(url)
        places = {_place(base, name): name for name in names}
        for place, answer in _read_all(system, [*places]).items():
            name = places.get(place) or names[0]
            if isinstance(answer, bytes):
                packed[name] = unpack(answer, name)
            elif not isinstance(answer, FileNotFoundError):
                raise answer

    problem = _call_with_limit(url, work, tick)
    return dict(packed), problem  # a copy, since a thread that is late still adds entries


def send(url: str, packed: Mapping[str, Packed]) -> str | None:
    """Store entries at a URL; return the reason why no more can be sent, if any."""

    def work() -> None:
        system, base = _open(url)
        for name, (record, contents) in packed.items():
            place = _place(base, name)
            system.makedirs(place.rpartition("/")[0], exist_ok=True)
            system.pipe_file(place, pack(name, record, contents))

    return _call_with_limit(url, work)


def pack(name: str, record: Mapping[str, Any], contents: Mapping[str, bytes]) -> bytes:
    """Return an entry as one archive, not compressed; equal entries give equal bytes."""
    digests = {file: manifest.digest(data) for file, data in contents.items()}
    files = {ENTRY: entry_bytes({**record, "key": name, "files": digests}), **contents}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for file, data in files.items():
            archive.writestr(zipfile.ZipInfo(file, _FIXED_TIME), data)
    return stream.getvalue()


def unpack(data: bytes, name: str) -> Packed | None:
    """Return the entry in an archive; None if a byte of it is wrong, or it is not an entry of that name."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            items = archive.infolist()
            is_uncompressed = all(
                item.compress_type == zipfile.ZIP_STORED for item in items
            )  # so nothing unpacks to more
            if len(data) > LARGEST or not is_uncompressed or sorted(item.filename for item in items) != [ENTRY, VALUE]:
                return None
            files = {item.filename: archive.read(item) for item in items}
        record = entries.parse_record(files.pop(ENTRY), name, NAMES, name)
        entries.check_contents(record, files, name)
    except Exception:  # noqa: BLE001 (zipfile raises a dozen classes for archives that are wrong)
        return None
    return {key: value for key, value in record.items() if key not in ("key", "files")}, files


def without_secrets(text: str) -> str:
    """Return a text without the secrets in its URLs, in one line."""
    return " ".join(_SECRETS.sub("", text).split())


def _read_all(system: Any, places: list[str]) -> dict[str, bytes | Exception]:
    """Return the content at each place, or the error."""
    if not any(_GLOB.search(place) for place in places):
        # Some stores return all entries at once.
        contents: dict[str, bytes | Exception] = system.cat(places, on_error="return")
        return contents
    return {place: _read_one(system, place) for place in places}


def _read_one(system: Any, place: str) -> bytes | Exception:
    try:
        content: bytes = system.cat_file(place)
    except Exception as error:  # noqa: BLE001 (file systems raise errors of any class)
        return error
    return content


def _place(base: str, name: str) -> str:
    """Return the place of an entry; the query of a web address, which may be a key, stays behind the path."""
    path, mark, query = base.partition("?") if base.startswith(("http://", "https://")) else (base, "", "")
    return f"{path.rstrip('/')}/{VERSION}/{name[:2]}/{name}.zip{mark}{query}"


def _open(url: str) -> tuple[Any, str]:
    import fsspec  # noqa: PLC0415 (an extra, which only caches with a URL need)

    system, base = fsspec.url_to_fs(url)
    return system, base


def _call_with_limit(url: str, work: Callable[[], None], tick: Callable[[], None] = lambda: None) -> str | None:
    """Call a function in a thread, and wait for a limited time; return the problem, if any."""
    problems: list[str | None] = []

    def run() -> None:
        try:
            work()
            problems.append(None)
        except ImportError as error:
            problems.append(f"{url} needs {_missing_package(error)}")
        except Exception as error:  # noqa: BLE001 (file systems raise errors of any class)
            problems.append(f"{url}: {str(error) or type(error).__name__}")

    thread = threading.Thread(target=run, daemon=True, name="aotcuda-cache")
    thread.start()
    end = time.monotonic() + TIME_LIMIT
    while thread.is_alive() and (remaining := end - time.monotonic()) > 0:
        thread.join(min(remaining, _TICK))
        tick()
    problem = problems[0] if problems else f"{url} does not answer within {TIME_LIMIT:.0f} seconds"
    return problem and without_secrets(problem)


def _missing_package(error: ImportError) -> str:
    """Return the missing package and its remedy; fsspec has its own text for each kind of store."""
    if error.name == "fsspec":
        return "fsspec, which is not installed: pip install 'aotcuda[cache]'"
    if error.name:
        return f"{error.name}, which is not installed: pip install it"
    return f"a package that is not installed ({str(error).rstrip('.')}): pip install it"
