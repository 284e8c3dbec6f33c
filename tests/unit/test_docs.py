"""Test links, paths, messages, tables and commands in the documentation."""

from __future__ import annotations

import ast
import json
import re
import shlex
import textwrap
import tomllib
from pathlib import Path

import pytest

from aotcuda import cli
from aotcuda.builder.config.parser import parse
from aotcuda.common import variables as own_variables

ROOT = Path(__file__).parents[2]
FRAGMENTS = [*ROOT.glob("changes/*.*.md")]  # parts of the next CHANGELOG.md
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("docs/[a-z]*/*.md"),
    *ROOT.glob("*/README.md"),
    *ROOT.glob("examples/*/README.md"),
]
TOPS = (
    "aotcuda|bench|changes|docs|examples|(?:hatch|setuptools)_plugin|tests|tools|"
    "builder|runtime|inspect|compatibility|binary"
)
# A path in the text, from the top or from the package.
PATH = re.compile(rf"`((?:{TOPS})/[\w./*-]*)`")


def anchors(page):
    """Return the link targets of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def find_broken(page, text):
    """Yield the broken links of a page, and the paths of missing files in it."""
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"`[^`\n]*\]\([^`\n]*`", "", text)  # `kernel[grid](x)` is no link
    for target in re.findall(r"\]\(([^)]+)\)", prose):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield target
    for path in PATH.findall(text):
        if not any([*ROOT.glob(path.rstrip("/")), *ROOT.glob(f"aotcuda/{path.rstrip('/')}")]):
            yield path


@pytest.mark.parametrize("page", [*PAGES, *FRAGMENTS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_of_a_page_exist(page):
    assert list(find_broken(ROOT / "CHANGELOG.md" if page in FRAGMENTS else page, page.read_text())) == []


def test_messages_of_the_troubleshooting_page_exist():
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| `([^`]+)`(?: or `([^`]+)`)? \|", text, re.MULTILINE)
    messages = [message for row in rows for message in row if message]
    code = "\n".join(path.read_text() for path in ROOT.glob("aotcuda/**/*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", code)  # the interpreter joins the literals of a message
    assert len(messages) > 25
    assert [message for message in messages if message not in joined] == []


def test_contents_of_the_site_have_every_page():
    text = (ROOT / "docs" / "index.md").read_text()
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    listed = re.findall(r"^[\w/-]+$", "".join(blocks), re.MULTILINE)
    pages = (path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md"))
    assert sorted(listed) == sorted({str(page) for page in pages if page.parts[0] != "_build"} - {"index"})


def test_page_of_environment_variables_has_all():
    page = (ROOT / "docs" / "environment.md").read_text()
    files = [ROOT / "hatch_build.py", *ROOT.glob("aotcuda/**/*.py"), *ROOT.glob("*_plugin/**/*.py")]
    variables = {name for path in files for name in re.findall(r"[\"'](AOTCUDA_[A-Z_]+)[\"']", path.read_text())}
    internal = {
        "AOTCUDA_RECORD_DRY",
        "AOTCUDA_RECORD_FOLDER",
        "AOTCUDA_RECORD_HOME",
        "AOTCUDA_RECORD_ROOTS",
        "AOTCUDA_RECORD_TYPES",
    }  # users do not set them
    assert variables - internal == set(re.findall(r"AOTCUDA_[A-Z_]+", page)) == set(own_variables.OWN)


BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(language):
    """Return the blocks of a language in all pages, as parameters."""
    return [
        pytest.param(textwrap.dedent(text), id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for number, (_, kind, text) in enumerate(BLOCK.findall(page.read_text()))
        if kind == language and not (kind == "toml" and page.name == "configuration.md")  # test_schema.py has those
    ]


@pytest.mark.parametrize("text", blocks("python"))
def test_python_of_a_page_is_valid(text):
    assert ast.parse(text).body


@pytest.mark.parametrize("text", blocks("json"))
def test_json_of_a_page_is_valid(text):
    assert json.loads(re.sub(r"\.\.\.", "0", text))


COMPLETE = {"arch": ["sm_90"], "modules": {"mypkg.kernels": {"source": "mypkg._kernels", "kernels": {"k": "void()"}}}}


@pytest.mark.parametrize("text", blocks("toml"))
def test_tables_of_a_page_are_valid(text):
    content = tomllib.loads(text)
    assert content
    table = content.get("tool", {}).get("aotcuda")  # it may be a part of a table
    if table is not None:
        table = COMPLETE | table
        for module in table["modules"].values():
            if not module.keys() & {"kernels", "functions", "variants"}:
                module["kernels"] = {"k": "void()"}
        assert parse(table, environ={}).modules


def commands():
    """Yield the lines that call `aotcuda` in blocks without a language, as parameters."""
    for item in blocks(""):
        for line in re.sub(r"\\\n", "", item.values[0]).splitlines():
            if match := re.match(r"(?:\$ )?(?:AOTCUDA_\w+=\S+ )*aotcuda (?!: )([a-z].*)", line):
                yield pytest.param(match[1], id=f"{item.id}-{match[1]}")


@pytest.mark.parametrize("command", list(commands()))
def test_commands_of_a_page_are_valid(command):
    words = shlex.split(re.sub(r"[][]|\.\.\.", "", command), comments=True)  # with optional arguments
    words = words[: next((at for at, word in enumerate(words) if word in (">", "|", "&&", "||")), None)]
    assert cli._parser().parse_args(words)
