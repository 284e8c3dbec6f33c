"""What the import of a user's modules is seen to read."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys

import pytest

from aotcuda.build import witness


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """What importing a module of this source is seen to read."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def importing(source, **modules):
        for name, text in {"seen_source": source, **modules}.items():
            (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        try:
            with witness.watch() as found:
                importlib.import_module("seen_source")
        finally:
            for name in ("seen_source", *modules):
                sys.modules.pop(name, None)
        return found

    return importing


def test_modules_that_it_imports(seen, tmp_path):
    found = seen("import seen_helper, json", seen_helper="X = 1")
    assert found.modules == {str(tmp_path / "seen_helper.py"), str(tmp_path / "seen_source.py")}


@pytest.mark.parametrize(
    "read",
    ["list(map(str.strip, __import__('fileinput').input({!r})))", "__import__('pathlib').Path({!r}).read_text()"],
)
def test_files_that_it_reads(seen, tmp_path, read):
    path = tmp_path / "data.txt"
    path.write_text("1")
    assert seen(f"X = {read.format(str(path))}").files == {str(path)}


def test_files_that_it_writes_are_not_read(seen, tmp_path):
    found = seen(f"with open({str(tmp_path / 'log')!r}, 'a') as log:\n    log.write('x')\n")
    assert found.files == set()


@pytest.mark.parametrize(
    "read", ["os.environ['SEEN']", "os.environ.get('SEEN')", "os.getenv('SEEN')", "'SEEN' in os.environ"]
)
def test_variables_that_it_asks_for(seen, monkeypatch, read):
    monkeypatch.setenv("SEEN", "7")
    assert seen(f"import os\nX = {read}").variables == {"SEEN": hashlib.sha256(b"7").hexdigest()}
    monkeypatch.delenv("SEEN")
    assert seen("import os\nX = os.environ.get('SEEN', '3')").variables == {"SEEN": None}


def test_nothing_is_noted_afterwards(seen, tmp_path, monkeypatch):
    monkeypatch.setenv("SEEN", "7")
    found = seen("X = 1")
    kind = type(os.environ)
    os.environ.get("SEEN")
    (tmp_path / "seen_source.py").read_text()
    assert (found.variables, found.files, kind.__name__) == ({}, set(), "_Environ")
