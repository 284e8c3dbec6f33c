"""Test what `aotcuda doctor` says of this machine and of an installed module is what is there and what happens."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.gpu

ASK = """
import json
from gpu import buffers
buffers.primary_context()
import quickstart.kernels as k
from aotcuda.tools import doctor
from aotcuda.runtime import driver
x = buffers.Buffer("f", [1, 2, 3]); y = buffers.Buffer("f", [10, 20, 30]); out = buffers.Buffer("f", [0, 0, 0])
k.axpy[1, 32](2.0, x, y, out)
found = doctor.examine()
taken = {module["name"]: [each["image"] for each in module["takes"]] for module in found["modules"]}
chosen = [k.__aotcuda__.chosen[index].arch for index in sorted(k.__aotcuda__.chosen)]
print(json.dumps([found["driver"], taken, chosen, doctor.render(found)]))
"""


def test_the_doctor_tells_what_a_launch_takes(run_clean):
    driver, taken, chosen, text = run_clean(ASK, "quickstart")
    assert driver["problem"] is None
    assert driver["gpus"]
    assert driver["release"] is None or re.fullmatch(r"\d{3}\.\d+(\.\d+)?", driver["release"])
    assert taken["quickstart.kernels"][: len(chosen)] == chosen
    assert f"for CUDA {driver['cuda']}" in text
