#!/usr/bin/env python3
"""Make small faults in the modules of aotcuda, and count those that the unit tests find.

    python tools/mutate.py                                # the next twenty modules
    python tools/mutate.py aotcuda/arch.py                # these modules
    python tools/mutate.py --coverage /tmp/c --next 5     # with the tests of an earlier run, if there was one
    python tools/mutate.py --jobs 8 --next 400            # all modules, eight at once

A mutant is a module with one change: a comparison, a constant, a condition, an operator, a result or a statement. Ten
mutants of each module are drawn by a seed. The unit tests run once under coverage.py, which records the lines that each
test executes. A mutant is tested by tests that execute its line. The results are in docs/results/mutations.json, with
a row for each module. The next modules are those without a row, then those with the oldest rows.

It needs the environment of the tests, and coverage.py: `python tools/test.py` makes `.venv-test`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import importlib.machinery
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "mutations.json"
MUTANTS = 10
FILES, OF_A_FUNCTION, TESTS = 8, 3, 60
"""The most files of tests for a mutant, those with the most tests of its line; tests of a function, and in all."""
SECONDS = 300
"""The time after which a run of tests ends; mutants have less, and then count as found."""
ENDED = "the process ended"
ENOUGH = 0.8
"""The part of the tests of a module that must pass without a mutant."""
PLUGINS = ("-p", "_hypothesis_pytestplugin", "-p", "no:cacheprovider", "--hypothesis-seed=0")

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


# Mutants.


def changes(tree: ast.Module) -> list[tuple[int, str]]:
    """Return the indices of nodes (in the order of `ast.walk`) with the change that each may get."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        annotations = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        texts = [node] if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else []
        for_types = isinstance(node, ast.If | ast.Assign) and "TYPE_CHECKING" in ast.dump(node).partition("body=")[0]
        words = [node] if for_types or isinstance(node, ast.JoinedStr) else []
        for part in [*annotations, *texts, *words, *getattr(node, "decorator_list", [])]:
            skipped.update(id(inner) for inner in ast.walk(part)) if part is not None else None
    return [(at, kind) for at, node in enumerate(ast.walk(tree)) if id(node) not in skipped and (kind := kind_of(node))]


def kind_of(node: ast.AST) -> str:
    """Return the change that a node may get; empty for none."""
    match node:
        case ast.Compare(ops=[op]) | ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in SWAPPED:
            return "operator"
        case ast.If() | ast.IfExp() | ast.While():
            return "condition"
        case ast.Constant(value=bool() | int() | str()):
            return "constant"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            return "result"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            return "statement"
    return ""


def mutate(tree: ast.Module, at: int, kind: str) -> tuple[ast.Module, range]:
    """Return a copy of a module with one change, and the lines of the change."""
    tree = copy.deepcopy(tree)
    node: Any = [*ast.walk(tree)][at]
    place = node.test if kind == "condition" else node
    lines = range(place.lineno, place.end_lineno + 1)
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
        (body,) = (body for other in ast.walk(tree) for body in bodies(other) if any(node is each for each in body))
        body[body.index(node)] = ast.copy_location(ast.Pass(), node)
    return ast.fix_missing_locations(tree), lines


def bodies(node: ast.AST) -> list[list[ast.stmt]]:
    """Return the lists of statements of a node."""
    found = [getattr(node, name, None) for name in ("body", "orelse", "finalbody")]
    return [body for body in found if isinstance(body, list)]


# The tests of a line.


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record the lines of aotcuda that a test executes, in a process of `measure`; this file is its plug-in."""
    import coverage  # noqa: PLC0415 (the environment may lack it)

    found = coverage.Coverage.current()
    if found is None:
        data = os.environ["AOTCUDA_MUTATE"]
        found = coverage.Coverage(data, data_suffix=True, source=[str(ROOT / "aotcuda")], config_file=False)
        found.set_option("run:relative_files", value=True)
        found.start()
        item.config.add_cleanup(lambda: (found.stop(), found.save()))
    found.switch_context(item.nodeid)
    result = yield
    found.switch_context("")
    return result


def measure(path: Path, tests: list[str]) -> None:
    """Run the unit tests under coverage.py, and write its data with a context for each test."""
    import coverage  # noqa: PLC0415 (the environment may lack it)

    environment = {**os.environ, "AOTCUDA_MUTATE": str(path), "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "pytest", "-q", *PLUGINS, "-p", "xdist", "-p", "mutate", "-n", "auto"]
    # A test that fails under coverage.py is not among the tests of a mutant either.
    subprocess.run([*command, "--dist", "loadfile", *tests], cwd=ROOT, env=environment, check=False)
    together = coverage.Coverage(str(path), config_file=False)
    together.set_option("run:relative_files", value=True)
    together.combine([str(each) for each in path.parent.glob(f"{path.name}.*")])
    together.save()


class Executed:
    """The tests that execute each line, as `measure` has recorded them."""

    def __init__(self, path: Path) -> None:
        from coverage import CoverageData  # noqa: PLC0415 (the environment may lack it)

        self._data = CoverageData(str(path))
        self._data.read()

    def tests(self, module: str) -> dict[int, set[str]]:
        """Return the tests that execute each line of a module."""
        return {line: {*names} - {""} for line, names in self._data.contexts_by_lineno(module).items()}


def lines_of_functions(tree: ast.Module) -> set[int]:
    """Return the lines in bodies of functions; imports execute the others."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {line for node in functions for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)}


def nearest(executed: dict[int, set[str]], lines: range, in_function: bool) -> list[str]:
    """Return tests that execute these lines; of lines that imports execute, tests of the whole module."""
    of_lines = executed.values() if not in_function else [executed.get(line, set()) for line in lines]
    found = sorted(set[str]().union(*of_lines))
    files = {name for name, _ in Counter(test.partition("::")[0] for test in found).most_common(FILES)}
    functions: Counter[str] = Counter()
    chosen = []
    for test in random.Random(0).sample(found, len(found)):  # noqa: S311
        function = test.partition("[")[0]
        if test.partition("::")[0] in files and functions[function] < OF_A_FUNCTION:
            functions[function] += 1
            chosen.append(test)
    return sorted(chosen[:TESTS])


# Runs of tests with a mutant.


class Chosen:
    """Run chosen tests alone, and record those that do not pass, as a plug-in of pytest."""

    def __init__(self, tests: set[str]) -> None:
        self._tests = tests
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the other tests out, and record those that are missing."""
        self.failed += self._tests - {item.nodeid for item in items}
        items[:] = [item for item in items if item.nodeid in self._tests]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a test that fails or is skipped."""
        self.failed += [] if report.passed else [report.nodeid]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that cannot be imported."""
        self.failed += [] if report.passed else [report.nodeid or "collection"]


def failures(path: Path, tree: ast.Module | None, tests: list[str], *options: str, seconds: int = SECONDS) -> list[str]:
    """Run tests with a module replaced in a process of their own; return those that fail."""
    if not tests:
        return []

    def work() -> str:
        loader: Any = importlib.machinery.SourceFileLoader
        get_code = loader.get_code

        def replaced(self: importlib.machinery.SourceFileLoader, name: str) -> object:
            if tree is not None and Path(self.path).resolve() == path:
                return compile(tree, str(path), "exec")
            return get_code(self, name)

        loader.get_code = replaced
        chosen = Chosen({*tests})
        files = sorted({test.partition("::")[0] for test in tests})
        status = pytest.main(["-q", *PLUGINS, "--basetemp", folder, *options, *files], plugins=[chosen])
        return "\n".join(chosen.failed) or ("" if status in (0, 1) else ENDED)

    with tempfile.TemporaryDirectory(dir=os.environ["AOTCUDA_MUTATE"], ignore_cleanup_errors=True) as folder:
        return forked(work, seconds).splitlines()


def forked(work: Callable[[], str], seconds: int) -> str:
    """Run a function in a child process and return its text, or a note if the process is killed."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(read)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        signal.alarm(seconds)
        os.write(write, work().encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        text = file.read().decode(errors="replace")
    _, status = os.waitpid(pid, 0)
    return text if os.waitstatus_to_exitcode(status) == 0 else ENDED


def run(module: str, coverage: Path, seed: int) -> dict[str, Any] | str:
    """Return the row of a module, or a text if too few of its tests pass here."""
    path, executed = ROOT / module, Executed(coverage).tests(module)
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    sites = changes(tree)
    drawn = sorted(random.Random(f"{module} {seed}").sample(sites, min(MUTANTS, len(sites))))  # noqa: S311
    mutants = [(kind, *mutate(tree, at, kind)) for at, kind in drawn]
    inside = lines_of_functions(tree)
    tests = [nearest(executed, lines, lines[0] in inside) for _, _, lines in mutants]
    started = time.monotonic()
    together = {*(test for each in tests for test in each)}
    passing = together - not_passing(path, sorted(together))
    seconds = min(SECONDS, 10 + 2 * int(time.monotonic() - started))
    if len(passing) < ENOUGH * len(together):
        return f"{len(together) - len(passing)} of {len(together)} tests of {module} do not pass here: no row"
    survivors = []
    for (kind, mutant, lines), each in zip(mutants, tests, strict=True):
        found = failures(path, mutant, chosen := [test for test in each if test in passing], "-x", seconds=seconds)
        line = text.splitlines()[lines[0] - 1].strip()
        print(f"{module}:{lines[0]}: {kind}: {found[0] if found else 'survives'}", flush=True)
        survivors += [] if found else [{"line": lines[0], "change": kind, "code": line, "tests": len(chosen)}]
    reached = sum(map(bool, tests))
    row = {"module": module, "commit": commit(), "date": datetime.now(UTC).date().isoformat(), "seed": seed}
    return row | {
        "mutants": len(mutants),
        "reached": reached,
        "found": len(mutants) - len(survivors),
        "survivors": survivors,
    }


def not_passing(path: Path, tests: list[str]) -> set[str]:
    """Return the tests that do not pass without a mutant; if one ends the process, all of its file."""
    failed = {*failures(path, None, tests)}
    files = {test: test.partition("::")[0] for test in tests}
    if ENDED in failed:
        of_files = {file: [test for test in tests if files[test] == file] for file in {*files.values()}}
        alone = {file: {*failures(path, None, each)} for file, each in of_files.items()}
        failed = set[str]().union(*({file} if ENDED in found else found for file, found in alone.items()))
    return {test for test in tests if failed & {test, files[test]}}


def commit() -> str:
    """Return the commit of the checkout."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def modules() -> list[str]:
    """Return the modules that can have mutants, in the order of their names."""
    paths = sorted((ROOT / "aotcuda").rglob("*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if changes(ast.parse(path.read_text(encoding="utf-8")))]


def following(rows: list[dict[str, Any]], number: int) -> list[str]:
    """Return so many modules: first those without a row, then those with the oldest rows."""
    days = {row["module"]: row["date"] for row in rows}
    return sorted(modules(), key=lambda name: days.get(name, ""))[:number]


def dumped(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a result file: one for each module, and one for each survivor."""
    for row in rows:
        survivors = [json.dumps(each) for each in row["survivors"]]
        head = json.dumps({**row, "survivors": []})[:-2]
        yield head + ("\n  " + ",\n  ".join(survivors) if survivors else "") + "]}"


def main() -> None:
    """Run modules, and write the row of each after its run in place of its earlier row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="*", help="modules, in place of the next ones")
    parser.add_argument("--next", type=int, default=20, help="the number of modules (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="the number of modules at once (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="draw other mutants")
    parser.add_argument("--coverage", type=Path, help="the data of coverage.py; written if there is no such file")
    parser.add_argument("--tests", nargs="*", default=["tests/unit"], help="the tests of `--coverage`")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the JSON file (%(default)s)")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        data = (arguments.coverage or Path(folder, "coverage")).resolve()
        if not data.exists():
            measure(data, arguments.tests)
        # Runs share what the fixture `once` makes, the stand-in driver, as the processes of pytest-xdist do.
        os.environ.update(AOTCUDA_MUTATE=folder, PYTEST_XDIST_WORKER="mutate")
        for name in ("hypothesis", "numpy"):  # one import serves all mutants
            importlib.import_module(name)

        rows = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.is_file() else []
        names = arguments.module or following(rows, arguments.next)
        existing = {*modules()}
        with ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("fork")) as pool:
            for done in as_completed([pool.submit(run, name, data, arguments.seed) for name in names]):
                if isinstance(row := done.result(), str):
                    print(row, flush=True)
                    continue
                rows = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.is_file() else []
                kept = {each["module"]: each for each in [*rows, row] if each["module"] in existing}
                text = ",\n".join(dumped([kept[name] for name in sorted(kept)]))
                arguments.out.write_text(f"[\n{text}\n]\n", encoding="utf-8")
                print(f"{row['module']}: {row['found']} of {row['mutants']} found", flush=True)


if __name__ == "__main__":
    main()
