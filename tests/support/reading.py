"""How a source may depend on something beside itself, and the edit that makes what was built from it out of date.

Every way has a folder of its own in the project, so a test can tell whether it was this one that was noticed.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[Path], object]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to read something.

    Attributes:
        code: What the source does; `HERE` is the way's folder as a `Path`, and the value is left in `VALUE`.
        before: Makes what is there when the source is built, given the folder.
        edit: Changes it.
        variables: Environment variables of the build, and those of a launch after the edit.
    """

    code: str
    before: Change = lambda folder: None
    edit: Change = lambda folder: None
    variables: tuple[dict[str, str], dict[str, str]] = ({}, {})


def write(name: str, text: str = "1\n") -> Change:
    """Writes a file in the folder."""

    def change(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return change


def remove(name: str) -> Change:
    return lambda folder: (folder / name).rmdir() if (folder / name).is_dir() else (folder / name).unlink()


def both(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def link(name: str, target: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return change


def same_times(*names: str) -> Change:
    """Makes files that differ in nothing but their content."""

    def change(folder: Path) -> None:
        for number, name in enumerate(names):
            (folder / name).write_text(f"{number}\n")
            os.utime(folder / name, ns=(10**18, 10**18))

    return change


def zipped(value: str) -> Change:
    def change(folder: Path) -> None:
        with zipfile.ZipFile(folder / "modules.zip", "w") as archive:
            archive.writestr("zipped_scale.py", f"SCALE = {value}\n")

    return change


def module(name: str, where: str = "", *, finish: str = "") -> str:
    """Code that imports a module from the folder, which lies on the path for that moment."""
    return f"""\
import sys
sys.path.insert(0, str(HERE{where}))
try:
    import {name}
    VALUE = {name}.SCALE
except ImportError:
    VALUE = 0
finally:
    sys.path.pop(0)
sys.modules.pop({name!r}, None)
{finish}"""


WAYS = {
    "an optional file, missing": Way(
        "try:\n    VALUE = (HERE / 'scale.txt').open().read()\nexcept FileNotFoundError:\n    VALUE = 3\n",
        edit=write("scale.txt"),
    ),
    "an optional file in a missing folder": Way(
        "try:\n    VALUE = (HERE / 'deep' / 'scale.txt').read_text()\nexcept OSError:\n    VALUE = 3\n",
        edit=write("deep/scale.txt"),
    ),
    "what a configuration parser passes over": Way(
        "import configparser\nVALUE = configparser.ConfigParser().read([HERE / 'user.ini'])\n",
        edit=write("user.ini", "[a]\n"),
    ),
    "a file by a path in bytes": Way(
        "import os\nwith open(os.fsencode(HERE / 'scale.txt'), 'rb') as F:\n    VALUE = F.read()\n",
        write("scale.txt"),
        write("scale.txt", "2\n"),
    ),
    "a Python file that is run as text": Way(
        "exec((HERE / 'table.py').read_text())\nVALUE = TABLE\n",
        write("table.py", "TABLE = 1\n"),
        write("table.py", "TABLE = 2\n"),
    ),
    "a Python file that is run": Way(
        "import runpy\nVALUE = runpy.run_path(str(HERE / 'table.py'))['TABLE']\n",
        write("table.py", "TABLE = 1\n"),
        write("table.py", "TABLE = 2\n"),
    ),
    "a relative path in another folder": Way(
        "import os\nBACK = os.getcwd()\nos.chdir(HERE)\n"
        "with open('scale.txt') as F:\n    VALUE = F.read()\nos.chdir(BACK)\n",
        write("scale.txt"),
        write("scale.txt", "2\n"),
    ),
    "a file that is open for both": Way(
        "with open(HERE / 'scale.txt', 'r+') as F:\n    VALUE = F.read()\n",
        write("scale.txt"),
        write("scale.txt", "2\n"),
    ),
    "a file that another package reads": Way(
        "import numpy\nVALUE = numpy.loadtxt(HERE / 'scale.txt')\n", write("scale.txt"), write("scale.txt", "2\n")
    ),
    "a resource of the package": Way(
        "import pkgutil\nVALUE = pkgutil.get_data(__package__, str((HERE / 'scale.txt').relative_to(ROOT)))\n",
        write("scale.txt"),
        write("scale.txt", "2\n"),
    ),
    "a file by way of a link": Way(
        "VALUE = (HERE / 'now').read_text()\n", both(same_times("a", "b"), link("now", "a")), link("now", "b")
    ),
    "a glob": Way("import glob\nVALUE = len(glob.glob(str(HERE / '*.csv')))\n", write("a.csv"), write("b.csv")),
    "a glob with no match in a missing folder": Way(
        "VALUE = len(list((HERE / 'data').glob('*.csv')))\n", edit=write("data/a.csv")
    ),
    "a glob through all folders": Way(
        "VALUE = len(list(HERE.rglob('*.csv')))\n", write("deep/deeper/a.csv"), write("deep/deeper/b.csv")
    ),
    "the names in a folder": Way(
        "import os\nVALUE = len(os.listdir(HERE))\n", both(write("a"), write("b")), remove("b")
    ),
    "the names in a folder, in bytes": Way(
        "import os\nVALUE = [len(names) for _, _, names in os.walk(os.fsencode(HERE))]\n", write("a"), write("b/c")
    ),
    "the modules in a folder": Way(
        "import pkgutil\nVALUE = len(list(pkgutil.iter_modules([str(HERE)])))\n", write("a.py"), write("b.py")
    ),
    "a module that is dropped": Way(
        module("dropped_scale"), write("dropped_scale.py", "SCALE = 1\n"), write("dropped_scale.py", "SCALE = 22\n")
    ),
    "a module of an archive": Way(module("zipped_scale", " / 'modules.zip'"), zipped("1"), zipped("222")),
    "a variable": Way("import os\nVALUE = os.environ['READ_A']\n", variables=({"READ_A": "1"}, {"READ_A": "2"})),
    "a variable that is not set": Way("import os\nVALUE = os.getenv('READ_B')\n", variables=({}, {"READ_B": ""})),
    "a variable in bytes": Way(
        "import os\nVALUE = os.getenvb(b'READ_C')\n", variables=({"READ_C": "1"}, {"READ_C": "2"})
    ),
    "a variable in a path": Way(
        "import os\nVALUE = os.path.expandvars('$READ_D/x')\n", variables=({"READ_D": "1"}, {"READ_D": "2"})
    ),
    "whether a variable is set, in bytes": Way(
        "import os\nVALUE = int(b'READ_E' in os.environb)\n", variables=({}, {"READ_E": "1"})
    ),
}

HARMLESS: dict[str, Way] = {
    "bytecode in a folder that is listed": Way(
        "VALUE = len(list(HERE.iterdir()))\n", write("a.py"), write("__pycache__/a.cpython-311.pyc")
    ),
    "an editor's files in a folder that is listed": Way(
        "VALUE = len(list(HERE.iterdir()))\n", write("a.py"), both(write(".a.py.swp"), write("a.py~"), write(".#a.py"))
    ),
    "what aotcuda writes into a folder that is listed": Way(
        "VALUE = len(list(HERE.iterdir()))\n",
        write("a.txt"),
        both(write("k.aotcuda/manifest.json"), write("k.py"), write("k.pyi")),
    ),
    "a temporary file": Way(
        "import tempfile\nwith tempfile.TemporaryDirectory(dir=HERE) as T:\n"
        "    (P := type(HERE)(T) / 'x').write_text('1')\n    VALUE = P.read_text(), list(P.parent.iterdir())\n"
    ),
    "a file that the import writes": Way(
        "if not (HERE / 'cache').exists():\n    (HERE / 'cache').write_text('1')\n"
        "VALUE = (HERE / 'cache').read_text()\n"
    ),
    "a log": Way("with open(HERE / 'log', 'a') as F:\n    F.write('x')\n", edit=write("log", "xx")),
    "a variable that the import sets": Way(
        "import os\nos.environ.setdefault('READ_F', '1')\nVALUE = os.environ['READ_F']\ndel os.environ['READ_F']\n"
        "os.environ['READ_G'] = '1'\nVALUE = os.environ['READ_G']\n"
    ),
    "a variable that nobody asks for": Way("VALUE = 1\n", variables=({"READ_H": "1"}, {"READ_H": "2"})),
    "a file beside one that is looked for": Way("VALUE = (HERE / 'fast').exists()\n", edit=write("slow")),
    "another content of a file that is looked for": Way(
        "VALUE = (HERE / 'fast').is_file()\n", write("fast"), write("fast", "another\n")
    ),
    "a file of the project with another time": Way(
        "VALUE = (HERE / 'scale.txt').read_text()\n",
        write("scale.txt"),
        lambda folder: os.utime(folder / "scale.txt", ns=(1, 1)),
    ),
    "a file in a folder that is resolved": Way("VALUE = str(HERE.resolve())\n", write("a"), write("b")),
}
"""Changes that make nothing out of date."""


def tag(name: str) -> str:
    """A way's name as that of a folder and a module."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def source(name: str, way: Way, package: str) -> str:
    """The text of a module, to lie in the package's folder, that reads something."""
    return f"""\
from pathlib import Path

ROOT = Path(__file__).parent
TAG = {tag(name)!r}
HERE = ROOT / "data" / TAG
assert __package__ == {package!r}
{way.code}"""


def prepare(name: str, way: Way, package: Path) -> Path:
    """Write the module and what it reads into the package's folder; gives the way's folder."""
    folder = package / "data" / tag(name)
    folder.mkdir(parents=True)
    way.before(folder)
    (package / f"_{tag(name)}.py").write_text(source(name, way, package.name))
    return folder
