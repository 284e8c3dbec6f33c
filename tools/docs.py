#!/usr/bin/env python3
"""Build the documentation's site into `docs/_build/html`; a warning is an error. Arguments go to Sphinx.

`--links` follows the links to other sites instead, over the network, and says which lead nowhere.
"""

from __future__ import annotations

import sys

from environments import ROOT, check_machine, make, run, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

SITE = ROOT / "docs" / "_build" / "html"
LINKS = SITE.with_name("links")


def main() -> None:
    """Make the environment and run Sphinx in it."""
    check_machine()
    say("The documentation's environment (0.1 GB on disk)")
    python = make("docs", "--editable", f"{ROOT}[docs]")
    options = sys.argv[1:]
    if "--links" in options:
        options.remove("--links")
        say("sphinx: links to other sites")
        # Without -W: what moved to another address is told, and is no fault before the old one is gone.
        run(python, "-m", "sphinx", "-b", "linkcheck", "-q", *options, ROOT / "docs", LINKS)
        return
    build(python, *options)
    say(f"the site is in {SITE / 'index.html'}")


def build(python: Path, *options: str) -> None:
    """Build the site by the Sphinx of an environment."""
    say("sphinx")
    run(python, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", *options, ROOT / "docs", SITE)


if __name__ == "__main__":
    main()
