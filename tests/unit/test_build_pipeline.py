"""Quick steps for several targets, which share processes."""

from __future__ import annotations

import os
from functools import partial

import pytest

from aotcuda.arch import parse
from aotcuda.builder.worker import flows
from aotcuda.builder.worker.pool import Task
from aotcuda.errors import LinkError

TARGETS = [parse(name) for name in ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")]


def fail(text: str) -> None:
    raise LinkError(text)


def test_there_are_as_many_processes_as_may_run_and_results_keep_their_order() -> None:
    ended = []
    tasks = [
        (target, Task(f"m linked for {target}", lambda name=str(target): (name, os.getpid()))) for target in TARGETS
    ]
    (results,) = flows.flow([flows.shared(0, tasks, 2)], 2, ended.append)
    assert [name for name, _ in results] == [str(target) for target in TARGETS]
    assert len({process for _, process in results}) == 2
    assert {task.title: task.steps for task in ended} == {
        "m linked for sm_75, sm_90, sm_120": 3,
        "m linked for sm_80, sm_100": 2,
    }


def test_fewer_tasks_than_processes_have_one_each() -> None:
    assert flows.flow([flows.shared(0, [(TARGETS[0], Task("m packed for sm_75", int))], 16)], 16, id) == [[0]]
    assert flows.flow([flows.shared(0, [], 16)], 16, id) == [[]]


def test_each_of_those_that_share_a_process_says_what_is_wrong() -> None:
    tasks = [(target, Task(f"m linked for {target}", partial(fail, f"not for {target}"))) for target in TARGETS]
    with pytest.raises(LinkError) as error:
        flows.flow([flows.shared(0, tasks, 1)], 1, id)
    assert str(error.value).splitlines() == [f"not for {target}" for target in TARGETS]
