"""Write marks next to sources that are packaged in place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from aotcuda.builder.emit import in_place

if TYPE_CHECKING:
    from pathlib import Path


def result(sources: list[Path]) -> Any:
    """Return a worker's result: the module `pkg.solver`, which contains its own kernel."""
    module = SimpleNamespace(
        plan=SimpleNamespace(in_place=True, config=SimpleNamespace(name="pkg.solver", pack=False)),
        kernels=[SimpleNamespace(definition=SimpleNamespace(defined="pkg.solver:add:4"))],
    )
    return SimpleNamespace(modules=[module], sources=[{"path": str(path)} for path in sources])


def marks(root: Path, sources: dict[str, str]) -> list[str]:
    """Return the sources that have a mark, by their paths without the ending."""
    for name, text in sources.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    results = cast("Any", [result([root / name for name in sources])])
    files = in_place.files(results, {"pkg/solver.aotcuda/manifest.json": b"{}"}, root, editable=False)
    return sorted(name.removesuffix(".aotcuda/in-place") for name in files)


USER = "from aotcuda.numba import cuda\n"


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["pkg/__init__.py", "pkg/solver.py", "pkg/helpers.py", "pkg/inner/more.py"], ["pkg/__init__", "pkg/solver"]),
        (["pkg/solver.py", "pkg/helpers.py", "alone.py"], ["alone", "pkg/helpers", "pkg/solver"]),
        (["pkg/solver.py", "pkg/own/__init__.py", "pkg/own/helpers.py"], ["pkg/own/__init__", "pkg/solver"]),
    ],
)
def test_packages_without_kernels_have_one_mark(sources: list[str], expected: list[str], tmp_path: Path) -> None:
    texts = {name: "" if name.endswith("__init__.py") else USER for name in sources}
    assert marks(tmp_path, texts | {"pkg/other.py": "import math\n"}) == expected
