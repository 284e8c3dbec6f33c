"""Builds the extension module: one wheel for every Python from 3.11 on, and one for each Python without the GIL."""

import sysconfig

from setuptools import Extension, setup

# The stable ABI does not cover Pythons without the GIL; there the same source is built for one version.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "aotcuda_accelerator",
            ["launch.c"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE else [],
            py_limited_api=STABLE,
            extra_compile_args=["-O2"],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
)
