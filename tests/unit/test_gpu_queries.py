"""Test the answers of a build to GPU queries of sources; a small package stands in for PyTorch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from aotcuda.builder.frontends import gpu_queries
from aotcuda.gpus import CAPABILITIES, describe
from aotcuda.stand_ins.gpu import Gpu
from aotcuda.stand_ins.torch_cuda import Properties

QUERIES = ("is_available", "device_count", "current_device", "get_device_name", "get_device_capability")
TORCH = """
from types import SimpleNamespace
import torch.cuda as cuda

def device(*name): return name
default_generator = None
version, _C = SimpleNamespace(cuda=None), SimpleNamespace()
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "torch" / "cuda"
    folder.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text(TORCH)
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
    finders = list(sys.meta_path)
    if imported_before:
        __import__("torch")
    with gpu_queries.gpu.importing((9, 0), str(Path(__file__).parent)) as records:
        import torch

        answers = [getattr(torch.cuda, name)() for name in QUERIES]
        assert answers == [True, 1, 0, "NVIDIA H100 80GB HBM3", (9, 0)]
        properties = torch.cuda.get_device_properties(0)
        assert (properties.major, properties.shared_memory_per_block_optin) == (9, 232448)
        assert properties.multi_processor_count == 132
        before = len(records)
        assert torch.cuda.of_torch() == "NVIDIA H100 80GB HBM3"
        assert len(records) == before, "a query of PyTorch itself is not recorded"
    assert {item.place.partition(":")[0] for item in records} == {Path(__file__).name}
    depending = {item.query.rpartition(".")[2] for item in records if item.depends_on_target}
    assert depending == {
        *("get_device_name()", "get_device_capability()", "major", "multi_processor_count"),
        "shared_memory_per_block_optin",
    }
    assert sys.meta_path == finders


@pytest.mark.parametrize("capability", [row.number for row in CAPABILITIES], ids=str)
def test_builds_and_dry_runs_give_one_answer(capability):
    dry = Gpu.from_text(json.dumps(describe(capability)))
    with gpu_queries.gpu.answering(capability):
        built = gpu_queries.gpu
        assert (built.name, built.capability, built.memory) == (dry.name, dry.capability, dry.memory)
        assert built.torch_properties() == dry.torch_properties()
        assert built.triton_properties() == dry.triton_properties()
    assert dry.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") >= 48 << 10
    assert dry.attribute("MULTIPROCESSOR_COUNT") > 1


def test_unknown_properties_are_absent_like_those_of_pytorch():
    properties = Properties(Gpu(describe((9, 0))))
    assert not hasattr(properties, "unknown")
    assert getattr(properties, "unknown", 7) == 7


@pytest.mark.needs("triton")
def test_tritons_driver_is_a_stand_in_during_an_import_alone(tmp_path):
    from triton import runtime
    from triton.backends.compiler import GPUTarget

    from aotcuda.arch import Target
    from aotcuda.builder.frontends.triton import gpu

    target, triton_target = Target("sass", 8, 6, ""), GPUTarget("cuda", 86, 32)
    before = getattr(runtime.driver, "_active", None)
    with gpu.importing(target, triton_target, str(tmp_path)) as queries:
        driver = runtime.driver.active
        assert driver.get_current_target() == triton_target
        assert driver.utils.get_device_properties(0)["max_shared_mem"] == 99 << 10
        for holder in (driver, driver.utils):
            assert not hasattr(holder, "_unknown")
            with pytest.raises(RuntimeError, match=r"^launch: "):
                holder.launch  # noqa: B018 (it raises)
        assert any("Triton's launch" in str(query) for query in queries)
    assert getattr(runtime.driver, "_active", None) is before
    with gpu.compiling(target, triton_target):
        assert runtime.driver.active.get_current_target() == triton_target
    assert getattr(runtime.driver, "_active", None) is before
