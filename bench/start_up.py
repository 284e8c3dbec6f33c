"""Compare the system calls of an import and of a first launch with those of another commit.

    python bench/start_up.py [--kernels 50] [--before TREE] [--out FILE]

`strace -f` counts the calls of a fresh interpreter that imports a packaged module, above one that does nothing:
files that are opened, folders that are listed, look-ups (`stat`, `access`, `readlink`), files that are opened for
writing or made, and locks. Files of the package and of aotcuda are counted apart from those of Python and the system.
The driver is the tests' stand-in. TREE is a checkout of another commit; its figures are named "before":

    git worktree add --detach ../before 2a99a90 && python bench/start_up.py --before ../before
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import machine
import projects

ROOT = Path(__file__).resolve().parent.parent
ARRAY = """
class Array:
    __cuda_array_interface__ = {"version": 3, "data": (4096, False), "shape": (8,), "typestr": "<f4", "strides": None}
"""
STATEMENTS = {
    "import, loaded at first use": ("first-use", "import pkg.kernels"),
    "import, loaded at once": ("import", "import pkg.kernels"),
    "import and a launch": ("first-use", f"{ARRAY}\nimport pkg.kernels as k\nk.k0[1, 32](2.0, Array(), Array())"),
}
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|^\S+ +(?:mkdir|rename|unlink|link|symlink)")
_LOCKS = re.compile(r"\bflock\(|F_SETLK|F_OFD_SETLK")
_LOOKS = re.compile(r"^\S+ +(?:newfstatat|stat|lstat|statx|access|faccessat|readlink)")


def site(tree: Path, folder: Path, kernels: int) -> Path:
    """Return a folder with a packaged module and the aotcuda of a tree, as installers leave them."""
    project = projects.generate(folder / "project", "pkg", kernels, archs=("sm_90",))
    packages = folder / "site"
    environ = {**os.environ, "PYTHONPATH": str(tree), "AOTCUDA_PROGRESS": "0"}
    command = [sys.executable, "-m", "aotcuda", "build", "-q", "--out", str(packages)]
    subprocess.run(command, cwd=project, env=environ, check=True)
    (packages / "pkg" / "__init__.py").write_text("", encoding="utf-8")
    shutil.copytree(tree / "aotcuda", packages / "aotcuda", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(packages, quiet=1)
    return packages


def trace(code: str, folder: Path, driver: Path, load: str, log: Path) -> list[str]:
    """Return the traced calls of an interpreter that runs `code`."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(log.parent), "PYTHONPATH": str(folder), "AOTCUDA_LOAD": load}
    environ |= {"LD_LIBRARY_PATH": str(driver), "PYTHONHASHSEED": "0"}
    calls = "trace=%file,flock,fcntl,getdents64"
    python = sys._base_executable  # type: ignore[attr-defined]
    command = ["strace", "-f", "-o", str(log), "-e", calls, python, "-c", code]
    subprocess.run(command, env=environ, cwd=log.parent, check=True)
    return log.read_text(errors="replace").splitlines()


def count(lines: list[str], folder: Path) -> dict[str, int]:
    """Count calls by kind; files below `folder` are the package's and aotcuda's."""
    opens = [line for line in lines if " openat(" in line and "ENOENT" not in line]
    from_packages = [line for line in opens if str(folder) in line]
    return {
        "files opened": sum("O_DIRECTORY" not in line for line in from_packages),
        "folders listed": sum("O_DIRECTORY" in line for line in from_packages),
        "look-ups": sum(bool(_LOOKS.search(line)) for line in lines if str(folder) in line),
        "files opened elsewhere": len(opens) - len(from_packages),
        "calls": len(lines),
        "writes": sum(bool(_WRITES.search(line)) for line in lines),
        "locks": sum(bool(_LOCKS.search(line)) for line in lines),
    }


def count_all(tree: Path, folder: Path, kernels: int, driver: Path) -> dict[str, dict[str, int]]:
    """Return the calls of each statement, less those of an interpreter that does nothing."""
    packages = site(tree, folder, kernels)
    counts = {}
    for name, (load, code) in STATEMENTS.items():
        for _ in range(2):  # the first run may read files that no later run reads
            bare = count(trace("pass", packages, driver, load, folder / "log"), packages)
            whole = count(trace(code, packages, driver, load, folder / "log"), packages)
        counts[name] = {key: whole[key] - bare[key] for key in whole}
    return counts


def main() -> None:
    parser = machine.parser(__doc__, "start_up")
    parser.add_argument("--kernels", type=int, default=50)
    parser.add_argument("--before", type=Path, metavar="TREE", help="a checkout of another commit")
    arguments = parser.parse_args()
    here = machine.describe()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        (folder / "driver").mkdir()
        library = str(folder / "driver" / "libcuda.so.1")
        source = str(ROOT / "tests" / "support" / "fake_libcuda.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-lpthread"], check=True)
        counts = {"now": count_all(ROOT, folder / "now", arguments.kernels, folder / "driver")}
        if arguments.before is not None:
            tree = arguments.before.resolve()
            counts["before"] = count_all(tree, folder / "before", arguments.kernels, folder / "driver")
    print(json.dumps(counts, indent=1))
    machine.write(arguments.out, here, kernels=arguments.kernels, **counts)


if __name__ == "__main__":
    main()
