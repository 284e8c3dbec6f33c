"""Check the self-check of the private functions that patches replace."""

from __future__ import annotations

import ast
import importlib
import inspect
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
ADDED = {"id"}
"""Names that the compilers look up and do not have themselves."""


def replaced(module: str) -> set[str]:
    """Return the attributes of the compiler's own classes and modules that the functions of `module` assign to.

    Those of the functions besides that both compilers' patches call with them.
    """
    patches = importlib.import_module(module)
    own = {**vars(patches), "convention": getattr(getattr(patches, "callconv", None), "CUDACABICallConv", None)}
    dispatcher = getattr(patches, "MLIRDispatcher", None) or patches.dispatcher.CUDADispatcher
    typing = getattr(patches, "descriptor", None) or patches.target
    context = getattr(typing, "MLIRTypingContext", None) or typing.CUDATypingContext
    driver, devices = patches.driver, patches.devices
    handed = {
        gpu: {"driver": driver, "devices": devices, "kind": driver.Driver, "runtime": devices._Runtime},
        shared: {"dispatcher": dispatcher, "context": context},
    }
    found = assigned(patches, own)
    if additions := getattr(patches, "additions", None):
        handed[additions] = {}
    for other, names in handed.items():
        found |= assigned(other, {**vars(other), **names})
    return {name for name in found if name.rpartition(".")[2].rpartition(":")[2] not in ADDED}


def assigned(module: ModuleType, known: dict[str, object]) -> set[str]:
    """Return the attributes of classes and modules that a module's functions set, with what its names stand for."""
    pairs: list[tuple[ast.expr, str]] = []
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Assign):
            pairs += [(one.value, one.attr) for one in node.targets if isinstance(one, ast.Attribute)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "gpu.refuse_launches":
            pairs += [(one.elts[0], ast.literal_eval(one.elts[1])) for one in node.args if isinstance(one, ast.Tuple)]
    found = set()
    for expression, name in pairs:
        try:
            owner = eval(ast.unparse(expression), dict(known))
        except (NameError, AttributeError):
            continue  # an object that a patch makes
        if inspect.isclass(owner):
            found.add(f"{owner.__module__}:{owner.__qualname__}.{name}")
        elif inspect.ismodule(owner) and not owner.__name__.endswith(".config"):
            found.add(f"{owner.__name__}:{name}")
    return {name for name in found if not name.startswith("aotcuda.")}


@pytest.mark.parametrize("name", PATCHES)
def test_everything_that_is_replaced_is_checked(name: str) -> None:
    patches = importlib.import_module(PATCHES[name])
    of_newer_pythons = getattr(patches, "_OF_PYTHON_3_14", {})
    assert replaced(PATCHES[name]) <= patches.PRIVATE_PARTS.keys() | of_newer_pythons.keys()
    assert len(patches.PRIVATE_PARTS) > 10


@pytest.mark.parametrize("name", PATCHES)
def test_the_compiler_here_passes(name: str) -> None:
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
        ("ast:NodeVisitor.visited", "(self)", "is not there where"),
        ("no_such_module_anywhere:f", "()", "is not there where"),
    ],
)
def test_a_function_that_changed_is_named_with_what_it_had(part: str, parameters: str, has: str) -> None:
    with pytest.raises(ToolchainError, match=has) as caught:
        private_parts.check("numba-cuda", {part: parameters})
    cannot = f"numba-cuda {version('numba-cuda')} cannot be used"
    assert str(caught.value).startswith(f"{cannot}: {part}, which aotcuda replaces, ")
    assert str(caught.value).endswith(f" had {parameters}; pip install numba-cuda==0.30.4")
