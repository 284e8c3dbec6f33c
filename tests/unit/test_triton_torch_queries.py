"""Test the answers to GPU queries of sources to PyTorch; a small package stands in for PyTorch."""

from __future__ import annotations

import sys

import pytest

from aotcuda.arch import parse
from aotcuda.builder.frontends.triton import torch_queries

QUERIES = ("is_available", "device_count", "current_device", "get_device_name", "get_device_capability")


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "torch" / "cuda"
    folder.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("import torch.cuda as cuda\n")
    functions = "".join(f"def {name}(device=None): return 'own'\n" for name in (*QUERIES, "get_device_properties"))
    (folder / "__init__.py").write_text(f"{functions}def of_torch(): return get_device_name()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in ("torch", "torch.cuda"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("imported_before", [False, True])
def test_queries_are_answered_for_the_target(imported_before):
    records = []
    finders = list(sys.meta_path)
    if imported_before:
        __import__("torch")
    with torch_queries.answering(parse("sm_90a"), lambda *query, **kind: records.append((*query, kind)), RuntimeError):
        import torch

        answers = [getattr(torch.cuda, name)() for name in QUERIES]
        assert answers == [True, 1, 0, "NVIDIA H100 80GB HBM3", (9, 0)]
        properties = torch.cuda.get_device_properties(0)
        assert (properties.major, properties.shared_memory_per_block_optin) == (9, 232448)
        with pytest.raises(RuntimeError, match="multi_processor_count"):
            _ = properties.multi_processor_count
        before = len(records)
        assert torch.cuda.of_torch() == "NVIDIA H100 80GB HBM3"
        assert len(records) == before, "a query of PyTorch itself is not recorded"
    depending = {query for query, _, kind in records if kind.get("depends_on_target")}
    assert {"torch.cuda.get_device_name()", "torch.cuda.get_device_capability()"} <= depending
    assert [getattr(torch.cuda, name)() for name in QUERIES] == ["own"] * len(QUERIES)
    assert sys.meta_path == finders
