"""Test that wheels of earlier versions can be inspected, checked, compared, loaded and launched."""

from __future__ import annotations

import importlib
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from aotcuda import manifest
from aotcuda.builder.config.parser import parse
from aotcuda.builder.plan import plan
from aotcuda.cli import main
from aotcuda.common import data_folder
from aotcuda.runtime.jit import build_inputs

WHEELS = sorted(Path(__file__).parents[1].joinpath("data", "wheels").glob("*.whl"))


def manifests(wheel):
    """Return the manifests in a wheel by module."""
    with zipfile.ZipFile(wheel) as archive:
        contents = [json.loads(archive.read(name)) for name in archive.namelist() if name.endswith("/manifest.json")]
    return {content["module"]: content for content in contents}


MODULES = [pytest.param(wheel, name, id=name) for wheel in WHEELS for name in manifests(wheel)]
OVERLOADS = [
    pytest.param(wheel, module, kernel["name"], overload, id=f"{module}.{overload['symbol']}")
    for wheel in WHEELS
    for module, content in manifests(wheel).items()
    for kernel in content["kernels"]
    for overload in kernel["overloads"]
]


@pytest.fixture
def install(cuda):
    """Return a function that installs a wheel for the stand-in driver, and imports one of its modules."""
    before = set(sys.modules)

    def install_and_import(wheel, module):
        zipfile.ZipFile(wheel).extractall(cuda.packages)
        importlib.invalidate_caches()
        return importlib.import_module(module)

    yield install_and_import
    tops = {wheel.name.partition("-")[0] for wheel in WHEELS}
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in tops:
            del sys.modules[name]


def argument(cuda, parameter):
    """Return an argument that fits a parameter exactly."""
    kind = parameter["kind"]
    if kind == "tuple":
        return tuple(argument(cuda, member) for member in parameter["members"])
    if kind == "pointer":
        return cuda.allocate(64)
    if kind == "array":
        order = "F" if parameter["layout"] == "F" else "C"
        host = np.zeros((4,) * (parameter["ndim"] - 1) + (8,), parameter["dtype"], order=order)
        return cuda.array(host[..., ::2] if parameter["layout"] == "A" else host)
    return np.dtype({"f": "F", "d": "D"}[parameter["format"]] if kind == "complex" else parameter["format"]).type(1)


def test_names_of_files_in_wheels_stay():
    marks = (data_folder.WHEEL, data_folder.EDITABLE)
    assert (data_folder.FILE_NAME, data_folder.FOLDER_SUFFIX) == ("manifest.json", ".aotcuda")
    assert (data_folder.IN_PLACE, data_folder.PACK, data_folder.PARTS) == ("in-place", "pack.json", "parts.json")
    assert marks == ("aotcuda in-place 1 wheel", "aotcuda in-place 1 editable")


def test_there_is_a_wheel_of_the_current_format():
    formats = {content["format"] for wheel in WHEELS for content in manifests(wheel).values()}
    assert manifest.FORMAT in formats, "run tools/keep_wheels.py"


@pytest.mark.parametrize(("wheel", "name", "kernel", "overload"), OVERLOADS)
def test_each_overload_can_be_launched(cuda, install, wheel, name, kernel, overload):
    module = install(wheel, name)
    arguments = [argument(cuda, parameter) for parameter in overload["parameters"]]
    for _ in range(3):  # later launches use the specialization
        getattr(module, kernel)[1, 32](*arguments)
    launches = cuda.launches()
    assert [launch["kernel"] for launch in launches] == [overload["symbol"]] * 3
    assert {len(launch["parameters"]) // 2 for launch in launches} == {overload["parameter_bytes"]}
    assert len({launch["parameters"] for launch in launches}) == 1


@pytest.mark.parametrize(("wheel", "name"), MODULES)
def test_manifest_fits_the_current_schema(install, wheel, name):
    module = install(wheel, name).__aotcuda__
    assert module.manifest == manifests(wheel)[name]
    assert manifest.parse(manifest.dump(module.manifest), name) == module.manifest  # compares it with the schema
    assert module.manifest["floor"] == "0.1.0"


@pytest.mark.parametrize(("wheel", "name"), MODULES)
def test_jit_fallback_can_plan_the_module(cuda, install, wheel, name):
    module = install(wheel, name).__aotcuda__
    inputs = build_inputs.packaged(module.manifest, str(cuda.packages))
    assert (inputs.module, inputs.frontend) == (name, "numba-cuda")
    assert all(Path(path).is_file() for path in inputs.files)
    (module_plan,) = plan.make(parse({**inputs.table, "arch": ["sm_86"]}, environ={}))
    overloads = {(kernel["name"], len(kernel["overloads"])) for kernel in module.manifest["kernels"]}
    units = [unit.name for unit in module_plan.kernels]
    assert {(unit, units.count(unit)) for unit in units} == overloads


@pytest.mark.needs("lz4")
@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.name)
def test_commands_read_the_wheel(wheel, capsys):
    assert main(["inspect", str(wheel)]) == 0
    text = capsys.readouterr().out
    for module, content in manifests(wheel).items():
        assert module in text
        assert all(kernel["name"] in text for kernel in content["kernels"])
    assert main(["check", str(wheel), "--require", "H100@580.65"]) == 0
    assert " images for all GPUs of --require" in capsys.readouterr().out
    assert main(["diff", str(wheel), str(wheel)]) == 0
    assert capsys.readouterr().out
