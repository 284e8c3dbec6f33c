"""What sources ask of a GPU while a build imports them, and a build has none: the answers, in the user's terms."""

from __future__ import annotations

from typing import Any

_LATER = "do it in a function that is called later"
MISSING = f"this needs a GPU, and a build has none; {_LATER}"


def refuse_driver(driver: Any, error: type[Exception]) -> None:
    """Have the class `driver` say `MISSING` where it would tell, by an `error` too, which library cannot be loaded."""
    original = driver.__getattr__

    def ask(self: Any, name: str) -> Any:
        try:
            return original(self, name)
        except error:
            raise error(MISSING) from None

    driver.__getattr__ = ask


def refuse_launches(*calls: tuple[type, str, str]) -> None:
    """Refuse launches, by methods that are given with their class and with the attribute that holds the kernel."""
    for owner, method, attribute in calls:

        def launch(self: Any, *_: Any, _attribute: str = attribute, **__: Any) -> Any:
            kernel = getattr(self, _attribute) if _attribute else self
            name = getattr(getattr(kernel, "py_func", None), "__qualname__", "this")
            message = f"{name} is a kernel; launching it needs a GPU, and a build has none; {_LATER}"
            raise RuntimeError(message)

        setattr(owner, method, launch)
