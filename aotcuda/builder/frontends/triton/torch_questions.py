"""Answer GPU queries of sources to PyTorch during their import for a GPU of the target.

PyTorch is not imported for this purpose. When a source imports `torch.cuda`, functions of this module are replaced, and
restored after the import of the source. Queries without an answer for a target are refused, as PyTorch does without a
GPU.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from aotcuda.gpus import BY_NUMBER, EVERYWHERE, example

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from aotcuda.arch import Target

_MODULE = "torch.cuda"


@contextmanager
def answering(target: Target, note: Callable[..., None], refusal: Callable[[str], Exception]) -> Iterator[None]:
    """Let PyTorch answer in this block as on a GPU of a target.

    Args:
        target: The target.
        note: Records the query, the answer, and `depends` or `mere` as in `Question`.
        refusal: Makes the error for an unknown property, by its name.
    """
    answers = _Answers(target, note, refusal)
    own: dict[str, Any] = {}

    def replace(module: ModuleType) -> None:
        for name in _NAMES:
            own[name] = getattr(module, name)
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
        for name, function in own.items():
            setattr(sys.modules[_MODULE], name, function)


class _Finder:
    """Call a function with PyTorch's module right after its import."""

    def __init__(self, imported: Callable[[ModuleType], None]) -> None:
        self._imported = imported

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, of: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Implement MetaPathFinder.find_spec."""
        del path, of
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                execute(module)
                self._imported(module)

            spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]  # only this loader
        return spec


_NAMES = (
    *("is_available", "device_count", "current_device"),
    *("get_device_name", "get_device_capability", "get_device_properties"),
)


class _Answers:
    """Replacements of functions of `torch.cuda`, which ignore `device`."""

    def __init__(self, target: Target, note: Callable[..., None], refusal: Callable[[str], Exception]) -> None:
        self._target = target
        self._note = note
        self._refusal = refusal

    def is_available(self) -> bool:
        self._record("is_available()", True, mere=True)
        return True

    def device_count(self) -> int:
        self._record("device_count()", 1, mere=True)
        return 1

    def current_device(self) -> int:
        self._record("current_device()", 0, mere=True)
        return 0

    def get_device_name(self, device: object = None) -> str:
        del device
        name = example(self._target.capability)
        self._record("get_device_name()", name, depends=True)
        return name

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        del device
        self._record("get_device_capability()", self._target.capability, depends=True)
        return self._target.capability

    def get_device_properties(self, device: object = None) -> _Properties:
        del device
        row = BY_NUMBER.get(self._target.capability)
        known: dict[str, object] = {
            "major": self._target.major,
            "minor": self._target.minor,
            "warp_size": EVERYWHERE["WARP_SIZE"],
            "regs_per_multiprocessor": EVERYWHERE["MAX_REGISTERS_PER_MULTIPROCESSOR"],
        }
        if row is not None and row.limits is not None:
            known["shared_memory_per_block_optin"] = row.limits.shared_block
        return _Properties(known, self)

    def _record(self, asked: str, answer: object, **kind: bool) -> None:
        """Record a query, unless PyTorch itself makes it."""
        caller = sys._getframe(2).f_code.co_filename  # noqa: SLF001 (its documented use)
        torch = getattr(sys.modules.get("torch"), "__file__", None)
        if torch is None or not caller.startswith(f"{Path(torch).parent}/"):
            self._note(f"torch.cuda.{asked}", answer, **kind)


class _Properties:
    """Stand for PyTorch's properties of a device."""

    def __init__(self, known: dict[str, object], answers: _Answers) -> None:
        self._known = known
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        answers = self._answers
        if name == "name":
            return answers.get_device_name()
        if name not in self._known:
            self._refuse(name)
        answers._record(f"get_device_properties().{name}", self._known[name], depends=True)  # noqa: SLF001 (of this module)
        return self._known[name]

    def _refuse(self, name: str) -> NoReturn:
        raise self._answers._refusal(name)  # noqa: SLF001 (as above)
