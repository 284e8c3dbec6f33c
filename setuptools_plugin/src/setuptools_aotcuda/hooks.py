"""Register the plugin with setuptools, which imports this module in every build, so it imports little."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from setuptools import Distribution


def finalize_distribution_options(distribution: Distribution) -> None:
    """Add the build step to a project whose pyproject.toml has `[tool.aotcuda]`; do not change other projects."""
    root = os.path.abspath(distribution.src_root or os.curdir)
    try:
        with open(os.path.join(root, "pyproject.toml"), "rb") as file:
            content = file.read()
    except OSError:
        return
    if b"aotcuda" not in content:
        return
    import tomllib

    try:
        pyproject = tomllib.loads(content.decode())
    except ValueError:  # setuptools reads it too, and reports the error
        return
    tools = pyproject.get("tool")
    if isinstance(tools, dict) and "aotcuda" in tools:
        from setuptools_aotcuda import commands

        commands.extend(distribution, root, pyproject)
