"""Run the recipes of docs/many-machines.md for a GitHub matrix and for a Slurm array, with unchanged commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from integration import projects

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (projects.CHECKOUT / "docs" / "many-machines.md").read_text(encoding="utf-8")
SRUN = """\
#!/bin/sh
# Slurm's srun: run a command once.
while case $1 in --*) true ;; *) false ;; esac; do shift; done
exec "$@"
"""
SBCAST = """\
#!/bin/sh
# Slurm's sbcast: copy a file.
exec cp "$2" "$3"
"""
SBATCH = """\
#!/bin/sh
# Slurm's sbatch: run the tasks of an array one after the other, and print a number.
for given in "$@"; do
    case $given in --array=*) last=${given##*-} ;; --*) ;; *) command=$given ;; esac
done
for task in $(seq ${last:-1}); do
    SLURM_ARRAY_TASK_ID=$task sh -ec "$command" >&2 || exit 1
done
echo 7
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = [f"k{number}" for number in range(9)]
    source = "from numba import cuda\n" + "".join(
        f"\n\n@cuda.jit\ndef {name}(x):\n    x[cuda.grid(1)] = {number}\n" for number, name in enumerate(names)
    )
    kernels = "".join(f'kernels.{name} = "void(float32[::1])"\n' for name in names)
    folder = tmp_path_factory.mktemp("recipes").resolve() / "project"
    return projects.write(folder, source, module=kernels, aotcuda='arch = ["sm_80", "sm_90"]')


@pytest.fixture(scope="module")
def expected(project: Path) -> dict[str, bytes]:
    return projects.content(projects.build_wheel(project))


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """Return the environment of the commands: programs of this environment, and the `sbatch` above."""
    (tmp_path / "bin").mkdir()
    for name, text in {
        "sbatch": SBATCH,
        "sbcast": SBCAST,
        "srun": SRUN,
        "aotcuda": f'#!/bin/sh\nexec {sys.executable} -m aotcuda "$@"\n',
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
    }.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "HOME": str(tmp_path), "AOTCUDA_PROGRESS": "0"}


def run(command: str, folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["sh", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def checked_out(project: Path, folder: Path) -> Path:
    return shutil.copytree(project, folder, ignore=shutil.ignore_patterns("dist"))


def wheel_in(folder: Path) -> dict[str, bytes]:
    (wheel,) = (folder / "dist").glob("*.whl")
    return projects.content(wheel)


@pytest.mark.matrix
def test_github_matrix_makes_the_wheel_of_one_build(
    project: Path, expected: dict[str, bytes], shell: dict[str, str], tmp_path: Path
) -> None:
    (workflow,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    of_shard, of_wheel = (part.group(1) for part in re.finditer(r"^  \w+:\n((?:    .*\n)+)", workflow, re.MULTILINE))
    commands = [re.findall(r"- run: ((?!python -m pip).*)", part) for part in (of_shard, of_wheel)]
    assert list(map(len, commands)) == [1, 1]
    cache = re.search(r"AOTCUDA_BUILD_CACHE: (.*)", workflow)[1]
    assert of_shard.count(f"path: {cache}") == of_wheel.count(f"path: {cache}") == 1
    shards = re.search(r"shard: \[(.*)\]", of_shard)[1].split(", ")
    joined = tmp_path / "joined"
    for shard in shards:
        machine = tmp_path / f"machine{shard}"
        environment = {**shell, "AOTCUDA_BUILD_CACHE": str(machine / "cache")}
        run(
            commands[0][0].replace("${{ matrix.shard }}", shard), checked_out(project, machine / "project"), environment
        )
        for path in (machine / "cache").rglob("*"):  # artifacts are archives without file modes
            if path.is_file():
                target = joined / path.relative_to(machine / "cache")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    last = checked_out(project, tmp_path / "last" / "project")
    run(commands[1][0], last, {**shell, "AOTCUDA_BUILD_CACHE": str(joined)})
    assert wheel_in(last) == expected


@pytest.mark.matrix
def test_slurm_array_makes_the_wheel_of_one_build(
    project: Path, expected: dict[str, bytes], shell: dict[str, str], tmp_path: Path
) -> None:
    folder = checked_out(project, tmp_path / "project")
    (script,) = (text for text in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) if "sbatch" in text)
    run(script, folder, shell)
    assert wheel_in(folder) == expected


@pytest.mark.matrix
def test_each_node_imports_from_its_own_copy(project: Path, shell: dict[str, str], tmp_path: Path) -> None:
    wheel = projects.build_wheel(project)
    site = tmp_path / "site"
    projects.unpacked(wheel, site)
    shutil.copytree(projects.CHECKOUT / "aotcuda", site / "aotcuda")
    (module,) = {path.parent.name for path in site.glob("*/*.aotcuda")}
    (script,) = (text for text in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) if "sbcast" in text)
    install, *commands = script.replace("/tmp/", f"{tmp_path}/node/").replace("mypkg", module).splitlines()
    assert install.startswith("python -m pip install --target site ")
    (tmp_path / "node").mkdir()
    kernels = next(path.stem for path in (site / module).glob("*.aotcuda"))
    for command in commands:
        run(command.replace(".kernels", f".{kernels}"), tmp_path, shell)
    assert (tmp_path / "node" / "site" / module).is_dir()
