"""The wheels of the second front end, installed under the names of the first one's, for the tests of those."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpu import prepare
from gpu.conftest import GIVEN

if TYPE_CHECKING:
    from collections.abc import Iterator


def install(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with one folder for each wheel, named as the first front end's; what they hold is imported afresh.

    For a fixture `installed`, which has the tests of another module run with these wheels.
    """
    wheels = Path(GIVEN) if GIVEN else tmp_path_factory.mktemp("wheels")
    if not GIVEN:
        prepare.build_mlir(wheels)
    target = tmp_path_factory.mktemp("installed")
    for name, original in prepare.MLIR_WHEELS.items():
        found = list((wheels / name).glob("*.whl"))
        if not found:
            pytest.skip(f"there is no wheel {name} (python tests/gpu/prepare.py FOLDER --mlir)")
        zipfile.ZipFile(found[0]).extractall(target / original)
    packages = {original.partition("-")[0] for original in prepare.MLIR_WHEELS.values()}
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in packages}
    path = list(sys.path)
    yield target
    ours = [name for name in sys.modules if name.partition(".")[0] in packages]
    for name in ours:
        packaged = vars(sys.modules[name]).get("__aotcuda__")
        if packaged is not None and packaged.library is not None:
            packaged.unload()  # teardown callbacks are found by their names, which are soon another wheel's
    sys.path[:] = path
    for name in ours:
        del sys.modules[name]
    sys.modules.update(before)


def first(folder: Path, name: str) -> Path:
    """A folder with the wheel `name` of the first front end, to import from in a process of its own."""
    project, arch = prepare.WHEELS[name]
    wheels = Path(GIVEN) if GIVEN else folder
    if not GIVEN:
        prepare.build_one(project, wheels / name, arch)
    found = list((wheels / name).glob("*.whl"))
    if not found:
        pytest.skip(f"there is no wheel {name} (python tests/gpu/prepare.py FOLDER)")
    zipfile.ZipFile(found[0]).extractall(folder / "first")
    return folder / "first"
