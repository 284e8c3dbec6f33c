"""Test what `aotcuda check` predicts for this GPU and driver is what happens: exact, PTX, specific, refused images."""

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
from aotcuda.tools.check import check
from aotcuda.errors import RuntimeUnavailableError
from aotcuda.runtime import driver
here = driver.get()
capability = "{}.{}".format(*here.devices[0].capability)
cuda = min(here.version, gpu_facts.branches()[-1].cuda)  # a newer driver is taken to be like the newest known
report = check.check(str(Path(k.__file__).parent), gpu=capability, driver=gpu_facts.dotted(cuda))
(cell,) = report.modules[0].cells
x = buffers.Buffer("f", [1, 2, 3]); y = buffers.Buffer("f", [10, 20, 30]); out = buffers.Buffer("f", [0, 0, 0])
try:
    k.axpy[1, 32](2.0, x, y, out)
    happened = [k.__aotcuda__.chosen[0].arch, out.read()]
except RuntimeUnavailableError as error:
    happened = [None, None]
print(json.dumps([[cell.image, [12, 24, 36] if cell.packaged else None], happened, cell.exists]))
"""


@pytest.mark.parametrize("wheel", ["quickstart", "quickstart-ptx", "quickstart-older", "quickstart-specific"])
def test_the_prediction_is_what_happens_here(run_clean, wheel):
    predicted, happened, exists = run_clean(PREDICT, wheel, AOTCUDA_FALLBACK="error")
    assert predicted == happened
    assert exists
