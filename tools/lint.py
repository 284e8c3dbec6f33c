#!/usr/bin/env python3
"""Run the checks: ruff, docstrings, mypy, zizmor, schemas of the forge's files, the notes for CHANGELOG, the site.

They run in the tests' environment, where mypy sees every package that the code imports.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from environments import ROOT, check_machine, environment, make, say

import docs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN_TIME = [f"aotcuda/{name}" for name in ("__init__.py", "cache", "common", "integrations", "manifest", "runtime")]

FORGE = {
    "dependabot": "dependabot.yml",
    "github-issue-config": "ISSUE_TEMPLATE/config.yml",
    "github-issue-forms": "ISSUE_TEMPLATE/[!c]*.yml",
    "github-workflows": "workflows/*.yml",
}

SOURCES = (
    "aotcuda",
    "bench",
    "examples",
    "hatch_build.py",
    "hatch_metadata.py",
    "hatch_plugin",
    "setuptools_plugin",
    "tests",
    "tools",
)
"""Folders and files of Python."""

FRAGMENTS = {"How", "Likewise", "Of", "See", "That", "What", "Whether", "Which", "Who"}
"""Words that begin a fragment where a docstring should have a verb, or a noun for a class."""
PLAIN = ("aotcuda", "bench", "docs", "hatch_plugin", "setuptools_plugin", "tools")
"""Folders whose code and pages must not have `METAPHORS`."""

METAPHORS = re.compile(
    r"\b(as there|handed|learnt|lies|likewise|nobody\b(?!@)|somebody|taught|vouch(es)?|whoever)\b", re.IGNORECASE
)
"""Words that treat programs as persons, or refer to another sentence."""


def main() -> None:
    """Make the environment and run the checks, one on each core; exit with the names of those that fail."""
    check_machine()
    say("The tests' environment, with ruff, mypy, zizmor and Sphinx (1 GB on disk)")
    python = make("test", "--editable", f"{ROOT}[test,lint,docs]")
    module = (python, "-m")
    schemas = (python.with_name("check-jsonschema"), "--quiet", "--builtin-schema")
    checks: dict[str, list[tuple[str | Path, ...]]] = {
        "ruff": [(*module, "ruff", "check", "."), (*module, "ruff", "format", "--check", ".")],
        "mypy": [(*module, "mypy")],
        "sphinx": [docs.command(python)],
        # Only aotcuda/common/system.py, and code that runs after forks of the driver, use what other systems lack.
        "mypy for Windows": [(*module, "mypy", "--platform", "win32", "--cache-dir", ".mypy_cache/win32", *RUN_TIME)],
        "zizmor": [(python.with_name("zizmor"), "--offline", "--quiet", ROOT / ".github")],
        "Schemas of workflows and forms": [
            (*schemas, f"vendor.{kind}", *sorted((ROOT / ".github").glob(pattern))) for kind, pattern in FORGE.items()
        ],
        "Fragments of CHANGELOG": [(*module, "towncrier", "build", "--draft", "--version", "next")],
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = {name: pool.submit(_outcome, commands) for name, commands in checks.items()}
    for name, outcome in outcomes.items():
        say(name)
        print(outcome.result()[1], end="", flush=True)
    say("Docstrings that begin with fragments, and words that are not plain English")
    for line in (faults := [*_fragments(), *_metaphors()]):
        print(line)
    failed = [name for name, outcome in outcomes.items() if outcome.result()[0]] + ["words"] * bool(faults)
    if failed:
        sys.exit(f"\nThese checks failed: {', '.join(failed)}")


def _fragments() -> Iterator[str]:
    """Yield the place of each docstring whose first line is a fragment."""
    for name in SOURCES:
        for path in [ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    text = ast.get_docstring(node) or ""
                    if text.partition(" ")[0].rstrip(",:;.") in FRAGMENTS:
                        yield f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"


def _metaphors() -> Iterator[str]:
    """Yield the place of each word in `METAPHORS`, in code, comments, messages and pages."""
    for folder in PLAIN:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".c", ".h", ".md"} and path.name != "lint.py" and "_build" not in path.parts:
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                    if match := METAPHORS.search(line):
                        yield f"{path.relative_to(ROOT)}:{number}: {match[0]}"


def _outcome(commands: list[tuple[str | Path, ...]]) -> tuple[bool, str]:
    """Run commands; return True if one of them fails, and the output of all."""
    done = [
        subprocess.run(
            [str(part) for part in command],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        for command in commands
    ]
    return any(item.returncode for item in done), "".join(item.stdout for item in done)


if __name__ == "__main__":
    main()
