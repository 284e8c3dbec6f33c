"""Test a package with packaged kernels: pytest marks, and a check of the launches.

For example::

    from aotcuda import testing

    @testing.needs_gpu
    def test_speed(): ...

    @testing.needs_packaged("mypkg.solver")
    def test_nothing_is_compiled():
        with testing.only_packaged():
            mypkg.solve(...)

The first use of a mark queries the driver. With `NUMBA_ENABLE_CUDASIM=1` kernels run in Numba's simulator, and tests
that need a GPU are skipped.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec

from aotcuda.errors import AotcudaError, ConfigError
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.jit import fallback
from aotcuda.runtime.module import Module, is_simulated, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    needs_gpu: Any
    needs_gpu_or_simulator: Any

__all__ = [
    "has_gpu",
    "is_packaged",
    "is_simulated",
    "needs_gpu",
    "needs_gpu_or_simulator",
    "needs_packaged",
    "only_packaged",
    "stand_in",
]

_COMPILERS = ("numba", "numba_cuda_mlir", "triton")
"""Compilers that a module which is not packaged imports."""

STAND_INS = ("cupy", "cupyx")
"""Libraries with a stand-in in this package that programs import by name."""

# By the module of a front end's launches: the class and the method that each of its launches calls, and a function that
# returns the object's Python function.
_LAUNCHES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "numba.cuda.dispatcher": ("_Kernel", "launch", lambda kernel: kernel.py_func),
    "numba_cuda_mlir.descriptor": ("_ArgMarshaller", "_launch", lambda marshaller: marshaller._dispatcher.py_func),  # noqa: SLF001
}


def stand_in(name: str) -> Any:
    """Import a stand-in under the name of a missing library that needs a GPU.

    A conftest.py may call it. Builds and `aotcuda record --dry` need no call.

    Args:
        name: `cupy` or `cupyx`.

    Returns:
        The module, which is also in `sys.modules`.

    Raises:
        ConfigError: There is no stand-in for the library.
        ImportError: NumPy is missing, or for `cupyx` there is neither CuPy nor its stand-in.
    """
    from importlib.machinery import PathFinder  # noqa: PLC0415 (only this function needs it)
    from importlib.util import module_from_spec  # noqa: PLC0415

    spec = PathFinder.find_spec(name, [os.path.dirname(__file__)]) if name in STAND_INS else None  # noqa: PTH120
    if spec is None or spec.loader is None:
        message = f"{name}: there is no stand-in for this library; there are {' and '.join(STAND_INS)}"
        raise ConfigError(message)
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # as in an import that fails
        raise
    return module


def has_gpu() -> bool:
    """Return True if a GPU and its driver work, and Numba's simulator is off."""
    if is_simulated():
        return False
    try:
        drivers.get()
    except AotcudaError:
        return False
    return True


def is_packaged(module: str) -> bool:
    """Return True if launches of a module's kernels take a packaged image on this machine.

    Args:
        module: The module's name; the function imports it.

    Raises:
        ImportError: The module cannot be imported for another reason than a missing build or a missing compiler.
    """
    return _skip_reason(module) is None


def needs_packaged(module: str) -> Any:
    """Return a mark that skips tests, with the reason, if a module's kernels are not packaged for this machine.

    Args:
        module: The module's name; the function imports it.

    Raises:
        ImportError: The module cannot be imported for another reason than a missing build or a missing compiler.
    """
    import pytest  # noqa: PLC0415 (only tests have it)

    reason = _skip_reason(module)
    return pytest.mark.skipif(reason is not None, reason=reason or "")


@contextmanager
def only_packaged() -> Iterator[None]:
    """Check that the block launches only packaged code, and no code of the JIT fallback or of Numba.

    It first unloads the imported packaged modules, so code that was compiled for them earlier is found, too.

    Raises:
        ConfigError: Kernels run in Numba's simulator, which launches no packaged code.
        AssertionError: Other code was launched; the message lists it.
    """
    if is_simulated():
        message = "NUMBA_ENABLE_CUDASIM is set, and Numba's simulator launches nothing that is packaged; unset it"
        raise ConfigError(message)
    for module in list(sys.modules.values()):
        packaged = vars(module).get("__aotcuda__") if hasattr(module, "__dict__") else None
        if isinstance(packaged, Module):
            packaged.unload()
    launches: dict[str, None] = {}
    with ExitStack() as stack:
        fallback.observers.append(launches.setdefault)
        stack.callback(fallback.observers.remove, launches.setdefault)
        for name, (owner, method, function) in _LAUNCHES.items():
            if find_spec(name.partition(".")[0]) is not None:
                _watch(stack, getattr(import_module(name), owner), method, function, launches)
        yield
    if launches:
        lines = "\n  ".join(launches)
        message = f"code that is not packaged was launched:\n  {lines}"
        raise AssertionError(message)


def _watch(
    stack: ExitStack, owner: Any, method: str, function: Callable[[Any], Any], launches: dict[str, None]
) -> None:
    """Record the compiler's own launches until the stack is closed."""
    original = getattr(owner, method)

    def launch(self: Any, *args: Any, **options: Any) -> Any:
        python = function(self)
        launches.setdefault(f"{python.__module__}.{python.__qualname__} was compiled by {type(self).__module__}")
        return original(self, *args, **options)

    setattr(owner, method, launch)
    stack.callback(setattr, owner, method, original)


def _skip_reason(module: str) -> str | None:
    """Return the reason why a module's kernels are not packaged for this machine, or None."""
    if is_simulated():
        return "Numba's simulator launches nothing that is packaged"
    try:
        packaged = load(module)
        choices = list(packaged.chosen.values())
    except AotcudaError as error:
        return f"{error}".partition("\n")[0]
    except ModuleNotFoundError as error:
        if error.name not in (module, *_COMPILERS):
            raise
        return f"{error}".partition("\n")[0]
    missing = [choice for choice in choices if choice.arch is None]
    return f"{missing[0]}" if len(missing) == len(choices) else None


def __getattr__(name: str) -> object:
    if name not in ("needs_gpu", "needs_gpu_or_simulator"):
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message, name=name)
    import pytest  # noqa: PLC0415 (only tests have it)

    can_run = has_gpu() or (name == "needs_gpu_or_simulator" and is_simulated())
    reason = "this needs a GPU" if name == "needs_gpu" else "this needs a GPU, or NUMBA_ENABLE_CUDASIM=1"
    mark: object = pytest.mark.skipif(not can_run, reason=reason)
    return mark
