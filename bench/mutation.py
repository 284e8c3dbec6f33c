"""Compare the unit tests of two states by the small faults that they find: a mutation score for each of ten modules.

    python bench/mutation.py before --out docs/results/mutation.json
    python bench/mutation.py after --out docs/results/mutation.json --module aotcuda/binary/fatbin.py

A mutant is a module with one change: a comparison, a constant, a condition, an operator, a result or a statement. The
changes are drawn by a seed, so `before` and `after` have the same mutants while the module stays the same. A mutant is
killed by the first test that fails; `after` runs only mutants that survived, or whose killer no longer exists.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import importlib.machinery
import json
import os
import random
import signal
import sys
from pathlib import Path

import hypothesis  # noqa: F401 (one import serves all mutants)
import numpy as np  # noqa: F401 (as above)
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
MODULES = {
    "aotcuda/runtime/images/choice.py": ["runtime_choose", "runtime_tegra", "check"],
    "aotcuda/runtime/kernel_table.py": ["runtime_module", "runtime_facts", "runtime_launch"],
    "aotcuda/runtime/launch/arguments/overloads.py": ["runtime_dispatch", "runtime_types"],
    "aotcuda/integrations/in_place/triton/functions.py": ["triton_in_place", "triton_tuning", "triton_layers"],
    "aotcuda/manifest/__init__.py": ["manifest", "schema", "run_time_requirement"],
    "aotcuda/common/stamp.py": ["runtime_stale", "build_depfile"],
    "aotcuda/builder/cache/store.py": ["build_cache_store"],
    "aotcuda/builder/emit/wheel_files.py": ["build_artifacts", "build_output_conflicts"],
    "aotcuda/binary/fatbin.py": ["inspect_fatbin", "inspect_hostile"],
    "aotcuda/tools/record/records.py": ["record_records", "record_log", "record_variants"],
}
"""Modules, and the files of unit tests that they are tested by."""

SECONDS = 900
"""The time after which a mutant counts as killed."""

SWAPPED = {
    ast.Eq: ast.NotEq,
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.In: ast.NotIn,
    ast.Is: ast.IsNot,
    ast.And: ast.Or,
    ast.Add: ast.Sub,
    ast.Mult: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
}
SWAPPED |= {other: one for one, other in SWAPPED.items()}


def changes(tree: ast.Module) -> list[tuple[int, str]]:
    """Return the indices of nodes (in the order of `ast.walk`) with the changes that each may get."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        annotations = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        text = [node.body[0]] if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body else []
        docstrings = [item for item in text if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)]
        types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        words = [node] if types or isinstance(node, ast.JoinedStr) else []
        for part in [*annotations, *docstrings, *words, *getattr(node, "decorator_list", [])]:
            skipped.update(id(inner) for inner in ast.walk(part)) if part is not None else None
    indices = []
    for at, node in enumerate(ast.walk(tree)):
        if id(node) not in skipped:
            indices += [(at, kind) for kind in kinds(node)]
    return indices


def kinds(node: ast.AST) -> list[str]:
    """Return the changes that a node may get."""
    match node:
        case ast.Compare(ops=[op]) | ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in SWAPPED:
            return ["operator"]
        case ast.If() | ast.IfExp() | ast.While():
            return ["condition"]
        case ast.Constant(value=bool() | int() | str()):
            return ["constant"]
        case ast.Return(value=ast.expr()):
            return ["result"]
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            return ["statement"]
    return []


def mutate(tree: ast.Module, at: int, kind: str) -> tuple[ast.Module, int]:
    """Return a copy of a module with one change, and the line of the change."""
    tree = copy.deepcopy(tree)
    node = [*ast.walk(tree)][at]
    if kind == "operator" and isinstance(node, ast.Compare):
        node.ops = [SWAPPED[type(node.ops[0])]()]
    elif kind == "operator":
        node.op = SWAPPED[type(node.op)]()
    elif kind == "condition":
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif kind == "constant":
        value = node.value
        node.value = not value if isinstance(value, bool) else f"{value}_" if isinstance(value, str) else value + 1
    elif kind == "result":
        node.value = ast.Constant(None)
    else:
        parent = next(other for other in ast.walk(tree) for body in bodies(other) if node in body)
        for body in bodies(parent):
            if node in body:
                body[body.index(node)] = ast.copy_location(ast.Pass(), node)
    return ast.fix_missing_locations(tree), node.lineno


def bodies(node: ast.AST) -> list[list[ast.stmt]]:
    """Return the lists of statements of a node."""
    found = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
    return [body for body in found if isinstance(body, list)]


class Killer:
    """Record the first test that fails, as a plug-in of pytest."""

    name = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid or "collection"


class Collected:
    """Record the names of the tests, as a plug-in of pytest."""

    names: frozenset[str] = frozenset()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.names = frozenset(item.nodeid for item in session.items)


def forked(work) -> str:
    """Run a function in a child process and return its text, or a note if the process is killed."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(read)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        signal.alarm(SECONDS)
        os.write(write, work().encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        text = file.read().decode()
    _, status = os.waitpid(pid, 0)
    return text if os.waitstatus_to_exitcode(status) == 0 else "the process ended"


def tested(path: Path, tree: ast.Module | None, tests: list[str], *options: str) -> str:
    """Run tests with a module replaced; return the first that fails, or the names of all with `--collect-only`."""

    def work() -> str:
        loader = importlib.machinery.SourceFileLoader
        get_code = loader.get_code

        def replaced(self: importlib.machinery.SourceFileLoader, name: str) -> object:
            if tree is not None and Path(self.path).resolve() == path:
                return compile(tree, str(path), "exec")
            return get_code(self, name)

        loader.get_code = replaced
        killer, collected = Killer(), Collected()
        files = [f"tests/unit/test_{name}.py" for name in tests]
        pytest.main(["-x", "-q", "-p", "no:cacheprovider", *options, *files], plugins=[killer, collected])
        return "\n".join(collected.names) if "--collect-only" in options else killer.name

    return forked(work)


def code_digest(tree: ast.Module) -> str:
    """Return a digest of a module's code that comments and docstrings do not change."""
    tree = copy.deepcopy(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value.value = ""
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def run(module: str, number: int, seed: int, before: dict | None) -> dict:
    """Return the row of a module: its mutants, each with the test that kills it."""
    path, tests = ROOT / module, MODULES[module]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    killers: dict[tuple[int, str], str] = {}
    digest = code_digest(tree)
    if before is not None:
        if before.get("code_sha256") != digest:
            sys.exit(f"{module}: it was edited since `before`; run `before` again")
        there = set(tested(path, None, tests, "--collect-only").split("\n"))
        killers = {
            (mutant["node"], mutant["kind"]): mutant["killed_by"]
            for mutant in before["mutants"]
            if mutant["killed_by"] in there or (mutant["killed_by"] and "::" not in mutant["killed_by"])
        }
    elif failing := tested(path, None, tests):
        sys.exit(f"{module}: {failing} fails without any change")
    mutants = []
    for at, kind in sorted(random.Random(seed).sample(changes(tree), number)):
        mutant, line = mutate(tree, at, kind)
        killer = killers[at, kind] if (at, kind) in killers else tested(path, mutant, tests)
        mutants.append({"node": at, "kind": kind, "line": line, "killed_by": killer})
        print(f"{module}:{line}: {kind}: {killer or 'survives'}", flush=True)
    score = sum(bool(mutant["killed_by"]) for mutant in mutants)
    print(f"{module}: {score} of {number} are killed", flush=True)
    return {"code_sha256": digest, "tests": tests, "seed": seed, "killed": score, "mutants": mutants}


def main() -> None:
    """Run the modules of the command line, and write the row of each after its run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("state", choices=["before", "after"], help="the state of the tests, a key of the report")
    parser.add_argument("--module", action="append", choices=MODULES, help="these modules alone")
    parser.add_argument("--number", type=int, default=30, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="the report, JSON; other rows that it has are kept")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["AOTCUDA_EXTENSION"] = "0"  # the tests compile nothing; all launches take the general path
    for module in arguments.module or MODULES:
        report = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.is_file() else {}
        states = report.setdefault(module, {})
        before = states["before"] if arguments.state == "after" else None
        states[arguments.state] = run(module, arguments.number, arguments.seed, before)
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
