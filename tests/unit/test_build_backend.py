"""Find the files of an sdist: files that the table names and files that sources link."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aotcuda.builder.entry import backend

TABLE = {"modules": {"pkg.kernels": {"source": "pkg._kernels", "link": ["csrc/table.cu"]}}}


@pytest.fixture
def project(tmp_path):
    def write(name, text=""):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("src/pkg/__init__.py")
    write("src/pkg/_kernels.py", "from pkg import deep\n")
    write("csrc/table.cu", '#include "table.h"\n')
    for name in ("csrc/table.h", "csrc/other.cu", "csrc/other.h"):
        write(name)
    return tmp_path, write


def test_files_and_modules_of_the_table_are_in_the_sdist(project):
    root, _ = project
    assert backend.sdist_files(TABLE, root) == ["csrc/table.cu", "csrc/table.h", "src/pkg/_kernels.py"]


@pytest.mark.parametrize("options", [["-include", "first.h"], ["-w", "--pre-include=first.h"]])
def test_headers_that_options_include_are_in_the_sdist(project, options):
    root, write = project
    write("csrc/first.h", '#include "second.h"\n')
    write("csrc/second.h")
    write("csrc/third.h")
    files = backend.sdist_files({**TABLE, "options": {"nvrtc-options": options}}, root)
    assert [name for name in files if name.startswith("csrc")] == [
        "csrc/first.h",
        "csrc/second.h",
        "csrc/table.cu",
        "csrc/table.h",
    ]


@pytest.mark.parametrize("options", [["--no-such-option"], ["-include"], [3]])
def test_wrong_options_do_not_end_an_sdist(project, options):
    root, _ = project
    files = backend.sdist_files({**TABLE, "options": {"nvrtc-options": options}}, root)
    assert "csrc/table.cu" in files


@pytest.mark.parametrize(
    "source",
    [
        "add = cuda.declare_device('add', 'int32(int32)', link=str(HERE / 'native' / 'add.cu'))",
        "PATH = os.path.join(os.path.dirname(__file__), 'native', 'add.cu')",
        "PATH = f'{HERE}/native/add.cu'",
        "PATH = f'native/add.cu{QUERY}'",
        'PATH = "native/" "add.cu"',
    ],
)
def test_linked_files_of_sources_are_found_by_name(source, project):
    root, write = project
    write("src/pkg/sub/deep.py", f"{source}\n")
    for name in (
        "pyproject.toml",
        "src/pkg/native/add.h",
        "build/lib/pkg/native/add.cu",
        ".venv/x/add.cu",
    ):
        write(name)
    write("src/pkg/native/add.cu", '#include "add.h"\n')
    files = backend.sdist_files(TABLE, root)
    assert {"src/pkg/native/add.cu", "src/pkg/native/add.h"} <= {*files}
    assert not [name for name in files if name.startswith(("build", ".venv"))]
    assert "csrc/other.cu" not in files


@pytest.mark.parametrize("source", ["def (", "x = 'nothing.cu'", "x = '*.cu'", "x = 'a\\0b.cu'"])
def test_sources_without_names_of_files_add_none(source, project):
    root, write = project
    write("src/pkg/_kernels.py", f"{source}\n")
    assert backend.sdist_files(TABLE, root) == ["csrc/table.cu", "csrc/table.h", "src/pkg/_kernels.py"]


def test_import_of_entry_point_starts_nothing() -> None:
    """A build whose inputs did not change needs no processes and no shards."""
    code = "import sys, aotcuda.builder.entry.backend; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    needless = {"multiprocessing", "aotcuda.builder.compile.process", "aotcuda.builder.shards.executor"}
    assert needless.isdisjoint(done.stdout.split())
