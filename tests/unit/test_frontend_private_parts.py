"""The self-check of what is changed in the compilers."""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from pathlib import Path

import pytest

from aotcuda import frontends
from aotcuda.builder.frontends.numba import private_parts
from aotcuda.errors import ToolchainError

ROOT = Path(__file__).parents[2]
PATCHES = {name: f"{one.compiler}.patches" for name, one in frontends.BUILT_IN.items()}
ADDED = {"insert_unresolved_ref", "id"}
"""Names that the compilers look up and do not have themselves."""


def replaced(module: str) -> set[str]:
    """The attributes of the compiler's own classes and modules that the functions of `module` assign to."""
    patches = importlib.import_module(module)
    known = {**vars(patches), "convention": getattr(getattr(patches, "callconv", None), "CUDACABICallConv", None)}
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(patches))):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name | ast.Attribute):
                continue
            try:
                owner = eval(ast.unparse(target.value), known)
            except (NameError, AttributeError):
                continue  # an object that a patch makes
            if inspect.isclass(owner):
                found.add(f"{owner.__module__}:{owner.__qualname__}.{target.attr}")
            elif inspect.ismodule(owner) and not owner.__name__.endswith(".config"):
                found.add(f"{owner.__name__}:{target.attr}")
    return {name for name in found if name.rpartition(".")[2].rpartition(":")[2] not in ADDED}


@pytest.mark.parametrize("name", PATCHES)
def test_everything_that_is_replaced_is_checked(name: str) -> None:
    patches = importlib.import_module(PATCHES[name])
    assert replaced(PATCHES[name]) <= patches.PRIVATE_PARTS.keys()
    assert len(patches.PRIVATE_PARTS) > 10


@pytest.mark.parametrize("name", PATCHES)
def test_the_compiler_here_passes(name: str) -> None:
    assert private_parts.check(name, importlib.import_module(PATCHES[name]).PRIVATE_PARTS) is None


@pytest.mark.parametrize("name", PATCHES)
def test_the_extras_install_a_tested_version(name: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = {line for listed in extras.values() for line in listed if line.startswith(f"{name}[")}
    assert len(lines) == 2
    assert {line.partition("==")[2] for line in lines} == {frontends.BUILT_IN[name].tested[-1]}


def test_another_version_is_refused_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_parts, "version", lambda name: "0.31.0")
    monkeypatch.delenv("AOTCUDA_UNTESTED", raising=False)
    with pytest.raises(ToolchainError) as caught:
        private_parts.check("numba-cuda", {})
    assert str(caught.value) == (
        "numba-cuda 0.31.0 was not tested with this aotcuda, 0.30.4 was: pip install numba-cuda==0.30.4, or set "
        "AOTCUDA_UNTESTED=1 to go on"
    )
    monkeypatch.setenv("AOTCUDA_UNTESTED", "1")
    private_parts.check("numba-cuda", {"ast:NodeVisitor.visit": "(self, node)"})


@pytest.mark.parametrize(
    ("part", "parameters", "has"),
    [
        ("ast:NodeVisitor.visit", "(self, node, more)", r"has \(self, node\) where"),
        ("ast:NodeVisitor.visited", "(self)", "is not there where"),
        ("no_such_module_anywhere:f", "()", "is not there where"),
    ],
)
def test_a_function_that_changed_is_named_with_what_it_had(part: str, parameters: str, has: str) -> None:
    with pytest.raises(ToolchainError, match=has) as caught:
        private_parts.check("numba-cuda", {part: parameters})
    assert str(caught.value).startswith(f"numba-cuda 0.30.4 cannot be used: {part}, which aotcuda replaces, ")
    assert str(caught.value).endswith(f" had {parameters}; pip install numba-cuda==0.30.4")
