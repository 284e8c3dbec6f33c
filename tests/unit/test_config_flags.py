"""Test the flags of `aotcuda config` for modules that were made by hand."""

from __future__ import annotations

import pytest

from aotcuda.errors import TargetError
from aotcuda.tools.inspect import flags
from support import manifests, modules


def test_each_file_is_a_flag_with_a_path_that_exists(tmp_path):
    folder = modules.write_package(tmp_path)
    files = flags.files(str(folder))
    assert len(files) == 1
    for cuda in (0, 13):
        assert flags.files(str(folder), cuda) == files
    assert flags.libs(str(folder)) == ["-Xnvlink", files[0]]
    (include,) = flags.includes(str(folder))
    assert include.startswith(f"-I{folder}")
    assert all(path.startswith(include.removeprefix("-I")) for path in files)


def test_nothing_to_link_and_files_of_a_wheel_are_refused(tmp_path):
    manifests.write(tmp_path, [manifests.kernel("k", "void(int32)")])
    with pytest.raises(TargetError, match=r"exports no device functions, so there is nothing to link"):
        flags.files(str(tmp_path / "mypkg"))
    wheel = modules.write_wheel(tmp_path / "wheels")
    for function in (flags.files, flags.libs, flags.includes):
        with pytest.raises(TargetError, match=r"is a file that compilers cannot read; install it, and name the module"):
            function(str(wheel))
