#!/usr/bin/env python3
"""Run ruff and mypy in the tests' environment, where they see every package that the code imports."""

from __future__ import annotations

from environments import ROOT, check_machine, make, run, say


def main() -> None:
    """Make the environment and run the checks; the first that fails ends the script."""
    check_machine()
    say("The tests' environment, with ruff and mypy (1 GB on disk)")
    python = make("test", "--editable", f"{ROOT}[test,lint]")
    say("ruff")
    run(python, "-m", "ruff", "check", ".")
    run(python, "-m", "ruff", "format", "--check", ".")
    say("mypy")
    run(python, "-m", "mypy")


if __name__ == "__main__":
    main()
