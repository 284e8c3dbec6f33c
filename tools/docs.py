#!/usr/bin/env python3
"""Build the documentation's site into `docs/_build/html`; a warning is an error. Arguments go to Sphinx."""

from __future__ import annotations

import sys

from environments import ROOT, check_machine, make, run, say


def main() -> None:
    """Make the environment and run Sphinx in it."""
    check_machine()
    say("The documentation's environment (0.1 GB on disk)")
    python = make("docs", "--editable", f"{ROOT}[docs]")
    say("sphinx")
    options = ("-b", "html", "-W", "--keep-going", "-q", *sys.argv[1:])
    run(python, "-m", "sphinx", *options, ROOT / "docs", ROOT / "docs" / "_build" / "html")
    say(f"the site is in {ROOT / 'docs' / '_build' / 'html' / 'index.html'}")


if __name__ == "__main__":
    main()
