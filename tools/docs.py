#!/usr/bin/env python3
"""Build the documentation's site into `docs/_build/html`; a warning is an error. Arguments go to Sphinx.

If Chromium or Chrome is installed, it then measures the pages at the width of a phone, light and dark. Text that is cut
off and cannot be scrolled to, also by keys, and text that is too faint to read, are errors.

`--links` follows the links to other sites instead, over the network, and prints broken ones.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from environments import ROOT, check_machine, make, run, say

SITE = ROOT / "docs" / "_build" / "html"
LINKS = SITE.with_name("links")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE = 360  # CSS pixels


def main() -> None:
    """Make the environment and run Sphinx in it."""
    check_machine()
    say("The documentation's environment (0.1 GB on disk)")
    python = make("docs", "--editable", f"{ROOT}[docs]")
    options = sys.argv[1:]
    if "--links" in options:
        options.remove("--links")
        say("sphinx: links to other sites")
        # Without -W: a page that moved is no error while its old address works.
        run(python, "-m", "sphinx", "-b", "linkcheck", "-q", *options, ROOT / "docs", LINKS)
        return
    say("sphinx")
    run(*command(python, *options))
    measure()
    say(f"the site is in {SITE / 'index.html'}")


def command(python: Path, *options: str) -> tuple[str | Path, ...]:
    """Return the command that builds the site with the Sphinx of an environment."""
    return (python, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", *options, ROOT / "docs", SITE)


def measure() -> None:
    """Measure the site's pages in a browser, if there is one; exit if pages have faults."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        say(f"none of {', '.join(BROWSERS)} is installed: the pages were not measured")
        return
    say(f"the pages in {browser}, {PHONE} pixels wide, light and dark")
    # Sphinx's pages with the sources of the API are as wide as the sources.
    pages = [str(path.relative_to(SITE)) for path in sorted(SITE.rglob("*.html")) if "_modules" not in path.parts]
    script = Path(__file__).with_name("site_looks.js").read_text(encoding="utf-8")
    call = f"measure({json.dumps(SITE.as_uri())}, {json.dumps(pages)}, {PHONE})"
    with tempfile.TemporaryDirectory(dir=SITE.parent) as folder:  # a browser in a sandbox may read no other folder
        frame = Path(folder, "frame.html")
        body = (
            f"<iframe width={PHONE} height=800 style='border:0'></iframe><pre></pre><script>{script}\n{call}</script>"
        )
        frame.write_text(f"<!doctype html><meta charset=utf-8><body style='margin:0'>{body}", encoding="utf-8")
        options = ["--headless", "--disable-gpu", "--allow-file-access-from-files", f"--user-data-dir={folder}/user"]
        if not os.geteuid():
            options.append("--no-sandbox")  # root has no sandbox, for example in a container
        command_line = [browser, *options, "--virtual-time-budget=600000", "--dump-dom", frame.as_uri()]
        try:
            done = subprocess.run(command_line, capture_output=True, text=True, check=False, timeout=600)
        except subprocess.TimeoutExpired:
            sys.exit(f"{browser} did not measure the pages within ten minutes")
    report = re.search(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)
    first, *faults = html.unescape(report[1]).splitlines() if report else [""]
    if first != f"{len(pages)} pages":
        sys.exit(f"{browser} did not measure the pages: {done.stderr.strip()[-500:]}")
    print("\n".join([first, *faults]))
    if faults:
        sys.exit("pages of the site cannot be read in full on a phone")


if __name__ == "__main__":
    main()
