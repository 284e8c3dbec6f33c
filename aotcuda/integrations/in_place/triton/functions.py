"""Subclasses of Triton's `JITFunction` and `Autotuner` for kernels that are packaged in place.

Triton's decorators make the objects, and `adopt` sets their class. An object of a package's own subclass of
`Autotuner` gets a subclass of both classes. Heuristics stay Triton's objects. Without a packaged kernel, each method is
Triton's.
"""

from __future__ import annotations

import functools
import os
import threading

from aotcuda.errors import LaunchError
from aotcuda.integrations.in_place import sources
from aotcuda.integrations.in_place.triton import bases, private_parts

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
            return kernel[grid]
        except LaunchError:  # Triton's error names the problem of the grid
            return None

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
            self._is_found = True
        return self._packaged

    def serve(self, pack: object) -> None:
        """Serve the kernel from packs: the next launch looks for packaged code again."""
        self._pack, self._is_found = pack, False

    def _unsafe_update_src(self, new_src: str) -> None:
        """Replace the source, as Triton's method does; the new source has no packaged code."""
        self._packaged, self._is_found = None, True
        super()._unsafe_update_src(new_src)


class Autotuner(bases.Autotuner):  # type: ignore[misc]  # Triton has no types
    """An autotuner around a packaged kernel, which chooses configs from the package's tables."""

    cache: Choices

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch the kernel with the config for the arguments, by Triton's own method."""
        choices = self.cache
        if type(choices) is not Choices:
            choices = self.cache = Choices(choices)
        before = getattr(_now, "launch", None)
        _now.launch = self, kwargs
        try:
            return super().run(*args, **kwargs)
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


def adopt(item: Any) -> Any:
    """Make a kernel of Triton's launch packaged code, if its module was packaged; return it.

    Kernels of the interpreter and kernels of other classes are not changed.
    """
    is_of_package = type(item) is bases.JITFunction and sources.is_packaged(item.fn.__globals__)
    if is_of_package and _is_complete("JITFunction", item):
        item.__class__ = JITFunction
    return item


def adopt_existing(item: Any) -> list[Any]:
    """Make a kernel of Triton's launch packaged code, and all autotuners around it choose configs from tables.

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
        if isinstance(wrapper, bases.Autotuner):
            _adopt_autotuner(wrapper)
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
def adopt_autotuners() -> None:
    """Adopt each autotuner that is made around a packaged kernel later.

    Packages make them by Triton's decorator, by replacements of the decorator, or by subclasses.
    """
    initialize = bases.Autotuner.__init__

    @functools.wraps(initialize)  # PyTorch reads its parameters
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 (it replaces `__init__`)
        initialize(self, *args, **kwargs)
        if _innermost(self) is not None:
            _adopt_autotuner(self)

    bases.Autotuner.__init__ = __init__


def _adopt_autotuner(tuner: Any) -> None:
    if not isinstance(tuner, Autotuner) and _is_complete("Autotuner", tuner):
        tuner.__class__ = _subclass(type(tuner))
        tuner.cache = Choices(tuner.cache)


def _subclass(original: type) -> type:
    """Return our class for an object of Triton's class, or a subclass of both for a class of a package."""
    if original in Autotuner.__mro__:
        return Autotuner
    if original not in _combined:
        names = {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
        _combined[original] = type(original.__name__, (original, Autotuner), names)
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
