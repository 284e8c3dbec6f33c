"""Check the self-check of the private functions that patches replace."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from aotcuda import registry
from aotcuda.builder.frontends import loading
from aotcuda.builder.frontends.numba import gpu, private_parts
from aotcuda.builder.frontends.numba import patches as shared
from aotcuda.errors import ToolchainError

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
PATCHES = {
    name: f"{one.compiler.partition(':')[0].rpartition('.')[0]}.patches"
    for name, one in registry.BUILT_IN.items()
    if one.tested  # nothing of the others is replaced
}
PUBLIC = {
    *("_cached_result", "add", "build_ufunc", "initialization_error", "is_initialized", "pieces", "write_with_key"),
    *("id", "name_is_read", "result"),
    *("op_LOAD_COMMON_CONSTANT",) * (sys.version_info < (3, 14)),
}
"""Attributes that patches set and that are public, new, or absent on this Python."""


def assigned(module: ModuleType) -> set[str]:
    """Return the attributes that a module's functions set on the compiler's objects; settings are in capitals."""
    targets = [
        target
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    ]
    own = ("self", "_")  # the module's own objects
    return {one.attr for one in targets if not ast.unparse(one.value).startswith(own) and not one.attr.isupper()}


@pytest.mark.parametrize("name", PATCHES)
def test_replaced_functions_are_in_the_list(name: str) -> None:
    patches = importlib.import_module(PATCHES[name])
    modules = [
        patches,
        gpu,
        shared,
        *(vars(patches)[one] for one in ("additions", "known_faults") if one in vars(patches)),
    ]
    found = set().union(*map(assigned, modules))
    assert found - PUBLIC <= {part.replace(":", ".").rpartition(".")[2] for part in patches.PRIVATE_PARTS}
    assert len(patches.PRIVATE_PARTS) > 10


@pytest.mark.parametrize("name", PATCHES)
def test_installed_compiler_passes_the_check(name: str) -> None:
    assert private_parts.check(name, importlib.import_module(PATCHES[name]).PRIVATE_PARTS) is None


@pytest.mark.parametrize("name", PATCHES)
def test_the_extras_accept_the_tested_releases_from_first_to_last(name: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = {Requirement(line) for listed in extras.values() for line in listed if line.startswith(f"{name}[")}
    assert len(lines) == 2
    tested = registry.BUILT_IN[name].tested
    assert sorted(tested, key=Version) == [*tested]
    assert {line.specifier for line in lines} == {SpecifierSet(f">={tested[0]},<={tested[-1]}")}
    assert registry.BUILT_IN[name].requirements_by_release.keys() < {*tested}


def test_untested_version_is_refused_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_parts, "version", lambda name: "0.31.0")
    monkeypatch.delenv("AOTCUDA_UNTESTED", raising=False)
    with pytest.raises(ToolchainError) as caught:
        private_parts.check("numba-cuda", {})
    assert str(caught.value) == (
        "numba-cuda 0.31.0 was not tested with this aotcuda, 0.30.1 to 0.30.4 were: pip install numba-cuda==0.30.4, "
        "or set AOTCUDA_UNTESTED=1 to go on"
    )
    monkeypatch.setenv("AOTCUDA_UNTESTED", "1")
    private_parts.check("numba-cuda", {"ast:NodeVisitor.visit": "(self, node)"})


def test_import_error_names_further_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise AttributeError(name)

    monkeypatch.setattr(loading.importlib, "import_module", fail)
    monkeypatch.setattr(loading.metadata, "version", lambda name: "0.30.2")
    with pytest.raises(ToolchainError, match=r"install it with: pip install 'aotcuda\[cu13\]' 'numba<0.66'$"):
        loading.compiler("numba-cuda", "tool.aotcuda.frontend: the front end of m")


@pytest.mark.parametrize(
    ("part", "parameters", "has"),
    [
        ("ast:NodeVisitor.visit", "(self, node, more)", r"has \(self, node\) where"),
        ("ast:NodeVisitor.visited", "(self)", "does not exist where"),
        ("no_such_module_anywhere:f", "()", "does not exist where"),
    ],
)
def test_changed_private_function_is_named(part: str, parameters: str, has: str) -> None:
    with pytest.raises(ToolchainError, match=has) as caught:
        private_parts.check("numba-cuda", {part: parameters})
    cannot = f"numba-cuda {version('numba-cuda')} cannot be used"
    assert str(caught.value).startswith(f"{cannot}: {part}, which aotcuda replaces, ")
    assert str(caught.value).endswith(f" had {parameters}; pip install numba-cuda==0.30.4")
