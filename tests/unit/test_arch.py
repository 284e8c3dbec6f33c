"""Check targets, and the rules by which their code runs on a GPU."""

from __future__ import annotations

import itertools
import pickle

import pytest

from aotcuda import arch
from aotcuda.gpus import CAPABILITIES


@pytest.mark.parametrize("text", ["sm_75", "sm_90a", "sm_100f", "compute_80", "compute_90a", "sm_120"])
def test_a_target_prints_as_it_was_written(text):
    assert str(arch.parse(text)) == text


@pytest.mark.parametrize("text", ["sm90", "sm_", "sm_9", "sm_1234", "compute_9x", "lto_90", "sm_9o", "sm_٩٠", "sm_a"])
def test_unknown_target_is_refused_with_the_right_form(text):
    with pytest.raises(ValueError, match="write sm_XY for machine code or compute_XY for PTX"):
        arch.parse(text)


@pytest.mark.parametrize(
    ("target", "runs", "does_not_run"),
    [
        ("sm_80", [(8, 0), (8, 6), (8, 9)], [(7, 5), (8, 7), (8, 8), (9, 0)]),
        ("sm_86", [(8, 6), (8, 9)], [(8, 0), (8, 7)]),
        ("sm_87", [(8, 7)], [(8, 6), (8, 8), (8, 9)]),
        ("sm_110", [(11, 0)], [(11, 1), (12, 0)]),
        ("sm_100", [(10, 0), (10, 3), (10, 7)], [(10, 1), (11, 0)]),
        ("sm_120", [(12, 0), (12, 1)], [(10, 0)]),
        ("sm_90a", [(9, 0)], [(9, 1), (10, 0)]),
        ("sm_100f", [(10, 0), (10, 3), (10, 7)], [(10, 1), (10, 9), (11, 0), (9, 0)]),
        ("sm_103f", [(10, 3), (10, 7)], [(10, 0)]),
        ("sm_121f", [(12, 1)], [(12, 0)]),
        ("compute_75", [(7, 5), (8, 0), (8, 7), (11, 0), (12, 0)], [(7, 0)]),
        ("compute_87", [(8, 7), (8, 9), (9, 0)], [(8, 6)]),
        ("compute_90a", [(9, 0)], [(10, 0)]),
        ("compute_100f", [(10, 3), (10, 7)], [(11, 0), (12, 0)]),
        ("compute_120f", [(12, 0), (12, 1)], [(10, 0)]),
    ],
)
def test_where_a_target_runs(target, runs, does_not_run):
    parsed = arch.parse(target)
    assert [capability for capability in runs + does_not_run if parsed.runs_on(capability)] == runs


def test_suffixes_and_tegra_only_restrict_where_code_runs():
    numbers = [row.number for row in CAPABILITIES]
    for number, capability, suffix in itertools.product(numbers, numbers, ("", "a", "f")):
        if arch.Target("sass", *number, suffix).runs_on(capability):
            assert number[0] == capability[0]
            assert number <= capability
            assert arch.Target("sass", *number).runs_on(capability)
            assert arch.Target("ptx", *number, suffix).runs_on(capability)


@pytest.mark.parametrize(
    ("capability", "targets", "preferred"),
    [
        (
            (8, 9),
            "compute_75 sm_80 compute_80 sm_86 sm_89 sm_90",
            "sm_89 sm_86 sm_80 compute_80 compute_75",
        ),
        ((8, 7), "sm_80 sm_86 compute_75 compute_80", "compute_80 compute_75"),  # Tegra
        ((10, 0), "sm_100 sm_100f sm_100a", "sm_100a sm_100f sm_100"),
    ],
)
def test_exact_sass_is_preferred_to_near_sass_and_ptx(capability, targets, preferred):
    fitting = {text: key for text in targets.split() if (key := arch.preference(arch.parse(text), capability))}
    assert sorted(fitting, key=fitting.__getitem__) == preferred.split()


def test_a_target_cannot_be_changed_and_survives_pickling():
    target = arch.parse("sm_90a")
    with pytest.raises(AttributeError):
        target.major = 8
    assert pickle.loads(pickle.dumps(target)) == target
    assert len({target, arch.parse("sm_90a")}) == 1
