"""Write the launches of a process: lines of JSON for new combinations, and counters in a mapped file.

The operating system has both as soon as they are written. So a process that is killed, that crashes on the GPU or that
ends by `os._exit` loses no count.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import sys
import threading
import traceback

import aotcuda_recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Facts = dict[str, object]

SLOTS = 4096
"""The number of counters in one file; a process that needs more begins another file."""


class _File:
    """One file of lines, with the counters that they number."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, f"{os.getpid()}-{os.urandom(6).hex()}")
        descriptor = os.open(f"{self._path}.counts", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # A full disk must be an error here, and not at a counter.
            allocate = getattr(os, "posix_fallocate", None)
            if allocate is None:
                os.ftruncate(descriptor, 8 * SLOTS)
            else:
                allocate(descriptor, 0, 8 * SLOTS)
            self.counts = memoryview(mmap.mmap(descriptor, 8 * SLOTS)).cast("Q")
        finally:
            os.close(descriptor)
        self.used = 0

    def write(self, facts: Facts) -> None:
        # The file is opened for each line, because a process that becomes a daemon closes all descriptors.
        line = json.dumps(facts, separators=(",", ":"), default=repr).encode() + b"\n"
        descriptor = os.open(f"{self._path}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


class Entry:
    """A function with one signature, whose launches are counted for each GPU.

    Attributes:
        facts: Facts that are known before the first launch.
    """

    __slots__ = ("_find_more", "_slots", "facts")

    def __init__(self, facts: Facts, find_more: Callable[[], Facts]) -> None:
        self.facts = facts
        self._find_more = find_more
        self._slots: dict[object, tuple[memoryview, int]] = {}

    def count(self, gpu: object, label: Callable[[], str]) -> None:
        """Count a launch on the GPU that `gpu` represents and `label` names."""
        with _state.lock:
            slot = self._slots.get(gpu)
            if slot is None:
                slot = self._slots[gpu] = _state.slot({**self.facts, **self._find_more(), "gpu": label()})
            counts, index = slot
            counts[index] += 1

    def reset(self) -> None:
        """Use new counters, in a process that was forked from the counting process."""
        self._slots.clear()


class _State:
    """The entries of this process, and its current file."""

    def __init__(self) -> None:
        self._folder = aotcuda_recorder.environ[aotcuda_recorder.FOLDER]
        self.reset()
        self._entries: dict[str, Entry] = {}
        self._written: set[str] = set()

    def reset(self) -> None:
        self.lock = threading.RLock()  # a launch in a finalizer acquires it again
        self._file: _File | None = None
        self._firsts: set[str] = set()

    def reset_after_fork(self) -> None:
        self.reset()
        for entry in self._entries.values():
            entry.reset()

    def slot(self, facts: Facts) -> tuple[memoryview, int]:
        """Write facts, and return their counter."""
        if self._file is None or self._file.used == SLOTS:
            self._file = _File(self._folder)
        file = self._file
        index = file.used
        file.used += 1  # first, because a finalizer may launch while the line is written
        file.write({"slot": index, **facts})
        return file.counts, index

    def entry(self, facts: Facts, find_more: Callable[[], Facts]) -> Entry:
        """Return the entry for `facts`, one for equal facts. `find_more` returns the facts of the first launch."""
        key = json.dumps(facts, default=repr)
        with self.lock:
            if key not in self._entries:
                self._entries[key] = Entry(facts, find_more)
            return self._entries[key]

    def write_once(self, facts: Facts) -> bool:
        """Write facts without a counter, once; return True if they are new."""
        key = json.dumps(facts, default=repr)
        with self.lock:
            if key in self._written:
                return False
            self._written.add(key)
            self.slot(facts)
            return True

    def write_first(self, facts: Facts) -> None:
        """Write the first facts of their kind in this process."""
        kind = str(facts["kind"])
        with self.lock:
            if kind not in self._firsts:
                self._firsts.add(kind)
                self.slot(facts)

    @contextlib.contextmanager
    def guard(self, fact: str) -> Iterator[None]:
        """Report an error in the block as `fact`. A failure to record must not stop the command."""
        try:
            yield
        except Exception:  # noqa: BLE001 (a kernel of any form)
            self._report(fact)

    def _report(self, fact: str) -> None:
        """Report that something could not be recorded, with the current exception."""
        with self.lock:
            if fact in self._firsts:
                return
            self._firsts.add(fact)
            print(f"aotcuda record: {fact}; the reason is in its report", file=sys.stderr)
            try:
                self.slot({"kind": "failure", "fact": fact, "traceback": traceback.format_exc()})
            except OSError as error:
                print(f"aotcuda record: process {os.getpid()} is not recorded: {error}", file=sys.stderr)


_state = _State()
os.register_at_fork(after_in_child=_state.reset_after_fork)
entry, write_once, write_first = _state.entry, _state.write_once, _state.write_first
guard = _state.guard
