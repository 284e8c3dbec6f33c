"""Subclasses of Triton's `JITFunction`, `Autotuner` and `Heuristics` for kernels that are packaged in place.

Triton's decorators make the objects, and `adopt` sets their class. An object of a package's own subclass of
`Autotuner` gets a subclass of both classes. Without a packaged kernel, each method is Triton's.
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

    from aotcuda.integrations.in_place.triton.kernel import InPlaceKernel
    from aotcuda.integrations.in_place.triton.tuning import Table

_runtime: Any = bases.runtime

_now = threading.local()
"""`launch`: the autotuner that launches a kernel in this thread, and the arguments by name."""

_DEEPEST = 32
"""The most decorators around one function. The limit ends the search for an object that is its own `fn`."""

_combined: dict[type, type] = {}  # the results of `_subclass` for classes of packages


class JITFunction(bases.JITFunction):  # type: ignore[misc]  # Triton has no types
    """A kernel that launches packaged code, or code that Triton compiles if there is no packaged code."""

    _packaged: InPlaceKernel | None
    _literals: dict[str, tuple[str, bool]]
    _is_found = False
    _pack: object = None
    """The entries of packs for an adopted kernel (`pack_index.Served`)."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch the kernel, or compile it for a `warmup`, as Triton's method does."""
        launcher = None if warmup else self._launcher(grid)
        if launcher is None:
            return super().run(*args, grid=grid, warmup=warmup, **kwargs)
        return launcher(*args, **kwargs)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Return the launcher of the kernel with a grid."""
        return self._launcher(grid) or super().__getitem__(grid)  # type: ignore[no-any-return]

    def _launcher(self, grid: Any) -> Any:
        """Return the launcher of the packaged kernel with a grid; None if only Triton can make this launch."""
        kernel = self.ready()
        if kernel is None:
            return None
        try:
            launcher = kernel[grid]
        except LaunchError:  # Triton's error names the problem of the grid
            return None
        return functools.partial(self._launch_directly, kernel, grid, launcher) if self._literals else launcher

    def _launch_directly(self, kernel: InPlaceKernel, grid: Any, launcher: Any, *args: Any, **named: Any) -> Any:
        """Launch the kernel for a caller that bypassed its heuristics, and gave values for the constants.

        The packaged kernel computes these constants itself, so a launch with other values goes to Triton.
        """
        arguments = {**dict(zip(self.arg_names, args, strict=False)), **named}
        if len(arguments) == len(args) + len(named) and all(
            name in arguments and argument in arguments and arguments[name] is ((arguments[argument] is None) is answer)
            for name, (argument, answer) in self._literals.items()
        ):
            return launcher(**arguments)
        problem = f"{kernel} was not given {' and '.join(self._literals)} as its heuristics compute them"
        kernel.allow_miss(MissingVariantError(problem))
        return self.run_by_triton(grid, args, named)

    def run_by_triton(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch the kernel that Triton compiles."""
        return super().run(*args, grid=grid, warmup=False, **kwargs)

    def ready(self) -> InPlaceKernel | None:
        """Return the packaged kernel; None if only Triton can make the launch, as with hooks or `debug`."""
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

    def packaged(self) -> InPlaceKernel | None:
        """Return the packaged kernel, or None; find it at the first call."""
        if not self._is_found:
            from aotcuda.integrations.in_place.triton.find import find  # noqa: PLC0415 (not before a launch)

            self._packaged = None if _is_changed() else find(self)
            self._literals = self._packaged.literals() if self._packaged is not None else {}
            self._is_found = True
        return self._packaged

    def serve(self, pack: object) -> None:
        """Serve the kernel from packs: the next launch looks for packaged code again."""
        self._pack, self._is_found = pack, False

    def _unsafe_update_src(self, new_src: str) -> None:
        """Replace the source, as Triton's method does; the new source has no packaged code."""
        self._packaged, self._is_found = None, True
        super()._unsafe_update_src(new_src)


def _get_item(self: Any, grid: Any) -> Callable[..., Any]:
    """Return the launcher of the kernel with a grid."""
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
    """Return the fast launcher of the kernel in a wrapper with a grid; None if the fast path cannot launch it."""
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
    except LaunchError:  # Triton's error names the problem of the grid
        return None
    return launcher if layered is None else layered.with_grid(launcher, grid)


def _path(wrapper: Any) -> tuple[()] | tuple[JITFunction, bool, Any, tuple[tuple[Any, Any], ...]]:
    """Return the path of launches from a wrapper to the packaged kernel; an empty tuple if Triton launches.

    The path has four parts: the kernel; True if the innermost layer is around the kernel itself, and not around an
    object with a `run` of a package; the C object for the layers; and pairs of each layer with its inner object. If the
    packaged kernel computes all heuristics itself, the path has the pairs and no C object, else no pairs.
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
        values |= layer.values if isinstance(layer, Heuristics) else {}  # the innermost heuristic wins
    # One function may have several wrappers, each with other heuristics.
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
    """Return the attributes for a copy, without the path of launches."""
    return {name: value for name, value in vars(self).items() if name != "path"}


class Autotuner(bases.Autotuner):  # type: ignore[misc]  # Triton has no types
    """An autotuner around a packaged kernel, which chooses configs from the package's tables."""

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
    """The `cache` of an autotuner: configs by key. During its launches, keys that were never timed come from tables.

    Between launches it is an ordinary dict. Copies of an autotuner share it, as in Triton.
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


class Heuristics(bases.Heuristics):  # type: ignore[misc]  # Triton has no types
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

    Kernels of the interpreter and kernels of other classes are not changed.
    """
    is_of_package = type(item) is bases.JITFunction and sources.is_packaged(item.fn.__globals__)
    if is_of_package and _is_complete("JITFunction", item):
        item.__class__ = JITFunction
    return item


def adopt_existing(item: Any) -> list[Any]:
    """Make a kernel of Triton's, and all autotuners and heuristics around it, launch packaged code.

    Return these objects, the outermost first and the kernel last; an empty list for another object.

    Args:
        item: The outermost object. It and all inner objects keep their identity.
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
    """Adopt each autotuner and heuristics object that is made around a packaged kernel later.

    Packages make them by Triton's decorators, by replacements of the decorators, or by subclasses.
    """
    for original, kind in ((bases.Autotuner, Autotuner), (bases.Heuristics, Heuristics)):
        original.__init__ = _adopting(original.__init__, kind)


def _adopting(initialize: Any, kind: type) -> Callable[..., None]:
    @functools.wraps(initialize)  # PyTorch reads its parameters
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 (it replaces `__init__`)
        initialize(self, *args, **kwargs)
        if _innermost(self) is not None:
            _adopt_wrapper(self, kind)

    return __init__


def _adopt_wrapper(wrapper: Any, kind: type) -> None:
    if not isinstance(wrapper, kind) and _is_complete(kind.__name__, wrapper):
        wrapper.__class__ = _subclass(type(wrapper), kind)
        if isinstance(wrapper, Autotuner):
            wrapper.cache = Choices(wrapper.cache)


def _subclass(original: type, kind: type) -> type:
    """Return our class for an object of Triton's class, or a subclass of both for a class of a package."""
    if original in kind.__mro__:
        return kind
    if original not in _combined:
        names = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
        _combined[original] = type(original.__name__, (original, kind), names)
    return _combined[original]


def _innermost(item: Any) -> JITFunction | None:
    """Return the adopted kernel inside autotuners and heuristics, or None."""
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
    """Return True if PyTorch's compiler traces the call; it can only follow Triton's own heuristics."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()
