"""The worker's own parts that need no compiler."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest

from aotcuda.builder.worker import main


@pytest.mark.parametrize("failing", [False, True])
def test_garbage_is_looked_for_again_behind_the_compilers_start_and_not_in_it(*, failing: bool) -> None:
    before = gc.get_freeze_count()
    try:
        with suppress(KeyError), main._kept():
            assert not gc.isenabled()
            if failing:
                raise KeyError
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() > 0
    finally:
        gc.freeze()  # as all is that was there before the tests
