"""Serialize and hash values of the build cache."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotcuda.arch import parse
from aotcuda.builder.cache import hashing, serialization
from aotcuda.builder.cache.hashing import NamelessError
from aotcuda.builder.cache.serialization import ForeignValueError
from aotcuda.builder.frontends.protocol import CompiledKernel, Definition, Launch, LinkInput, ParameterBlock

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)

KERNEL = CompiledKernel(
    code=(LinkInput(kind="ltoir", name="k", data=b"\x00code", pieces=(("a", b"1"),)),),
    signature="void(int32)",
    parameters=({"kind": "scalar", "name": "x", "offset": 0},),  # type: ignore[typeddict-item]
    parameter_block=ParameterBlock(size=4, layout=((0, 4),)),
    launch=Launch(launch_bounds=(128,)),
    definition=Definition(doc="A kernel."),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(VALUES)
def test_decoded_value_equals_the_original(value: object) -> None:
    decoded = serialization.decode(serialization.encode(value))
    assert repr(decoded) == repr(value)


def test_compiled_kernel_comes_back_unchanged() -> None:
    data = serialization.encode([KERNEL, (KERNEL,)])
    assert serialization.decode(data) == [KERNEL, (KERNEL,)]
    assert data.partition(b"\n")[2] == b"\x00code1", "equal bytes are stored once"


@pytest.mark.parametrize("value", [object(), {1, 2}, Path("a"), lambda: 1])
def test_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(ForeignValueError):
        serialization.encode([value])


@pytest.mark.parametrize(
    "data",
    [
        {"c": "Popen", "f": {"args": ["true"]}},
        {"c": "LinkInput", "f": {"kind": "cu"}},
        {"c": "LinkInput", "f": {"kind": "cu", "name": "", "data": "", "more": 1}},
        {"c": "__class__", "f": {}},
        {"b": [0]},
        {"b": [1, 0]},
        {"b": [0, 2]},
        {"t": 3},
        {"d": [[1]]},
        {"d": [[["a list is no key"], 1]]},
        {},
    ],
)
def test_entry_cannot_name_other_classes_or_bytes(data: object) -> None:
    with pytest.raises(ForeignValueError):
        serialization.decode(json.dumps(data).encode() + b"\n.")


@pytest.mark.parametrize("data", [pickle.dumps(KERNEL), b"", b"{\n", b"\xff\n", b"[" * 100000])
def test_entry_that_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(ForeignValueError):
        serialization.decode(data)


DIFFERENT = [
    None, False, True, 0, 1, 1.0, "1", b"1", "", b"", (), [], {}, ("",), ("", ""), ("a", "b"), ("ab",), ("a", ("b",)),
    {"a": 1}, {"a": "1"}, ["a", 1], Path("a"), "a", parse("sm_90"), parse("compute_90"), parse("sm_90a"), "sm_90",
    frozenset(), frozenset(["a"]), KERNEL, KERNEL.code[0], {"b": 1, "a": 1}, {"a": 1, "b": 1},
]  # fmt: skip


def test_different_values_have_different_digests() -> None:
    digests = {hashing.digest(value) for value in DIFFERENT}
    assert len(digests) == len(DIFFERENT) - 1, "a tuple equals a list"


def test_value_without_canonical_form_has_no_digest() -> None:
    with pytest.raises(NamelessError, match="a object has no canonical form"):
        hashing.digest({"a": [object()]})
