"""Check the symbols of host objects and libraries, and the functions of packaged modules that are linked."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotcuda import manifest
from aotcuda.arch import parse
from aotcuda.binary import fatbin
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import inputs, preconditions, symbols
from aotcuda.builder.project import linked_modules
from aotcuda.errors import ImageError, LinkError
from support import manifests, modules

# An ELF header of x86-64 without sections.
ELF = b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + struct.pack("<HI", 62, 1) + bytes(40)


def test_targets_of_an_object_are_those_of_its_device_code():
    data = ELF + b"host code" + manifests.fatbin([manifests.image("compute_75", b".visible .func f")[1]]) + b"more"
    item = symbols._in_object(data, "f.o")
    assert (item.functions, item.archs) == (("f",), ("compute_75",))


def test_a_target_of_several_images_is_named_once():
    item = LinkInput(kind="fatbin", name="f.fatbin", data=b"")
    item_symbols = symbols.Symbols(functions=(), archs=("sm_90", "compute_90", "compute_90"))
    with pytest.raises(
        LinkError, match=r"f\.fatbin holds code for sm_90, compute_90, which cannot be linked for sm_80;"
    ):
        preconditions.check("m", {}, {}, {item: item_symbols}, [parse("sm_80")], {item: "key"}, {})


TWICE = {
    "variables": ("__constant__ float x = 1;", "m: x is defined twice, in a.cu and in b.cu; link one of them"),
    "in a namespace": (
        "namespace p { __device__ int x; }",
        "m: p::x is defined twice, in a.cu and in b.cu; link one of",
    ),
    "functions": (
        "__device__ float f(float x) { return x; }",
        "m: f is defined twice, in a.cu and in b.cu; link one of",
    ),
    "extern variable": ("extern __constant__ float x;", "m: a.cu uses the extern variable x, which nothing defines;"),
    "static": ("static __device__ float x[2] = {1, 2};", ""),
    "inline": ("inline __device__ float h(float x) { return x; }", ""),
}
"""Code that two linked files have, and the error."""


@pytest.mark.parametrize("kind", TWICE)
def test_linked_files_that_share_a_name_are_refused(kind):
    code, expected = TWICE[kind]
    value = {"in a namespace": "p::x", "functions": "f(1)", "static": "x[1]", "inline": "h(1)"}.get(kind, "x")
    found = {}
    for name in "ab":
        text = f'{code}\nextern "C" __device__ float {name}() {{ return {value}; }}\n'
        item = LinkInput(kind="cu", name=f"{name}.cu", data=text.encode())
        found[item] = symbols.read_symbols(item, parse("sm_80"), Options(), [])
    arguments = ({}, found, [parse("sm_80")], dict.fromkeys(found, "key"), {})
    if not expected:
        preconditions.check("m", {}, *arguments)
        return
    with pytest.raises(LinkError) as caught:
        preconditions.check("m", {}, *arguments)
    assert str(caught.value).startswith(expected)


def test_container_of_size_zero_is_refused():
    with pytest.raises(ImageError, match=r"^f\.o "):
        symbols._in_object(ELF + fatbin.MAGIC + bytes(40), "f.o")


def archive(size: str) -> bytes:
    """Return a static library whose one member, of 64 bytes, has `size` as its size."""
    return b"!<arch>\n" + b"m.o/".ljust(48) + size.encode().ljust(10) + b"`\n" + ELF


@pytest.mark.parametrize(
    ("size", "problem"),
    [
        ("x", "is damaged: the size of its member 'm.o' is no number"),
        ("-60", "is damaged: the size of its member 'm.o' is no number"),
        ("65", "is cut short: its member 'm.o' ends at byte 133 of 132"),
    ],
)
def test_library_with_a_wrong_size_is_refused(size: str, problem: str) -> None:
    """A negative size must not lead back to the same member."""
    assert [*symbols._members(LinkInput(kind="library", name="f.a", data=archive("64")))] == [("m.o", ELF)]
    with pytest.raises(ImageError) as caught:
        [*itertools.islice(symbols._members(LinkInput(kind="library", name="f.a", data=archive(size))), 9)]
    assert str(caught.value) == f"f.a {problem}; make it anew"


def test_packaged_module_is_linked_from_a_folder_of_any_name(tmp_path, monkeypatch):
    """A no-break space does not print, so messages have an escape in its place."""
    document, fatbins = modules.contents()
    content = b"linked"
    document["function_links"] = [{"path": "link0_a.cubin", "bytes": len(content), "sha256": manifest.digest(content)}]
    site = tmp_path / "site\u00a0packages"
    folder = modules.write(site, document, {**fatbins, "link0_a.cubin": content})
    (site / "mypkg" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(site))
    linked = inputs.from_module("mypkg.kernels", "KEY")
    assert [item.data for item in linked.inputs] == [fatbins["functions.fatbin"], content]
    assert linked_modules._folder("mypkg.kernels", tmp_path) == folder.resolve()


@given(st.lists(st.tuples(*[st.integers(0, 2**16 - 1) | st.sampled_from([0, 1, 16])] * 2, st.integers(0, 2**64 - 1))))
def test_containers_of_any_size_are_read_or_refused(headers):
    data = ELF + b"".join(fatbin.MAGIC + struct.pack("<HHQ", *header) for header in headers)
    try:
        item = symbols._in_object(data, "f.o")
    except ImageError:
        assert headers
    else:
        assert item.functions == ()
