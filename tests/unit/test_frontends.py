"""Check the registry of front ends against the extras and the installed compilers."""

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
from aotcuda.builder.frontends import protocol
from aotcuda.cache import compilers

PACKAGE = Path(aotcuda.__file__).parent
ROOT = PACKAGE.parent


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


def test_modules_of_a_compiler_are_known_by_name() -> None:
    owners = {
        "numba.cuda": "numba-cuda",
        "numba.cuda.dispatcher": "numba-cuda",
        "numba_cuda_mlir.x": "numba-cuda-mlir",
        "numba.core.types": "numba-cuda",
        "numba": None,
        "numba.cudax": None,
    }
    assert {name: getattr(registry.front_end_of_module(name), "name", None) for name in owners} == owners
    interop = "aotcuda.integrations.interop.numba_cuda"
    assert getattr(registry.front_end_of_caller("numba.cuda.typing.typeof"), "interop", "") == interop
    assert registry.front_end_of_caller("numba.core.typing.typeof") is None


STARTED = """\
import json, sys
from aotcuda import registry
from aotcuda.builder.plan import toolchain, toolkits
from aotcuda.builder.frontends import loading
from aotcuda.builder.frontends.protocol import Session
from aotcuda.builder.compile import main
toolchain.load(next(iter(toolkits.installed()), None))
front = loading.compiler(sys.argv[1], "", jit=False)
loading.prepare(front, Session(root=sys.argv[2], cache=None), sys.argv[1], "")
print(json.dumps([*sys.modules]))
"""


def plain(distribution: str) -> str:
    return "_".join(filter(None, distribution.lower().replace("-", "_").replace(".", "_").split("_")))


@pytest.mark.parametrize("front_end", [name for name in registry.BUILT_IN if name != "cutile"])
def test_cache_keys_have_versions_of_all_imported_distributions(front_end: str, tmp_path: Path) -> None:
    """The build does not observe imports of packages that the compiler has imported before."""
    registered = registry.BUILT_IN[front_end]
    pytest.importorskip({"pyelftools": "elftools"}.get(registered.package, registered.package))
    command = [sys.executable, "-W", "ignore", "-c", STARTED, front_end, str(tmp_path)]
    loaded = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    owners = metadata.packages_distributions()
    without_influence = {"aotcuda", "coverage", "setuptools"}  # Numba imports coverage.py, if it can
    names = {name for module in loaded for name in owners.get(module, ())} - without_influence
    known = compilers.installed(registered.all_distributions)
    assert {plain(name) for name in names} <= {plain(name) for name in known}


def test_builds_use_only_methods_of_the_protocol() -> None:
    methods = {name for name in vars(protocol.FrontEnd) if not name.startswith("_")}
    assert len(methods) <= 12
    used = set()
    for path in (ROOT / "aotcuda" / "builder").rglob("*.py"):
        if "frontends" not in path.parts:
            text = path.read_text(encoding="utf-8")
            used |= {*re.findall(r"\bfront\.([a-z_]+)", text), *re.findall(r'\bfront, "([a-z_]+)"', text)}
    optional = methods - {"prepare"}  # `loading.prepare` calls it
    assert used == optional
