#!/usr/bin/env python3
"""Move xarray-spatial 0.5.3 to packaged kernels: download it, change it as docs/moving.md says, record, build, check.

No GPU is needed, and nothing but Python 3.11 and pip: it makes its own environment. `verify.py` then needs a GPU.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from environments import check_machine, environment, make, run, say  # noqa: E402 (that folder has just been added)

NAME = "xarray_spatial-0.5.3"
SHA256 = "2563f5fb00acb61065cf534af572290b4f91f134c0dcaaf84c93a4a37113ebed"
WORK = HERE / "work"
PROJECT = WORK / NAME
SOURCES = PROJECT / "xrspatial"

BUILD = ("build", "wheel", "setuptools>=77", "setuptools-scm", "pyct", "param")  # for its setup.py
USE = ("datashader>=0.15", "numba", "xarray", "numpy<2.5", "scipy")  # its imports
TEST = ("pytest", "dask")

PRELUDE = '''"""Stand-ins for imports that a build machine lacks; builds import this module first."""
import sys
from unittest.mock import MagicMock

sys.modules["rtxpy"] = MagicMock()
'''


def main() -> None:
    """Run the steps; exit with a non-zero status after the first step that fails."""
    check_machine()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", action="store_true", help="record the package's own tests too (minutes)")
    arguments = parser.parse_args()

    say("1. An environment with the compilers and the package's dependencies")
    python = make("xarray-spatial", f"aotcuda[cu13,record] @ {ROOT.as_uri()}", *BUILD, *USE, *TEST)

    say(f"2. {NAME} from the package index")
    download(python)

    say("3. The maintainer's edits: imports, and settings with which a build can import the sources")
    before = texts()
    length = len(before[PROJECT / "pyproject.toml"].splitlines())
    change_imports()
    run(python, "-m", "aotcuda", "init", PROJECT, folder=WORK)
    by_hand = changed(before, [path for path in before if path != PROJECT / "pyproject.toml"])
    lines = settings()
    for path, number in sorted(by_hand.items()):
        print(f"{path}: {number} line{'s' * (number != 1)}")
    print(f"pyproject.toml: {lines} lines beyond what `aotcuda init` and `aotcuda record` write")
    print("_stand_ins.py: 3 lines of code, new")

    say("4. Signatures, without executing: aotcuda record --dry --write -- COMMAND")
    record(python, python, HERE / "calls.py", "--shape", "10", "14")
    if arguments.tests:
        chosen = ("-k", "cupy or gpu or rtx", "-p", "no:cacheprovider", "--tb=no")
        record(python, python, "-m", "pytest", "-q", *chosen, "xrspatial/tests", fails=True)
    table = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["aotcuda"]["modules"]
    kernels = [name for module in table.values() for name in module["kernels"]]
    written = len((PROJECT / "pyproject.toml").read_text().splitlines()) - lines - length
    print(f"{len(kernels)} kernels in {len(table)} modules; {written} lines of pyproject.toml are the tool's")

    say("5. The wheel, built by setuptools")
    shutil.rmtree(WORK / "dist", ignore_errors=True)
    built = (python, "-m", "build", "--wheel", "--no-isolation", "--outdir", WORK / "dist", PROJECT)
    with (WORK / "build.log").open("w") as log:  # setuptools lists every file three times
        done = subprocess.run(list(map(str, built)), cwd=WORK, env=environment(), check=False, stdout=log, stderr=log)
    if done.returncode:
        sys.exit(f"\nThis failed with exit status {done.returncode}; its output is in {WORK / 'build.log'}")
    (wheel,) = (WORK / "dist").glob("*.whl")

    with zipfile.ZipFile(wheel) as archive:
        packaged = sum(item.compress_size for item in archive.infolist() if ".aotcuda/" in item.filename)
    print(f"{wheel.name}: {wheel.stat().st_size} bytes, of which aotcuda added {packaged}")

    say(f"6. The images for an H100: aotcuda check {wheel.relative_to(ROOT)} --gpu H100")
    run(python, "-m", "aotcuda", "check", wheel, "--gpu", "H100", folder=WORK)

    say("7. The package's tests that need no GPU, on the installed wheel; Numba compiles its CPU functions")
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel, folder=WORK)
    chosen = ("-k", "slope or aspect or curvature or perlin or focal or multispectral", "-p", "no:cacheprovider")
    run(python, "-m", "pytest", "-q", *chosen, "--pyargs", "xrspatial", folder=WORK)
    print(f"\nOn a machine with a GPU, CuPy and {wheel.name}: python {Path('examples/xarray_spatial/verify.py')}")


def download(python: Path) -> None:
    """Download the sdist, and unpack it into an empty folder."""
    WORK.mkdir(exist_ok=True)
    archive = WORK / f"{NAME}.tar.gz"
    if not archive.is_file():
        pip = (python, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps")
        run(*pip, "--no-binary", "xarray-spatial", "--dest", WORK, NAME.replace("_", "-").replace("-0", "==0"))
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        sys.exit(f"{archive} is not the file that this example was written for; remove it")
    shutil.rmtree(PROJECT, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(WORK, filter="data")


def change_imports() -> None:
    """Replace `numba` by `aotcuda.numba` in the modules that use `cuda`; add the run time to the dependencies."""
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        if "tests" not in path.parts and re.search(r"^from numba import cuda|\bnb\.cuda\b", text, re.MULTILINE):
            text = re.sub(r"^from numba import cuda", "from aotcuda.numba import cuda", text, flags=re.MULTILINE)
            text = re.sub(r"^import numba as nb$", "import aotcuda.numba as nb", text, flags=re.MULTILINE)
            path.write_text(text)
    cfg = PROJECT / "setup.cfg"
    cfg.write_text(cfg.read_text().replace("install_requires = \n", "install_requires = \n\taotcuda\n"))


def settings() -> int:
    """Write the lines of pyproject.toml that no command writes, and the prelude; return the number of lines."""
    path = PROJECT / "pyproject.toml"
    text = path.read_text()
    lines = {
        "[tool.aotcuda]\n": '[tool.aotcuda]\nprelude = "_stand_ins"\n',
        '    "aotcuda[cu13]",\n': '    "aotcuda[cu13]",\n    "datashader >= 0.15.0",\n',  # the sources import it
    }
    for old, new in lines.items():
        if text.count(old) != 1:
            sys.exit(f"{path} does not have {old!r} once")
        text = text.replace(old, new)
    path.write_text(text)
    (PROJECT / "_stand_ins.py").write_text(PRELUDE)
    return len(lines)


def texts() -> dict[Path, str]:
    """Return the files that a maintainer may change."""
    paths = [PROJECT / "pyproject.toml", PROJECT / "setup.cfg", *SOURCES.rglob("*.py")]
    return {path: path.read_text() for path in paths}


def changed(before: dict[Path, str], paths: list[Path]) -> dict[Path, int]:
    """Return the number of new and changed lines of each changed file."""
    found = {}
    for path in paths:
        lines = difflib.unified_diff(before[path].splitlines(), path.read_text().splitlines(), lineterm="", n=0)
        number = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
        if number:
            found[path.relative_to(PROJECT)] = number
    return found


def record(python: Path, *command: str | Path, fails: bool = False) -> None:
    """Record a command without executing launches, with a stand-in for rtxpy."""
    environ = {
        **environment(),
        "PYTHONPATH": os.pathsep.join([str(HERE / "stand_ins"), str(PROJECT)]),
    }
    whole = [str(part) for part in (python, "-m", "aotcuda", "record", "--dry", "--write", "--", *command)]
    done = subprocess.run(whole, cwd=PROJECT, env=environ, check=False)
    if done.returncode and not fails:  # some of the tests compare results that only a GPU computes
        sys.exit(f"\nThis failed with exit status {done.returncode}: {' '.join(whole)}")


if __name__ == "__main__":
    main()
