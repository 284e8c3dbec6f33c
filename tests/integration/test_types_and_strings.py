"""Test parameters that are types or arrays of strings, and names of dtypes in signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration import projects
from integration.projects import MODULE, build_wheel, content, lines_of, manifest_of, refused, write
from support import front_ends

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("front_end")

NUMBERS = {"boolean": "|b1", "int8": "|i1", "uint64": "<u8", "float16": "<f2", "complex64": "<c8", "complex128": "<c16"}
BY_TYPE = """
from numba import cuda
def by_type(x, before, t, after):
    tile = cuda.shared.array(32, t)
    tile[0] = x[0]
    x[1] = tile[0] + before
    x[2] = t(after)
"""


def test_type_argument_is_a_parameter(front_end: str, tmp_path: Path) -> None:
    """The build compares the offset of each parameter with the linked image, so this test does not."""
    kernels = "\n".join(
        f'kernels.{name} = {{ python = "by_type", signature = "void({name}[::1], int8, NumberClass({name}), {name})" }}'
        for name in NUMBERS
    )
    manifest = manifest_of(content(build_wheel(write(tmp_path / "project", BY_TYPE, module=kernels))), "pkg.k")
    assert [kernel["name"] for kernel in manifest["kernels"]] == [*NUMBERS]
    for kernel, (name, dtype) in zip(manifest["kernels"], NUMBERS.items(), strict=True):
        _, _, parameter, last = kernel["overloads"][0]["parameters"]
        ty = f"NumberClass({'bool' if name == 'boolean' else name})"
        assert (parameter["kind"], parameter["dtype"], parameter["type"]) == ("type", dtype, ty)
        assert last["offset"] > parameter["offset"]


@front_ends.EACH
def test_c_header_has_a_member_for_a_type_argument(front_end: str, tmp_path: Path) -> None:
    signature = 'kernels.by_type = "void(float64[::1], int8, NumberClass(float64), float64)"'
    files = content(build_wheel(write(tmp_path / "project", BY_TYPE, module=signature)))
    header = files["pkg/k.aotcuda/pkg_k.h"].decode()
    assert f"{'void *' if front_end == 'numba-cuda' else 'double '}t; /* NumberClass(float64) */" in header


STRINGS = """
import numpy as np
named = np.dtype([("id", "i4"), ("name", "U12"), ("code", "S12")])
def strings(texts, codes, equal):
    equal[0] = texts[0] == "abc"
    texts[0] = "XYZ"
    codes[0] = b"XYZ"
def in_records(a):
    a[0]["name"] = "XYZ"
    a[0]["code"] = b"XYZ"
"""
STRING_KERNELS = """
kernels.strings = "void(UnicodeCharSeq(12)[::1], [char x 12][:], boolean[::1])"
kernels.in_records = "void(named[::1])"
"""


@front_ends.EACH
def test_arrays_of_strings_are_accepted_or_refused_by_name(front_end: str, tmp_path: Path) -> None:
    project = write(tmp_path / "project", STRINGS, module=STRING_KERNELS)
    if front_end == front_ends.MLIR:
        lines = lines_of(refused(project).err)
        assert (
            f"{MODULE}.kernels.strings: void(UnicodeCharSeq(12)[::1], [char x 12][:], boolean[::1]): argument 'texts' "
            "is of type UnicodeCharSeq(12)[::1] (pkg/_k.py:4); numba-cuda-mlir can neither read nor write the strings "
            "in it, so pass them as numbers (an array of uint8 or uint32), or compile it by numba-cuda"
        ) in lines
        return
    kernels = manifest_of(content(build_wheel(project)), "pkg.k")["kernels"]
    texts, codes, _ = kernels[0]["overloads"][0]["parameters"]
    assert (texts["dtype"], texts["type"]) == ("<U12", "UnicodeCharSeq(12)[::1]")
    assert (codes["dtype"], codes["type"]) == ("|S12", "CharSeq(12)[:]")
    (records,) = kernels[1]["overloads"][0]["parameters"]
    assert records["dtype"] == "|V64{id:<i4@0,name:<U12@4,code:|S12@52}"


@front_ends.EACH
def test_dtype_parameter_is_accepted_or_refused(front_end: str, tmp_path: Path) -> None:
    signature = 'kernels.by_type = "void(float32[::1], int8, DType(float32), float32)"'
    project = write(tmp_path / "project", BY_TYPE.replace("t(after)", "after"), module=signature)
    if front_end == front_ends.MLIR:
        assert refused(project).message.endswith(
            "argument 't' is of type DType(float32), which numba-cuda-mlir cannot pass (pkg/_k.py:3); write "
            "NumberClass(...) of a number's type, to which dtypes can be passed too"
        )
    else:
        (kernel,) = manifest_of(content(build_wheel(project)), "pkg.k")["kernels"]
        assert kernel["overloads"][0]["parameters"][2]["type"] == "DType(float32)"


DEFINED = """
import numpy as np
own = np.dtype([("x", "f4"), ("y", "f4")])
both = np.dtype([("x", "f4"), ("wrong", "f4")])
def f(a):
    a[0].x = 1
def g(a):
    a[0].right = 1
def moves(p):
    return p.x
"""
NAMED = """
import numpy as np
from pkg._defined import f, g, moves
both = np.dtype([("x", "f4"), ("right", "f4")])
"""
NAMED_KERNELS = """
kernels.f = "void(own[::1])"
kernels.g = "void(both[::1])"
functions.moves = "float32(both)"
"""


def test_type_names_of_source_module_hide_those_of_defining_module(front_end: str, tmp_path: Path) -> None:
    project = write(tmp_path / "project", NAMED, module=NAMED_KERNELS)
    (project / "pkg" / "_defined.py").write_text(projects.source(DEFINED))
    files = content(build_wheel(project))
    dtypes = [kernel["overloads"][0]["parameters"][0]["dtype"] for kernel in manifest_of(files, "pkg.k")["kernels"]]
    assert dtypes == ["|V8{x:<f4@0,y:<f4@4}", "|V8{x:<f4@0,right:<f4@4}"]
    assert "float moves(pkg_k_both *p);" in files["pkg/k.aotcuda/pkg_k.h"].decode()
