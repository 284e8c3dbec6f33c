"""Test that `aotcuda rebundle` replaces run times in a wheel and changes nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.emit import bundle, sbom
from aotcuda.errors import TargetError
from aotcuda.tools import rebundle, wheel_archive
from aotcuda.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

WHEELS = Path(__file__).parents[1] / "data" / "wheels"
QUICKSTART = WHEELS / "quickstart-1.0-py3-none-any.whl"
BILL = f"quickstart-1.0.dist-info/sboms/{sbom.FILE_NAME}"
OLD = {"VERSION": b"0.0.1\n", "gone.py": b"", "runtime/__init__.py": b"old"}
pytestmark = pytest.mark.needs("lz4")


def bundled(folder: Path, files: Mapping[str, bytes], *packages: str, name: str = QUICKSTART.name) -> Path:
    """Return a wheel with other files, and with an old run time in some packages."""
    original = wheel_archive.read(QUICKSTART)
    old = {f"{package}/{bundle.NAME}/{path}": data for package in packages for path, data in OLD.items()}
    wheel_archive.write(folder / name, {**original.files, **old, **files}, original)
    return folder / name


def test_each_run_time_is_replaced_and_other_files_stay(tmp_path: Path) -> None:
    kept = {"quickstart/VERSION": b"1", "quickstart/data/_aotcuda/VERSION": b"2", "x/_aotcuda/more/VERSION": b"3"}
    wheel = bundled(tmp_path, kept, "quickstart", "more")
    assert rebundle.run(wheel) == [
        f"{name}/_aotcuda: aotcuda 0.0.1 -> {__version__}" for name in ("more", "quickstart")
    ]
    files = wheel_archive.read(wheel).files
    for package in ("quickstart", "more"):
        expected = bundle.files(package)
        assert {name: data for name, data in files.items() if name.startswith(f"{package}/_aotcuda/")} == expected
    original = wheel_archive.read(QUICKSTART).files
    changed = {name for name in original if files[name] != original[name]}
    assert changed == {BILL, "quickstart-1.0.dist-info/RECORD"}
    assert {name: files[name] for name in kept} == kept
    names = [component["name"] for component in json.loads(files[BILL])["components"]]
    assert (
        names.count("aotcuda")
        == [item["name"] for item in json.loads(original[BILL])["components"]].count("aotcuda") + 1
    )
    assert rebundle.run(wheel) == [
        f"{name}/_aotcuda: aotcuda {__version__} -> {__version__}" for name in ("more", "quickstart")
    ]
    assert wheel_archive.read(wheel).files == files


@pytest.mark.parametrize(
    ("files", "packages", "message"),
    [
        ({}, (), 'holds no run time of aotcuda; build it with runtime = "bundled" first'),
        ({"a/b/_aotcuda/VERSION": b"0"}, (), "holds no run time of aotcuda"),
        (
            {"more/_aotcuda/VERSION": b"99.0\n"},
            ("quickstart",),
            f"more holds aotcuda 99.0, and this is {__version__}; update aotcuda first",
        ),
        ({BILL: b"{}"}, ("quickstart",), f"{BILL} is no bill of materials that aotcuda wrote; build the wheel again"),
        ({BILL: b"no JSON"}, ("quickstart",), "is no bill of materials that aotcuda wrote"),
        (
            {"quickstart/_aotcuda/runtime/launch/fast/_launch.abi3.so": b""},
            ("quickstart",),
            "holds a C extension, and ",
        ),
    ],
)
def test_wheel_that_cannot_be_changed_stays(
    files: dict[str, bytes], packages: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    wheel = bundled(tmp_path, files, *packages)
    before = wheel.read_bytes()
    with pytest.raises(TargetError, match=re.escape(message)):
        rebundle.run(wheel)
    assert wheel.read_bytes() == before


def test_extension_is_replaced_in_a_wheel_for_this_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extension = tmp_path / "_launch.abi3.so"
    extension.write_bytes(b"new")
    monkeypatch.setattr(bundle, "_extension", lambda: extension)
    monkeypatch.setattr(bundle, "_ROOT", tmp_path)
    monkeypatch.setattr(bundle, "modules", dict)
    monkeypatch.setattr(bundle, "extension_tag", lambda: "cp311-abi3-linux_x86_64")
    (tmp_path / "py.typed").touch()
    (tmp_path.parent / "LICENSE").touch()
    name = "quickstart-1.0-cp311-abi3-linux_x86_64.whl"
    wheel = bundled(
        tmp_path, {"quickstart/_aotcuda/runtime/launch/fast/_launch.abi3.so": b"old"}, "quickstart", name=name
    )
    rebundle.run(wheel)
    assert wheel_archive.read(wheel).files["quickstart/_aotcuda/_launch.abi3.so"] == b"new"
