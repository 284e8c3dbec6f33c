"""Test modules of several images: files with equal names of helpers, variables and kernels, and linked files."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu

EXPECTED = {
    "a": [3, 2, 4, -1, 3, 10, 10],
    "b": [4, 3, 5, -2, 2, 20, 20],
    "c": [14, 7],
    "d": [21],
}
"""The numbers that each kernel writes first; the last number of `a` and `b` counts launches."""

PREPARE = """
import ctypes, json, os, sys, threading
import cppimages.raw as k
from gpu import buffers
module = k.__aotcuda__
def launch(name, stream=0):
    out = buffers.Buffer("f", [0] * 8)
    getattr(k, name)[1, 1, stream](out)
    return out
"""

LAUNCHES = f"""{PREPARE}
buffers.primary_context()
result = dict()
for name in "abcd":
    result[name] = [launch(name).read() for _ in range(4)]
symbols = [module.symbol(f"csrc/{{file}}.cu:x") for file in "ab"]
result["addresses"] = len({{symbol.address for symbol in symbols}})
module.unload()
result["again"] = launch("b").read()
print(json.dumps(result))
"""

THREADS = f"""{PREPARE}
buffers.primary_context()
results = [None] * 8
start = threading.Barrier(8)
def work(number):
    buffers.primary_context()
    start.wait()
    results[number] = launch("ab"[number % 2]).read()
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(results))
"""

UNLOADS = f"""{PREPARE}
buffers.primary_context()
results, errors = [], []
def work(name):
    buffers.primary_context()
    try:
        for _ in range(200):
            results.append([name, launch(name).read()])
    except Exception as error:
        errors.append(repr(error))
threads = [threading.Thread(target=work, args=(name,)) for name in "abab"]
for thread in threads: thread.start()
while any(thread.is_alive() for thread in threads):
    module.unload()
for thread in threads: thread.join()
print(json.dumps([errors, results]))
"""

CAPTURE = f"""{PREPARE}
buffers.primary_context()
module.preload()
stream, graph, executable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
buffers.check(buffers.cuda.cuStreamCreate(ctypes.byref(stream), 1))
outs = [buffers.Buffer("f", [0] * 8) for _ in "abc"]
buffers.check(buffers.cuda.cuStreamBeginCapture_v2(stream, 0))
for name, out in zip("abc", outs):
    getattr(k, name)[1, 1, stream.value](out)
buffers.check(buffers.cuda.cuStreamEndCapture(stream, ctypes.byref(graph)))
before = [out.read() for out in outs]
buffers.check(buffers.cuda.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)))
for _ in range(3):
    buffers.check(buffers.cuda.cuGraphLaunch(executable, stream))
print(json.dumps([before, [out.read() for out in outs]]))
"""

FORK = f"""{PREPARE}
def launched(name):
    buffers.primary_context()
    return launch(name).read()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, json.dumps([launched("a"), launched("b")]).encode()); os._exit(0)
child = json.loads(os.read(read, 4000))
os.wait()
parent = [launched("a")]
out = buffers.Buffer("f", [0] * 8)
if os.fork() == 0:
    try:
        k.b[1, 1](out)
    except Exception as error:
        os.write(write, json.dumps(type(error).__name__).encode())
    os._exit(0)
refused = json.loads(os.read(read, 4000))
os.wait()
print(json.dumps([child, parent + [launched("b")], refused]))
"""


def test_each_file_has_its_own_functions_and_variables(run_clean):
    launched = run_clean(LAUNCHES, "cppimages")
    for name, expected in EXPECTED.items():
        for number, values in enumerate(launched[name]):
            assert values[: len(expected)] == expected
            assert values[7] == (number if name in "ab" else 0)
    assert launched["addresses"] == 2
    assert launched["again"] == [*EXPECTED["b"], 0], "images that are loaded again have new variables"


def test_eight_threads_load_two_images(run_clean):
    results = run_clean(THREADS, "cppimages")
    assert [values[:7] for values in results] == [EXPECTED["ab"[number % 2]] for number in range(8)]
    for name in (0, 1):
        assert sorted(values[7] for values in results[name::2]) == [0, 1, 2, 3], "each image was loaded once"


def test_threads_launch_while_another_unloads(run_clean):
    errors, results = run_clean(UNLOADS, "cppimages")
    assert errors == []
    assert len(results) == 800
    assert all(values[:7] == EXPECTED[name] for name, values in results)


def test_preloaded_images_are_captured(run_clean):
    before, after = run_clean(CAPTURE, "cppimages")
    assert before == [[0] * 8] * 3
    assert [values[:7] for values in after[:2]] == [EXPECTED["a"], EXPECTED["b"]]
    assert [values[7] for values in after[:2]] == [2, 2]
    assert after[2][:2] == EXPECTED["c"]


def test_child_launches_before_its_parent(run_clean):
    child, parent, refused = run_clean(FORK, "cppimages")
    assert [values[:7] for values in child] == [values[:7] for values in parent] == [EXPECTED["a"], EXPECTED["b"]]
    assert refused == "ForkError"
