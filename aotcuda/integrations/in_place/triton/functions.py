"""Subclasses of Triton's `JITFunction`, `Autotuner` and `Heuristics` for kernels that are packaged in place.

Triton's decorators make the objects, and `adopt` sets their class. So an object of a package's own subclass of
`Autotuner` is adopted too, by a subclass of both. Without a packaged kernel, each method is Triton's.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from itertools import pairwise

from aotcuda.common.heuristics import question
from aotcuda.errors import LaunchError, MissingVariantError
from aotcuda.integrations.in_place import sources
from aotcuda.integrations.in_place.triton import bases, private_parts
from aotcuda.runtime import fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from aotcuda.integrations.in_place.triton.kernel import PlacedKernel
    from aotcuda.integrations.in_place.triton.tuning import Table

_runtime: Any = bases.runtime

_now = threading.local()
"""`launch`: the autotuner whose launch is under way in this thread, and its arguments by name."""

_DEEPEST = 32
"""The most decorators around one function: an object may be its own `fn`."""

_combined: dict[type, type] = {}  # by a class of a package, the subclass of it


class JITFunction(bases.JITFunction):  # type: ignore[misc]  # it has no types
    """A kernel whose launches take packaged code, and Triton's where there is none for them."""

    _packaged: PlacedKernel | None
    _literals: dict[str, tuple[str, bool]]
    _is_found = False
    _pack: object = None
    """Of a kernel that a pack serves: what the pack has of it."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch the kernel, or compile it for a `warmup`, as Triton's method does."""
        launcher = None if warmup else self._launcher(grid)
        if launcher is None:
            return super().run(*args, grid=grid, warmup=warmup, **kwargs)
        return launcher(*args, **kwargs)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Return what launches the kernel with a grid."""
        return self._launcher(grid) or super().__getitem__(grid)  # type: ignore[no-any-return]

    def _launcher(self, grid: Any) -> Any:
        """Return what launches the packaged kernel with a grid; None where Triton's launch does what that cannot."""
        kernel = self.ready()
        if kernel is None:
            return None
        try:
            launcher = kernel[grid]
        except LaunchError:  # Triton says what is wrong with the grid
            return None
        return functools.partial(self._launch_directly, kernel, grid, launcher) if self._literals else launcher

    def _launch_directly(self, kernel: PlacedKernel, grid: Any, launcher: Any, *args: Any, **named: Any) -> Any:
        """Launch the kernel without its heuristics, of which the packaged kernel would compute the values again."""
        given = {**dict(zip(self.arg_names, args, strict=False)), **named}
        if len(given) == len(args) + len(named) and all(
            name in given and argument in given and given[name] is ((given[argument] is None) is answer)
            for name, (argument, answer) in self._literals.items()
        ):
            return launcher(**given)
        problem = f"{kernel} was not given {' and '.join(self._literals)} as its heuristics compute them"
        kernel.allow_miss(MissingVariantError(problem))
        return self.run_by_triton(grid, args, named)

    def run_by_triton(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch what Triton compiles."""
        return super().run(*args, grid=grid, warmup=False, **kwargs)

    def ready(self) -> PlacedKernel | None:
        """Return the packaged kernel; None where Triton's own launch does what this one cannot."""
        if (
            _runtime.launch_enter_hook.calls
            or _runtime.launch_exit_hook.calls
            or _runtime.debug
            or _runtime.add_stages_inspection_hook is not None
            or self.pre_run_hooks
            or self.debug
        ):
            return None
        return self._packaged if self._is_found else self.packaged()

    def packaged(self) -> PlacedKernel | None:
        """Return the packaged kernel, or None; looked up once."""
        if not self._is_found:
            from aotcuda.integrations.in_place.triton.find import find  # noqa: PLC0415 (not before a launch)

            self._packaged = None if _is_changed() else find(self)
            self._literals = self._packaged.literals() if self._packaged is not None else {}
            self._is_found = True
        return self._packaged

    def serve(self, pack: object) -> None:
        """Look for the kernel in packs; what was found before is looked up again."""
        self._pack, self._is_found = pack, False

    def _unsafe_update_src(self, new_src: str) -> None:
        """Replace the source, as Triton's method does: nothing is packaged for it."""
        self._packaged, self._is_found = None, True
        super()._unsafe_update_src(new_src)


def _get_item(self: Any, grid: Any) -> Callable[..., Any]:
    """Return what launches the kernel with a grid."""
    launcher = _launcher(self, grid) if type(self).run is _run else None
    return launcher or self.triton.__getitem__(self, grid)  # type: ignore[no-any-return]


def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Launch the kernel, as Triton's method does."""
    if kwargs.get("warmup") is False and "grid" in kwargs:
        launcher = _launcher(self, kwargs["grid"])
        if launcher is not None:
            del kwargs["grid"], kwargs["warmup"]
            return launcher(*args, **kwargs)
    return self.run_by_triton(*args, **kwargs)


def _launcher(wrapper: Any, grid: Any) -> Any:
    """Return what launches the kernel in a wrapper by the fast path, with a grid; None if that does not."""
    if _is_traced():
        return None
    path = wrapper.path
    if path is None:
        path = wrapper.path = _path(wrapper)
    if not path:
        return None
    function, is_direct, layered, pairs = path
    for outer, inner in pairs:
        if outer.fn is not inner:
            wrapper.path = None
            return _launcher(wrapper, grid)
    kernel = function.ready()
    if kernel is None:
        return None
    try:
        launcher = kernel[grid] if is_direct else None
    except LaunchError:  # Triton says what is wrong with the grid
        return None
    return launcher if layered is None else layered.with_grid(launcher, grid)


def _path(wrapper: Any) -> tuple[()] | tuple[JITFunction, bool, Any, tuple[tuple[Any, Any], ...]]:
    """Return the way of launches from a wrapper to the packaged kernel; nothing where launches are Triton's.

    That is the kernel; if the innermost layer is around the kernel itself, or around an object to which a package gave
    a `run` of its own; and the fast path of the layers. There is none where the packaged kernel itself finds the values
    of all heuristics, but pairs of a layer and what it is around.
    """
    function = _innermost(wrapper)
    kernel = function.packaged() if function is not None else None
    if function is None or kernel is None:
        return ()
    layers = [wrapper, wrapper.fn]
    while isinstance(layers[-1], Autotuner | Heuristics) and type(layers[-1]).run is _run:
        layers.append(layers[-1].fn)
    is_direct, literals = layers[-1] is function, kernel.literals()
    values: dict[str, Any] = {}
    for layer in layers[:-1]:
        values |= layer.values if isinstance(layer, Heuristics) else {}  # the innermost one has the last word
    # One function may have several wrappers, and a package's own may be around this one.
    others = [(name, *each) for name, each in literals.items() if question(values.get(name)) != each]
    is_literal = values.keys() == literals.keys() and not others
    if is_direct and is_literal and all(isinstance(each, Heuristics) for each in layers[:-1]):
        return function, True, None, tuple(pairwise(layers))
    if bases.is_installed and not private_parts.are_wrappers_ordinary():
        return ()
    kinds = b"".join([layer.kind for layer in layers[:-1]])
    layered = fast.layered((*layers,), kinds, Choices, bases.triton.Config, (*others,))
    return () if layered is None else (function, is_direct, layered, ())


def _state(self: Any) -> dict[str, Any]:
    """Return what a copy has: the way of launches is its own."""
    return {name: value for name, value in vars(self).items() if name != "path"}


class Autotuner(bases.Autotuner):  # type: ignore[misc]  # it has no types
    """An autotuner around a packaged kernel; it takes a config from the package's tables, and times none."""

    triton: Any = bases.Autotuner
    kind = b"t"
    path: tuple[Any, ...] | None = None
    cache: Choices

    __getitem__ = _get_item
    __getstate__ = _state
    run = _run

    def run_by_triton(self, *args: Any, **kwargs: Any) -> Any:
        """Launch the kernel with the config for the arguments, by Triton's own method."""
        choices = self.cache
        if type(choices) is not Choices:
            choices = self.cache = Choices(choices)
        before = getattr(_now, "launch", None)
        _now.launch = self, kwargs
        try:
            return self.triton.run(self, *args, **kwargs)
        finally:
            _now.launch = before


class Choices(dict[object, object]):
    """The `cache` of an autotuner: configs by key. While it launches, tables have the keys that were never timed.

    Between launches it is a dict like any other. Copies of an autotuner share it, as in Triton.
    """

    _table: Table | None = None
    _is_read = False

    def __contains__(self, key: object) -> bool:
        if super().__contains__(key):
            return True
        launch = getattr(_now, "launch", None)
        if launch is None or launch[0].cache is not self:
            return False
        if not self._is_read:
            self._read(launch[0])
        config = self._table.choose(launch[0], key, launch[1]) if self._table is not None else None
        if config is None:
            return False
        self[key] = config
        return True

    def _read(self, tuner: Autotuner) -> None:
        from aotcuda.integrations.in_place.triton import tuning  # noqa: PLC0415 (not before a launch)

        function = _innermost(tuner)
        kernel = function.packaged() if function is not None else None
        self._table = tuning.table(kernel) if kernel is not None else None
        self._is_read = True


class Heuristics(bases.Heuristics):  # type: ignore[misc]  # it has no types
    """Heuristics around a packaged kernel. If all only test arguments for None, the kernel's launch computes them."""

    triton: Any = bases.Heuristics
    kind = b"h"
    path: tuple[Any, ...] | None = None

    __getitem__ = _get_item
    __getstate__ = _state
    run = _run

    def run_by_triton(self, *args: Any, **kwargs: Any) -> Any:
        """Launch the kernel by Triton's own method."""
        return self.triton.run(self, *args, **kwargs)


def adopt(item: Any) -> Any:
    """Make a kernel of Triton's launch packaged code, if its module was packaged; return it.

    Kernels of the interpreter, and other kinds of kernels, stay as they are.
    """
    is_of_package = type(item) is bases.JITFunction and sources.is_packaged(item.fn.__globals__)
    if is_of_package and _is_complete("JITFunction", item):
        item.__class__ = JITFunction
    return item


def adopt_existing(item: Any) -> list[Any]:
    """Make a kernel of Triton's, and all autotuners and heuristics around it, launch packaged code.

    Return these objects, the outermost first and the kernel last; an empty list for another object.

    Args:
        item: The outermost object. Its identity, and that of all below it, stays.
    """
    layers = [*layers_of(item)]
    if not layers or type(layers[-1]) not in (bases.JITFunction, JITFunction):
        return []
    *wrappers, function = layers
    if not _is_complete("JITFunction", function):
        return []
    function.__class__ = JITFunction
    for wrapper in wrappers:
        for original, kind in ((bases.Autotuner, Autotuner), (bases.Heuristics, Heuristics)):
            if isinstance(wrapper, original):
                _adopt_wrapper(wrapper, kind)
                wrapper.path = None
    return layers


def layers_of(item: Any) -> Iterator[Any]:
    """Yield the objects of decorators around a kernel, the outermost first, and the kernel."""
    for _ in range(_DEEPEST):
        if item is not None:
            yield item
        if item is None or isinstance(item, bases.JITFunction):
            return
        item = getattr(item, "fn", None)


@functools.cache
def adopt_wrappers() -> None:
    """Adopt each autotuner and heuristics object that is made around a packaged kernel from now on.

    Packages make them by Triton's decorators, by a replacement of these, or by a subclass of their own.
    """
    for original, kind in ((bases.Autotuner, Autotuner), (bases.Heuristics, Heuristics)):
        original.__init__ = _adopting(original.__init__, kind)


def _adopting(initialize: Any, kind: type) -> Callable[..., None]:
    @functools.wraps(initialize)  # PyTorch reads its parameters
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 (it is one)
        initialize(self, *args, **kwargs)
        if _innermost(self) is not None:
            _adopt_wrapper(self, kind)

    return __init__


def _adopt_wrapper(wrapper: Any, kind: type) -> None:
    if not isinstance(wrapper, kind) and _is_complete(kind.__name__, wrapper):
        wrapper.__class__ = _subclass(type(wrapper), kind)
        if isinstance(wrapper, Autotuner):
            wrapper.cache = Choices(wrapper.cache)


def _subclass(own: type, kind: type) -> type:
    """Return a subclass of an object's own class and of ours, which is ours unless a package has made its own."""
    if own in kind.__mro__:
        return kind
    if own not in _combined:
        names = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}
        _combined[own] = type(own.__name__, (own, kind), names)
    return _combined[own]


def _innermost(item: Any) -> JITFunction | None:
    """Return the packaged kernel that autotuners and heuristics are around; None if it is another one."""
    while item is not None and not isinstance(item, bases.JITFunction):
        item = getattr(item, "fn", None)
    return item if isinstance(item, JITFunction) else None


def _is_complete(kind: str, item: object) -> bool:
    return private_parts.has_attributes(kind, item)


def _is_changed() -> bool:
    """Return True if Triton would compile other code here than in the build."""
    if not bases.is_installed:
        return False
    compilation: Any = bases.triton.knobs.compilation
    return any(map(os.environ.get, private_parts.VARIABLES)) or bool(compilation.instrumentation_mode)


def _is_traced() -> bool:
    """Return True if PyTorch's compiler traces the call; it follows heuristics of Triton's own."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()
