"""Fixtures of slow tests, and the option `--whole`: CI runs a short part of each, and `--whole DIR` runs all."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from integration.conftest import (  # noqa: F401 (fixtures)
    _build_cache_folder,
    _workers,
    back_end,
    build_cache,
    front_end,
    pytest_generate_tests,
    wheel_of,
    wheelhouse,
)
from support.launch_paths import extension_module  # noqa: F401 (a fixture)
from support.stand_in import cuda, stand_in_library  # noqa: F401 (fixtures)

T = TypeVar("T")
ROOT = Path(__file__).parents[2]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--whole`; pytest knows it if a command names a path below this folder."""
    text = "run all of each slow test in place of a short part, and write its results into this folder"
    parser.addoption("--whole", type=Path, metavar="DIR", help=text)


@dataclass(frozen=True)
class Extent:
    """Tell how much of a slow test runs.

    Attributes:
        folder: The folder of result files; None for the short part.
        machine: The machine, as `bench/machine.py` describes it.
    """

    folder: Path | None
    machine: dict[str, Any]

    def part(self, short: T, whole: T) -> T:
        """Return `short` in CI, and `whole` with `--whole`."""
        return short if self.folder is None else whole

    def write(self, name: str, **figures: object) -> None:
        """Write the result file `name`.json if the whole test runs."""
        if self.folder is not None:
            path = self.folder / f"{name}.json"
            path.write_text(json.dumps({"machine": self.machine, **figures}, indent=1) + "\n", encoding="utf-8")

    def add(self, name: str, part: str, **figures: object) -> None:
        """Write a part of the result file `name`.json, and keep its other parts."""
        if self.folder is not None:
            path = self.folder / f"{name}.json"
            parts = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            parts[part] = {"machine": self.machine, **figures}
            path.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def extent(request: pytest.FixtureRequest) -> Extent:
    """Return how much of each slow test runs."""
    folder = request.config.getoption("--whole", None)
    if folder is None:
        return Extent(None, {})
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(ROOT / "bench")])
        patch.setenv("AOTCUDA_BUILD_CACHE", "0")
        import machine

        return Extent(folder.resolve(), machine.describe())
