"""Compare the launches of a moved package on a GPU with its dry record: the share that is not packaged.

    python bench/moved_packages.py --work WORK                      # anywhere: projects with tables from dry records
    pip wheel --no-deps --no-build-isolation WORK/NAME/project      # anywhere with the compilers: a wheel of each
    python bench/moved_on_gpu.py WORK/NAME bench/moved/run_NAME.py  # on the GPU, with the wheel and its libraries
    python bench/moved_on_gpu.py WORK/NAME -m pytest TESTS          # for a package's own tests

The share is the launches that a compiler on the machine served, divided by the launches of the dry record. Aim: at most
2 %.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_LAUNCHES = (
    ("numba.cuda.dispatcher", "_Kernel", "launch", lambda kernel: kernel.py_func),
    ("numba_cuda_mlir.descriptor", "_ArgMarshaller", "_launch", lambda marshaller: marshaller._dispatcher.py_func),
    ("triton.runtime.jit", "JITFunction", "run", lambda function: function.fn),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the folder that moved_packages.py has made")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a program, or `-m` and a module, with arguments")
    arguments = parser.parse_args()
    is_module = arguments.command[:1] == ["-m"]
    sys.argv = arguments.command[is_module:]
    if not sys.argv:
        parser.error("name a program, or -m and a module")
    records = json.loads((arguments.work / "project" / ".aotcuda-record.json").read_text())["functions"]
    recorded = sum(sum(item["launches"].values()) for item in records if item["kind"] == "kernel")
    unpackaged: Counter[str] = Counter()
    for module, owner, method, function in _LAUNCHES:
        if find_spec(module.partition(".")[0]) is not None:
            watch(getattr(import_module(module), owner), method, function, unpackaged)
    try:
        if is_module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        for name, count in unpackaged.most_common():
            print(f"not packaged: {name} ({count})")
        total = unpackaged.total()
        print(f"{total} of {recorded} launches were not packaged: {total / max(recorded, 1):.1%}")


def watch(owner: Any, method: str, function: Any, unpackaged: Counter[str]) -> None:
    """Count the launches that a compiler itself serves."""
    original = getattr(owner, method)

    def launch(self: Any, *args: Any, **named: Any) -> Any:
        python = function(self)
        unpackaged[f"{python.__module__}.{python.__qualname__}"] += not named.get("warmup", False)
        return original(self, *args, **named)

    setattr(owner, method, launch)


if __name__ == "__main__":
    main()
