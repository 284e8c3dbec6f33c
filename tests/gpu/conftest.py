"""What the GPU tests share: packaged modules to import, and clean processes to run them in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.quick import accelerator_module, general, path, quick

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["accelerator_module", "features", "general", "installed", "path", "quick", "run_clean"]

REPOSITORY = Path(__file__).parents[2]
GIVEN = os.environ.get("AOTCUDA_GPU_WHEELS")  # tests run with an environment that says nothing to aotcuda


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one folder for each wheel that `prepare` built, installed."""
    wheels = Path(GIVEN) if GIVEN else tmp_path_factory.mktemp("wheels")
    if not GIVEN:
        from gpu import prepare  # it needs a compiler, which a machine that was given wheels may not have

        prepare.build(wheels)
    target = tmp_path_factory.mktemp("installed")
    for wheel in wheels.glob("*/*.whl"):
        zipfile.ZipFile(wheel).extractall(target / wheel.parent.name)
    return target


@pytest.fixture(scope="session")
def features(installed: Path):
    """The module `gpufeatures.kernels`."""
    sys.path.insert(0, str(installed / "gpufeatures"))
    import gpufeatures.kernels

    return gpufeatures.kernels


@pytest.fixture(scope="session")
def run_clean(installed: Path) -> Callable[..., object]:
    """Run a script in a process that sees one wheel and aotcuda; returns the JSON that it prints last."""

    def run(script: str, wheel: str = "quickstart", **environment: str) -> object:
        path = os.pathsep.join([str(installed / wheel), str(REPOSITORY), str(REPOSITORY / "tests")])
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
