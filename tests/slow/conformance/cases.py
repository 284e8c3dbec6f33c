"""All cases of the conformance suite, by their names."""

from __future__ import annotations

from slow.conformance import memory, numbers

CASES = {case.name: case for case in (*numbers.cases(), *memory.cases())}
