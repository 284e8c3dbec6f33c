"""Workers without the start of their compiler: forked from zygotes, processes that have done it before.

The import is half of a small build's work, and a session of tests has many hundred such builds. The builds whose start
is forked as well (`forked.py`) start, in the place of Python, a small program (`python` of `settle`): it hands what the
worker would be given (arguments, environment, working directory, descriptors) to the zygote of the same kind, stays for
as long as the worker lives, and ends as it does. What is forked is the worker at the point where it has started its
compiler and nothing else: its reaper comes first, as ever.

The kind of a zygote is all that its imports could depend on: the front end, the variables that are read meanwhile or
when Python starts, limits. Where the worker would find other modules on its path than the zygote has, Python is started
after all. Tests about how workers start, end, or hang together with the processes above them name a command.

Zygotes end with the process that the session belongs to, or when nobody asks them for a while.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any, NoReturn

_SETTINGS = "settings.json"
_DESCRIPTORS = 4
"""Standard input, output and error of the worker, and the pipe of its messages."""

_READ = ("PYTHON", "LC_", "LANG", "LD_", "NUMBA_", "CUDA_", "NVIDIA_", "OMP_", "OPENBLAS_", "HOME", "XDG_")
"""What the names of variables begin with that are read when Python starts, or while a compiler is imported."""

_IDLE = 120
"""Seconds after which a zygote ends that nobody asks."""

NEVER_BEFORE = ("nvidia", "sitecustomize", "usercustomize")
"""What a worker may find on a path of its own, and would have to have found before its compiler."""


def settle(folder: Path, owner: int) -> Path:
    """Make `folder` the one of zygotes that live as long as the process `owner`; gives what is to start workers."""
    import subprocess

    from aotcuda import registry
    from aotcuda.builder.worker import process

    kinds = {
        registry.requirement(name, jit=jit): name
        for name, registered in registry.BUILT_IN.items()
        for jit in (False, True)
        if registered.package
    }
    bare = [sys.executable, "-P", "-E", "-c", "import json, sys; print(json.dumps(sys.path))"]
    path = json.loads(subprocess.run(bare, capture_output=True, check=True).stdout)
    settings = {"python": sys.executable, "start": process._START, "path": path, "owner": owner, "kinds": kinds}
    python = folder / "python"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    own = folder / f"{os.getpid()}.tmp"
    client = f"#!{sys.executable} -IS\nimport runpy\nrunpy.run_path({__file__!r})['_ask']({str(folder)!r})\n"
    for path, text in ((folder / _SETTINGS, json.dumps(settings)), (python, client)):
        own.write_text(text)
        own.chmod(0o700)
        own.replace(path)  # another process of the session may do the same now
    return python


def send(connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    """Send a request, with open files."""
    data = json.dumps(request).encode()
    socket.send_fds(connection, [len(data).to_bytes(8, "big")], descriptors)
    connection.sendall(data)


def receive(connection: socket.socket, count: int) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next request and its open files, of which there are `count`; None where no more will come."""
    head, descriptors, _, _ = socket.recv_fds(connection, 8, count)
    if not head:
        return None
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return json.loads(data), descriptors


def _ask(folder: str) -> NoReturn:
    """Be the Python that the arguments are for: by a zygote if they start a worker."""
    arguments = sys.argv[1:]
    with open(os.path.join(folder, _SETTINGS), encoding="utf-8") as file:
        settings = json.load(file)
    if arguments[:3] != ["-P", "-c", settings["start"]] or arguments[6] not in settings["kinds"]:
        os.execv(settings["python"], [settings["python"], *arguments])
    (path, _), messages = json.loads(arguments[3]), int(arguments[5])
    request = {"arguments": arguments[4:], "path": path, "environ": {**os.environ}, "folder": os.getcwd()}
    descriptors = [0, 1, 2, messages]
    # As a rule what is found on the worker's own path are its project and others' packages. If not so, what is there
    # beside the project makes another kind.
    usual = [settings["path"]] if {*settings["path"]} <= {*path} else []
    for zygotes_path in (*usual, [item for item in path if not _belongs(item)]):
        connection = _connection(folder, settings, settings["kinds"][arguments[6]], zygotes_path)
        if connection is None:
            break
        with suppress(OSError):  # it ends just now
            send(connection, request, descriptors)
        if pid := int.from_bytes(_answer(connection), "big"):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda number, _: os.kill(pid, number))
            for descriptor in descriptors:
                os.close(descriptor)  # whoever reads is to see the end when the worker has ended
            answer = _answer(connection)
            status = int.from_bytes(answer, "big", signed=True) if answer else 1
            if status < 0:
                with suppress(OSError):  # some have no other
                    signal.signal(-status, signal.SIG_DFL)
                os.kill(os.getpid(), -status)
            os._exit(status)
    os.execv(settings["python"], [settings["python"], *arguments])


def _answer(connection: socket.socket) -> bytes:
    """Return what a zygote says; nothing where it has ended."""
    with suppress(OSError):
        return connection.recv(8)
    return b""


def _connection(folder: str, settings: dict[str, Any], front_end: str, path: list[str]) -> socket.socket | None:
    """Return a connection to the zygote for workers of a front end, which is started where it is worth it."""
    import fcntl
    import hashlib
    import resource
    import subprocess

    environ = {name: text for name, text in os.environ.items() if name.startswith(_READ) and name != "PYTHONPATH"}
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    umask = os.umask(0o077)
    os.umask(umask)
    kind = [front_end, path, sorted(environ.items()), limits, umask, sorted(os.sched_getaffinity(0))]
    name = hashlib.sha256(json.dumps(kind).encode()).hexdigest()[:16]
    with open(os.path.join(folder, f"{name}.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (found := _connected(folder, name)) is not None:
            return found
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))  # of one that has ended
        nothing = subprocess.DEVNULL
        command = [settings["python"], "-P", "-c", _ZYGOTE, __file__, folder, name, front_end, json.dumps(path)]
        subprocess.run(command, cwd="/", stdin=nothing, stdout=nothing, stderr=nothing, check=False)
        return _connected(folder, name)


def _connected(folder: str, name: str) -> socket.socket | None:
    found = socket.socket(socket.AF_UNIX)
    try:
        found.connect(_address(folder, name))
    except OSError:
        return None
    return found


def _belongs(item: str) -> bool:
    """Return True if a folder of a worker's path is its project's own."""
    return os.path.commonpath([os.path.realpath(item), os.getcwd()]) in (os.path.realpath(item), os.getcwd())


def _address(folder: str, name: str) -> str:
    """The address of a socket in `folder`, short however long the folder's path is; its descriptor stays open."""
    return f"/proc/self/fd/{os.open(folder, os.O_PATH | os.O_CLOEXEC)}/{name}"


_ZYGOTE = """
import sys
_names = {"__name__": "zygotes", "__file__": sys.argv.pop(1)}
with open(_names["__file__"]) as _file:
    exec(compile(_file.read(), _names["__file__"], "exec"), _names)
_names["_serve"](*sys.argv[1:])
"""


def _serve(folder: str, name: str, front_end: str, path: str) -> None:
    """Import the compiler of `front_end`, and fork workers that have, until the session ends."""
    import select

    with open(os.path.join(folder, _SETTINGS), encoding="utf-8") as file:
        settings = json.load(file)
    sys.path[:] = json.loads(path)
    known = [*sys.path]
    _import(front_end)
    owner = os.pidfd_open(settings["owner"])
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(_address(folder, name))
    listener.listen(64)
    if os.fork():
        os._exit(0)  # it is there
    os.setsid()
    taken = {module.partition(".")[0] for module in sys.modules}.union(NEVER_BEFORE)
    workers: dict[int, tuple[socket.socket, int]] = {}
    poll = select.poll()
    poll.register(owner, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while (events := poll.poll(_IDLE * 1000)) or workers:
        for descriptor, _ in events:
            if descriptor == owner:
                os._exit(0)  # the kernel tells the workers
            elif descriptor == listener.fileno():
                connection, _ = listener.accept()
                if pid := _forked(connection, taken, known):
                    ended = os.pidfd_open(pid)
                    workers[ended] = workers[connection.fileno()] = (connection, pid)
                    poll.register(ended, select.POLLIN)
                    poll.register(connection, select.POLLIN)
                else:
                    connection.close()
            elif descriptor in workers:
                connection, pid = workers[descriptor]
                if descriptor == connection.fileno():  # whoever asked is gone
                    poll.unregister(descriptor)
                    del workers[descriptor]
                    os.kill(pid, signal.SIGTERM)
                    continue
                poll.unregister(descriptor)
                os.close(descriptor)
                del workers[descriptor]
                if workers.pop(connection.fileno(), None):
                    poll.unregister(connection)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with connection, suppress(OSError):
                    connection.sendall(status.to_bytes(8, "big", signed=True))


def _import(front_end: str) -> None:
    """Return what a worker imports before it knows its project."""
    import gc

    gc.disable()  # as it does
    from aotcuda.builder.frontends import loading
    from aotcuda.builder.worker import main, start  # noqa: F401

    front = loading.compiler(front_end, "the tests")
    if hasattr(front, "start"):  # to warm a compiler up is most of what a small build does
        versions = front.start()
        front.start = lambda: {**versions}
        front.warm_up()
        front.warm_up = lambda: None
    gc.freeze()
    gc.enable()


def _forked(connection: socket.socket, taken: set[str], path: list[str]) -> int:
    """Fork what `connection` asks for; its process, or 0 where Python has to be started."""
    request = receive(connection, _DESCRIPTORS)
    if request is None:
        return 0
    (asked, descriptors), zygote, pid = request, os.getpid(), 0
    own = [folder for folder in asked["path"] if folder not in path]
    if not any(has(folder, taken) for folder in own) and (pid := os.fork()) == 0:
        _become(asked, descriptors, zygote)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(pid.to_bytes(8, "big"))
    return pid


def has(folder: str, names: set[str]) -> bool:
    """Return True if one of the modules could be found in a folder, or what is in it cannot be told."""
    try:
        return not names.isdisjoint(name.partition(".")[0] for name in os.listdir(folder))
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True


def _become(asked: dict[str, Any], descriptors: list[int], zygote: int) -> NoReturn:
    """Be the reaper above a worker, or, forked from that, the worker; the zygote is in the place of the build."""
    os.setsid()
    for number, descriptor in enumerate(descriptors):  # received above all of these
        os.dup2(descriptor, number)
    os.closerange(_DESCRIPTORS, 1 << 16)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    sys.path[:] = asked["path"]
    if (tempfile := sys.modules.get("tempfile")) is not None:
        tempfile.tempdir = None
    main = vars(sys.modules["__main__"])
    del main["_file"], main["_names"]
    sys.argv = ["-c", str(zygote), str(_DESCRIPTORS - 1), asked["arguments"][2]]

    def run() -> int:
        from aotcuda.builder.worker import start

        main.update(json=json, sys=sys, start=start)
        return start.main()

    ended(run)


def ended(run: Callable[[], object]) -> NoReturn:
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
