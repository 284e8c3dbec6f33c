"""Test that each process of a parallel test run gives the tests the same IDs, as pytest-xdist requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def test_ids_contain_no_binary_data(request: pytest.FixtureRequest) -> None:
    cases = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    binary = [case for case in cases if any(isinstance(value, bytes) for value in case.params.values())]
    assert not [case.id for case in binary if "\\x" in case.id]
