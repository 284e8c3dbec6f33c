"""Kernels of one wheel by both front ends, and kernels that call functions of the other one's, on a GPU."""

from __future__ import annotations

import sys
import warnings
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpu import prepare
from gpu.conftest import GIVEN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")

FRONT_ENDS = {"waves": "numba-cuda-mlir", "fields": "numba-cuda"}
N = 6400  # 100 blocks of 64
X = np.linspace(-3, 3, N, dtype="float32")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ModuleType]]:
    """Return the modules of `tests/packages/mixed` that have kernels."""
    wheels = Path(GIVEN) if GIVEN else tmp_path_factory.mktemp("wheels")
    if not GIVEN:
        prepare.build_mixed(wheels)
    found = list((wheels / "mixed").glob("*.whl"))
    if not found:
        pytest.skip("there is no wheel mixed: prepare.py builds it where both front ends are installed")
    target = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(found[0]).extractall(target)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(target))
        patch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        import mixed.fields
        import mixed.waves

        yield {"fields": mixed.fields, "waves": mixed.waves}
    for name in [name for name in sys.modules if name.partition(".")[0] == "mixed"]:
        del sys.modules[name]


@pytest.fixture(params=FRONT_ENDS)
def module(mixed: dict[str, ModuleType], request: pytest.FixtureRequest) -> ModuleType:
    assert mixed[request.param].__aotcuda__.manifest["frontend"] == FRONT_ENDS[request.param]
    return mixed[request.param]


def horner(a: float, x: np.ndarray) -> np.ndarray:
    """Return what `mixed._polynomials.horner` computes with `offset` of csrc/offset.cu."""
    return (a * x.astype("float64") + 2) * x + 1.25


def ends(x: np.ndarray) -> np.ndarray:
    """For each number the one at the other end of its block of 64."""
    return x.reshape(-1, 64)[:, ::-1].reshape(-1)


def test_the_machine_code_is_loaded_and_nothing_is_compiled(module: ModuleType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.axpy[100, 64](2.0, cupy.asarray(X), cupy.zeros(N, "float32"))
    assert {tier.choice.kind for tiers in module.__aotcuda__.tiers.values() for tier in tiers} <= {"sass", "ptx"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_ones_kernels_give_numpys_numbers(module: ModuleType, dtype: str) -> None:
    x, y = X.astype(dtype), np.arange(N, dtype=dtype)
    for a in (2.0, -0.5, 3.25):  # the first launch is the general one, the others are quick
        out = cupy.asarray(y)
        module.axpy[100, 64](a, cupy.asarray(x), out)
        np.testing.assert_allclose(out.get(), a * x + y, rtol=1e-6)


def test_strided_arrays_are_read_in_steps_of_bytes_or_of_elements(module: ModuleType) -> None:
    wide = np.arange(4 * N, dtype="float64")
    x, y = cupy.asarray(wide)[::4], cupy.zeros(2 * N)[::2]
    module.axpy[100, 64](2.0, x, y)
    np.testing.assert_array_equal(y.get(), 2 * wide[::4])
    module.axpy[100, 64](1.0, x[::-1], y)
    np.testing.assert_array_equal(y.get(), 2 * wide[::4] + wide[::4][::-1])


def test_kernels_of_both_take_turns_on_one_array(mixed: dict[str, ModuleType]) -> None:
    x, y = cupy.ones(N, "float32"), cupy.zeros(N, "float32")
    for number in range(20):
        mixed["waves" if number % 2 else "fields"].axpy[100, 64](float(number), x, y)
    np.testing.assert_array_equal(y.get(), np.full(N, sum(range(20)), "float32"))


def test_a_kernel_by_mlir_calls_a_function_by_numba_cuda(mixed: dict[str, ModuleType]) -> None:
    for a in (0.5, -1.5):
        x = cupy.asarray(X)
        mixed["waves"].evaluate[100, 64](a, x)
        np.testing.assert_allclose(x.get(), horner(a, X), rtol=1e-5, atol=1e-6)


def test_a_kernel_by_numba_cuda_calls_a_function_by_mlir(mixed: dict[str, ModuleType]) -> None:
    for a in (0.5, -1.5):
        x = cupy.asarray(X)
        mixed["fields"].damp[100, 64](a, x)
        np.testing.assert_allclose(x.get(), horner(a, X) / (1 + X.astype("float64") ** 2), rtol=1e-5, atol=1e-6)


def test_shared_arrays_of_both_in_one_kernel_are_apart(mixed: dict[str, ModuleType]) -> None:
    x = cupy.asarray(X)
    mixed["waves"].reverse[100, 64](x)
    np.testing.assert_array_equal(x.get(), ends(X))
    x = cupy.asarray(X)
    mixed["fields"].differences[100, 64](x)
    np.testing.assert_array_equal(x.get(), X - 2 * ends(X))


@pytest.mark.parametrize(("name", "kernel"), [("waves", "reverse"), ("fields", "differences")])
def test_other_types_are_compiled_by_the_modules_own_front_end(
    mixed: dict[str, ModuleType], name: str, kernel: str
) -> None:
    # Its extra brings lz4, which reads the packaged code that the module links.
    for package in ("lz4", *(front_end.replace("-", "_") for front_end in FRONT_ENDS.values())):
        if find_spec(package) is None:  # either one: the wheel has code of both
            pytest.skip(f"{package} is not installed")
    values = np.arange(N, dtype="float64") % 1000
    x = cupy.asarray(values)
    with pytest.warns(match=rf"mixed\.{name}\.{kernel} for void\(float64\[::1\]\)"):
        mixed[name].__aotcuda__.kernels[kernel][100, 64](x)
    np.testing.assert_array_equal(x.get(), ends(values) if kernel == "reverse" else values - 2 * ends(values))
    assert [tier.tier for tier in mixed[name].__aotcuda__.tiers[kernel]][-1] == "jit"
