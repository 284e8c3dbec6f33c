"""Test what `tools/docs.py` measures of the site's pages, in a browser."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
STYLE = "body { margin: 0 } body[data-theme=dark] { background: #111; color: #eee } .faint { color: #666 }"
WIDE = "<div style='width: 600px'>wide</div>"


@pytest.fixture
def docs(monkeypatch, tmp_path):
    """Return the script, for a site in a folder of the test's."""
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location("docs", TOOLS / "docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SITE", tmp_path)
    yield module
    sys.modules.pop("environments", None)


def write(site, **pages):
    for name, text in pages.items():
        (site / f"{name}.html").write_text(f"<!doctype html><style>{STYLE}</style><body><article>{text}</article>")


def test_pages_that_a_phone_cannot_show_are_named(docs, tmp_path, capsys):
    if not any(map(shutil.which, docs.BROWSERS)):
        pytest.skip("no browser is installed")
    scrolls = f"<div style='overflow-x: auto'>{WIDE}</div>"
    write(tmp_path, fine=f"<p>text</p>{scrolls}", wide=WIDE, faint="<p class='faint'>small print</p>")
    write(tmp_path, clipped=f"<div style='overflow: hidden'>{WIDE}</div>")
    with pytest.raises(SystemExit, match="pages of the site cannot be read in full on a phone"):
        docs.measure()
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "4 pages",
        "clipped.html: 240 px cut off: wide",
        "faint.html, dark: contrast 3.3: small print",
        "wide.html: the page is 240 px wider than the screen, and 1 more",
    ]


def test_where_there_is_no_browser_that_is_said(docs, monkeypatch, capsys):
    monkeypatch.setattr(docs.shutil, "which", lambda _: None)
    docs.measure()
    assert "nobody has looked at the pages" in capsys.readouterr().out


def test_a_browser_that_fails_is_no_good_site(docs, monkeypatch, tmp_path):
    failing = tmp_path / "browser"
    failing.write_text("#!/bin/sh\necho no display >&2; exit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr(docs.shutil, "which", lambda _: str(failing))
    with pytest.raises(SystemExit, match="browser did not measure the pages: no display"):
        docs.measure()
