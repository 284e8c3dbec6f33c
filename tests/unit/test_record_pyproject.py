"""Test that entries are added to pyproject.toml, and that nothing else changes."""

from __future__ import annotations

import difflib
import tomllib
from typing import TYPE_CHECKING

import pytest

from aotcuda.errors import ConfigError
from aotcuda.registry import DEFAULT_TARGETS
from aotcuda.tools.record import pyproject, records, tables
from aotcuda.tools.record.project import Project

if TYPE_CHECKING:
    from pathlib import Path

BASE = """\
# The first line.
[project]
name = "x"          # aligned
dependencies = [
    "numpy",        # arrays
]

[tool.aotcuda]      # ours
arch = ["sm_80"]
"""

FORMS = {
    "no table": "",
    "a string": """[tool.aotcuda.modules."m"]
source = "m"
[tool.aotcuda.modules."m".kernels]
add = "void(int8)"  # old
""",
    "a list on one line": """[tool.aotcuda.modules.m]
source = "m"
kernels = { add = ["void(int8)"], b = "void(int8)" } # x
""",
    "a list with comments": """[tool.aotcuda.modules.m]
source = "m"
[tool.aotcuda.modules.m.kernels]
# of add
add = [ # begin
    "void(int8)", # one
    # between
    "void(int16)"  # two
]
# after
""",
    "an inline table": """[tool.aotcuda.modules."m"]
source = "m"
[tool.aotcuda.modules."m".kernels]
plus = { python = "add", signatures = ["void(int8)"], launch-bounds = 256 } # plus
""",
    "a table for each kernel": """[tool.aotcuda.modules."m"]
source = "m"
[tool.aotcuda.modules."m".kernels.add]
signature = "void(int8)"
cooperative = true

[tool.black]
line-length = 10
""",
    "dotted keys": """[tool.aotcuda.modules."m"]
source = "m"
kernels.add = "void(int8)"
kernels.b = "void(int8)" # b
""",
    "no kernels yet": """[tool.aotcuda.modules."m"]
source = "m"

[tool.other]
x = 1 # last""",
}


def record(function: str, signature: str, **more: object) -> records.Record:
    facts: dict = {"frontend": "numba-cuda", "kind": "kernel", "module": "m", "file": "m.py", "line": 1}
    facts |= {"path": function, "function": function, "signature": signature, "launches": {"simulator": 1}}
    return records.Record(**{**facts, **more})


def merge(text: str, *items: records.Record, folder: Path) -> str:
    """Return the text of a pyproject.toml after the records are merged into its tables."""
    (folder / "m.py").touch()
    project = Project(root=folder, text=text, data=tomllib.loads(text))
    additions = tables.additions(tables.divide(items, project)[0], project)
    editor = pyproject.Editor(text)
    if additions:
        pyproject.add_targets(editor)
        pyproject.add_kernels(editor, additions, project.front_end({}))
    return editor.text()


def signatures_of(text: str) -> dict[str, list[str]]:
    """Return the signatures of each Python function of module `m`."""
    signatures = {}
    for name, value in tomllib.loads(text)["tool"]["aotcuda"]["modules"]["m"]["kernels"].items():
        python = value.get("python", name) if isinstance(value, dict) else name
        listed = value.get("signatures", value.get("signature", [])) if isinstance(value, dict) else value
        signatures[python] = [listed] if isinstance(listed, str) else listed
    return signatures


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("form", FORMS)
def test_merge_adds_entries_and_changes_nothing_else(form: str, newline: str, tmp_path: Path) -> None:
    text = (BASE + "\n" + FORMS[form]).replace("\n", newline)
    items = [record("add", "void(float32)"), record("add", "void(float64)"), record("new", "void(int8, float32[::1])")]
    after = merge(text, *items, folder=tmp_path)
    assert signatures_of(after)["add"][-2:] == ["void(float32)", "void(float64)"]
    assert signatures_of(after)["new"] == ["void(int8, float32[::1])"]
    if "void(int8)" in FORMS[form]:
        assert "void(int8)" in signatures_of(after)["add"]
    assert after.count("\r\n") == (after.count("\n") if newline == "\r\n" else 0)
    removed = [line[2:] for line in difflib.ndiff(text.splitlines(), after.splitlines()) if line.startswith("- ")]
    assert all(any(part in line for part in ("add", "signature =", "void(int16)")) for line in removed), removed
    comments = [line[line.index("#") :] for line in text.splitlines() if "#" in line]
    assert [comment for comment in comments if comment not in after] == []
    assert merge(after, *items, folder=tmp_path) == after, "a second run has nothing to add"


def test_kernels_of_equal_name_get_different_keys(tmp_path: Path) -> None:
    items = [
        record("A.step", "void(int8)"),
        record("B.step", "void(int8)"),
        record("step", "void(int8)", frontend="numba-cuda-mlir"),
    ]
    table = tomllib.loads(merge("", *items, folder=tmp_path))["tool"]["aotcuda"]
    assert table["arch"] == list(DEFAULT_TARGETS)
    modules = table["modules"]
    assert modules["m"]["kernels"] == {
        "step": {"python": "m:A.step", "signatures": ["void(int8)"]},
        "B_step": {"python": "m:B.step", "signatures": ["void(int8)"]},
    }
    assert modules["m_mlir"] == {"source": "m", "frontend": "numba-cuda-mlir", "kernels": {"step": ["void(int8)"]}}


def test_inline_tool_table_is_refused() -> None:
    editor = pyproject.Editor('tool = { aotcuda = { arch = ["sm_80"] } }\n')
    editor.add_table(("tool", "aotcuda", "modules", "m"), {"source": "m"})
    with pytest.raises(ConfigError, match=r"cannot be merged .* the file was not changed"):
        editor.text()


def test_declared_signatures_are_listed_once_another_is_recorded(tmp_path: Path) -> None:
    text = BASE + '\n[tool.aotcuda.modules.m]\nsource = ["m", "n"]\nkernels.add = {}\n'
    declared = record("add", "void(int8)", declared=True)
    assert merge(text, declared, folder=tmp_path) == text
    after = merge(text, declared, record("add", "void(float32)"), folder=tmp_path)
    assert signatures_of(after) == {"add": ["void(int8)", "void(float32)"]}
