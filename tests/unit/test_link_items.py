"""Test what builds read from the items that Python code links."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aotcuda.builder.frontends.numba import link_items
from aotcuda.builder.frontends.protocol import Callbacks
from aotcuda.errors import CompileError, SourceError

if TYPE_CHECKING:
    from pathlib import Path


def item(name: str = "CUSource", data: object = "code", *, nrt: bool = False, **more: object) -> Any:
    """Return a stand-in for a LinkableCode object of Numba."""
    values = {"name": "f.cu", "data": data, "nrt": nrt, "setup_callback": None, "teardown_callback": None, **more}
    return type(name, (SimpleNamespace,), {})(**values)


def upload(module: object) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("name", "kind"),
    [("CUSource", "cu"), ("PTXSource", "ptx"), ("Cubin", "cubin"), ("LTOIR", "ltoir"), ("Archive", "library")],
)
@pytest.mark.parametrize("data", ["code", b"code", bytearray(b"code")])
def test_object_becomes_an_input_of_its_kind(name: str, kind: str, data: object, tmp_path: Path) -> None:
    read = link_items.link_input(item(name, data), tmp_path)
    assert (read.kind, read.name, read.data) == (kind, "f.cu", b"code")
    assert type(read.data) is bytes
    assert not read.internal


def test_file_is_read_relative_to_the_project(tmp_path: Path) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc/f.ptx").write_bytes(b"code")
    read = link_items.link_input("csrc/f.ptx", tmp_path)
    assert (read.kind, read.name, read.data) == ("ptx", "csrc/f.ptx", b"code")


@pytest.mark.parametrize(
    ("linked", "message"),
    [
        ("f.txt", "it links f.txt: f.txt has no suffix that can be linked; use one of .cu,"),
        ("gone.cu", "it links gone.cu"),
        (item("Module"), "it links a Module, which is neither a file name nor one of CUSource, PTXSource, Cubin,"),
        (item(nrt=True), "it links f.cu with nrt=True; Numba's memory allocation on the device cannot be packaged"),
    ],
)
def test_item_that_cannot_be_linked_is_named(linked: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=f"^{re.escape(message)}"):
        link_items.link_input(linked, tmp_path)


def test_callbacks_have_importable_names() -> None:
    name = f"{__name__}:upload"
    assert link_items.callbacks("f.cu") == link_items.callbacks(item()) == ()
    for setup, teardown in ((upload, None), (None, upload), (upload, upload)):
        expected = Callbacks(setup=setup and name, teardown=teardown and name, origin="f.cu")
        assert link_items.callbacks(item(setup_callback=setup, teardown_callback=teardown)) == (expected,)
    with pytest.raises(SourceError, match=r"^the teardown callback test_.*<lambda> of "):
        link_items.callbacks(item(teardown_callback=lambda module: None))


def test_code_of_a_packaged_module_brings_its_callbacks() -> None:
    names = {"setup": "pkg.hooks:upload", "teardown": None, "origin": "g.cu"}
    linked = item(setup_callback=upload, aotcuda_callbacks=[names])
    assert link_items.callbacks(linked) == (Callbacks(**names),)
    assert link_items.callbacks(item(setup_callback=upload, aotcuda_callbacks=[])) == ()


def test_grid_group_is_compiled_with_the_build() -> None:
    group = link_items.GRID_GROUP
    assert (group.kind, group.name, group.internal) == ("cu", "grid_group.cu", True)
    assert b"return 1;" in group.data
    assert b"this_grid().sync();\n    return cudaSuccess;" in group.data
