"""Back ends without their start: processes that are forked from one that has imported what a build imports.

Starting Python and those imports are a third of a small build, and most tests of builds are about what becomes of them.
Tests about how builds run start Python: they name the command. What is forked is what the command would be once it has
imported what it needs, but for the seed of hashes, which the processes of one server share, and for variables that
libraries read as they are imported.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from integration import zygotes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TESTS = str(Path(__file__).parents[1])
_START = "import sys; sys.path.append(sys.argv.pop(1)); from integration import forked; forked.serve()"
_AT_START = ("PYTHON", "LC_", "LANG", "LD_")
"""What the names of variables begin with that are read when Python starts."""
_PATH = "PYTHONPATH"

_BY_ALL = ("aotcuda.builder.backend", "aotcuda.builder.worker.interrupt", "packaging.requirements", "zipfile")
_MODULES = {
    "-m": (
        *_BY_ALL,
        "hatchling.cli",
        "hatchling.builders.wheel",
        "hatchling.builders.plugin.hooks",
        "hatchling.metadata.core",
        "hatch_aotcuda.plugin",
        "scikit_build_core.hatch.plugin",  # where it is installed, hatchling imports it in every build
    ),
    "-c": (*_BY_ALL, "setuptools.build_meta", "setuptools.dist", "setuptools_aotcuda.commands"),
}
"""What is imported before, for modules that Python is to run and for code."""


class Workers:
    """The function that starts workers in place of Python (`zygotes.settle`)."""

    python = ""


def serves(environ: Mapping[str, str]) -> bool:
    """Return True if a process that is forked may be what one would be that starts with these variables."""
    return {**_read_at_start(environ), _PATH: ""} == {**_read_at_start(os.environ), _PATH: ""}


def run(folder: Path, command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str, str] | None:
    """Run `command`, a Python with `-m` or `-c`, in `folder`; its exit status, and what it writes.

    None where other modules would be found by PYTHONPATH than those that are there: Python has to be started.
    """
    place = next(place for place, word in enumerate(command) if word in _MODULES)
    server = _server((*command[:place], *command[place : place + 1]), tuple(sorted(_read_at_start(os.environ).items())))
    request = {
        "folder": str(folder),
        "arguments": command[place + 1 :],
        "environ": {**environ},
        "workers": Workers.python,
    }
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        status = server.ask(request, [out.fileno(), err.fileno()])
        if status is None:
            return None
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return status, *texts


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(_AT_START)}


class _Server:
    """The process that others are forked from; it ends with this one.

    It is no child of this one: tests may wait for any child there is.
    """

    def __init__(self, python: Sequence[str], kind: str) -> None:
        self._one_at_a_time = threading.Lock()
        self._socket, other = socket.socketpair()
        with other:
            command = [*python, "-c", _START, _TESTS, kind, str(other.fileno())]
            subprocess.run(command, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, check=True)
        atexit.register(self._socket.close)

    def ask(self, request: dict[str, Any], descriptors: list[int]) -> int | None:
        """Have a request answered, with what it writes going to `descriptors`; the exit status, if any."""
        with self._one_at_a_time:
            zygotes.send(self._socket, request, descriptors)
            return json.loads(self._socket.recv(16))


@functools.cache
def _server(command: tuple[str, ...], at_start: tuple[tuple[str, str], ...]) -> _Server:
    """Return the server for a command up to `-m` or `-c`, and for what it reads of its environment when it starts."""
    return _Server(command[:-1], command[-1])


def serve() -> None:
    """Answer requests until there are no more; the arguments are what Python is to run, and the socket's number."""
    kind, number = sys.argv[1:]
    if os.fork():
        os._exit(0)
    server = socket.socket(fileno=int(number))
    sys.path[:] = [path for path in sys.path if path not in ("", _TESTS)]
    for name in _MODULES[kind]:
        with suppress(ImportError):
            import_module(name)
    own = _searched(os.environ)
    rest = [path for path in sys.path if path not in own]
    taken = {name.partition(".")[0] for name in sys.modules}.union(zygotes.NEVER_BEFORE)
    while received := zygotes.receive(server, 2):
        request, (out, err) = received
        searched = _searched(request["environ"])
        if not {*own} <= {*searched} or any(zygotes.has(path, taken) for path in searched if path not in own):
            os.close(out)
            os.close(err)
            server.sendall(b"null")
            continue
        sys.path[:] = [*searched, *rest]
        if (pid := os.fork()) == 0:
            server.close()
            os.dup2(out, 1)
            os.dup2(err, 2)
            _python(kind, request)
        os.close(out)
        os.close(err)
        _, status = os.waitpid(pid, 0)
        server.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _searched(environ: Mapping[str, str]) -> list[str]:
    """Return the folders in which modules are searched before any others."""
    return [str(Path(path).absolute()) for path in environ.get(_PATH, "").split(os.pathsep) if path]


def _python(kind: str, request: dict[str, Any]) -> NoReturn:
    """Return what Python does when it has started."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.executable = request["workers"] or sys.executable
    what, *arguments = request["arguments"]

    def run() -> None:
        if kind == "-m":
            sys.path.insert(0, request["folder"])
            sys.argv = [what, *arguments]
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, "")
            sys.argv = ["-c", *arguments]
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})

    zygotes.ended(run)
