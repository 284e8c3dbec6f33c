"""Units that are compiled one after the other in one process, as long as they are nothing to each other."""

from __future__ import annotations

import faulthandler
import os
import signal
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.arch import parse
from aotcuda.builder.build_cache.compile_cache import CompileCache
from aotcuda.builder.worker import flows, pool, telemetry, unit_compiling
from aotcuda.errors import BuildError, CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aotcuda.arch import Target

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

TARGETS = [parse("sm_75"), parse("sm_90")]


@dataclass(frozen=True)
class Unit:
    """A kernel."""

    number: int
    batch: None = None

    @property
    def title(self) -> str:
        return f"k{self.number}"

    module = "pkg"

    @property
    def name(self) -> str:
        return f"k{self.number}"

    @property
    def symbol(self) -> str:
        return self.name

    @property
    def key(self) -> str:
        return f"kernels.k{self.number}"


class Front:
    """Makes of each unit the process that it was compiled in; `work` is handed its number."""

    def __init__(self, work: Callable[[int], object]) -> None:
        self.work = work
        self.fresh = True

    def compile_alike(self, unit: Unit, loaded: object, targets: Sequence[Target]) -> dict[Target, int]:
        del loaded
        if self.work(unit.number) == "leaves something":
            self.fresh = False
        return dict.fromkeys(targets, os.getpid())

    def is_fresh(self) -> bool:
        return self.fresh


def compiled(number: int, work: Callable[[int], object] = id) -> tuple[list[int], list[pool.Task]]:
    """Return the process of each of so many units, and the tasks as they ended."""
    units = [*map(Unit, range(number))]
    item = SimpleNamespace(units=units, compiled_for=lambda _: TARGETS)
    job = SimpleNamespace(jobs=2, plans=[item])
    ended: list[pool.Task] = []
    flow: Any = unit_compiling.compiling(job, Front(work), item, dict.fromkeys(units), TARGETS, CompileCache())  # type: ignore[arg-type]
    (found,) = flows.flow([flow], 2, ended.append)
    assert list(found) == [(unit, target) for unit in units for target in TARGETS]
    return [found[unit, TARGETS[0]] for unit in units], ended


@pytest.fixture(autouse=True)
def nothing_noted() -> Iterator[None]:
    telemetry.take()
    yield
    telemetry.take()


def test_units_share_processes_in_rows_that_grow_shorter() -> None:
    processes, ended = compiled(20)
    lengths = [processes.count(process) for process in dict.fromkeys(processes)]
    assert lengths == [5, 4, 3, 2, 2, 1, 1, 1, 1]
    assert sum(task.steps for task in ended) == 20
    assert sorted(title for title, *_ in telemetry.take().steps) == sorted(
        f"k{number} for sm_75, sm_90" for number in range(20)
    )


def test_unit_that_changes_state_is_the_last_of_its_process() -> None:
    processes, ended = compiled(12, lambda _: "leaves something")
    assert len(set(processes)) == 12
    assert sum(task.steps for task in ended) == 12


def warn(number: int) -> None:
    telemetry.add(telemetry.Telemetry(warnings=[f"of k{number}"]))


def test_unit_that_warns_is_the_last_of_its_process() -> None:
    processes, _ = compiled(12, warn)
    assert len(set(processes)) == 12
    assert sorted(telemetry.take().warnings) == sorted(f"of k{number}" for number in range(12))


def refuse(number: int) -> None:
    if number in (1, 2, 7):
        warn(number)
        message = f"k{number} is refused"
        raise CompileError(message)


def test_all_errors_are_told_as_if_each_unit_had_a_process() -> None:
    with pytest.raises(CompileError) as error:
        compiled(16, refuse)
    assert [line.strip(" -") for line in str(error.value).splitlines()] == [
        "k1 is refused",
        "k2 is refused",
        "k7 is refused",
    ]
    assert len(telemetry.take().warnings) == 3


def abort() -> None:
    faulthandler.disable()  # pytest's, which would print where
    os.abort()


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "kernels.k2: k2 for sm_75, sm_90: the compiler was killed"),
        (abort, r"kernels.k2: k2 for sm_75, sm_90: the compiler crashed \(SIGA"),
        (lambda: 1 // 0, "kernels.k2: k2 for sm_75, sm_90: ZeroDivisionError"),
    ],
)
def test_a_compiler_that_crashes_takes_its_own_unit_down(end: Callable[[], object], told: str) -> None:
    with pytest.raises(BuildError, match=told):
        compiled(16, lambda number: end() if number == 2 else None)
