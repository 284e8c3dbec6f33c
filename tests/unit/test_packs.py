"""Packs: kernels of installed packages launch code of packs, or Triton launches them."""

from __future__ import annotations

import copy
import importlib
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda import manifest as manifests
from aotcuda import packs
from aotcuda.common import after_import, heuristics, kernel_digest, object_path
from aotcuda.errors import FallbackWarning, StaleBuildError
from aotcuda.integrations.in_place.triton import adoption, pack_index
from aotcuda.integrations.in_place.triton import packs as of_packs
from aotcuda.runtime.jit import compile as jit_compile
from support import triton_in_place
from support.triton_in_place import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.stand_in import StandIn

triton = pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

OPS = """

import triton
import triton.language as tl
from triton.language import exp

from foreign import helpers
from foreign.helpers import double

SCALE = tl.constexpr(3)
DTYPE = tl.float32

@triton.jit
def scale(x, factor, n, BLOCK: tl.constexpr, ACT: tl.constexpr = None):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = double(tl.load(x + at, at < n)) * factor * SCALE * helpers.LIMIT
    tl.store(x + at, exp(helpers.half(value)).to(DTYPE), at < n)

@triton.heuristics({"HAS_BIAS": lambda args: args["bias"] is None, "ODD": lambda args: args["n"] % 2 == 1})
@triton.jit
def norm(x, bias, n, HAS_BIAS: tl.constexpr, ODD: tl.constexpr):
    pass

@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit
def tuned(x, n, BLOCK: tl.constexpr):
    pass

def sized(x, n):
    pass

BY_SIZE = {2: triton.autotune([triton.Config({}, num_warps=8)], key=[])(triton.jit(sized))}
"""
HELPERS = """
import triton
import triton.language as tl

LIMIT = tl.constexpr(8)

@triton.jit
def quarter(x):
    return x / 4

@triton.jit
def double(x):
    return x + x

@triton.jit
def half(x):
    return quarter(x) + quarter(x)
"""
X, N = {"name": "x"}, {"name": "n"}
KERNELS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "scale": (
        [X, {"name": "factor"}, N, {"name": "BLOCK"}, {"name": "ACT", "default": None}],
        {"x": "*fp32:16", "factor": "fp32", "n": "i32", "BLOCK": 128},
    ),
    "norm": (
        [X, {"name": "bias"}, N, {"name": "HAS_BIAS", "is_none": "bias"}, {"name": "ODD"}],
        {"x": "*fp32:16", "bias": None, "n": "i32", "HAS_BIAS": True, "ODD": True},
    ),
    "tuned": ([X, N, {"name": "BLOCK"}], {"x": "*fp32:16", "n": "i32", "BLOCK": 128, "num_warps": 8}),
    "sized": ([X, N], {"x": "*fp32:16", "n": "i32", "num_warps": 8}),
}
PATHS = {name: name for name in KERNELS} | {"sized": "BY_SIZE[2]"}
EVERY = [f"{name}__0" for name in KERNELS]
TUNING = {
    "tuned": {
        "keys": ["n"],
        "configs": [{"kwargs": {"BLOCK": 128}, "num_warps": 8, "num_stages": 3, "num_ctas": 1, "maxnreg": None}],
        "gpus": {"NVIDIA H100": {"capability": "9.0", "default": 0, "choices": []}},
    }
}
LAUNCHES: dict[str, Callable[[Any, Any], object]] = {
    "scale": lambda ops, x: ops.scale[(3,)](x, 0.5, 7, BLOCK=128),
    "norm": lambda ops, x: ops.norm[(3,)](x, None, 7),
    "tuned": lambda ops, x: ops.tuned[(3,)](x, 7),
    "sized": lambda ops, x: ops.BY_SIZE[2][(3,)](x, 7),
}


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AOTCUDA_BUILDING", "AOTCUDA_IN_PLACE", "AOTCUDA_FALLBACK", "TRITON_INTERPRET"):
        monkeypatch.delenv(name, raising=False)
    empty: Any
    for holder, name, empty in (
        (jit_compile, "_warned", set()),
        (adoption, "_packed", {}),
        (pack_index, "_used", set()),
        (of_packs, "_modules", {}),
        (of_packs, "_warned", set()),
    ):
        monkeypatch.setattr(holder, name, empty)
    for name in [*after_import._functions]:
        monkeypatch.delitem(after_import._functions, name)
    finders = [*sys.meta_path]
    yield
    sys.meta_path[:] = finders
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("foreign", "mypack")]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def by_triton(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the kernels that Triton itself launches."""
    names: list[str] = []

    def run(self: Any, *_: object, grid: object, warmup: bool, **__: object) -> None:
        assert grid
        assert not warmup
        names.append(self.__name__)

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", run)
    monkeypatch.setattr(triton.runtime.autotuner.Autotuner, "_bench", lambda *_, config, **__: [1.0, 1.0, 1.0])
    return names


def write_source(root: Path, ops: str = OPS, helpers: str = HELPERS) -> None:
    """Write the installed package."""
    folder, about = root / "foreign", root / "foreign-1.1.dist-info"
    for each in (folder, about):
        each.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.1\n")
    for name, text in (("__init__", ""), ("ops", ops), ("helpers", helpers)):
        (folder / f"{name}.py").write_text(text)
        for cached in folder.glob("__pycache__/*"):  # Python would use it for another text of the same second
            cached.unlink()


def digests() -> dict[str, str]:
    ops = importlib.import_module("foreign.ops")
    digest_of = {}
    for name in KERNELS:
        layers = [object_path.walk(ops, object_path.split(PATHS[name]))]
        while not isinstance(layers[-1], triton.JITFunction):
            layers.append(layers[-1].fn)
        around = heuristics.computed_arguments(layers, triton.runtime.autotuner.Heuristics)
        digest_of[name] = kernel_digest.digest(layers[-1], around)
    return digest_of


def write(cuda: StandIn) -> Path:
    """Write the package and a pack of it; return the folder of the pack."""
    write_source(cuda.packages)
    about = {"source": "foreign.ops", "distribution": "foreign", "version": "1.0"}
    tuning = {"format": "aotcuda tuning", "version": 1, "source": "foreign.ops", "kernels": TUNING}
    index = {name: [PATHS[name], digest] for name, digest in digests().items()}
    kernels = [record(name, copy.deepcopy(arguments), variant) for name, (arguments, variant) in KERNELS.items()]
    kernels = [{**item, "digest": index[item["name"]][1]} for item in kernels]
    options: dict[str, Any] = {"name": "mypack.ops", "tuning": json.dumps(tuning), "pack": about, "sources": []}
    triton_in_place.write(cuda.packages, "", *kernels, **options)
    folder = cuda.packages / "mypack"
    (folder / "ops.py").unlink()
    module = {"module": "mypack.ops", **about, "triton": triton.__version__, "kernels": index}
    path = folder / "__init__.aotcuda" / manifests.PACK
    path.parent.mkdir()
    path.write_text(json.dumps({"format": "aotcuda pack", "version": 1, "modules": [module]}))
    (folder / "__init__.py").write_text("from aotcuda import packs\n\npacks.use(__name__)\n")
    forget()
    return folder


def launch(cuda: StandIn, *names: str) -> list[str]:
    ops, x = importlib.import_module("foreign.ops"), cuda.array()
    for name in names or KERNELS:
        LAUNCHES[name](ops, x)
    return [call["kernel"] for call in cuda.launches()]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("first", ["mypack", "foreign.ops"])
def test_a_pack_serves_kernels_that_are_imported_before_or_after(
    first: str, cuda: StandIn, by_triton: list[str]
) -> None:
    write(cuda)
    importlib.import_module(first)
    ops = importlib.import_module("foreign.ops")
    kernels = [ops.scale, ops.norm, ops.norm.fn, ops.tuned, ops.tuned.fn]
    importlib.import_module("mypack")
    for _ in range(4):  # the fast path learns
        launched = launch(cuda)
    assert launched == EVERY * 4
    assert by_triton == []
    assert [ops.scale, ops.norm, ops.norm.fn, ops.tuned, ops.tuned.fn] == kernels
    assert type(ops.scale).__mro__[1] is triton.JITFunction


JIT = "@triton.jit\ndef "
EDITS = [  # a kernel, a file, a text of it, the text in its place
    ("scale", "ops", "* factor *", "+ factor *"),
    ("scale", "ops", "ACT: tl.constexpr = None", "ACT: tl.constexpr = 5"),
    ("scale", "ops", "factor, n, BLOCK", "factor, n: tl.int64, BLOCK"),
    ("scale", "helpers", "x + x", "x * 2.0"),
    ("scale", "helpers", "x / 4", "x * 0.25"),  # a callee of a callee
    ("scale", "ops", "import double", "import quarter as double"),
    ("scale", "ops", "import exp", "import log as exp"),
    ("scale", "ops", "constexpr(3)", "constexpr(4)"),
    ("scale", "ops", "constexpr(3)", "constexpr(3.0)"),
    ("scale", "ops", "DTYPE = tl.float32", "DTYPE = tl.float16"),
    ("scale", "helpers", "constexpr(8)", "constexpr(9)"),
    ("scale", "ops", f"{JIT}scale", '@triton.jit(do_not_specialize=["n"])\ndef scale'),
    ("scale", "ops", f"{JIT}scale", '@triton.jit(do_not_specialize_on_alignment=["x"])\ndef scale'),
    ("scale", "helpers", f"{JIT}half", "@triton.jit(noinline=True)\ndef half"),
    ("norm", "ops", "is None", "is not None"),
    ("norm", "ops", 'args["bias"]', 'args["x"]'),
    ("norm", "ops", 'lambda args: args["bias"] is None', "lambda args: True"),
    ("tuned", "ops", '{"BLOCK": 128}', '{"BLOCK": 256}'),
    ("tuned", "ops", "num_warps=8", "num_warps=2"),
]
UNCHANGED = [
    ("ops", f"\n{JIT}scale", f"\n\n# scales\n\n{JIT}scale"),
    ("helpers", f"{JIT}quarter", f"{JIT}fifth(x):\n    return x / 5\n\n\n{JIT}quarter"),
    ("ops", "SCALE =", "OTHER = 7\nSCALE ="),
    ("ops", "% 2 == 1", "% 3 == 1"),  # a heuristic that is called
]


def edit(cuda: StandIn, file: str, old: str, new: str) -> None:
    """Write the package and a pack of it, edit a file of the package, and import the pack."""
    write(cuda)
    texts = {"ops": OPS, "helpers": HELPERS}
    assert old in texts[file]
    write_source(cuda.packages, **{**texts, file: texts[file].replace(old, new)})
    importlib.import_module("mypack")


@pytest.mark.parametrize(("kernel", "file", "old", "new"), EDITS)
def test_no_launch_takes_code_of_an_edited_kernel(
    kernel: str, file: str, old: str, new: str, cuda: StandIn, by_triton: list[str]
) -> None:
    edit(cuda, file, old, new)
    # With other configs the kernel is the same, and it launches other variants.
    message = (
        r"made from foreign 1\.0 .* foreign 1\.1 .* does not serve" if kernel != "tuned" else "no packaged variant"
    )
    with pytest.warns(FallbackWarning, match=rf"{message}.*Triton compiles it") as warned:
        launch(cuda, kernel)
        launch(cuda, kernel)
    assert len(warned) == 1
    assert cuda.launches() == []
    assert set(by_triton) == {kernel}


@pytest.mark.parametrize(("file", "old", "new"), UNCHANGED)
def test_edits_elsewhere_change_nothing(file: str, old: str, new: str, cuda: StandIn, by_triton: list[str]) -> None:
    edit(cuda, file, old, new)
    assert launch(cuda) == EVERY
    assert by_triton == []


def test_another_release_of_triton_compiles_its_own_code(
    cuda: StandIn, by_triton: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cuda)
    importlib.import_module("mypack")
    before = digests()
    monkeypatch.setattr(triton, "__version__", "3.99.1")
    assert digests() == before
    with pytest.warns(FallbackWarning, match=r"by Triton .* with Triton 3\.99\.1 is installed") as warned:
        assert launch(cuda, "scale", "norm") == []
    assert len(warned) == 1
    assert by_triton == ["scale", "norm"]


def test_no_compilation_is_allowed_with_fallback_error(cuda: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
    edit(cuda, "ops", "* factor", "+ factor")
    with pytest.raises(StaleBuildError, match=r"does not serve foreign\.ops\.scale"):
        launch(cuda, "scale")


@pytest.mark.parametrize(
    "file",
    ["__init__.aotcuda/pack.json", "ops.aotcuda/manifest.json", "ops.aotcuda/kernels.fatbin", "ops.aotcuda/in-place"],
)
def test_a_damaged_pack_is_ignored_with_one_warning(file: str, cuda: StandIn, by_triton: list[str]) -> None:
    path = write(cuda) / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.warns(FallbackWarning, match="so Triton compiles") as warned:
        importlib.import_module("mypack")
        launch(cuda, "scale", "norm")
    assert len(warned) == 1
    assert cuda.launches() == []
    assert by_triton == ["scale", "norm"]


def test_a_pack_for_a_missing_package_does_nothing(cuda: StandIn) -> None:
    write(cuda)
    for path in (cuda.packages / "foreign").glob("*.py"):
        path.unlink()
    importlib.import_module("mypack")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("foreign.ops")


def test_each_code_of_a_pack_serves_its_own_version(cuda: StandIn, by_triton: list[str]) -> None:
    folder = write(cuda)
    index = folder / "__init__.aotcuda" / manifests.PACK
    content = json.loads(index.read_text())
    other = {**content["modules"][0], "version": "0.9", "kernels": {"scale": ["scale", "0" * 64]}}
    index.write_text(json.dumps({**content, "modules": [other, *content["modules"], other]}))
    importlib.import_module("mypack")
    assert launch(cuda) == EVERY
    assert by_triton == []


def test_packs_of_the_variable_are_imported_with_triton(
    cuda: StandIn, by_triton: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cuda)
    monkeypatch.setenv("AOTCUDA_PACKS", "mypack, nopack")
    with pytest.warns(FallbackWarning, match="nopack cannot be imported"):
        packs.start()  # Triton is imported already
    assert launch(cuda, "scale") == ["scale__0"]
    assert by_triton == []


@pytest.mark.parametrize("variable", ["AOTCUDA_BUILDING=1", "AOTCUDA_IN_PLACE=0"])
def test_packs_are_off_in_builds_and_recordings(
    variable: str, cuda: StandIn, by_triton: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cuda)
    monkeypatch.setenv(*variable.split("="))
    importlib.import_module("mypack")
    assert launch(cuda, "scale") == []
    assert type(sys.modules["foreign.ops"].scale) is triton.JITFunction
