"""Use packs: wheels with compiled Triton kernels of other packages, which need no changes. See docs/packs.md.

A pack's `__init__.py` calls `use(__name__)`. Kernels of the other packages then launch the code of the pack.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False

VARIABLE = "AOTCUDA_PACKS"
"""The environment variable with the packs of `aotcuda run --packs`, separated by commas."""


def use(name: str) -> None:
    """Let kernels of other packages launch the code of a pack, in modules that are imported before or after this call.

    The call has no effect in builds, with `AOTCUDA_IN_PLACE=0`, and in a source tree that was never built.

    Args:
        name: The pack, a package that has been imported.
    """
    from aotcuda.integrations.in_place.triton import adoption  # noqa: PLC0415 (`start` does not need it)

    adoption.use(name)


def start() -> None:
    """Import the packs in `AOTCUDA_PACKS`; warn of packs that cannot be imported when the program imports Triton."""
    import importlib  # noqa: PLC0415 (packs do not need it)

    from aotcuda.common import after_import  # noqa: PLC0415 (as above)

    problems = []
    for name in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 (the program runs without the pack)
            problems.append(f"{VARIABLE}: the pack {name} cannot be imported ({error}), so Triton compiles its kernels")
    if problems:
        after_import.call("triton", lambda _: _warn(problems))


def _warn(problems: list[str]) -> None:
    import warnings  # noqa: PLC0415 (as above)

    from aotcuda.errors import FallbackWarning  # noqa: PLC0415 (as above)

    for problem in problems:
        warnings.warn(problem, FallbackWarning, stacklevel=2)
