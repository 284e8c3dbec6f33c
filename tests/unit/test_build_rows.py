"""Compile units in shared processes without changing each other's results."""

from __future__ import annotations

import faulthandler
import os
import signal
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.arch import parse
from aotcuda.builder.compile import captured, flows, pool, telemetry, unit_compiling
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
    module: str = "pkg"
    alike: bool = True
    recorded: bool = False
    optional: bool = False

    @property
    def name(self) -> str:
        return f"k{self.number}"

    @property
    def key(self) -> str:
        return f"kernels.{self.name}"

    title = symbol = identifier = name


class Front:
    """Compile each unit to the number of its process, after a call of `work` with the unit's number."""

    def __init__(self, work: Callable[[int], object]) -> None:
        self.work = work
        self.fresh = True

    def compile_unit(self, unit: Unit, loaded: object, targets: Sequence[Target]) -> dict[Target, int]:
        del loaded
        if self.work(unit.number) == "leaves something":
            self.fresh = False
        return dict.fromkeys(targets, os.getpid())

    def is_fresh(self) -> bool:
        return self.fresh


def compile_units(
    number: int, work: Callable[[int], object] = id, **attributes: bool
) -> tuple[list[Any], list[pool.Task]]:
    """Compile units; return the process of each unit, and the tasks in the order in which they end."""
    units = [Unit(at, **attributes) for at in range(number)]
    item = SimpleNamespace(units=units, compiled_for=lambda _: TARGETS)
    job = SimpleNamespace(jobs=2, plans=[item])
    ended: list[pool.Task] = []
    flow: Any = unit_compiling.compile_units(job, Front(work), item, dict.fromkeys(units), TARGETS)  # type: ignore[arg-type]
    (processes,) = flows.run_flows([flow], 2, ended.append)
    assert list(processes) == [(unit, target) for unit in units for target in TARGETS]
    return [processes[unit, TARGETS[0]] for unit in units], ended


@pytest.fixture(autouse=True)
def no_telemetry() -> Iterator[None]:
    telemetry.take()
    yield
    telemetry.take()


def test_units_share_processes() -> None:
    processes, ended = compile_units(20)
    assert len(set(processes)) < 12
    assert sum(task.steps for task in ended) == 20 * len(TARGETS)


def test_slow_units_do_not_share_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_compiling, "_LONGEST", 0)
    processes, ended = compile_units(20)
    assert len(set(processes)) == 20
    assert sum(task.steps for task in ended) == 20 * len(TARGETS)


def warn(number: int) -> None:
    telemetry.add(telemetry.Telemetry(warnings=[f"of k{number}"]))


@pytest.mark.parametrize("work", [warn, lambda _: "leaves something"])
def test_unit_that_changes_state_is_the_last_of_its_process(work: Callable[[int], object]) -> None:
    processes, _ = compile_units(12, work)
    assert len(set(processes)) == 12
    assert sorted(telemetry.take().warnings) == sorted(f"of k{number}" for number in range(12 if work is warn else 0))


def refuse(number: int) -> None:
    if number in (1, 2, 7):
        warn(number)
        message = f"k{number} is refused"
        raise CompileError(message)


def test_errors_are_those_of_a_process_for_each_unit() -> None:
    with pytest.raises(CompileError) as error:
        compile_units(16, refuse)
    assert [line.strip(" -") for line in str(error.value).splitlines()] == [
        "k1 is refused",
        "k2 is refused",
        "k7 is refused",
    ]
    assert len(telemetry.take().warnings) == 3


def crash_with(signal_number: int, text: str = "") -> Callable[[int], object]:
    """Return a function that ends its process for the third unit."""

    def work(number: int) -> None:
        if number == 2:
            faulthandler.disable()  # the test runner's
            with captured.capturing():
                os.write(2, text.encode())
                os.kill(os.getpid(), signal_number)

    return work


@pytest.mark.parametrize(
    ("signal_number", "text", "attribute", "message"),
    [
        (signal.SIGKILL, "", "recorded", "was killed"),
        (signal.SIGABRT, "LLVM ERROR: out of memory\n", "recorded", "had no more memory"),
        (
            signal.SIGABRT,
            "terminate called after 'std::bad_alloc'\n",
            "optional",
            "had no more",
        ),
        (signal.SIGABRT, "Assertion failed\n", "alike", "crashed"),
        (signal.SIGSEGV, "", "alike", "crashed"),
    ],
)
def test_crash_of_a_compiler_names_its_unit(signal_number: int, text: str, attribute: str, message: str) -> None:
    with pytest.raises(BuildError, match=f"^kernels.k2: k2 for sm_75, sm_90: the compiler {message}"):
        compile_units(16, crash_with(signal_number, text), **{attribute: True})


@pytest.mark.parametrize("attribute", ["recorded", "optional"])
@pytest.mark.parametrize("signal_number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE])
def test_targets_lack_variants_that_crash_the_compiler(attribute: str, signal_number: int) -> None:
    results, _ = compile_units(16, crash_with(signal_number, "Assertion failed\n"), **{attribute: True})
    (left_out,) = [result for result in results if not isinstance(result, int)]
    assert results.index(left_out) == 2
    assert left_out.reason.startswith(f"the compiler crashed ({signal_number.name}: Assertion failed)")
    assert str(left_out.error) == f"kernels.k2: k2 for sm_75, sm_90: {left_out.reason}"
