"""Test the JSON report of a build: how seconds, bytes and hits of the cache are divided among units and targets."""

from __future__ import annotations

import json

import pytest

from aotcuda.builder.compile.telemetry import Step
from aotcuda.builder.emit import build_report
from aotcuda.builder.emit.built import Output
from aotcuda.builder.emit.report import Summary
from support import manifests

AXPY, SCALE, ADD = "void(float32[::1])", "void(int32)", "int32(int32, int32)"


def image(target, kind, size):
    return {"arch": target, "kind": kind, "bytes": size, "sha256": "0" * 64}


MANIFEST = manifests.make(
    module="mypkg.kernels",
    kernels=[
        {**manifests.kernel("axpy"), "overloads": [manifests.overload(AXPY, "axpy_0")]},
        {**manifests.kernel("scale"), "overloads": [manifests.overload(SCALE, "scale_0", fatbin=1)]},
    ],
    functions=[manifests.function("add")],
    fatbins=[
        {"file": manifests.file("kernels.fatbin", b"one"), "images": [image("sm_90", "sass", 700)]},
        {"file": manifests.file("kernels-1.fatbin", b"two"), "name": "fast", "images": [image("sm_90", "sass", 300)]},
    ],
    ltoir=[image("compute_90", "ltoir", 50)],
)
FILES = {"mypkg/kernels.aotcuda/manifest.json": json.dumps(MANIFEST).encode(), "mypkg/kernels.py": b"import aotcuda"}


def render(*steps, files=FILES, **summary):
    counts = {"modules": 1, "kernels": 2, "functions": 1, "targets": 1, "seconds": 1.23456, "size": 1050}
    built = Output(files=files, package_root=".", warnings=(), summary=Summary(**{**counts, "steps": steps, **summary}))
    data = build_report.render(built)
    assert data.endswith(b"}\n")
    return json.loads(data)


def unit(report, symbol):
    return next(each for each in report["units"] if each["symbol"] == symbol)


def test_units_and_images_are_those_of_the_manifests():
    report = render()
    described = [
        tuple(each[key] for key in ("module", "name", "symbol", "kind", "signature")) for each in report["units"]
    ]
    assert described == [
        ("mypkg.kernels", "add", "add", "function", ADD),
        ("mypkg.kernels", "axpy", "axpy_0", "kernel", AXPY),
        ("mypkg.kernels", "scale", "fast:scale_0", "kernel", SCALE),
    ]
    assert [tuple(each.values()) for each in report["images"]] == [
        ("mypkg.kernels", "sm_90", "sass", 700),
        ("mypkg.kernels", "sm_90", "sass", 300),
        ("mypkg.kernels", "compute_90", "ltoir", 50),
    ]
    assert (report["version"], report["seconds"], report["bytes"]) == (1, 1.235, 1050)
    assert all(each["targets"] == {} and each["seconds"] == 0 for each in report["units"])


def test_the_seconds_of_a_step_are_divided_among_its_kernels_and_targets():
    both = (("mypkg.kernels", "axpy_0", "sm_90"), ("mypkg.kernels", "axpy_0", "sm_80"))
    report = render(
        Step("link", 3.0, both), Step("compile", 1.00004, both[:1]), code={"mypkg.kernels.axpy_0 sm_90": 640}
    )
    axpy = unit(report, "axpy_0")
    assert axpy["targets"] == {
        "sm_90": {"seconds": 2.5, "bytes": 640, "cached": False},
        "sm_80": {"seconds": 1.5, "bytes": None, "cached": False},
    }
    assert axpy["seconds"] == 4.0
    assert report["steps"] == [{"title": "link", "seconds": 3.0}, {"title": "compile", "seconds": 1.0}]


@pytest.mark.parametrize(
    ("whole", "cached"), [(False, {"axpy_0": True, "add": False}), (True, {"axpy_0": True, "add": True})]
)
def test_results_of_the_cache_are_marked_and_are_no_steps(whole, cached):
    steps = [
        Step("kernel", 1.0, (("mypkg.kernels", "axpy_0", "sm_90"),), cached=True),
        Step("function", 2.0, (("mypkg.kernels", "add", "sm_90"),)),
    ]
    report = render(*steps, reused=1, made=4, whole=whole)
    assert {symbol: unit(report, symbol)["targets"]["sm_90"]["cached"] for symbol in cached} == cached
    assert [step["title"] for step in report["steps"]] == ["function"]
    assert report["cache"] == {"reused": 1, "made": 4, "whole": whole}


def test_a_shard_reports_units_without_manifests():
    report = render(Step("kernel", 1.0, (("mypkg.kernels", "axpy_0", "sm_90"),)), files={})
    (axpy,) = report["units"]
    assert (axpy["name"], axpy["kind"], axpy["signature"], axpy["seconds"]) == ("axpy_0", "", "", 1.0)
    assert report["images"] == []
