#!/usr/bin/env python3
"""Run the tests in an environment of their own; arguments go to pytest, as in `python tools/test.py -k inspect -x`.

`--cutile` runs the tests of cuTile, whose compiler needs another CUDA version than the other front ends.
"""

from __future__ import annotations

import os
import sys

from environments import ROOT, check_machine, environment, install_folder, make, run, say

# One process for each core. Tests of a file stay together, since they share builds. Integration tests take longest and
# come first, so that the processes end together.
PARALLEL = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")

# The plugins by name: pytest would rewrite all modules of plugins that it finds itself, in each process.
PLUGINS = ("-p", "xdist", "-p", "_hypothesis_pytestplugin")

# Older dependencies for the first release of numba-cuda.
COMPANIONS_OF_OLDEST = ("cuda-core<1", "llvmlite<0.48")

# Tests that pass kernels to PyTorch, JAX and TVM-FFI. These libraries are large and have their own environment.
LIBRARY_TESTS = [
    f"tests/unit/test_{name}.py"
    for name in ("torch", "stand_ins_pytorch", "jax", "jax_abi", "tvm_ffi", "runtime_prepared")
]

CUTILE_TESTS = ["tests/unit/test_frontend_cutile.py", "tests/integration/test_cutile.py"]

# Packages of CUDA 12 in a folder of their own; tests put it on PYTHONPATH to build with both toolkits.
CUDA_12 = ("cuda-cccl", "cuda-nvcc", "cuda-nvrtc", "cuda-runtime", "nvfatbin", "nvjitlink")


def oldest() -> list[str]:
    """Return the requirements for the first releases of the compilers that the extras accept."""
    sys.path.insert(0, str(ROOT))
    from aotcuda import registry  # noqa: PLC0415 (of this checkout)

    front_ends = [front_end for front_end in registry.BUILT_IN.values() if front_end.tested]
    releases = [f"{front_end.name}=={front_end.tested[0]}" for front_end in front_ends]
    companions = [front_end.requirements_by_release.get(front_end.tested[0]) for front_end in front_ends]
    return [*releases, *filter(None, companions), *COMPANIONS_OF_OLDEST]


def main() -> None:
    """Make the environment and replace this process by pytest."""
    check_machine()
    if "--cutile" in sys.argv[1:]:
        say("cuTile's compiler, and pytest with it (1 GB on disk)")
        python = make("cutile", "--editable", f"{ROOT}[cutile]", "build", "numpy", "pytest", "hypothesis")
        run(python, "-m", "pytest", "-q", *CUTILE_TESTS)
        return
    say("The tests' environment: the build side and pytest, Triton, and the compilers of CUDA 12.9 (3 GB on disk)")
    python = make("test", "--editable", f"{ROOT}[test]")
    install_folder(python, "cuda12", [f"nvidia-{name}-cu12==12.9.*" for name in CUDA_12])
    install_folder(python, "oldest", oldest())
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # Tests start Python many thousand times, and some of these processes write no bytecode. Without bytecode,
    # an import of Numba takes three times as long.
    run(python, "-m", "compileall", "-q", "-j", "0", python.parents[1], "aotcuda", "hatch_plugin", "setuptools_plugin")
    if not sys.argv[1:]:
        say("PyTorch, JAX and TVM-FFI, and pytest with them (2 GB on disk; more where PyTorch brings CUDA)")
        with_libraries = make("libraries", "--editable", f"{ROOT}[libraries]")
        run(with_libraries, "-m", "pytest", *PLUGINS, *PARALLEL, "-q", "--environment=libraries", *LIBRARY_TESTS)
    say("pytest")
    arguments = sys.argv[1:] or ["--environment=test"]  # counts the skips of all tests
    os.execve(python, [str(python), "-m", "pytest", *PLUGINS, *PARALLEL, *arguments], environment())  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main()
