"""Write, replace and remove the files of a build, and never a file that no build wrote."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import threading
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from aotcuda.builder.compile import interrupt
from aotcuda.builder.emit import wheel_files
from aotcuda.builder.entry import api, build_command
from aotcuda.builder.write import depfile, output, source_tree
from aotcuda.errors import BuildError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

FILES = {
    "pkg/k.py": f"{wheel_files.MARK} 1.0\n".encode(),
    "pkg/k.pyi": f"{wheel_files.MARK} 1.0\n".encode(),
    "pkg/k.aotcuda/manifest.json": b"{}",
    "pkg/k.aotcuda/kernels.fatbin": b"images",
}
TABLE = {"arch": ["sm_80"], "modules": {"pkg.k": {"source": "pkg._k", "kernels": {"f": "void(int32)"}}}}


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_second_build_into_a_folder_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second build starts when the first is about to move its files, and runs until it waits or ends."""
    folder = tmp_path / "there" / "not" / "yet"
    waits_or_ends = threading.Event()
    flock = fcntl.flock

    def lock(descriptor: int, operation: int) -> None:
        try:
            flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            waits_or_ends.set()
            flock(descriptor, operation)

    def second() -> None:
        output.write(FILES | {"pkg/k.aotcuda/kernels.fatbin": b"second"}, folder)
        contents.append(files_in(folder))
        waits_or_ends.set()

    contents: list[dict[str, bytes]] = []
    thread = threading.Thread(target=second)
    monkeypatch.setattr(fcntl, "flock", lock)
    with output.write_around(FILES | {"pkg/k.aotcuda/kernels.fatbin": b"first"}, folder):
        thread.start()
        waits_or_ends.wait()
        contents.append(files_in(folder))
    thread.join()
    assert [files["pkg/k.aotcuda/kernels.fatbin"] for files in contents] == [b"first", b"second"]
    assert contents[1] == files_in(folder) == FILES | {"pkg/k.aotcuda/kernels.fatbin": b"second"}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, set()),
        ({"pkg/k.pyi": b"other"}, {"k.pyi"}),
        ({"pkg/k.aotcuda/kernels.fatbin": b"other"}, {"k.aotcuda", "kernels.fatbin", "manifest.json"}),
        ({"pkg/k.aotcuda/functions.fatbin": b"more"}, {"k.aotcuda", "kernels.fatbin", "manifest.json"}),
    ],
)
def test_files_with_the_same_content_are_not_written(tmp_path: Path, change: dict[str, bytes], names: set[str]) -> None:
    def identities() -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in (tmp_path / "pkg").rglob("*")}

    output.write(FILES, tmp_path)
    numbers = identities()
    assert output.write(FILES | change, tmp_path) == [tmp_path / name for name in FILES | change]
    assert files_in(tmp_path) == FILES | change
    assert {name for name, number in numbers.items() if identities()[name] != number} == names


NEW = {
    "pkg/k.py": f"{wheel_files.MARK} 2.0\n".encode(),
    "pkg/k.pyi": f"{wheel_files.MARK} 2.0\n".encode(),
    "pkg/k.aotcuda/manifest.json": b"{ }",
    "pkg/k.aotcuda/link/deep/functions.fatbin": b"new",
    "pkg/sub/j.py": f"{wheel_files.MARK} 2.0\n".encode(),
    "pkg/sub/j.aotcuda/manifest.json": b"{ }",
}
STEPS = ("mkdir", "write_bytes", "rename", "replace")
"""The methods of Path that change the disk."""


class Step:
    """Call a function before or after the `left`th step of `output.write`."""

    def __init__(self, patch: pytest.MonkeyPatch, happen: Callable[[], None], *, after: bool) -> None:
        self.happen = happen
        self.after = after
        self.left = 0
        for name in STEPS:
            patch.setattr(Path, name, self.counted(getattr(Path, name)))

    def counted(self, method: Callable[..., object]) -> Callable[..., object]:
        def step(*args: object, **options: object) -> object:
            self.left -= 1
            now = self.left == 0  # before the steps that `mkdir` takes in itself
            if now and not self.after:
                self.happen()
            result = method(*args, **options)
            if now and self.after:
                self.happen()
            return result

        return step


@pytest.fixture(params=[{}, FILES], ids=["first build", "build over another"])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, bytes]:
    """Return the files that exist before a build writes."""
    sources = {"pkg/__init__.py": b"", "pkg/mine.py": b"mine"}
    for name, data in (request.param | sources).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return request.param | sources


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), BuildError),
        (interrupt.Interrupted(interrupt.NOTHING_WRITTEN), interrupt.Interrupted),
    ],
    ids=["error", "interrupt"],
)
def test_write_stopped_at_any_step_changes_nothing(
    fault: BaseException,
    raised: type[BaseException],
    after: bool,
    before: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def happen() -> None:
        raise fault

    folders = {path for path in tmp_path.rglob("*") if path.is_dir()}
    step = Step(monkeypatch, happen, after=after)
    for number in count(1):
        step.left = number
        try:
            output.write(NEW, tmp_path)
        except raised as error:
            assert files_in(tmp_path) == before, number
            assert {path for path in tmp_path.rglob("*") if path.is_dir()} == folders
            assert "aotcuda-tmp" not in str(error)  # noqa: PT017 (most steps raise, the last one does not)
        else:
            break
    assert step.left > 0
    assert number > len(NEW) * 2
    assert files_in(tmp_path) == {name: data for name, data in before.items() if "k.aotcuda" not in name} | NEW


MODULES = ("pkg/k.py", "pkg/k.aotcuda/"), ("pkg/sub/j.py", "pkg/sub/j.aotcuda/")


def modules(files: dict[str, bytes]) -> list[dict[str, bytes]]:
    return [{name: data for name, data in files.items() if name.startswith(stems)} for stems in MODULES]


def test_killed_write_leaves_no_module_of_two_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGKILL), after=True)
    for number in count(1):
        root = tmp_path / str(number)
        output.write(FILES, root)
        step.left = number
        child = os.fork()
        if child == 0:
            output.write(NEW, root)
            os._exit(0)
        step.left = 0
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break
        files = files_in(root)
        for module, old, new in zip(modules(files), modules(FILES), modules(NEW), strict=True):
            assert module in (old, new) or not any(name.endswith(".py") for name in module), number
        output.sweep(["pkg.k", "pkg.sub.j"], [root])
        assert not [path for path in root.rglob("*") if "aotcuda-tmp" in path.name]
        output.write(NEW, root)
        assert files_in(root) == NEW
    assert number > len(NEW) * 2


def test_cleaning_removes_only_generated_files(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "src"):
        output.write(FILES, root)
    (tmp_path / "src/pkg/k.py").write_bytes(b"mine")
    (tmp_path / "src/pkg/k.aotcuda/manifest.json").unlink()
    (tmp_path / "pkg/other.py").write_bytes(b"mine")
    for table in ({}, {"modules": 3}, {"modules": {"not.there": 1}}, TABLE):
        assert (tmp_path / "pkg/k.py").exists()
        source_tree.clean(table, tmp_path)
    assert files_in(tmp_path) == {
        "src/pkg/k.py": b"mine",
        "src/pkg/k.aotcuda/kernels.fatbin": b"images",
        "pkg/other.py": b"mine",
    }


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "does not exist; name a folder with a pyproject.toml"),
        ("[tool.other]", r"has no \[tool.aotcuda\] table; "),
    ],
)
def test_unusable_project_file_is_named(content: str | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/pyproject.toml {problem}"):
        build_command.build_project(tmp_path)


def test_missing_include_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "headers").mkdir()
    table = {**TABLE, "options": {"include-dirs": ["headers", "heders"]}}
    message = rf'^tool\.aotcuda\.modules\."?pkg\.k"?\.options\.include-dirs: {tmp_path}/heders is no folder; '
    with pytest.raises(ConfigError, match=f"{message}paths are relative to"):
        api.build(table, tmp_path)
    (tmp_path / "PKG-INFO").write_text("")
    with pytest.raises(ConfigError, match=f"{message}the sdist lacks it: "):
        api.build(table, tmp_path)


def test_pipe_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    pipe = tmp_path / "pkg/k.py"
    os.mkfifo(pipe)
    with pytest.raises(BuildError, match=rf"^{pipe} is a pipe or a device, where a file is to be written"):
        output.write(FILES, tmp_path)
    assert [*tmp_path.rglob("*")] == [pipe.parent, pipe]
    assert pipe.is_fifo()


def test_sbom_is_written_into_a_pipe(tmp_path: Path) -> None:
    """`--sbom /dev/stdout` names a link to a pipe."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert output.write_bill(link, b"a bill") == [link]
        assert reader.stdout is not None
        assert reader.stdout.read() == b"a bill"
    assert pipe.is_fifo()
    assert link.is_symlink()


STAMPED = {"a/k.py": b"1", "a/k.aotcuda/manifest.json": b"{}", "b/k.py": b"2"}


def build_with_stamp(folder: Path, *names: str) -> list[str]:
    """Build some of the files into a folder, with a stamp next to the folder; return the names of its files."""
    files = {name: STAMPED[name] for name in names}
    output.write(files, folder)
    depfile.remove_stale(folder.parent / "stamp", files, folder)
    output.replace(folder.parent / "stamp", depfile.stamp(files, folder))
    return sorted(files_in(folder))


def test_files_that_are_no_longer_built_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert build_with_stamp(folder, *STAMPED) == sorted(STAMPED)
    assert build_with_stamp(folder, "b/k.py") == ["b/k.py"]
    assert not (folder / "a").exists()
    build_with_stamp(folder, *STAMPED)
    (folder / "a" / "k.py").write_bytes(b"of another project")
    (folder / "a" / "more.py").touch()
    assert build_with_stamp(folder, "b/k.py") == ["a/k.py", "a/more.py", "b/k.py"]
    output.write(STAMPED, tmp_path / "other")
    assert build_with_stamp(tmp_path / "other", "b/k.py") == sorted(STAMPED), "the stamp is of another folder"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"folder": 1}', b'{"folder": "/", "files": [1]}', b"\xff"])
def test_damaged_stamp_removes_nothing(tmp_path: Path, text: bytes) -> None:
    build_with_stamp(tmp_path / "out", *STAMPED)
    (tmp_path / "stamp").write_bytes(text)
    assert build_with_stamp(tmp_path / "out", "b/k.py") == sorted(STAMPED)


@pytest.mark.parametrize("old", [None, b"old"])
def test_killed_replacement_leaves_the_old_file_or_the_new(
    old: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dependency file that is cut off would name fewer files."""
    step = Step(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGKILL), after=True)
    for number in count(1):
        path = tmp_path / str(number) / "there" / "k.d"
        if old is not None:
            path.parent.mkdir(parents=True)
            path.write_bytes(old)
        step.left = number
        child = os.fork()
        if child == 0:
            output.replace(path, b"new")
            os._exit(0)
        step.left = 0
        is_done = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (path.read_bytes() if path.exists() else None) in ({b"new"} if is_done else {old, b"new"})
        output.replace(path, b"newer")
        assert [each.name for each in path.parent.iterdir()] == ["k.d"]
        if is_done:
            break
    assert number > 2


def test_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"")
    message = r" cannot be written \(a file is where a folder would be\); remove that, or "
    with pytest.raises(BuildError, match=message):
        output.replace(tmp_path / "there" / "k.d", b"")
    with pytest.raises(BuildError, match=message):
        output.write(FILES, tmp_path / "there")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space, or name another file"),
        (errno.EACCES, "give this user write permission, or name another file"),
        (errno.EROFS, "name another file"),
        (errno.EISDIR, "name another file"),
    ],
)
def test_failed_write_names_its_cause_and_remedy(
    number: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "write_bytes", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(BuildError) as caught:
        output.replace(tmp_path / "k.d", b"")
    assert str(caught.value) == f"{tmp_path}/k.d cannot be written ({os.strerror(number)}); {remedy}"
