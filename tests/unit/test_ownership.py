"""Test that modules assign only to attributes of their own objects, and use no `id()` as a key."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
# Front ends stand in for private parts of a compiler, which is what patching is; the recorder does so in the process
# that it records, `aotcuda.testing` stands in for libraries, and the observer watches the environment of the worker.
PATCHES = (
    "patches.py",
    "interop/numba_cuda_mlir.py",
    "numba_cuda_mlir/additions.py",
    "numba/gpu.py",
    "triton/compilation.py",
    "triton/torch_questions.py",
    "in_place/entry.py",
    "in_place/triton/functions.py",
    "worker/observer.py",
)
# The parameters of thousands of overloads are a few objects, which the manifest keeps alive.
BY_ADDRESS = "runtime/arguments/exact.py"
FILES = [
    path
    for path in sorted((ROOT / "aotcuda").rglob("*.py"))
    if not path.as_posix().endswith(PATCHES) and not {"aotcuda_recorder", "testing"} & {*path.parts}
]


def written_elsewhere(tree: ast.AST) -> list[str]:
    """The attributes of objects that a function was given, or reached through another one, that it sets or deletes.

    An object that a function or a module has made itself is its own until it hands it out.
    """
    found = []
    for function in [tree, *filter(_is_function, ast.walk(tree))]:
        given = {
            each.arg for each in ast.walk(getattr(function, "args", ast.Module([], []))) if isinstance(each, ast.arg)
        }
        for node in _own_statements(function):
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign | ast.Delete):
                targets = list(node.targets)
            elif isinstance(node, ast.AugAssign | ast.AnnAssign):
                targets = [node.target]
            while targets:
                target = targets.pop()
                if isinstance(target, ast.Tuple | ast.List):
                    targets += target.elts
                elif isinstance(target, ast.Attribute) and _is_elsewhere(target.value, given - {"self", "cls"}):
                    found.append(f"line {target.lineno}: {ast.unparse(target)}")
    return found


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def _own_statements(function: ast.AST) -> Iterator[ast.AST]:
    """Return what is in a function and in no function inside it."""
    for node in ast.iter_child_nodes(function):
        if not _is_function(node):
            yield node
            yield from _own_statements(node)


def _is_elsewhere(owner: ast.expr, given: set[str]) -> bool:
    return owner.id in given if isinstance(owner, ast.Name) else True


def keys_by_address(tree: ast.AST) -> list[str]:
    """Calls of `id()`, with their lines."""
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id"
    ]


def test_modules_write_only_their_own_objects_and_find_none_by_its_address() -> None:
    found = {}
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        keys = [] if path.as_posix().endswith(BY_ADDRESS) else keys_by_address(tree)
        found[path.relative_to(ROOT).as_posix()] = written_elsewhere(tree) + keys
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class A:\n    def f(self):\n        self.x = 1\n", 0),
        ("def f(other):\n    other.x = 1\n", 1),
        ("def f(other):\n    (other.x, other.y) = 1, 2\n", 2),
        ("class A:\n    def f(self):\n        self.owner.x += 1\n", 1),
        ("def f(other):\n    del other.x\n", 1),
        ("def f():\n    made = A()\n    made.x = 1\n    return made\n", 0),
        ("def f(other):\n    def g():\n        made = A()\n        made.x = 1\n", 0),
    ],
)
def test_writes_to_the_objects_of_others_are_found(source: str, found: int) -> None:
    assert len(written_elsewhere(ast.parse(source))) == found
