"""Test a wheel with modules of both of Numba's compilers, which link each other: `tests/packages/mixed`."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from aotcuda.binary import fatbin
from integration import projects, test_reproducible
from integration.projects import HATCHLING, build_wheel, content, manifest_of
from integration.test_fallback import Machine
from support.front_ends import MLIR, NUMBA, is_mlir_installed
from support.images import cuobjdump, resource_usage

if TYPE_CHECKING:
    from pathlib import Path

    from aotcuda.manifest import Manifest

pytestmark = pytest.mark.skipif(not is_mlir_installed(), reason="numba-cuda-mlir is not installed (extra mlir-cu13)")
FRONT_ENDS = {"polynomials": NUMBA, "waves": MLIR, "fields": NUMBA}
WORDS = {
    NUMBA: ["zero", "zero", "items", "itemsize", "data", "shape0", "stride0"],
    MLIR: ["data", "data", "zero", "shape0", "step0"],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(projects.copy("mixed", tmp_path_factory.mktemp("mixed") / "mixed"), AOTCUDA_ARCH="sm_80")


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    return content(wheel)


def image(files: dict[str, bytes], module: str) -> bytes:
    (entry,) = fatbin.read(files[f"mixed/{module}.aotcuda/kernels.fatbin"], module)
    return entry.content


def code_of(image: bytes, kernel: str) -> str:
    """Return the machine code of one kernel."""
    sass = cuobjdump(image, "--dump-sass")
    return re.split(r"Function : ", sass.partition(f"Function : {kernel}\n")[2])[0]


def test_wheel_depends_on_nothing_but_its_inputs(wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", test_reproducible.ALONE, *HATCHLING[1:]]
    project = test_reproducible.somewhere_else("mixed", tmp_path)
    other = build_wheel(project, *command, **test_reproducible.OTHER_ENVIRONMENT, AOTCUDA_ARCH="sm_80")
    assert [name for name, data in content(wheel).items() if content(other)[name] != data] == []
    assert other.read_bytes() == wheel.read_bytes()


def test_each_manifest_describes_its_own_front_end(files: dict[str, bytes]) -> None:
    sources = {"csrc/offset.cu", "mixed/__init__.py"}
    for name, front_end in FRONT_ENDS.items():
        manifest = manifest_of(files, f"mixed.{name}")
        assert manifest["frontend"] == front_end
        compilers = {NUMBA, MLIR, "numba", "llvmlite"} & manifest["toolchain"].keys()
        assert compilers == ({MLIR} if front_end == MLIR else {NUMBA, "numba", "llvmlite"})
        for kernel in manifest["kernels"]:
            arrays = [item for item in kernel["overloads"][0]["parameters"] if item["kind"] == "array"]
            assert [item["words"] for item in arrays] == [WORDS[front_end]] * len(arrays)
        sources.add(f"mixed/_{name}.py")  # each module links the modules before it
        assert {source["path"] for source in manifest["sources"]} == sources
        (table,) = manifest["rebuild"]["table"]["modules"].values()
        assert table.get("frontend", NUMBA) == front_end


@pytest.mark.parametrize(
    ("module", "kernel", "other"), [("waves", "evaluate", "reverse"), ("fields", "damp", "differences")]
)
def test_functions_of_the_other_front_end_are_inlined(
    files: dict[str, bytes], module: str, kernel: str, other: str
) -> None:
    # (a*x + 2) * x + 1.25, in double precision: constants from Python, and from Python and CUDA C++ together.
    code = code_of(image(files, module), kernel)
    assert re.search(r"DADD .*, 2 ;", code)
    assert re.search(r"DFMA .*, 1\.25 ;", code)
    assert "CALL" not in code_of(image(files, module), other)


def test_shared_arrays_of_both_front_ends_do_not_overlap(files: dict[str, bytes]) -> None:
    assert int(resource_usage(image(files, "fields"))["differences"]["SHARED"]) == 2 * 64 * 4
    assert int(resource_usage(image(files, "waves"))["reverse"]["SHARED"]) == 64 * 4


def no_compiler(folder: Path, package: str) -> Path:
    """Return a folder that hides an installed compiler if it is first on the path."""
    (folder / package).mkdir(parents=True)
    text = f"raise ModuleNotFoundError({f'No module named {package!r}'!r}, name={package!r})\n"
    (folder / package / "__init__.py").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("package", "key", "module", "extra"),
    [
        ("numba_cuda_mlir", 'tool.aotcuda.modules."mixed.waves".frontend', "waves", "mlir-cu13"),
        ("numba", "tool.aotcuda.frontend", "polynomials", "cu13"),
    ],
)
def test_missing_compiler_names_key_module_and_extra(
    package: str, key: str, module: str, extra: str, tmp_path: Path
) -> None:
    project = projects.copy("mixed", tmp_path / "mixed")
    done = projects.refused(project, PYTHONPATH=str(no_compiler(tmp_path / "path", package)))
    assert done.message.startswith(
        f"{key}: the front end of mixed.{module}, {FRONT_ENDS[module]}, cannot be imported ("
    )
    assert done.message.endswith(f", install it with: pip install 'aotcuda[{extra}]'")


WRONG = {
    "decorated": ("from {0} import cuda\n@cuda.jit\ndef k(x):\n    x[0] = 1\n", "pkg._k.k"),
    "plain": ("from {0} import cuda\ndef k(x):\n    x[cuda.grid(1)] = 1\n", "cuda in k (pkg/_k.py:2)"),
    "type": ("from {1} import float32\ndef k(x):\n    x[0] = float32(1)\n", "float32 in k (pkg/_k.py:2)"),
}


@pytest.mark.parametrize("compiler", [NUMBA, MLIR])
def test_object_of_the_other_compiler_is_refused(compiler: str, tmp_path: Path) -> None:
    packages = {NUMBA: ("numba", "numba"), MLIR: ("numba_cuda_mlir", "numba_cuda_mlir.types")}
    other = MLIR if compiler == NUMBA else NUMBA
    kernel = 'kernels.k = "void(float32[::1])"'
    rest = "\n".join(f'[tool.aotcuda.modules."pkg.{case}"]\nsource = "pkg._{case}"\n{kernel}' for case in WRONG)
    plain = "def k(x):\n    x[0] = 1\n"
    project = projects.write(tmp_path / "project", plain, aotcuda=f'frontend = "{compiler}"', module=kernel, rest=rest)
    for case, (text, _) in WRONG.items():
        (project / "pkg" / f"_{case}.py").write_text(text.format(*packages[other]))
    assert projects.lines_of(projects.refused(project).err) == [
        f'tool.aotcuda.modules."pkg.{case}".kernels.k: {named.replace("_k", f"_{case}")} is made by {other}, and the '
        f'front end of pkg.{case} is {compiler}; set frontend = "{other}" for the module, or import it from '
        f"{packages[compiler][0]}"
        for case, (_, named) in WRONG.items()
    ]


class TestFallback:
    """The JIT fallback compiles a module by its front end, and needs no other front end."""

    @pytest.fixture
    def machine(self, cuda, tmp_path: Path, wheel: Path) -> Machine:
        machine = Machine(cuda, tmp_path)
        zipfile.ZipFile(wheel).extractall(machine.root)
        return machine

    def compiled(self, machine: Machine) -> Manifest:
        (path,) = machine.cache.rglob("manifest.json")
        manifest: Manifest = json.loads(path.read_text())
        return manifest

    @pytest.mark.parametrize(
        ("module", "kernel", "absent"), [("waves", "reverse", "numba"), ("fields", "differences", "numba_cuda_mlir")]
    )
    def test_newer_gpu_needs_the_modules_front_end_alone(
        self, machine: Machine, tmp_path: Path, module: str, kernel: str, absent: str
    ) -> None:
        machine.cuda.set(devices="12.0")
        path = f"{no_compiler(tmp_path / 'path', absent)}:{machine.path}"
        first = machine.run(f"{kernel}:<f4", MODULE=f"mixed.{module}", PYTHONPATH=path)
        assert first["tiers"][kernel] == ["jit"]
        manifest = self.compiled(machine)
        assert (manifest["frontend"], manifest["fatbins"][0]["images"][0]["arch"]) == (FRONT_ENDS[module], "sm_120")
        second = machine.run(f"{kernel}:<f4", MODULE=f"mixed.{module}", PYTHONPATH=path)
        assert (second["images"], second["heavy"]) == (first["images"], [])

    def test_older_gpu_compiles_linked_modules_too(self, machine: Machine) -> None:
        """The module `fields` links `waves`, and `waves` links `polynomials`."""
        machine.cuda.set(devices="7.5")
        assert machine.run("differences:<f4", MODULE="mixed.fields")["tiers"]["differences"] == ["jit"]
        assert self.compiled(machine)["fatbins"][0]["images"][0]["arch"] == "sm_75"
        (cubin,) = machine.cache.rglob("kernels.cubin")
        assert re.search(r"DFMA .*, 1\.25 ;", code_of(cubin.read_bytes(), "damp"))

    def refusal(self, machine: Machine, **variables: str) -> str:
        machine.cuda.set(devices="7.5")
        process = machine.start("reverse:<f4", MODULE="mixed.waves", **variables)
        *_, line = [text for text in process.communicate()[1].splitlines() if text.startswith("aotcuda.errors")]
        assert line.startswith("aotcuda.errors.NoImageError: ")
        return line.partition("the JIT fallback failed: ")[2]

    def test_missing_sources_of_linked_module_are_reported(self, machine: Machine, tmp_path: Path) -> None:
        before = "mixed.waves links mixed.polynomials, whose packaged code is for sm_80 and later GPUs; "
        path = f"{no_compiler(tmp_path / 'path', 'numba')}:{machine.path}"
        message = self.refusal(machine, PYTHONPATH=path)
        assert message.startswith(f"{before}compiling it for sm_75 failed: tool.aotcuda.frontend: the front end of ")
        assert message.endswith("install it with: pip install 'aotcuda[jit-cu13]'")
        manifest = machine.root / "mixed" / "polynomials.aotcuda" / "manifest.json"
        table = json.loads(manifest.read_text())
        del table["rebuild"]
        manifest.write_text(json.dumps(table))
        generated = machine.root / "mixed" / "polynomials.py"  # whose digest is the manifest's
        generated.write_text(re.sub("sha256='.*?'", "sha256=None", generated.read_text()))
        assert self.refusal(machine) == (
            f'{before}it carries no sources to compile for sm_75 (it was built with fallback = "error"): '
            "install a version of it that was built for sm_75 too"
        )
