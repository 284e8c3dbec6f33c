"""The marks that a build leaves beside sources which are packaged in place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from aotcuda.builder import in_place

if TYPE_CHECKING:
    from pathlib import Path


def result(sources: list[Path]) -> Any:
    """Return what a worker built of `sources`: the module `pkg.solver`, whose one kernel stands in itself."""
    module = SimpleNamespace(
        plan=SimpleNamespace(in_place=True, config=SimpleNamespace(name="pkg.solver", pack=False)),
        kernels=[SimpleNamespace(defined="pkg.solver:add:4")],
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


def test_a_package_has_one_mark_for_all_its_sources_without_kernels(tmp_path: Path) -> None:
    sources = {"pkg/__init__.py": "", "pkg/solver.py": USER, "pkg/helpers.py": USER, "pkg/inner/more.py": USER}
    assert marks(tmp_path, sources) == ["pkg/__init__", "pkg/solver"]


def test_where_no_init_stands_for_the_package_each_source_that_needs_a_mark_has_its_own(tmp_path: Path) -> None:
    sources = {"pkg/solver.py": USER, "pkg/helpers.py": USER, "pkg/other.py": "import math\n", "alone.py": USER}
    assert marks(tmp_path, sources) == ["alone", "pkg/helpers", "pkg/solver"]


def test_a_package_in_a_folder_of_several_distributions_has_a_mark_and_the_folder_has_none(tmp_path: Path) -> None:
    sources = {"pkg/solver.py": USER, "pkg/own/__init__.py": "", "pkg/own/helpers.py": USER}
    assert marks(tmp_path, sources) == ["pkg/own/__init__", "pkg/solver"]
