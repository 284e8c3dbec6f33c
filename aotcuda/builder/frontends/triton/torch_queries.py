"""Stand in for the GPU queries of PyTorch while a build imports sources, for a GPU of the target.

This module does not import PyTorch. If a source imports `torch.cuda`, the build replaces functions of `torch.cuda`, and
restores them after the import of the source. A query that has no answer for a target raises the error that PyTorch
raises without a GPU.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.gpus import BY_NUMBER, EVERYWHERE, example

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from aotcuda.arch import Target

_MODULE = "torch.cuda"


@contextmanager
def answering(target: Target, record: Callable[..., None], query_error: Callable[[str], Exception]) -> Iterator[None]:
    """Answer queries to PyTorch in this block for a GPU of a target.

    Args:
        target: The target.
        record: A function that records a query, its answer, and other fields of `GpuQuery` as keyword arguments.
        query_error: A function that returns the error for the name of an unknown property.
    """
    answers = _Answers(target, record, query_error)
    originals: dict[str, Any] = {}

    def replace(module: ModuleType) -> None:
        for name in _NAMES:
            originals[name] = getattr(module, name)
            setattr(module, name, getattr(answers, name))

    finder = _Finder(replace)
    if _MODULE in sys.modules:
        replace(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        for name, function in originals.items():
            setattr(sys.modules[_MODULE], name, function)


class _Finder:
    """Call `on_import` with the module `torch.cuda` as soon as it is imported."""

    def __init__(self, on_import: Callable[[ModuleType], None]) -> None:
        self._on_import = on_import

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Implement MetaPathFinder.find_spec."""
        del path, target
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                execute(module)
                self._on_import(module)

            spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]  # only this loader
        return spec


_NAMES = (
    *("is_available", "device_count", "current_device"),
    *("get_device_name", "get_device_capability", "get_device_properties"),
)


class _Answers:
    """Replacements of functions of `torch.cuda`. They ignore the argument `device`."""

    def __init__(self, target: Target, record: Callable[..., None], query_error: Callable[[str], Exception]) -> None:
        self._target = target
        self._record_query = record
        self._query_error = query_error

    def is_available(self) -> bool:
        self._record("is_available()", True, is_presence_only=True)
        return True

    def device_count(self) -> int:
        self._record("device_count()", 1, is_presence_only=True)
        return 1

    def current_device(self) -> int:
        self._record("current_device()", 0, is_presence_only=True)
        return 0

    def get_device_name(self, device: object = None) -> str:
        del device
        name = example(self._target.capability)
        self._record("get_device_name()", name, depends_on_target=True)
        return name

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        del device
        self._record("get_device_capability()", self._target.capability, depends_on_target=True)
        return self._target.capability

    def get_device_properties(self, device: object = None) -> _Properties:
        del device
        row = BY_NUMBER.get(self._target.capability)
        values: dict[str, object] = {
            "major": self._target.major,
            "minor": self._target.minor,
            "warp_size": EVERYWHERE["WARP_SIZE"],
            "regs_per_multiprocessor": EVERYWHERE["MAX_REGISTERS_PER_MULTIPROCESSOR"],
        }
        if row is not None and row.limits is not None:
            values["shared_memory_per_block_optin"] = row.limits.shared_block
        return _Properties(values, self)

    def _record(self, query: str, answer: object, **properties: bool) -> None:
        """Record a query, unless PyTorch itself makes it."""
        caller = sys._getframe(2).f_code.co_filename  # noqa: SLF001 (its documented use)
        torch = getattr(sys.modules.get("torch"), "__file__", None)
        if torch is None or not caller.startswith(f"{Path(torch).parent}/"):
            self._record_query(f"torch.cuda.{query}", answer, **properties)


class _Properties:
    """Stand in for PyTorch's object with the properties of a device."""

    def __init__(self, values: dict[str, object], answers: _Answers) -> None:
        self._values = values
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        answers = self._answers
        if name == "name":
            return answers.get_device_name()
        if name not in self._values:
            raise answers._query_error(name)  # noqa: SLF001 (of this module)
        answers._record(f"get_device_properties().{name}", self._values[name], depends_on_target=True)  # noqa: SLF001 (of this module)
        return self._values[name]
