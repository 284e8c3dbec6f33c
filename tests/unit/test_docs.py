"""Of the documentation: what it points to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/results/*.md"), *ROOT.glob("*/README.md")]
TOPS = (
    "aotcuda|bench|docs|examples|(?:hatch|setuptools)_plugin|tests|tools|builder|runtime|inspect|compatibility|binary"
)
# A path in the text: below one of the folders at the top, or below the package, with what it may stand for left out.
PATH = re.compile(rf"`((?:{TOPS})/[\w./*-]*)`")


def anchors(page):
    """The names by which the headings of a page are linked."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page, text):
    """The links of a page that lead nowhere, and the files that it names and that are not there."""
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"`[^`\n]*\]\([^`\n]*`", "", text)  # `kernel[grid](x)` is no link
    for target in re.findall(r"\]\(([^)]+)\)", prose):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        to = (page.parent / path).resolve() if path else page
        if not to.exists() or (anchor and anchor not in anchors(to)):
            yield target
    for path in PATH.findall(text):
        if not any([*ROOT.glob(path.rstrip("/")), *ROOT.glob(f"aotcuda/{path.rstrip('/')}")]):
            yield path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_points_to_is_there(page):
    assert list(broken(page, page.read_text())) == []


def test_what_is_not_there_is_found():
    text = (
        "[a](nowhere.md) [b](docs/howto.md#fork) [c](docs/howto.md#x) `aotcuda/build/api.py` `builder/api.py` `k[g](x)`"
    )
    assert list(broken(ROOT / "README.md", text)) == ["nowhere.md", "docs/howto.md#x", "aotcuda/build/api.py"]


def test_messages_of_the_troubleshooting_page_are_those_that_are_said():
    """What stands in the first column is searched for by people who have read it."""
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    rows += re.findall(
        r"^\| `([^`]+)` or `([^`]+)` \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE
    )
    said = [item for row in rows for item in ([row] if isinstance(row, str) else row)]
    code = "\n".join(path.read_text() for path in ROOT.glob("aotcuda/**/*.py"))
    # As the interpreter joins the literals of a message.
    joined = re.sub(r'"\s*\n\s*f?"', "", code)
    assert len(said) > 25
    assert [text for text in said if text not in joined] == []


def test_every_page_is_in_the_contents_of_the_site():
    text = (ROOT / "docs" / "index.md").read_text()
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    listed = re.findall(r"^[\w/-]+$", "".join(blocks), re.MULTILINE)
    assert sorted(listed) == sorted({*(path.stem for path in ROOT.glob("docs/*.md")), "results/README"} - {"index"})
