"""A module of Numba's of which some names are not Numba's where a source is packaged in place."""

from __future__ import annotations

from aotcuda.integrations.in_place.deferred import FromNumba, attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Namespace(FromNumba):
    """A module of Numba's, some names of which are not Numba's here.

    Args:
        package: As for FromNumba, and so are `words` and `make`.
        own: Gives those, by their path below the module.
    """

    def __init__(self, package: str, words: str, make: Callable[[], Any], own: dict[str, Callable[[], Any]]) -> None:
        super().__init__(package, words, make)
        object.__setattr__(self, "_own", own)

    _own: dict[str, Callable[[], Any]]

    def __getattr__(self, name: str) -> Any:
        if name in self._own:
            return self._own[name]()
        below = {path.partition(".")[2]: make for path, make in self._own.items() if path.startswith(f"{name}.")}
        if not below:
            return super().__getattr__(name)
        return Namespace(self._package, f"{self._words}.{name}", lambda: attribute(self.of_numba(), name), below)
