"""Subclasses of Triton's `JITFunction` and `Autotuner` for kernels that are packaged in place.

Triton's decorators make the objects, and `adopt` sets their class. An object of a package's own subclass of
`Autotuner` gets a subclass of both classes. Heuristics stay Triton's objects. Without a packaged kernel, each method is
Triton's.
"""

from __future__ import annotations

import functools
import os
import sys
import threading

from ....errors import LaunchError
from .. import sources
from . import bases, private_parts, without_triton

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ....runtime.launch.grid_kernel import Served
    from .kernel import InPlaceKernel
    from .tuning import Table

_runtime: Any = bases.runtime

_now = threading.local()
"""The state of autotuners in this thread.

`launch`: the autotuner that launches a kernel, and the arguments by name. `is_probing`: True while it looks for a
config whose variant is packaged. `is_warming`: True while it warms up, so that it times no configs.
"""

_DEEPEST = 32
"""The most decorators around one function. The limit ends the search for an object that is its own `fn`."""

_LAYERS = ("triton.runtime.autotuner", __name__)
"""The modules with the methods `run` of autotuners and heuristics."""

_combined: dict[type, type] = {}  # the results of `_subclass` for classes of packages


class JITFunction(bases.JITFunction):  # type: ignore[misc]  # Triton has no types
    """A kernel that launches packaged code, or code that Triton compiles if there is no packaged code."""

    _packaged: InPlaceKernel | None
    _is_found = False
    _pack: object = None
    """The entries of packs for an adopted kernel (`pack_index.Served`)."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch the kernel, or warm it up for a `warmup`, as Triton's method does.

        Return the variant, if a program has called this method or that of an autotuner or of heuristics. Launches by
        brackets return None for packaged code, and so do those that an autotuner times.
        """
        if warmup:
            from . import compiled  # noqa: PLC0415 (few programs warm up)

            described = compiled.as_launched(self, args, kwargs)
            variant = compiled.find(self, *described, allows_misses=not is_probing())
            return variant if variant is not None or is_probing() else self._warm_up_by_triton(grid, args, kwargs)
        launcher = self._launcher(grid)
        if launcher is None:
            return super().run(*args, grid=grid, warmup=warmup, **kwargs)
        result = launcher(*args, **kwargs)
        if result is not None or _is_by_triton(sys._getframe(1)):  # noqa: SLF001 (a documented function)
            return result
        from . import compiled  # noqa: PLC0415 (few programs call this method)

        return compiled.find(self, args, kwargs, allows_misses=False)

    def preload(self, specialization_data: str) -> Any:
        """Return the variant that Triton's JIT has described in JSON, as Triton's method does."""
        from . import compiled  # noqa: PLC0415 (few programs preload)

        return compiled.preload(self, specialization_data) or super().preload(specialization_data)

    def _warm_up_by_triton(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().run(*args, grid=grid, warmup=True, **kwargs)

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
            from .find import find  # noqa: PLC0415 (not before a launch)

            self._packaged = None if _is_changed() else find(self)
            self._is_found = True
        return self._packaged

    @property
    def served(self) -> Served | None:
        """Return the numbers of launches by packaged code and by Triton's; None if the kernel is not packaged."""
        kernel = self.packaged()
        return None if kernel is None else kernel.served

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
    nargs: Any

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Warm up the kernel with the recorded config, or with all configs if none was recorded."""
        before = getattr(_now, "is_warming", False)
        _now.is_warming = True
        try:
            return [self.run(*args, warmup=True, **kwargs)]
        except _NotRecordedError:
            self.nargs = None
        finally:
            _now.is_warming = before
        return super().warmup(*args, **kwargs)  # type: ignore[no-any-return]

    def _bench(self, *args: Any, **kwargs: Any) -> Any:
        if getattr(_now, "is_warming", False):
            raise _NotRecordedError
        return super()._bench(*args, **kwargs)

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
        """Return the configs to time: with `AOTCUDA_TUNE=1` those whose variants are packaged, if there are any.

        A build leaves out a config that no GPU of the target can launch, and Triton would compile it only to refuse it.
        """
        configs: list[Any] = super().prune_configs(kwargs)
        is_packaged = os.environ.get("AOTCUDA_TUNE") == "1" and not getattr(_now, "is_warming", False)
        return [*self._packaged(configs, kwargs)] or configs if is_packaged else configs

    def first_packaged(self, kwargs: dict[str, Any]) -> Any:
        """Return the first pruned config whose variant is packaged and loads, or None.

        Args:
            kwargs: The named arguments of the launch in progress.
        """
        return next(self._packaged(self.prune_configs(kwargs), kwargs), None)

    def _packaged(self, configs: list[Any], kwargs: dict[str, Any]) -> Iterator[Any]:
        """Yield the configs whose variants are packaged and load."""
        for config in configs:
            if config.pre_hook is not None:  # it may set block shapes of descriptors
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            named = {**kwargs, "warmup": True, **config.all_kwargs()}
            _now.is_probing = True
            try:
                variant = self.fn.run(*self.nargs.values(), **named)
            finally:
                _now.is_probing = False
            if variant is not None and variant.loads():
                yield config

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch the kernel with the config for the arguments, by Triton's own method."""
        choices = _use_choices(self)
        if kwargs.get("warmup") and (function := _innermost(self)) is not None:
            args, kwargs = bases.with_tensors(function, args, kwargs)  # so that the key is that of launches
        before = getattr(_now, "launch", None)
        _now.launch = self, kwargs
        try:
            result = super().run(*args, **kwargs)
        finally:
            _now.launch = before
        if choices is not None and choices.timed:
            choices.store_timings(self)
        return result


class _NotRecordedError(Exception):
    """A warm-up found no recorded config."""


def _is_by_triton(frame: Any) -> bool:
    """Return True if Triton has called `JITFunction.run`, and not a program through autotuners and heuristics.

    Args:
        frame: The frame that has called the method.
    """
    while frame is not None and frame.f_globals.get("__name__") in _LAYERS:
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__")) if frame is not None else ""
    return name.startswith("triton.") or name == without_triton.__name__


def is_probing() -> bool:
    """Return True while an autotuner looks for a packaged variant; nothing may be compiled then."""
    return getattr(_now, "is_probing", False)


class Choices(dict[object, object]):
    """The `cache` of an autotuner: configs by key. During its launches, keys that were never timed come from tables.

    Between launches it is an ordinary dict. Copies of an autotuner share it, as in Triton.

    Attributes:
        timed: The keys whose configs the autotuner has timed since `store_timings`; only with `AOTCUDA_TUNE=1`.
    """

    timed: tuple[object, ...] = ()
    _table: Table | None = None
    _kernel: InPlaceKernel | None = None
    _is_read = False

    def __setitem__(self, key: object, config: object) -> None:
        super().__setitem__(key, config)
        if getattr(_now, "launch", None) is not None and os.environ.get("AOTCUDA_TUNE") == "1":
            self.timed = (*self.timed, key)

    def store_timings(self, tuner: Autotuner) -> None:
        """Write what an autotuner has timed to a file that `aotcuda record --merge` reads."""
        from . import tuning  # noqa: PLC0415 (not before a launch)

        keys, self.timed = self.timed, ()
        timings = getattr(tuner, "configs_timings", None)
        if self._kernel is not None and timings:
            tuning.store(self._kernel, tuner, keys[-1], timings)

    def __contains__(self, key: object) -> bool:
        if super().__contains__(key):
            return True
        launch = getattr(_now, "launch", None)
        if launch is None or launch[0].cache is not self:
            return False
        if not self._is_read:
            self._read(launch[0])
        config = self._choose(*launch, key)
        if config is None:
            return False
        super().__setitem__(key, config)
        return True

    def _choose(self, tuner: Autotuner, arguments: dict[str, Any], key: object) -> Any:
        """Return the config for a key; None if the autotuner has to time its configs."""
        way = os.environ.get("AOTCUDA_TUNE")
        if self._kernel is None or way == "1":
            return None
        if way == "first":
            return tuner.first_packaged(arguments)
        return self._table.choose(tuner, key, arguments) if self._table is not None else None

    def _read(self, tuner: Autotuner) -> None:
        from . import tuning  # noqa: PLC0415 (not before a launch)

        function = _innermost(tuner)
        kernel = function.packaged() if function is not None else None
        self._table = tuning.table(kernel) if kernel is not None else None
        self._kernel = kernel
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
        _use_choices(tuner)


def _use_choices(tuner: Any) -> Choices | None:
    """Let the `cache` of an autotuner be a `Choices`, and return it; None if a package has a cache of its own class.

    Such a cache may be a database and no mapping, so it is left alone, and the autotuner times its configs.
    """
    cache = tuner.cache
    if type(cache) is dict:
        cache = tuner.cache = Choices(cache)
    return cache if type(cache) is Choices else None


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
