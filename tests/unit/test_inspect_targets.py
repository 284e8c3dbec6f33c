"""Test that `aotcuda inspect` finds targets without importing them, and that each kind of damage has an error."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from aotcuda import cli, manifest
from aotcuda.builder.entry import jit
from aotcuda.builder.project import linked_modules
from aotcuda.cache import entries
from aotcuda.common.jit_build import Request
from aotcuda.errors import ImageError, ManifestError, TargetError
from aotcuda.tools.inspect.collect import collect
from support import hostile, images, manifests, modules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def names(target: object) -> list[str]:
    return [module.name for module in collect(str(target)).modules]


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write `mypkg`, which raises an error when it is imported, into a folder of the import path."""
    package = modules.write_package(tmp_path, "mypkg.kernels", "mypkg.sub.more")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return package


def test_wheel_lists_each_of_its_modules(tmp_path: Path) -> None:
    wheel = modules.write_wheel(tmp_path, "mypkg.kernels", "mypkg.sub.more")
    assert names(wheel) == ["mypkg.kernels", "mypkg.sub.more"]


def test_folder_lists_every_module_below_it(tmp_path: Path) -> None:
    package = modules.write_package(tmp_path, "mypkg.kernels", "mypkg.sub.more")
    assert names(tmp_path) == names(package) == ["mypkg.kernels", "mypkg.sub.more"]
    (package / "sub" / "more.py").unlink()
    assert names(package / "sub") == ["mypkg.sub.more"]


def test_entry_of_the_jit_cache_is_a_target(tmp_path: Path) -> None:
    content, fatbins = modules.contents()
    data = manifest.dump({**content, "in_place": True})
    contents = {**fatbins, manifest.FILE_NAME: data}
    entries.write(entries.Files(str(tmp_path), contents), "0" * 64, {"manifest": manifest.digest(data)}, contents)
    assert names(tmp_path) == ["mypkg.kernels"]
    (path,) = tmp_path.rglob(manifest.FILE_NAME)
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(ManifestError, match=r"was altered: its digest differs from the one in entry\.json"):
        collect(str(tmp_path))


@pytest.mark.usefixtures("importable")
def test_a_projects_folder_does_not_hide_the_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    for name in ("mypkg", "wheels", "json"):
        (project / name).mkdir(parents=True)
    monkeypatch.chdir(project)
    assert names("mypkg") == ["mypkg.kernels", "mypkg.sub.more"]
    for name in ("wheels", "json", "./mypkg"):
        with pytest.raises(TargetError, match=rf"^{name} holds no module"):
            names(name)
    modules.write_package(project, "mypkg.kernels")
    assert names("mypkg") == ["mypkg.kernels"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mypkg", ["mypkg.kernels", "mypkg.sub.more"]),
        ("mypkg.kernels", ["mypkg.kernels"]),
        ("mypkg.sub", ["mypkg.sub.more"]),
        ("mypkg.sub.more", ["mypkg.sub.more"]),
    ],
)
@pytest.mark.usefixtures("importable")
def test_importable_name_is_found_and_not_imported(name: str, expected: list[str]) -> None:
    assert names(name) == expected
    assert not [module for module in sys.modules if module.partition(".")[0] == "mypkg"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.at.all", "there is no file, folder or importable module nothing.at.all"),
        ("json.decoder", "json.decoder holds no module that aotcuda built.*"),
        ("mypkg.nothing", "the package mypkg has no module nothing"),
        ("mypkg.kernels.axpy", "the package mypkg has no module kernels.axpy"),
    ],
)
@pytest.mark.usefixtures("importable")
def test_name_without_a_packaged_module_is_refused(name: str, message: str) -> None:
    with pytest.raises(TargetError, match=f"^{message}$"):
        collect(name)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("notes.txt", b"hello", "is neither a wheel nor a fatbin nor a cubin"),
        (
            "mypkg-1.0.tar.gz",
            gzip.compress(b"content", mtime=0),
            "is an sdist, in which nothing is compiled yet; build a wheel",
        ),
        ("other.whl", hostile.wheel([("other.py", b"")]), "holds no module that aotcuda built"),
        (
            "odd.fatbin",
            hostile.fatbin(hostile.entry(2, b"\x7fELV" + bytes(100))),
            ": the image for sm_90 is not a cubin",
        ),
    ],
)
def test_file_without_a_module_is_refused(name: str, content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises((TargetError, ImageError), match=re.escape(name) + ".*" + problem):
        collect(str(tmp_path / name))


def test_folder_of_wheels_gets_the_name_of_one_wheel(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with pytest.raises(TargetError, match=rf"^{wheels} holds no module [^;]*$"):
        collect(str(wheels))
    modules.write_wheel(tmp_path / "content", "mypkg.kernels").rename(wheels / "b.whl")
    with pytest.raises(TargetError, match=rf"holds no module .*; name the wheel itself: {wheels}/b\.whl$"):
        collect(str(wheels))
    (wheels / "a.whl").touch()
    with pytest.raises(TargetError, match=rf"; name the wheel itself: {wheels}/a\.whl \(1 more in its folder\)$"):
        collect(str(wheels))


@pytest.mark.parametrize("command", [["inspect"], ["config", "--includes"], ["diff", "a.whl"], ["check"]])
def test_empty_target_is_refused(command, tmp_path, monkeypatch, capsys):
    modules.write_package(tmp_path)
    modules.write_wheel(tmp_path / "content").rename(tmp_path / "a.whl")
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command, ""]) == 1
    assert capsys.readouterr().err == "aotcuda: '' is no wheel, folder, module or fatbin; name one\n"


def edit(change: Callable[[dict], object]) -> Callable[[Path], None]:
    """Return a function that changes the manifest, and its digest in the generated module."""

    def apply(folder: Path) -> None:
        path = folder / manifest.FILE_NAME
        content = json.loads(path.read_bytes())
        change(content)
        path.write_bytes(manifest.dump(content))
        folder.with_suffix(".py").write_text(manifest.digest(path.read_bytes()))

    return apply


def swap_code(folder: Path) -> None:
    """Replace the images by other code for equal targets, and the fatbin's size and digest in the manifest."""
    content = [("sass", arch, images.cuda_cubin(arch, "-maxrregcount=32")) for arch in modules.SASS]
    content.append(("ptx", modules.PTX, images.numba_ptx(modules.PTX)))
    data = images.pack(content, "-compress-mode=size")
    (folder / "kernels.fatbin").write_bytes(data)
    edit(lambda content: content["fatbins"][0].update(file=manifests.file("kernels.fatbin", data)))(folder)


DAMAGE = {
    "no manifest": (
        lambda folder: (folder / "manifest.json").unlink(),
        r"kernels\.aotcuda/manifest\.json cannot be read \(No such file or directory\); install the package again",
    ),
    "manifest altered": (
        lambda folder: (folder / "manifest.json").write_bytes((folder / "manifest.json").read_bytes() + b"\n"),
        r"manifest\.json was altered: it is not the one that kernels\.py was generated with",
    ),
    "no fatbin": (
        lambda folder: (folder / "kernels.fatbin").unlink(),
        r"kernels\.aotcuda/kernels\.fatbin cannot be read",
    ),
    "fatbin truncated": (
        lambda folder: (folder / "kernels.fatbin").write_bytes((folder / "kernels.fatbin").read_bytes()[:-8]),
        r"kernels\.fatbin has \d+ bytes where the manifest says \d+",
    ),
    "fatbin altered": (
        lambda folder: (folder / "functions.fatbin").write_bytes(
            (folder / "functions.fatbin").read_bytes()[:-1] + b"!"
        ),
        r"functions\.fatbin was altered: its SHA-256 is not the manifest's",
    ),
    "path out of the folder": (
        edit(lambda content: content["fatbins"][0]["file"].update(path="../kernels.py")),
        r"manifest\.json was altered: its `files` cannot be read",
    ),
    "an image less": (
        edit(lambda content: content["fatbins"][0]["images"].pop()),
        r"manifest\.json does not list the images that its fatbin holds",
    ),
    "another digest": (
        edit(lambda content: content["fatbins"][0]["images"][1].update(sha256="0" * 64)),
        r"kernels\.aotcuda: the sass image for sm_90 is not the one in manifest\.json",
    ),
    "a kernel that is in no image": (
        edit(lambda content: content["kernels"][1]["overloads"][0].update(symbol="axpy__7")),
        r"kernels\.aotcuda: the image for sm_75 lacks the kernel axpy__7",
    ),
    "images of other code": (swap_code, r"kernels\.aotcuda: the sass image for sm_75 is not the one in manifest\.json"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_module_gives_an_error_with_the_file(kind: str, tmp_path: Path) -> None:
    damage, message = DAMAGE[kind]
    folder = modules.write_package(tmp_path) / "kernels.aotcuda"
    damage(folder)
    with pytest.raises(ManifestError, match=message) as error:
        collect(str(folder))
    assert "\n" not in str(error.value)


SOURCE = b"__device__ int f() { return 1; }\n"


def _with_sources(root: Path, path: str = "csrc/f.cu") -> Path:
    """Write a module whose wheel holds a file for the JIT fallback, and return its data folder."""
    content, fatbins = modules.contents()
    folder = "mypkg/kernels.aotcuda/sources"
    content["rebuild"] = {"table": {}, "names": {}, "root": folder, "files": [manifests.file(path, SOURCE)]}
    written = modules.write(root, content, fatbins)
    (written / "sources" / "csrc").mkdir(parents=True)
    (written / "sources" / "csrc" / "f.cu").write_bytes(SOURCE)
    return written


def _pack(root: Path) -> Path:
    wheel = root.parent / "mypkg-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in root.rglob("*"):
            if path.is_file():
                archive.write(path, path.relative_to(root))
    return wheel


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda file: file.write_bytes(SOURCE.replace(b"1", b"2")), r"sources/csrc/f\.cu was altered: its SHA-256 is"),
        (lambda file: file.write_bytes(SOURCE[:5]), r"sources/csrc/f\.cu has 5 bytes where the manifest says 33"),
        (
            lambda file: file.write_bytes(SOURCE * 2),
            r"sources/csrc/f\.cu has (more|66) bytes where the manifest says 33",
        ),
        (lambda file: file.unlink(), r"sources/csrc/f\.cu (cannot be read|is missing)"),
    ],
)
def test_altered_files_for_the_jit_are_noticed(change, problem, packed, tmp_path):
    root = tmp_path / "content"
    folder = _with_sources(root)
    assert collect(str(_pack(root) if packed else folder)).modules
    change(folder / "sources" / "csrc" / "f.cu")
    with pytest.raises(ManifestError, match=problem) as error:
        collect(str(_pack(root) if packed else folder))
    assert "\n" not in str(error.value)
    carried, root = (manifests.file("csrc/f.cu", SOURCE),), str(folder / "sources")
    with pytest.raises(ManifestError, match=r"csrc/f\.cu"):
        linked_modules.check_carried(carried, root)
    with pytest.raises(ManifestError, match=r"csrc/f\.cu"):  # before it compiles anything
        jit.build(Request("mypkg.kernels", {}, root, str(tmp_path), names={}, carried=carried))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["../f.cu", "/f.cu", "csrc/../../f.cu", "", "csrc//f.cu"])
def test_listed_files_outside_the_folder_are_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"is no file name; install the package again"):
        collect(str(_with_sources(tmp_path, path)))
