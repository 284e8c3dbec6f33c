"""Parameters of C++ kernels: addresses of arrays, structs by value, and sizes of arrays."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

from aotcuda.builder.emit.c_header import header
from aotcuda.errors import ArgumentError
from support import manifests
from support.manifests import kernel

POINT = np.dtype([("x", "<f4"), ("n", "<i4"), ("m", "<f8", (3,)), ("inner", [("s", "<i2"), ("c", "|i1")])], align=True)
POINT_TEXT = "|V40{x:<f4@0,n:<i4@4,m:<f8*3@8,inner:{s:<i2@0,c:|i1@2}@32}"


def kernel_of(*parameters, size, name="k"):
    """Return a kernel of one overload that has these parameters."""
    record = kernel(name, "void()")
    record["overloads"][0] |= {"parameters": list(parameters), "parameter_bytes": size, "signature": "void(...)"}
    return record


def buffer(name, offset, dtype="<f4", **keys):
    return {"name": name, "type": "float *", "kind": "buffer", "dtype": dtype, "offset": offset, **keys}


def scalar(name, form, offset):
    return {"name": name, "type": "int", "kind": "scalar", "format": form, "offset": offset}


def struct(name, offset, dtype=POINT_TEXT, size=40):
    return {"name": name, "type": "Point", "kind": "struct", "dtype": dtype, "bytes": size, "offset": offset}


def size(name, word, form, offset):
    return {"name": name, "type": "int", "word": word, "format": form, "offset": offset}


@pytest.mark.usefixtures("both_paths")
class TestArraysOfAnyDimensions:
    @pytest.mark.parametrize("shape", [(6,), (2, 3), (), (1, 2, 3), (0, 4)], ids=str)
    def test_the_address_of_an_array_is_passed(self, cuda, shape):
        k = cuda.package(kernel_of(buffer("x", 0), scalar("n", "i", 8), size=12)).k
        array = cuda.array(np.zeros(shape, "<f4"))
        k[1, 1](array, 7)
        assert cuda.parameters() == np.array([array.address, 7], "<i8").tobytes()[:12]

    @pytest.mark.general("overloads for other dimensions than the one that is taken are in the group")
    def test_an_overload_for_fixed_dimensions_is_preferred(self, cuda):
        record = kernel_of({**manifests.parameter("x", "float32[:,::1]", 0)[0], "words": ["data"]}, size=8)
        record["overloads"] += kernel_of(buffer("x", 0), size=8)["overloads"]
        record["overloads"][1] = {**record["overloads"][1], "symbol": "k_any"}
        k = cuda.package(record).k
        for shape in ((4,), (2, 2), (4,), (1, 2, 2), (2, 2)):
            k[1, 1](cuda.array(np.zeros(shape, "<f4")))
        assert [call["kernel"] for call in cuda.launches()] == ["k_any", "k_0", "k_any", "k_any", "k_0"]

    def test_a_read_only_array_fits_a_parameter_that_is_read(self, cuda):
        k = cuda.package(kernel_of(buffer("x", 0, readonly=True), buffer("y", 8), size=16)).k
        locked, writable = cuda.array(np.zeros(4, "<f4")), cuda.array(np.zeros(4, "<f4"))
        locked.interface["data"] = (locked.address, True)
        k[1, 1](locked, writable)
        assert cuda.parameters() == np.array([locked.address, writable.address], "<i8").tobytes()


class TestArraysThatAreRefused:
    @pytest.fixture
    def k(self, cuda, monkeypatch):
        monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
        return cuda.package(kernel_of(buffer("x", 0), size=8)).k

    def test_arrays_that_do_not_fit_are_refused(self, cuda, k):
        locked = cuda.array(np.zeros(4, "<f4"))
        locked.interface["data"] = (locked.address, True)
        for array, problem in (
            (cuda.array(np.zeros((2, 2), "<f8")), r"x, is float64\[:,::1\] where a C-contiguous array of float32"),
            (cuda.array(np.zeros((2, 2), "<f4", order="F")), r"strides \(4, 8\) .* passes no strides to the kernel"),
            (locked, r"is read-only, and float \* lets the kernel write to it"),
        ):
            with pytest.raises(ArgumentError, match=problem):
                k[1, 1](array)


@pytest.mark.usefixtures("both_paths")
class TestSizes:
    def test_sizes_are_sent_at_their_offsets(self, cuda):
        x = buffer("x", 8, sizes=[size("n", "items", "i", 0), size("width", "itemsize", "Q", 24)])
        k = cuda.package(kernel_of(x, buffer("y", 16), size=32)).k
        first, second = cuda.array(np.zeros((5, 3), "<f4")), cuda.array(4)
        k[1, 1](first, second)
        assert cuda.parameters() == np.array([15, first.address, second.address, 4], "<i8").tobytes()

    def test_sizes_of_an_array_with_dimensions_are_sent(self, cuda):
        sizes = [size("rows", "shape0", "I", 0), size("pitch", "stride0", "q", 16), size("step", "step1", "H", 24)]
        array = {**manifests.parameter("x", "float32[:,:]", 8)[0], "words": ["data"], "sizes": sizes}
        k = cuda.package(kernel_of(array, size=26)).k
        strided = cuda.array(np.zeros((6, 8), "<f4")[::2, ::4])
        k[1, 1](strided)
        assert cuda.parameters() == np.array([3, strided.address, 64, 4], "<i8").tobytes()[:26]

    @pytest.mark.parametrize(("form", "most"), [("b", 127), ("H", 65535)])
    def test_a_size_out_of_range_is_refused(self, cuda, monkeypatch, form, most):
        monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
        k = cuda.package(kernel_of(buffer("x", 0, "|i1", sizes=[size("n", "items", form, 8)]), size=10)).k
        k[1, 1](cuda.array(np.zeros(most, "|i1")))
        assert int.from_bytes(cuda.parameters()[8:], "little") == most
        with pytest.raises(ArgumentError, match=rf"\({most + 1},\), which exceeds the range of the kernel's n \(int\)"):
            k[1, 1](cuda.array(np.zeros(most + 1, "|i1")))


class TestStructs:
    @pytest.fixture
    def k(self, cuda, monkeypatch):
        monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
        return cuda.package(kernel_of(scalar("n", "i", 0), struct("p", 8), size=48)).k

    def test_a_record_is_passed_by_value(self, cuda, k):
        value = np.zeros((), POINT)
        value["x"], value["n"], value["m"], value["inner"]["s"] = 1.5, 2, [3, 4, 5], 6
        for number in (7, 8):
            k[1, 1](number, value[()])
            assert cuda.parameters() == number.to_bytes(4, "little") + bytes(4) + value.tobytes()

    def test_another_layout_is_refused(self, k):
        packed = np.dtype([("x", "<f4"), ("n", "<i4"), ("m", "<f8", (3,)), ("inner", [("s", "<i2"), ("c", "|i1")])])
        with pytest.raises(ArgumentError, match=r"p, is a record \|V35\{.* where Point is packaged \(\|V40\{"):
            k[1, 1](1, np.zeros((), packed)[()])

    @pytest.mark.parametrize("value", [2.5, np.zeros((), POINT), np.zeros(3, POINT)], ids=["number", "one", "many"])
    def test_another_value_says_how_to_make_a_record(self, k, value):
        with pytest.raises(ArgumentError, match=r"p, is .* where Point is packaged \(\|V40\{.*\): a record, as array"):
            k[1, 1](1, value)

    def test_tensor_maps_of_cuda_core_have_the_right_bytes(self, cuda):
        maps = pytest.importorskip("cuda.core._tensor_map")
        handler = pytest.importorskip("cuda.core._kernel_arg_handler")
        k = cuda.package(kernel_of(struct("map", 0, "|V128{opaque:<u8*16@0}", 128), size=128)).k
        value = maps.TensorMapDescriptor.__new__(maps.TensorMapDescriptor)  # none can be made without a GPU
        holder = handler.ParamHolder([value])
        place = ctypes.c_void_p.from_address(holder.ptr).value
        assert id(value) < place <= id(value) + type(value).__basicsize__ - 128
        k[1, 1](value)
        assert cuda.parameters() == ctypes.string_at(place, 128)


class TestParametersByPointers:
    """Tensor maps are aligned in memory, and parameter blocks begin at other offsets on each GPU."""

    @pytest.fixture
    def k(self, cuda):
        cuda.set(sizes="4,128,8,4")
        x = buffer("x", 192, sizes=[size("n", "items", "i", 200)])
        record = kernel_of(scalar("a", "i", 0), struct("map", 64, "|V128{opaque:<u8*16@0}", 128), x, size=204)
        record["overloads"][0]["one_by_one"] = True
        return cuda.package(record).k

    def test_each_parameter_is_passed_by_its_pointer(self, cuda, k):
        driver = pytest.importorskip("cuda.bindings.driver")
        value, array = driver.CUtensorMap(), cuda.array(np.zeros((3, 2), "<f4"))
        value.opaque = list(range(16))
        expected = [np.int32(7), np.arange(16, dtype="<u8"), np.uint64(array.address), np.int32(6)]
        for _ in range(3):
            k[1, 1](7, value, array)
            assert cuda.parameters() == b"".join(part.tobytes() for part in expected)

    @pytest.mark.usefixtures("both_paths")
    def test_constants_are_not_passed(self, cuda):
        cuda.set(sizes="4,8,4")
        constant = {"name": "c", "type": "c=5", "kind": "constant", "offset": 0, "value": 5}
        record = kernel_of(
            scalar("a", "i", 0), constant, buffer("x", 64, sizes=[size("n", "items", "i", 200)]), size=204
        )
        record["overloads"][0]["one_by_one"] = True
        k = cuda.package(record).k
        array = cuda.array(np.zeros((3, 2), "<f4"))
        for number in (7, 8, 9):
            k[1, 1](number, 5, array)
            assert cuda.parameters() == b"".join(
                part.tobytes() for part in (np.int32(number), np.uint64(array.address), np.int32(6))
            )


class TestHeader:
    def test_the_headers_struct_has_the_blocks_offsets(self, tmp_path):
        parameters = [
            scalar("a", "f", 0),
            buffer("x", 8, sizes=[size("n", "items", "i", 4), size("m", "items", "h", 200)], readonly=True),
            struct("map", 64, "|V128{opaque:<u8*16@0}", 128),
            struct("half2", 192, "|V4{x:<f2@0,y:<f2@2}", 4),
            struct("odd", 196, "|V3{x:|i1@0,y:|i1@1,z:|i1@2}", 3),
        ]
        text = header.render("mypkg.kernels", [], [kernel_of(*parameters, size=202)])
        (tmp_path / "k.h").write_text(text)
        places = {"a": 0, "n": 4, "x": 8, "map": 64, "half2": 192, "odd": 196, "m": 200}
        name = "mypkg_kernels_k_0_parameters"
        checks = [
            f"_Static_assert(offsetof({name}, {member}) == {offset}, {member!r});" for member, offset in places.items()
        ]
        lines = ["#include <stddef.h>", '#include "k.h"', *[check.replace("'", '"') for check in checks]]
        (tmp_path / "k.c").write_text("\n".join(lines))
        subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "k.c"], cwd=tmp_path, check=True)
        assert "const float *x;" in text
