#!/usr/bin/env python3
"""Run ruff and mypy in the tests' environment, where they see every package that the code imports; zizmor; the site."""

from __future__ import annotations

from environments import ROOT, check_machine, make, run, say

import docs

RUN_TIME = [f"aotcuda/{name}" for name in ("__init__.py", "cache", "in_place", "interop", "manifest.py", "runtime")]


def main() -> None:
    """Make the environment and run the checks; the first that fails ends the script."""
    check_machine()
    say("The tests' environment, with ruff, mypy, zizmor and Sphinx (1 GB on disk)")
    python = make("test", "--editable", f"{ROOT}[test,lint,docs]")
    say("ruff")
    run(python, "-m", "ruff", "check", ".")
    run(python, "-m", "ruff", "format", "--check", ".")
    say("mypy")
    run(python, "-m", "mypy")
    # What other systems lack, the run time asks of aotcuda/system.py alone.
    run(python, "-m", "mypy", "--platform", "win32", *RUN_TIME)
    say("zizmor")
    run(python.with_name("zizmor"), "--offline", "--quiet", ROOT / ".github")
    docs.build(python)


if __name__ == "__main__":
    main()
