"""Compare packaged Triton kernels with Triton's JIT: every variant, and each launch that differs in one thing.

Both launch over the stand-in driver, which writes down what it is given; no GPU is needed. Of each variant the machine
code, grid, block, shared memory, launch attributes and parameters have to be those of the JIT, however a launch is
written. A launch of which the JIT would compile other code must be a miss. The cases are in
`tests/support/triton_differential.py`: types and hints of arguments, types and values of constexprs, options,
heuristics, autotuners. `aotcuda record`, which watches the JIT, writes the variants of `tests/packages/tritonmany`;
those of `tests/packages/tritoninplace` were written by hand.

    python bench/triton_differential.py               # about two minutes on two cores
    python bench/triton_differential.py --descriptors --out docs/results/triton_descriptors.json
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support import triton_differential as differential

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = machine.parser(__doc__, "triton_differential")
    parser.add_argument("--kernels", nargs="*", choices=[*differential.KERNELS], default=[*differential.KERNELS])
    parser.add_argument("--descriptors", action="store_true", help="kernels with tensor descriptors alone")
    arguments = parser.parse_args()
    here = machine.describe()
    kernels = {name: differential.KERNELS[name] for name in arguments.kernels}
    base = {name: values[0] for name, values in differential.IN_PLACE["norm.fn.fn"].items()}
    written = [("norm.fn.fn", base | changed) for changed in differential.IN_PLACE_VARIANTS]
    counts, problems = {}, []
    parts = [("tritonmany.kernels", None, kernels), ("tritoninplace.norm", written, differential.IN_PLACE)]
    if arguments.descriptors:
        parts = [("tritonmany.kernels", None, differential.DESCRIPTORS)]
    for source, cases, others in parts:
        with tempfile.TemporaryDirectory() as temporary:
            found = _compare(Path(temporary), source, cases, others)
        counts[source], problems = found.counts, problems + found.problems
        print(source, found.counts)
    print("\n".join(problems) or "no difference")
    triton = importlib.metadata.version("triton")
    machine.write(arguments.out, here, triton=triton, counts=counts, problems=problems)
    return 1 if problems else 0


def _compare(
    folder: Path, source: str, cases: list[differential.Case] | None, kernels: dict[str, dict[str, list[object]]]
) -> differential.Differential:
    """Build a project of the tests, and compare it; without cases its variants are recorded."""
    stand_in = ROOT / "tests" / "support" / "fake_libcuda_triton.c"
    library = folder / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, stand_in, "-lpthread"], check=True)
    name = source.partition(".")[0]
    project = Path(shutil.copytree(ROOT / "tests" / "packages" / name, folder / "project"))
    found = differential.Differential(library, source, project, folder)
    if cases is None:
        cases = differential.variants(kernels)
        found.record(cases)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", project]
    subprocess.run(command, env=machine.environment(AOTCUDA_ARCH="sm_90"), check=True)
    found.compare(next((folder / "dist").glob("*.whl")), cases, differential.neighbours(cases, kernels))
    return found


if __name__ == "__main__":
    sys.exit(main())
