#!/usr/bin/env python3
"""Run the checks: ruff, mypy, zizmor, schemas of what the forge reads, the files that CHANGELOG is made of, the site.

They run in the tests' environment, where mypy sees every package that the code imports.
"""

from __future__ import annotations

from environments import ROOT, check_machine, make, run, say

import docs

RUN_TIME = [f"aotcuda/{name}" for name in ("__init__.py", "cache", "common", "integrations", "manifest", "runtime")]

FORGE = {
    "dependabot": "dependabot.yml",
    "github-issue-config": "ISSUE_TEMPLATE/config.yml",
    "github-issue-forms": "ISSUE_TEMPLATE/[!c]*.yml",
    "github-workflows": "workflows/*.yml",
}


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
    # What other systems lack, the run time asks of aotcuda/common/system.py alone, and after forks of the driver.
    run(python, "-m", "mypy", "--platform", "win32", *RUN_TIME)
    say("zizmor")
    run(python.with_name("zizmor"), "--offline", "--quiet", ROOT / ".github")
    say("Workflows and forms by their schemas; fragments of CHANGELOG")
    check = (python.with_name("check-jsonschema"), "--quiet", "--builtin-schema")
    for kind, pattern in FORGE.items():
        run(*check, f"vendor.{kind}", *sorted((ROOT / ".github").glob(pattern)))
    run(python, "-m", "towncrier", "build", "--draft", "--version", "next")
    docs.build(python)


if __name__ == "__main__":
    main()
