"""The JIT fallback of modules that the second front end built: the tests of the first one's, and nothing copied.

It needs that front end beside the GPU, as the extra `jit-mlir-cu13` installs it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpu import mlir_wheels, test_fallback
from support import front_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not front_ends.installed(), reason="numba-cuda-mlir is not installed"),
]

globals().update(
    front_ends.again(
        test_fallback,
        {
            "port": "the other way round; see below",
            "test_a_wheel_carries_what_it_links": "of an example whose wheel is the first front end's",
        },
    )
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from mlir_wheels.install(tmp_path_factory)


@pytest.fixture
def port() -> Callable[[Path], Path]:
    """What makes a project for numba-cuda one for the front end in question."""
    return front_ends.port


def test_the_compiler_is_the_one_that_built_the_wheel(run: Callable[..., Any], tmp_path: Path) -> None:
    """And not numba-cuda, though that is installed beside it."""
    run(test_fallback.AXPY.format(typecode="i"))
    (late,) = [json.loads(path.read_text()) for path in (tmp_path / "cache").rglob("manifest.json")]
    assert late["frontend"] == front_ends.MLIR
