"""What the import of a user's modules is seen to ask of the machine, and that no edit of it goes unnoticed."""

from __future__ import annotations

import importlib
import json
import os
import sys
from importlib import metadata
from pathlib import Path

import pytest

from aotcuda import manifest as manifests
from aotcuda.builder import manifest_dependencies
from aotcuda.builder.worker import dependency_trace
from aotcuda.builder.worker.dependency_trace import DependencyTrace
from aotcuda.builder.worker.job import Result
from aotcuda.common import dependencies
from aotcuda.manifest import schema
from aotcuda.runtime.jit.sources import Sources
from support import manifests as records
from support import reading

THREAD = """\
import threading
stop = threading.Event()
def work():
    while not stop.is_set():
        try:
            __import__(f"seenpkg.none{id(object())}")
        except ImportError:
            pass
thread = threading.Thread(target=work)
thread.start()
"""


class Project:
    """A project with a package whose modules are imported as a worker does it."""

    def __init__(self, root):
        self.root = root
        self.package = root / "seenpkg"
        self.package.mkdir()
        (self.package / "__init__.py").write_text("")

    def trace(self, *names, patterns=()):
        """Import modules of the package, watched."""
        before = set(sys.modules)
        importlib.invalidate_caches()
        try:
            with dependency_trace.watch(
                manifest_dependencies.patterns(patterns, self.root), ["seenpkg.generated"]
            ) as seen:
                for name in names:
                    importlib.import_module(f"seenpkg.{name}")
        finally:
            for name in set(sys.modules) - before:
                if name.startswith("seenpkg"):
                    del sys.modules[name]
        return seen

    def sources(self, seen: DependencyTrace, *, lasting: bool = False) -> Sources:
        """What a launch compares, made from what was seen by way of the manifest's own text."""
        result = Result(toolchain={}, modules=(), sources=(), warnings=(), trace=seen)
        project = manifest_dependencies.Project(root=self.root, package_root=self.root, names=("seenpkg.k",))
        found = manifest_dependencies.of([result], project, lasting=lasting)
        whole = {"sources": found.sources, "reads": found.reads, "variables": found.variables}
        return Sources(str(self.root), json.loads(manifests.dump(whole)))


@pytest.fixture(autouse=True)
def _no_notes_before(monkeypatch):
    """A worker is watched once and ends; this process goes on to other tests, which would be compiled as if watched."""
    monkeypatch.setattr(dependency_trace, "_traces", [])


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Project(tmp_path)


@pytest.fixture(autouse=True)
def _closed():
    yield
    reading.close()


@pytest.fixture(params=["late build", "editable install"])
def lasting(request):
    return request.param == "editable install"


def set_variables(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", reading.WAYS)
def test_no_edit_goes_unnoticed(project, monkeypatch, name, lasting):
    way = reading.WAYS[name]
    folder = reading.prepare(name, way, project.package)
    set_variables(monkeypatch, way.variables[0])
    seen = project.trace(f"_{reading.tag(name)}")
    checked = project.sources(seen, lasting=lasting)
    assert [checked.changed(), checked.changed(), project.sources(seen, lasting=lasting).changed()] == [None] * 3
    way.edit(folder)
    set_variables(monkeypatch, way.variables[1])
    for sources in (checked, project.sources(seen, lasting=lasting) if way.variables[1] else checked):
        said = sources.changed()
        assert said is not None
        assert reading.tag(name) in said or "variable READ_" in said


@pytest.mark.parametrize("name", reading.HARMLESS)
def test_nothing_else_makes_an_answer_old(project, monkeypatch, name, lasting):
    way = reading.HARMLESS[name]
    folder = reading.prepare(name, way, project.package)
    set_variables(monkeypatch, way.variables[0])
    seen = project.trace(f"_{reading.tag(name)}")
    for variable in ("READ_F", "READ_G"):
        monkeypatch.delenv(variable, raising=False)
    checked = project.sources(seen, lasting=lasting)
    assert checked.changed() is None
    way.edit(folder)
    set_variables(monkeypatch, way.variables[1])
    monkeypatch.chdir("/")
    assert checked.changed() is None


class TestWatch:
    """What the configuration names is watched whoever reads it."""

    @pytest.fixture
    def checked(self, project):
        (project.package / "_plain.py").write_text("")
        (project.root / "data").mkdir()
        (project.root / "data" / "a.h5").write_text("1")
        return lambda *patterns: project.sources(project.trace("_plain", patterns=patterns))

    def test_a_file_that_it_names(self, project, checked):
        sources = checked("data/*.h5")
        assert sources.changed() is None
        (project.root / "data" / "a.h5").write_text("2")
        assert sources.changed() == f"{project.root}/data/a.h5 was edited"

    @pytest.mark.parametrize("pattern", ["data/*.h5", "data/**/*.h5", "**/*.h5", "data/b.h5", "./data/../data/b.h5"])
    def test_a_later_match(self, project, checked, pattern):
        sources = checked(pattern)
        assert sources.changed() is None
        (project.root / "data" / "b.h5").write_text("2")
        assert sources.changed() is not None

    @pytest.mark.parametrize("pattern", ["later/*.h5", "later/deep/b.h5"])
    def test_a_match_in_a_folder_that_is_not_there_yet(self, project, checked, pattern):
        sources = checked(pattern)
        assert sources.changed() is None
        (project.root / "later" / "deep").mkdir(parents=True)
        (project.root / "later" / "deep" / "b.h5").write_text("2")
        assert sources.changed() is not None


class TestNotes:
    def test_modules_and_data_are_files(self, project):
        (project.package / "_a.py").write_text(
            "import json, pathlib, seenpkg._b\nX = pathlib.Path(__file__).read_text()\n"
        )
        (project.package / "_b.py").write_text("")
        names = ("__init__.py", "_a.py", "_b.py")
        assert project.trace("_a").files == {str(project.package / name) for name in names}

    def test_bytecode_stands_for_its_source(self, project, monkeypatch):
        monkeypatch.setattr(sys, "dont_write_bytecode", False)
        (project.package / "_a.py").write_text("")
        project.trace("_a")
        assert list(project.package.glob("__pycache__/_a.*.pyc"))
        assert str(project.package / "_a.py") in project.trace("_a").files

    def test_values_of_variables_are_digests(self, project, monkeypatch):
        monkeypatch.setenv("READ_A", "secret")
        (project.package / "_a.py").write_text("import os\nX = os.environ['READ_A'], os.environ.get('READ_B')\n")
        seen = project.trace("_a")
        assert {name: seen.variables[name] for name in ("READ_A", "READ_B")} == {
            "READ_A": manifests.digest(b"secret"),
            "READ_B": None,
        }

    @pytest.mark.parametrize(
        "asks",
        ["[*os.environ]", "len(os.environ)", "sorted(os.environ.keys())", "dict(os.environb)", "repr(os.environ)"],
    )
    def test_which_variables_there_are_is_a_question(self, project, monkeypatch, asks):
        (project.package / "_a.py").write_text(f"import os\nX = {asks}\n")
        before = project.trace("_a").names
        assert before == project.trace("_a").names is not None
        monkeypatch.setenv("READ_A", "1")
        assert project.trace("_a").names != before

    def test_and_none_where_one_is_asked_for(self, project):
        (project.package / "_a.py").write_text("import os\nX = 'READ_A' in os.environ, os.getenv('READ_B')\n")
        assert project.trace("_a").names is None

    def test_a_file_is_told_from_the_like_of_it(self, project):
        (project.package / "_a.py").write_text(
            "from pathlib import Path\nX = Path(__file__).with_name('d').read_text()\n"
        )
        data = project.package / "d"
        data.write_text("1")
        seen = project.trace("_a")
        assert seen.holds("content", str(data))
        state = data.stat()
        (project.package / "e").write_text("2")
        os.utime(project.package / "e", ns=(state.st_atime_ns, state.st_mtime_ns))
        (project.package / "e").replace(data)
        assert dependencies.answer("content", str(data)) == seen.reads["content", str(data)]
        assert not seen.holds("content", str(data))
        assert project.trace("_a").holds("content", str(data))

    def test_what_an_import_writes_itself_is_read_as_it_left_it(self, project):
        code = "from pathlib import Path\nD = Path(__file__).with_name('d')\n"
        code += "D.write_text('1')\nX = D.read_text()\nD.write_text('2')\n"
        (project.package / "_a.py").write_text(code)
        seen = project.trace("_a")
        assert seen.holds("content", str(project.package / "d"))

    @pytest.mark.parametrize(
        ("asks", "other_counts"),
        [
            ("[item.version for item in metadata.distributions(name='Sought-Dist', path=[HERE])]", False),
            ("[item.version for item in metadata.distributions(path=[HERE])]", True),
        ],
    )
    def test_whether_a_distribution_is_installed_is_a_question(self, project, asks, other_counts):
        there = project.root / "there"
        (there / "known-1.0.dist-info").mkdir(parents=True)
        (there / "known-1.0.dist-info" / "METADATA").write_text("Name: known\nVersion: 1.0\n")
        assert len([*metadata.distributions(path=[str(there)])]) == 1  # which lists the folder, once in a process
        code = f"from importlib import metadata\nHERE = {str(there)!r}\nX = {asks}\n"
        (project.package / "_a.py").write_text(code)
        sources = project.sources(project.trace("_a"))
        (there / "notes.txt").write_text("")
        assert sources.changed() is None
        (there / "other-1.0.dist-info").mkdir()
        assert bool(sources.changed()) is other_counts
        (there / "sought.dist-2.0.dist-info").mkdir()
        assert sources.changed() == f"what is installed in {there} was changed"

    def test_nothing_is_noted_afterwards_and_everything_is_as_it_was(self, project, monkeypatch):
        functions = {name: getattr(os, name) for name in ("stat", "lstat", "access", "readlink", "open")}
        able = [set(getattr(os, name)) for name in ("supports_dir_fd", "supports_fd", "supports_follow_symlinks")]
        finders = list(sys.meta_path)
        of_distributions = vars(metadata.MetadataPathFinder)["find_distributions"]
        (project.package / "_a.py").write_text("")
        seen = project.trace("_a")
        noted = dict(seen.reads), dict(seen.variables)
        os.environ.get("READ_A")
        os.environb.get(b"READ_A")
        dict(os.environ)
        project.root.stat()
        (project.package / "_a.py").read_text()
        list(project.root.iterdir())
        assert (seen.reads, seen.variables) == noted
        assert seen.names is None
        assert functions == {name: getattr(os, name) for name in functions}
        assert [type(environ).__name__ for environ in (os.environ, os.environb)] == ["_Environ", "_Environ"]
        assert sys.meta_path == finders
        assert vars(metadata.MetadataPathFinder)["find_distributions"] is of_distributions
        assert able == [
            set(getattr(os, name)) for name in ("supports_dir_fd", "supports_fd", "supports_follow_symlinks")
        ]

    def test_a_modules_that_the_wheel_gains_is_not_looked_for(self, project):
        (project.package / "_a.py").write_text("try:\n    import seenpkg.generated\nexcept ImportError:\n    pass\n")
        assert not [path for _, path in project.trace("_a").reads if "generated" in path]

    def test_what_is_generated_is_no_dependency(self, project):
        code = "X = [(ROOT / name).exists() for name in ('k.py', 'k.pyi', 'k.aotcuda', 'k.aotcuda/manifest.json')]\n"
        (project.package / "_a.py").write_text(f"from pathlib import Path\nROOT = Path(__file__).parent\n{code}")
        sources = project.sources(project.trace("_a"))
        (project.package / "k.aotcuda").mkdir()
        for name in ("k.py", "k.pyi", "k.aotcuda/manifest.json"):
            (project.package / name).write_text("")
        assert sources.changed() is None

    def test_functions_of_os_answer_as_ever(self, project):
        code = """\
import errno, os
A = os.stat(__file__).st_size, os.stat(path=__file__).st_size, os.access(__file__, mode=os.R_OK)
B = os.stat in os.supports_dir_fd, os.stat in os.supports_follow_symlinks, os.open in os.supports_dir_fd
C = []
for call in (lambda: os.stat("a\\0b"), lambda: os.stat("/none"), lambda: os.stat(), lambda: open("a\\0b"), os.readlink):
    try:
        call()
    except Exception as error:
        C.append(type(error).__name__)
"""
        (project.package / "_a.py").write_text(code)
        with dependency_trace.watch():
            module = importlib.import_module("seenpkg._a")
        del sys.modules["seenpkg._a"], sys.modules["seenpkg"]
        size = len(code)
        assert ((size, size, True), (True, True, True)) == (module.A, module.B)
        assert module.C == ["ValueError", "FileNotFoundError", "TypeError", "ValueError", "TypeError"]

    @pytest.mark.parametrize(
        "code",
        [
            "class FS:\n    stat = os.stat\n    open = os.open\nassert FS().stat('/').st_mode\n",
            "import pickle\nassert pickle.loads(pickle.dumps(os.stat)) is os.stat\n",
            "assert type(os.environ) is os._Environ\nassert type(os.environ) is type(os.environb)\n",
            "import copy\nassert copy.copy(os.environ)['HOME'] == os.environ['HOME']\n",
            "sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]\n",
            "sys.meta_path = [finder for finder in sys.meta_path if isinstance(finder, type)]\n",
            "class L:\n    def __getattr__(self, name):\n        raise ImportError\nsys.modules['seenpkg.l'] = L()\n",
            "import types\nsys.modules['seenpkg.odd'] = types.SimpleNamespace(__file__=3)\n",
            THREAD,
        ],
        ids=["in a class", "pickled", "types", "copied", "finders", "other finders", "lazy", "odd file", "thread"],
    )
    def test_sources_are_not_disturbed(self, project, monkeypatch, code):
        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
        monkeypatch.setitem(sys.modules, "seenpkg.l", None)
        monkeypatch.setitem(sys.modules, "seenpkg.odd", None)
        (project.package / "_a.py").write_text(f"import os, sys\n{code}")
        try:
            with dependency_trace.watch() as seen:
                importlib.import_module("seenpkg._a")
        finally:
            module = sys.modules.get("seenpkg._a")
            if hasattr(module, "stop"):  # before its package goes, which it would import again
                module.stop.set()
                module.thread.join()
            for name in ("seenpkg._a", "seenpkg"):
                sys.modules.pop(name, None)
        assert ("content", str(project.package / "_a.py")) in seen.reads

    @pytest.mark.parametrize(
        ("code", "is_asked"),
        [
            ("import os\nX = os.getcwd()\n", True),
            ("import os\nX = os.getcwdb()\n", True),
            ("from pathlib import Path\nX = Path('x').absolute()\n", True),
            ("import os\nX = os.path.abspath('/x')\n", False),
            ("with open(__file__) as file:\n    X = file.read()\n", False),
        ],
    )
    def test_who_asks_for_the_folder_is_told(self, project, code, is_asked):
        (project.package / "_a.py").write_text(code)
        assert project.trace("_a").placed is is_asked

    @pytest.mark.parametrize(
        ("code", "counts"),
        [
            ("X = __loader__.get_data(__file__)\n", True),
            ("X = __loader__.get_source(__name__)\n", True),
            ("import inspect, sys\nX = inspect.getsource(sys.modules[__name__])\n", True),
            ("import inspect\ndef f():\n    pass\nX = inspect.getsourcelines(f)\n", True),
            ("import linecache\nlinecache.clearcache()\nX = linecache.getline(__file__, 1)\n", True),
            ("import linecache\nlinecache.clearcache()\nX = linecache.getlines(__file__, globals())\n", True),
            ("import tokenize\nwith tokenize.open(__file__) as file:\n    X = file.read()\n", True),
            ("import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    X = traceback.format_exc()\n", False),
            ("X = 1\n", False),
        ],
    )
    def test_a_source_that_is_read_as_a_text_is_told(self, project, code, counts):
        path = project.package / "_a.py"
        path.write_text(code)
        assert (str(path) in project.trace("_a").texts) is counts

    def test_a_variable_that_is_to_go_counts_whether_it_is_there(self, project, monkeypatch):
        monkeypatch.setenv("READ_A", "1")
        monkeypatch.delenv("READ_B", raising=False)
        code = (
            "for name in 'AB':\n    try:\n        del os.environ[f'READ_{name}']\n    except KeyError:\n        pass\n"
        )
        (project.package / "_a.py").write_text(f"import os\n{code}")
        seen = project.trace("_a")
        assert (seen.variables["READ_A"], seen.variables["READ_B"]) == (manifests.digest(b"1"), None)

    def test_a_folder_to_import_from_counts_that_is_not_there_yet(self, project, monkeypatch):
        monkeypatch.syspath_prepend(str(project.root / "early"))
        (project.root / "seen_late.py").write_text("")
        (project.package / "_a.py").write_text("import seen_late\n")
        monkeypatch.delitem(sys.modules, "seen_late", raising=False)
        sources = project.sources(project.trace("_a"))
        del sys.modules["seen_late"]
        assert sources.changed() is None
        (project.root / "early").mkdir()
        assert "early" in sources.changed()

    def test_what_changes_while_it_is_built_is_out_of_date_from_the_start(self, project):
        data = project.package / "scale.txt"
        data.write_text("1")
        (project.package / "_a.py").write_text(f"import pathlib\nX = pathlib.Path({str(data)!r}).read_text()\n")
        seen = project.trace("_a")
        data.write_text("22")
        assert project.sources(seen).changed() == f"{data} was edited"

    def test_of_two_workers_the_first_answer_counts(self):
        first, second = DependencyTrace(reads={("kind", "/a"): None}), DependencyTrace(reads={("kind", "/a"): "file"})
        assert dependency_trace.joined([first, second]).reads == {("kind", "/a"): None}


class TestWhileUnitsAreCompiled:
    """Compilers run functions of the sources, and import much of what they need when they first need it."""

    COMPILER = """\
import importlib, os

def compile(function):
    os.environ.get("OF_THE_COMPILER")
    open(os.path.join(os.path.dirname(__file__), "data.txt")).close()
    importlib.import_module("seen_needed")
    return function()
"""
    NEEDED = """\
import os

def settings():
    return os.environ.get("OF_WHAT_IT_NEEDS"), os.path.exists("/seen/settings")

SETTINGS = settings()
"""

    @pytest.fixture
    def compiled(self, project, tmp_path, monkeypatch):
        """Compiles functions of the project's modules, one after the other, and gives what was asked up to each."""
        site = tmp_path.parent / f"{tmp_path.name}-env" / "site-packages"
        (site / "seen_compiler").mkdir(parents=True)
        (site / "seen_compiler" / "__init__.py").write_text(self.COMPILER)
        (site / "seen_compiler" / "data.txt").write_text("")
        (site / "seen_needed.py").write_text(self.NEEDED)
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.setattr(dependency_trace, "_AOTCUDA", f"{Path(__file__).parent}/")  # who has the compiler run

        def compile_each(*names):
            before, seen = set(sys.modules), []
            importlib.invalidate_caches()
            compiler = importlib.import_module("seen_compiler")
            try:
                with dependency_trace.watch(compilers=["seen_compiler"]):
                    functions = [importlib.import_module(f"seenpkg.{name}").f for name in names]
                for function in functions:
                    with dependency_trace.again() as asked:
                        compiler.compile(function)
                    seen.append((set(asked.reads), dict(asked.variables)))
            finally:
                for name in set(sys.modules) - before:
                    if name.startswith("seen"):
                        del sys.modules[name]
            return seen

        return compile_each

    def test_what_the_compiler_needs_for_itself_is_not_the_sources(self, project, compiled):
        (project.package / "_a.py").write_text("def f(): pass\n")
        assert compiled("_a") == [(set(), {})]

    def test_what_functions_ask(self, project, compiled):
        code = "def f():\n    import os\n    from seenpkg import late\n    open(late.__file__[:-7] + 'a.txt').close()\n"
        (project.package / "_a.py").write_text(f"{code}    return os.environ.get('SEEN_LATE')\n")
        (project.package / "late.py").write_text("def g(): pass\nimport seenpkg.later\n")
        (project.package / "later.py").write_text("import os\nos.environ.get('SEEN_LATER')\n")
        (project.package / "a.txt").write_text("")
        ((reads, variables),) = compiled("_a")
        files = {Path(path).name for ask, path in reads if ask == "content"}
        assert files == {"late.py", "later.py", "a.txt"}
        assert variables == {"SEEN_LATE": None, "SEEN_LATER": None}

    def test_what_was_asked_before_is_not_asked_anew(self, project, compiled):
        code = "import os\nA = os.environ.get('SEEN_EARLY')\ndef f(): os.environ.get('SEEN_EARLY')\n"
        (project.package / "_a.py").write_text(code)
        assert compiled("_a") == [(set(), {})]

    def test_of_functions_in_one_process_later_ones_may_have_what_earlier_ones_asked(self, project, compiled):
        (project.package / "_a.py").write_text("def f(): pass\n")
        (project.package / "_b.py").write_text("import os\ndef f(): os.environ.get('SEEN_ONCE')\n")
        (project.package / "_c.py").write_text("def f(): pass\n")
        assert [variables for _, variables in compiled("_a", "_b", "_c")] == [
            {},
            {"SEEN_ONCE": None},
            {"SEEN_ONCE": None},
        ]

    def test_without_notes_of_the_import_only_imports_are_noted(self, project):
        (project.package / "late.py").write_text("")
        with dependency_trace.again() as asked:
            os.environ.get("SEEN_LATE")
            importlib.import_module("seenpkg.late")
        for name in ("seenpkg", "seenpkg.late"):
            del sys.modules[name]
        assert {Path(path).name for _, path in asked.reads} == {"__init__.py", "late.py"}
        assert not asked.variables


class TestEditableInstalls:
    """The environment that pip builds in is gone afterwards, and its folders are none of the project's affair."""

    def test_installed_packages_are_left_out(self, project, tmp_path, monkeypatch):
        site = tmp_path.parent / f"{tmp_path.name}-env" / "lib" / "python3.11" / "site-packages"
        site.mkdir(parents=True)
        (site / "seen_installed.py").write_text("")
        monkeypatch.syspath_prepend(str(site))
        (project.package / "_a.py").write_text(
            "import shutil, seen_installed, sys\nX = shutil.which('none')\ndel sys.modules['seen_installed']\n"
        )
        monkeypatch.setenv("PATH", str(site.parents[2] / "bin"))
        seen = project.trace("_a")
        assert str(site / "seen_installed.py") in seen.files
        sources = project.sources(seen, lasting=True)
        for path in sorted(site.parents[2].rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        monkeypatch.setenv("PATH", "/usr/bin")
        assert sources.changed() is None


class TestQuestions:
    def test_every_question_has_an_answer_that_a_manifest_can_hold(self, tmp_path):
        asks = ("content", "stat", "filled", "kind", "module", "link", "names", "access:4", "access:None", "unknown")
        for ask in asks:
            for path in (tmp_path / "none", tmp_path, "a\0b", "/dev/null", "\udcff"):
                answer = dependencies.answer(ask, str(path))
                assert (
                    schema.problem({**records.whole(), "reads": [{"ask": ask, "path": "", "answer": answer}]}) is None
                )

    def test_names_that_are_no_text_are_told_apart(self, tmp_path):
        folder = os.fsencode(tmp_path)
        empty = dependencies.answer("names", str(tmp_path))
        Path(os.fsdecode(folder + b"/\xff")).write_text("")
        assert dependencies.answer("names", str(tmp_path)) != empty
