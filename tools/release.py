#!/usr/bin/env python3
"""Check the files that `tools/wheels.py` made on each machine, and gather them in one folder.

    python3 tools/release.py BUILT OUT --tag v1.2.3
    python3 tools/release.py BUILT OUT --tag v1.2.3 --python python3.14 --python python3.14t
    python3 tools/release.py --notes v1.2.3         # print the changes of this version, from CHANGELOG

BUILT holds a folder for each machine. The sdist and the pure wheel must be equal on all machines. The files must
have the tag's version and the repository's address, CHANGELOG must have a heading for this version and contain all
changes, and twine must find no fault. Each wheel is installed and imported in clean environments of this Python, and
of each Python that `--python` names, if the Python accepts the wheel.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from environments import ROOT, check_machine, environment, make, run, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main() -> None:
    """Gather the files. After a fault, exit with one line; the folder stays empty."""
    check_machine()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "built", metavar="BUILT", type=Path, nargs="?", help="the folder with a folder for each machine"
    )
    parser.add_argument("out", metavar="OUT", type=Path, nargs="?", help="the empty or new folder to gather them in")
    parser.add_argument("--tag", help="the release's tag, v and the version")
    parser.add_argument("--python", action="append", default=[], help="a further Python that installs the wheels")
    parser.add_argument("--notes", metavar="TAG", help="print the changes of this version, and do nothing else")
    arguments = parser.parse_args()
    if arguments.notes:
        print(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), arguments.notes))
        return
    if not (arguments.built and arguments.out and arguments.tag):
        parser.error("name BUILT, OUT and --tag, or --notes")
    out: Path = arguments.out.resolve()
    if out.exists() and any(out.iterdir()):
        sys.exit(f"{out} is not empty; name an empty or new folder")
    files = gather(arguments.built)
    for path in files.values():
        if path.suffix == ".whl":
            check_address(path)
    fragments = sorted((ROOT / "changes").glob("*.*.md"))
    check_version(arguments.tag, files, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), fragments)

    say("twine")
    python = make("gather", "twine>=6")
    run(python, "-m", "twine", "check", "--strict", *files.values())
    say("Clean environments")
    wheels = [path for name, path in files.items() if name.endswith(".whl")]
    accepted = {path for python in (sys.executable, *arguments.python) for path in check_wheels(wheels, python)}
    for path in wheels:
        if path not in accepted:
            say(f"{path.name} is for another platform, or another Python")
    out.mkdir(parents=True, exist_ok=True)
    for name, path in files.items():
        shutil.copy2(path, out / name)
    say(f"{len(files)} files are in {out}")


def check_address(wheel: Path) -> None:
    """Exit unless a wheel names the repository's address, and links of its description work on a package index."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    if not re.search(r"^Project-URL: Source, ", metadata, re.MULTILINE):
        sys.exit(f"{wheel.name} has no address of the repository; write it into `repository` in pyproject.toml")
    text = re.sub(r"(?ms)^```.*?^```|`[^`\n]*\]\([^`\n]*`", "", metadata)  # code is no link
    if relative := re.search(r"\]\((?!\w+:|#)([^)]*)\)", text):
        sys.exit(f"{wheel.name}: the link {relative[1]} in README.md is relative; let hatch_metadata.py find it")


def gather(built: Path) -> dict[str, Path]:
    """Return the files of all machines by name; exit if a file differs between two machines."""
    files: dict[str, Path] = {}
    for path in sorted(built.glob("*/aotcuda-*")):
        other = files.setdefault(path.name, path)
        if other.read_bytes() != path.read_bytes():
            sys.exit(f"{path.name} differs between {other.parent.name} and {path.parent.name}: it is not reproducible")
    kinds = {
        "sdist": r"\.tar\.gz$",
        "pure wheel": r"-py3-none-any\.whl$",
        "wheel with the fast path": r"-abi3-.*\.whl$",
    }
    for kind, pattern in kinds.items():
        if not any(re.search(pattern, name) for name in files):
            sys.exit(f"there is no {kind} in {built}/*/; run tools/wheels.py on each machine first")
    return files


def check_version(tag: str, files: dict[str, Path], changelog: str, fragments: Sequence[Path] = ()) -> None:
    """Exit unless tag, files and CHANGELOG have one version, and CHANGELOG contains all `fragments`."""
    version = tag.removeprefix("v")
    for name in files:
        if not name.startswith((f"aotcuda-{version}-", f"aotcuda-{version}.tar")):
            sys.exit(f"{name} is not of version {version}, which the tag {tag} names; set aotcuda/version.py first")
    if not re.search(rf"^## {re.escape(version)}\b", changelog, re.MULTILINE):
        sys.exit(f"CHANGELOG.md has no heading '## {version}'; run towncrier build --version {version}")
    if fragments:
        sys.exit(f"changes/{fragments[0].name} is not in CHANGELOG.md; run towncrier build --version {version}")


def notes(changelog: str, tag: str) -> str:
    """Return the changes of the version of `tag`, without its heading; exit if CHANGELOG has no such heading."""
    version = re.escape(tag.removeprefix("v"))
    match = re.search(rf"^## {version}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if match is None:
        sys.exit(f"CHANGELOG.md has no heading '## {tag.removeprefix('v')}'; run towncrier build --version VERSION")
    return match[1].strip()


def check_wheels(wheels: Sequence[Path], interpreter: str) -> list[Path]:
    """Install, check and remove each wheel in an empty environment. Return the wheels that the Python accepts."""
    accepted = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)  # not the checkout, where Python would find aotcuda
        python = folder / "environment" / "bin" / "python"
        run(interpreter, "-m", "venv", python.parents[1])
        pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
        for wheel in wheels:
            command = [str(part) for part in (*pip, "install", "--no-index", wheel)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if "is not a supported wheel on this platform" in done.stderr:
                continue
            if done.returncode:
                sys.exit(f"{wheel.name} cannot be installed by {interpreter}: {done.stderr.strip()}")
            say(f"{wheel.name}, {interpreter}")
            run(python, "-m", "aotcuda", "doctor", folder=folder)
            command = [str(part) for part in (python, "-m", "aotcuda", "doctor", "--json")]
            doctor = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=environment())
            check_fast_path(wheel, json.loads(doctor.stdout)["fast_path"]["why_not_c"])
            run(*pip, "uninstall", "--yes", "aotcuda")
            accepted.append(wheel)
    return accepted


def check_fast_path(wheel: Path, why_not_c: str | None) -> None:
    """Exit if the wheel has an extension that launches do not use."""
    if why_not_c is not None and not wheel.name.endswith("-any.whl"):
        sys.exit(f"{wheel.name} has an extension that is not in use, because {why_not_c}")


if __name__ == "__main__":
    main()
