"""Skip tests whose optional modules are not installed, and count skips; `skips.toml` has the modules and the reasons.

A plug-in of pytest. With `--environment NAME` a run fails if a module is missing that the environment should have, or
if a file skips more tests than `skips.toml` explains.
"""

from __future__ import annotations

import importlib.util
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

TABLE = Path(__file__).with_name("skips.toml")


@cache
def table() -> dict[str, Any]:
    """Return the content of `skips.toml`."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


@cache
def is_installed(module: str) -> bool:
    """Return True if a module of the table can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of its package
        return False


def missing(names: Mapping[str, str]) -> list[str]:
    """Return the modules among `names` that are not installed."""
    return [name for name in names if not is_installed(name)]


def reason(error: BaseException | None) -> str | None:
    """Return the text of a skip if an error comes from an optional module that is not installed, else None."""
    for each in _chain(error):
        if isinstance(each, ModuleNotFoundError) and each.name:
            for name, source in table()["modules"].items():
                if f"{each.name}.".startswith(f"{name}.") and not is_installed(name):
                    return f"{name} is not installed ({source})"
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and the errors that it was raised from or after."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _skip(report: pytest.CollectReport | pytest.TestReport, path: Path, call: pytest.CallInfo[Any] | None) -> None:
    text = reason(call.excinfo.value) if report.failed and call is not None and call.excinfo is not None else None
    if text is not None:
        report.outcome = "skipped"
        report.longrepr = (str(path), 1, f"Skipped: {text}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, Any]:
    """Skip a file that imports a module that is not installed."""
    report = yield
    _skip(report, collector.path, getattr(report, "call", None))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that imports a module that is not installed."""
    report = yield
    _skip(report, item.path, call)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose marker `needs` names a module that is not installed."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if not is_installed(name):
                pytest.skip(f"{name} is not installed ({table()['modules'][name]})")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--environment`."""
    text = "fail if a module is missing that this environment of tests/skips.toml has, or if more tests are skipped"
    parser.addoption("--environment", choices=table()["environments"], help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an environment that lacks modules, and begin to count.

    Raises:
        pytest.UsageError: A module is missing.
    """
    name = config.getoption("--environment")
    if name is None or hasattr(config, "workerinput"):  # the processes of pytest-xdist report to one that counts
        return
    environment = table()["environments"][name]
    if lacking := missing(dict.fromkeys(environment["modules"], "")):
        message = f"the environment {name} lacks {', '.join(lacking)}; install its extras again (tests/skips.toml)"
        raise pytest.UsageError(message)
    config.pluginmanager.register(Count(name, environment["skips"]), "aotcuda-skips")


class Count:
    """Count the skipped tests of each file.

    Attributes:
        skipped: Their numbers. A file that is skipped as a whole counts as one.
    """

    def __init__(self, name: str, explained: Mapping[str, Mapping[str, Any]]) -> None:
        self.name = name
        self._explained = explained
        self.skipped: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped[report.nodeid.partition("::")[0]] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a file."""
        if report.skipped:
            self.skipped[report.nodeid.partition("::")[0]] += 1

    def problems(self) -> list[str]:
        """Return a line for each file that skips more tests than its entries explain."""
        lines = []
        for file, number in sorted(self.skipped.items()):
            most = sum(entry["most"] for name, entry in self._explained.items() if PurePosixPath(file).match(name))
            if number > most:
                lines.append(f"{file}: {number} skipped, and tests/skips.toml explains {most} in {self.name}")
        return lines

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail the run if skips are not explained."""
        if self.problems() and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the problems."""
        for line in self.problems():
            terminalreporter.write_line(f"ERROR {line}", red=True)
