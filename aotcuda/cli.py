"""Parse the command line, call the tool, and turn errors into one line and an exit code.

Exit codes: 0 success; 1 a problem, reported on standard error; 2 wrong usage; 130 interrupted; 143 ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import io
import os
import signal
import sys
import traceback
from pathlib import Path

import aotcuda
from aotcuda.common import removed, suggest, system, variables
from aotcuda.common.foreign import escape, show
from aotcuda.errors import AotcudaError, TargetError, ToolchainError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


_NARROWEST = 60
"""The smallest width for wrapped text."""

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The errors of a full disk, of a quota, and of a limit for the size of files."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, by default the one of the process, and return the exit code."""
    _open_streams()
    _set_errors("backslashreplace")  # the encoding of a terminal may lack letters
    words = sys.argv[1:] if argv is None else argv
    if words and (problem := removed.command_problem(words[0])) is not None:
        print(f"aotcuda: {problem}", file=sys.stderr)
        return 2
    try:
        arguments = _parser().parse_args(words)
    except SystemExit as stop:  # argparse has printed the help or the error
        return int(stop.code or 0)
    try:
        if arguments.run is not _doctor:  # its report has wrong variables
            variables.check()
            for line in variables.misspelt():
                _warn(line)
        status: int | None = arguments.run(arguments)
        sys.stdout.flush()
    except AotcudaError as error:
        if os.environ.get("AOTCUDA_DEBUG") == "1":
            show("".join(traceback.format_exception(error)).rstrip(), sys.stderr)
        text = f"aotcuda: {error}"
        show(text if arguments.run is _build else escape(text), sys.stderr)
        return 1
    except MemoryError:
        print("aotcuda: there is not enough memory for this command", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        show(f"aotcuda: {stop if stop.args else 'interrupted'}", sys.stderr)
        return getattr(stop, "code", 128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of the pipe has ended
        _drop_output()
        return 1
    except OSError as error:
        if error.filename is None and error.errno == errno.ENOENT:  # from `tempfile`
            show(f"aotcuda: {error.strerror}; set TMPDIR to a folder that can be written", sys.stderr)
            return 1
        if error.filename is not None or error.errno not in _NO_SPACE:
            raise
        _drop_output()
        message = f"aotcuda: writing failed ({error.strerror}); free some space, or write to another folder"
        print(message, file=sys.stderr)
        return 1
    return status or 0


def _drop_output() -> None:
    """Redirect standard output to the null device, so that Python does not write to it again at exit."""
    with contextlib.suppress(OSError):  # the stream of an embedding program may be no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """Open missing standard streams; otherwise another file would get the number of a stream, and its output."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, descriptor == number)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (as Python opens its own)


class _Parser(argparse.ArgumentParser):
    """A parser that suggests the option or the command that was meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, rest = super().parse_known_args(args, namespace)
        options = [name for action in self._actions for name in action.option_strings]
        for word in rest:
            near = suggest.nearest(word.partition("=")[0], options) or _prefix(word, options)
            if word.startswith("-") and near:
                self.error(f"there is no option {word}; did you mean {near}?")
        return known, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = list(action.choices)
            hint = suggest.did_you_mean(str(value), choices, f"there are {', '.join(choices)}")
            raise argparse.ArgumentError(action, f"there is no {value!r}; {hint}")


def _prefix(word: str, options: list[str]) -> str | None:
    """Return the option with which a longer word begins: --output for --out."""
    return next((option for option in options if option.startswith("--") and word.startswith(option)), None)


_GROUPS = {
    "build and record": ("init", "record", "build"),
    "look": ("inspect", "check", "diff"),
    "use": ("doctor", "run", "cache"),
    "ship": ("split", "rebundle", "export"),
    "for build systems": ("config",),
}
"""The commands by the headings of `aotcuda --help`."""

_EXAMPLES = {
    "": "aotcuda inspect dist/*.whl",
    "init": "aotcuda init",
    "record": "aotcuda record --dry --gpu H100 --write -- python -m pytest tests",
    "build": "aotcuda build --out build/kernels",
    "inspect": "aotcuda inspect dist/*.whl --summary",
    "check": "aotcuda check dist/*.whl --require 'T4@580,H100@580'",
    "diff": "aotcuda diff mypkg-1.0-py3-none-any.whl dist/mypkg-1.1-py3-none-any.whl",
    "doctor": "aotcuda doctor",
    "run": "aotcuda run --packs fla_pack -- python train.py",
    "cache": "aotcuda cache list",
    "cache dir": "aotcuda cache dir",
    "cache list": "aotcuda cache list",
    "cache clear": "aotcuda cache clear",
    "cache warm": "aotcuda cache warm mypkg.kernels --arch sm_103",
    "split": "aotcuda split dist/mypkg-1.0-py3-none-any.whl",
    "rebundle": "aotcuda rebundle dist/mypkg-1.0-py3-none-any.whl",
    "export": "aotcuda export triton-cache --out triton-cache --gpu H100",
    "export triton-cache": "aotcuda export triton-cache --out triton-cache --gpu H100",
    "config": "aotcuda config --includes mypkg.kernels",
}
"""The last line of each `--help`."""


@functools.cache
def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="aotcuda", description="Ship GPU code in ordinary wheels.")
    parser.add_argument("--version", action="version", version=f"aotcuda {aotcuda.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, help=argparse.SUPPRESS)

    inspect = commands.add_parser("inspect", description="show the contents of a wheel, a module, a folder or a fatbin")
    inspect.add_argument(
        "target", metavar="TARGET", nargs="+", help="wheel, importable module or package, folder, fatbin or cubin"
    )
    form = inspect.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    form.add_argument("--header", action="store_true", help="print the C headers instead of a table")
    form.add_argument("--summary", action="store_true", help="print a line for each kernel, over all its targets")
    inspect.set_defaults(run=_inspect)

    _add_build(commands)

    check = commands.add_parser("check", description="show which code of a wheel or module each GPU and driver runs")
    check.add_argument("target", metavar="TARGET", nargs="+", help="wheel, importable module or package, or folder")
    check.add_argument("--gpu", metavar="NAME", help="show only this GPU: a name, or sm_XY")
    check.add_argument("--driver", metavar="VERSION", help="show only this driver: a version, or its CUDA version")
    check.add_argument("--require", metavar="LIST", help="fail unless images serve these: 'A100,H100,RTX 5090@525'")
    check.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    check.set_defaults(run=_check)

    diff = commands.add_parser(
        "diff", description="show the changes between two builds; fail if they break users of OLD"
    )
    for name, text in (("old", "the build that users have"), ("new", "the next build")):
        diff.add_argument(name, metavar=name.upper(), help=f"{text}: wheel, importable module or package, or folder")
    diff.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    diff.set_defaults(run=_diff)

    config = commands.add_parser(
        "config", description="print flags for a C++ build that uses a module's device functions"
    )
    config.add_argument("module", metavar="MODULE", nargs="?", help="importable module or package, or a folder")
    output = config.add_mutually_exclusive_group(required=True)
    for name, text in (
        ("includes", "the folder of the header: -I<folder>"),
        ("libs", "the flags for nvcc's device linker"),
        ("files", "the paths of the files to link"),
    ):
        output.add_argument(f"--{name}", dest="output", action="store_const", const=name, help=f"print {text}")
    output.add_argument("--cmakedir", action="store_true", help="print the folder of the CMake package; no MODULE")
    config.add_argument("--cuda", metavar="MAJOR", type=int, default=0, help="for a linker of this CUDA, 12 or 13")
    config.set_defaults(run=_config, usage=config.error)

    _add_record(commands)

    run = commands.add_parser(
        "run",
        description="run a command whose Triton kernels come from packs",
        usage="aotcuda run --packs NAMES -- COMMAND...",
    )
    run.add_argument("--packs", metavar="NAMES", default="", help="packs, by the names that they are imported by")
    run.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="a program and its arguments")
    run.set_defaults(run=_run, usage=run.error)

    init = commands.add_parser("init", description="write the tables for a project's kernels")
    init.add_argument("project", metavar="PROJECT", nargs="?", default=".", type=Path, help="folder of pyproject.toml")
    init.set_defaults(run=_init)

    doctor = commands.add_parser("doctor", description="show the state of this machine and installation")
    doctor.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    text = "compare an exported cache with this environment's Triton, and print nothing else"
    doctor.add_argument("--triton-cache", metavar="DIR", type=_folder, help=text)
    doctor.set_defaults(run=_doctor)

    _add_wheel_commands(commands)
    _add_export(
        commands.add_parser("export", description="write what a project's tables list for tools without aotcuda")
    )
    _add_cache(commands.add_parser("cache", description="manage the JIT cache and the build cache of this machine"))

    for (command, option), replacement in removed.OPTIONS.items():
        text = f"{option} was removed; {replacement}"
        commands.choices[command].add_argument(option, action=_Removed, nargs="?", help=argparse.SUPPRESS, const=text)
    _complete_help(parser, commands)
    return parser


def _complete_help(parser: argparse.ArgumentParser, commands: argparse._SubParsersAction[_Parser]) -> None:
    """Let the help list the commands under headings, and each help end with an example."""
    parser.usage = "aotcuda [-h] [--version] COMMAND ..."
    width = max(map(len, commands.choices)) + 2
    for heading, names in _GROUPS.items():
        lines = "\n".join(f"  {name:<{width}}{commands.choices[name].description}" for name in names)
        parser.epilog = f"{parser.epilog or ''}{heading}:\n{lines}\n\n"
    _end_with_example(parser, "")


def _end_with_example(parser: argparse.ArgumentParser, name: str) -> None:
    """Let the help of a parser, and of the parsers of its commands, end with an example."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"{parser.epilog or ''}example:\n  {_EXAMPLES[name]}"
    for action in parser._actions:  # noqa: SLF001 (argparse has no other list of its commands)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command, child in action.choices.items():
                _end_with_example(child, f"{name} {command}".strip())


class _Removed(argparse.Action):
    """End the command with one line about a removed option, which is `const`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Implement argparse.Action."""
        parser.exit(2, f"{parser.prog}: {self.const}\n")


def _add_wheel_commands(commands: argparse._SubParsersAction[_Parser]) -> None:
    rebundle = commands.add_parser("rebundle", description="replace the run time in a wheel by this aotcuda's")
    rebundle.add_argument("wheel", metavar="WHEEL", type=Path, help='a wheel that was built with runtime = "bundled"')
    rebundle.set_defaults(run=_rebundle)
    split = commands.add_parser("split", description="split a wheel into one for each architecture (experimental)")
    split.add_argument("wheel", metavar="WHEEL", type=Path, help="a wheel with machine code")
    text = "the folder for variants and providers (default: next to the wheel)"
    split.add_argument("--out", metavar="DIR", type=Path, help=text)
    split.set_defaults(run=_split)


def _add_export(export: argparse.ArgumentParser) -> None:
    actions = export.add_subparsers(title="forms", metavar="FORM", required=True)
    text = "fill a folder that Triton itself reads as TRITON_CACHE_DIR"
    cache = actions.add_parser("triton-cache", help=text, description=text)
    cache.add_argument("project", metavar="PROJECT", nargs="?", default=".", type=Path, help="folder of pyproject.toml")
    cache.add_argument("--out", metavar="DIR", required=True, type=_folder, help="the folder; entries are added to it")
    cache.add_argument("--at", metavar="PATH", help="where the folder will lie for Triton (default: DIR)")
    cache.add_argument("--gpu", metavar="NAME", help="the GPU whose timings of autotuners are exported")
    cache.set_defaults(run=_export_triton_cache)


def _add_cache(cache: argparse.ArgumentParser) -> None:
    actions = cache.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, text in (("dir", "print its folder"), ("list", "list its entries"), ("clear", "remove its entries")):
        action = actions.add_parser(name, help=text, description=text)
        action.set_defaults(run=_cache, action=name)
    text = "compile into the JIT cache for GPUs of other machines"
    warm = actions.add_parser("warm", help=text, description=text)
    warm.add_argument("module", metavar="MODULE", help="importable module or package that aotcuda built")
    warm.add_argument(
        "--arch", metavar="ARCH", nargs="+", action="extend", help="the targets, sm_XY (default: all that need it)"
    )
    warm.add_argument("--cuda", metavar="MAJOR", type=int, help="for drivers of this CUDA, 12 or 13")
    warm.set_defaults(run=_warm)


def _add_build(commands: argparse._SubParsersAction[_Parser]) -> None:
    build = commands.add_parser(
        "build", description="build a project's modules without a wheel, for other build systems"
    )
    build.add_argument("project", metavar="PROJECT", nargs="?", default=".", type=Path, help="folder of pyproject.toml")
    build.add_argument(
        "--out", metavar="DIR", type=_folder, help="the folder for the files (default: PROJECT/build/aotcuda)"
    )
    build.add_argument("--sbom", metavar="FILE", type=_file, help="write the bill of materials, as CycloneDX")
    build.add_argument("--depfile", metavar="FILE", type=_file, help="write the inputs as a rule for make or ninja")
    build.add_argument("--stamp", metavar="FILE", type=_file, help="touch FILE at the end; the target of --depfile")
    shared = build.add_mutually_exclusive_group()
    shared.add_argument(
        "--shard", metavar="I/N", type=_shard, help="compile part I of N into the build cache, and write nothing else"
    )
    shared.add_argument(
        "--from-cache-only", action="store_true", help="compile nothing: fail unless shards have filled the build cache"
    )
    build.add_argument("--costs", metavar="FILE", type=Path, help="with --shard: divide by an earlier build's --report")
    build.add_argument("--report", metavar="FILE", type=_file, help="write seconds and bytes of each kernel, as JSON")
    output = build.add_mutually_exclusive_group()
    output.add_argument("-q", "--quiet", action="store_true", help="print no paths and no summary")
    output.add_argument("-v", "--verbose", action="store_true", help="print the slowest steps too")
    build.set_defaults(run=_build)


def _inspect(arguments: argparse.Namespace) -> None:
    if arguments.header:
        from aotcuda.binary.targets import headers  # noqa: PLC0415 (as below)

        print("\n".join(header for target in arguments.target for header in headers(target)), end="")
        return
    import json  # noqa: PLC0415 (here and below: each command imports only the modules that it needs)

    from aotcuda.tools.inspect import summary, table  # noqa: PLC0415
    from aotcuda.tools.inspect.collect import collect  # noqa: PLC0415
    from aotcuda.tools.inspect.report import Report  # noqa: PLC0415

    modules = tuple(module for target in arguments.target for module in collect(target).modules)
    report = Report(modules=modules)
    if not arguments.json:
        width = _columns()
        if arguments.summary:
            show(summary.render(report, width=width))
        else:
            show(table.render(report, width or table.WIDTH))
        return
    for part in json.JSONEncoder(indent=2).iterencode(report.json()):
        sys.stdout.write(part)
    print()


def _columns() -> int | None:
    """Return the width of the terminal; None if standard output is no terminal."""
    if not sys.stdout.isatty():
        return None
    import shutil  # noqa: PLC0415 (as above)

    return max(shutil.get_terminal_size((100, 24)).columns, _NARROWEST)


def _set_errors(errors: str) -> None:
    """Set the treatment of characters that standard output and error cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an embedding program may use another class
            stream.reconfigure(errors=errors)


def _check(arguments: argparse.Namespace) -> None:
    import json  # noqa: PLC0415

    from aotcuda.tools.check import check, table  # noqa: PLC0415

    report = check.check(*arguments.target, gpu=arguments.gpu, driver=arguments.driver, require=arguments.require)
    show(json.dumps(report.json(), indent=2) if arguments.json else table.render(report))
    _fail_if(report.problem())


def _diff(arguments: argparse.Namespace) -> None:
    import json  # noqa: PLC0415

    from aotcuda.tools import diff  # noqa: PLC0415

    changes = diff.compare(diff.read(arguments.old), diff.read(arguments.new))
    show(json.dumps(diff.as_json(changes), indent=2) if arguments.json else diff.render(changes))
    _fail_if(diff.problem(changes))


def _fail_if(problem: str | None) -> None:
    """Raise TargetError if there is a problem, after the output."""
    if problem is not None:
        sys.stdout.flush()
        raise TargetError(problem)


def _config(arguments: argparse.Namespace) -> None:
    import shlex  # noqa: PLC0415

    from aotcuda.tools.inspect import flags  # noqa: PLC0415

    if arguments.cmakedir != (arguments.module is None):
        arguments.usage("name MODULE, or pass --cmakedir")
    if arguments.cmakedir:
        from aotcuda.builder import cmake  # noqa: PLC0415

        print(cmake.FOLDER)
        return
    cuda = () if arguments.output == "includes" else (arguments.cuda,)
    line = shlex.join(getattr(flags, arguments.output)(arguments.module, *cuda))
    _set_errors("surrogateescape")  # a path may be no valid text
    print(line)


def _build(arguments: argparse.Namespace) -> None:
    from aotcuda.builder.compile import interrupt  # noqa: PLC0415

    with interrupt.raise_interrupts():
        try:
            from aotcuda.builder.entry.build_command import build_project  # noqa: PLC0415
        except ImportError as error:
            from aotcuda import registry  # noqa: PLC0415

            requirement = registry.requirement(registry.DEFAULT)
            message = f"building needs compilers, which are not installed ({error}); run: pip install {requirement!r}"
            raise ToolchainError(message) from error
        written = build_project(
            arguments.project,
            arguments.out,
            _warn,
            bill=arguments.sbom,
            depfile=arguments.depfile,
            stamp=arguments.stamp,
            quiet=arguments.quiet,
            verbose=arguments.verbose,
            shard=arguments.shard,
            from_cache_only=arguments.from_cache_only,
            costs=arguments.costs,
            report_file=arguments.report,
        )
    for path in () if arguments.quiet else written:
        show(escape(path))


def _shard(text: str) -> tuple[int, int]:
    """Return the number of a shard and the number of all shards."""
    from aotcuda.builder.shards import MOST_SHARDS  # noqa: PLC0415 (only builds need the builder)

    index, _, count = text.partition("/")
    numbers = [
        int(part) if part.isascii() and part.isdecimal() and len(part) <= len(str(MOST_SHARDS)) else 0
        for part in (index, count)
    ]
    if not 1 <= numbers[0] <= numbers[1] <= MOST_SHARDS:
        last = numbers[1] if 1 <= numbers[1] <= MOST_SHARDS else "N"
        most = f", and N at most {MOST_SHARDS:,}" if last == "N" else ""
        message = f"{text!r} is no shard; write I/{last} with I from 1 to {last}{most}"
        raise argparse.ArgumentTypeError(message)
    return numbers[0], numbers[1]


def _file(text: str) -> Path:
    """Return the path of an output file."""
    path = Path(text)
    if not path.name or os.path.isdir(path):  # noqa: PTH112 (pathlib raises where a name is too long)
        message = f"{text!r} is no path of a file"
        raise argparse.ArgumentTypeError(message)
    return path


def _add_record(commands: Any) -> None:
    record = commands.add_parser(
        "record",
        description="run a command and record the signatures of its launches",
        usage="aotcuda record [-h] [--write] [--check] [--out FILE] [--packages NAMES] "
        "[--dry [--gpu NAMES]] -- COMMAND...\n"
        "       aotcuda record [--out FILE] [--packages NAMES] --merge FILE...",
    )
    record.add_argument("--write", action="store_true", help="merge signatures into pyproject.toml and variants files")
    record.add_argument("--check", action="store_true", help="exit with 1 if the tables lack one of them")
    record.add_argument(
        "--dry", action="store_true", default=None, help="execute no launch; the default where there is no GPU"
    )
    text = "the GPUs for --dry, with commas; the command runs once for each (default: the first of arch)"
    record.add_argument("--gpu", metavar="NAMES", default="", help=text)
    record.add_argument(
        "--packages",
        metavar="NAMES",
        default="",
        help="record Triton kernels of these installed packages, too, for a pack: fla,liger_kernel",
    )
    record.add_argument("--out", metavar="FILE", type=_file, help="add the run to FILE (default: .aotcuda-record.json)")
    record.add_argument(
        "--merge",
        metavar="FILE",
        nargs="+",
        action="extend",
        type=_file,
        help="merge records, variants files and tuning files of other machines",
    )
    record.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="a program and its arguments")
    record.set_defaults(run=_record, usage=record.error)


def _folder(text: str) -> Path:
    """Return the path of an output folder; refuse an empty name, for example from an unset variable."""
    if not text:
        message = f"{text!r} is no path of a folder"
        raise argparse.ArgumentTypeError(message)
    return Path(text)


def _warn(text: str) -> None:
    show(f"aotcuda: {text}", sys.stderr)


def _record(arguments: argparse.Namespace) -> int:
    if (problem := system.why_not("records launches")) is not None:
        raise AotcudaError(problem)
    from aotcuda.tools.record.command import merge, run  # noqa: PLC0415

    command = arguments.command[arguments.command[:1] == ["--"] :]
    if arguments.merge:
        if command:
            arguments.usage("--merge merges files and runs no command; give either files or a command")
        merge(arguments.merge, out=arguments.out, packages=_names(arguments.packages))
        return 0
    if not command:
        arguments.usage("name the command to record, after --")
    return run(
        command,
        write=arguments.write,
        check=arguments.check,
        out=arguments.out,
        dry=arguments.dry,
        gpus=_names(arguments.gpu),
        packages=_names(arguments.packages),
    )


def _names(text: str) -> list[str]:
    """Return the names in a list with commas."""
    return [name for item in text.split(",") if (name := item.strip())]


def _run(arguments: argparse.Namespace) -> int:
    from aotcuda.tools import run  # noqa: PLC0415

    command = arguments.command[arguments.command[:1] == ["--"] :]
    if not command or not _names(arguments.packs):
        arguments.usage("name the packs with --packs, and the command after --")
    return run.run(command, _names(arguments.packs))


def _split(arguments: argparse.Namespace) -> None:
    from aotcuda.tools.split import split  # noqa: PLC0415

    for path in split.run(arguments.wheel, arguments.out):
        show(str(path))


def _rebundle(arguments: argparse.Namespace) -> None:
    from aotcuda.tools import rebundle  # noqa: PLC0415

    for line in rebundle.run(arguments.wheel):
        show(line)


def _export_triton_cache(arguments: argparse.Namespace) -> None:
    from aotcuda.tools.export import command  # noqa: PLC0415

    for line in command.run(arguments.project, arguments.out, at=arguments.at, gpu=arguments.gpu):
        show(escape(line))
        sys.stdout.flush()


def _init(arguments: argparse.Namespace) -> None:
    from aotcuda.tools.init import run  # noqa: PLC0415

    run(arguments.project)


def _doctor(arguments: argparse.Namespace) -> None:
    import json  # noqa: PLC0415

    if arguments.triton_cache is not None:
        from aotcuda.tools.export import check  # noqa: PLC0415

        findings = check.compare(arguments.triton_cache)
        show(json.dumps(findings, indent=2) if arguments.json else check.render(findings))
        _fail_if(check.problem(findings))
        return
    from aotcuda.tools import doctor  # noqa: PLC0415

    report = doctor.examine()
    show(json.dumps(report, indent=2) if arguments.json else doctor.render(report))


def _warm(arguments: argparse.Namespace) -> None:
    from aotcuda.tools.cache import warming  # noqa: PLC0415

    for line in warming.warm(arguments.module, arguments.arch, arguments.cuda):
        show(escape(line))
        sys.stdout.flush()


def _cache(arguments: argparse.Namespace) -> None:
    from aotcuda.tools.cache import listing  # noqa: PLC0415

    for line in getattr(listing, f"cache_{arguments.action}")():
        show(escape(line))
