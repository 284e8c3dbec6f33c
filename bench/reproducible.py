"""Compare wheels of one project that are built under different conditions, byte for byte.

Each build differs from the first in several things at once: folder, hash seed, number of cores, umask, time zone,
locale, home, times of files. One build is made from the sdist. Three builds use a build cache: one fills it, one takes
machine code from it in another folder, and one takes everything from it. The script prints a digest of each wheel. The
exit status is 1 if they differ.

    python bench/reproducible.py [PROJECT ...]      # about two minutes on two idle cores

By default the projects are the quickstart, an example with all front ends but cuTile, cuTile kernels, and ten generated
kernels. Projects whose compilers are not installed are skipped.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import machine
import projects

_CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class _Variant:
    """The conditions of a build.

    Attributes:
        title: The conditions in words.
        folder: The parent of the project's folder.
        environ: Environment variables.
        umask: The process's umask.
        one_core: True if the build may use one core only.
        old_files: True if the project's files are from 2001.
        from_sdist: True if the wheel is built from the project's sdist.
        cache_summary: A pattern for the build's summary, which says how many steps are from the build cache; None for a
            build without the cache.
        reuses_folder: True if an earlier build used the folder.
    """

    title: str
    folder: str
    environ: dict[str, str] = field(default_factory=dict)
    umask: int = 0o022
    one_core: bool = False
    old_files: bool = False
    from_sdist: bool = False
    cache_summary: str | None = None
    reuses_folder: bool = False


_VARIANTS = (
    _Variant(title="plain", folder="a", environ={"PYTHONHASHSEED": "1"}),
    _Variant(
        title="other folder, seed, zone, locale, home; one core; old files",
        folder="some where/much/deeper-down",
        environ={"PYTHONHASHSEED": "424242", "TZ": "Asia/Tokyo", "LC_ALL": "C", "HOME": "/nonexistent"},
        one_core=True,
        old_files=True,
    ),
    _Variant(title="strict umask, random seed", folder="b", environ={"PYTHONHASHSEED": "random"}, umask=0o077),
    _Variant(title="filling a build cache", folder="d", cache_summary=r"; 0 of \d+ steps from the build cache"),
    _Variant(
        title="machine code from the cache, another folder",
        folder="some where/else",
        cache_summary=r"; (\d+) of \1 steps from the build cache",
    ),
    _Variant(
        title="nothing changed, the first folder with a cache",
        folder="d",
        cache_summary="; all from the build cache",
        reuses_folder=True,
    ),
    _Variant(title="from the sdist", folder="c", environ={"PYTHONHASHSEED": "7"}, from_sdist=True),
)


def main() -> int:
    parser = machine.parser(__doc__, "reproducible")
    parser.add_argument("project", nargs="*", type=Path)
    arguments = parser.parse_args()
    here = machine.describe()
    equal = True
    digests: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        generated = projects.generate(Path(temporary, "generated"), "ten", 10)
        for project in arguments.project or [*_projects(), generated]:
            name = project.resolve().name
            wheels = {variant.title: _build(project, variant, Path(temporary, name)) for variant in _VARIANTS}
            digests[name] = {title: hashlib.sha256(wheel.read_bytes()).hexdigest() for title, wheel in wheels.items()}
            print(f"\n{name}")
            for title, digest in digests[name].items():
                print(f"  {digest}  {title}")
            if len(set(digests[name].values())) > 1:
                equal = False
                _show_differences(wheels)
    print(f"\n{'all equal' if equal else 'THEY DIFFER'}")
    machine.write(arguments.out, here, sha256=digests, measures={"byte-identical wheels": equal})
    return 0 if equal else 1


def _projects() -> list[Path]:
    """Return the checkout's projects whose compilers are installed."""
    compilers = {
        _CHECKOUT / "examples" / "quickstart": ("numba_cuda",),
        _CHECKOUT / "examples" / "all_front_ends": ("numba_cuda", "numba_cuda_mlir", "triton"),
        _CHECKOUT / "tests" / "packages" / "cutilekernels": ("cuda", "cuda.tile"),
    }
    return [path for path, packages in compilers.items() if all(map(importlib.util.find_spec, packages))]


def _build(project: Path, variant: _Variant, folder: Path) -> Path:
    """Copy the project and build its wheel."""
    time.sleep(2)  # zip files store times in steps of two seconds; a stored time would differ
    os.umask(variant.umask)
    root = folder / variant.folder / project.resolve().name
    ignored = shutil.ignore_patterns("dist", "*.aotcuda", "kernels.py*", "__pycache__", ".venv*")
    if not variant.reuses_folder:
        shutil.copytree(project, root, ignore=ignored)
    if variant.old_files:
        for path in root.rglob("*"):
            os.utime(path, (1_000_000_000, 1_000_000_000))
    if variant.from_sdist:
        _run("--sdist", root, folder / "sdist", variant)
        (sdist,) = (folder / "sdist").iterdir()
        with tarfile.open(sdist) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (root,) = (folder / "unpacked").iterdir()
    out = folder / "wheels" / variant.title
    _run("--wheel", root, out, variant, cache="0" if variant.cache_summary is None else str(folder / "cache"))
    os.umask(0o022)
    (wheel,) = out.iterdir()
    return wheel


def _run(what: str, root: Path, out: Path, variant: _Variant, cache: str = "0") -> None:
    cores = os.sched_getaffinity(0)
    command = [sys.executable, "-m", "build", what, "--no-isolation", "--outdir", str(out), str(root)]
    os.sched_setaffinity(0, {min(cores)} if variant.one_core else cores)
    try:
        done = subprocess.run(
            command,
            check=False,
            env={**os.environ, **variant.environ, "AOTCUDA_BUILD_CACHE": cache},
            cwd=out.anchor,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    finally:
        os.sched_setaffinity(0, cores)
    if done.returncode:
        sys.exit(f"{done.stdout}\nthe build '{variant.title}' failed")
    if cache != "0" and not re.search(variant.cache_summary or "", done.stdout):
        sys.exit(f"{done.stdout}\nthe build '{variant.title}' took other steps from the build cache than expected")


def _show_differences(wheels: dict[str, Path]) -> None:
    """Print the members that differ between the first wheel and each other wheel."""
    contents = {}
    for title, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            contents[title] = {
                item.filename: (hashlib.sha256(archive.read(item)).hexdigest(), item.date_time, item.external_attr)
                for item in archive.infolist()
            }
    (_, first), *others = contents.items()
    for title, members in others:
        for member in sorted(first.keys() | members.keys()):
            if first.get(member) != members.get(member):
                print(f"    {title}: {member} differs: {first.get(member)} and {members.get(member)}")


if __name__ == "__main__":
    sys.exit(main())
