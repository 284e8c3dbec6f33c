"""Test the packaged header and code in C and C++ programs, with gcc, nvcc, NVRTC and nvJitLink."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration import projects, toolkit

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = Path(__file__).parents[1] / "packages" / "devicefunctions" / "cpp"
UDF = projects.CHECKOUT / "examples" / "udf"


@pytest.fixture(scope="module")
def wheel(wheel_of: Callable[[str], Path]) -> Path:
    return wheel_of("devicefunctions")


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return projects.unpacked(wheel, tmp_path_factory.mktemp("devicefunctions"))


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder to import the modules of `examples/udf` from."""
    folder = tmp_path_factory.mktemp("udf")
    projects.aotcuda(projects.example("udf", folder / "project"), "build", ".", "--out", folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a CUDA toolkit."""
    return toolkit.make(tmp_path_factory.mktemp("toolkit") / "cuda")


def header(site: Path, module: str = "plain") -> str:
    return (site / f"devicefunctions/{module}.aotcuda/devicefunctions_{module}.h").read_text()


def manifest(site: Path, module: str = "plain") -> dict:
    return json.loads((site / f"devicefunctions/{module}.aotcuda/manifest.json").read_text())


def config(site: Path, kind: str, module: str) -> list[str]:
    done = projects.aotcuda(site, "config", f"--{kind}", module, PYTHONPATH=str(site))
    return done.out.split()


def members(parameters: list[dict]) -> list[tuple[str, int]]:
    """Return each member of the parameter struct with its offset in the manifest."""
    offsets: list[tuple[str, int]] = []
    for parameter in parameters:
        name = parameter["name"].replace("[", "_").replace("]", "")
        if parameter["kind"] == "tuple":
            offsets += members(parameter["members"])
        elif parameter["kind"] == "array":
            seen: dict[str, int] = {}
            for index, word in enumerate(parameter["words"]):
                number = seen[word] = seen.get(word, -1) + 1
                suffix = str(number) if parameter["words"].count(word) > 1 else ""
                offsets.append((f"{name}.{word}{suffix}", parameter["offset"] + 8 * index))
        else:
            offsets.append((name, parameter["offset"]))
    return offsets


def assertions(site: Path) -> str:
    """Return C code that compiles only if structs have the layouts of the manifest and of NumPy."""
    lines = ["#include <stddef.h>"]
    for kernel in manifest(site)["kernels"]:
        for overload in kernel["overloads"]:
            name = f"devicefunctions_plain_{overload['symbol']}_parameter"
            lines.append(f"CHECK({name}_bytes == {overload['parameter_bytes']});")
            fields = members(overload["parameters"])
            lines += [f"CHECK(offsetof({name}s, {field}) == {offset});" for field, offset in fields]
            if fields:
                lines.append(f"CHECK(sizeof({name}s) - {name}_bytes < 8);")
    for kind, size, offsets in (
        ("particle", 22, {"x": 0, "n": 4, "v": 8, "tag": 20, "tag.b": 21}),
        ("aligned", 24, {"flag": 0, "mass": 8, "z": 16}),
    ):
        lines.append(f"CHECK(sizeof(devicefunctions_plain_{kind}) == {size});")
        lines += [f"CHECK(offsetof(devicefunctions_plain_{kind}, {name}) == {at});" for name, at in offsets.items()]
    lines.append("CHECK(sizeof(split_result) == 16 && offsetof(split_result, item1.item1) == 12);")
    lines.append("CHECK(sizeof(polar_result) == 12 && offsetof(polar_result, item1.imag) == 8);")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("compiler", "language", "check"),
    [
        ("gcc", "c11", "_Static_assert(x, #x)"),
        ("g++", "c++11", "static_assert(x, #x)"),
    ],
)
def test_structs_are_laid_out_as_the_manifest_says(
    compiler: str, language: str, check: str, site: Path, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = tmp_path / ("source.c" if compiler == "gcc" else "source.cpp")
    text = f'#include "devicefunctions_plain.h"\n#include "devicefunctions_launched.h"\n#define CHECK(x) {check}\n'
    source.write_text(text + assertions(site))
    folders = [f"-I{site}/devicefunctions/{module}.aotcuda" for module in ("plain", "launched")]
    flags = [f"-std={language}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    flags += ["-Wno-invalid-offsetof"] if compiler == "g++" else []
    done = subprocess.run([compiler, *flags, *folders, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_functions_fit_into_a_table_of_function_pointers(cuda: Path, site: Path, tmp_path: Path) -> None:
    flags = ["-arch=sm_90", "-dlto", *config(site, "includes", "devicefunctions.plain")]
    libs = config(site, "libs", "devicefunctions.plain")
    toolkit.run(cuda, cuda / "bin/nvcc", *flags, PROGRAMS / "table.cu", *libs, "-o", tmp_path / "table")
    code = toolkit.run(cuda, cuda / "bin/cuobjdump", "-sass", tmp_path / "table")
    assert "Function : apply" in code


def test_a_program_that_launches_packaged_kernels_compiles(cuda: Path, site: Path, tmp_path: Path) -> None:
    includes = config(site, "includes", "devicefunctions.launched")
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", *includes, "-isystem", cuda / "include"]
    toolkit.run(cuda, *command, "-c", PROGRAMS / "launch.cpp", "-o", tmp_path / "launch.o")
    assert (tmp_path / "launch.o").stat().st_size > 0


def test_both_functions_of_the_example_are_inlined(cuda: Path, example: Path, tmp_path: Path) -> None:
    flags = ["-arch=sm_90", "-dlto", *config(example, "includes", "udf.functions")]
    libs = config(example, "libs", "udf.functions")
    toolkit.run(cuda, cuda / "bin/nvcc", *flags, UDF / "cpp/filter.cu", *libs, "-o", tmp_path / "filter")
    code = toolkit.run(cuda, cuda / "bin/cuobjdump", "-sass", tmp_path / "filter")
    assert re.findall(r"Function : (\w+)", code) == ["_Z6filterPKfiPfS1_Pi"]
    assert "CALL" not in code
    assert "FSETP" in code or "FSET" in code  # the predicate, in the kernel itself


def test_config_names_missing_functions_and_packages(site: Path, wheel: Path) -> None:
    command = (sys.executable, "-m", "aotcuda", "config")
    done = projects.forked_run(site, *command, "--libs", "devicefunctions.launched", PYTHONPATH=str(site))
    assert (done.status, done.out) == (1, "")
    assert done.message == "devicefunctions.launched exports no device functions, so there is nothing to link"
    done = projects.forked_run(site, *command, "--includes", str(wheel))
    assert done.status == 1
    assert "install it" in done.message
    assert projects.forked_run(site, *command, "devicefunctions.plain").status == 2


def test_config_lists_files_of_linked_modules_too(site: Path) -> None:
    files = config(site, "files", "devicefunctions.table")
    assert [Path(file).name for file in files] == ["functions.fatbin", "link0_table.fatbin"]
    assert all(Path(file).is_file() for file in files)
    assert config(site, "libs", "devicefunctions.table") == [word for file in files for word in ("-Xnvlink", file)]


def test_inspect_prints_headers_and_demangled_names(site: Path) -> None:
    assert projects.aotcuda(site, "inspect", "--header", "devicefunctions.plain", PYTHONPATH=str(site)).out == header(
        site
    )
    text = projects.aotcuda(site, "inspect", "devicefunctions.table", PYTHONPATH=str(site)).out
    assert "_Z6unusedPfi  (linked function, from csrc/table.cu)\n    unused(float*, int)\n" in text
