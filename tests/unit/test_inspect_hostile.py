"""Test that `aotcuda inspect` answers every hostile or damaged input with a report, or with one line of an error."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import cubin, fatbin, ptx, targets
from aotcuda.binary.limit import Limit, TooMuchError
from aotcuda.cli import main
from aotcuda.common.foreign import escape, excerpt
from aotcuda.errors import ImageError
from aotcuda.tools.inspect import collect, mangling
from aotcuda.tools.inspect.images import Image
from support import damage, hostile, manifests

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 1_000_000


@pytest.fixture
def _little_memory() -> Iterator[None]:
    """Limit the process to 1 GiB more memory than it uses, so that claimed sizes cannot be allocated."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.needs("lz4")
@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize("name", hostile.ALL, ids=lambda name: ascii(name)[:40])
def test_hostile_input_ends_in_a_report_or_one_line(name, tmp_path, capsys):
    target, expected = hostile.make(name, tmp_path, SIZE)
    for options in ([], ["--json"]):
        status = main(["inspect", *options, target])
        out, errors = capsys.readouterr()
        assert out.replace("\n", "").isprintable()
        if status == 0:
            assert not expected
            assert errors == ""
            assert not options or json.loads(out)["version"] == 1
        else:
            assert status == 1
            assert errors.startswith("aotcuda: ")
            assert errors.endswith("\n")
            assert errors[:-1].isprintable()
            assert expected in errors


@pytest.mark.parametrize("suffix", [".fatbin", ".whl", ".json"])
def test_damaged_file_ends_in_a_report_or_one_line(suffix: str, tmp_path: Path) -> None:
    counts, tracebacks = damage.outcomes(suffix, range(150), tmp_path)
    assert tracebacks == []
    assert counts["faults"] == 0
    assert counts["errors"] > 15
    assert counts["results"] > 0


@pytest.mark.parametrize("header", [b"\xff\xfe", b"\x1b[2J int f();"])
def test_header_that_is_no_text_is_not_printed(header, tmp_path, capsys):
    files = {"header": manifests.file("h.h", header)}
    members = [("a.aotcuda/manifest.json", hostile.text(files=files)), ("a.aotcuda/h.h", header)]
    (tmp_path / "a.whl").write_bytes(hostile.wheel(members))
    assert main(["inspect", "--header", str(tmp_path / "a.whl")]) == 1
    assert "a.aotcuda has a header that is no text" in capsys.readouterr().err


def test_traceback_of_debug_mode_is_escaped(capsys, monkeypatch):
    monkeypatch.setenv("AOTCUDA_DEBUG", "1")
    assert main(["inspect", "\x1b[2J"]) == 1
    errors = capsys.readouterr().err
    assert "\x1b" not in errors
    assert errors.count("\n") > 2


def test_letters_that_a_terminal_lacks_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a.cubin").write_bytes(hostile.with_functions(["größe".encode()]))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "aotcuda", "inspect", "a.cubin"]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")
    assert r"gr\xf6\xdfe" in process.stdout


def test_limit_grows_with_the_target() -> None:
    Limit(100 << 20).add(1600 << 20)
    small = Limit(1000)
    small.add(256 << 20)
    with pytest.raises(TooMuchError, match=r"^holds more than 268,435,456 bytes when it is unpacked, the most that"):
        small.add(1)


def test_report_counts_as_unpacked_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = next(iter(targets.find(hostile.make("manifest: many objects", tmp_path, 5000)[0])))
    packed = Image(
        entry=fatbin.Entry(arch="sm_80", kind="sass", name="", size=0, packed=0, content=b""), kernels={}, functions=()
    )
    monkeypatch.setattr(collect, "_images", lambda *_: [packed] * 1000)
    module.manifest["functions"] = [hostile.function()] * 3000  # type: ignore[list-item]
    with pytest.raises(ImageError, match=r"^.*kernels\.aotcuda holds more than 268,435,456 bytes"):
        collect.module_report(module)


def test_section_count_is_read_from_the_first_header() -> None:
    image = hostile.with_functions([b"k"], (b".text.k", 1, bytes(96), 0))
    data = bytearray(image)
    (table,) = hostile.struct.unpack_from("<Q", data, 40)
    count, names = hostile.struct.unpack_from("<HH", data, 60)
    hostile.struct.pack_into("<HH", data, 60, 0, 0xFFFF)
    hostile.struct.pack_into("<QI", data, table + 32, count, names)
    content = cubin.read(bytes(data), "k.cubin")
    assert content == cubin.read(image, "k.cubin")
    assert [(kernel.name, kernel.code) for kernel in content.kernels] == [("k", 96)]


def test_kernel_with_two_symbols_is_listed_once() -> None:
    assert [kernel.name for kernel in cubin.read(hostile.with_functions([b"k", b"k"]), "k.cubin").kernels] == ["k"]


@pytest.mark.needs("lz4")
def test_images_are_decompressed_one_at_a_time() -> None:
    entries = fatbin.entries(hostile.large_images(0), "a.fatbin", Limit(0))
    assert next(entries).size == 200 << 20
    with pytest.raises(ImageError, match=r"^a\.fatbin: the sass image for sm_90 holds more than 268,435,456 bytes"):
        next(entries)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"/* .entry a( */ .entry b(", ("b",)),
        (b'.file 1 "/a/*.cu" .entry c(', ("c",)),
        (b'.file 1 "a.entry b" .entry c(', ("c",)),
        (b".entry /* a */ // b\n c(", ("c",)),
        (b".entryway a( ..entry c( .entry", ("c",)),
        (b"/entry .entry c( /* .entry d(", ("c",)),
        (b".entry a( .entry a(", ("a",)),
    ],
)
def test_ptx_comments_and_strings_hide_entries(text: bytes, names: tuple[str, ...]) -> None:
    assert ptx.kernels(text) == names


@pytest.mark.needs("cxxfilt")
def test_name_that_is_too_costly_to_demangle_stays_mangled() -> None:
    doubling, plain = (kernel.name for kernel in cubin.read(hostile.doubling_name(0), "a").kernels)
    odd = ["axpy", "_Znonsense", "_Z1f" + "P" * 5000 + "i", "_Z1f\n_Z5scalePfi", "_Z1f\ud800", "_Z"]
    assert mangling.demangle([doubling, plain, *odd]) == {plain: "scale(float*, int)"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("größe 1", "größe 1"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\t", r"a\nb\t"),
        ("\ud800", r"\ud800"),
        ("\u202eabc\u2028", r"\u202eabc\u2028"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
    ],
)
def test_unprintable_text_is_escaped(text: str, expected: str) -> None:
    assert escape(text) == excerpt(text) == expected


def test_long_text_is_shortened_in_errors() -> None:
    assert excerpt("x" * 5000) == "x" * 1000 + "... (4,000 more characters)"
