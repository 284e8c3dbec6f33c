"""Register the hook with hatchling, which imports this module in every build, so it imports little."""

from __future__ import annotations

from hatchling.plugin import hookimpl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hatch_aotcuda.plugin import AotcudaBuildHook


@hookimpl
def hatch_register_build_hook() -> type[AotcudaBuildHook]:
    """Return the hook's class, and report a misspelt name of this hook.

    Hatchling calls this function for each project with a hook of a plugin.
    """
    import sys
    from pathlib import Path

    from aotcuda.common import uninstalled_hook

    if hint := uninstalled_hook.project_fault(str(Path.cwd())):
        print(f"aotcuda: {hint}", file=sys.stderr)
    from hatch_aotcuda.plugin import AotcudaBuildHook

    return AotcudaBuildHook
