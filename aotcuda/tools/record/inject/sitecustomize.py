"""Start the recorder, or import packs, in the Python processes of `aotcuda record` and `aotcuda run`.

Python imports this module at its start, because its folder is the first of PYTHONPATH. The module removes the folder
from `sys.path` and runs the environment's own `sitecustomize`.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start() -> None:
    try:
        import aotcuda_recorder  # noqa: PLC0415 (importable only until this folder leaves sys.path)

        aotcuda_recorder.start()
    except Exception as error:  # noqa: BLE001 (the command must run in any case)
        print(f"aotcuda record: process {os.getpid()} is not recorded: {error!r}", file=sys.stderr)
    if os.environ.get("AOTCUDA_PACKS"):
        try:
            from aotcuda import packs  # noqa: PLC0415 (most processes use no packs)

            packs.start()
        except Exception as error:  # noqa: BLE001 (the command must run in any case)
            print(f"aotcuda run: process {os.getpid()} runs without packs: {error!r}", file=sys.stderr)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]


def _run_next_sitecustomize() -> None:
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start()
_run_next_sitecustomize()
