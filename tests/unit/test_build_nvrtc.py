"""What NVRTC is given to write into."""

from __future__ import annotations

import pytest

from aotcuda.builder.link import nvrtc


@pytest.mark.parametrize("size", [0, 1, 2, 100])
def test_nvrtc_never_writes_into_an_object_that_others_have(size):
    room = nvrtc._room(size)
    assert len(room) >= size
    assert room is not nvrtc._room(size)  # of an empty one, and of each single byte, Python has one object
