"""What of a project's Python a unit can depend on: all of it, but the bodies of functions that it cannot reach.

Files are read as syntax trees, so comments and spacing do not count. The body of a function at the top of a module does
nothing until the function is called or compiled, and for that something has to name it. So it is left out where nothing
names it that is not left out itself, in any file of the project, starting from what runs when the files are imported
and from the unit's own name. Every other statement counts, wherever it stands, and so does all of a class.

- A decorator may call what it decorates, so a decorated function has its body left out only under those of compilers,
  `cuda.jit`, `triton.jit`, which wait.
- Python itself calls `__getattr__` of a module, and its like, with nobody naming them: `__x__` always counts.
- A name is a name in any role: a variable, an attribute, a word in a string. Imports alone are none, but aliases stand
  for what they rename.
- Where anything that counts could reach functions without naming them (`globals()`, `getattr`, `__dict__`, ...),
  nothing is left out.

Whoever calls a function need not name it, a library that a data file tells the name, say. So what is left out is held
against what happened: what ran while the sources were imported counts for all units, and a unit for which the compiler
read a function that was left out is not kept.
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings
from typing import TYPE_CHECKING

from aotcuda import registry
from aotcuda.builder.build_cache import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_WORD = re.compile(r"[A-Za-z_]\w*")
_COMPILERS = re.compile(r"(?:numba|numba_cuda|numba_cuda_mlir|aotcuda)(?:\.|$)")

_WAITING: dict[str, list[str]] = {}
"""The decorators of other compilers that wait, by the module that has them."""
for _decorator in (name for item in registry.BUILT_IN.values() for name in item.waiting):
    _WAITING.setdefault(_decorator.rpartition(".")[0], []).append(_decorator.rpartition(".")[2])

_BINDING = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.ExceptHandler,
    ast.MatchAs,
    ast.MatchStar,
)
"""What has a `name` that it gives to something."""

_DYNAMIC = frozenset(
    [
        *("globals", "locals", "vars", "dir", "getattr", "setattr", "delattr", "eval", "exec", "compile", "__import__"),
        *(
            "import_module",
            "importlib",
            "inspect",
            "getmembers",
            "gc",
            "pkgutil",
            "runpy",
            "attrgetter",
            "methodcaller",
        ),
        *("modules", "_getframe", "currentframe", "settrace", "setprofile", "__dict__", "__globals__", "__getattr__"),
        *(
            "__getattribute__",
            "__builtins__",
            "builtins",
            "__code__",
            "__closure__",
            "FunctionType",
            "CodeType",
            "pickle",
        ),
        *(
            "__name__",
            "addaudithook",
            "breakpoint",
            "entry_points",
            "__subclasses__",
            "__class_getitem__",
            "marshal",
            "ctypes",
        ),
        *(
            "f_globals",
            "f_locals",
            "f_builtins",
            "tb_frame",
            "gi_frame",
            "cr_frame",
            "ag_frame",
            "locate",
            "resolve_name",
        ),
    ]
)
"""Names of what may reach a function that nobody names."""


class Slices:
    """The Python files of a project."""

    def __init__(self, files: Mapping[str, bytes], ran: Iterable[tuple[str, int]] = ()) -> None:
        """What there is.

        Args:
            files: The content of each by its name.
            ran: The file and first line of functions that ran while they were imported.
        """
        self._ran: dict[str, set[int]] = {}
        for name, line in ran:
            self._ran.setdefault(name, set()).add(line)
        self._always: list[ast.AST] = []
        self._hidden: dict[str, dict[str, ast.FunctionDef]] = {}
        self._aliases: dict[str, set[str]] = {}
        self._trees: dict[str, ast.Module] = {}
        self._rest: dict[bool, str] = {}
        self._texts: dict[tuple[str, bool], str] = {}
        self._reached: dict[str, set[str]] = {}
        self._base: set[str] = set()
        self._all: set[str] | None = None
        self._owners: dict[tuple[str, int], str] | None = None
        self._whole = self._unread = False
        for name, content in files.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of what stands in there, which the import has warned of
                    tree = ast.parse(content)
            except (SyntaxError, ValueError, RecursionError):
                self._whole = self._unread = True
                continue
            self._trees[name] = tree
            self._add(name, tree)
        self._base = self._spread(_mentioned(self._always))

    def of(self, called: Iterable[str], *, lines: bool) -> dict[str, str] | None:
        """What a unit may depend on: equal for equal code, with places in files if `lines`.

        The functions that it can reach, by file and place among the statements there, and under no name a digest of
        all that every unit may depend on. `called` is what the unit is called. None if nothing can be left out.
        """
        words = self._reachable(called)
        if words is None:
            return None
        try:
            return self._parts(words, lines=lines)
        except (RecursionError, ValueError):
            # Generated code may be too deep, or have too long a number, for `ast.dump`.
            self._whole = True
            return None

    def mention(self, called: Iterable[str], sought: frozenset[str]) -> bool:
        """Whether what a unit may depend on has any of those words, in whatever role; one may be `sys.path`."""
        words = self._reachable(called)
        if words is None:
            if self._all is None:
                self._all = _mentioned(self._trees.values())
            words = self._all
        return self._unread or not words.isdisjoint(sought)

    def hold(self, called: Iterable[str], read: Iterable[tuple[str, int]]) -> bool:
        """Whether what `of` tells of a unit has all that functions say which begin in those lines of files."""
        words = self._reachable(called)
        if words is None:
            return True
        if self._owners is None:
            self._owners = {
                (place.rpartition(":")[0], line): name
                for name, functions in self._hidden.items()
                for place, function in functions.items()
                for line in _lines(function)
            }
        return {self._owners[place] for place in read if place in self._owners} <= words

    def _reachable(self, called: Iterable[str]) -> set[str] | None:
        """The words that a unit can reach; None if nothing can be left out."""
        words = self._spread({word for name in called for word in _words(name)})
        return None if self._whole or words & _DYNAMIC else words

    def _parts(self, words: set[str], *, lines: bool) -> dict[str, str]:
        found = {"": self._of_all(lines=lines)}
        for word in sorted(words & self._hidden.keys()):
            for place, function in self._hidden[word].items():
                if (place, lines) not in self._texts:
                    self._texts[place, lines] = ast.dump(function, include_attributes=lines)
                found[place] = self._texts[place, lines]
        return found

    def _of_all(self, *, lines: bool) -> str:
        """A digest of all files, less the bodies of those functions that have to be reached."""
        if lines not in self._rest:
            hidden = {function for functions in self._hidden.values() for function in functions.values()}
            self._rest[lines] = names.digest(
                {
                    name: [
                        _head(statement)
                        if isinstance(statement, ast.FunctionDef) and statement in hidden
                        else ast.dump(statement, include_attributes=lines)
                        for statement in tree.body
                    ]
                    for name, tree in self._trees.items()
                }
            )
        return self._rest[lines]

    def _add(self, file: str, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))  # as long as to parse it
        imported = _imported(tree.body)
        self._whole = self._whole or any(_is_own_jit(node, imported) for node in nodes)
        decorators = _decorators(imported, nodes)
        for number, statement in enumerate(tree.body):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                of_sys = isinstance(statement, ast.ImportFrom) and statement.module == "sys"
                for alias in statement.names:
                    meant = {*_words(alias.name), *([f"sys.{alias.name}"] if of_sys else [])}
                    self._aliases.setdefault(alias.asname or alias.name, set()).update(meant)
                named = [getattr(statement, "module", None) or "", *(alias.name for alias in statement.names)]
                if any(word in _DYNAMIC for name in named for word in _words(name)):
                    self._always.append(statement)
            elif (
                isinstance(statement, ast.FunctionDef)
                and _waits(statement, decorators)
                and self._ran.get(file, set()).isdisjoint(_lines(statement))
            ):
                self._hidden.setdefault(statement.name, {})[f"{file}:{number}"] = statement
                for private in _private(statement.name):
                    self._aliases.setdefault(private, set()).add(statement.name)
                self._always += [*statement.decorator_list, statement.args, *filter(None, [statement.returns])]
            else:
                self._always.append(statement)

    def _spread(self, words: set[str]) -> set[str]:
        """Those words and all that can be reached by them, and what every unit can reach."""
        found = set(self._base)
        waiting = set(words)
        while waiting:
            word = waiting.pop()
            if word in found:
                continue
            found.add(word)
            waiting |= self._aliases.get(word, set())
            if word in self._hidden and word not in self._reached:
                self._reached[word] = _mentioned(part for one in self._hidden[word].values() for part in one.body)
            waiting |= self._reached.get(word, set())
        return found


def _head(function: ast.FunctionDef) -> str:
    """A function without its body, as text."""
    kept = [*function.decorator_list, function.args, *filter(None, [function.returns])]
    return f"{function.name} {' '.join(map(ast.dump, kept))}"


def _lines(function: ast.FunctionDef) -> range:
    """The lines of a function, in which its code begins or that of a function in it."""
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    return range(first, (function.end_lineno or first) + 1)


def _waits(function: ast.FunctionDef, decorators: frozenset[str]) -> bool:
    """Whether nothing runs a function's body before somebody names it; `decorators` are those that wait."""
    if function.name.startswith("__") and function.name.endswith("__"):
        return False
    return all(
        _dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) in decorators
        for decorator in function.decorator_list
    )


def _imported(body: Iterable[ast.stmt]) -> set[str]:
    """The decorators that wait as statements import them, by the names that a module has them under."""
    imports = (node for node in body if isinstance(node, ast.Import | ast.ImportFrom))
    return {decorator for node in imports for alias in node.names for decorator in _brought(node, alias)}


def _brought(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> list[str]:
    """The same of one name that a statement imports."""
    name = alias.asname or alias.name
    if isinstance(node, ast.Import):
        return [f"{name}.{decorator}" for decorator in _WAITING.get(alias.name, ())]
    if node.level:
        return []
    module = node.module or ""
    if _is_of_compiler(node):
        return [f"{name}.jit"] if alias.name == "cuda" else []
    if alias.name in _WAITING.get(module, ()):
        return [name]
    return [f"{name}.{decorator}" for decorator in _WAITING.get(f"{module}.{alias.name}", ())]


def _is_of_compiler(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether it imports from one of those that have a `cuda`."""
    return isinstance(node, ast.ImportFrom) and not node.level and bool(_COMPILERS.match(node.module or ""))


def _decorators(imported: set[str], nodes: Sequence[ast.AST]) -> frozenset[str]:
    """Those whose names stand for nothing else anywhere in the module.

    None where it takes all names of a module of unknown content: theirs may be among them.
    """
    used = [node for node in nodes if isinstance(node, ast.Name)]
    bound: list[str | None] = [node.id for node in used if not isinstance(node.ctx, ast.Load)]
    bound += [node.name for node in nodes if isinstance(node, _BINDING)]
    bound += [node.rest for node in nodes if isinstance(node, ast.MatchMapping)]
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            others = [alias.asname or alias.name for alias in node.names if not _brought(node, alias)]
            bound += [name for name in others if name != "*" or not _is_of_compiler(node)]
    return frozenset() if "*" in bound else frozenset({name for name in imported if _root(name) not in bound})


def _dotted(node: ast.AST) -> str:
    """`a.b.c`, if that is all that an expression is; else nothing."""
    if isinstance(node, ast.Attribute):
        value = _dotted(node.value)
        return f"{value}.{node.attr}" if value else ""
    return node.id if isinstance(node, ast.Name) else ""


def _root(name: str) -> str:
    return name.partition(".")[0]


def _is_own_jit(node: ast.AST, imported: set[str]) -> bool:
    """Whether it gives something another `jit`, the compilers' `cuda` perhaps, or a compiler another decorator."""
    if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
        return False
    return node.attr == "jit" or _dotted(node) in imported


def _mentioned(nodes: Iterable[ast.AST]) -> set[str]:
    """All words that stand in syntax trees, in whatever role."""
    found: set[str] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if _is_export_list(node) or _is_main_guard(node):
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys":
            found.add(f"sys.{node.attr}")
        for _, value in ast.iter_fields(node):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.AST):
                    waiting.append(item)
                elif isinstance(item, str):
                    found |= _words(item)
                elif isinstance(item, bytes):
                    found |= _words(item.decode("latin-1")) | _words(item.decode(errors="replace"))
    return found


def _words(text: str) -> set[str]:
    """The words in a text that may be names: as Python reads them, who writes the same name in several ways."""
    found = {*_WORD.findall(text)}
    if text.isascii():
        return found
    # The categories of what a name goes on with; marks and other digits are none of `\w`, or not all of them.
    text = unicodedata.normalize("NFKC", text)
    for run in "".join([one if f"_{one}".isidentifier() else " " for one in text]).split(" "):
        starts = (at for at in range(len(run)) if run[at:].isidentifier())
        if (at := next(starts, None)) is not None:
            found.add(run[at:])
    return found


def _private(name: str) -> list[str]:
    """What a class may call a global `_C__x`: `__x`."""
    return [name[at:] for at in range(1, len(name) - 2) if name.startswith("__", at)]


def _is_export_list(node: ast.AST) -> bool:
    """Whether it is `__all__ = [...]` of plain strings, which names functions for imports alone."""
    return (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "__all__"
        and isinstance(node.value, ast.List | ast.Tuple)
        and all(isinstance(item, ast.Constant) for item in node.value.elts)
    )


def _is_main_guard(node: ast.AST) -> bool:
    """Whether it is the condition `__name__ == "__main__"`, which hands the module's name to nobody."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and node.left.id == "__name__"
        and all(isinstance(item, ast.Constant) for item in node.comparators)
    )
