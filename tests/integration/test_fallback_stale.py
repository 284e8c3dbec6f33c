"""An old answer is never given: by real builds of both front ends, out of either cache and by an editable install.

One project reads something in every way that `support.reading` knows, while it is imported or when the compiler runs a
function of it, and is built once; then each thing is edited by itself, and put back.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import tomllib
import warnings

import pytest

from aotcuda.builder import api, jit, source_tree, stages
from aotcuda.errors import FallbackWarning, NoImageError, StaleBuildError
from aotcuda.runtime.jit import build_inputs
from aotcuda.runtime.jit import compile as jit_compile
from integration import projects
from support import reading
from support.late import forget_cache

ALL = reading.WAYS | reading.HARMLESS
BEFORE = {name: value for way in ALL.values() for name, value in way.variables[0].items()} | {"WATCHED_A": "0"}
SOURCE = """\
from numba import cuda
from {extending}

{imports}


def scaled(x):
    return 3 * x


@overload(scaled, {registered})
def _scaled(x):
{imports_late}
    return scaled


@cuda.jit
def k(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = scaled(x[i])
"""
EXTENDING = {
    "numba-cuda": {"extending": "numba.cuda.extending import overload", "registered": "target='cuda'"},
    "numba-cuda-mlir": {
        "extending": "numba_cuda_mlir.extending import overload, typing_registry",
        "registered": "typing_registry=typing_registry",
    },
}
"""How functions are given to each compiler that it runs for what is to be compiled."""


class Built:
    """The project as it was built, one for each front end.

    It was never installed, and is in the fallback's cache or that of builds; or it is installed as editable.
    """

    def __init__(self, folder):
        self.root = folder / "project"
        self.cache = folder / "cache"
        self.folders = {path: folder / "pristine" / path.name for path in (self.root, self.cache)}

    def keep(self):
        self.cache.mkdir(exist_ok=True)
        for path, pristine in self.folders.items():
            shutil.copytree(path, pristine, symlinks=True)

    def restore(self):
        """Undo every edit; times are as they were too."""
        for path, pristine in self.folders.items():
            shutil.rmtree(path)
            shutil.copytree(pristine, path, symlinks=True)


@pytest.fixture(scope="module", params=["cache", "editable install", "build cache"])
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=["imported", "compiled"])
def when(request):
    return request.param


@pytest.fixture(scope="module")
def built(front_end, kind, when, tmp_path_factory):
    found = Built(tmp_path_factory.mktemp("stale").resolve())
    root = found.root
    imports = [f"from pkg import _{reading.tag(name)}" for name in ALL]
    late = "".join(f"    {line}\n" for line in imports) if when == "compiled" else ""
    own = EXTENDING[front_end]
    source = SOURCE.format(imports="" if late else "\n".join(imports), imports_late=late, **own)
    projects.write(
        root,
        projects.source(source),
        aotcuda='arch = ["sm_90"]\nwatch = ["watched/*.h5"]\nwatch-env = ["WATCHED_*"]',
        module='kernels = { k = "void(float32[::1])" }',
    )
    for name, way in ALL.items():
        reading.prepare(name, way, root / "pkg")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for name, value in BEFORE.items():
            patch.setenv(name, value)
        if kind == "cache":
            patch.setenv("AOTCUDA_CACHE_DIR", str(found.cache))
            forget_cache(patch)
            ask(found)
        elif kind == "build cache":
            patch.setenv("AOTCUDA_BUILD_CACHE", str(found.cache))
            assert not api.build(table_of(root), root).summary.whole
        else:
            source_tree.install(api.build(table_of(root), root, editable=True), root)
    found.keep()
    return found


def table_of(root):
    return tomllib.loads((root / "pyproject.toml").read_text())["tool"]["aotcuda"]


def ask(found):
    """The module for a GPU, from the cache or compiled."""
    inputs = build_inputs.project("pkg.k", str(found.root))
    request = inputs.case(None, None, (9, 0), (13, 0))
    return jit_compile.obtain(request, "a GPU of compute capability 9.0", NoImageError("it was never built"))


class CompiledAgainError(Exception):
    """The cache had no answer."""


@pytest.fixture
def answer(built, kind, cuda, monkeypatch):
    """A function that gives the images that were built, and raises if they are out of date; and the project."""
    for name, value in BEFORE.items():
        monkeypatch.setenv(name, value)
    if kind == "cache":
        monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(built.cache))

        def compiled(_):
            raise CompiledAgainError

        monkeypatch.setattr(jit, "build", compiled)

        def get():
            forget_cache(monkeypatch)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FallbackWarning)
                return ask(built).manifest["images"]
    elif kind == "build cache":
        monkeypatch.setenv("AOTCUDA_BUILD_CACHE", str(built.cache))

        def compiled_again(*_, **__):
            raise CompiledAgainError

        monkeypatch.setattr(stages, "run", compiled_again)

        def get():
            return api.build(table_of(built.root), built.root).files
    else:
        monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
        monkeypatch.syspath_prepend(str(built.root))
        importlib.invalidate_caches()
        module = importlib.import_module("pkg.k")

        def get():
            module.k[1, 32](cuda.array(8))
            return module.__aotcuda__.manifest["images"]

    yield get, built.root
    built.restore()
    for name in [name for name in sys.modules if name.partition(".")[0] == "pkg"]:
        del sys.modules[name]


OUT_OF_DATE = (CompiledAgainError, StaleBuildError)


@pytest.mark.parametrize("name", reading.WAYS)
def test_an_edit_is_never_answered_by_what_was_built_before(answer, monkeypatch, name):
    get, root = answer
    way = reading.WAYS[name]
    get()
    get()
    way.edit(root / "pkg" / "data" / reading.tag(name))
    for variable, value in way.variables[1].items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(OUT_OF_DATE) as caught:
        get()
    if caught.type is StaleBuildError:
        assert reading.tag(name) in str(caught.value) or "variable READ_" in str(caught.value)


@pytest.mark.parametrize("name", reading.HARMLESS)
def test_whatever_changes_nothing_is_answered_by_what_was_built(answer, monkeypatch, name):
    get, root = answer
    way = reading.HARMLESS[name]
    built = get()
    way.edit(root / "pkg" / "data" / reading.tag(name))
    for variable, value in way.variables[1].items():
        monkeypatch.setenv(variable, value)
    assert get() == built


@pytest.mark.parametrize("folder", ["/", "pkg", ".."])
def test_where_a_program_is_started_does_not_matter(answer, monkeypatch, folder):
    get, root = answer
    built = get()
    monkeypatch.chdir(root / folder)
    for name in ("PATH", "TERM", "PWD"):
        monkeypatch.setenv(name, "/somewhere/else")
    assert get() == built


def test_the_variable_for_what_nobody_sees(answer, monkeypatch):
    get, _ = answer
    get()
    monkeypatch.setenv("AOTCUDA_CACHE_KEY", "tables of 2024")
    with pytest.raises(OUT_OF_DATE):
        get()


@pytest.mark.parametrize("name", ["watched/a.h5", "pkg/helper/__init__.py", "pkg/late.py"])
def test_files_that_no_code_has_read_yet(answer, name):
    """A match of `watch`, and modules that the project may import now."""
    get, root = answer
    get()
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("")
    with pytest.raises(OUT_OF_DATE):
        get()


@pytest.mark.parametrize("value", ["1", None])
def test_variables_that_the_table_names(answer, monkeypatch, value):
    get, _ = answer
    get()
    if value is None:
        monkeypatch.delenv("WATCHED_A")
    else:
        monkeypatch.setenv("WATCHED_B", value)
    with pytest.raises(OUT_OF_DATE):
        get()


def test_manifests_name_nothing_of_the_environment_that_a_build_ran_in(built, kind):
    if kind != "editable install":
        pytest.skip("a late build runs in the environment that its result is launched in")
    manifest = json.loads((built.root / "pkg" / "k.aotcuda" / "manifest.json").read_text())
    outside = [read["path"] for read in manifest["reads"] if read["path"].startswith("/")]
    assert [path for path in outside if "site-packages" in path or path.startswith(sys.prefix)] == []
