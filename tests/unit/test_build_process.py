"""The environment that the worker starts in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.builder import toolkits
from aotcuda.builder.worker import process
from aotcuda.registry import Registration, Variables
from support.toolkits import toolkit

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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


def test_a_front_end_from_outside_says_what_concerns_its_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Variables(prefixes=("TOY_",), kept=("TOY_HEADERS",), given=(("TOY_QUIET", "1"),))
    registered = Registration("toy", tables="toy.tables", compiler="toy.compiler", requires="toy", variables=toy)
    monkeypatch.setattr(registry, "_registered", {"toy": registered}.get)
    given = {"TOY_LEVEL": "3", "TOY_HEADERS": "/toys", "NUMBA_OPT": "0"}
    found = process.environment(given, "toy")
    assert {name: value for name, value in found.items() if name.startswith("TOY_")} == {
        "TOY_HEADERS": "/toys",
        "TOY_QUIET": "1",
    }
    assert "NUMBA_OPT" not in found  # a source may import Numba all the same
    assert process.environment(given)["TOY_LEVEL"] == "3"


def test_the_toolkit_of_a_worker_comes_before_that_of_the_machine(tmp_path: Path) -> None:
    toolkit(tmp_path, 13, "13.0.88")
    (found,) = toolkits.installed([str(tmp_path)])
    given = {"CUDA_PATH": "/usr/local/cuda", "LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}
    variables = process.environment(given, toolkit=found)
    home = tmp_path / "nvidia" / "cu13"
    assert variables["CUDA_PATH"] == variables["CUDA_HOME"] == str(home)
    assert variables["LD_LIBRARY_PATH"] == f"{home / 'lib'}:/usr/local/cuda/lib64"
    assert process.environment({}, toolkit=found)["LD_LIBRARY_PATH"] == str(home / "lib")
    assert process.environment(given).items() >= given.items()
