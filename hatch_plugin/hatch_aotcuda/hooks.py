"""Registration with hatchling, which imports this module in every build: keep it light."""

from __future__ import annotations

from hatchling.plugin import hookimpl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hatch_aotcuda.plugin import AotcudaBuildHook


@hookimpl
def hatch_register_build_hook() -> type[AotcudaBuildHook]:
    """The hook's class."""
    from hatch_aotcuda.plugin import AotcudaBuildHook

    return AotcudaBuildHook
