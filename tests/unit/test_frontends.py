"""The registry of front ends and the table of linkable items: the only places that name them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import aotcuda
from aotcuda import registry
from aotcuda.cache import compilers

PACKAGE = Path(aotcuda.__file__).parent
ROOT = PACKAGE.parent


# The recorder stands inside of one compiler or another, and says what it can record of which.


def test_extras_pin_the_compilers_that_the_table_says() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, versions in registry.TOOLKITS.items():
        for extra in (name, f"mlir-{name}", f"cpp-{name}"):
            lines = [*extras[extra], *(extras["wide-compilers"] if name == "wide" else [])]
            compiler, linker = (
                [found[1] for line in lines if (found := re.match(rf"{wanted}==(\S+)\.\*$", line))]
                for wanted in (r"cuda-toolkit\[.*\]", r"nvidia-nvjitlink(?:-cu12)?")
            )
            assert compiler == [".".join(map(str, versions[0]))]
            assert ".".join(map(str, versions[1])) in linker


@pytest.mark.parametrize("name", registry.BUILT_IN)
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("cuda", [12, 13, 14])
def test_install_commands_name_existing_extras(name: str, jit: bool, cuda: int) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = re.fullmatch(r"aotcuda\[(.+)\]", registry.requirement(name, jit=jit, cuda=cuda))
    assert found is not None
    assert found[1] in extras
    compiler = registry.BUILT_IN[name].package.replace("_", "-")
    assert any(re.match(rf"{compiler}[\[>=]", line) for line in extras[found[1]])


@pytest.mark.parametrize("extra", ["cu13", "cu12", "wide", "mlir-cu13", "mlir-cu12", "mlir-wide"])
def test_compilers_of_python_kernels_also_build_cuda_cpp(extra: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    kind = extra.removeprefix("mlir-")
    wanted = {line for line in extras[f"cpp-{kind}"] if not line.startswith(("cuda-toolkit", "nvidia-"))}
    assert wanted <= set(extras[extra])


def test_whose_module_it_is() -> None:
    owners = {
        name: getattr(registry.owning(name), "name", None)
        for name in (
            "numba.cuda",
            "numba.cuda.dispatcher",
            "numba_cuda_mlir.x",
            "numba.core.types",
            "numba",
            "numba.cudax",
        )
    }
    assert owners == {
        "numba.cuda": "numba-cuda",
        "numba.cuda.dispatcher": "numba-cuda",
        "numba_cuda_mlir.x": "numba-cuda-mlir",
        "numba.core.types": "numba-cuda",
        "numba": None,
        "numba.cudax": None,
    }
    assert (
        getattr(registry.calling("numba.cuda.typing.typeof"), "interop", "")
        == "aotcuda.integrations.interop.numba_cuda"
    )
    assert registry.calling("numba.core.typing.typeof") is None


STARTED = """\
import json, sys
from aotcuda import registry
from aotcuda.builder import toolchain, toolkits
from aotcuda.builder.frontends import loading
from aotcuda.builder.worker import main
toolchain.load(next(iter(toolkits.installed()), None))
front = loading.compiler(sys.argv[1], "", jit=False)
loading.prepared(front, sys.argv[2], sys.argv[1], "")
print(json.dumps([*sys.modules]))
"""


def plain(distribution: str) -> str:
    return "_".join(filter(None, distribution.lower().replace("-", "_").replace(".", "_").split("_")))


@pytest.mark.parametrize("front_end", [name for name in registry.BUILT_IN if name != "cutile"])
def test_versions_tell_of_all_that_a_compiler_imports(front_end: str, tmp_path: Path) -> None:
    """Nobody sees a source import what is there already: the build cache has its version."""
    registered = registry.BUILT_IN[front_end]
    pytest.importorskip({"pyelftools": "elftools"}.get(registered.package, registered.package))
    command = [sys.executable, "-W", "ignore", "-c", STARTED, front_end, str(tmp_path)]
    loaded = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    owners = metadata.packages_distributions()
    names = {name for module in loaded for name in owners.get(module, ())} - {"aotcuda", "setuptools"}
    known = compilers.installed(registered.all_distributions)
    assert {plain(name) for name in names} <= {plain(name) for name in known}
