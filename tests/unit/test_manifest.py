"""Test that manifests are read, and that altered, foreign and newer ones are refused."""

from __future__ import annotations

import json
import os
import re
import sys
import typing

import pytest

from aotcuda import manifest
from aotcuda.errors import ManifestError
from aotcuda.manifest import schema
from aotcuda.version import is_older
from support import damage, grids, manifests


@pytest.fixture
def folder(tmp_path):
    return manifests.write(tmp_path, [manifests.kernel("axpy", "void(float32, float32[::1])")])


def content(folder):
    return json.loads((folder / manifest.FILE_NAME).read_bytes())


def test_dumped_manifest_reads_back_equal(folder):
    data = (folder / manifest.FILE_NAME).read_bytes()
    parsed = manifest.parse(data, "manifest.json", sha256=manifest.digest(data))
    assert manifest.dump(parsed) == data
    assert parsed["kernels"][0]["name"] == "axpy"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b"{}", b'{"format": 1', b"\xff\xfe", b"[" * 100_000])
def test_data_without_a_manifest_is_refused(data):
    with pytest.raises(ManifestError, match=r"some/manifest\.json .*truncated or altered"):
        manifest.parse(data, "some/manifest.json")


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        (1, "format 1, and this aotcuda reads format 3; build the package again with aotcuda 0.1.0 or later"),
        (4, "format 4, newer than this aotcuda reads (3); upgrade it: pip install --upgrade aotcuda"),
        (10**99, "format 1000 or later, newer than this aotcuda reads (3); upgrade it: pip install --upgrade aotcuda"),
    ],
)
@pytest.mark.parametrize("digest", [None, "0" * 64])
def test_another_format_is_refused_in_one_line(number, problem, digest):
    with pytest.raises(ManifestError) as caught:
        manifest.parse(json.dumps({"format": number}).encode(), "a/manifest.json", sha256=digest)
    assert str(caught.value) == f"a/manifest.json has manifest {problem}"


def test_digest_detects_a_changed_byte(folder):
    data = (folder / manifest.FILE_NAME).read_bytes()
    altered = data.replace(b"axpy", b"axpz")
    assert manifest.parse(altered, "manifest.json")
    with pytest.raises(ManifestError, match="does not match the digest"):
        manifest.parse(altered, "manifest.json", sha256=manifest.digest(data))


def test_frozen_application_without_data_gets_the_option_to_add(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    path = tmp_path / "mypkg" / "sub" / "kernels.aotcuda" / manifest.FILE_NAME
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path), raising=False)
    with pytest.raises(ManifestError, match=r"was frozen .*: add --collect-data mypkg to PyInstaller's"):
        manifest.read(str(path))


def test_file_is_compared_with_its_size_and_digest(folder):
    file = content(folder)["fatbins"][0]["file"]
    path = folder / "kernels.fatbin"
    original = path.read_bytes()
    assert manifest.read_file(str(folder), file) == original
    size = len(original)
    for data, problem in [
        (original[:-1], f"has {size - 1} bytes where the manifest says {size}"),
        (original[:-1] + b"!", r"kernels\.fatbin was altered"),
        (original + b"more", f"has more bytes where the manifest says {size}"),
    ]:
        path.write_bytes(data)
        with pytest.raises(ManifestError, match=problem):
            manifest.read_file(str(folder), file)
    path.unlink()
    with pytest.raises(ManifestError, match=r"kernels\.fatbin cannot be read"):
        manifest.read_file(str(folder), file)


def test_pipe_is_refused_without_waiting(folder):
    path = folder / manifest.FILE_NAME
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ManifestError, match=r"manifest\.json is a \w+, not a regular file; install"):
        manifest.read(str(path))
    (folder / "kernels.fatbin").unlink()
    os.mkfifo(folder / "kernels.fatbin")
    with pytest.raises(ManifestError, match=r"kernels\.fatbin is a \w+, not a regular file; install"):
        manifest.read_file(str(folder), {"path": "kernels.fatbin", "bytes": 8, "sha256": ""})


@pytest.mark.parametrize("data", [b" " * (manifest.LARGEST + 1), b"[" * 1_000_001, b"," * 2_000_001])
def test_too_large_manifest_is_not_decoded(data, monkeypatch):
    monkeypatch.setattr(json, "loads", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(ManifestError, match=r"^manifest\.json is no manifest: .* bytes are more than it may have"):
        manifest.parse(data, "manifest.json")


def alter(change):
    """Return the file of a manifest with one change."""
    content = json.loads(json.dumps(damage.full_manifest()))
    change(content)
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda content: content.update(module=7), "module is not a string"),
        (lambda content: content.update(format=True), "format is not a whole number"),
        (lambda content: content.update(load="never"), "load is not one of import, first-use"),
        (lambda content: content.update(min_driver=580), "min_driver is not a version"),
        (lambda content: content.update(kernels={}), "kernels is not a list"),
        (lambda content: content["toolchain"].update({"\n": 1}), r"toolchain\['\\n'\] is not a string"),
        (
            lambda content: images_of(content)[1].update(arch="sm_9"),
            r"fatbins\[0\]\.images\[1\]\.arch is not a target such as sm_90",
        ),
        (
            lambda content: images_of(content).append(images_of(content)[0]),
            r"fatbins\[0\]\.images lists a target twice",
        ),
        (
            lambda content: images_of(content)[0].update(bytes=-1),
            r"fatbins\[0\]\.images\[0\]\.bytes is not a whole number from 0",
        ),
        (lambda content: content["fatbins"].append(content["fatbins"][0]), "fatbins lists a file twice"),
        *[
            (change, rf"{where}\.fatbin names none of the fatbins")
            for change, where in (
                (lambda content: overload_of(content).update(fatbin=1), r"kernels\[1\]\.overloads\[0\]"),
                (lambda content: content["callbacks"][0].update(fatbin=1), r"callbacks\[0\]"),
                (lambda content: content["linked"][0].update(fatbin=2), r"linked\[0\]"),
                (lambda content: content.update({"globals": {"x": {"symbol": "x", "fatbin": 9}}}), r"globals\['x'\]"),
                (lambda content: (content["fatbins"].clear(), overload_of(content).update(fatbin=0)), "kernels.*"),
            )
        ],
        (
            lambda content: parameter(content, 1).update(ndim=2**40),
            r"parameters\[1\]\.ndim is not a whole number below 65",
        ),
        (
            lambda content: parameter(content, 1).update(words=["shape2"]),
            r"parameters\[1\]\.words names something that an array of 2",
        ),
        (
            lambda content: parameter(content, 0).update(offset=1 << 16),
            r"parameters\[0\]\.offset is not a whole number below 65,536",
        ),
        (
            lambda content: parameter(content, 3)["members"][1].pop("words"),
            r"parameters\[3\]\.members\[1\]\.words is missing",
        ),
        (
            lambda content: content.update(linked=[{"name": "a", "symbols": ["f", None]}]),
            r"linked\[0\]\.symbols\[1\] is not a string",
        ),
    ],
)
def test_manifest_without_a_digest_is_compared_with_the_schema(change, problem):
    data = alter(change)
    with pytest.raises(
        ManifestError, match=rf"^manifest\.json was altered: .*{problem}.*\. Install the package again\.$"
    ):
        manifest.parse(data, "manifest.json")
    # A build wrote the manifest if a generated module has its digest.
    assert manifest.parse(data, "manifest.json", sha256=manifest.digest(data))


def images_of(content):
    return content["fatbins"][0]["images"]


def overload_of(content):
    return content["kernels"][1]["overloads"][0]


def parameter(content, at):
    return content["kernels"][1]["overloads"][0]["parameters"][at]


def test_deeply_nested_parameters_are_refused():
    nested = b'{"name":"","type":"","kind":"tuple","offset":0,"members":[' * 400 + b"]}" * 400
    data = alter(lambda content: content["kernels"][1]["overloads"][0].update(parameters=["NESTED"]))
    with pytest.raises(ManifestError, match=r"nested too deeply|truncated or altered"):
        manifest.parse(data.replace(b'"NESTED"', nested), "manifest.json")


KEYS = typing.get_type_hints(schema.Manifest, include_extras=True)
REQUIRED = [key for key, hint in KEYS.items() if typing.get_origin(hint) is not typing.NotRequired]


@pytest.mark.parametrize("key", REQUIRED)
def test_key_without_not_required_is_required(key):
    content = json.loads(json.dumps(damage.full_manifest()))
    del content[key]
    assert schema.problem(content) == f"{key} is missing"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [(None, None), ("x", None), (True, "is not a string"), ([], "is not a string"), ({}, "is not a string")],
)
def test_union_accepts_each_of_its_types_alone(answer, problem):
    content = json.loads(json.dumps(damage.full_manifest()))
    content["reads"] = [{"ask": "content", "path": "a", "answer": answer}]
    assert schema.problem(content) == (problem and f"reads[0].answer {problem}")


@pytest.mark.parametrize("digest", [None, "0" * 64])
def test_newer_floor_is_reported_before_other_differences(digest):
    newer = {"format": 7, "floor": "3.10"}
    with pytest.raises(ManifestError) as caught:
        manifest.parse(json.dumps(newer).encode(), "mypkg/kernels.aotcuda/manifest.json", sha256=digest)
    assert str(caught.value) == (
        "mypkg/kernels.aotcuda/manifest.json needs aotcuda 3.10 or later, and this is 0.1.0; upgrade it: "
        "pip install --upgrade 'aotcuda>=3.10'"
    )


@pytest.mark.parametrize("floor", [7, None, "", ".", "newest", "1" * 5000 + "x", "9\n9", "\u0663.1", ["1"]])
def test_floor_without_a_version_is_refused(folder, floor):
    with pytest.raises(ManifestError, match=r"^manifest\.json was altered: floor is not a version"):
        manifest.parse(json.dumps({**content(folder), "floor": floor}).encode(), "manifest.json")


@pytest.mark.parametrize(
    ("version", "floor", "older"),
    [
        *[("0.1.0", "0.1.1", True), ("0.1", "0.1.0.1", True), ("0.9", "0.10", True), ("1.9.9", "2", True)],
        *[("0.2.0rc1", "0.2.1", True), ("", "1", True), ("0.2.0", "0.2", False), ("0.2", "0.2.0", False)],
        *[("0.2.0rc1", "0.2.0", False), ("0.2.0.dev3+local", "0.2", False)],
    ],
)
def test_versions_are_ordered_by_their_numbers(version, floor, older):
    assert is_older(version, floor) == older
    assert not is_older(floor, version)


def test_schema_has_the_kinds_that_the_floor_knows():
    # To add a kind of parameter or image, or a word, raise `manifest.FLOOR` to the first version that has it, and add a
    # line here.
    kinds = "scalar complex pointer datetime record array type tuple elements number constant buffer"
    kinds = f"{kinds} struct small descriptor"
    by_floor = {"0.1.0": (3, kinds, "sass ptx ltoir", "zero one items itemsize data shape stride step")}
    declared = typing.get_args(typing.get_type_hints(schema.Parameter)["kind"])
    images = typing.get_args(typing.get_type_hints(schema.Image)["kind"])
    words = re.findall("[a-z]+", schema._WORD.pattern.replace("\\d", ""))
    assert by_floor[manifest.FLOOR] == (manifest.FORMAT, " ".join(declared), " ".join(images), " ".join(words))


def exact(tmp_path, count: int = 400) -> bytes:
    """Return the manifest of an exact kernel with many variants, which have few different parameters."""
    variants = [grids.variant(f"k{at}", 128 * (1 + at % 7), act=at % 11) for at in range(count)]
    kernel = grids.kernel(*variants) | {"exact": True}
    path = manifests.write(tmp_path, [kernel, manifests.kernel("axpy", "void(float32)")], by_grid=True)
    return (path / manifest.FILE_NAME).read_bytes()


def test_variants_share_equal_parts(tmp_path):
    data = exact(tmp_path)
    kernel, other = manifest.parse(data, "manifest.json")["kernels"]
    assert [overload["parameters"][4]["value"] for overload in kernel["overloads"]] == [at % 11 for at in range(400)]
    assert kernel["overloads"][0]["launches"]["sm_90"]["shared"] == 512
    assert "shared" not in kernel
    assert other["overloads"][0]["parameters"][0]["type"] == "float32"
    assert len({id(part) for overload in kernel["overloads"] for part in overload["parameters"]}) < 30
    assert len(data) < 400 * 500
    parsed = manifest.parse(data, "manifest.json", sha256=manifest.digest(data))
    assert manifest.dump(parsed) == manifest.dump(json.loads(data)) == data


@pytest.mark.parametrize(
    "change",
    [
        lambda kernel: kernel["shared"].clear(),
        lambda kernel: kernel.update(shared=None),
        lambda kernel: kernel["overloads"][3]["parameters"].append(10**6),
        lambda kernel: kernel["overloads"][3].update(parameters="012"),
        lambda kernel: kernel["overloads"][3].update(launches=[0]),
        lambda kernel: kernel["overloads"][3].pop("parameters"),
        lambda kernel: kernel.update(overloads=None),
        lambda kernel: kernel["shared"].append([0] * 10**5) or kernel["overloads"][0].update(parameters=[-1] * 1000),
    ],
)
@pytest.mark.parametrize("digest", [True, False])
def test_missing_shared_parts_are_refused(tmp_path, change, digest):
    content = json.loads(exact(tmp_path, 9))
    change(content["kernels"][0])
    data = json.dumps(content).encode()
    with pytest.raises(ManifestError, match="altered"):
        manifest.parse(data, "manifest.json", sha256=manifest.digest(data) if digest else None)
