"""Registration with hatchling, which imports this module in every build: keep it light."""

from __future__ import annotations

from hatchling.plugin import hookimpl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hatch_aotcuda.plugin import AotcudaBuildHook


@hookimpl
def hatch_register_build_hook() -> type[AotcudaBuildHook]:
    """Return the hook's class.

    Hatchling calls it when a project names any hook that is not hatchling's own, so a misspelt name of this hook is
    reported.
    """
    import sys
    from pathlib import Path

    from aotcuda.common import uninstalled_hook

    if hint := uninstalled_hook.project_fault(str(Path.cwd())):
        print(f"aotcuda: {hint}", file=sys.stderr)
    from hatch_aotcuda.plugin import AotcudaBuildHook

    return AotcudaBuildHook
