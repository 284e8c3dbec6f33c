#!/usr/bin/env python3
"""Compare docs/ci.md with a run of its commands, part by part, with the quickstart as the project.

    python tools/ci_pages.py [--out FILE]

Steps that only GitHub or an image builder can do (`uses:`, `FROM`, `CMD`) are skipped. `COPY` copies. A temporary
folder replaces the root of an image, also in the commands. The part without a network has no index and, if the machine
allows it, a namespace without a network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import machine  # noqa: E402

PAGE = ROOT / "docs" / "ci.md"
IMAGE_FOLDERS = ("/project", "/wheels", "/dist")


def blocks(text: str, language: str) -> list[str]:
    """Return the page's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(text: str) -> dict[str, list[str]]:
    """Return the commands of each part of the page."""
    (workflow,), (image,) = blocks(text, "yaml"), blocks(text, "dockerfile")
    collect, build, use = blocks(text, "sh")
    runs = re.findall(r"^RUN (?:--mount=\S+ )*(.*)$", image, re.MULTILINE)
    return {
        "GitHub Actions": re.findall(r"^ +- run: (.*)$", workflow, re.MULTILINE),
        "Image, build": runs[:1],
        "Image": runs[1:],
        "With a network": collect.splitlines(),
        "Without a network": [*build.splitlines(), *use.splitlines()],
    }


class Part:
    """A part of the page.

    Attributes:
        results: The commands that were run, each with its exit status.
    """

    def __init__(self, name: str, folder: Path, environment: Path, variables: dict[str, str], *, offline: bool) -> None:
        venv.create(environment, with_pip=True, symlinks=True)
        self.name = name
        self.results: list[dict[str, Any]] = []
        self._folder = folder
        self._prefix = ["unshare", "--map-root-user", "--net"] if offline and _can_unshare() else []
        inherited = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
        path = f"{environment / 'bin'}{os.pathsep}{inherited['PATH']}"
        self._variables = {**inherited, "PATH": path, **variables}
        if offline:
            self._variables |= {"PIP_CONFIG_FILE": os.devnull, "UV_OFFLINE": "1"}

    def run(self, command: str, replacement: str | None = None) -> None:
        """Run a command of the page, or `given` in its place."""
        begin = time.monotonic()
        done = subprocess.run(
            [*self._prefix, "bash", "-ec", replacement or command],
            cwd=self._folder,
            env=self._variables,
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{self.name}: {command}: {done.returncode}", flush=True)
        if done.returncode:
            sys.exit(f"{done.stdout}\n{done.stderr}")
        self.results.append(
            {
                "part": self.name,
                "command": command,
                "status": done.returncode,
                "seconds": round(time.monotonic() - begin, 1),
                **({"network": "none"} if self._prefix else {}),
            }
        )


def main() -> None:
    """Run the commands of each part, and write their exit status."""
    arguments = machine.parser(__doc__, "ci_pages").parse_args()
    here = {key: value for key, value in machine.describe().items() if key != "packages"}
    page = commands(PAGE.read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheels = folder / "own" / "wheels"
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT]
        subprocess.run(list(map(str, pip)), check=True)
        results = [*_workflow(folder, page, wheels), *_image(folder, page, wheels), *_offline(folder, page, wheels)]
    machine.write(arguments.out, here, commands=results)


def _project(folder: Path, wheels: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "quickstart", folder, ignore=shutil.ignore_patterns("dist", "__pycache__"))
    shutil.copytree(wheels, folder / "wheels")
    return folder


def _workflow(folder: Path, page: dict[str, list[str]], wheels: Path) -> list[dict[str, Any]]:
    project = _project(folder / "workflow", wheels)
    links = f"{os.environ.get('PIP_FIND_LINKS', '')} {project / 'wheels'}".strip()
    part = Part("GitHub Actions", project, folder / "runner", {"PIP_FIND_LINKS": links}, offline=False)
    for command in page["GitHub Actions"]:
        part.run(command)
    return part.results


def _image(folder: Path, page: dict[str, list[str]], wheels: Path) -> list[dict[str, Any]]:
    image = folder / "image"
    _project(image / "project", wheels)
    shutil.copytree(wheels, image / "wheels")
    results = []
    for name in ("Image, build", "Image"):
        part = Part(name, image, folder / name.replace(", ", "-"), {}, offline=False)
        for command in page[name]:
            pattern = "|".join(map(re.escape, IMAGE_FOLDERS))
            local = re.sub(rf"(?<![\w/])({pattern})\b", lambda match: f"{image}{match[1]}", command)
            links = f"PIP_FIND_LINKS='{os.environ.get('PIP_FIND_LINKS', '')} {image}/wheels'"
            part.run(command, local.replace(f"PIP_FIND_LINKS={image}/wheels", links))
        results += part.results
    return results


def _offline(folder: Path, page: dict[str, list[str]], wheels: Path) -> list[dict[str, Any]]:
    project = _project(folder / "offline", wheels)
    before = Part("With a network", project, folder / "connected", {}, offline=False)
    for command in page["With a network"]:
        before.run(command)
    shutil.rmtree(project / "wheels")
    part = Part("Without a network", project, folder / "isolated", {}, offline=True)
    for command in page["Without a network"]:
        part.run(command)
    return [*before.results, *part.results]


def _can_unshare() -> bool:
    unshare = shutil.which("unshare")
    command = [unshare or "", "--map-root-user", "--net", "true"]
    return unshare is not None and not subprocess.run(command, check=False, capture_output=True).returncode


if __name__ == "__main__":
    main()
