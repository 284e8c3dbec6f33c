"""Schedule the work of several modules in rounds of tasks, which `pool` runs in forked children."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aotcuda.builder import failures
from aotcuda.builder.compile import pool
from aotcuda.errors import AotcudaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aotcuda.arch import Target
    from aotcuda.builder.compile.pool import Child, Task


@dataclass(frozen=True, slots=True)
class Round:
    """Tasks of a flow that may run at the same time.

    Attributes:
        rank: The kind of work; a flow's later rounds have no lower ranks.
    """

    rank: int
    tasks: Sequence[Task]


COMPILE, SURVEY, MERGE, OBJECTS, LINK, PACK = range(6)
"""The ranks of a module's rounds."""

K = TypeVar("K")
T = TypeVar("T")
Flow = Generator[Round, list[Any], T]
"""Work in rounds, one after the other: a flow yields each round and receives its tasks' results, in their order."""


def run(tasks: Sequence[Task], jobs: int, done: Callable[[Task], None]) -> list[Any]:
    """Run all `tasks`, at most `jobs` at a time, and return their results in the order of the tasks.

    Raises:
        AotcudaError: A task raised it; errors of several tasks are joined.
        BuildError: A child died; the message names its task and the signal.
    """

    def single_round() -> Flow[list[Any]]:
        return (yield Round(0, tasks))

    (results,) = run_flows([single_round()], jobs, done)
    return results


def run_flows(flows: Iterable[Flow[T]], jobs: int, done: Callable[[Task], None]) -> list[T]:
    """Run several flows concurrently, at most `jobs` of their tasks at a time, and return their results.

    A flow waits only for its own round. Tasks of higher rank start first, because others wait for them. After a
    failure, no task of a higher rank starts, so the errors do not depend on the speed of tasks.

    Raises:
        AotcudaError: A task or a flow raised it. The errors of the lowest rank are joined.
        BuildError: A child died; the message names its task and the signal.
    """
    states = [_FlowState(number, item) for number, item in enumerate(flows)]
    running: list[tuple[Child, _FlowState[T]]] = []
    try:
        while True:
            for state in states:
                while state.can_advance() and state.level < _lowest_failure(states):
                    state.advance()
            while len(running) < jobs and (following := _next_flow(states)):
                running.append((pool.start(*following.waiting.pop()), following))
            if not running:
                break
            pool.wait_for([child for child, _ in running])
            for child, state in [(child, state) for child, state in running if child.outcome is not None]:
                running.remove((child, state))
                done(state.add_outcome(child.index, child.outcome))
    finally:
        for child, _ in running:  # an error was raised here; no child may continue
            child.end()
    failed = [failure for state in states for failure in state.failures]
    if failed:
        lowest = [failure for failure in failed if failure[0] == _lowest_failure(states)]
        raise failures.join([error for *_, error in sorted(lowest, key=lambda failure: failure[1:3])])
    return [value for state in states for value in state.returned]


def run_round(rank: int, tasks: Mapping[K, pool.Task]) -> Flow[dict[K, Any]]:
    """Run tasks as one round, and return their results by the tasks' keys."""
    return dict(zip(tasks, (yield Round(rank, list(tasks.values()))), strict=True))


def side_by_side(flows: Sequence[Flow[T]]) -> Flow[list[T]]:
    """Run several flows as one, and return their results; their rounds of the lowest rank run together."""
    waiting: dict[int, Round] = {}
    results: dict[int, T] = {}

    def advance(number: int, answers: list[Any]) -> None:
        try:
            waiting[number] = flows[number].send(answers) if number in waiting else next(flows[number])
        except StopIteration as end:
            waiting.pop(number, None)
            results[number] = end.value

    for number in range(len(flows)):
        advance(number, [])
    while waiting:
        rank = min(item.rank for item in waiting.values())
        lowest = {number: item for number, item in waiting.items() if item.rank == rank}
        answers = iter((yield Round(rank, [task for item in lowest.values() for task in item.tasks])))
        for number, item in lowest.items():
            advance(number, list(itertools.islice(answers, len(item.tasks))))
    return [results[number] for number in range(len(flows))]


def run_in_shares(rank: int, tasks: Sequence[tuple[Target, pool.Task]], processes: int) -> Flow[list[Any]]:
    """Run quick tasks for several targets in a few processes, because starting one takes as long as a task."""
    shares = [share for start in range(processes) if (share := tasks[start::processes])]
    if not shares:
        return []
    results: list[Any] = [None] * len(tasks)
    for start, of_share in enumerate((yield Round(rank, [_joint_task(share) for share in shares]))):
        results[start::processes] = of_share
    return results


def _joint_task(tasks: Sequence[tuple[Target, pool.Task]]) -> pool.Task:
    """Return a task that does several tasks, one after the other."""

    def run() -> list[Any]:
        results = []
        with failures.gather() as attempt:
            for _, task in tasks:
                with attempt():
                    results.append(task.run())
        return results

    (_, first), *others = tasks
    targets = dict.fromkeys(str(target) for target, _ in others)
    return pool.Task(", ".join([first.title, *targets]), run, steps=sum(task.steps for _, task in tasks))


@dataclass(slots=True)
class _FlowState(Generic[T]):
    """The state of a flow.

    Attributes:
        number: Its place among the flows.
        level: Twice the rank of its round's tasks; the flow's own work with their results is one level higher.
        tasks: The tasks of its round.
        waiting: The tasks that were not started, with their places in the round; the last one is started next.
        returned: The flow's result, if it has ended.
        failures: Level, number of the flow, place and error of each failure.
    """

    number: int
    flow: Flow[T]
    level: int = -2
    tasks: Sequence[Task] = ()
    waiting: list[tuple[int, Task]] = field(default_factory=list)
    returned: list[T] = field(default_factory=list)
    failures: list[tuple[int, int, int, AotcudaError]] = field(default_factory=list)
    _results: list[Any] = field(default_factory=list)
    _unfinished: int = 0

    def can_advance(self) -> bool:
        """Return True if all tasks of the round have succeeded, and the flow has not ended."""
        return not self._unfinished and not self.failures and not self.returned

    def advance(self) -> None:
        """Pass the round's results to the flow, and get its next round."""
        try:
            following = next(self.flow) if self.level < 0 else self.flow.send(self._results)
        except StopIteration as end:
            self.returned.append(end.value)
        except AotcudaError as error:
            self._fail(self.level + 1, 0, error)
        else:
            self.level, self.tasks = following.rank * 2, following.tasks
            self.waiting = list(enumerate(self.tasks))[::-1]
            self._results = [None] * len(self.tasks)
            self._unfinished = len(self.tasks)

    def add_outcome(self, place: int, outcome: tuple[Any] | AotcudaError | None) -> Task:
        """Add the outcome of a task; return the task with its true number of steps."""
        task = self.tasks[place]
        self._unfinished -= 1
        if isinstance(outcome, AotcudaError) and task.fallback is not None:
            outcome = task.fallback(outcome)
        if isinstance(outcome, tuple):
            self._results[place] = outcome[0]
            return replace(task, steps=task.count_steps(*outcome)) if task.count_steps is not None else task
        if outcome is not None:
            self._fail(self.level, place, outcome)
        return task

    def _fail(self, level: int, place: int, error: AotcudaError) -> None:
        self.failures.append((level, self.number, place, error))


_NEVER = 1 << 30


def _lowest_failure(states: Iterable[_FlowState[Any]]) -> int:
    """Return the lowest level of a failure; a very high number without failures."""
    return min((failure[0] for state in states for failure in state.failures), default=_NEVER)


def _next_flow(states: Sequence[_FlowState[T]]) -> _FlowState[T] | None:
    """Return the flow whose task starts next: the one with the highest level, the first of several."""
    limit = _lowest_failure(states)
    ready = [state for state in states if state.waiting and state.level <= limit]
    return max(ready, key=lambda state: (state.level, -state.number), default=None)
