"""Run setup and teardown callbacks once for each loaded module and context.

Callbacks get the object that the front end's own run time passes: with numba-cuda a `cuda.core.ObjectCode`. This object
owns the loaded images, so kernels read the device globals that callbacks write.
"""

from __future__ import annotations

import atexit

from ...errors import CallbackError, DependencyError, text_of
from .. import driver as drivers
from .. import new_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...manifest import Manifest
    from ..driver import Driver


def open_handle(manifest: Manifest, images: bytes) -> tuple[Any, int]:
    """Load images as the object that callbacks receive; return it and the driver's handle of its library.

    Raises:
        DependencyError: The package of the object's class is not installed.
    """
    try:
        from cuda.core import ObjectCode  # noqa: PLC0415 (only modules with callbacks need it)
    except ImportError as error:
        from ... import registry  # noqa: PLC0415 (only errors come here)

        message = (
            f"{manifest['module']} has callbacks that take a {manifest['handle']}, and that cannot be imported "
            f"({error}); install it, with the library by which it calls the driver: {registry.CUDA_CORE}"
        )
        raise DependencyError(message) from error
    make = ObjectCode.from_cubin if images.startswith(b"\x7fELF") else ObjectCode.from_fatbin
    code = make(images, name=manifest["module"])
    return code, int(code.handle)


class Callbacks:
    """The callbacks of one loaded module.

    Attributes:
        failed: The text of the exception of a setup callback, which may be an interrupt; None if no setup failed. The
            exception itself would keep the frames of the launch, with their arrays.
        handle: The argument of the callbacks.
    """

    __slots__ = ("_contexts", "_driver", "_functions", "_lock", "_running", "_where", "failed", "handle")

    def __init__(self, manifest: Manifest, handle: object, driver: Driver) -> None:
        self.handle: object = handle
        self._where = manifest["module"]
        self._functions = manifest["callbacks"]
        self._driver = driver
        self._lock = new_lock()
        self._contexts: dict[int, None] = {}  # contexts that were set up, in order
        self._running: set[int] = set()  # contexts whose setup is in progress, in the thread with the lock
        self.failed: str | None = None

    def has_seen(self, context: int) -> bool:
        """Return True if the setup callbacks have ended in a context."""
        return context in self._contexts

    def set_up(self) -> None:
        """Run the setup callbacks, unless they have run in the current context; other threads wait.

        Raises:
            CallbackError: A callback raised an error. The caller unloads the images, and the next launch starts again.
        """
        context = self._driver.current_context()
        if context in self._contexts:
            return
        with self._lock:
            # A callback may launch kernels of its module: this call returns, and the launch continues.
            if context in self._contexts or context in self._running:
                return
            if self.failed is not None:  # the setup of another thread has failed, and that thread unloads the module
                raise CallbackError(self.failed)
            if not self._contexts:
                atexit.register(self._at_exit)
            self._running.add(context)
            try:
                for callbacks in self._functions:
                    if callbacks["setup"] is not None:
                        self._call(callbacks["setup"], "setup", callbacks["origin"])
                self._contexts[context] = None
            except BaseException as error:
                self.failed = self._text_for_others(error)
                raise
            finally:
                self._running.discard(context)

    def _text_for_others(self, error: BaseException) -> str:
        """Return the text of the error for threads that wait for the setup."""
        if isinstance(error, CallbackError):
            return str(error)
        return f"setting up {self._where} was ended by a {type(error).__name__} in another thread"

    def release(self) -> None:
        """Release the object that owns the images."""
        self.handle = None

    def tear_down(self) -> None:
        """Run the teardown callbacks in every context that was set up.

        Raises:
            CallbackError: A callback raised an error; the others have run.
        """
        atexit.unregister(self._at_exit)
        failures: list[CallbackError] = []
        with self._lock:
            contexts, self._contexts = list(self._contexts), {}
            for context in contexts:
                self._driver.call_in(context, lambda: self._tear_down_here(failures))
        if failures:
            raise failures[0]

    def _tear_down_here(self, failures: list[CallbackError]) -> None:
        for callbacks in self._functions:
            if callbacks["teardown"] is not None:
                try:
                    self._call(callbacks["teardown"], "teardown", callbacks["origin"])
                except CallbackError as error:
                    failures.append(error)

    def _at_exit(self) -> None:
        if not drivers.forked:  # the parent tears down
            self.tear_down()

    def _call(self, name: str, kind: str, origin: str) -> None:
        try:
            find(name)(self.handle)
        except Exception as error:
            raised = f"{type(error).__name__}: {text_of(error)}"
            message = f"the {kind} callback {name} of {origin} in {self._where} raised {raised}"
            raise CallbackError(message) from error


def find(name: str) -> Callable[[object], object]:
    """Return the function named `mypkg._hooks:upload`."""
    module_name, _, path = name.partition(":")
    item: Any = __import__(module_name, fromlist=["_"])
    for part in path.split("."):
        item = getattr(item, part)
    function: Callable[[object], object] = item
    return function
