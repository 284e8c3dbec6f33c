"""Registration with hatchling, which imports this module in every build: keep it light."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatchling.plugin import hookimpl

if TYPE_CHECKING:
    from hatch_aotcuda.plugin import AotcudaBuildHook


@hookimpl
def hatch_register_build_hook() -> type[AotcudaBuildHook]:
    """The hook's class."""
    from hatch_aotcuda.plugin import AotcudaBuildHook  # noqa: PLC0415

    return AotcudaBuildHook
