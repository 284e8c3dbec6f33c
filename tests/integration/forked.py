"""Run the processes of a build as forks of servers, which have imported a back end or a compiler already.

The start of Python and these imports take more than half of a small build. `run` runs a back end's command. The program
that `install` writes replaces Python and starts a worker. Both send a server the arguments, the environment, the
working folder and the open files of the new process. The server forks the process and returns its exit status.

A server declines a request if the process could find other modules on its path than the server has imported. The client
then starts Python. Tests of how builds start use `projects.run` and name a command. A server ends with the session of
tests, or after two minutes without requests.
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
"""Modules that a process looks for on its path before it imports a compiler."""

_ALWAYS = ("aotcuda.builder.entry.backend", "aotcuda.builder.compile.interrupt", "packaging.requirements", "zipfile")
_BACK_ENDS = {
    "-m": (
        *_ALWAYS,
        "hatchling.cli",
        "hatchling.builders.wheel",
        "hatchling.builders.plugin.hooks",
        "hatchling.metadata.core",
        "hatch_aotcuda.plugin",
        "scikit_build_core.hatch.plugin",  # hatchling imports it wherever it is installed
    ),
    "-c": (*_ALWAYS, "setuptools.build_meta", "setuptools.dist", "setuptools_aotcuda.commands"),
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
    """Use `folder` for the sockets of servers, which end with the process `owner`."""
    from aotcuda import registry
    from aotcuda.builder.compile import process

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
    temporary = folder / f"{os.getpid()}.tmp"
    temporary.write_text(text)
    temporary.chmod(0o700)
    temporary.replace(folder / "python")  # other processes of the session write it too
    Session.folder, Session.owner, Session.python = str(folder), owner, str(folder / "python")


def run(folder: Path, command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str, str] | None:
    """Run `command`, a Python with `-m` or `-c`, in `folder`; return its exit status, output and error output.

    Return None if the caller has to start Python.
    """
    import tempfile

    at = next(at for at, word in enumerate(command) if word in _BACK_ENDS)
    request = {"folder": str(folder), "arguments": command[at + 1 :], "environ": {**environ}, "path": []}
    server_environ = {**environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    with open(os.devnull, "rb") as none, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        connection = _connection(Session.folder, Session.owner, command[:at], command[at], server_environ)
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
    """Wait for a forked worker in its place, or become Python if no server can fork the process."""
    arguments = sys.argv[1:]
    if arguments[:3] == ["-P", "-c", start] and arguments[6] in kinds:
        (path, _), messages = json.loads(arguments[3]), int(arguments[5])
        request = {"arguments": arguments[6], "path": path, "environ": {**os.environ}, "folder": os.getcwd()}
        server_environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        connection = _connection(folder, owner, [python, "-P"], kinds[arguments[6]], server_environ)
        descriptors = [0, 1, 2, messages]
        _send(connection, request, descriptors)
        if int.from_bytes(connection.recv(8), "big"):
            for descriptor in descriptors:
                os.close(descriptor)  # the worker alone has them open, so readers see its end
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
        connection = _connect(folder, name)
        if connection is None:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))  # the socket of a server that has ended
            command = [*python, "-c", _SERVE, __file__, folder, name, str(owner), kind]
            nothing = subprocess.DEVNULL
            subprocess.run(command, cwd="/", env=environ, stdin=nothing, stdout=nothing, stderr=nothing, check=True)
            connection = _connect(folder, name)
    assert connection is not None
    return connection


def _connect(folder: str, name: str) -> socket.socket | None:
    """Connect to a server; return None if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")  # the folder's path may be too long for a socket
    except OSError:
        connection.close()
        return None
    finally:
        os.close(descriptor)
    return connection


def _serve(folder: str, name: str, owner: str, kind: str) -> None:
    """Import the modules of a kind of process, and fork such processes until the session ends."""
    import fcntl
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
    lock = os.open(f"{name}.lock", os.O_RDWR)
    while ended not in (events := dict(poll.poll(_IDLE * 1000))):
        if not events:
            fcntl.flock(lock, fcntl.LOCK_EX)  # clients connect under this lock
            if not poll.poll(0):
                break
            fcntl.flock(lock, fcntl.LOCK_UN)
            continue
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
    from aotcuda.builder.compile import main, start  # noqa: F401
    from aotcuda.builder.frontends import loading

    front = loading.compiler(kind, "the tests")
    if hasattr(front, "start"):
        versions = front.start()
        front.start = lambda: {**versions}
        front.warm_up()
        front.warm_up = lambda: None
    gc.freeze()
    gc.enable()


def _answer(connection: socket.socket, kind: str, python: str) -> NoReturn:
    """Fork the process of a request, and send its number, then its exit status; send 0 if the client starts Python."""
    import select

    head, descriptors, _, _ = socket.recv_fds(connection, 8, 4)
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    request, parent, pid = json.loads(data), os.getpid(), 0
    imported = {name.partition(".")[0] for name in sys.modules} | _SEARCHED_FIRST
    path = request["path"] or _path(request["environ"])
    if {*sys.path} <= {*path} and not any(_may_have(folder, imported) for folder in path if folder not in sys.path):
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
        if ended not in dict(poll.poll()):  # the client has gone away
            os.kill(pid, signal.SIGTERM)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(OSError):
            connection.sendall(status.to_bytes(8, "big", signed=True))
    os._exit(0)


def _path(environ: Mapping[str, str]) -> list[str]:
    """Return the path of a back end: the folders of its PYTHONPATH, and the rest of the server's path."""
    first, replaced = (
        [os.path.abspath(path) for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]
        for variables in (environ, os.environ)
    )
    return [*first, *(path for path in sys.path if path not in replaced)]


def _may_have(folder: str, names: set[str]) -> bool:
    """Return True if a folder may have one of the modules, or if it is an archive."""
    try:
        return not names.isdisjoint(name.partition(".")[0] for name in os.listdir(folder))
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Take over the folder, the environment and the open files of a request."""
    os.setsid()
    for number, descriptor in enumerate(descriptors):  # each descriptor is larger than its new number
        os.dup2(descriptor, number)
    os.closerange(len(descriptors), 1 << 16)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environ"])
    if (tempfile := sys.modules.get("tempfile")) is not None:
        tempfile.tempdir = None


def _run_worker(request: dict[str, Any], parent: int) -> NoReturn:
    """Run the reaper, which forks the worker."""
    main = vars(sys.modules["__main__"])
    del main["_file"], main["_names"]
    sys.argv = ["-c", str(parent), "3", request["arguments"]]

    def worker() -> int:
        from aotcuda.builder.compile import start

        main.update(json=json, sys=sys, start=start)
        return start.main()

    _end(worker)


def _run_back_end(request: dict[str, Any], kind: str, python: str) -> NoReturn:
    """Run code or a module as Python does, with the session's program for workers."""
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
    """Run a function, and end the process as Python ends."""
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
