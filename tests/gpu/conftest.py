"""Fixtures of the GPU tests: packaged modules to import, and clean processes to run them in.

A test uses the wheels that numba-cuda built. A test with the mark `front_end(*names)` runs once for each of these
compilers, with the wheels that the compiler built of the same sources. They are installed under the same names.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aotcuda.runtime.launch import fast as extension
from gpu import prepare
from support import front_ends
from support.launch_paths import general

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from aotcuda import Kernel

__all__ = ["general"]

REPOSITORY = Path(__file__).parents[2]
WHEELS = os.environ.get("AOTCUDA_GPU_WHEELS")  # read here, since a fixture deletes the variables of aotcuda
LIBRARIES = os.environ.get("PYTHONPATH", "")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that are marked for front ends once with each of them."""
    # numba-cuda-mlir and CUDA's packages give warnings.
    marks = {front_ends.MLIR: pytest.mark.filterwarnings("default")}
    if metafunc.definition.get_closest_marker("front_end"):
        front_ends.parametrize(metafunc, (), marks)


@pytest.fixture(scope="module")
def front_end(request: pytest.FixtureRequest) -> str:
    """Return the front end that built the wheels; its compiler may be missing here."""
    return getattr(request, "param", front_ends.NUMBA)


@pytest.fixture(scope="session")
def gpu_name() -> str:
    """Return the name of the first GPU in CUDA's run time."""
    import cupy

    name: str = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return name


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the wheels that `prepare` built, each in a folder of its name."""
    if WHEELS:
        return Path(WHEELS)
    folder = tmp_path_factory.mktemp("wheels")
    prepare.build(folder)
    return folder


@pytest.fixture(scope="session")
def installed_by(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Install the wheels; return for each front end the folder with one folder for each wheel."""
    found = {name: tmp_path_factory.mktemp(name) for name in front_ends.ALL}
    for wheel in wheels.glob("*/*.whl"):
        folder = wheel.parent.name
        mlir = prepare.MLIR_WHEELS.get(folder)
        zipfile.ZipFile(wheel).extractall(found[front_ends.MLIR] / mlir if mlir else found[front_ends.NUMBA] / folder)
    return found


@pytest.fixture(scope="module")
def installed(front_end: str, installed_by: dict[str, Path]) -> Iterator[Path]:
    """Return a folder with one folder for each wheel of a front end; the test imports their packages anew."""
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
            packaged.unload()  # it imports teardown callbacks by name, and another wheel gets the name soon
    sys.path[:] = search
    for name in ours:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture(scope="module")
def packaged(installed: Path) -> Callable[[str, str], ModuleType]:
    """Return a function that imports a module of an installed wheel, or skips the test if that wheel is missing."""

    def find(wheel: str, name: str) -> ModuleType:
        folder = installed / wheel
        if not folder.is_dir():
            pytest.skip(f"there is no wheel {wheel}; tests/gpu/prepare.py builds it where its compiler is installed")
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        return importlib.import_module(name)

    return find


@pytest.fixture(scope="module")
def features(front_end: str, packaged: Callable[[str, str], ModuleType]) -> ModuleType:
    """Return the module `gpufeatures.kernels`."""
    module = packaged("gpufeatures", "gpufeatures.kernels")
    assert module.__aotcuda__.manifest["frontend"] == front_end
    return module


@pytest.fixture(scope="module")
def quickstart(packaged: Callable[[str, str], ModuleType]) -> ModuleType:
    """Return the module `quickstart.kernels`."""
    return packaged("quickstart", "quickstart.kernels")


@pytest.fixture(scope="module")
def numba_cuda() -> ModuleType:
    """Return `numba.cuda`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        numba = pytest.importorskip("numba")
        pytest.importorskip("numba.cuda")
    numba.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    return numba.cuda


@pytest.fixture(params=["general", "extension"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test on the general path and on the fast path; arguments that no overload accepts are an error."""
    monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
    if request.param == "general":
        monkeypatch.setattr(extension, "_module", [None])
    elif extension.in_use() is None:
        pytest.skip(f"there is no fast path in C: {extension.why_not()}")
    return request.param


@pytest.fixture
def square(features: ModuleType, path: str) -> Kernel:
    """Return a kernel with overloads for many dtypes, of a module that is not loaded yet; GPU 0 is current."""
    import cupy

    for gpu in range(cupy.cuda.runtime.getDeviceCount()):
        cupy.cuda.Device(gpu).synchronize()
    cupy.cuda.Device(0).use()
    features.__aotcuda__.unload()
    features.square._cache().retire()
    return features.square


@pytest.fixture(scope="module")
def run_clean(installed: Path) -> Callable[..., object]:
    """Run a script in a process that sees one wheel and aotcuda; return the JSON on its last line."""

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
