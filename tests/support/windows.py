"""List the tests that are skipped with Python for Windows; tests/conftest.py marks them."""

from __future__ import annotations

import pytest

SKIPPED = {
    "a process of Windows cannot fork": (
        "test_forked_child_finds_no_lock_held",
        "test_forked_child_of_process_with_cuda_names_remedies",
        "test_fork_after_another_library_started_cuda_is_error",
        "test_forked_child_leaves_its_parents_images_alone",
        "test_teardown_runs_once_at_exit_and_not_in_a_forked_child[1]",
        "test_first_use_allows_fork_before_first_launch",
    ),
    "editable installs are for builds, which run on Linux alone": (
        "test_modules_of_editable_installs_are_found_by_their_tables",
    ),
    "the stand-in for the disassembler is a script for a Unix shell": ("test_an_error_of_the_disassembler_is_shown",),
}


def mark(items: list[pytest.Item]) -> None:
    """Mark the collected tests that are skipped."""
    reasons = {name: reason for reason, names in SKIPPED.items() for name in names}
    for item in items:
        reason = reasons.get(item.name) or reasons.get(item.name.partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
