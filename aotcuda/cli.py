"""The command line: reads arguments, calls the part that does the work, and turns errors into one line and a code.

Exit codes: 0 fine; 1 the thing asked about has a problem, said on standard error; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

import aotcuda
from aotcuda.errors import AotcudaError, ToolchainError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, or the process's own; returns the exit code."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse has printed the help, or what is wrong with the usage
        return int(stop.code or 0)
    try:
        status: int | None = arguments.run(arguments)
        sys.stdout.flush()
    except AotcudaError as error:
        if os.environ.get("AOTCUDA_DEBUG") == "1":
            traceback.print_exception(error)
        print(f"aotcuda: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of a pipe has seen enough; Python must not try to flush into it once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status or 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="aotcuda", description="Ship GPU code in ordinary wheels.")
    parser.add_argument("--version", action="version", version=f"aotcuda {aotcuda.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    inspect = commands.add_parser("inspect", help="show what a wheel, a module, a folder or a fatbin holds")
    inspect.add_argument(
        "target", metavar="TARGET", help="wheel, importable module or package, folder, fatbin or cubin"
    )
    form = inspect.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    form.add_argument("--header", action="store_true", help="print the C headers instead of a table")
    inspect.set_defaults(run=_inspect)

    build = commands.add_parser("build", help="build a project's modules without a wheel, for other build systems")
    build.add_argument("project", metavar="PROJECT", nargs="?", default=".", type=Path, help="folder of pyproject.toml")
    build.add_argument("--out", metavar="DIR", type=Path, help="where to write (default: PROJECT/build/aotcuda)")
    build.set_defaults(run=_build)

    config = commands.add_parser("config", help="flags for a C++ build that uses a module's device functions")
    config.add_argument("module", metavar="MODULE", help="importable module or package, or a folder")
    wanted = config.add_mutually_exclusive_group(required=True)
    for name, text in (
        ("includes", "where its header is: -I<folder>"),
        ("libs", "for nvcc, what to link"),
        ("files", "the same as plain paths"),
    ):
        wanted.add_argument(f"--{name}", dest="wanted", action="store_const", const=name, help=f"print {text}")
    config.set_defaults(run=_config)

    record = commands.add_parser(
        "record",
        help="run a command and write down the signatures of what it launches",
        usage="aotcuda record [-h] [--write] [--check] [--out FILE] -- COMMAND...",
    )
    record.add_argument("--write", action="store_true", help="merge them into pyproject.toml")
    record.add_argument("--check", action="store_true", help="exit with 1 if the tables lack one of them")
    record.add_argument("--out", metavar="FILE", type=Path, help="where runs add up (default: .aotcuda-record.json)")
    record.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="a program and its arguments")
    record.set_defaults(run=_record, usage=record.error)

    init = commands.add_parser("init", help="write the tables for a project's kernels, to be completed")
    init.add_argument("project", metavar="PROJECT", nargs="?", default=".", type=Path, help="folder of pyproject.toml")
    init.set_defaults(run=_init)

    cache = commands.add_parser("cache", help="what the JIT fallback compiled on this machine")
    actions = cache.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, text in (("dir", "print its folder"), ("list", "list its entries"), ("clear", "remove its entries")):
        action = actions.add_parser(name, help=text)
        action.set_defaults(run=_cache, action=name)
    return parser


def _inspect(arguments: argparse.Namespace) -> None:
    if arguments.header:
        from aotcuda.inspect.targets import headers  # noqa: PLC0415 (as below)

        print("\n".join(headers(arguments.target)), end="")
        return
    import json  # noqa: PLC0415 (here and below: a command loads what it needs, and no more)

    from aotcuda.inspect.collect import collect  # noqa: PLC0415
    from aotcuda.inspect.table import render  # noqa: PLC0415

    report = collect(arguments.target)
    print(json.dumps(report.json(), indent=2) if arguments.json else render(report))


def _config(arguments: argparse.Namespace) -> None:
    import shlex  # noqa: PLC0415

    from aotcuda.inspect import flags  # noqa: PLC0415

    print(shlex.join(getattr(flags, arguments.wanted)(arguments.module)))


def _build(arguments: argparse.Namespace) -> None:
    try:
        from aotcuda.build.api import build_project  # noqa: PLC0415
    except ImportError as error:
        message = f"building needs {error.name}, which is not installed; run: pip install 'aotcuda[cu13]'"
        raise ToolchainError(message) from error
    for path in build_project(arguments.project, arguments.out):
        print(path)


def _record(arguments: argparse.Namespace) -> int:
    from aotcuda.record.command import run  # noqa: PLC0415

    command = arguments.command[arguments.command[:1] == ["--"] :]
    if not command:
        arguments.usage("name the command to record, after --")
    return run(command, write=arguments.write, check=arguments.check, out=arguments.out)


def _init(arguments: argparse.Namespace) -> None:
    from aotcuda.record.init import run  # noqa: PLC0415

    run(arguments.project)


def _cache(arguments: argparse.Namespace) -> None:
    from aotcuda import listing  # noqa: PLC0415

    for line in getattr(listing, f"cache_{arguments.action}")():
        print(line)
