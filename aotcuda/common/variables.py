"""List the environment variables that have a fixed set of values, and check their values."""

from __future__ import annotations

import os

from ..errors import ConfigError

_SWITCH = ("0", "1")

VALUES = {
    "AOTCUDA_BUILD_CACHE_ACCESS": ("read", "read-write"),
    "AOTCUDA_DEBUG": _SWITCH,
    "AOTCUDA_EXTENSION": _SWITCH,
    "AOTCUDA_FALLBACK": ("jit", "error"),
    "AOTCUDA_FROM_CACHE_ONLY": _SWITCH,
    "AOTCUDA_GENERAL": _SWITCH,
    "AOTCUDA_HOST_ARRAYS": ("copy",),
    "AOTCUDA_IN_PLACE": _SWITCH,
    "AOTCUDA_LOAD": ("import", "first-use"),
    "AOTCUDA_PROGRESS": ("0", "lines"),
    "AOTCUDA_RUNTIME": ("bundled", "installed"),
    "AOTCUDA_SYNCHRONIZE": _SWITCH,
    "AOTCUDA_TUNE": ("0", "1", "first"),
    "AOTCUDA_TUNING": ("exact",),
    "AOTCUDA_UNTESTED": _SWITCH,
    "AOTCUDA_VERBOSE": _SWITCH,
}
"""The values of each variable; an empty value counts as not set."""


OWN = (
    *VALUES,
    *("AOTCUDA_ARCH", "AOTCUDA_BUILDING", "AOTCUDA_BUILD_CACHE", "AOTCUDA_CACHE_DIR", "AOTCUDA_CACHE_KEY"),
    *("AOTCUDA_CACHE_SIZE", "AOTCUDA_EXECUTOR", "AOTCUDA_PACKS"),
)
"""aotcuda's own variables, to find misspelt ones."""

_PREFIX = "AOTCUDA_"


def check(*names: str) -> None:
    """Check the values of variables, of all in `VALUES` by default.

    Raises:
        ConfigError: A variable has another value.
    """
    for name in names or VALUES:
        message = problem(name, os.environ.get(name, ""))
        if message is not None:
            raise ConfigError(message)


def misspelt() -> list[str]:
    """Return a line for each variable of the environment whose name resembles a variable of aotcuda's."""
    remarks = ((name, remark(name)) for name in sorted(os.environ) if "AOT" in name.upper())
    return [f"the environment variable {name} has no effect: {text}" for name, text in remarks if "did you" in text]


def remark(name: str) -> str:
    """Return a remark on a name that nothing reads although it begins like aotcuda's variables; else an empty text."""
    plain = name.upper().replace("AOT_CUDA", "AOTCUDA").replace("-", "_")
    if name in OWN or not plain.startswith(_PREFIX):
        return ""
    from .suggest import nearest  # noqa: PLC0415 (few environments have such a variable)

    near = nearest(plain.removeprefix(_PREFIX), [own.removeprefix(_PREFIX) for own in OWN])
    return f"nothing reads this{f'; did you mean {_PREFIX}{near}?' if near else ''}"


def problem(name: str, value: str) -> str | None:
    """Return the problem of a variable's value, or None."""
    allowed = VALUES.get(name)
    if allowed is None or not value.strip() or value.strip() in allowed:
        return None
    return f"{name} is {value!r}; write {' or '.join(map(repr, allowed))}"
