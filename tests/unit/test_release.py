"""Test what stops a release: files of two machines that differ, another version, a change that nobody wrote down."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch):
    """Loads a script of the folder tools."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    monkeypatch.syspath_prepend(str(TOOLS))
    yield load
    sys.modules.pop("environments", None)


@pytest.fixture
def release(tool):
    return tool("release")


@pytest.fixture
def built(tmp_path):
    """Return what two machines have made."""
    for machine, platform in (("one", "x86_64"), ("other", "aarch64")):
        (tmp_path / machine).mkdir()
        names = ("1.2.tar.gz", "1.2-py3-none-any.whl", f"1.2-cp311-abi3-manylinux_2_17_{platform}.whl")
        for name in names:
            (tmp_path / machine / f"aotcuda-{name}").write_text(name)
    return tmp_path


def test_what_each_machine_made_is_gathered_once(release, built):
    found = release.gathered(built)
    assert sorted(found) == [
        "aotcuda-1.2-cp311-abi3-manylinux_2_17_aarch64.whl",
        "aotcuda-1.2-cp311-abi3-manylinux_2_17_x86_64.whl",
        "aotcuda-1.2-py3-none-any.whl",
        "aotcuda-1.2.tar.gz",
    ]
    release.check_version("v1.2", found, "# Changes\n\n## 1.2 (2026-12-01)\n")


def test_files_that_differ_between_machines_are_no_release(release, built):
    (built / "other" / "aotcuda-1.2.tar.gz").write_text("another one")
    with pytest.raises(SystemExit, match=r"aotcuda-1.2.tar.gz differs between one and other: it is not reproducible"):
        release.gathered(built)


@pytest.mark.parametrize(
    ("suffix", "kind"), [(".tar.gz", "sdist"), ("any.whl", "pure wheel"), ("_x86_64.whl", "wheel with the fast path")]
)
def test_a_kind_that_is_missing_is_named(release, built, suffix, kind):
    for path in built.glob("*/*"):
        if path.name.endswith(suffix) or (suffix == "_x86_64.whl" and "abi3" in path.name):
            path.unlink()
    with pytest.raises(SystemExit, match=f"there is no {kind} in "):
        release.gathered(built)


@pytest.mark.parametrize(
    ("tag", "changelog", "problem"),
    [
        ("v1.3", "## 1.3", "is not of version 1.3, which the tag v1.3 names"),
        ("v1.2", "## Unreleased", "CHANGELOG.md has no heading '## 1.2'"),
        ("v1.2", "## 1.20", "CHANGELOG.md has no heading '## 1.2'"),
    ],
)
def test_tag_files_and_changes_are_of_one_version(release, built, tag, changelog, problem):
    with pytest.raises(SystemExit, match=problem):
        release.check_version(tag, release.gathered(built), changelog)


def test_a_change_that_is_not_in_the_list_yet_is_named(release, built):
    left = [built / "changes" / "12.change.md"]
    with pytest.raises(SystemExit, match=r"changes/12\.change\.md is not in CHANGELOG\.md; run towncrier build"):
        release.check_version("v1.2", release.gathered(built), "## 1.2", left)


@pytest.mark.parametrize(
    ("machine", "named", "made"),
    [("x86_64", "manylinux_2_17_x86_64", "manylinux_2_17_x86_64"), ("aarch64", "auto", "manylinux_2_28_aarch64")],
)
def test_a_wheel_says_how_old_a_linux_may_be(tool, monkeypatch, tmp_path, machine, named, made):
    wheels = tool("wheels")
    monkeypatch.setattr(wheels.platform, "machine", lambda: "x86_64")
    (tmp_path / f"aotcuda-1-cp311-abi3-linux_{machine}.whl").touch()
    (out := tmp_path / "out").mkdir()
    asked = []
    monkeypatch.setattr(wheels.os, "umask", lambda mask: asked.append(f"umask {mask:o}"))

    def auditwheel(*command):
        asked.append(command[command.index("--plat") + 1])
        (out / f"aotcuda-1-cp311-abi3-{made}.whl").touch()

    monkeypatch.setattr(wheels, "run", auditwheel)
    if made.startswith("manylinux_2_17"):
        assert wheels._repair(Path("python"), tmp_path, machine, out).parent == tmp_path
    else:
        with pytest.raises(SystemExit, match=f"_{machine}.whl needs a newer Linux than manylinux_2_17_{machine}"):
            wheels._repair(Path("python"), tmp_path, machine, out)
    assert asked == ["umask 22", named]


def test_an_extension_that_is_not_in_use_is_no_release(release):
    release.check_fast_path(Path("aotcuda-1-py3-none-any.whl"), "it is not compiled")
    release.check_fast_path(Path("aotcuda-1-cp311-abi3-manylinux_2_17_x86_64.whl"), None)
    with pytest.raises(
        SystemExit, match=r"_x86_64\.whl has an extension that is not in use, because it cannot be loaded"
    ):
        release.check_fast_path(Path("aotcuda-1-cp311-abi3-manylinux_2_17_x86_64.whl"), "it cannot be loaded")
