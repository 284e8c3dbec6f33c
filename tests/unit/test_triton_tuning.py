"""Autotuners of Triton modules in place choose configs from tables, without timing."""

from __future__ import annotations

import importlib
import json
import sys
from collections import OrderedDict, UserDict

import pytest

from aotcuda import cli
from aotcuda.errors import ConfigError, FallbackWarning
from aotcuda.integrations.in_place.triton import functions, tuning
from aotcuda.runtime.jit import compile as jit_compile
from support import triton_in_place
from support.triton_in_place import record

triton = pytest.importorskip("triton", reason="Triton is not installed (extra triton)")

SOURCE = """
from aotcuda.triton import triton, tl
from triton.runtime.autotuner import Autotuner

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (32, 64, 128, 256)]
pruned, hooks = [], []

class Cached(Autotuner):
    shipped = {}

    def run(self, *args, **kwargs):
        key = (args[1],)
        if key not in self.cache and key in self.shipped:
            self.cache[key] = self.configs[self.shipped[key]]
        return super().run(*args, **kwargs)

def cached(configs, key):
    return lambda fn: Cached(fn, fn.arg_names, configs, key, None, None)

def prune(configs, named, **kwargs):
    pruned.append((sorted(named), sorted(kwargs)))
    return [config for config in configs if config.kwargs["BLOCK"] <= 64]

def timed(call, quantiles):
    call()
    return [1.0, 1.0, 1.0]

@triton.autotune(CONFIGS, key=["n"], do_bench=timed)
@triton.jit
def plain(x, n, BLOCK: tl.constexpr):
    pass

@triton.autotune(CONFIGS, key=["n"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def narrow(x, n, BLOCK: tl.constexpr):
    pass

@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@cached(CONFIGS, key=["n"])
@triton.jit
def own(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    pass

@triton.autotune([triton.Config({"BLOCK": 32}, num_warps=4, pre_hook=hooks.append)], key=["n"])
@triton.jit
def single(x, n, BLOCK: tl.constexpr):
    pass
"""


@triton.jit
def copied(x, n, block: triton.language.constexpr):
    pass


BLOCKS = (32, 64, 128, 256)
ARGUMENTS = [{"name": "x"}, {"name": "n", "hints": "none"}, {"name": "BLOCK"}]
VARIANTS = [{"x": "*fp32:16", "n": "i32", "BLOCK": block} for block in BLOCKS]

H100 = {"capability": "9.0", "default": 0, "choices": [[[1024], 1], [[4096], 2], [[True], 3], [[4096.0], 3]]}
H200 = {"capability": "9.0", "default": 1, "choices": [[[1024], 3], [[77], 3], [["77"], 2]]}
A100 = {"capability": "8.0", "default": 3, "choices": [[[50], 2]]}
NAME = "Stand-in A"


@pytest.fixture(autouse=True)
def _settings(monkeypatch):
    monkeypatch.setattr(jit_compile, "_warned", set())


def table(**gpus):
    configs = [{"kwargs": {"BLOCK": block}, "num_warps": 4, "num_stages": 3, "num_ctas": 1} for block in BLOCKS]
    tables_of_gpus = {
        "keys": ["n"],
        "configs": configs,
        "gpus": {name.replace("_", " "): gpu for name, gpu in gpus.items()},
    }
    return dict.fromkeys(("plain", "narrow", "own"), tables_of_gpus)


def package(cuda, tables, **changes):
    names = ("plain", "narrow", "single")
    records = [record(name, [dict(item) for item in ARGUMENTS], *VARIANTS) for name in names]
    even = [*[dict(item) for item in ARGUMENTS], {"name": "EVEN"}]
    records.append(record("own", even, *({**each, "EVEN": value} for each in VARIANTS for value in (True, False))))
    triton_in_place.write(cuda.packages, SOURCE, *records, tuning=tables, **changes)
    return importlib.import_module("mypkg.ops")


def blocks(cuda):
    """Return the constexpr BLOCK of each launch."""
    numbers = [int(call["kernel"].rpartition("_")[2]) for call in cuda.launches()]
    return [
        BLOCKS[number // (2 if call["kernel"].startswith("own") else 1)]
        for number, call in zip(numbers, cuda.launches(), strict=True)
    ]


@pytest.mark.parametrize(
    ("gpus", "n", "block"),
    [
        ({"other": H200, "own": H100}, 4096, 128),  # this GPU's table
        ({"other": H200, "own": H100}, 1024, 64),
        ({"other": H200, "own": H100}, 77, 256),  # its architecture's
        ({"other": H200}, 1024, 256),
        ({"own": H100}, 1100, 64),  # the nearest key
        ({"own": {**H100, "choices": []}, "other": H200}, 1100, 256),
        ({"other": {**H200, "choices": []}}, 7, 64),  # the default
        ({"third": A100}, 50, 256),  # a default of another architecture
    ],
)
def test_launch_uses_the_best_recorded_config(gpus, n, block, cuda):
    named = {{"own": NAME.replace(" ", "_"), "other": "NVIDIA_H200"}.get(key, key): gpu for key, gpu in gpus.items()}
    ops, x = package(cuda, table(**named)), cuda.array()
    for _ in range(3):
        ops.plain[(1,)](x, n)
    assert blocks(cuda) == [block] * 3
    assert ops.plain.best_config is ops.CONFIGS[BLOCKS.index(block)]


def test_cache_of_the_autotuner_takes_precedence_over_tables(cuda):
    ops = package(cuda, table(other=H200))
    ops.plain.cache[1024,] = ops.CONFIGS[0]
    ops.own.fn.shipped[1024,] = 0
    ops.plain[(1,)](cuda.array(), 1024)
    ops.own[(1,)](cuda.array(), 1024)
    ops.own[(1,)](cuda.array(), 77)
    assert blocks(cuda) == [32, 32, 256]
    assert type(ops.own.fn).__mro__[1] is ops.Cached
    assert isinstance(ops.own.fn, triton.runtime.autotuner.Autotuner)
    assert (5,) not in ops.plain.cache


class Database:
    """A cache that is no mapping: it can be asked for keys that are tuples, and nothing else."""

    def __init__(self):
        self.rows = {}

    def __contains__(self, key):
        return (*key,) in self.rows

    def __getitem__(self, key):
        return self.rows[(*key,)]

    def __setitem__(self, key, config):
        self.rows[(*key,)] = config


@pytest.mark.parametrize("kind", [OrderedDict, UserDict, Database])
def test_a_cache_of_another_class_stays_and_is_used(kind, cuda):
    ops, cache = package(cuda, table(other=H200)), kind()
    ops.plain.cache = cache
    for _ in range(2):
        ops.plain[(1,)](cuda.array(), 1024)
    assert ops.plain.cache is cache
    assert cache[1024,] in ops.CONFIGS
    assert blocks(cuda) == [*BLOCKS, 32, 32]  # all were timed once


@pytest.mark.parametrize("kind", [OrderedDict, UserDict, Database])
def test_adoption_keeps_a_cache_of_another_class(kind):
    class Own(triton.runtime.autotuner.Autotuner):
        def __init__(self, *args):
            super().__init__(*args)
            self.cache = kind()

    tuner = Own(copied, copied.arg_names, [triton.Config({"BLOCK": 32})], ["n"], None, None)
    functions.adopt_existing(tuner)
    assert isinstance(tuner, functions.Autotuner)
    assert type(tuner.cache) is kind


def test_a_nearest_config_obeys_pruning(cuda):
    ops, x = package(cuda, table(other=H200)), cuda.array()
    ops.narrow[(1,)](x, 77)
    assert ops.pruned == []
    ops.narrow[(1,)](x, 80)
    assert ops.pruned == [(["n", "x"], ["grid", "warmup"])]
    assert blocks(cuda) == [256, 64]


@pytest.mark.parametrize(
    ("variables", "tables", "n", "timed"),
    [
        ({}, None, 5, True),
        ({}, table(other=H200), 5, False),
        ({"AOTCUDA_TUNE": "1"}, table(other=H200), 77, True),
        ({"AOTCUDA_TUNING": "exact"}, table(other=H200), 77, False),
        ({"AOTCUDA_TUNING": "exact"}, table(other=H200), 78, True),
    ],
)
def test_configs_are_timed_without_a_table(variables, tables, n, timed, cuda, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ops = package(cuda, tables)
    ops.plain[(1,)](cuda.array(), n)
    assert len(cuda.launches()) == (5 if timed else 1)


@pytest.mark.parametrize(("name", "value"), [("AOTCUDA_TUNE", "yes"), ("AOTCUDA_TUNING", "nearest")])
def test_an_unknown_value_of_a_variable_is_named(name, value, cuda, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"{name} is '{value}'"):
        package(cuda, table(other=H200)).plain[(1,)](cuda.array(), 5)


def damaged(**changes):
    return json.dumps({"format": "aotcuda tuning", "version": 1, "source": "mypkg.ops", "kernels": {}, **changes})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is not JSON"),
        ("[]", "it is no file of aotcuda tuning"),
        (damaged(version=2), "its version is 2, and this aotcuda reads version 1"),
        (damaged(source="other.ops"), "it is for 'other.ops', and not for mypkg.ops"),
        (damaged(kernels=[]), "its tables are damaged"),
        *[
            (damaged(kernels={"plain": {"configs": [{"kwargs": {}}], "gpus": {"A": gpu}}}), "its tables are damaged")
            for gpu in (
                {"capability": "9.0", "default": 1, "choices": []},
                {"capability": "9.0", "default": False, "choices": []},
                {"capability": "9.0", "default": 0, "choices": [[1, 0]]},
            )
        ],
    ],
)
def test_a_damaged_file_is_ignored_with_one_warning(text, problem, cuda):
    ops = package(cuda, text)
    with pytest.warns(FallbackWarning, match=r"tuning\.json: ") as warned:
        ops.plain[(1,)](cuda.array(), 5)
    ops.own.fn.shipped[6,] = 0
    ops.own[(1,)](cuda.array(), 6)
    assert [str(item.message).partition("tuning.json: ")[2] for item in warned] == [
        f"{problem}; it is ignored, and autotuners time their configs"
    ]
    assert blocks(cuda)[0] == 32
    assert len(cuda.launches()) == 6


def test_first_takes_the_first_pruned_config_that_is_packaged(cuda, monkeypatch):
    monkeypatch.setenv("AOTCUDA_TUNE", "first")
    monkeypatch.setattr(sys.modules[__name__], "VARIANTS", VARIANTS[1:])
    ops, x = package(cuda, table(own=H100)), cuda.array()
    for _ in range(2):
        ops.plain[(1,)](x, 4096)
        ops.narrow[(1,)](x, n=4096)
        ops.own[(1,)](x, 4096)
    taken = {"plain": 64, "narrow": 64, "own": 64}
    numbers = [(call["kernel"].split("__")[0], int(call["kernel"].split("__")[1])) for call in cuda.launches()]
    found = [(name, BLOCKS[1:][number // (2 if name == "own" else 1)]) for name, number in numbers]
    assert found == [*taken.items()] * 2  # one launch each: nothing was timed
    assert [config.kwargs["BLOCK"] for config in ops.plain.cache.values()] == [64]


def test_first_skips_configs_whose_variants_do_not_load(cuda, monkeypatch):
    monkeypatch.setenv("AOTCUDA_TUNE", "first")
    ops = package(cuda, table(own=H100))
    cuda.set(fail="cuLibraryGetKernel=500@1")
    ops.plain[(1,)](cuda.array(), 4096)
    assert blocks(cuda) == [64]


def test_only_packaged_configs_are_timed(cuda, monkeypatch):
    monkeypatch.setenv("AOTCUDA_TUNE", "1")
    monkeypatch.setattr(sys.modules[__name__], "VARIANTS", VARIANTS[1:])
    package(cuda, table(own=H100)).plain[(1,)](cuda.array(), 4096)
    numbers = [int(call["kernel"].split("__")[1]) for call in cuda.launches()]
    assert [BLOCKS[1:][number] for number in numbers] == [64, 128, 256, 64]


def test_what_was_timed_is_written_for_record(cuda, monkeypatch, tmp_path):
    monkeypatch.setenv("AOTCUDA_TUNE", "1")
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    ops = package(cuda, table(own=H100))
    for n in (16, 32, 16):
        ops.plain[(1,)](cuda.array(), n)
    content = json.loads((tmp_path / "cache/tuning/mypkg.ops.tuning.json").read_text())
    kernel = content["kernels"]["plain"]
    assert (content["format"], content["source"], kernel["keys"]) == ("aotcuda tuning", "mypkg.ops", ["n"])
    assert [config["kwargs"] for config in kernel["configs"]] == [{"BLOCK": block} for block in BLOCKS]
    (gpu,) = kernel["gpus"].values()
    assert gpu["choices"] == [[[16], 0], [[32], 0]]
    assert gpu["timings"] == [[[n], [[at, [1.0, 1.0, 1.0]] for at in range(4)]] for n in (16, 32)]


def test_what_was_timed_is_merged_by_record(cuda, monkeypatch, tmp_path):
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AOTCUDA_TUNE", "1")
    ops = package(cuda, table(own=H100))
    for n in (16, 32):
        ops.plain[(1,)](cuda.array(), n)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[tool.aotcuda]\narch = ["sm_90"]\n[tool.aotcuda.modules."mypkg.ops"]\n'
        'source = "mypkg.ops"\nfrontend = "triton"\nvariants = "ops.variants.json"\n'
    )
    (project / "ops.variants.json").write_text(
        json.dumps({"format": "aotcuda variants", "version": 1, "source": "mypkg.ops", "kernels": {}})
    )
    monkeypatch.chdir(project)
    assert cli.main(["record", "--merge", str(tmp_path / "cache/tuning/mypkg.ops.tuning.json")]) == 0
    merged = json.loads((project / "ops.tuning.json").read_text())["kernels"]["plain"]
    (gpu,) = merged["gpus"].values()
    assert gpu["choices"] == [[[16], 0], [[32], 0]]
    assert [each[0] for each in gpu["timings"]] == [[16], [32]]
    # What was merged is what a later run chooses, with no timing.
    chosen = {"keys": merged["keys"], "configs": merged["configs"], "gpus": merged["gpus"]}
    assert tuning._kernels((project / "ops.tuning.json").read_bytes(), "mypkg.ops") == {"plain": chosen}
