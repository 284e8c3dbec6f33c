"""Reading a manifest, and refusing what is not one."""

from __future__ import annotations

import json

import pytest

from aotcuda import manifest
from aotcuda.errors import ManifestError
from support import manifests


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
