"""Read untrusted files and text: errors have one line, and output has no control characters."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.builder.link import inputs
from aotcuda.cli import main
from aotcuda.common import foreign
from aotcuda.errors import ConfigError
from support import damage, modules

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = """\
[build-system]
requires = ["hatchling", "aotcuda[cu13]"]
build-backend = "hatchling.build"
[project]
name = "pkg"
version = "1"
dependencies = ["aotcuda"]
[tool.hatch.build.targets.wheel.hooks.aotcuda]
[tool.aotcuda]
arch = ["sm_90"]
[tool.aotcuda.modules."pkg.k"]
"""
CPP = 'frontend = "cuda-cpp"\nsource = "pkg/file.cu"\nkernels.k = {}\n'
NUMBA = 'source = "pkg._k"\nkernels.k = "void(int32)"\nlink = ["pkg/file.cu"]\n'


def make_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2 << 30)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unix_socket:
        folder = Path.cwd()
        os.chdir(path.parent)
        unix_socket.bind(path.name)
        os.chdir(folder)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "is a pipe, not a regular file"),
    "a device without an end": (lambda path: path.symlink_to("/dev/zero"), "is a device, not a regular file"),
    "a terminal": (lambda path: path.symlink_to("/dev/ptmx"), "is a device, not a regular file"),
    "a socket": (make_socket, "is a socket, not a regular file"),
    "a folder": (Path.mkdir, "is a folder, not a regular file"),
    "a link in a circle": (
        lambda path: path.symlink_to(path.name),
        "cannot be read (Too many levels of symbolic links)",
    ),
    "2 GiB": (make_large, "bytes"),
}
"""By kind of file, a function that makes it and the error."""

READERS: dict[str, tuple[str, list[str]]] = {
    "inspect a wheel": ("file.whl", ["inspect", "{file}"]),
    "inspect a manifest": ("pkg/k.aotcuda/manifest.json", ["inspect", "{root}/pkg"]),
    "check": ("file.whl", ["check", "{file}"]),
    "diff": ("file.whl", ["diff", "{good}", "{file}"]),
    "config": ("pkg/k.aotcuda/manifest.json", ["config", "--files", "{root}/pkg"]),
    "init": ("pkg/file.py", ["init", "{root}"]),
    "record": ("file.json", ["record", "--out", "{file}", "--", "true"]),
    "build": ("pyproject.toml", ["build", "{root}"]),
    "build CUDA C++": ("pkg/file.cu", ["build", "{root}"]),
    "build a linked file": ("pkg/file.cu", ["build", "{root}"]),
}
"""By reader, a file of the project and the command that reads it."""


def _files(reader: str) -> list[str]:
    """Return kinds of files for a reader; only two readers get all, since all use `common.foreign`."""
    return {"inspect a wheel": [*FILES][:4], "build": [*FILES][4:]}.get(reader, ["a pipe"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    package = tmp_path / "project" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "_k.py").write_text("from numba import cuda\n@cuda.jit\ndef k(x): pass\n")
    return package.parent


@pytest.mark.parametrize(("reader", "file"), [(reader, file) for reader in READERS for file in _files(reader)])
def test_a_command_refuses_special_files_in_one_line(root: Path, tmp_path: Path, reader: str, file: str) -> None:
    name, command = READERS[reader]
    (root / "pyproject.toml").write_text(PROJECT + (CPP if "C++" in reader else NUMBA))
    good = modules.write_package(tmp_path / "good")
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if path.parent.suffix == ".aotcuda":
        (root / "pkg" / "k.py").write_text("")
    FILES[file][0](path)
    arguments = [part.format(file=path, root=root, good=good) for part in command]
    environment = {**os.environ, "AOTCUDA_BUILD_CACHE": "0", "AOTCUDA_PROGRESS": "0"}
    ran = subprocess.run(
        ["sh", "-c", 'ulimit -v 8000000; exec "$@"', "sh", sys.executable, "-m", "aotcuda", *arguments],
        cwd=root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in ran.stderr
    if reader == "init":
        assert (ran.returncode, "not read: pkg/file.py: " in ran.stdout) == (0, True)
    elif ran.returncode != 2:  # 2: a command-line option is wrong
        assert ran.returncode == 1
        assert ran.stderr.count("\n") == 1, ran.stderr
        assert FILES[file][1] in ran.stderr
        assert ran.stderr.startswith("aotcuda: ")


def test_a_file_that_an_sdist_lacks_is_named(tmp_path: Path) -> None:
    name = "csrc/missing.cu"
    paths = "paths are relative to the folder of pyproject.toml"
    assert inputs.remedy_for(tmp_path / name, tmp_path) == paths
    (tmp_path / "PKG-INFO").write_text("")
    with pytest.raises(ConfigError, match=rf"^link: .*{name} cannot be read .*; the sdist lacks it: enable the hook"):
        inputs.from_file(tmp_path / name, tmp_path, "link")


HOSTILE = "\x1b[2J\x07\r\n! fake\x9b1m\u202e\u2066\u200f\ud800\x00\t"

PRINTERS = (
    ["inspect"], ["inspect", "--summary"], ["inspect", "--json"], ["check"], ["check", "--json"], ["diff", "{old}"],
    ["diff", "--json", "{old}"], ["config", "--files"], ["cache", "warm"],
)  # fmt: skip


def texts(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to each text in a manifest, in the first two items of each list."""
    if isinstance(value, str):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    return [place for key, item in items for place in texts(item, (*path, key))]


@pytest.mark.parametrize("command", PRINTERS, ids=" ".join)
def test_control_characters_of_a_manifest_never_reach_a_terminal(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    old = modules.write_package(tmp_path / "old")
    document, fatbins = damage.full_manifest(), modules.contents()[1]
    every = 1 if len(command) == 1 else 4  # other forms of a command print by the same code
    for number, path in enumerate(texts(document)[::every]):
        changed = json.loads(json.dumps(document))
        holder = changed
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] += HOSTILE
        folder = tmp_path / str(number) / "mypkg"
        data = folder / "kernels.aotcuda"
        data.mkdir(parents=True)
        for name, content in fatbins.items():
            (data / name).write_bytes(content)
        (data / "manifest.json").write_text(json.dumps(changed))
        (folder / "__init__.py").write_text("")
        status = main([part.format(old=old) for part in command] + [str(folder)])
        output = capsys.readouterr()
        printed = output.out + output.err
        assert printed.replace("\n", "").isprintable(), path
        assert not [line for line in printed.splitlines() if line.strip().startswith("! fake")], path
        assert status == 0 or output.err.count("\n") == 1, path


def test_control_characters_are_escaped() -> None:
    for character in HOSTILE:
        assert foreign.escape(f"a{character}b").isprintable()
        stream = io.StringIO()
        foreign.show(f"a{character}b", stream)
        assert stream.getvalue().replace("\n", "").isprintable()


def test_an_error_has_place_fact_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "file\x1b"
    with pytest.raises(ConfigError) as caught:
        foreign.read(path, remedy="write it", error=ConfigError)
    assert str(caught.value) == f"{tmp_path}/file\\x1b: cannot be read (No such file or directory); write it"


def test_files_beyond_the_limit_links_and_wrong_paths_are_unreadable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(10))
    (tmp_path / "link").symlink_to("file")
    assert foreign.content(tmp_path / "link", 10) == bytes(10)
    with pytest.raises(foreign.UnreadableError, match="has 10 bytes, and aotcuda reads 9 at most"):
        foreign.content(tmp_path / "file", 9)
    with pytest.raises(foreign.UnreadableError, match="is a symbolic link, not a regular file"):
        foreign.content(tmp_path / "link", follow=False)
    for path in ("a\0b", "a\ud800b"):
        with pytest.raises(foreign.UnreadableError):
            foreign.content(path)
