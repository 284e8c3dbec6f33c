"""Compare wheels of one project that are built in different ways; all have to be the same bytes.

Each build differs from the first in several things at once: folder, hash seed, number of cores, umask, time zone,
locale, home, the files' times. One is made from the sdist. Three use a build cache: one fills it, one in another folder
takes machine code from it, and one finds nothing changed. Prints a digest for each; exit status 1 if they differ.

    python bench/reproducible.py [PROJECT ...]      # about two minutes on two idle cores

By default the projects are the quickstart, ten generated kernels, an example with all front ends but cuTile, and, if
cuda-tile is installed, cuTile kernels alone.
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
    """A way to build.

    Attributes:
        title: The way in words.
        folder: The folder that holds the project's.
        environ: Environment variables.
        umask: The permissions that new files lack.
        one_core: The build has one core.
        old_files: The project's files are old.
        from_sdist: The wheel is built from the project's sdist.
        taken: A pattern of the build's summary, of the steps from the build cache that all builds of the project share;
            None without a cache.
        again: The project was built in this folder before.
    """

    title: str
    folder: str
    environ: dict[str, str] = field(default_factory=dict)
    umask: int = 0o022
    one_core: bool = False
    old_files: bool = False
    from_sdist: bool = False
    taken: str | None = None
    again: bool = False


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
    _Variant(title="filling a build cache", folder="d", taken=r"; 0 of \d+ steps from the build cache"),
    _Variant(
        title="machine code from the cache, another folder",
        folder="some where/else",
        taken=r"; (\d+) of \1 steps from the build cache",
    ),
    _Variant(
        title="nothing changed, the first folder with a cache",
        folder="d",
        taken="; all from the build cache",
        again=True,
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
    found = {
        _CHECKOUT / "examples" / "quickstart": ("numba_cuda",),
        _CHECKOUT / "examples" / "all_front_ends": ("numba_cuda", "numba_cuda_mlir", "triton"),
        _CHECKOUT / "tests" / "packages" / "cutilekernels": ("cuda", "cuda.tile"),
    }
    return [path for path, packages in found.items() if all(map(importlib.util.find_spec, packages))]


def _build(project: Path, variant: _Variant, folder: Path) -> Path:
    """Copy the project and build its wheel."""
    time.sleep(2)  # zip files keep times in steps of two seconds
    os.umask(variant.umask)
    place = folder / variant.folder / project.resolve().name
    ignored = shutil.ignore_patterns("dist", "*.aotcuda", "kernels.py*", "__pycache__", ".venv*")
    if not variant.again:
        shutil.copytree(project, place, ignore=ignored)
    if variant.old_files:
        for path in place.rglob("*"):
            os.utime(path, (1_000_000_000, 1_000_000_000))
    if variant.from_sdist:
        _run("--sdist", place, folder / "sdist", variant)
        (sdist,) = (folder / "sdist").iterdir()
        with tarfile.open(sdist) as archive:
            archive.extractall(folder / "unpacked", filter="data")
        (place,) = (folder / "unpacked").iterdir()
    out = folder / "wheels" / variant.title
    _run("--wheel", place, out, variant, cache="0" if variant.taken is None else str(folder / "cache"))
    os.umask(0o022)
    (wheel,) = out.iterdir()
    return wheel


def _run(what: str, place: Path, out: Path, variant: _Variant, cache: str = "0") -> None:
    cores = os.sched_getaffinity(0)
    command = [sys.executable, "-m", "build", what, "--no-isolation", "--outdir", str(out), str(place)]
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
    if cache != "0" and not re.search(variant.taken or "", done.stdout):
        sys.exit(f"{done.stdout}\nthe build '{variant.title}' took something else from the build cache")


def _show_differences(wheels: dict[str, Path]) -> None:
    """Print which members differ from the first wheel's."""
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
