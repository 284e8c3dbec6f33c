"""One wheel whose modules are built by both front ends, and link each other: `tests/packages/mixed`."""

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
from support.front_ends import MLIR, installed
from support.images import cuobjdump, resource_usage

if TYPE_CHECKING:
    from pathlib import Path

    from aotcuda.manifest import Manifest

pytestmark = pytest.mark.skipif(not installed(), reason="numba-cuda-mlir is not installed (extra mlir-cu13)")
OLD = "numba-cuda"
FRONT_ENDS = {"polynomials": OLD, "waves": MLIR, "fields": OLD}
KERNELS = {
    "waves": ["axpy__0", "axpy__1", "evaluate", "reverse"],
    "fields": ["axpy__0", "axpy__1", "damp", "differences"],
}
WORDS = {
    OLD: ["zero", "zero", "items", "itemsize", "data", "shape0", "stride0"],
    MLIR: ["data", "data", "zero", "shape0", "step0"],
}


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a build cache of the module's own, for builds of the same by other ways."""
    return {"AOTCUDA_BUILD_CACHE": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="module")
def wheel(cached: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(projects.copy("mixed", tmp_path_factory.mktemp("mixed") / "mixed"), **cached)


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    return content(wheel)


@pytest.fixture(scope="module")
def manifests(files: dict[str, bytes]) -> dict[str, Manifest]:
    return {name: manifest_of(files, f"mixed.{name}") for name in FRONT_ENDS}


def image(files: dict[str, bytes], module: str, arch: str) -> bytes:
    """Return a module's image for one target, unpacked."""
    entries = fatbin.read(files[f"mixed/{module}.aotcuda/kernels.fatbin"], module)
    return next(entry.content for entry in entries if entry.arch == arch)


def code_of(sass: str, kernel: str) -> str:
    """Return the machine code of one kernel."""
    return re.split(r"Function : ", sass.partition(f"Function : {kernel}\n")[2])[0]


class TestManifests:
    def test_each_names_its_own_front_end_and_toolchain(self, manifests: dict[str, Manifest]) -> None:
        assert {name: manifest["frontend"] for name, manifest in manifests.items()} == FRONT_ENDS
        for name, front_end in FRONT_ENDS.items():
            compilers = {OLD, MLIR, "numba", "llvmlite"} & manifests[name]["toolchain"].keys()
            assert compilers == ({MLIR} if front_end == MLIR else {OLD, "numba", "llvmlite"})

    def test_arrays_have_the_layout_of_their_front_end(self, manifests: dict[str, Manifest]) -> None:
        for name, front_end in FRONT_ENDS.items():
            for kernel in manifests[name]["kernels"]:
                arrays = [item for item in kernel["overloads"][0]["parameters"] if item["kind"] == "array"]
                assert [item["words"] for item in arrays] == [WORDS[front_end]] * len(arrays)

    def test_each_lists_its_own_sources_and_those_of_what_it_links(self, manifests: dict[str, Manifest]) -> None:
        found = {name: {source["path"] for source in manifest["sources"]} for name, manifest in manifests.items()}
        assert found["polynomials"] == {"csrc/offset.cu", "mixed/__init__.py", "mixed/_polynomials.py"}
        assert found["waves"] == found["polynomials"] | {"mixed/_waves.py"}
        assert found["fields"] == found["waves"] | {"mixed/_fields.py"}

    def test_fallback_uses_the_modules_own_front_end(self, manifests: dict[str, Manifest]) -> None:
        for name, manifest in manifests.items():
            (own,) = manifest["rebuild"]["table"]["modules"].values()
            assert own.get("frontend", OLD) == FRONT_ENDS[name]

    def test_inspect_shows_them(self, wheel: Path, manifests: dict[str, Manifest]) -> None:
        text = projects.aotcuda(wheel.parent, "inspect", wheel).out
        blocks = dict(re.findall(r"^mixed\.(\w+)\n((?:.+\n|\n(?!mixed\.))*)", text, re.MULTILINE))
        assert {name: re.findall(r"front end +(\S+)", block) for name, block in blocks.items()} == {
            name: [front_end] for name, front_end in FRONT_ENDS.items()
        }
        done = projects.aotcuda(wheel.parent, "inspect", "--json", wheel)
        modules = {module["name"]: module for module in json.loads(done.out)["modules"]}
        assert {name: modules[f"mixed.{name}"]["toolchain"] for name in FRONT_ENDS} == {
            name: manifest["toolchain"] for name, manifest in manifests.items()
        }
        abis = {symbol["abi"] for symbol in modules["mixed.waves"]["symbols"] if symbol["kind"] == "kernel"}
        assert abis == {MLIR}


class TestImages:
    """NVIDIA's tools see code of both front ends in one image, without undefined symbols."""

    @pytest.mark.parametrize("module", KERNELS)
    @pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
    def test_every_kernel_is_an_entry_point(self, files: dict[str, bytes], module: str, arch: str) -> None:
        symbols = cuobjdump(image(files, module, arch), "--dump-elf-symbols")
        found = re.findall(r"^STT_FUNC\s+STB_GLOBAL\s+STO_ENTRY\s+(\w+)$", symbols, re.MULTILINE)
        assert sorted(found) == KERNELS[module]
        assert "STN_UNDEF" not in symbols.replace("STT_NOTYPE", "")

    @pytest.mark.parametrize("module", KERNELS)
    def test_the_ptx_calls_nothing_outside(self, files: dict[str, bytes], module: str) -> None:
        assert ".extern .func" not in image(files, module, "compute_80").decode()

    @pytest.mark.parametrize("module", ["waves", "fields"])
    def test_functions_of_the_other_front_end_are_inlined(self, files: dict[str, bytes], module: str) -> None:
        sass = cuobjdump(image(files, module, "sm_80"), "--dump-sass")
        # (a*x + 2) * x + 1.25, in double precision: constants from Python, and from Python and CUDA C++ together.
        code = code_of(sass, {"waves": "evaluate", "fields": "damp"}[module])
        assert re.search(r"DADD .*, 2 ;", code)
        assert re.search(r"DFMA .*, 1\.25 ;", code)
        code = code_of(sass, {"waves": "reverse", "fields": "differences"}[module])
        assert "BAR.SYNC" in code
        assert "CALL" not in code

    def test_shared_arrays_of_both_front_ends_do_not_overlap(self, files: dict[str, bytes]) -> None:
        usage = resource_usage(image(files, "fields", "sm_80"))
        assert int(usage["differences"]["SHARED"]) == 2 * 64 * 4
        usage = resource_usage(image(files, "waves", "sm_80"))
        assert int(usage["reverse"]["SHARED"]) == 64 * 4


class TestBuilds:
    def test_the_wheel_depends_on_nothing_but_its_inputs(self, wheel: Path, tmp_path: Path) -> None:
        command = [sys.executable, "-c", test_reproducible.ALONE, *HATCHLING[1:]]
        project = test_reproducible.somewhere_else("mixed", tmp_path)
        other = build_wheel(project, *command, **test_reproducible.OTHER_ENVIRONMENT)
        assert [name for name, data in content(wheel).items() if content(other)[name] != data] == []
        assert other.read_bytes() == wheel.read_bytes()

    @pytest.mark.matrix  # test_linked_modules has the files of a module that others link
    def test_linking_does_not_change_the_linked_module(self, files: dict[str, bytes], tmp_path: Path) -> None:
        project = projects.copy("mixed", tmp_path / "mixed")
        config = project / "pyproject.toml"
        before, fields, _ = config.read_text().partition('[tool.aotcuda.modules."mixed.fields"]')
        config.write_text(before)
        assert fields
        alone = content(build_wheel(project))
        same = [name for name in files if re.search(r"(polynomials|waves)\.aotcuda/.*\.(fatbin|h)$", name)]
        assert len(same) == 8
        assert [name for name in same if alone[name] != files[name]] == []


def no_compiler(folder: Path, package: str) -> Path:
    """Return a folder that, first on the path, makes a compiler one that is not installed."""
    (folder / package).mkdir(parents=True)
    text = f"raise ModuleNotFoundError({f'No module named {package!r}'!r}, name={package!r})\n"
    (folder / package / "__init__.py").write_text(text)
    return folder


class TestMissingCompilers:
    def test_missing_compiler_names_module_and_extra(self, tmp_path: Path) -> None:
        project = projects.copy("mixed", tmp_path / "mixed")
        path = no_compiler(tmp_path / "path", "numba_cuda_mlir")
        done = projects.refused(project, PYTHONPATH=str(path))
        assert done.err == (
            'aotcuda: tool.aotcuda.modules."mixed.waves".frontend: the front end of mixed.waves, numba-cuda-mlir, '
            "cannot be imported (No module named 'numba_cuda_mlir'); install it with: "
            "pip install 'aotcuda[mlir-cu13]'\n"
        )

    def test_missing_project_compiler_names_the_project_key(self, tmp_path: Path) -> None:
        project = projects.copy("mixed", tmp_path / "mixed")
        path = no_compiler(tmp_path / "path", "numba")
        done = projects.refused(project, PYTHONPATH=str(path))
        assert done.said.startswith(
            "tool.aotcuda.frontend: the front end of mixed.polynomials, numba-cuda, cannot be imported ("
        )
        assert done.said.endswith("; install it with: pip install 'aotcuda[cu13]'")

    def test_front_end_does_not_import_the_other(self, tmp_path: Path) -> None:
        project = projects.copy("mixed", tmp_path / "mixed")
        for name, other in (("_polynomials", "numba_cuda_mlir"), ("_waves", "numba"), ("_fields", "numba_cuda_mlir")):
            source = project / "mixed" / f"{name}.py"
            check = f'\n\nimport sys\n\nassert "{other}" not in sys.modules\n'
            source.write_text(source.read_text() + check)
        build_wheel(project, AOTCUDA_ARCH="sm_80")


CALLED = "def doubled(x):\n    return x + x\n"
CALLER = """
from numba import cuda

doubled = cuda.declare_device("doubled", "float32(float32)", abi="c")


def k(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = doubled(x[i])
"""


WRONG = {
    "decorated": ("from {0} import cuda\n@cuda.jit\ndef k(x):\n    x[0] = 1\n", "pkg._k.k"),
    "plain": ("from {0} import cuda\ndef k(x):\n    x[cuda.grid(1)] = 1\n", "cuda in k (pkg/_k.py:2)"),
    "declared": (
        'from {0} import cuda\nf = cuda.declare_device("f", "float32(float32)")\ndef k(x):\n    x[0] = f(x[0])\n',
        "f in k (pkg/_k.py:3)",
    ),
    "type": ("from {1} import float32\ndef k(x):\n    x[0] = float32(1)\n", "float32 in k (pkg/_k.py:2)"),
}


@pytest.mark.parametrize("own", [OLD, MLIR])
def test_object_of_the_other_compiler_is_refused(own: str, tmp_path: Path) -> None:
    packages = {OLD: ("numba", "numba"), MLIR: ("numba_cuda_mlir", "numba_cuda_mlir.types")}
    other = MLIR if own == OLD else OLD
    kernel = 'kernels.k = "void(float32[::1])"'
    rest = "\n".join(f'[tool.aotcuda.modules."pkg.{case}"]\nsource = "pkg._{case}"\n{kernel}' for case in WRONG)
    plain = "def k(x):\n    x[0] = 1\n"
    project = projects.write(tmp_path / "project", plain, aotcuda=f'frontend = "{own}"', module=kernel, rest=rest)
    for case, (text, _) in WRONG.items():
        (project / "pkg" / f"_{case}.py").write_text(text.format(*packages[other]))
    assert projects.lines_of(projects.refused(project).err) == [
        f'tool.aotcuda.modules."pkg.{case}".kernels.k: {named.replace("_k", f"_{case}")} is made by {other}, and the '
        f'front end of pkg.{case} is {own}; set frontend = "{other}" for the module, or import it from '
        f"{packages[own][0]}"
        for case, (_, named) in WRONG.items()
    ]


@pytest.mark.parametrize("caller", [pytest.param(OLD, marks=pytest.mark.matrix), MLIR])  # the wheel above has both
def test_functions_of_either_compiler_are_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caller: str) -> None:
    callee = MLIR if caller == OLD else OLD
    monkeypatch.setattr(projects.FrontEnd, "name", callee)
    library = projects.write(tmp_path / "library", CALLED, module='functions.doubled = "float32(float32)"')
    config = library / "pyproject.toml"
    config.write_text(config.read_text().replace("pkg", "library"))
    (library / "pkg").rename(library / "library")
    projects.aotcuda(library, "build", ".", "--out", tmp_path / "site")
    monkeypatch.setattr(projects.FrontEnd, "name", caller)
    module = 'link = [{ module = "library.k" }]\nkernels.k = "void(float32[::1])"'
    project = projects.write(tmp_path / "project", CALLER, module=module)
    built = content(build_wheel(project, PYTHONPATH=str(tmp_path / "site")))
    manifest = manifest_of(built, "pkg.k")
    assert (manifest["frontend"], manifest["linked"]) == (caller, [{"name": "library.k", "symbols": ["doubled"]}])
    code = cuobjdump(built["pkg/k.aotcuda/kernels.fatbin"], "--dump-sass")
    assert "FADD" in code
    assert "CALL" not in code


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel for one GPU alone."""
    return build_wheel(projects.copy("mixed", tmp_path_factory.mktemp("sm_80") / "mixed"), AOTCUDA_ARCH="sm_80")


@pytest.fixture
def machine(cuda, tmp_path: Path) -> Machine:
    return Machine(cuda, tmp_path)


def late_manifests(machine: Machine) -> list[Manifest]:
    return [json.loads(path.read_text()) for path in sorted(machine.cache.rglob("manifest.json"))]


class TestFallback:
    """Late builds take the front end of the module, and need no other."""

    @pytest.fixture
    def installed(self, machine: Machine, machine_code: Path) -> Machine:
        zipfile.ZipFile(machine_code).extractall(machine.root)
        return machine

    @pytest.mark.parametrize(
        ("module", "kernel", "absent"), [("waves", "reverse", "numba"), ("fields", "differences", "numba_cuda_mlir")]
    )
    @pytest.mark.parametrize(
        ("typestr", "device"), [pytest.param("<f8", "8.0", marks=pytest.mark.matrix), ("<f4", "12.0")]
    )
    def test_a_module_is_compiled_by_its_own_front_end(
        self, installed: Machine, tmp_path: Path, module: str, kernel: str, absent: str, typestr: str, device: str
    ) -> None:
        installed.cuda.set(devices=device)
        path = f"{no_compiler(tmp_path / 'path', absent)}:{installed.path}"
        said = installed.run(f"{kernel}:{typestr}", MODULE=f"mixed.{module}", PYTHONPATH=path)
        assert said["tiers"][kernel] == (["exact", "jit"] if device == "8.0" else ["jit"])
        (manifest,) = late_manifests(installed)
        assert manifest["frontend"] == FRONT_ENDS[module]
        ((image,), (record, *_)) = manifest["images"], [item for item in manifest["kernels"] if item["name"] == kernel]
        assert image["arch"] == f"sm_{device.replace('.', '')}"
        assert record["overloads"][0]["parameters"][0]["words"] == WORDS[FRONT_ENDS[module]]
        assert record["overloads"][0]["parameters"][0]["dtype"] == typestr
        again = installed.run(f"{kernel}:{typestr}", MODULE=f"mixed.{module}", PYTHONPATH=path)
        assert (again["images"], again["heavy"]) == (said["images"], [])

    @pytest.mark.parametrize(
        ("module", "kernel", "caller"),
        [pytest.param("waves", "reverse", "evaluate", marks=pytest.mark.matrix), ("fields", "differences", "damp")],
    )
    def test_older_gpu_compiles_linked_modules_too(
        self, installed: Machine, module: str, kernel: str, caller: str
    ) -> None:
        """By its own front end, and what it links in its turn: fields links waves, and waves links polynomials."""
        installed.cuda.set(devices="7.5")
        first = installed.run(f"{kernel}:<f4", MODULE=f"mixed.{module}")
        assert first["tiers"][kernel] == ["jit"]
        (manifest,) = late_manifests(installed)
        assert (manifest["frontend"], manifest["images"][0]["arch"]) == (FRONT_ENDS[module], "sm_75")
        (cubin,) = installed.cache.rglob("kernels.cubin")
        code = code_of(cuobjdump(cubin.read_bytes(), "--dump-sass"), caller)
        assert re.search(r"DFMA .*, 1\.25 ;", code)  # of polynomials, and of the CUDA C++ that it links
        again = installed.run(f"{kernel}:<f4", MODULE=f"mixed.{module}")
        assert (again["images"], again["heavy"]) == (first["images"], [])

    def refusal(self, machine: Machine, **variables: str) -> str:
        machine.cuda.set(devices="7.5")
        process = machine.start("reverse:<f4", MODULE="mixed.waves", **variables)
        *_, line = [text for text in process.communicate()[1].splitlines() if text.startswith("aotcuda.errors")]
        assert line.startswith("aotcuda.errors.NoImageError: ")
        return line.partition("the JIT fallback failed: ")[2]

    def test_missing_sources_of_linked_module_are_reported(self, installed: Machine, tmp_path: Path) -> None:
        before = "mixed.waves links mixed.polynomials, whose packaged code is for sm_80 and later GPUs; "
        path = f"{no_compiler(tmp_path / 'path', 'numba')}:{installed.path}"
        said = self.refusal(installed, PYTHONPATH=path)
        assert said.startswith(f"{before}compiling it for sm_75 failed: tool.aotcuda.frontend: the front end of ")
        assert said.endswith("install it with: pip install 'aotcuda[jit-cu13]'")
        manifest = installed.root / "mixed" / "polynomials.aotcuda" / "manifest.json"
        content = json.loads(manifest.read_text())
        del content["rebuild"]
        manifest.write_text(json.dumps(content))
        generated = installed.root / "mixed" / "polynomials.py"  # whose digest is the manifest's
        generated.write_text(re.sub("sha256='.*?'", "sha256=None", generated.read_text()))
        assert self.refusal(installed) == (
            f'{before}it carries no sources to compile for sm_75 (it was built with fallback = "error"): '
            "install a version of it that was built for sm_75 too"
        )

    @pytest.mark.matrix  # test_fallback has a tree of one front end
    def test_unbuilt_source_tree_compiles_linked_modules(self, machine: Machine) -> None:
        projects.copy("mixed", machine.root)
        first = machine.run("differences:<f4", MODULE="mixed.fields")
        assert first["tiers"] == {"axpy": ["jit"] * 2, "damp": ["jit"], "differences": ["jit"]}
        second = machine.run("differences:<f4", MODULE="mixed.fields")
        assert (second["images"], second["heavy"]) == (first["images"], [])
