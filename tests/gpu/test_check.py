"""Test that the predictions of `aotcuda check` and `aotcuda doctor` are true for this GPU and driver."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu

PREDICT = """
import json
from pathlib import Path
from gpu import buffers
buffers.primary_context()
import quickstart.kernels as k
from aotcuda.common import gpu_facts
from aotcuda.tools import doctor
from aotcuda.tools.check import check
from aotcuda.errors import RuntimeUnavailableError
from aotcuda.runtime import driver
here = driver.get()
capability = "{}.{}".format(*here.devices[0].capability)
cuda = min(here.version, gpu_facts.branches()[-1].cuda)  # the newest known driver stands for newer ones
report = check.check(str(Path(k.__file__).parent), gpu=capability, driver=gpu_facts.dotted(cuda))
(cell,) = report.modules[0].cells
x = buffers.Buffer("f", [1, 2, 3]); y = buffers.Buffer("f", [10, 20, 30]); out = buffers.Buffer("f", [0, 0, 0])
try:
    k.axpy[1, 32](2.0, x, y, out)
    happened = [k.__aotcuda__.chosen[0].arch, out.read()]
except RuntimeUnavailableError as error:
    happened = [None, None]
found = doctor.examine()
(taken,) = [module["takes"][0]["image"] for module in found["modules"] if module["name"] == "quickstart.kernels"]
predicted = [cell.image, [12, 24, 36] if cell.packaged else None]
print(json.dumps([predicted, happened, cell.exists, found["driver"], taken, doctor.render(found)]))
"""


@pytest.mark.parametrize("wheel", ["quickstart", "quickstart-ptx", "quickstart-older", "quickstart-specific"])
def test_check_and_doctor_predict_the_image_of_a_launch(run_clean, wheel):
    predicted, happened, exists, driver, taken, text = run_clean(PREDICT, wheel, AOTCUDA_FALLBACK="error")
    assert predicted == happened
    assert exists
    assert driver["problem"] is None
    assert driver["gpus"]
    assert f"for CUDA {driver['cuda']}" in text
    if happened[0] is not None:
        assert taken == happened[0]
