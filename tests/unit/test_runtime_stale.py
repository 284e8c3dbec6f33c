"""Test that the first launch of an editable install is refused after an edit of its inputs."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib

import pytest

from aotcuda import manifest as manifests
from aotcuda.common import stamp
from aotcuda.errors import StaleBuildError
from support.manifests import kernel

PYPROJECT = """
[project]
name = "mypkg"

[tool.aotcuda]
arch = ["sm_90"]
"""


class Project:
    """A project with a package under `src`, built in place."""

    def __init__(self, cuda, *, name="mypkg.kernels", load="import", **changes):
        self.root = cuda.packages
        self.source = self.root / "mypkg" / "_kernels.py"
        self.pyproject = self.root.parent / "pyproject.toml"
        self.source.parent.mkdir(parents=True, exist_ok=True)
        self.source.write_text("def k(x): ...\n")
        self.pyproject.write_text(PYPROJECT)
        table = json.dumps(tomllib.loads(PYPROJECT)["tool"]["aotcuda"], sort_keys=True, separators=(",", ":"))
        sources = [
            {"path": "mypkg/_kernels.py", "sha256": hashlib.sha256(self.source.read_bytes()).hexdigest()},
            {"path": "../pyproject.toml#tool.aotcuda", "sha256": hashlib.sha256(table.encode()).hexdigest()},
        ]
        self.module = cuda.package(
            kernel("k", "void(int32)"), sources=sources, editable=True, name=name, load=load, **changes
        )


@pytest.fixture(params=["import", "first-use"])
def project(cuda, request):
    return Project(cuda, load=request.param)


def assert_refused(project, reason):
    """Assert that a launch is refused, and that the error and the module's repr name the reason."""
    with pytest.raises(StaleBuildError) as caught:
        project.module.k[1, 1](1)
    assert str(caught.value) == f"mypkg.kernels was built before {reason}; build it again: pip install -e ."
    assert f"out of date: {reason}" in repr(project.module.__aotcuda__)


def edit_to_same_size(project):
    project.source.write_text("def k(y): ...\n")
    os.utime(project.source, ns=(1, 1))


EDITS = {
    "other text": (lambda project: project.source.write_text("def k(x): return\n"), "{0.source} was edited"),
    "text of equal size": (edit_to_same_size, "{0.source} was edited"),
    "deleted file": (lambda project: project.source.unlink(), "{0.source} is gone"),
    "other configuration": (
        lambda project: project.pyproject.write_text(PYPROJECT.replace("sm_90", "sm_80")),
        "[tool.aotcuda] in {0.pyproject} was edited",
    ),
    "invalid TOML": (
        lambda project: project.pyproject.write_text("[tool.aotcuda"),
        "[tool.aotcuda] in {0.pyproject} was edited",
    ),
}


@pytest.mark.parametrize("unloads", [False, True])
@pytest.mark.parametrize(("edit", "reason"), EDITS.values(), ids=EDITS)
def test_edited_module_is_refused_until_edit_is_reverted(cuda, project, edit, reason, unloads):
    texts = {path: path.read_text() for path in (project.source, project.pyproject)}
    if unloads:
        project.module.k[1, 1](1)
        project.module.__aotcuda__.unload()
    edit(project)
    assert_refused(project, reason.format(project))
    assert len(cuda.launches()) == unloads
    for path, text in texts.items():
        path.write_text(text)
    project.module.k[1, 1](1)
    assert len(cuda.launches()) == unloads + 1
    assert len(cuda.calls("cuLibraryLoadData")) == len(cuda.calls("cuLibraryUnload")) + 1


def test_edit_after_the_first_launch_changes_nothing(cuda, project, path, monkeypatch):
    run = project.module.k[1, 1]
    run(1)
    edit_to_same_size(project)
    monkeypatch.setattr(stamp, "answer", None)
    run(2)
    project.module.k[1, 1](3)
    assert [call["parameters"][:2] for call in cuda.launches()] == ["01", "02", "03"]
    assert len(cuda.calls("cuLibraryLoadData")) == 1
    assert (project.module.__aotcuda__.fast_path == "in C") == (path == "extension")


def test_import_loads_images_and_reads_no_source(cuda, monkeypatch):
    monkeypatch.setattr(stamp, "answer", None)
    project = Project(cuda)
    assert len(cuda.calls("cuLibraryLoadData")) == 1
    project.module.__aotcuda__.unload()
    assert len(cuda.calls("cuLibraryUnload")) == 1


def test_other_tables_of_pyproject_may_change(cuda, project):
    project.pyproject.write_text(PYPROJECT.replace('name = "mypkg"', 'name = "other"  # renamed'))
    project.module.k[1, 1](1)
    assert len(cuda.launches()) == 1


def test_paths_of_inputs_are_relative_to_top_package(cuda):
    project = Project(cuda, name="mypkg.deep.inside.kernels")
    project.module.k[1, 1](1)
    assert len(cuda.launches()) == 1


def test_sources_of_wheel_are_not_checked(cuda):
    sources = [{"path": "mypkg/_kernels.py", "sha256": "0" * 64}]
    cuda.package(kernel("k", "void(int32)"), sources=sources).k[1, 1](1)
    assert len(cuda.launches()) == 1


def test_added_files_and_changed_variables_are_refused(cuda, monkeypatch):
    """Other inputs are in tests/slow/test_stamp_inputs.py."""
    reads = [
        {"ask": "file", "path": "mypkg/fast.txt", "answer": None},
        {"ask": "names", "path": "mypkg/data", "answer": manifests.digest(b"a.csv")},
    ]
    data = cuda.packages / "mypkg" / "data"
    data.mkdir(parents=True)
    (data / "a.csv").touch()
    project = Project(cuda, reads=reads, variables={"SCALE": manifests.digest(b"3")})
    monkeypatch.setenv("SCALE", "3")
    (data / "b.csv").touch()
    assert_refused(project, f"files in {data} were added or removed")
    (data / "b.csv").unlink()
    (data.parent / "fast.txt").touch()
    assert_refused(project, f"{data.parent / 'fast.txt'} was added")
    (data.parent / "fast.txt").unlink()
    monkeypatch.setenv("SCALE", "4")
    assert_refused(project, "the environment variable SCALE was changed")
    monkeypatch.setenv("SCALE", "3")
    project.module.k[1, 1](1)
    assert len(cuda.launches()) == 1


@pytest.mark.parametrize("moment", [stamp._MOMENT, -(1 << 62)], ids=["just now", "long ago"])
def test_edit_with_old_modification_time_is_detected(cuda, monkeypatch, moment):
    """`cp -p` and `rsync -t` keep the old time of modification. The size does not change here either."""
    monkeypatch.setattr(stamp, "_MOMENT", moment)
    project = Project(cuda)
    os.utime(project.source, ns=(1, 1))
    assert project.module.__aotcuda__._images.source.changed() is None
    before = project.source.stat()
    while project.source.stat().st_ctime_ns == before.st_ctime_ns:  # file systems store this time in steps
        project.source.write_text("def k(y): ...\n")
        os.utime(project.source, ns=(1, 1))
    after = project.source.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert_refused(project, f"{project.source} was edited")


@pytest.mark.parametrize(
    ("name", "changes_files", "changes_modules"),
    [
        ("b.csv", True, False),
        ("folder/", True, True),
        ("no-module/", True, False),
        ("m.py", True, True),
        *(
            (name, False, False)
            for name in ("__pycache__/", "a.csv~", "a.swp", ".a.swx", ".#a.csv", ".nfs1", "l.aotcuda/", "k.py", "k.pyi")
        ),
    ],
)
def test_temporary_files_are_not_names_of_folder(tmp_path, name, changes_files, changes_modules):
    (tmp_path / "a.csv").touch()
    (tmp_path / "k.aotcuda").mkdir()  # makes k.py a generated module
    before = [stamp.names(tmp_path, modules_only=only) for only in (False, True)]
    if name.endswith("/"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).touch()
    after = [stamp.names(tmp_path, modules_only=only) for only in (False, True)]
    assert [one != other for one, other in zip(before, after, strict=True)] == [changes_files, changes_modules]


@pytest.mark.parametrize(
    ("name", "matches"),
    [
        ("MYPKG_A", ["MYPKG_A"]),
        ("MYPKG_*", ["MYPKG_A", "MYPKG_B"]),
        ("MYPKG_[BC]", ["MYPKG_B"]),
        ("OTHER", []),
    ],
)
def test_variables_are_found_by_name_and_pattern(monkeypatch, name, matches):
    changing = []
    for variable in ("MYPKG_A", "MYPKG_B"):
        before = stamp.variable(name)
        monkeypatch.setenv(variable, "1")
        if stamp.variable(name) != before:
            changing.append(variable)
    assert changing == matches
    assert stamp.variable("MYPKG_C") is None


def test_module_beside_a_source_in_place_is_a_name_of_folder(tmp_path):
    """A data folder with the mark belongs to the source `k.py`; without the mark, `k.py` is generated."""
    (tmp_path / "k.aotcuda").mkdir()
    generated = stamp.names(tmp_path)
    (tmp_path / "k.py").touch()
    assert stamp.names(tmp_path) == generated
    (tmp_path / "k.aotcuda" / manifests.IN_PLACE).touch()
    assert stamp.names(tmp_path) != generated


@pytest.mark.parametrize(("age", "reads"), [(0.0, 2), (1.9, 2), (2.1, 1)])
def test_recently_changed_files_are_read_again(tmp_path, monkeypatch, age, reads):
    """A second change within two seconds may leave the status as it is."""
    source = tmp_path / "a.py"
    source.touch()
    inputs = stamp.Stamp()
    inputs.add_question("file", str(source))
    changed = source.stat().st_ctime_ns
    monkeypatch.setattr(stamp.time, "time_ns", lambda: changed + int(age * 1e9))
    questions = []
    answer = stamp.answer
    monkeypatch.setattr(stamp, "answer", lambda *question: questions.append(question) or answer(*question))
    os.utime(source, ns=(1, 1))  # an old time of modification does not count
    changed = source.stat().st_ctime_ns
    assert [inputs.changed(), inputs.changed()] == [None, None]
    assert len(questions) == reads
