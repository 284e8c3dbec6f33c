#!/usr/bin/env python3
"""Run the jobs of `.github/workflows` on this machine, each in a fresh clone of the last commit, and report them.

    python3 tools/workflows.py                                   # all jobs
    python3 tools/workflows.py docs.yml release.yml/gather       # all jobs of one workflow, and one job
    python3 tools/workflows.py --tag v1.2.3 --out JSON release.yml

The commands of a step run with the variables that the runner would set. The action checkout makes the clone,
setup-python looks for the versions on PATH, and artifacts are folders that jobs pass to each other. The other actions
belong to the forge (pages, attestations, the package index); the report lists them as not run. A job for another kind
of machine is not run either: `--made ubuntu-24.04-arm=FOLDER` names the folder with the files of that machine.

If the tag does not exist yet, the clone gets the commit that CONTRIBUTING says to tag. For tools that this machine
lacks, `--without WORDS` removes words from commands, and a variable with this name; the report lists them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from environments import ROOT, check_machine, environment, make, run, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

WORKFLOWS = ROOT / ".github" / "workflows"
PASSED, FAILED, FORGE, ELSEWHERE, AFTER = "passed", "failed", "the forge's", "another machine's", "after a failure"
ARCHITECTURE = {"-arm": "aarch64", "windows-latest": "Windows"}
"""The machine for each ending of a runner's name; other runners are x86_64."""


def main() -> None:
    """Run the jobs; exit with 1 if a step failed."""
    check_machine()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", metavar="WORKFLOW[/JOB]", nargs="*", help="the jobs to run (default: all)")
    parser.add_argument("--tag", default="v0.0.0", help="the tag that was pushed, for workflows that run for tags")
    parser.add_argument(
        "--made", metavar="ARTIFACT=FOLDER", action="append", default=[], help="files of another machine"
    )
    parser.add_argument("--without", metavar="WORDS", action="append", default=[], help="words to remove from commands")
    parser.add_argument("--out", metavar="JSON", type=Path, help="the file to write the results to")
    arguments = parser.parse_args()
    try:
        import yaml  # noqa: PLC0415 (in the environment that is made below)
    except ImportError:
        python = make("workflows", "pyyaml")
        os.execve(python, [str(python), *sys.argv], environment())  # noqa: S606 (no shell is wanted)

    with tempfile.TemporaryDirectory(prefix="aotcuda-workflows-") as name:
        runner = Runner(Path(name), arguments.tag, tuple(arguments.without))
        for option in arguments.made:
            artifact, _, folder = option.partition("=")
            shutil.copytree(folder, runner.artifacts / artifact)
        for path in sorted(WORKFLOWS.glob("*.yml")):
            jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
            for job, content in jobs.items():
                if not arguments.wanted or {path.name, f"{path.name}/{job}"} & {*arguments.wanted}:
                    runner.job(f"{path.name}/{job}", content)
    say("Jobs")
    for row in runner.rows:
        print(f"{row['job']:24} {row['outcome']:18} {row.get('seconds', ''):>7} {row['step']}")
    if arguments.out:
        # Jobs that were not run keep their earlier results: each step has its commit.
        before = json.loads(arguments.out.read_text(encoding="utf-8"))["steps"] if arguments.out.is_file() else []
        others = [row for row in before if row["job"] not in {new["job"] for new in runner.rows}]
        result = {
            "machine": platform.machine(),
            "python": platform.python_version(),
            "system": platform.platform(),
            "tag": arguments.tag,
            "without": arguments.without,
            "steps": sorted([*others, *runner.rows], key=lambda row: row["job"].partition("/")[0]),
        }
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(row["outcome"] in (FAILED, AFTER) for row in runner.rows))


class Runner:
    """A run of jobs.

    Attributes:
        artifacts: The folder with the artifacts of jobs.
        rows: The outcome of each step.
    """

    def __init__(self, folder: Path, tag: str, without: tuple[str, ...]) -> None:
        self._folder, self._tag, self._without = folder, tag, without
        self._commit = _git("rev-parse", "--short", "HEAD")
        self.artifacts = folder / "artifacts"
        self.artifacts.mkdir()
        self.rows: list[dict[str, Any]] = []

    def job(self, name: str, content: dict[str, Any]) -> None:
        """Run a job, once for each combination of its matrix."""
        for chosen in _combinations(content.get("strategy", {}).get("matrix", {})):
            values = {f"matrix.{key}": str(value) for key, value in chosen.items()}
            self._job(" ".join([name, *values.values()]), content, values)

    def _job(self, name: str, content: dict[str, Any], values: dict[str, str]) -> None:
        name_of_runner = _fill(content["runs-on"], values)
        machine = next((kind for end, kind in ARCHITECTURE.items() if name_of_runner.endswith(end)), "x86_64")
        say(name)
        place = self._folder / re.sub(r"\W+", "-", name)
        outcome = PASSED if machine == platform.machine() else ELSEWHERE
        state = {"PATH": os.environ["PATH"]}
        for step in content["steps"]:
            row = {"job": name, "step": step.get("run") or step["uses"].partition("@")[0], "commit": self._commit}
            self.rows.append(row)
            if outcome != PASSED:
                row["outcome"] = outcome if outcome == ELSEWHERE else AFTER
                continue
            started = time.monotonic()
            row["outcome"] = self._step(step, place, values, state)
            row["seconds"] = round(time.monotonic() - started, 1)
            if row["outcome"] == FAILED:
                outcome = FAILED

    def _step(self, step: dict[str, Any], place: Path, values: dict[str, str], state: dict[str, str]) -> str:
        inputs = {key: _fill(str(value), values) for key, value in step.get("with", {}).items()}
        action = step.get("uses", "").partition("@")[0]
        if "run" in step:
            return self._shell(step, place, values, state)
        if action == "actions/checkout":
            self._check_out(place)
        elif action == "actions/setup-python":
            return _set_up_python(inputs["python-version"].split(), place.with_name(f"{place.name}-bin"), state)
        elif action == "actions/upload-artifact":
            if not any((place / inputs["path"]).iterdir()):
                return FAILED
            shutil.copytree(place / inputs["path"], self.artifacts / inputs["name"], dirs_exist_ok=True)
        elif action == "actions/download-artifact":
            source = self.artifacts / inputs["name"] if "name" in inputs else self.artifacts
            shutil.copytree(source, place / inputs["path"], dirs_exist_ok=True)
        else:
            return FORGE
        return PASSED

    def _shell(self, step: dict[str, Any], place: Path, values: dict[str, str], state: dict[str, str]) -> str:
        text = _fill(step["run"], values)
        for words in self._without:
            text = text.replace(words, "")
        print(f"$ {text.strip()}", flush=True)
        items = [item for item in step.get("env", {}).items() if item[0] not in self._without]
        variables = {key: _fill(str(value), values) for key, value in items}
        fixed = {"CI": "true", "GITHUB_REF_NAME": self._tag, "GITHUB_REF": f"refs/tags/{self._tag}"}
        place.mkdir(exist_ok=True)
        done = subprocess.run(
            ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
            cwd=place,
            env=environment() | fixed | state | variables,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return FAILED if done.returncode else PASSED

    def _check_out(self, place: Path) -> None:
        run("git", "clone", "--quiet", "--no-hardlinks", ROOT, place)
        if _git("tag", "--list", self._tag):
            run("git", "checkout", "--quiet", self._tag, folder=place)
            return
        version = self._tag.removeprefix("v")
        (place / "aotcuda" / "version.py").write_text(_versioned(version), encoding="utf-8")
        towncrier = make("workflows", "pyyaml", "towncrier>=25.8").with_name("towncrier")
        run(towncrier, "build", "--yes", "--version", version, folder=place)
        author = ("-c", "user.name=aotcuda", "-c", "user.email=nobody@example.org")
        run("git", *author, "commit", "--quiet", "--all", "-m", version, folder=place)
        run("git", "tag", self._tag, folder=place)


def _combinations(matrix: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def _fill(text: str, values: dict[str, str]) -> str:
    """Return the text with the values of the matrix; exit if an expression is not supported."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            sys.exit(f"tools/workflows.py does not know the value of {match[0]}; add it to _fill")
        return values[match[1]]

    return re.sub(r"\$\{\{ *([\w.]+) *\}\}", value, text)


def _set_up_python(versions: list[str], folder: Path, state: dict[str, str]) -> str:
    """Put the versions first on PATH; the last version is `python3` and `python` too."""
    folder.mkdir()
    for version in versions:
        interpreter = shutil.which(f"python{version}")
        if interpreter is None:
            print(f"there is no python{version} on PATH", flush=True)
            continue
        for name in (f"python{version}", "python3", "python"):
            # A link would look for Python's library in its own folder, as an environment does.
            (folder / name).unlink(missing_ok=True)
            (folder / name).write_text(f'#!/bin/sh\nexec "{interpreter}" "$@"\n')
            (folder / name).chmod(0o755)
    if shutil.which(f"python{versions[-1]}") is None:
        return FAILED
    state["PATH"] = os.pathsep.join([str(folder), state["PATH"]])
    return PASSED


def _versioned(version: str) -> str:
    text = (ROOT / "aotcuda" / "version.py").read_text(encoding="utf-8")
    return re.sub(r'(__version__ = )".*"', rf'\1"{version}"', text)


def _git(*command: str) -> str:
    return subprocess.run(
        [shutil.which("git") or "git", *command], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
