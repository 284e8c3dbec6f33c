"""Test what can be inspected, where it is found, that nothing of it is imported, and what damage is called."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from aotcuda import cli, manifest
from aotcuda.cache import entries
from aotcuda.errors import ImageError, ManifestError, TargetError
from aotcuda.tools.inspect.collect import collect
from support import images, modules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def names(target: object) -> list[str]:
    return [module.name for module in collect(str(target)).modules]


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`mypkg`, which raises when it is imported, on the import path."""
    package = modules.write_package(tmp_path, "mypkg.kernels", "mypkg.sub.more")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return package


def test_a_wheel_shows_each_of_its_modules_by_name(tmp_path: Path) -> None:
    assert names(modules.write_wheel(tmp_path, "mypkg.kernels", "mypkg.sub.more")) == [
        "mypkg.kernels",
        "mypkg.sub.more",
    ]


def test_a_folder_shows_every_module_below_it(tmp_path: Path) -> None:
    package = modules.write_package(tmp_path, "mypkg.kernels", "mypkg.sub.more")
    assert names(tmp_path) == names(package) == ["mypkg.kernels", "mypkg.sub.more"]
    assert names(package / "sub") == ["mypkg.sub.more"]


def test_a_data_folder_without_the_generated_module_can_be_read(tmp_path: Path) -> None:
    package = modules.write_package(tmp_path)
    (package / "kernels.py").unlink()
    assert names(package / "kernels.aotcuda") == ["mypkg.kernels"]


def entry_of_a_cache(root: Path) -> Path:
    """Return what the JIT fallback keeps of a module that is packaged in place: no mark lies beside that manifest."""
    whole, fatbins = modules.contents()
    data = manifest.dump({**whole, "in_place": True})
    contents = {**fatbins, manifest.FILE_NAME: data}
    entries.write(entries.Files(str(root), contents), "0" * 64, {"manifest": manifest.digest(data)}, contents)
    return root


def test_an_entry_of_the_fallbacks_cache_shows_a_module_in_place(tmp_path: Path) -> None:
    assert names(entry_of_a_cache(tmp_path)) == ["mypkg.kernels"]


def test_a_manifest_that_an_entry_of_the_fallbacks_cache_does_not_name_is_told(tmp_path: Path) -> None:
    (path,) = entry_of_a_cache(tmp_path).rglob(manifest.FILE_NAME)
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(ManifestError, match=r"was altered: its digest differs from the one in entry\.json"):
        collect(str(tmp_path))


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
def test_an_importable_name_is_found_and_nothing_is_imported(name: str, expected: list[str]) -> None:
    assert names(name) == expected
    assert not [module for module in sys.modules if module.partition(".")[0] == "mypkg"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.at.all", "there is no file, folder or importable module nothing.at.all"),
        ("mypkg.nothing", "the package mypkg has no module nothing"),
        ("mypkg.kernels.axpy", "the package mypkg has no module kernels.axpy"),
    ],
)
@pytest.mark.usefixtures("importable")
def test_a_name_that_cannot_be_imported_is_said_to_be_nowhere(name: str, message: str) -> None:
    with pytest.raises(TargetError, match=f"^{message}$"):
        collect(name)


@pytest.mark.parametrize("name", ["json", "json.decoder", "sys"])
def test_a_module_that_aotcuda_did_not_build_is_said_to_be_none(name: str) -> None:
    with pytest.raises(TargetError, match=rf"^{name} holds no module that aotcuda built"):
        collect(name)


def test_an_empty_folder_and_a_foreign_wheel_hold_no_module(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="holds no module that aotcuda built"):
        collect(str(tmp_path))
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("other.py", "")
    with pytest.raises(TargetError, match=r"other\.whl holds no module that aotcuda built"):
        collect(str(tmp_path / "other.whl"))


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(TargetError, match=r"notes\.txt is neither a wheel nor a fatbin nor a cubin"):
        collect(str(tmp_path / "notes.txt"))


def test_a_folder_of_wheels_names_one_to_inspect(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08", gzip.compress(b"content")], ids=["empty", "cut", "whole"])
@pytest.mark.parametrize("name", ["mypkg-1.0.tar.gz", "mypkg-1.0.gz", "mypkg"])
def test_an_sdist_is_told_that_nothing_in_it_is_compiled(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TargetError, match=rf"^{tmp_path}/{name} is ") as error:
        collect(str(tmp_path / name))
    said = "is an sdist, in which nothing is compiled yet; build a wheel of it, and inspect that"
    assert (said in str(error.value)) == (bool(content) and name.endswith(".tar.gz"))


@pytest.mark.parametrize("command", [["inspect"], ["config", "--includes"], ["diff", "a.whl"], ["check"]])
def test_a_target_has_a_name(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    modules.write_package(tmp_path)
    modules.write_wheel(tmp_path / "content").rename(tmp_path / "a.whl")
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command, ""]) == 1
    assert capsys.readouterr().err == "aotcuda: '' is no wheel, folder, module or fatbin; name one\n"


def edit(change: Callable[[dict], object]) -> Callable[[Path], None]:
    """Return a change to the manifest that the generated module follows."""

    def apply(folder: Path) -> None:
        path = folder / manifest.FILE_NAME
        whole = json.loads(path.read_bytes())
        change(whole)
        path.write_bytes(manifest.dump(whole))
        folder.with_suffix(".py").write_text(manifest.digest(path.read_bytes()))

    return apply


def swap_code(folder: Path) -> None:
    """Images of other code for the same targets, with the fatbin's size and digest in the manifest to match."""
    content = [("sass", arch, images.cuda_cubin(arch, "-maxrregcount=32")) for arch in modules.SASS]
    content.append(("ptx", modules.PTX, images.numba_ptx(modules.PTX)))
    data = images.pack(content, "-compress-mode=size")
    (folder / "kernels.fatbin").write_bytes(data)
    file = {"path": "kernels.fatbin", "bytes": len(data), "sha256": manifest.digest(data)}
    edit(lambda whole: whole["files"].update(kernels=file))(folder)


DAMAGE = {
    "no manifest": (
        lambda folder: (folder / "manifest.json").unlink(),
        r"kernels\.aotcuda/manifest\.json cannot be read \(No such file or directory\); install the package again",
    ),
    "manifest altered": (
        lambda folder: (folder / "manifest.json").write_bytes((folder / "manifest.json").read_bytes() + b"\n"),
        r"manifest\.json was altered: it is not the one that kernels\.py was generated with",
    ),
    "manifest truncated": (
        lambda folder: (folder / "manifest.json").write_bytes((folder / "manifest.json").read_bytes()[:100]),
        r"manifest\.json is not a readable manifest",
    ),
    "newer format": (
        edit(lambda whole: whole.update(format=manifest.FORMAT + 1)),
        r"manifest\.json has manifest format 3, newer than this aotcuda reads \(2\); upgrade it",
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
        edit(lambda whole: whole["files"]["kernels"].update(path="../kernels.py")),
        r"manifest\.json was altered: its `files` cannot be read",
    ),
    "files of another shape": (
        edit(lambda whole: whole.update(files=[])),
        r"manifest\.json was altered: files is not an object\.",
    ),
    "kernels of another shape": (
        edit(lambda whole: whole.update(kernels=[{"name": "axpy"}])),
        r"manifest\.json was altered: kernels\[0\]\.origin is missing\.",
    ),
    "an image less": (
        edit(lambda whole: whole["images"].pop()),
        r"manifest\.json does not list the images that its fatbin holds",
    ),
    "no function images": (
        edit(lambda whole: whole["files"].pop("functions")),
        r"manifest\.json does not list the images that its fatbin holds",
    ),
    "another arch": (
        edit(lambda whole: whole["images"][0].update(arch="sm_80")),
        r"manifest\.json does not list the images that its fatbin holds",
    ),
    "another digest": (
        edit(lambda whole: whole["images"][1].update(sha256="0" * 64)),
        r"kernels\.aotcuda: the sass image for sm_90 is not the one in manifest\.json",
    ),
    "another LTOIR": (
        edit(lambda whole: whole["ltoir"][0].update(bytes=1)),
        r"kernels\.aotcuda: the ltoir image for sm_75 is not the one in manifest\.json",
    ),
    "a kernel that is in no image": (
        edit(lambda whole: whole["kernels"][1]["overloads"][0].update(symbol="axpy__7")),
        r"kernels\.aotcuda: the image for sm_75 lacks the kernel axpy__7",
    ),
    "images of other code": (swap_code, r"kernels\.aotcuda: the sass image for sm_75 is not the one in manifest\.json"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_an_error_that_names_the_file(kind: str, tmp_path: Path) -> None:
    damage, message = DAMAGE[kind]
    folder = modules.write_package(tmp_path) / "kernels.aotcuda"
    damage(folder)
    with pytest.raises(ManifestError, match=message) as error:
        collect(str(folder))
    assert "\n" not in str(error.value)


def test_a_fatbin_whose_cubin_is_no_cubin_names_the_image(tmp_path: Path) -> None:
    data = images.pack([("sass", "sm_90", images.numba_cubin("sm_90"))], "-compress-mode=none")
    (tmp_path / "odd.fatbin").write_bytes(data.replace(b"\x7fELF", b"\x7fELV", 1))
    with pytest.raises(ImageError, match=r"odd\.fatbin: the image for sm_90 is not a cubin"):
        collect(str(tmp_path / "odd.fatbin"))
