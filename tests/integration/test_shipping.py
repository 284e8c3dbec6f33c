"""Run the recipes of docs/shipping.md."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path

import pytest

from integration import projects
from integration.test_docs_run import blocks, written

PAGE = "docs/shipping.md"
WHY = "none: "
"""The beginning of the line that each recipe ends with: the copy in the wheel has no extension."""


def recipes() -> dict[str, str]:
    """Return the sections of the page with commands, by heading."""
    text = (projects.CHECKOUT / PAGE).read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    return {heading: body for heading, body in sections.items() if "```sh" in body or "```dockerfile" in body}


def commands(body: str, language: str) -> str:
    return "".join(re.findall(rf"^```{language}\n(.*?)^```$", body, re.MULTILINE | re.DOTALL))


def shell(body: str) -> str:
    return commands(body, "sh")


def container(body: str) -> str:
    """Return the RUN lines of the image, in a new environment in place of the image's Python."""
    lines = commands(body, "dockerfile").replace("/dist", "dist").splitlines()
    run = [line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")]
    return "\n".join(["python -m venv environment", *(f"environment/bin/{line}" for line in run)])


INSTALL = """
import asyncio, os, pathlib
from rattler import Channel, install, solve
from rattler.index import index_fs
from rattler_build import assemble_package

pathlib.Path("stub").mkdir()
pathlib.Path("stub", "stands-for-python").touch()
python = {"files_dir": "stub", "output_dir": "channel/noarch", "noarch": "generic"}
assemble_package("python", "3.12.0", "noarch", "0", **python)

async def main():
    await index_fs("channel")
    channel = Channel(pathlib.Path("channel").absolute().as_uri())
    records = await solve(sources=[channel], specs=["mypkg"], platforms=["noarch"], virtual_packages=[])
    await install(records, "prefix")

asyncio.run(main())
os._exit(0)  # threads of py-rattler may outlive the interpreter and abort the process
"""


def conda(body: str) -> str:
    """Return the page's commands, and an installation from the channel that they make."""
    Path("conda_package.py").write_text(commands(body, "python"))
    Path("install.py").write_text(INSTALL)
    proof = "import mypkg.kernels; print(mypkg.kernels.__aotcuda__.fast_path)"
    installed = f'PYTHONPATH=prefix/lib/python3.12/site-packages "$PLAIN" -S -c "{proof}"'
    install = "packer/bin/python -m pip install py-rattler\npacker/bin/python install.py"
    return f"{shell(body)}\n{install}\n{installed}"


RECIPES = {
    "PyPI": shell,
    "A private index": shell,
    "A container": container,
    "A site without a network": shell,
    "A conda channel": conda,
}


def test_every_recipe_of_the_page_has_a_test() -> None:
    assert list(recipes()) == list(RECIPES)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the README's project, with the key of this page."""
    project = written(tmp_path_factory.mktemp("shipping"), "README.md", "mypkg")
    config = project / "pyproject.toml"
    (key,) = blocks(PAGE, "toml")
    text = re.sub(r"^dependencies = .*\n", "", config.read_text(), flags=re.MULTILINE)
    config.write_text(text.replace("[tool.aotcuda]\n", key, 1))
    return projects.build_wheel(project)


@pytest.mark.matrix
@pytest.mark.parametrize("name", RECIPES)
def test_recipe_installs_a_package_that_imports(name, wheel, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / wheel.name).symlink_to(wheel)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = RECIPES[name](recipes()[name]).replace("8000", str(port))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    plain = sys.executable
    done = projects.succeed(tmp_path, "bash", "-euo", "pipefail", "-c", script, PATH=path, PLAIN=plain)
    assert done.out.splitlines()[-1].startswith(WHY), done.out
