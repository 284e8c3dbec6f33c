"""Paths to objects in a module: written by the recorder, read by builds and by the run time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from aotcuda.common import object_path
from aotcuda.tools.record import process

INJECT = Path(process.__file__).parent / "inject"
PATHS = {
    "k": ["k"],
    "Solver.step": ["Solver", "step"],
    "k.fn.fn": ["k", "fn", "fn"],
    "by_size[2]": ["by_size", "[2]"],
    "by_size[-1][0].fn": ["by_size", "[-1]", "[0]", "fn"],
    'by_name["fp8-e4"].run': ["by_name", '["fp8-e4"]', "run"],
    "größe": ["größe"],
}
NO_PATHS = [
    "",
    ".",
    ".k",
    "k.",
    "k..fn",
    "k[",
    "k[]",
    "k[01]",
    "k[x]",
    "k[1.5]",
    "[1]",
    "k.[1]",
    "k[1]fn",
    "k 2",
    "k['x']",
    '"k"',
]


@pytest.mark.parametrize("path", PATHS)
def test_paths_are_split_and_joined(path: str) -> None:
    assert object_path.split(path) == PATHS[path]
    assert object_path.join(PATHS[path]) == path
    assert re.fullmatch(object_path.PATTERN, path)


@pytest.mark.parametrize("text", NO_PATHS)
def test_other_texts_are_no_paths(text: str) -> None:
    with pytest.raises(ValueError, match="is no path"):
        object_path.split(text)
    assert not re.fullmatch(object_path.PATTERN, text)


@pytest.mark.parametrize("path", ["a.b", "table[3]", "table[0][1].c", 'table["x"]', "number[0]"])
def test_missing_objects_are_none(path: str) -> None:
    names = SimpleNamespace(a=1, table={0: [1, 2]}, number=7)
    assert object_path.walk(names, object_path.split(path)) is None


HELD = """
import types, sys
sys.path.insert(0, {inject!r})
import json
from aotcuda_recorder import functions

class Jit:
    def __init__(self, fn):
        self.fn = fn

def k(x):
    pass

def other(x):
    pass

own = Jit(k)
made = [Jit(k) for _ in range(3)]
module = types.ModuleType("holder")
sys.modules["holder"] = module
for each in (k, other):
    each.__module__ = "holder"
module.k = Jit(k)
vars(module)[{name!r}] = {value}
functions.record_packages = lambda: None
path = functions.find_path(k, made[1]).get("path")
print(json.dumps([path, path is not None and functions.at_path(module, path) is not None]))
"""
HOLDERS = {
    "by_size[8]": ("by_size", "{4: made[0], 8: Jit(made[1])}"),
    'by_name["fp8"]': ("by_name", "{'fp8': made[1]}"),
    "all_kernels[1]": ("all_kernels", "made"),
    "pair[1]": ("pair", "(None, made[1])"),
    "direct": ("direct", "made[1]"),
    "k": ("by_object", "{(1, 2): made[1], 'a b': made[1], True: made[1], 2.0: made[1]}"),
}


@pytest.mark.parametrize("path", HOLDERS)
def test_the_recorder_finds_kernels_in_containers(path: str, tmp_path: Path) -> None:
    name, value = HOLDERS[path]
    code = HELD.format(inject=str(INJECT), name=name, value=value)
    environ = {**os.environ, "AOTCUDA_RECORD_FOLDER": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [path, True]
    assert object_path.split(path)
