"""Test messages of a worker: what a build reads from a pipe with other bytes than a message."""

from __future__ import annotations

import multiprocessing
import os
import struct

import pytest

from aotcuda.builder.compile import ipc


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", EOFError),
        (struct.pack("!i", 8), EOFError),
        (struct.pack("!i", 8) + b"half", ValueError),
        (struct.pack("!i", 4) + b"junk", ValueError),
        (struct.pack("!i", -2), ValueError),
    ],
    ids=["ended", "no content", "half a message", "no pickle", "no length"],
)
def test_other_bytes_than_a_message_are_one_error(data, error):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with receiver:
        with sender:
            os.write(sender.fileno(), data)
        with pytest.raises(error):
            ipc.read(receiver)


def test_messages_are_read_in_their_order():
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with receiver, sender:
        for each in ("a", ("b", 1)):
            sender.send(each)
        assert [ipc.read(receiver), ipc.read(receiver)] == ["a", ("b", 1)]
