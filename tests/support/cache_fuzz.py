"""Random projects and random edits of them, to hold builds with the build cache against builds without it.

A project has some modules of one kernel each, of any front end. A kernel stores a number, which reaches it by a chain
of ways: functions, classes, other modules, data files, variables, sources of CUDA C++. Each way adds a number that
stands nowhere else in the project, so an edit is another number in the place of one, or the one that stood there
before; or a comment, which is none. What a build gives after an edit has to be the same with the cache and without.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aotcuda.builder import api
from aotcuda.errors import AotcudaError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Sequence

NUMBA = "numba-cuda"
IN_PLACE = "in place"
HEADS = {
    NUMBA: "from numba import cuda\n",
    IN_PLACE: "from aotcuda.numba import cuda\n",
    "numba-cuda-mlir": "from numba_cuda_mlir import cuda\n",
    "triton": "import triton\nimport triton.language as tl\n",
    "cuda-cpp": "",
}
"""By front end, how its modules begin; those that are packaged in place are Numba's."""

_TABLES = {
    NUMBA: 'kernels.k = "void(float32[::1])"',
    IN_PLACE: 'kernels.k = "void(float32[::1])"',
    "numba-cuda-mlir": 'kernels.k = "void(float32[::1])"',
    "triton": 'kernels.k = { signature = "*fp32", specialise = "exact", constexprs = { BLOCK = 32 } }',
    "cuda-cpp": "kernels.k<i> = {}",
}
"""What the table has of a module, if its use does not say."""

_FIRST = 10_000
_COMMENTS = 0.2
_BACK = 0.3
_MARKS = {".py": "#", ".cu": "//", ".h": "//", ".inc": "//", ".toml": "#"}
"""How a comment begins in files of each kind."""

PYPROJECT = "pyproject.toml"

_WAYS = Path(__file__).parents[1] / "data" / "ways_to_kernels.txt"


def _templates(kind: str) -> dict[str, str]:
    found = {}
    for part in _WAYS.read_text(encoding="utf-8").split("\n=== ")[1:]:
        head, _, text = part.partition("\n")
        if head.startswith(f"{kind}: "):
            found[head.removeprefix(f"{kind}: ")] = text.rstrip("\n")
    return found


WAYS = _templates("way")
# What is said in Numba's own modules others say otherwise; what goes out of a module in place are kernels alone.
_COMMON = {name: text for name, text in _templates("use").items() if "numba" not in text}
USES = {
    NUMBA: _templates("use"),
    IN_PLACE: {name: text for name, text in _COMMON.items() if "functions" not in text},
    "numba-cuda-mlir": _COMMON,
    "triton": _templates("use of triton"),
    "cuda-cpp": _templates("use of cuda-cpp"),
}


class Edit(NamedTuple):
    """A file, or a variable as `NAME=`, and what it has from then on."""

    name: str
    content: str
    what: str


@dataclass(slots=True)
class Project:
    """A project that is made up.

    Attributes:
        files: Texts by their paths.
        variables: Variables of the environment.
        ways: How each module's kernel comes to its number.
        numbers: The numbers that can be edited, with the file that each stands in.
        earlier: What stood in the place of each before it was edited, or 0.
    """

    files: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    ways: dict[str, list[str]] = field(default_factory=dict)
    numbers: list[tuple[str, int]] = field(default_factory=list)
    earlier: list[int] = field(default_factory=list)
    _next: int = _FIRST

    def add(self, module: int, names: Sequence[str], use: str, front_end: str = NUMBA) -> None:
        """Add a module of one kernel, whose number comes by the ways of these names."""
        last = module * 100 + 99
        here = f"_k{module}"
        file, source = f"pkg/{here}.py", f"pkg.{here}"
        if front_end == "cuda-cpp":
            file = source = f"csrc/k{last}.cu"
        made = source if front_end == IN_PLACE else f"pkg.k{module}"
        self.ways[made] = [*names, f"{use} ({front_end})"]
        parts = [HEADS[front_end]]
        expression = "1"
        for at, way in enumerate(names):
            number = module * 100 + at
            parts.append(self._part(WAYS[way], here, expression, number, file)[0])
            expression = f"V{number}"
        own, table, tables = self._part(USES[front_end][use], here, expression, last, file)
        self.files[file] = "".join([*parts, own])
        table = table or _TABLES[front_end].replace("<i>", str(last))
        if not table.startswith("source = "):
            table = f'source = "{source}"\n{table}'
        head = f'[tool.aotcuda.modules."{made}"]\nfrontend = "{NUMBA if front_end == IN_PLACE else front_end}"\n'
        self.files[PYPROJECT] = f"{self.files[PYPROJECT]}{head}{table}\n{tables}"

    def _part(self, template: str, here: str, expression: str, number: int, file: str) -> tuple[str, str, str]:
        """What stands in the module, in its table and behind that, with the other files put where they belong."""
        own, *others = template.split("\n--- ")
        values = {"<e>": expression, "<i>": str(number), "<here>": here}
        tables = {"table": "", "tables": ""}
        for other in others:
            name, _, text = other.partition("\n")
            name = name.replace("<i>", str(number))
            if name in tables:
                tables[name] = self._filled(text, PYPROJECT, values)
            else:
                self._put(name, self._filled(text, name, values))
        return self._filled(own, file, values), tables["table"], tables["tables"]

    def _put(self, name: str, text: str) -> None:
        if name.endswith("="):
            self.variables[name[:-1]] = text.strip()
        else:
            self.files[name] = text

    def _filled(self, text: str, file: str, values: dict[str, str]) -> str:
        for mark in ("<n>", "<m>"):
            if mark in text:
                self.numbers.append((file, self._next))
                self.earlier.append(0)
                text = text.replace(mark, str(self._next))
                self._next += 1
        for mark, value in values.items():
            text = text.replace(mark, value)
        return f"{text}\n"

    def every_number(self) -> Iterator[list[Edit]]:
        """An edit of each number, one after the other."""
        for at in range(len(self.numbers)):
            yield [self._edit(at)]

    def _edit(self, at: int, *, back: bool = False) -> Edit:
        name, old = self.numbers[at]
        new = self.earlier[at] if back else 0
        if not new:
            new = self._next
            self._next += 1
        self.numbers[at], self.earlier[at] = (name, new), old
        text = self.variables[name[:-1]] if name.endswith("=") else self.files[name]
        edit = Edit(name, text.replace(str(old), str(new)), f"{name}: {old} -> {new}")
        self._put(edit.name, edit.content)
        return edit

    def edits(self, rng: random.Random, count: int) -> list[Edit]:
        """Make so many edits, one of five in a place where it means nothing."""
        found = []
        for _ in range(count):
            if rng.random() < _COMMENTS:
                name = rng.choice([name for name in self.files if Path(name).suffix in _MARKS])
                mark = _MARKS[Path(name).suffix]
                found.append(Edit(name, f"{mark} {rng.random()}\n{self.files[name]}", f"{name}: a comment"))
                self._put(name, found[-1].content)
            else:
                found.append(self._edit(rng.randrange(len(self.numbers)), back=rng.random() < _BACK))
        return found

    def write(self, root: Path, names: list[str] | None = None) -> None:
        """Write its files, or those of the names, and set its variables."""
        for name, text in self.files.items():
            if names is None or name in names:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
        os.environ.update(self.variables)

    def forget(self) -> None:
        """Take its variables out of the environment."""
        for name in self.variables:
            del os.environ[name]


def drawn(rng: random.Random, modules: int, longest: int = 3, front_ends: Sequence[str] = (NUMBA,)) -> Project:
    """A project of so many modules of these front ends, with up to so many ways each."""
    ways = list(WAYS)
    parts = []
    for _ in range(modules):
        front_end = rng.choice(front_ends)
        names = rng.choices(ways, k=rng.randint(1, longest)) if front_end != "cuda-cpp" else []
        parts.append((names, rng.choice(list(USES[front_end])), front_end))
    return project(parts)


def each(front_ends: Iterable[str] = (NUMBA,)) -> Iterator[tuple[str, Project]]:
    """Each way, and each use of these front ends, in a project of its own, by its name."""
    for name in WAYS:
        yield name, project([([name], "global", NUMBA)])
    for front_end in front_ends:
        for name in USES[front_end]:
            ways = [] if front_end == "cuda-cpp" else ["plain"]
            yield f"{name} ({front_end})", project([(ways, name, front_end)])


def project(modules: Iterable[tuple[Sequence[str], str, str]]) -> Project:
    """A project whose modules have those ways, uses and front ends."""
    made = Project({"pkg/__init__.py": "", PYPROJECT: '[tool.aotcuda]\narch = ["sm_80"]\nfallback = "error"\n'})
    for number, (names, use, front_end) in enumerate(modules):
        made.add(number, names, use, front_end)
    return made


@dataclass(slots=True)
class Outcome:
    """What came of a project's edits.

    Attributes:
        edits: How many times it was edited.
        told: How many of the edits changed an image.
        refused: Why it could not be built, if it could not.
        differences: What was edited where builds with the cache and without gave different files.
    """

    edits: int = 0
    told: int = 0
    refused: str = ""
    differences: list[str] = field(default_factory=list)


def hold(made: Project, folder: Path, rounds: Iterable[list[Edit]]) -> Outcome:
    """Build a project with a cache and without, before and after each round of edits."""
    root, cache = folder / "project", str(folder / "cache")
    made.write(root)
    outcome = Outcome()
    try:
        before = build(root, "0")
        if isinstance(before, str):
            outcome.refused = before
            return outcome
        if found := differing(build(root, cache), before):
            outcome.differences.append(f"at first: {found}")
        for edits in rounds:
            made.write(root, [edit.name for edit in edits])
            with_cache, without = build(root, cache), build(root, "0")
            outcome.edits += 1
            outcome.told += bool(differing(_images(without), _images(before)))
            before = without
            if found := differing(with_cache, without):
                ways = [made.ways.get(f"pkg.{name}") for name in found]
                outcome.differences.append(f"{[edit.what for edit in edits]}: {found} {ways}")
    finally:
        made.forget()
    return outcome


def _images(built: dict[str, bytes] | str) -> dict[str, bytes] | str:
    if isinstance(built, str):
        return built
    return {name: data for name, data in built.items() if name.endswith(".fatbin")}


def build(root: Path, cache: str) -> dict[str, bytes] | str:
    """What a build gives: its files and its warnings, or the words by which it refuses."""
    os.environ["AOTCUDA_BUILD_CACHE"] = cache
    table = tomllib.loads((root / PYPROJECT).read_text(encoding="utf-8"))["tool"]["aotcuda"]
    try:
        built = api.build(table, root)
    except AotcudaError as error:
        return str(error)
    return {**built.files, "pkg/warnings": "\n".join(built.warnings).encode()}


def differing(one: dict[str, bytes] | str, other: dict[str, bytes] | str) -> list[str]:
    """The modules, or the words, in which two builds differ."""
    if isinstance(one, str) or isinstance(other, str):
        return (
            []
            if one == other
            else [one if isinstance(one, str) else "built", other if isinstance(other, str) else "built"]
        )
    return sorted(
        {name.split("/")[1].partition(".")[0] for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
    )
