"""A pack of a small package: recorded, built, and used by processes of a command."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from integration import projects
from integration.test_record_triton import KERNELS, PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

triton = pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

SHOW = """
from foreign import ops

print(type(ops.add).__module__, type(ops.scale).__module__)
"""
PROJECT = """
[build-system]
requires = ["hatchling", "aotcuda[triton]"]
build-backend = "hatchling.build"

[project]
name = "my-pack"
version = "1"

[tool.hatch.build.targets.wheel.hooks.aotcuda]

[tool.aotcuda]
arch = ["sm_90"]
"""
SECOND = """
[tool.aotcuda.modules."my_pack.second"]
source = "foreign.ops"
frontend = "triton"
variants = "my_pack/foreign_ops.variants.json"
pack = true
pack-from = "versions"
"""


INITIALIZE = """
import sys
sys.path.append(__path__[0] + "/backends")
from special.ops import k
"""


def install(folder: Path, version: str, kernels: str, more: dict[str, str] | None = None) -> None:
    """Install a version of the package into a folder."""
    files = {"foreign/__init__.py": "", "foreign/ops.py": kernels, **(more or {})}
    information = f"foreign-{version}.dist-info"
    about = {"METADATA": f"Metadata-Version: 2.1\nName: foreign\nVersion: {version}\n", "top_level.txt": "foreign\n"}
    files |= {f"{information}/{name}": text for name, text in about.items()}
    files[f"{information}/RECORD"] = "".join(f"{name},,\n" for name in files)
    projects.put(folder, files)


KERNEL = """
import triton
import triton.language as tl

@triton.jit
def k(x, N: tl.constexpr):
    {body}
"""
BODIES = {
    "good": "tl.store(x, 1.0)",
    "refused": "tl.static_assert(N == 0)",  # Triton compiles no variant
    "hidden": "tl.store(x, UNKNOWN)",
    "crashing": "tl.store(x, crash())",
}
CRASH = """
@triton.constexpr_function
def crash():
    import ctypes  # Triton refuses globals from elsewhere
    return ctypes.string_at(0)
"""
PACKED = """
[tool.aotcuda.modules."my_pack.{0}"]
source = "foreign.{0}"
frontend = "triton"
variants = "my_pack/{0}.variants.json"
pack = true
"""


SOURCES = {f"foreign/{name}.py": KERNEL.format(body=body) + CRASH for name, body in BODIES.items()} | {
    "foreign/broken.py": "raise ImportError('needs libcuda.so.1')\n",
    "foreign/odd.py": KERNEL.format(body="tl.store(x, TABLE.N)") + "TABLE = object()\n",
}


def built_pack(folder: Path, sources: dict[str, str]) -> tuple[projects.Done, dict[str, int]]:
    """Build a pack of modules, and return the numbers of their kernels in the wheel."""
    site, project = folder / "site", folder / "project"
    install(site, "1.0", "")
    projects.put(site, sources)
    names = [path.partition("/")[2].removesuffix(".py") for path in sources]
    variant = {"types": ["*fp32:16"], "constexprs": {"N": 4}}
    kernels = {"k": {"parameters": ["x", "N"], "variants": [variant, {**variant, "num_warps": 8}]}}
    head = {"format": "aotcuda variants", "version": 1, "kernels": kernels}
    files = {f"my_pack/{name}.variants.json": json.dumps({**head, "source": f"foreign.{name}"}) for name in names}
    text = PROJECT + "".join(map(PACKED.format, names))
    projects.put(project, {**files, "my_pack/__init__.py": "", "pyproject.toml": text})
    done = projects.back_end(project, PYTHONPATH=str(site))
    assert not any(line.startswith("Traceback") for line in done.err.splitlines())
    (wheel,) = (project / "dist").glob("*.whl")
    content = projects.content(wheel)
    return done, {name: len(projects.manifest_of(content, f"my_pack.{name}")["kernels"]) for name in names}


def test_modules_that_cannot_be_built_are_left_out_of_a_pack(tmp_path: Path) -> None:
    done, counts = built_pack(tmp_path, SOURCES)
    lines = [line for line in done.err.splitlines() if "left out" in line]
    assert len(lines) == len(counts) - 1
    for words in ("needs libcuda.so.1", "static_assert|AssertionError|N == 0", "UNKNOWN", r"crashed \(SIGSEGV"):
        assert any(re.search(words, line) for line in lines), (words, lines)
    assert counts == {name: int(name == "good") for name in counts}


def test_a_module_in_a_folder_that_its_package_puts_on_the_path_is_packed(
    tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    site, project = tmp_path / "site", tmp_path / "project"
    kernels = KERNEL.format(body="tl.store(x, N)")
    files = {"foreign/__init__.py": INITIALIZE, "foreign/backends/special/ops.py": kernels}
    install(site, "1.0", "", {**files, "foreign/backends/special/__init__.py": ""})
    program = "import foreign\nclass Tensor:\n    dtype, data_ptr = 'float32', lambda self: 256\n"
    program += "foreign.k[(1,)](Tensor(), N=4)\n"
    projects.put(project, {"pyproject.toml": PROJECT})
    projects.put(tmp_path, {"serve.py": program})
    environ = {"PYTHONPATH": str(site), "AOTCUDA_BUILD_CACHE": str(tmp_path / "cache")}
    command = (sys.executable, "-m", "aotcuda", "record", "--dry", "--write", "--packages", "foreign", "--")
    done = projects.run(project, *command, sys.executable, str(tmp_path / "serve.py"), **environ)
    assert done.status == 0, done.err
    table = tomllib.loads((project / "pyproject.toml").read_text())
    assert table["tool"]["aotcuda"]["modules"]["my_pack.special_ops"]["source"] == "special.ops"
    assert "foreign==1.0" in table["build-system"]["requires"]
    content = projects.content(projects.build_wheel(project, **environ))
    manifest = projects.manifest_of(content, "my_pack.special_ops")
    assert manifest["pack"] == {"source": "special.ops", "distribution": "foreign", "version": "1.0"}
    assert len(manifest["kernels"]) == 1


def test_a_pack_without_importable_modules_says_so(tmp_path: Path) -> None:
    done, counts = built_pack(tmp_path, {"foreign/broken.py": SOURCES["foreign/broken.py"]})
    assert counts == {"broken": 0}
    assert "needs libcuda.so.1" in done.err


def test_check_sees_a_gpu_that_the_pack_is_for(tmp_path: Path) -> None:
    source = KERNEL.format(body="tl.store(x, ARCH)")
    source += "ARCH = tl.constexpr(triton.runtime.driver.active.get_current_target().arch)\n"
    assert built_pack(tmp_path, {"foreign/facts.py": source})[1] == {"facts": 1}
    (wheel,) = (tmp_path / "project" / "dist").glob("*.whl")
    projects.unpacked(wheel, tmp_path / "installed")
    projects.put(tmp_path / "installed", {"my_pack/__init__.py": "from aotcuda import packs\n\npacks.use(__name__)\n"})
    path = os.pathsep.join(str(tmp_path / name) for name in ("installed", "site"))
    for command in (("check", "my_pack"), ("doctor",)):
        done = projects.run(tmp_path, sys.executable, "-m", "aotcuda", *command, PYTHONPATH=path)
        assert "serves 1 of 1" in done.out, done.out + done.err


@pytest.mark.matrix
def test_a_recorded_pack_serves_an_unchanged_package(
    tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    site, project, installed = (tmp_path / name for name in ("site", "project", "installed"))
    install(site, "1.0", KERNELS)
    install(project / "versions", "2.0", KERNELS.replace("tl.load(x + offsets) +", "2 * tl.load(x + offsets) +"))
    projects.put(project, {"pyproject.toml": PROJECT, "show.py": SHOW})
    projects.put(tmp_path, {"serve.py": PROGRAM.replace("from mypkg import _tri", "from foreign import ops as _tri")})
    environ = {"PYTHONPATH": f"{installed}{os.pathsep}{site}", "AOTCUDA_BUILD_CACHE": str(tmp_path / "cache")}

    recording = ("record", "--write", "--packages", "foreign, absent")

    def aotcuda(folder: Path, *arguments: object) -> projects.Done:
        return projects.run(folder, sys.executable, "-m", "aotcuda", *map(str, arguments), **environ)

    done = aotcuda(project, *recording, "--", sys.executable, "-W", "ignore", tmp_path / "serve.py")
    assert done.status == 0, done.err
    table = tomllib.loads((project / "pyproject.toml").read_text())
    assert {f"triton=={triton.__version__}", "foreign==1.0"} <= set(table["build-system"]["requires"])
    assert table["tool"]["aotcuda"]["modules"] == {
        "my_pack.foreign_ops": {
            "source": "foreign.ops",
            "frontend": "triton",
            "variants": "my_pack/foreign_ops.variants.json",
            "pack": True,
        }
    }
    assert json.loads((project / "my_pack/foreign_ops.tuning.json").read_text())["kernels"].keys() == {"scale"}
    again = aotcuda(project, *recording, "--check", "--", sys.executable, "-W", "ignore", tmp_path / "serve.py")
    assert again.status == 0, again.err

    with (project / "pyproject.toml").open("a") as file:
        file.write(SECOND)
    wheel = projects.build_wheel(project, **environ)
    first = wheel.read_bytes()
    assert projects.build_wheel(project, **environ).read_bytes() == first  # from the build cache
    content = projects.content(wheel)
    assert not any(b"def add" in data for data in content.values())
    manifests = [projects.manifest_of(content, f"my_pack.{name}") for name in ("foreign_ops", "second")]
    assert [item["pack"]["version"] for item in manifests] == ["1.0", "2.0"]
    assert [item["sources"] for item in manifests] == [[], []]
    bill = json.loads(content["my_pack-1.dist-info/sboms/aotcuda.cdx.json"])
    assert {"pkg:pypi/foreign@1.0", "pkg:pypi/foreign@2.0"} <= {item["bom-ref"] for item in bill["components"]}

    projects.unpacked(wheel, installed)
    here = tmp_path / "elsewhere"
    here.mkdir()
    output = aotcuda(here, "check", "my_pack").out
    for text in (
        "foreign 1.0 by Triton",
        "serves 2 of 2",
        "foreign 2.0 by Triton",
        "serves 1 of 2",
        "foreign.ops.add: its",
    ):
        assert text in output
    command = f"{sys.executable} {project / 'show.py'}; exit 3"
    done = aotcuda(here, "run", "--packs", "my_pack", "--", "sh", "-c", command)
    assert done.status == 3, done.err
    assert done.out.split() == ["aotcuda.integrations.in_place.triton.functions"] * 2
    shutil.rmtree(site)
    assert "foreign is not installed" in aotcuda(here, "check", "my_pack").out
