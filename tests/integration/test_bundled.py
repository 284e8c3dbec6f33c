"""Test wheels with a bundled run time, `runtime = "bundled"`, on the stand-in driver."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aotcuda
from aotcuda.builder.emit import bundle
from aotcuda.tools.split import split
from integration import projects
from support.launch_paths import needs_extension

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.stand_in import StandIn

pytestmark = pytest.mark.usefixtures("build_cache")

PYPROJECT = """
[build-system]
requires = ["hatchling", "aotcuda[cu13]"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1"

[tool.setuptools]
packages = ["{name}"]

[tool.hatch.build.targets.wheel.hooks.aotcuda]

[tool.aotcuda]
arch = ["sm_90"]
runtime = "bundled"
host-abi = {host_abi}

[tool.aotcuda.modules."{name}.kernels"]
source = "{name}._kernels"
link = [{{ path = "table.cu", setup = "{name}._hooks:upload" }}]
kernels.twice = "void(float32[::1])"

[tool.aotcuda.modules."{name}.solver"]
source = "{name}.solver"
kernels.half = "void(float32[::1])"
"""
KERNELS = """
from numba import cuda
def twice(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2
"""
SOLVER = """
from aotcuda.numba import cuda

@cuda.jit
def half(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] /= 2

def solve(x):
    half[1, 32](x)
"""
CORE = """
import ctypes
class ObjectCode:
    def __init__(self, images):
        self.handle = ctypes.c_void_p()
        assert ctypes.CDLL("libcuda.so.1").cuLibraryLoadData(ctypes.byref(self.handle), images, *[0] * 6) == 0
        self.handle = self.handle.value
    from_fatbin = from_cubin = classmethod(lambda kind, images, name: kind(images))
"""
"""A stand-in for cuda-core, which makes the arguments of callbacks."""
HOOKS = "calls = []\ndef upload(code):\n    calls.append(type(code).__module__)\n"
LAUNCH = """
import ctypes, sys
fake = ctypes.CDLL("libcuda.so.1")
fake.fake_allocate.restype = ctypes.c_uint64
class Array:
    def __init__(self):
        self.__cuda_array_interface__ = {
            "version": 3, "data": (fake.fake_allocate(ctypes.c_uint64(512), 0), False), "shape": (64,),
            "typestr": "<f4", "strides": None, "stream": None,
        }
from importlib import import_module
for name in sys.argv[1:]:
    kernels, solver, hooks = (import_module(f"{name}.{part}") for part in ("kernels", "solver", "_hooks"))
    kernels.twice[1, 32](Array())
    solver.solve(Array())
    errors = import_module(f"{name}._aotcuda.errors")
    try:
        kernels.twice[1, 32]("no array")
    except errors.ArgumentError as error:
        assert f"{name}.kernels.twice" in str(error), error
    print(name, type(kernels.__aotcuda__).__module__.rpartition(".runtime")[0], *hooks.calls)
"""


def make(folder: Path, name: str, *, host_abi: bool = False, **sources: str) -> Path:
    """Return a project with a generated module, one in place, and a callback."""
    package = folder / name
    package.mkdir(parents=True)
    files = {"__init__": "", "_kernels": KERNELS, "solver": SOLVER, "_hooks": HOOKS, **sources}
    for stem, text in files.items():
        (package / f"{stem}.py").write_text(text)
    (folder / "table.cu").write_text("__device__ int table[4];\n")
    (folder / "pyproject.toml").write_text(PYPROJECT.format(name=name, host_abi=str(host_abi).lower()))
    return folder


@pytest.fixture(scope="module")
def site(build_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two packages, whose run times have different versions; the second has the C extension."""
    folder = tmp_path_factory.mktemp("bundled")
    for name in ("first", "second"):
        projects.unpacked(projects.build_wheel(make(folder / name, name, host_abi=name == "second")), folder / "site")
    rename_version(folder / "site" / "second" / "_aotcuda", aotcuda.__version__, "0.9.0")
    core = folder / "site" / "cuda" / "core" / "__init__.py"
    core.parent.mkdir(parents=True)
    core.write_text(CORE)
    return folder / "site"


def rename_version(copy: Path, old: str, new: str) -> None:
    """Give another version to a bundled run time."""
    for path in copy.glob("V*"):
        path.write_text(f"{new}\n")
    version = copy / "version.py"
    version.write_text(version.read_text().replace(f'"{old}"', f'"{new}"'))


def installed(folder: Path, version: str) -> Path:
    """Return a folder with this aotcuda under another version, without the extension in C."""
    for name, data in bundle.files("pkg").items():
        path = folder / name.replace("pkg/_aotcuda", "aotcuda")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.replace(b"pkg._aotcuda", b"aotcuda"))
    text = (folder / "aotcuda" / "version.py").read_text()
    (folder / "aotcuda" / "version.py").write_text(text.replace(f'"{aotcuda.__version__}"', f'"{version}"'))
    return folder


def run(cuda: StandIn, code: str, *arguments: str, path: list[Path], **environ: str) -> Any:
    """Run code without the site's packages, so only an aotcuda on `path` is installed."""
    environment = cuda.environment() | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-S", "-P", "-c", code, *arguments]
    return subprocess.run(command, env={**environment, **environ}, capture_output=True, text=True, check=False)


def test_bundled_wheel_has_no_dependencies_and_is_small(site: Path) -> None:
    (wheel,) = (site.parent / "first" / "dist").glob("*.whl")
    files = projects.content(wheel)
    assert b"Requires-Dist" not in files["first-1.dist-info/METADATA"]
    assert files["first/solver.py"].decode() == SOLVER.replace("from aotcuda.", "from first._aotcuda.")
    assert files["first/_aotcuda/VERSION"].decode().strip() == aotcuda.__version__
    assert b"Apache License" in files["first/_aotcuda/LICENSE"]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            if "/_aotcuda/" in name:
                archive.writestr(name, data)
    assert len(packed.getvalue()) < 340_000
    bom = json.loads(files["first-1.dist-info/sboms/aotcuda.cdx.json"])
    (copy,) = [item for item in bom["components"] if item["name"] == "aotcuda"]
    assert copy["version"] == aotcuda.__version__
    assert "aotcuda" in next(item for item in bom["dependencies"] if item["ref"] == "module:first.kernels")["dependsOn"]


def test_no_module_of_the_copy_needs_an_installed_aotcuda(site: Path, cuda: StandIn) -> None:
    code = """
import importlib, pkgutil, sys
import first._aotcuda as copy
for module in pkgutil.walk_packages(copy.__path__, f"{copy.__name__}."):
    if ".triton." not in module.name and ".interop." not in module.name:
        importlib.import_module(module.name)
print([name for name in sys.modules if name.partition(".")[0] == "aotcuda"])
"""
    done = run(cuda, code, path=[site])
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize(
    ("version", "setting", "run_times"),
    [
        (None, "", ("first._aotcuda", "second._aotcuda")),
        ("9.0", "", ("aotcuda", "aotcuda")),
        ("9.0", "bundled", ("first._aotcuda", "second._aotcuda")),
        ("9.0", "installed", ("aotcuda", "aotcuda")),
        ("0.0.9", "installed", "the installed aotcuda is 0.0.9, and first needs 0.1.0; install a newer aotcuda"),
        (None, "installed", "no aotcuda is installed; install a newer aotcuda"),
        (None, "own", "AOTCUDA_RUNTIME is 'own'; write 'bundled' or 'installed'"),
    ],
)
def test_two_packages_beside_an_installed_aotcuda(
    version: str | None,
    setting: str,
    run_times: tuple[str, str] | str,
    site: Path,
    cuda: StandIn,
    tmp_path: Path,
) -> None:
    path = [site] if version is None else [site, installed(tmp_path / "installed", version)]
    done = run(cuda, LAUNCH, "first", "second", path=path, AOTCUDA_RUNTIME=setting)
    if isinstance(run_times, str):
        assert run_times in done.stderr.splitlines()[-1]
        return
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["first", run_times[0]], ["second", run_times[1]]]
    assert [len(line.split()) for line in lines] == [3, 3]  # each package's callback ran once
    assert [call["kernel"].partition("__")[0] for call in cuda.launches()] == ["twice", "half"] * 2


@needs_extension
def test_with_host_abi_the_c_extension_comes_along(site: Path, cuda: StandIn) -> None:
    for name, tag in (("first", "py3-none-any"), ("second", bundle.extension_tag())):
        (wheel,) = (site.parent / name / "dist").glob("*.whl")
        files = projects.content(wheel)
        assert wheel.name == f"{name}-1-{tag}.whl"
        assert f"Tag: {tag}\n".encode() in files[f"{name}-1.dist-info/WHEEL"]
        assert any(map(bundle.is_extension, files)) == (name == "second")
    code = f"""{LAUNCH}
for _ in range(3):
    before = getattr(sys.modules.get("second._aotcuda.runtime.launch.fast._launch"), "declines", dict)()
    kernels.twice[1, 32](Array())
print(kernels.__aotcuda__.fast_path, launch_module.declines() == before)
"""
    code = code.replace("launch_module", "sys.modules['second._aotcuda.runtime.launch.fast._launch']")
    done = run(cuda, code, "second", path=[site])
    assert done.stdout.splitlines()[1:] == ["in C True"], done.stderr


def test_setuptools_packs_the_same_files(
    site: Path, setuptools: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wheel,) = (site.parent / "first" / "dist").glob("*.whl")
    monkeypatch.setattr(projects.BackEnd, "name", "setuptools")
    monkeypatch.setenv("PYTHONPATH", str(setuptools("")))
    other = projects.build_wheel(projects.for_setuptools(make(tmp_path / "project", "first")))
    by_hatchling, by_setuptools = (
        {name: data for name, data in projects.content(path).items() if ".dist-info/" not in name}
        for path in (wheel, other)
    )
    assert by_setuptools == by_hatchling


@pytest.mark.parametrize(("way", "requirement"), [("variants", "first"), ("providers", "first[sm90]")])
def test_split_wheels_launch_with_their_own_run_time(
    way: str, requirement: str, site: Path, cuda: StandIn, tmp_path: Path
) -> None:
    (wheel,) = (site.parent / "first" / "dist").glob("*.whl")
    parts = tmp_path / "parts"
    split.run(wheel, parts)
    where = ("--no-index", "--find-links", parts / way, "--target", tmp_path / "installed")
    forced = {"NV_VARIANT_PROVIDER_FORCE_SM_ARCH": "9.0", "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION": "13.0"}
    uv = (Path(sys.executable).with_name("uv"), "pip", "install", "--preview-features", "wheel-variants", "--quiet")
    projects.succeed(tmp_path, *uv, *where, "--python", sys.executable, requirement, **forced)
    done = run(cuda, LAUNCH, "first", path=[tmp_path / "installed", site])
    assert done.stdout.split()[:2] == ["first", "first._aotcuda"], done.stderr
    assert [call["kernel"].partition("__")[0] for call in cuda.launches()] == ["twice", "half"]


def test_import_outside_the_bundled_run_time_is_refused(tmp_path: Path) -> None:
    project = make(tmp_path, "first", solver=f"{SOLVER}def later():\n    import aotcuda.jax\n")
    done = projects.forked_run(project, sys.executable, "-m", "aotcuda", "build")
    message = "first/solver.py:13: aotcuda.jax is not part of a bundled run time; set runtime"
    assert (done.status, message in done.err, "Traceback" in done.err) == (1, True, False), done.err


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("import aotcuda", "import p._aotcuda as aotcuda"),
        ("import aotcuda.errors", "import p._aotcuda as aotcuda, p._aotcuda.errors as _"),
        ("import aotcuda.errors as e, sys", "import p._aotcuda.errors as e, sys"),
        ("from aotcuda.numba import (cuda,\n    float32)", "from p._aotcuda.numba import (cuda,\n    float32)"),
        ("from . import aotcuda", "from . import aotcuda"),
        ("import aotcuda_extra", "import aotcuda_extra"),
        ("x = 'aotcuda.errors'", "x = 'aotcuda.errors'"),
        ("from  aotcuda . errors import X", "from  p._aotcuda . errors import X"),
    ],
)
def test_imports_alone_are_rewritten(statement: str, changed: str, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "m.py").write_text(f"é = 1; {statement}\naotcuda = 2\n", encoding="utf-8")
    found = bundle.rewrite_sources(tmp_path, "p")
    text = found["p/m.py"].decode() if found else f"é = 1; {statement}\naotcuda = 2\n"
    assert text == f"é = 1; {changed}\naotcuda = 2\n"


def test_rebundle_replaces_an_older_run_time(site: Path, cuda: StandIn, tmp_path: Path) -> None:
    (original,) = (site.parent / "first" / "dist").glob("*.whl")
    of_original = projects.content(original)
    wheel = packed(tmp_path / original.name, with_record(of_original | OLDER, "first-1.dist-info"))
    done = projects.aotcuda(tmp_path, "rebundle", wheel)
    assert done.out == f"first/_aotcuda: aotcuda 0.0.5 -> {aotcuda.__version__}\n"
    after = projects.content(wheel)
    assert {name for name in after if after[name] != of_original.get(name)} <= {"first-1.dist-info/RECORD"}
    assert after.keys() == of_original.keys()
    rows = {name: digest for name, digest, _ in csv.reader(after["first-1.dist-info/RECORD"].decode().splitlines())}
    for name, data in after.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert rows.pop(name) == ("" if name.endswith("/RECORD") else f"sha256={digest}")
    assert not rows
    launched = run(cuda, LAUNCH, "first", path=[projects.unpacked(wheel, tmp_path / "unpacked"), site])
    assert launched.stdout.split()[:2] == ["first", "first._aotcuda"], launched.stderr


OLDER = {"first/_aotcuda/VERSION": b"0.0.5\n", "first/_aotcuda/gone.py": b""}


def with_record(files: dict[str, bytes], metadata: str) -> dict[str, bytes]:
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        for name, data in files.items()
    }
    rows = [f"{name},sha256={digests[name]},{len(files[name])}" for name in files if not name.endswith("/RECORD")]
    return files | {f"{metadata}/RECORD": "\n".join([*rows, f"{metadata}/RECORD,,", ""]).encode()}


A_WHEEL = {"a-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: a\nVersion: 1\n", "a-1.dist-info/WHEEL": b""}
DAMAGED_BILL = {"a/_aotcuda/VERSION": b"0.0.5", "a-1.dist-info/sboms/aotcuda.cdx.json": b'{"components": 3}'}


def packed(wheel: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "is no readable wheel; it was truncated or altered"),
        (A_WHEEL | {"a/_aotcuda/VERSION": b"9.0"}, "a holds aotcuda 9.0, and this is"),
        (
            A_WHEEL | {"a/_aotcuda/VERSION": b"0.0.5", "a/_aotcuda/runtime/launch/fast/_launch.abi3.so": b""},
            "holds a C extension, and ",
        ),
        (A_WHEEL | DAMAGED_BILL, "a-1.dist-info/sboms/aotcuda.cdx.json is no bill of materials that aotcuda wrote"),
    ],
)
def test_wheel_that_cannot_be_rebundled_is_unchanged(
    files: dict[str, bytes] | None, message: str, tmp_path: Path
) -> None:
    wheel = tmp_path / "a-1-py3-none-any.whl"
    if files is None:
        wheel.write_text("no zip")
    else:
        packed(wheel, with_record(files, "a-1.dist-info"))
    before = wheel.read_bytes()
    done = projects.forked_run(tmp_path, sys.executable, "-m", "aotcuda", "rebundle", str(wheel))
    assert (done.status, message in done.err, done.err.count("\n")) == (1, True, 1), done.err
    assert wheel.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [wheel.name]


def test_inspect_and_check_show_bundled_run_times(site: Path) -> None:
    (wheel,) = (site.parent / "first" / "dist").glob("*.whl")
    assert "bundled" in projects.aotcuda(site, "inspect", wheel).out
    assert "in the wheel" in projects.aotcuda(site, "check", wheel).out
    found = json.loads(projects.aotcuda(site, "check", wheel, "--json").out)
    assert {module["runtime"] for module in found["modules"]} == {"bundled"}
