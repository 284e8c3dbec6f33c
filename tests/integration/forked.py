"""Run the processes of a build as forks of servers, which have imported a back end or a compiler before.

The start of Python and these imports take more than half of a small build. `run` runs a back end's command. The program
that `install` writes starts a worker; it stands in for Python. Both send a server the arguments, the environment, the
working folder and the open files of the process that they want. The server forks the process and returns its status.

A server declines if the process could find other modules on its path than the server has imported; then Python is
started. Tests of how builds start use `projects.run` and name a command. A server ends with the session of tests, or
after two minutes without requests.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, NoReturn

_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "NUMBA_", "CUDA_", "NVIDIA_", "OMP_", "OPENBLAS_", "HOME", "XDG_")
"""Prefixes of the variables that Python or a compiler reads before it knows its project."""

_IDLE = 120
"""Seconds without a request after which a server ends."""

_SEARCHED_FIRST = {"nvidia", "sitecustomize", "usercustomize"}
"""Modules that a process looks for on its own path before it imports a compiler."""

_BY_ALL = ("aotcuda.builder.backend", "aotcuda.builder.worker.interrupt", "packaging.requirements", "zipfile")
_BACK_ENDS = {
    "-m": (
        *_BY_ALL,
        "hatchling.cli",
        "hatchling.builders.wheel",
        "hatchling.builders.plugin.hooks",
        "hatchling.metadata.core",
        "hatch_aotcuda.plugin",
        "scikit_build_core.hatch.plugin",  # hatchling imports it wherever it is installed
    ),
    "-c": (*_BY_ALL, "setuptools.build_meta", "setuptools.dist", "setuptools_aotcuda.commands"),
}
"""The imports of a server, by the option of the commands that it runs."""

_SERVE = """
import sys
_names = {"__name__": "forked", "__file__": sys.argv.pop(1)}
with open(_names["__file__"]) as _file:
    exec(compile(_file.read(), _names["__file__"], "exec"), _names)
_names["_serve"](*sys.argv[1:])
"""


class Session:
    """The session of tests: the folder of the servers, its process, and the program that starts workers."""

    folder = ""
    owner = 0
    python = ""


def install(folder: Path, owner: int) -> None:
    """Have `folder` contain the sockets of servers, which end with the process `owner`."""
    from aotcuda import registry
    from aotcuda.builder.worker import process

    kinds = {
        registry.requirement(name, jit=jit): name
        for name, registered in registry.BUILT_IN.items()
        for jit in (False, True)
        if registered.package
    }
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    arguments = (str(folder), owner, sys.executable, process._START, kinds)
    text = f"#!{sys.executable} -IS\nimport runpy\nrunpy.run_path({__file__!r})['_start_worker'](*{arguments!r})\n"
    own = folder / f"{os.getpid()}.tmp"
    own.write_text(text)
    own.chmod(0o700)
    own.replace(folder / "python")  # another process of the session may do the same now
    Session.folder, Session.owner, Session.python = str(folder), owner, str(folder / "python")


def run(folder: Path, command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str, str] | None:
    """Run `command`, a Python with `-m` or `-c`, in `folder`; return its exit status and what it writes.

    Returns None if Python has to be started.
    """
    import tempfile

    place = next(place for place, word in enumerate(command) if word in _BACK_ENDS)
    request = {"folder": str(folder), "arguments": command[place + 1 :], "environ": {**environ}, "path": []}
    of_server = {**environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    with open(os.devnull, "rb") as none, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        connection = _connection(Session.folder, Session.owner, command[:place], command[place], of_server)
        with connection:
            _send(connection, request, [none.fileno(), out.fileno(), err.fileno()])
            if not int.from_bytes(connection.recv(8), "big"):
                return None
            status = int.from_bytes(connection.recv(8), "big", signed=True)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return status, *texts


def _start_worker(folder: str, owner: int, python: str, start: str, kinds: dict[str, str]) -> NoReturn:
    """Be the process that the arguments of Python name: for a worker the stand-in of a fork, else Python."""
    arguments = sys.argv[1:]
    if arguments[:3] == ["-P", "-c", start] and arguments[6] in kinds:
        (path, _), messages = json.loads(arguments[3]), int(arguments[5])
        request = {"arguments": arguments[6], "path": path, "environ": {**os.environ}, "folder": os.getcwd()}
        of_server = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        connection = _connection(folder, owner, [python, "-P"], kinds[arguments[6]], of_server)
        descriptors = [0, 1, 2, messages]
        _send(connection, request, descriptors)
        if int.from_bytes(connection.recv(8), "big"):
            for descriptor in descriptors:
                os.close(descriptor)  # their readers see the end when the worker has ended
            status = int.from_bytes(connection.recv(8), "big", signed=True)
            if status < 0:
                with suppress(OSError):  # some signals have no other handler
                    signal.signal(-status, signal.SIG_DFL)
                os.kill(os.getpid(), -status)
            os._exit(status)
    os.execv(python, [python, *arguments])


def _send(connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    data = json.dumps(request).encode()
    socket.send_fds(connection, [len(data).to_bytes(8, "big")], descriptors)
    connection.sendall(data)


def _connection(folder: str, owner: int, python: Sequence[str], kind: str, environ: Mapping[str, str]) -> socket.socket:
    """Return a connection to the server of a kind with these variables; start it if there is none."""
    import fcntl
    import subprocess

    read = sorted(item for item in environ.items() if item[0].startswith(_READ_AT_START))
    name = hashlib.sha256(json.dumps([*python, kind, read]).encode()).hexdigest()[:16]
    with open(os.path.join(folder, f"{name}.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _connected(folder, name)
        if found is None:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))  # of a server that has ended
            command = [*python, "-c", _SERVE, __file__, folder, name, str(owner), kind]
            nothing = subprocess.DEVNULL
            subprocess.run(command, cwd="/", env=environ, stdin=nothing, stdout=nothing, stderr=nothing, check=True)
            found = _connected(folder, name)
    assert found is not None
    return found


def _connected(folder: str, name: str) -> socket.socket | None:
    found = socket.socket(socket.AF_UNIX)
    where = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        found.connect(f"/proc/self/fd/{where}/{name}")  # short, however long the folder's path is
    except OSError:
        found.close()
        return None
    finally:
        os.close(where)
    return found


def _serve(folder: str, name: str, owner: str, kind: str) -> None:
    """Import what processes of a kind import first, and fork them until the session ends."""
    import select

    sys.path[:] = [path for path in sys.path if path]
    _import(kind)
    ended = os.pidfd_open(int(owner))
    os.chdir(folder)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen(64)
    if os.fork():
        os._exit(0)  # the server is ready
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while (events := poll.poll(_IDLE * 1000)) and ended not in dict(events):
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(connection, kind, f"{folder}/python")
        connection.close()
    os._exit(0)


def _import(kind: str) -> None:
    import gc
    from importlib import import_module

    for module in _BACK_ENDS.get(kind, ()):
        with suppress(ImportError):
            import_module(module)
    if kind in _BACK_ENDS:
        return
    gc.disable()  # as a worker does
    from aotcuda.builder.frontends import loading
    from aotcuda.builder.worker import main, start  # noqa: F401

    front = loading.compiler(kind, "the tests")
    if hasattr(front, "start"):
        versions = front.start()
        front.start = lambda: {**versions}
        front.warm_up()
        front.warm_up = lambda: None
    gc.freeze()
    gc.enable()


def _answer(connection: socket.socket, kind: str, python: str) -> NoReturn:
    """Fork the process of a request, send its number (0 if Python has to be started), then its exit status."""
    import select

    head, descriptors, _, _ = socket.recv_fds(connection, 8, 4)
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    request, parent, pid = json.loads(data), os.getpid(), 0
    known = {name.partition(".")[0] for name in sys.modules} | _SEARCHED_FIRST
    path = request["path"] or _path(request["environ"])
    if {*sys.path} <= {*path} and not any(_has(folder, known) for folder in path if folder not in sys.path):
        sys.path[:] = path
        if (pid := os.fork()) == 0:
            _become(request, descriptors)
            _run_worker(request, parent) if kind not in _BACK_ENDS else _run_back_end(request, kind, python)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(pid.to_bytes(8, "big"))
    if pid:
        ended = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(connection, select.POLLIN)
        if ended not in dict(poll.poll()):  # the client has ended
            os.kill(pid, signal.SIGTERM)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(OSError):
            connection.sendall(status.to_bytes(8, "big", signed=True))
    os._exit(0)


def _path(environ: Mapping[str, str]) -> list[str]:
    """Return the path of a back end: the folders of its PYTHONPATH, and the rest of the server's path."""
    own, others = (
        [os.path.abspath(path) for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]
        for variables in (environ, os.environ)
    )
    return [*own, *(path for path in sys.path if path not in others)]


def _has(folder: str, names: set[str]) -> bool:
    """Return True if one of the modules could be found in a folder, or if it is an archive."""
    try:
        return not names.isdisjoint(name.partition(".")[0] for name in os.listdir(folder))
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    os.setsid()
    for number, descriptor in enumerate(descriptors):  # all of these are larger
        os.dup2(descriptor, number)
    os.closerange(len(descriptors), 1 << 16)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    if (tempfile := sys.modules.get("tempfile")) is not None:
        tempfile.tempdir = None


def _run_worker(request: dict[str, Any], parent: int) -> NoReturn:
    """Be the reaper above a worker, or, forked from it, the worker."""
    main = vars(sys.modules["__main__"])
    del main["_file"], main["_names"]
    sys.argv = ["-c", str(parent), "3", request["arguments"]]

    def worker() -> int:
        from aotcuda.builder.worker import start

        main.update(json=json, sys=sys, start=start)
        return start.main()

    _end(worker)


def _run_back_end(request: dict[str, Any], kind: str, python: str) -> NoReturn:
    """Do what Python does with the option of a kind, with another program for workers."""
    import runpy

    sys.executable = python
    code, *arguments = request["arguments"]

    def back_end() -> None:
        sys.path.insert(0, request["folder"] if kind == "-m" else "")
        sys.argv = [code if kind == "-m" else kind, *arguments]
        if kind == "-m":
            runpy.run_module(code, run_name="__main__", alter_sys=True)
        else:
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})

    _end(back_end)


def _end(run: Callable[[], object]) -> NoReturn:
    """Run what Python would, and end as it does."""
    import atexit
    import threading
    import traceback

    try:
        status = run()
    except SystemExit as end:
        status = end.code
    except BaseException:  # noqa: BLE001 (as Python does)
        traceback.print_exc()
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 1 if status else 0)
