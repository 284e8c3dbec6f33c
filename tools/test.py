#!/usr/bin/env python3
"""Run the tests in an environment of their own; arguments go to pytest, as in `python tools/test.py -k inspect -x`."""

from __future__ import annotations

import os
import sys

from environments import ROOT, check_machine, environment, make, say

# One process for each core; a file's tests stay together, since they share what they build.
PARALLEL = ("-n", "auto", "--dist", "loadfile")


def main() -> None:
    """Make the environment and become pytest in it: its last line and exit status are this script's."""
    check_machine()
    say("The tests' environment: the build side and pytest (1 GB on disk)")
    python = make("test", "--editable", f"{ROOT}[test]")
    say("pytest")
    os.chdir(ROOT)
    os.execve(python, [str(python), "-m", "pytest", *PARALLEL, *sys.argv[1:]], environment())  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main()
