"""Fixtures of the GPU tests: packaged modules to import, and clean processes to run them in.

A test has the wheels that numba-cuda built. One that is marked `front_end(*names)` has in turn those that each of these
built of the same sources, installed under the same names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpu import prepare
from support import front_ends
from support.quick import extension_module, general, path, quick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["extension_module", "general", "path", "quick"]

REPOSITORY = Path(__file__).parents[2]
GIVEN = os.environ.get("AOTCUDA_GPU_WHEELS")  # tests run with an environment that says nothing to aotcuda
LIBRARIES = os.environ.get("PYTHONPATH", "")  # likewise: folders that the whole session was given, as of another NumPy


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked for front ends with each of them."""
    # What that compiler and CUDA's own packages warn of, in the tests that use it, is their affair.
    marks = {front_ends.MLIR: pytest.mark.filterwarnings("default")}
    if metafunc.definition.get_closest_marker("front_end"):
        front_ends.parametrize(metafunc, (), marks)


@pytest.fixture(scope="module")
def front_end(request: pytest.FixtureRequest) -> str:
    """Return the front end that built the wheels; its compiler may not be there."""
    return getattr(request, "param", front_ends.NUMBA)


@pytest.fixture(scope="session")
def gpu_name() -> str:
    """Return what CUDA's own run time calls the first GPU."""
    import cupy

    name: str = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return name


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one folder for each wheel that `prepare` has built."""
    if GIVEN:
        return Path(GIVEN)
    folder = tmp_path_factory.mktemp("wheels")
    (prepare.build if find_spec("numba_cuda") else prepare.build_mlir)(folder)
    return folder


@pytest.fixture(scope="session")
def installed_by(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By front end a folder with one folder for each wheel, installed under the name that it has among numba-cuda's."""
    found = {name: tmp_path_factory.mktemp(name) for name in front_ends.ALL}
    for wheel in wheels.glob("*/*.whl"):
        folder = wheel.parent.name
        mlir = prepare.MLIR_WHEELS.get(folder)
        zipfile.ZipFile(wheel).extractall(found[front_ends.MLIR] / mlir if mlir else found[front_ends.NUMBA] / folder)
    return found


@pytest.fixture(scope="module")
def installed(front_end: str, installed_by: dict[str, Path]) -> Iterator[Path]:
    """A folder with one folder for each wheel of a front end, installed; what lies in them is imported afresh."""
    folder = installed_by[front_end]
    if not any(folder.iterdir()):
        pytest.skip(f"there are no wheels of {front_end} (python tests/gpu/prepare.py FOLDER)")
    if front_end == front_ends.NUMBA:
        yield folder
        return
    packages = {name.partition("-")[0] for name in prepare.MLIR_WHEELS.values()}
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in packages}
    search = list(sys.path)
    yield folder
    ours = [name for name in sys.modules if name.partition(".")[0] in packages]
    for name in ours:
        packaged = vars(sys.modules[name]).get("__aotcuda__")
        if packaged is not None and packaged.library is not None:
            packaged.unload()  # teardown callbacks are found by their names, which are soon another wheel's
    sys.path[:] = search
    for name in ours:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture(scope="module")
def features(front_end: str, installed: Path):
    """Return the module `gpufeatures.kernels`."""
    sys.path.insert(0, str(installed / "gpufeatures"))
    import gpufeatures.kernels

    assert gpufeatures.kernels.__aotcuda__.manifest["frontend"] == front_end
    return gpufeatures.kernels


@pytest.fixture(scope="module")
def run_clean(installed: Path) -> Callable[..., object]:
    """Run a script in a process that sees one wheel and aotcuda; returns the JSON that it prints last."""

    def run(script: str, wheel: str = "quickstart", **environment: str) -> object:
        own = [str(installed / wheel), str(REPOSITORY), str(REPOSITORY / "tests")]
        path = os.pathsep.join([*own, *filter(None, [LIBRARIES])])
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONPATH": path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run
