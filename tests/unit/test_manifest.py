"""Reading a manifest, and refusing what is not one."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path

import pytest

from aotcuda import manifest
from aotcuda import manifest_shape as shape
from aotcuda.errors import ManifestError
from support import damage, manifests


@pytest.fixture
def folder(tmp_path):
    return manifests.write(tmp_path, [manifests.kernel("axpy", "void(float32, float32[::1])")])


def content(folder):
    return json.loads((folder / manifest.FILE_NAME).read_bytes())


def test_what_is_dumped_reads_back_equal_and_dumps_equal(folder):
    data = (folder / manifest.FILE_NAME).read_bytes()
    parsed = manifest.parse(data, "manifest.json", sha256=manifest.digest(data))
    assert manifest.dump(parsed) == data
    assert parsed["kernels"][0]["name"] == "axpy"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b"{}", b'{"format": 1', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_manifest_is_called_truncated_or_altered(data):
    with pytest.raises(ManifestError, match=r"some/manifest\.json .*truncated or altered"):
        manifest.parse(data, "some/manifest.json")


def test_a_newer_format_asks_for_an_upgrade(folder):
    newer = {**content(folder), "format": manifest.FORMAT + 1}
    with pytest.raises(ManifestError, match=r"format 2, newer than .*pip install --upgrade aotcuda"):
        manifest.parse(manifest.dump(newer), "manifest.json")


def test_a_changed_byte_is_noticed_by_the_digest(folder):
    data = (folder / manifest.FILE_NAME).read_bytes()
    altered = data.replace(b"axpy", b"axpz")
    assert manifest.parse(altered, "manifest.json")
    with pytest.raises(ManifestError, match="does not match the digest"):
        manifest.parse(altered, "manifest.json", sha256=manifest.digest(data))


def test_a_missing_key_is_named(folder):
    parsed = content(folder)
    del parsed["kernels"]
    with pytest.raises(ManifestError, match="lacks kernels"):
        manifest.parse(manifest.dump(parsed), "manifest.json")


def test_a_missing_manifest_names_its_path(tmp_path):
    with pytest.raises(ManifestError, match=r"gone\.json cannot be read"):
        manifest.read(str(tmp_path / "gone.json"))


def test_a_file_is_checked_against_its_size_and_digest(folder):
    file = content(folder)["files"]["kernels"]
    path = folder / "kernels.fatbin"
    good = path.read_bytes()
    assert manifest.read_file(str(folder), file) == good
    path.write_bytes(good[:-1])
    with pytest.raises(ManifestError, match=f"has {len(good) - 1} bytes where the manifest says {len(good)}"):
        manifest.read_file(str(folder), file)
    path.write_bytes(good[:-1] + b"!")
    with pytest.raises(ManifestError, match=r"kernels\.fatbin was altered"):
        manifest.read_file(str(folder), file)
    path.unlink()
    with pytest.raises(ManifestError, match=r"kernels\.fatbin cannot be read"):
        manifest.read_file(str(folder), file)
    path.write_bytes(good + b"more")
    with pytest.raises(ManifestError, match=f"has more bytes where the manifest says {len(good)}"):
        manifest.read_file(str(folder), file)


@pytest.mark.parametrize("data", [b"{", b"[1,", b'{"format"', b'{"format": 1', b'"', b"{'format': 1}", b"", b"nul"])
def test_damage_is_told_where_nobody_has_imported_json(data, monkeypatch):
    # Its reader in C raises an exception of json.decoder's, and SystemError where that is not there.
    for name in ("json", "json.decoder", "json.encoder", "json.scanner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ManifestError, match="truncated or altered"):
        manifest.parse(data, "manifest.json", sha256="0" * 64)


def test_a_pipe_is_no_manifest_and_is_not_waited_for(folder):
    path = folder / manifest.FILE_NAME
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ManifestError, match=r"manifest\.json cannot be read \(it is no regular file\); install"):
        manifest.read(str(path))
    (folder / "kernels.fatbin").unlink()
    os.mkfifo(folder / "kernels.fatbin")
    with pytest.raises(ManifestError, match=r"kernels\.fatbin cannot be read \(it is no regular file\); install"):
        manifest.read_file(str(folder), {"path": "kernels.fatbin", "bytes": 8, "sha256": ""})


@pytest.mark.parametrize("data", [b" " * (manifest.LARGEST + 1), b"[" * 1_000_001, b"," * 2_000_001])
def test_what_is_too_much_is_not_decoded(data, monkeypatch):
    monkeypatch.setattr(manifest, "_decoded", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(ManifestError, match=r"^manifest\.json is no manifest: .* bytes are more than it may have"):
        manifest.parse(data, "manifest.json")


def altered(change):
    """A whole manifest with one change, as its file."""
    found = json.loads(json.dumps(damage.whole()))
    change(found)
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda whole: whole.update(module=7), "module is not a string"),
        (lambda whole: whole.update(format=True), "format is not a whole number"),
        (lambda whole: whole.update(load="never"), "load is not one of import, first-use"),
        (lambda whole: whole.update(min_driver=580), "min_driver is not a string"),
        (lambda whole: whole.update(files=[]), "files is not an object"),
        (lambda whole: whole.update(kernels={}), "kernels is not a list"),
        (lambda whole: whole["toolchain"].update(cuda="x"), "toolchain.cuda is not a version"),
        (lambda whole: whole["toolchain"].update({"\n": 1}), r"toolchain\['\\n'\] is not a string"),
        (lambda whole: whole["images"][1].update(arch="sm_9"), r"images\[1\]\.arch is not a target such as sm_90"),
        (lambda whole: whole["images"].append(whole["images"][0]), "images lists a target twice"),
        (lambda whole: whole["images"][0].update(bytes=-1), r"images\[0\]\.bytes is not a whole number from 0"),
        (
            lambda whole: whole["kernels"][1]["overloads"][0].pop("symbol"),
            r"kernels\[1\]\.overloads\[0\]\.symbol is missing",
        ),
        (lambda whole: parameter(whole, 1).pop("dtype"), r"parameters\[1\]\.dtype is missing"),
        (lambda whole: parameter(whole, 1).update(ndim=2**40), r"parameters\[1\]\.ndim is not a whole number below 65"),
        (
            lambda whole: parameter(whole, 1).update(words=["shape2"]),
            r"parameters\[1\]\.words names something that an array of 2",
        ),
        (lambda whole: parameter(whole, 1).update(words=[]), r"parameters\[1\]\.words is empty"),
        (
            lambda whole: parameter(whole, 0).update(offset=1 << 16),
            r"parameters\[0\]\.offset is not a whole number below 65,536",
        ),
        (
            lambda whole: parameter(whole, 3)["members"][1].pop("words"),
            r"parameters\[3\]\.members\[1\]\.words is missing",
        ),
        (
            lambda whole: whole.update(linked=[{"name": "a", "symbols": ["f", None]}]),
            r"linked\[0\]\.symbols\[1\] is not a string",
        ),
    ],
)
def test_a_manifest_that_nothing_vouches_for_is_held_against_its_shape(change, problem):
    data = altered(change)
    with pytest.raises(
        ManifestError, match=rf"^manifest\.json was altered: .*{problem}.*\. Install the package again\.$"
    ):
        manifest.parse(data, "manifest.json")
    # What a generated module knows the digest of was written by a build.
    assert manifest.parse(data, "manifest.json", sha256=manifest.digest(data))


def parameter(whole, at):
    return whole["kernels"][1]["overloads"][0]["parameters"][at]


def test_parameters_nested_without_end_are_refused():
    nested = b'{"name":"","type":"","kind":"tuple","offset":0,"members":[' * 400 + b"]}" * 400
    data = altered(lambda whole: whole["kernels"][1]["overloads"][0].update(parameters=["NESTED"]))
    with pytest.raises(ManifestError, match=r"nested too deeply|truncated or altered"):
        manifest.parse(data.replace(b'"NESTED"', nested), "manifest.json")


def test_the_table_of_shapes_says_what_the_types_declare():
    declared = {}
    for node in ast.walk(ast.parse(Path(manifest.__file__).read_text())):
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "TypedDict" for base in node.bases):
            declared[node.name] = {
                item.target.id: ast.unparse(item.annotation) for item in node.body if isinstance(item, ast.AnnAssign)
            }
    # Older manifests lack these.
    late = {"callbacks", "handle", "linked", "function_links"}
    for name, keys in declared.items():
        table = getattr(shape, name.upper())
        assert set(table) == set(keys), name
        for key, annotation in keys.items():
            optional = annotation.startswith("NotRequired[") or (name == "Manifest" and key in late)
            assert isinstance(table[key], shape.Optional) == optional, (name, key)
            inner = annotation.removeprefix("NotRequired[").removesuffix("]" if annotation.startswith("NotR") else "")
            spec = table[key].spec if optional else table[key]
            assert isinstance(spec, shape.Maybe) == inner.endswith(" | None"), (name, key)
            assert isinstance(spec, list) == inner.startswith("list["), (name, key)
            if inner.startswith("Literal["):
                assert list(spec.values) == list(ast.literal_eval(f"({inner[8:-1]},)")), (name, key)


def test_what_builds_write_has_that_shape():
    assert shape.problem(json.loads(json.dumps(damage.whole()))) is None
