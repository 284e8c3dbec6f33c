"""The environment that the worker starts in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from aotcuda.builder.worker import process

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])


@pytest.mark.usefixtures("no_toolkit")
def test_settings_of_numba_that_change_code_stay_outside() -> None:
    given = {
        "PATH": "/bin",
        "NUMBA_OPT": "0",
        "NUMBA_CUDA_DEBUGINFO": "1",
        "NUMBA_FORCE_CUDA_CC": "5.0",
        "NUMBA_CUDA_INCLUDE_PATH": "/headers",
        "NUMBA_CUDA_NVRTC_EXTRA_SEARCH_PATHS": "/more",
    }
    assert process.environment(given) == {
        "PATH": "/bin",
        "NUMBA_CUDA_INCLUDE_PATH": "/headers",
        "NUMBA_CUDA_NVRTC_EXTRA_SEARCH_PATHS": "/more",
        "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "AOTCUDA_BUILDING": "1",
        "AOTCUDA_LOAD": "first-use",
    }


@pytest.mark.usefixtures("no_toolkit")
def test_the_hash_seed_is_fixed_and_the_path_of_pip_is_left_to_its_own_site() -> None:
    found = process.environment({"PYTHONHASHSEED": "17", "PYTHONPATH": "/overlay/site"})
    assert found["PYTHONHASHSEED"] == "0"
    assert found["PYTHONPATH"] == "/overlay/site"


def test_the_toolkit_among_the_packages_comes_before_that_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "second" / "nvidia" / "cu13" / "lib"
    library.mkdir(parents=True)
    (library / "libnvrtc.so.13").touch()
    (library / "libnvvm.so.4").touch()
    without_compilers = tmp_path / "first" / "nvidia" / "cu13" / "lib"
    without_compilers.mkdir(parents=True)
    (without_compilers / "libnvrtc.so.13").touch()  # as other packages install it for themselves
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "first"), str(tmp_path / "second")])
    found = process.environment({"CUDA_PATH": "/usr/local/cuda", "LD_LIBRARY_PATH": "/usr/local/cuda/lib64"})
    assert found["CUDA_PATH"] == str(library.parent)
    assert found["LD_LIBRARY_PATH"] == f"{library}:/usr/local/cuda/lib64"
    assert process.environment({})["LD_LIBRARY_PATH"] == str(library)
