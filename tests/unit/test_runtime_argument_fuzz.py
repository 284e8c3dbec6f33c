"""Whatever the arguments, all three paths of a launch do the same; the long run is bench/fuzz_arguments.py."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import HealthCheck, given, settings

from support import argument_fuzz
from support.manifests import kernel

pytest_plugins = ["support.quick", "support.stand_in"]

EXAMPLES = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def fuzz(cuda, accelerator_module, monkeypatch):
    """The three paths over one module."""
    monkeypatch.delenv("FAKE_CUDA_LOG")
    module = cuda.package(kernel("k", "void()")).__aotcuda__
    module.attribute("k")[1, 1]()
    with argument_fuzz.patched():
        yield argument_fuzz.Fuzz(module, ctypes.CDLL(str(cuda.library)), accelerator_module)


def test_the_paths_agree(fuzz):
    @EXAMPLES
    @given(argument_fuzz.cases())
    def run(case):
        fuzz.run(case)

    run()
    print(fuzz.tuples, fuzz.errors, fuzz.taken)
    for path in ("python", "accelerator"):
        assert fuzz.taken[path][path] > 50
    assert fuzz.errors > 50
