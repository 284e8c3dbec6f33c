"""The private names of other libraries: in one table, and each is missed without harm."""

from __future__ import annotations

import sys
import types

import pytest

from aotcuda.runtime import foreign_names


@pytest.mark.parametrize("name", foreign_names.ALL, ids=lambda name: name.path)
def test_a_name_that_a_library_has_not_is_none(monkeypatch, name):
    monkeypatch.delitem(sys.modules, name.module, raising=False)
    assert name.find() is None
    monkeypatch.setitem(sys.modules, name.module, types.ModuleType(name.module))
    assert name.find() is None
    parent, _, last = name.path.rpartition(".")
    value = types.SimpleNamespace(**{last: 7}) if parent else 7
    setattr(sys.modules[name.module], parent or last, value)
    assert name.find() == 7
