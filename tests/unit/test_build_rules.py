"""Dependency files, as make and ninja read them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aotcuda.builder import build_rules

NAMES = ["plain.py", "with blank.h", "a $sign #1.cu", "ünïcode.h"]


@pytest.mark.parametrize("name", NAMES)
def test_make_builds_again_when_a_named_file_is_newer_or_gone(tmp_path: Path, name: str) -> None:
    file, target = tmp_path / name, tmp_path / "stamp"
    file.touch()
    target.touch()
    (tmp_path / "rules.d").write_bytes(build_rules.depfile([Path("stamp")], [file]))
    (tmp_path / "Makefile").write_text("stamp:\n\ttrue\n-include rules.d\n")

    def is_up_to_date() -> bool:
        return subprocess.run(["make", "-q", "stamp"], cwd=tmp_path, check=False).returncode == 0

    assert is_up_to_date()
    file.unlink()
    assert not is_up_to_date()


def test_a_rule_is_one_for_all_targets_and_every_file_may_go_missing() -> None:
    files = [Path("/p/a.py"), Path("/p/b\n.py"), Path("/p/d\\"), Path("/p/c.h")]
    assert build_rules.depfile([Path("k.py"), Path("k.pyi")], files) == (
        b"k.py k.pyi: \\\n  /p/a.py \\\n  /p/c.h\n/p/a.py:\n/p/c.h:\n"
    )
