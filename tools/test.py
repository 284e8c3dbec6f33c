#!/usr/bin/env python3
"""Run the tests in an environment of their own; arguments go to pytest, as in `python tools/test.py -k inspect -x`."""

from __future__ import annotations

import os
import sys

from environments import ROOT, check_machine, environment, install_beside, make, run, say

# One process for each core; a file's tests stay together, since they share what they build. In the order of folders:
# integration tests take longest, and what is short comes last, so that the processes end together.
PARALLEL = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")


# Installed packages bring plugins along: whatever belongs to one of them is rewritten as tests are, in each of
# the processes, all of Hypothesis among it.
PLUGINS = ("-p", "xdist", "-p", "_hypothesis_pytestplugin")

# What the first release of numba-cuda needs of what it requires, where the environment has a later one.
BESIDE_OLDEST = ("cuda-core<1", "llvmlite<0.48")

# Where kernels are passed to PyTorch, JAX and TVM-FFI, which are large, and which few other tests may see.
OF_LIBRARIES = [
    f"tests/unit/test_{name}.py"
    for name in ("torch", "testing_pytorch", "jax", "jax_abi", "tvm_ffi", "runtime_prepared")
]

# In addition to those of CUDA 13, which the environment itself has: tests build with both by putting the folder on
# PYTHONPATH.
CUDA_12 = ("cuda-cccl", "cuda-nvcc", "cuda-nvrtc", "cuda-runtime", "nvfatbin", "nvjitlink")


def oldest() -> list[str]:
    """Return the first releases of the compilers that the extras accept."""
    sys.path.insert(0, str(ROOT))
    from aotcuda import registry  # noqa: PLC0415 (of this checkout)

    ends = [(one, one.tested[0]) for one in registry.BUILT_IN.values() if one.tested]
    beside = [one.requirements_by_release[release] for one, release in ends if release in one.requirements_by_release]
    return [*(f"{one.name}=={release}" for one, release in ends), *beside, *BESIDE_OLDEST]


def main() -> None:
    """Make the environment and become pytest in it: its last line and exit status are this script's."""
    check_machine()
    say("The tests' environment: the build side and pytest, Triton, and the compilers of CUDA 12.9 (3 GB on disk)")
    python = make("test", "--editable", f"{ROOT}[test]")
    install_beside(python, "cuda12", [f"nvidia-{name}-cu12==12.9.*" for name in CUDA_12])
    install_beside(python, "oldest", oldest())
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # Tests start Python many thousand times, some of them where it writes no bytecode.
    run(python, "-m", "compileall", "-q", "aotcuda", "hatch_plugin", "setuptools_plugin")
    if not sys.argv[1:]:
        say("PyTorch, JAX and TVM-FFI, and pytest with them (2 GB on disk; more where PyTorch brings CUDA)")
        run(
            make("libraries", "--editable", f"{ROOT}[libraries]"),
            "-m",
            "pytest",
            *PLUGINS,
            *PARALLEL,
            "-q",
            *OF_LIBRARIES,
        )
    say("pytest")
    os.execve(python, [str(python), "-m", "pytest", *PLUGINS, *PARALLEL, *sys.argv[1:]], environment())  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main()
