"""Test the lines on kernels that images for some targets lack."""

from __future__ import annotations

from aotcuda.tools.left_out import left_out


def test_entries_of_a_kernel_and_target_are_one_line_with_the_first_reason():
    entries = [
        {"kernel": "k", "target": "sm_75", "reason": "no bf16"},
        {"kernel": "other", "target": "sm_75", "reason": "no clusters"},
        {"kernel": "k", "target": "sm_75", "reason": "no fp8"},
        {"kernel": "k", "target": "sm_80", "reason": "no fp8"},
        {"kernel": "k", "target": "sm_75", "reason": "no bf16"},
    ]
    assert [*map(str, left_out(entries))] == [
        "k for sm_75, 3 variants: no bf16",
        "other for sm_75: no clusters",
        "k for sm_80: no fp8",
    ]
    assert left_out([]) == ()
