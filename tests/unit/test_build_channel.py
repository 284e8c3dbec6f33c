"""The worker's messages: what the worker sent arrives, and nothing else is taken for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotcuda.builder.worker import channel

TOKEN = "5eed" * 8
SENT = [{"step": "one", "done": 0, "total": 2}, {"step": 'with "quotes"\nand lines'}, {"finished": "0" * 64}]
LINES = [f"{TOKEN} {json.dumps(message)}\n".encode() for message in SENT]


def received(data: bytes) -> list[dict[str, object]]:
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    with os.fdopen(reading, "rb"):
        return list(channel.receive(reading, TOKEN))


def test_what_is_sent_arrives() -> None:
    reading, writing = os.pipe()
    tell = channel.Sender(writing, TOKEN)
    for message in SENT:
        tell(**message)
    os.close(writing)
    with os.fdopen(reading, "rb"):
        assert list(channel.receive(reading, TOKEN)) == SENT


def test_nothing_is_no_message() -> None:
    assert received(b"") == []


@given(st.binary(min_size=1, max_size=40), st.integers(0, len(LINES)))
def test_foreign_bytes_between_messages_are_noticed(data: bytes, where: int) -> None:
    if data == TOKEN[: len(data)].encode():
        return
    with pytest.raises(channel.ForeignBytesError):
        received(b"".join([*LINES[:where], data, b"\n", *LINES[where:]]))


@given(st.binary(min_size=1, max_size=40), st.integers(1, len(LINES[0]) - 2))
def test_foreign_bytes_within_a_message_never_make_another(data: bytes, where: int) -> None:
    try:
        found = received(LINES[0][:where] + data + LINES[0][where:])
    except channel.ForeignBytesError:
        return
    assert len(found) == 1  # bytes inside of a string of the message


def test_a_message_that_breaks_off_is_none() -> None:
    assert received(LINES[0] + LINES[1][:-1]) == SENT[:1]


FORGED = [
    b'{"error": "BuildError", "message": "mine"}\n',
    b'\n{"finished": ""}\n',
    TOKEN[:-1].encode() + b'f {"finished": ""}\n',
    TOKEN.encode() + b" no json\n",
    TOKEN.encode() + b" \xff\xfe\n",
]


@pytest.mark.parametrize("data", FORGED)
def test_a_line_that_looks_like_a_message_is_none(data: bytes) -> None:
    with pytest.raises(channel.ForeignBytesError):
        received(data)


def status_of(code: str) -> int:
    """How a process ends that has a Sender called `tell` on the descriptor `pipe`, and runs `code`."""
    start = "import os; from aotcuda.builder.worker import channel; _, pipe = os.pipe(); "
    start += f"tell = channel.Sender(pipe, {TOKEN!r});"
    return subprocess.run([sys.executable, "-c", start + code], check=False, timeout=60).returncode


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("os.close(pipe)", id="closed"),
        pytest.param("os.dup2(os.open('/dev/null', os.O_WRONLY), pipe)", id="another file"),
        pytest.param("os.dup2(os.pipe()[1], pipe)", id="another pipe"),
        pytest.param("os.close(_)", id="nobody reads"),
    ],
)
def test_a_sender_whose_descriptor_is_lost_ends_its_process(code: str) -> None:
    assert status_of(f"{code}; tell(step='one')") == channel.LOST


def test_one_that_has_no_room_says_so() -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (99, 99)); file = os.memfd_create('result'); "
    assert status_of(f"{code}channel.Owned(file).write(bytes(99))") == 0
    assert status_of(f"{code}channel.Owned(file).write(bytes(100))") == channel.FULL


def test_a_copy_of_the_sender_in_a_forked_process_sends_nothing_and_ends() -> None:
    code = "\nif os.fork() == 0: tell(step='two'); os._exit(9)\nassert os.wait()[1] == 0\nos.close(pipe)"
    assert status_of(f"{code}\nassert os.read(_, 99) == b''") == 0


@pytest.mark.parametrize("order", [(7, 8), (3, 4), (4, 3), (3, 9), (9, 3), (4, 8)])
def test_descriptors_settle_at_their_numbers_from_wherever_they_were(order: tuple[int, int]) -> None:
    code = f"""
import os
from aotcuda.builder.worker import channel
reading, writing = (os.dup2(number, 30 + place) for place, number in enumerate(os.pipe()))
result = os.dup2(os.memfd_create("result"), 32)
os.closerange(3, 30)
messages, file = os.dup2(writing, {order[0]}), os.dup2(result, {order[1]})
os.closerange(31, 40)
assert channel.settle(messages, file) == (3, 4)
os.write(3, b"m")
assert os.read(reading, 9) == b"m"
os.ftruncate(4, 5)
assert not os.get_inheritable(3) and not os.get_inheritable(4)
for number in range(5, 30):
    try:
        os.fstat(number)
    except OSError:
        continue
    raise AssertionError(number)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
