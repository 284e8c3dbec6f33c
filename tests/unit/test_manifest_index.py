"""A long manifest is read in the parts that are needed, and each part only as its digest vouches for it."""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import sys

import pytest

from aotcuda import cli, manifest
from aotcuda.errors import ManifestError
from aotcuda.manifest import index as manifest_index
from aotcuda.manifest import parts as manifest_parts
from aotcuda.runtime.images.choice import choose
from support import manifests

SIGNATURE = "void(float32, float32[::1])"
KERNELS = [manifests.kernel(f"k{number}", SIGNATURE) for number in range(120)]


@pytest.fixture
def folder(tmp_path):
    return manifests.write(tmp_path, KERNELS, functions=("add",))


def files(folder):
    """The manifest and its index, as bytes."""
    return (folder / manifest.FILE_NAME).read_bytes(), (folder / manifest.INDEX_NAME).read_bytes()


def outline(folder):
    data, index = files(folder)
    path = str(folder / manifest.FILE_NAME)
    return manifest_parts.read(path, sha256=manifest.digest(data), index=manifest.digest(index))


def test_every_part_says_what_the_whole_says(folder):
    data, _ = files(folder)
    whole = json.loads(data)
    found = outline(folder)
    assert found.names == [kernel["name"] for kernel in whole["kernels"]]
    assert [found.kernel(name) for name in found.names] == whole["kernels"]
    assert found.kernel("nothing") is None
    assert {key: whole[key] for key in found.head} == found.head
    assert found.whole() == whole
    assert found.kernel("k7") == whole["kernels"][7]


def test_a_choice_by_the_index_is_the_one_by_the_whole(tmp_path):
    """Also where several toolkits made the images."""
    versions = {"cuda": "13.0", "nvjitlink": "13.5"}
    folder = manifests.write(
        tmp_path,
        KERNELS,
        targets=("sm_75", "sm_110@13.5", "compute_75@12.0"),
        toolchain={"cuda": "12.9", "nvjitlink": "12.9"},
        toolchains=[{"versions": versions, "function_links": [], "ltoir": []}],
    )
    found = outline(folder)
    whole = found.whole()
    assert whole["toolchains"][0]["versions"] == versions
    for capability in ((7, 5), (8, 0), (11, 0), (7, 0)):
        for driver in ((11, 8), (12, 0), (12, 9), (13, 0), (13, 5)):
            by_index, by_whole = (choose(one, capability, driver=driver) for one in (found.head, whole))
            assert (by_index.arch, str(by_index)) == (by_whole.arch, str(by_whole))


def test_a_whole_manifest_answers_alike(folder):
    whole = json.loads(files(folder)[0])
    found = manifest.Outline(whole)
    assert (found.head, found.whole()) == (whole, whole)
    assert [found.kernel(name) for name in found.names] == whole["kernels"]
    assert found.kernel("nothing") is None


@pytest.mark.parametrize("run", [1, 1000, 1 << 30])
def test_runs_of_any_size_hold_every_kernel_once(folder, monkeypatch, run):
    monkeypatch.setattr(manifest_index, "least_run", lambda _size: run)
    data, _ = files(folder)
    whole = json.loads(data)
    index = json.loads(manifest_index.make(whole, data))
    assert [name for part in index["parts"] for name in part["names"]] == [kernel["name"] for kernel in KERNELS]
    assert len(index["parts"]) == {1: 120, 1 << 30: 1}.get(run, len(index["parts"]))
    for part in index["parts"]:
        records = json.loads(b"[%s]" % data[part["start"] : part["end"]])
        assert [record["name"] for record in records] == part["names"]
    manifest_index.check(whole, data, "manifest.json", index)


@pytest.mark.parametrize("count", [50, 200, 1000])
def test_a_launch_reads_about_the_least_that_it_can(count):
    """Runs of half the size, or of twice, would not make index and run together any shorter."""
    kernels = [manifests.kernel(f"k{number}", SIGNATURE) for number in range(count)]
    whole = manifests.whole(kernels=kernels)
    data = manifest.dump(whole)

    def taken(factor):
        with pytest.MonkeyPatch.context() as patch:
            least = manifest_index.least_run(len(data))
            patch.setattr(manifest_index, "least_run", lambda _size: int(factor * least))
            index = manifest_index.make(whole, data)
        return len(index) + max(part["end"] - part["start"] for part in json.loads(index)["parts"])

    assert taken(1) <= 1.02 * min(taken(0.5), taken(2))


def test_names_that_look_like_the_file_s_own_marks_are_text_in_it():
    odd = manifests.kernel("odd", SIGNATURE)
    odd["origin"] = "\n  },\n  {\n"
    whole = manifests.whole(kernels=[odd, *KERNELS], generator='\n "kernels": [\n', handle="\n ],\n")
    data = manifest.dump(whole)
    index = json.loads(manifest_index.make(whole, data))
    found = manifest_parts.Parts(index, data, "manifest.json")
    assert [found.kernel(name) for name in found.names] == [odd, *KERNELS]


def test_a_short_manifest_has_no_index(tmp_path):
    folder = manifests.write(tmp_path, KERNELS[:2])
    assert not (folder / manifest.INDEX_NAME).exists()
    assert (
        manifest_index.make(manifests.whole(functions=[manifests.function(f"f{n}") for n in range(500)]), b" " * 99999)
        is None
    )


def test_equal_manifests_have_equal_indices(folder, tmp_path):
    again = manifests.write(tmp_path / "again", KERNELS, functions=("add",))
    assert files(folder) == files(again)


@pytest.fixture
def decoded(monkeypatch):
    """The sizes of what is taken apart from now on."""
    sizes = []
    real = manifest.decoded

    def noted(data):
        sizes.append(len(data))
        return real(data)

    monkeypatch.setattr(manifest, "decoded", noted)
    return sizes


def test_a_launch_reads_the_index_and_one_run(cuda, decoded):
    module = cuda.package(*KERNELS)
    data, index = files(cuda.packages / "mypkg/kernels.aotcuda")
    assert decoded == [len(index)]
    module.k77[1, 32](2.0, cuda.array())
    assert len(decoded) == 2
    assert decoded[1] < 2 * manifest_index.least_run(len(data)) < len(data) / 4
    assert cuda.launches()[-1]["kernel"] == "k77_0"
    module.k78[1, 32](2.0, cuda.array())
    assert module.k78.signatures == [SIGNATURE]
    assert len(decoded) == 2
    assert len(dir(module)) > len(KERNELS)
    assert len(module.__aotcuda__.manifest["kernels"]) == len(KERNELS)


def test_what_is_replaced_while_a_process_runs_is_read_as_it_was(cuda):
    module = cuda.package(*KERNELS, functions=("add",))
    folder = cuda.packages / "mypkg/kernels.aotcuda"
    for name in (manifest.FILE_NAME, manifest.INDEX_NAME):
        (folder / name).unlink()  # as installers do
        (folder / name).write_bytes(b"another version's")
    module.k77[1, 32](2.0, cuda.array())
    assert module.add.__name__ == "add"


def test_a_process_that_closes_all_its_files_reads_on_and_closes_no_one_elses(folder):
    gc.collect()  # what tests before this one have left open would give its numbers away in the midst of it
    found = outline(folder)
    number = found._data._descriptor
    os.close(number)  # as a daemon does
    assert found.kernel("k7")["name"] == "k7"
    os.close(found._data._descriptor)
    with (folder / "kernels.fatbin").open("rb") as another:  # which gets the number
        assert another.fileno() == number
        assert found.kernel("k77")["name"] == "k77"
        os.close(found._data._descriptor)
        found._data._descriptor = another.fileno()
        del found
        assert os.fstat(another.fileno())


def test_an_open_manifest_is_closed_with_its_outline(folder):
    found = outline(folder)
    number = found._data._descriptor
    del found
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_a_manifest_with_an_index_that_is_a_pipe_is_not_waited_for(folder):
    digests = [manifest.digest(data) for data in files(folder)]
    (folder / manifest.FILE_NAME).unlink()
    os.mkfifo(folder / manifest.FILE_NAME)
    with pytest.raises(ManifestError, match=r"manifest\.json cannot be read \(it is no regular file\); install"):
        manifest_parts.read(str(folder / manifest.FILE_NAME), sha256=digests[0], index=digests[1])


def test_the_index_s_name_is_not_listed(cuda):
    module = cuda.package(*KERNELS)
    assert module._aotcuda_index
    assert not [name for name in dir(module) if "index" in name]


def test_a_run_time_that_knows_no_index_reads_all_of_it(cuda, decoded):
    folder = manifests.write(cuda.packages, KERNELS)
    generated = folder.with_suffix(".py")
    generated.write_text(re.sub("_aotcuda_index = .*\n", "", generated.read_text()))
    importlib.invalidate_caches()
    module = importlib.import_module("mypkg.kernels")
    assert decoded == [len(files(folder)[0])]
    module.k77[1, 32](2.0, cuda.array())
    assert cuda.launches()[-1]["kernel"] == "k77_0"


def test_an_altered_part_is_refused_when_it_is_read_and_no_other(cuda):
    folder = manifests.write(cuda.packages, KERNELS)
    path = folder / manifest.FILE_NAME
    path.write_bytes(path.read_bytes().replace(b'"k77_0"', b'"k78_0"'))
    importlib.invalidate_caches()
    module = importlib.import_module("mypkg.kernels")
    module.k0[1, 32](2.0, cuda.array())
    with pytest.raises(
        ManifestError, match=r"manifest\.json was altered: what it says of 'k\d+' is not what its index says; install"
    ):
        module.k77[1, 32](2.0, cuda.array())
    with pytest.raises(ManifestError, match=r"manifest\.json does not match the digest"):
        _ = module.__aotcuda__.manifest
    assert [launch["kernel"] for launch in cuda.launches()] == ["k0_0"]


DAMAGES = {
    "index that is gone": (lambda data, index: (data, None), r"index\.json cannot be read"),
    "index that was altered": (
        lambda data, index: (data, index.replace(b'"k77"', b'"k7x"')),
        r"index\.json does not match the digest",
    ),
    "index that was truncated": (lambda data, index: (data, index[:-9]), r"index\.json is not a readable manifest"),
    "index that is no object": (lambda data, index: (data, b"[]"), r"index\.json is not a readable manifest"),
    "index of a later format": (
        lambda data, index: (data, index.replace(b'"format":1', b'"format":9')),
        r"index\.json is of format 9, newer than",
    ),
    "index with a later floor": (
        lambda data, index: (data, index.replace(b'"floor":"0.1.0"', b'"floor":"7.1.0"')),
        r"index\.json needs aotcuda 7\.1\.0 or later",
    ),
    "manifest that is gone": (lambda data, index: (None, index), r"manifest\.json cannot be read"),
    "manifest that was truncated": (
        lambda data, index: (data[:-1], index),
        r"manifest\.json has \d+ bytes where its index says \d+",
    ),
    "manifest with more in it": (
        lambda data, index: (data + b" ", index),
        r"manifest\.json has \d+ bytes where its index says \d+",
    ),
}


@pytest.mark.parametrize(("change", "problem"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_one_line_at_import(cuda, change, problem):
    folder = manifests.write(cuda.packages, KERNELS)
    for name, data in zip((manifest.FILE_NAME, manifest.INDEX_NAME), change(*files(folder)), strict=True):
        (folder / name).unlink()
        if data is not None:
            (folder / name).write_bytes(data)
    importlib.invalidate_caches()
    with pytest.raises(ManifestError, match=problem) as caught:
        importlib.import_module("mypkg.kernels")
    assert "\n" not in str(caught.value)
    assert "nstall" in str(caught.value)
    sys.modules.pop("mypkg", None)


INSPECTED = {
    "index that is gone": (lambda index: None, "index.json cannot be read (No such file"),
    "index that the module does not name": (lambda index: index + b" ", "index.json was altered: it is not the one"),
    "index that is none": (lambda index: b'{"format": 1}', "index.json was altered: floor is missing"),
}


@pytest.mark.parametrize(("change", "problem"), INSPECTED.values(), ids=INSPECTED)
def test_inspection_tells_a_damaged_index(folder, capsys, change, problem):
    path = folder / manifest.INDEX_NAME
    data = change(path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    assert cli.main(["inspect", str(folder)]) == 1
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index["parts"].pop(),
        lambda index: index["parts"].reverse(),
        lambda index: index["parts"][0]["names"].reverse(),
        lambda index: index["parts"][1].update(start=0),
        lambda index: index["head"].update(min_driver="1.0"),
        lambda index: index.update(bytes=7),
    ],
)
def test_inspection_tells_an_index_of_something_else(folder, capsys, change):
    path = folder / manifest.INDEX_NAME
    before = manifest.digest(path.read_bytes())
    index = json.loads(path.read_bytes())
    change(index)
    path.write_text(json.dumps(index))
    generated = folder.with_suffix(".py")
    generated.write_text(generated.read_text().replace(before, manifest.digest(path.read_bytes())))
    assert cli.main(["inspect", str(folder)]) == 1
    said = capsys.readouterr().err
    assert re.search(
        r"manifest\.json (was altered: (its index says|what it says of)|has \d+ bytes where its index)", said
    )
