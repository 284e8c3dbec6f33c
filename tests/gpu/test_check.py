"""Test that a launch takes the image that `aotcuda check` and `aotcuda doctor` predict for this GPU and driver."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.gpu

LAUNCH = """
import ctypes, json
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
cuda = min(here.version, gpu_facts.branches()[-1].cuda)  # check knows no newer drivers
report = check.check(str(Path(k.__file__).parent), gpu=capability, driver=gpu_facts.dotted(cuda))
(cell,) = report.modules[0].cells
x = buffers.Buffer("f", [1, 2, 3]); y = buffers.Buffer("f", [10, 20, 30]); out = buffers.Buffer("f", [0, 0, 0])
chosen, versions = None, []
try:
    k.axpy[1, 32](2.0, x, y, out)
except RuntimeUnavailableError:
    pass
else:
    chosen = k.__aotcuda__.chosen[0].arch
    table = k.__aotcuda__._images.current
    function = ctypes.c_void_p()
    entry = table.device_kernel(table.table("axpy").overloads[0], 0)
    buffers.check(buffers.cuda.cuKernelGetFunction(ctypes.byref(function), entry.kernel))
    for attribute in (5, 6):  # CU_FUNC_ATTRIBUTE_PTX_VERSION, CU_FUNC_ATTRIBUTE_BINARY_VERSION
        value = ctypes.c_int()
        buffers.check(buffers.cuda.cuFuncGetAttribute(ctypes.byref(value), attribute, function))
        versions.append(value.value)
found = doctor.examine()
(image,) = [module["takes"][0]["image"] for module in found["modules"] if module["name"] == "quickstart.kernels"]
print(json.dumps([chosen, versions, out.read(), cell.image, bool(cell.has_image), image, found["driver"]]))
"""


@pytest.mark.parametrize(
    ("wheel", "arch", "versions"),
    [
        ("quickstart", "sm_90", [90, 90]),
        ("quickstart-ptx", "compute_80", [80, 90]),  # PTX for 8.0, compiled by the driver for 9.0
        ("quickstart-specific", "sm_90a", [90, 90]),
        ("quickstart-older", None, []),
    ],
)
def test_launch_takes_predicted_image(run_clean, wheel, arch, versions):
    chosen, seen, out, predicted, packaged, image, driver = run_clean(LAUNCH, wheel, AOTCUDA_FALLBACK="error")
    assert (chosen, seen) == (arch, versions)
    assert predicted == image == chosen
    assert packaged == (chosen is not None)
    assert out == ([12.0, 24.0, 36.0] if packaged else [0.0, 0.0, 0.0])
    assert driver["problem"] is None
    assert driver["gpus"]
