"""Meet each reason for which C leaves something to Python: the enumeration `REASONS` in launch.h."""

from __future__ import annotations

import contextlib
import itertools
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aotcuda.errors import AotcudaError
from aotcuda.runtime import driver
from aotcuda.runtime.launch import fast
from support import libraries, manifests
from support.launch_paths import SOURCES
from support.manifests import kernel, overload
from support.triton_in_place import record

if TYPE_CHECKING:
    from collections.abc import Callable

LINE = "void(float32[::1])"
F4 = np.zeros(4, "<f4")
HEADER = (SOURCES[0].parent / "launch.h").read_text()
REASONS = re.findall(r"\bREASON\(([A-Z]+)\)", HEADER)


def line(cuda: Any, **options: Any) -> Any:
    """Return a kernel after launches with an array, and the array."""
    k = cuda.package(kernel("k", LINE), **options).k
    array = cuda.array(F4)
    for _ in range(3):
        k[1, 32](array)
    return k, array


def number(at: int, **keys: Any) -> dict[str, Any]:
    return {"name": f"n{at}", "type": "int32", "kind": "number", "format": "i", "offset": 4 * at, **keys}


def numbers(count: int, *keys: dict[str, Any]) -> dict[str, Any]:
    """Return a kernel of `count` ints, with an overload for each of `keys` of the first one."""
    variants = [
        overload(
            "void()",
            f"k_{index}",
            parameters=[number(at, **(key if at == 0 else {})) for at in range(count)],
            parameter_bytes=4 * count,
        )
        for index, key in enumerate(keys or ({},))
    ]
    return {"name": "k", "origin": "m:k", "overloads": variants}


def repeat(run: Callable[..., object], *args: object, times: int = 3) -> None:
    for _ in range(times):
        with contextlib.suppress(AotcudaError):
            run(*args)


def by_grid(cuda: Any) -> Any:
    return cuda.package(
        record("k", [{"name": "x"}, {"name": "n"}], {"x": "*fp32:16", "n": "i32"}), by_grid=True, frontend="triton"
    ).k


def configuration(cuda: Any) -> None:
    k, array = line(cuda)
    k[np.int64(1), 32](array)


def names(cuda: Any) -> None:
    k, array = line(cuda)
    repeat(lambda: k[1, 32](x=array))


def depth(cuda: Any) -> None:
    k, array = line(cuda)
    left = [0]

    class Nested:
        @property
        def __cuda_array_interface__(self) -> Any:
            if left[0]:
                left[0] -= 1
                k[1, 32](Nested())
            return array.interface

    for count in (0, 0, 0, 30):
        left[0] = count
        k[1, 32](Nested())


def types(cuda: Any) -> None:
    k, array = line(cuda)
    k[1, 32](libraries.of("cupy", array))


def array(cuda: Any) -> None:
    k, array = line(cuda)
    k[1, 32](array)
    array.interface = {**array.interface, "data": [array.address, False]}  # a list
    k[1, 32](array)


def value(cuda: Any) -> None:
    k = cuda.package(kernel("k", "void(int64)")).k
    repeat(k[1, 32], 5)
    repeat(k[1, 32], 1 << 70)


def streams(cuda: Any) -> None:
    k = cuda.package(kernel("k", f"void({', '.join(['float32[::1]'] * 5)})")).k
    args = [cuda.array(F4, stream=100 + at) for at in range(5)]
    repeat(k[1, 32], *args)


def context(cuda: Any) -> None:
    cuda.set(devices="9.0,9.0")
    k, array = line(cuda)
    cuda.set(fail="cuCtxGetCurrent=201")
    repeat(k[1, 32], array)


def key(cuda: Any) -> None:
    k = cuda.package(kernel("k", LINE, "void(float64[::1])")).k
    for dtype in ("<f4", "<f8"):
        repeat(k[1, 32], cuda.array(np.zeros(4, dtype)))


def missed(cuda: Any) -> None:
    k = by_grid(cuda)
    repeat(k[1], cuda.array(F4, data=(1 << 41, False)), 5)
    repeat(k[1], cuda.array(F4, data=((1 << 41) + 8, False)), 5)


def gpu(cuda: Any) -> None:
    cuda.set(devices="9.0,9.0")
    k = cuda.package(kernel("k", LINE)).k
    here, there = cuda.array(F4, device=0), cuda.array(F4, device=1)
    driver.get().make_current(0)
    repeat(k[1, 32], here)
    repeat(k[1, 32], there)


def values(cuda: Any) -> None:
    k, _ = line(cuda)
    repeat(k[1, 32], cuda.array(np.zeros(8, "<f4")[::2]))


def alignment(cuda: Any) -> None:
    k, _ = line(cuda)
    repeat(k[1, 32], cuda.array(F4, data=((1 << 41) + 2, False)))


def limits(cuda: Any) -> None:
    k, array = line(cuda)
    repeat(k[1, 1024, None, 1 << 30], array)


def unloaded(cuda: Any) -> None:
    k, array = line(cuda)
    run = k[1, 32]
    run(array)
    k.images.unload()
    run(array)


def captured(cuda: Any) -> None:
    k, _ = line(cuda)
    cuda.set(capturing="77")
    repeat(k[1, 32, 77], cuda.array(F4, stream=78))


def order(cuda: Any) -> None:
    k, _ = line(cuda)
    cuda.set(fail="cuStreamWaitEvent=1")
    repeat(k[1, 32, 77], cuda.array(F4, stream=78))


def layout(cuda: Any) -> None:
    k = cuda.package(numbers(65)).k
    repeat(k[1, 32], *range(65))


def coder(cuda: Any) -> None:
    k = cuda.package(numbers(1, *[{"divisor": divisor} for divisor in (3, 5, 7, 11, 13)])).k
    repeat(k[1, 32], 13)


def count(cuda: Any) -> None:
    described = [
        {"name": f"x{at}", "type": "float *", "kind": "buffer", "dtype": "<f4", "offset": 8 * at} for at in range(33)
    ]
    variant = overload("void()", "k_0", parameters=described, parameter_bytes=8 * 33)
    k = cuda.package({"name": "k", "origin": "m:k", "overloads": [variant]}).k
    repeat(k[1, 32], *[cuda.array(F4) for _ in range(33)])


def changed(cuda: Any) -> None:
    k, array = line(cuda)
    array.interface = {**array.interface, "data": [array.address, False]}  # a list
    k[1, 32, 0, 16](array)


def present(cuda: Any) -> None:
    k, _ = line(cuda)
    cuda.set(capturing="77,78")
    k[1, 32, 77, 16](cuda.array(F4, stream=78))


def room(cuda: Any) -> None:
    k = cuda.package(kernel("k", "void(int32)")).k
    for at, _ in itertools.product(range(258), range(2)):
        k[1, 32](KINDS[at](7))


KINDS = [type(f"Int{at}", (int,), {}) for at in range(258)]
WAYS = {
    "NUMBER": value,
    **{function.__name__.upper(): function for function in (
        configuration, names, depth, types, array, streams, context, key, missed, gpu, values, alignment, limits,
        unloaded, captured, order, layout, coder, count, changed, present, room,
    )},
}  # fmt: skip
"""By reason, a function that meets it; `forked` has a process of its own."""


def test_each_reason_is_in_the_table(extension_module):
    assert [*extension_module.declines()] == REASONS
    assert {*REASONS} == {*WAYS, "FORKED"}


@pytest.mark.usefixtures("current")
@pytest.mark.parametrize("reason", WAYS)
def test_c_declines_for_its_reason(cuda, monkeypatch, extension_module, reason):
    monkeypatch.setattr(fast, "_module", [extension_module])
    before = extension_module.declines()
    WAYS[reason](cuda)
    after = extension_module.declines()
    met = {name for name, number in after.items() if number > before[name]}
    assert reason in met


def test_a_disabled_extension_declines(cuda):
    if fast.why_not() is not None:
        pytest.skip("there is no extension")
    code = """
from aotcuda.runtime.launch import fast
import mypkg.kernels as m
for _ in range(3): m.k[1, 32](1)
extension = fast.in_use()
assert extension.declines()["FORKED"] == 0
extension.disable()
m.k[1, 32](1)
print(extension.declines()["FORKED"])
"""
    manifests.write(cuda.packages, [kernel("k", "void(int32)")])
    assert cuda.run(code) == "1\n"
