"""Check the symbols of host objects."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotcuda.arch import parse
from aotcuda.binary import fatbin
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import preconditions, symbols
from aotcuda.errors import ImageError, LinkError
from support import manifests

# An ELF header of x86-64 without sections.
ELF = b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + struct.pack("<HI", 62, 1) + bytes(40)


def test_targets_of_an_object_are_those_of_its_device_code():
    data = ELF + b"host code" + manifests.fatbin([manifests.image("compute_75", b".visible .func f")[1]]) + b"more"
    found = symbols._in_object(data, "f.o")
    assert (found.functions, found.archs) == (("f",), ("compute_75",))


def test_a_target_of_several_images_is_named_once():
    item = LinkInput(kind="fatbin", name="f.fatbin", data=b"")
    found = symbols.Symbols(functions=(), archs=("sm_90", "compute_90", "compute_90"))
    with pytest.raises(
        LinkError, match=r"f\.fatbin holds code for sm_90, compute_90, which cannot be linked for sm_80;"
    ):
        preconditions.check("m", {}, [], {item: found}, [parse("sm_80")], {item: "key"}, {})


def test_container_of_size_zero_is_refused():
    with pytest.raises(ImageError, match=r"^f\.o "):
        symbols._in_object(ELF + fatbin.MAGIC + bytes(40), "f.o")


@given(st.lists(st.tuples(*[st.integers(0, 2**16 - 1) | st.sampled_from([0, 1, 16])] * 2, st.integers(0, 2**64 - 1))))
def test_containers_of_any_size_are_read_or_refused(headers):
    data = ELF + b"".join(fatbin.MAGIC + struct.pack("<HHQ", *header) for header in headers)
    try:
        found = symbols._in_object(data, "f.o")
    except ImageError:
        assert headers
    else:
        assert found.functions == ()
