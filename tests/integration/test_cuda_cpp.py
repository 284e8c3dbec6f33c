"""`frontend = "cuda-cpp"`: build and launch kernels and device functions of `.cu` files."""

from __future__ import annotations

import importlib
import json
import re
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aotcuda.binary import fatbin
from aotcuda.errors import ArgumentError, FallbackWarning
from integration import projects
from integration.projects import build_wheel, content, manifest_of
from support.images import cuobjdump

if TYPE_CHECKING:
    from pathlib import Path

RAW, MORE = "csrc/raw.cu", "csrc/more.cu"

VECTOR = np.dtype([("x", "<f8"), ("y", "<f8"), ("z", "<f8")], align=True)
INNER = np.dtype([("kind", "<i2"), ("tag", "|i1")], align=True)
STEP = np.dtype([("dt", "<f4"), ("first", "|b1"), ("force", VECTOR), ("inner", INNER, (2,))], align=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(projects.copy("cudacpp", tmp_path_factory.mktemp("cudacpp") / "project"))


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    return content(wheel)


@pytest.fixture
def raw(cuda, wheel):
    """Install the package, and return its module."""
    cuda.install(wheel)
    return importlib.import_module("cudacpp.raw")


def overloads(files: dict[str, bytes], name: str) -> list[dict]:
    (kernel,) = [kernel for kernel in manifest_of(files, "cudacpp.raw")["kernels"] if kernel["name"] == name]
    return kernel["overloads"]


class TestTheWheel:
    def test_the_manifest_has_kernels_with_their_cpp_types(self, files: dict[str, bytes]) -> None:
        manifest = manifest_of(files, "cudacpp.raw")
        names = [name for name in files if name.startswith("cudacpp/raw.aotcuda/sources/")]
        assert sorted(names) == [
            f"cudacpp/raw.aotcuda/sources/csrc/{name}" for name in ("include/factor.h", "more.cu", "raw.cu")
        ]
        assert manifest["frontend"] == "cuda-cpp"
        assert manifest["toolchain"]["nvrtc"].startswith("13.")
        assert [image["arch"] for image in manifest["fatbins"][0]["images"]] == ["sm_80", "sm_90", "compute_80"]
        assert [(kernel["name"], kernel["origin"]) for kernel in manifest["kernels"]] == [
            ("scale", "csrc/raw.cu:ns::scale"),
            ("copy", "csrc/raw.cu:copy"),
            ("move", "csrc/raw.cu:mover::move"),
            ("transpose", "csrc/more.cu:transpose"),
            ("gather", "csrc/more.cu:gather"),
            ("tensor", "csrc/more.cu:tensor"),
            ("row", "csrc/more.cu:row"),
        ]
        signatures = [item["signature"] for kernel in manifest["kernels"] for item in kernel["overloads"]]
        assert signatures == [
            "void(float, float *, int)",
            "void(double, double *, int)",
            "void(const double *, double *)",
            "void(Vector *, Step, __half, unsigned char *)",
            "void(const float * as float32[:, :], float * as float32[:, ::1])",
            "void(float2 * as complex64[::1], const void * as float32[...], void * as pointer, float **)",
            "void(int, CUtensorMap, float *)",
            "void(int, CUtensorMap, float *)",
        ]
        assert overloads(files, "move")[0]["launch_bounds"] == [256, 2]
        assert overloads(files, "move")[0]["cooperative"]

    def test_structs_have_the_dtypes_of_numpy(self, files: dict[str, bytes]) -> None:
        from aotcuda.manifest.dtypes import structured

        at, step, *_ = overloads(files, "move")[0]["parameters"]
        assert at["dtype"] == structured(VECTOR.str, VECTOR.descr)
        assert (step["dtype"], step["bytes"]) == (structured(STEP.str, STEP.descr), STEP.itemsize)

    def test_parameter_offsets_match_the_machine_code(self, files: dict[str, bytes]) -> None:
        parameters = {}  # by NVIDIA's reader of cubins
        for entry in fatbin.read(files["cudacpp/raw.aotcuda/kernels.fatbin"], "kernels.fatbin"):
            text = cuobjdump(entry.content, "-elf") if entry.kind == "sass" else ""
            for part in re.split(r"^\.nv\.info\.", text, flags=re.MULTILINE)[1:]:
                numbers = re.findall(r"Ordinal\s*:\s*0x(\w+)\s+Offset\s*:\s*0x(\w+)\s+Size\s*:\s*0x(\w+)", part)
                parameters[entry.arch, part.split()[0]] = sorted(
                    tuple(int(text, 16) for text in each) for each in numbers
                )
        checked = 0
        for kernel in manifest_of(files, "cudacpp.raw")["kernels"]:
            for item in kernel["overloads"]:
                parts = [part for each in item["parameters"] for part in (each, *each.get("sizes", ()))]
                offsets = sorted(part["offset"] for part in parts)
                for arch in ("sm_80", "sm_90"):
                    places = [offset for _, offset, _ in parameters[arch, item["symbol"]]]
                    assert item.get("one_by_one", False) is (places != offsets) is (kernel["name"] in ("tensor", "row"))
                    checked += 1
        assert checked == 16

    def test_device_functions_have_prototypes_for_both_languages(self, files: dict[str, bytes]) -> None:
        functions = manifest_of(files, "cudacpp.raw")["functions"]
        assert [(item["prototype"], item["signature"]) for item in functions] == [
            ("float damped(float a, float x);", "float32(float32, float32)"),
            ("void store(const float *from_, float *to, int n);", "void(CPointer(float32), CPointer(float32), int32)"),
        ]

    def test_functions_come_without_the_kernels_of_their_file(self, files: dict[str, bytes]) -> None:
        entries = fatbin.read(files["cudacpp/raw.aotcuda/functions.fatbin"], "functions.fatbin")
        (ptx,) = [entry.content.decode() for entry in entries if entry.kind == "ptx"]
        assert ".entry" not in ptx
        assert set(re.findall(r"^\.visible \.func .*?(\w+)\($", ptx, re.MULTILINE)) == {"damped", "store"}


class TestLaunches:
    def test_instances_are_chosen_by_their_types(self, cuda, raw) -> None:
        for dtype, symbol in (("<f4", "_ZN2ns5scaleIfEEvT_PS1_i"), ("<f8", "_ZN2ns5scaleIdEEvT_PS1_i")):
            array = cuda.array(np.zeros((4, 2), dtype))
            raw.scale[2, 32](2.5, array, 8)
            number = struct.pack("<f4x", 2.5) if dtype == "<f4" else struct.pack("<d", 2.5)
            assert cuda.launches()[-1]["kernel"] == symbol
            assert cuda.parameters() == number + struct.pack("<Qi", array.address, 8)

    def test_a_number_is_the_length_of_its_array(self, cuda, raw) -> None:
        source, target = cuda.array(np.zeros((3, 5), "<f8")), cuda.array(np.zeros(15, "<f8"))
        source.interface["data"] = (source.address, True)
        raw.copy[1, 15](source, target)
        assert cuda.parameters() == struct.pack("<2Qq", source.address, target.address, 15)

    def test_strides_are_arguments_where_the_table_says_so(self, cuda, raw) -> None:
        source, target = cuda.array(np.zeros((4, 6), "<f4")[::2, ::3]), cuda.array(np.zeros((2, 2), "<f4"))
        source.interface["strides"] = (48, 12)
        raw.transpose[1, (2, 2)](source, target)
        assert cuda.parameters() == struct.pack("<2QqI", source.address, target.address, 48, 2)

    def test_structs_and_halves_are_passed_by_value(self, cuda, raw) -> None:
        at, flags = cuda.array(np.zeros(4, VECTOR), descr=VECTOR.descr), cuda.array(np.zeros(4, "|u1"))
        step = np.zeros((), STEP)
        step["dt"], step["first"], step["force"]["x"], step["inner"]["kind"][1] = 0.5, True, 2, 7
        raw.move[1, 4](at, step[()], 1.5, flags)
        wanted = struct.pack("<Q", at.address) + step.tobytes() + np.float16(1.5).tobytes() + bytes(6)
        assert cuda.parameters() == wanted + struct.pack("<Q", flags.address)
        assert cuda.launches()[-1]["cooperative"]

    def test_a_tensor_map_is_passed_by_value(self, cuda, raw) -> None:
        driver = pytest.importorskip("cuda.bindings.driver")
        cuda.set(sizes="4,128,8")
        value, out = driver.CUtensorMap(), cuda.array(4)
        value.opaque = list(range(16))
        raw.tensor[1, 1](3, value, out)
        assert cuda.parameters() == struct.pack("<i16QQ", 3, *range(16), out.address)

    def test_wrong_argument_type_of_cpp_kernel_is_an_error(self, cuda, raw, recwarn) -> None:
        with pytest.raises(ArgumentError, match=r"x, is int32\[::1\] where a C-contiguous array of float") as caught:
            raw.scale[2, 32](2.5, cuda.array(np.zeros(8, "<i4")), 8)
        assert "packaged: void(double, double *, int)" in str(caught.value)
        assert not [item for item in recwarn if issubclass(item.category, FallbackWarning)]

    def test_fallback_compiles_packaged_sources_for_another_gpu(self, cuda, wheel, tmp_path, monkeypatch) -> None:
        monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
        cuda.set(devices="7.5")
        cuda.install(wheel)
        raw = importlib.import_module("cudacpp.raw")
        array = cuda.array(np.zeros(8, "<f4"))
        with pytest.warns(FallbackWarning, match=r"cudacpp\.raw, all of it"):
            raw.scale[2, 32](2.5, array, 8)
        assert cuda.parameters() == struct.pack("<f4xQi", 2.5, array.address, 8)
        (image,) = (tmp_path / "cache").rglob("kernels.cubin")
        assert b"_ZN2ns5scaleIfEEvT_PS1_i" in image.read_bytes()


def test_an_editable_build_depends_on_the_files(tmp_path: Path) -> None:
    project = projects.copy("cudacpp", tmp_path / "project")
    config = project / "pyproject.toml"
    config.write_text(config.read_text().partition("# Numba's kernels")[0])
    projects.back_end(project, editable=True)
    manifest = json.loads((project / "cudacpp/raw.aotcuda/manifest.json").read_text())
    paths = {source["path"] for source in manifest["sources"]}
    assert {RAW, MORE, "csrc/include/factor.h", "pyproject.toml#tool.aotcuda"} <= paths
