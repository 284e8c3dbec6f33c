"""The registry of front ends and the table of linkable items: the only places that name them."""

from __future__ import annotations

import ast
import functools
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
from aotcuda.manifest import linkable

PACKAGE = Path(aotcuda.__file__).parent
ROOT = PACKAGE.parent
FILES = [*PACKAGE.rglob("*.py"), *(ROOT / "hatch_plugin").rglob("*.py"), *(ROOT / "setuptools_plugin").rglob("*.py")]


# The recorder stands inside of one compiler or another, and says what it can record of which.
_OWN = (
    "aotcuda/builder/frontends/numba",
    "aotcuda/builder/frontends/triton",
    "aotcuda/integrations/interop/",
    "aotcuda/tools/record/collect.py",
    "aotcuda/tools/record/cuda_cpp.py",
    "aotcuda/tools/record/inject/",
    "aotcuda/tools/record/process.py",
    "aotcuda/tools/record/records.py",
    "aotcuda/integrations/in_place/triton/",
    "aotcuda/tools/record/variant_files.py",
    "aotcuda/tools/record/command.py",
    "aotcuda/tools/init/sources.py",
)


@functools.cache
def strings(path: Path) -> list[str]:
    """Return the strings in a module, docstrings and parts of f-strings apart."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    apart = parts | prose
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart
    ]


def naming(wanted: set[str], *, own: str) -> dict[str, set[str]]:
    """Return the modules that have one of these strings, beside the module `own`."""
    found = {str(path.relative_to(ROOT)): wanted.intersection(strings(path)) for path in FILES}
    return {name: texts for name, texts in found.items() if texts and name != own}


def test_front_ends_are_named_in_the_table_alone() -> None:
    """And by their own code: what they call a version, whom they are called by, what records their launches."""
    found = naming({*registry.BUILT_IN}, own="aotcuda/registry.py")
    assert {name for name in found if not name.startswith(_OWN)} == set()


def test_the_variables_of_compilers_stand_in_the_table_alone() -> None:
    """But for what stands in the compiler's place, and the simulator's switch, which is asked before any import."""
    own = (*_OWN, "aotcuda/integrations/in_place/")
    for path in FILES:
        name = str(path.relative_to(ROOT))
        found = [text for text in strings(path) if re.match(r"NUMBA_(?!ENABLE_CUDASIM)", text)]
        assert not found or name == "aotcuda/registry.py" or name.startswith(own), name


def test_suffixes_of_linkable_items_stand_in_the_table_alone() -> None:
    assert naming({".ltoir", ".cubin"}, own="aotcuda/manifest/linkable.py") == {}
    assert naming({"PTXSource", "Archive"}, own="aotcuda/manifest/linkable.py") == {}


def test_the_major_version_of_cuda_stands_in_the_table_and_the_extras_alone() -> None:
    named = [str(path.relative_to(ROOT)) for path in FILES if re.search(r"\bcu1\d\b", "\n".join(strings(path)))]
    assert sorted(named) == ["aotcuda/builder/toolkits.py", "aotcuda/registry.py"]  # its folders; its extras


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
def test_what_is_told_to_install_is_an_extra_that_there_is(name: str, jit: bool, cuda: int) -> None:
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


def test_each_kind_has_one_suffix_and_one_class() -> None:
    assert {linkable.KINDS[suffix] for suffix in linkable.SUFFIXES.values()} == set(linkable.SUFFIXES)
    assert {suffix: linkable.CLASSES[name] for suffix, name in linkable.CLASS_NAMES.items()} == linkable.KINDS


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
    known = compilers.installed(registered.distributions)
    assert {plain(name) for name in names} <= {plain(name) for name in known}
