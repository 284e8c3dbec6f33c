"""Test the C prototypes of exported device functions of Numba, by their signatures."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba.cuda", reason="Numba-CUDA is not installed")

from aotcuda.builder.config.model import Options
from aotcuda.builder.emit.c_header import header
from aotcuda.builder.frontends.numba import c_abi
from aotcuda.builder.frontends.numba.config import NumbaUnit
from aotcuda.builder.frontends.numba_cuda.types import convention, notation
from aotcuda.errors import CompileError

point = np.dtype([("x", "f4"), ("n", "i8")], align=True)
text = np.dtype([("name", "U4")])


def function(signature):
    """Return the compiled function of a signature without code, for parameters a, b and c."""
    args, result = notation.parse(signature, {"point": point, "text": text})
    kinds = {0: lambda: None, 1: lambda a: a, 2: lambda a, b: a, 3: lambda a, b, c: a}
    names = {"key": "KEY", "kind": "function", "module": "pkg.k", "name": "f", "symbol": "f", "origin": "pkg:f"}
    unit = NumbaUnit(**names, options=Options(), signature=signature, source=__name__, python="f")
    return c_abi.prototype(convention, unit, kinds[len(args)], args, result)


ARRAY = "void *{0}_meminfo, void *{0}_parent, long long {0}_nitems, long long {0}_itemsize, {1} *{0}_data"


@pytest.mark.parametrize(
    ("signature", "prototype"),
    [
        ("void()", "void f(void);"),
        ("none(int8)", "void f(signed char a);"),
        ("int32(uint8, int64, float64)", "int f(unsigned char a, long long b, double c);"),
        ("boolean(float16)", "bool f(unsigned short a);"),
        ("complex64(complex128)", "aotcuda_complex64 f(double a_real, double a_imag);"),
        ("NPDatetime('ns')(NPTimedelta('s'))", "long long f(long long a);"),
        ("CPointer(float32)(CPointer(void))", "float *f(void *a);"),
        ("CPointer(complex64)(CPointer(CPointer(int8)))", "aotcuda_complex64 *f(signed char **a);"),
        ("void(CPointer(float32[:]))", "void f(void *a);"),
        ("void(voidptr)", "void f(void *a);"),
        ("void(UniTuple(int16, 2), int8)", "void f(short a_0, short a_1, signed char b);"),
        ("void(Tuple((int8, Tuple((float32, int8)))))", "void f(signed char a_0, float a_1_0, signed char a_1_1);"),
        ("void(float32[:])", f"void f({ARRAY.format('a', 'float')}, long long a_shape0, long long a_stride0);"),
        ("void(point, CPointer(point))", "void f(pkg_k_point *a, pkg_k_point *b);"),
        ("void(point[:])", f"void f({ARRAY.format('a', 'pkg_k_point')}, long long a_shape0, long long a_stride0);"),
        ("void(CPointer(text))", "void f(void *a);"),
    ],
)
def test_each_type_has_a_type_of_c(signature, prototype):
    assert header.prototype("f", function(signature)) == prototype


@pytest.mark.parametrize(
    ("signature", "struct"),
    [
        ("UniTuple(float32, 2)(int8)", "typedef struct { float item0; float item1; } f_result;"),
        ("Tuple((boolean, complex64))()", "typedef struct { bool item0; aotcuda_complex64 item1; } f_result;"),
        (
            "Tuple((int8, Tuple((int8, CPointer(float64)))))()",
            "typedef struct { signed char item0; struct { signed char item0; double *item1; } item1; } f_result;",
        ),
    ],
)
def test_tuples_are_returned_as_structs(signature, struct):
    made = function(signature)
    assert (made.result, made.structs) == ("f_result", (("f_result", struct),))


def test_records_are_structs_with_their_dtype():
    made = function("void(point)")
    assert [name for name, _ in made.structs] == ["pkg_k_point"]
    ((_, described),) = made.records
    assert made.signature == f"void({made.records[0][0]})"
    assert described


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("void(unicode_type)", "KEY: void(unicode_type): argument 'a' is of type unicode_type, which has no type in"),
        ("void(int8, text)", "argument 'b' is of type "),
        ("float32[:](int8)", "it returns float32[:], which has no type in the C ABI"),
        ("Tuple((int8, float32[:]))(int8)", "it returns Tuple((int8, float32[:])), which has no type in the C ABI"),
        ("point()", "it returns "),
        ("Tuple(())()", "it returns "),
    ],
)
def test_types_without_a_type_of_c_are_refused(signature, message):
    with pytest.raises(CompileError) as caught:
        function(signature)
    assert message in str(caught.value)
