"""Inputs that were made to break `aotcuda inspect`: each ends in an answer, or in exit status 1 and one line."""

from __future__ import annotations

import json
import resource
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import cubin, fatbin, ptx
from aotcuda.binary.budget import Budget, TooMuchError
from aotcuda.cli import main
from aotcuda.common.foreign import brief, shown
from aotcuda.errors import ImageError
from aotcuda.tools.inspect import mangling
from support import damage, hostile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 200_000
FORMS = [[], ["--summary"], ["--json"], ["--header"]]
ADDRESSES = 1 << 30
SLOW = (
    "elf of many mangled names",
    "zstandard cubin of attributes",
)  # CI has a mangled name that doubles, and sections


@pytest.fixture
def _little_memory() -> Iterator[None]:
    """Return what is claimed and not there cannot be had."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:  # noqa: PTH123 (it is no file that pathlib reads better)
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESSES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.matrix] * (name in SLOW))
        for name in hostile.MAKERS
        if "as may be" not in name
    ],
)
def test_whatever_it_is_there_is_an_answer_or_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = hostile.MAKERS[name](tmp_path, SIZE)
    forms = [[], ["--json"]] if name.startswith(("elf", "ptx", "zstandard", "lz4", "fatbin")) else FORMS
    for form in forms:
        status = main(["inspect", *form, target])
        out, errors = capsys.readouterr()
        assert status in (0, 1)
        assert out.replace("\n", "").isprintable()
        if status:
            assert errors.startswith("aotcuda: ")
            assert errors.endswith("\n")
            assert errors[:-1].isprintable()
            assert "memory" not in errors
        else:
            assert errors == ""
            assert form != ["--json"] or json.loads(out)["version"] == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("elf of sections over each other", "cannot be read as a cubin"),
        ("elf that counts 4294967296 sections", "cannot be read as a cubin"),
        ("elf of names that are ends of one another", "holds more than 16,777,216 bytes of names"),
        ("zstandard of 131 kilobytes that is 4 gibibytes", "holds more than 268,435,456 bytes when it is unpacked"),
        ("elf of many functions", "holds more than 2,000,000 parts to read and to list"),
        ("pipe", "is a pipe, not a regular file"),
        ("manifest that is a pipe", "manifest.json is a pipe, not a regular file"),
        ("manifest that is a link to a device", "manifest.json is a device, not a regular file"),
        ("manifest of a tebibyte of holes", "has 1,099,511,627,776 bytes, and aotcuda reads 16,777,216 at most"),
        ("generated module that is a pipe", "kernels.py next to "),
        ("wheel whose manifest unpacks to 6 gigabytes", "and aotcuda reads 16,777,216 at most"),
        ("wheel that is encrypted", "is encrypted"),
        ("wheel of a wrong checksum", "cannot be unpacked"),
        ("wheel in bzip2", "is compressed in a way that wheels are not (12)"),
        ("wheel of a manifest twice", "is in the wheel more than once"),
        ("wheel whose names lead out of it", "has a file whose name leads out of it: ../../x.aotcuda/manifest.json"),
        ("wheel whose fatbin lies elsewhere", "'../../../../etc/passwd' is no file name"),
        ("manifest nested deeply", "is not a readable manifest"),
        ("manifest of names that are numbers", "module is not a string"),
        ("name that commands a terminal", r"importable module \x1b[2J.whl\nsecond line"),
        ("name of 5000 characters", "cannot be read (File name too long)"),
    ],
)
def test_the_line_says_what_is_wrong(name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", hostile.MAKERS[name](tmp_path, 10 * SIZE)]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("header", [b"\xff\xfe", b"\x1b[2J int f();", b"a\0b"])
def test_a_header_that_is_no_text_is_not_printed(
    header: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = hostile.records.file("h.h", header)
    members = [("a.aotcuda/manifest.json", hostile.text(files={"header": listed})), ("a.aotcuda/h.h", header)]
    (tmp_path / "a.whl").write_bytes(hostile.wheel(members))
    assert main(["inspect", "--header", str(tmp_path / "a.whl")]) == 1
    assert "a.aotcuda has a header that is no text" in capsys.readouterr().err


def test_a_traceback_that_was_asked_for_commands_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOTCUDA_DEBUG", "1")
    assert main(["inspect", "\x1b[2J"]) == 1
    errors = capsys.readouterr().err
    assert "\x1b" not in errors
    assert errors.count("\n") > 2


def test_a_terminal_that_lacks_letters_gets_them_escaped(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    (tmp_path / "a.cubin").write_bytes(hostile.with_functions(["größe".encode()]))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "aotcuda", "inspect", "a.cubin"]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")
    assert r"gr\xf6\xdfe" in process.stdout


# Damage


def _kinds() -> list[str]:
    return list(dict.fromkeys(job.what for job in damage.jobs(1)))


@pytest.mark.parametrize("what", _kinds())
def test_damage_gives_an_answer_or_one_line(what: str) -> None:
    if what.startswith("mutated"):
        job = damage.Job(what, 1_000_000, 1_000_300)
    else:
        _, data = damage.sources()[what.partition(" of a ")[2]]
        count = len(data) * (8 if what.startswith("flipped") else 1)
        job = damage.Job(what, 0, count, max(count // 200, 1) | 1)
    outcome = damage.run(job)
    assert outcome.tracebacks == []
    assert outcome.counts["tracebacks"] == 0
    assert outcome.counts["inputs"] == len(range(*job[1:]))
    assert outcome.counts["errors"] > 0
    assert outcome.counts["answers"] > 0 or what.startswith("truncations")


# The parts


def test_a_budget_grows_with_the_target_and_says_what_was_too_much() -> None:
    Budget(0).spend("bytes", 256 << 20)
    Budget(100 << 20).spend("bytes", 1600 << 20)
    small = Budget(1000)
    small.spend("items", 1_999_999)
    small.spend("items", 1)
    with pytest.raises(TooMuchError, match=r"^holds more than 2,000,000 parts to read and to list, the most that"):
        small.spend("items", 1)


def test_more_sections_than_the_header_has_room_for_are_counted_in_the_first() -> None:
    whole = hostile.with_functions([b"k"], (b".text.k", 1, bytes(96), 0))
    data = bytearray(whole)
    (table,) = hostile.struct.unpack_from("<Q", data, 40)
    count, names = hostile.struct.unpack_from("<HH", data, 60)
    hostile.struct.pack_into("<HH", data, 60, 0, 0xFFFF)
    hostile.struct.pack_into("<QI", data, table + 32, count, names)
    found = cubin.read(bytes(data), "k.cubin")
    assert found == cubin.read(whole, "k.cubin")
    assert [(kernel.name, kernel.code) for kernel in found.kernels] == [("k", 96)]


def test_a_kernel_of_two_symbols_is_one_kernel() -> None:
    assert [kernel.name for kernel in cubin.read(hostile.with_functions([b"k", b"k"]), "k.cubin").kernels] == ["k"]


def test_images_are_read_one_at_a_time() -> None:
    budget = Budget(0)
    entries = fatbin.entries(hostile.zstandard_images_of_200_mebibytes_each(0), "a.fatbin", budget)
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
        (b".entryway a( .entry", ()),
        (b"a/b .entry c( /", ("c",)),
        (b"..entry c(", ("c",)),
        (b"/entry .entry c( /* .entry d(", ("c",)),
        (b".entry a( .entry a(", ("a",)),
    ],
)
def test_ptx_is_read_as_comments_strings_and_entries(text: bytes, names: tuple[str, ...]) -> None:
    assert ptx.kernels(text) == names


def test_names_are_demangled_and_one_that_takes_too_much_costs_no_other(tmp_path: Path) -> None:
    path = hostile.MAKERS["elf of a mangled name that doubles"](tmp_path, SIZE)
    with open(path, "rb") as file:  # noqa: PTH123
        doubling, plain = (kernel.name for kernel in cubin.read(file.read(), path).kernels)
    assert mangling.demangled([doubling, plain, "axpy", "_Znonsense"]) == {plain: "scale(float*, int)"}


@pytest.mark.parametrize("name", ["_Z1f" + "P" * 5000 + "i", "_Z1f\n_Z5scalePfi", "_Z1f\ud800", "_Z"])
def test_a_name_that_no_compiler_makes_stays_as_it_is(name: str) -> None:
    assert mangling.demangled([name]) == {}


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
    assert shown(text) == brief(text) == expected


def test_a_long_text_is_shortened_for_people() -> None:
    assert brief("x" * 5000) == "x" * 1000 + "... (4,000 more characters)"
