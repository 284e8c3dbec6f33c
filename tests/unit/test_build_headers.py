"""Find the headers that a CUDA C++ source includes."""

from __future__ import annotations

import pytest

from aotcuda import arch
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import inputs, nvrtc
from aotcuda.builder.link.included_headers import Headers


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"

    def make(**files):
        for name, text in files.items():
            path = root / name.replace("__", "/").replace("_h", ".h").replace("_cu", ".cu")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return make


def headers_of(root, include_dirs=(), source="csrc/a.cu", options=None):
    path = root / source
    item = LinkInput(kind="cu", name=source, data=path.read_bytes(), folder=str(path.parent))
    return [
        path.relative_to(root).as_posix()
        for path in sorted(Headers([item], root.resolve(), include_dirs, options).project_files)
    ]


FOLLOWED = {
    "quotes and brackets, through headers": (
        {"a.cu": '#include "b.h"\n  #  include <c.h>\n', "b.h": '#include "deep/d.h"', "inc/c.h": "", "deep/d.h": ""},
        "b.h deep/d.h inc/c.h",
    ),
    "brackets, not in the folder of the including file": (
        {"a.cu": '#include "sub/a.h"', "inc/sub/a.h": "#include <b.h>", "inc/sub/b.h": "", "inc/b.h": ""},
        "inc/b.h inc/sub/a.h",
    ),
    "quotes, in the folder of the including file": (
        {
            "a.cu": '#include "sub/a.h"',
            "inc/sub/a.h": '#include "d/c.h"',
            "inc/sub/d/c.h": '#include "b.h"',
            "inc/sub/b.h": "",
            "inc2/b.h": "",
        },
        "inc/sub/a.h inc/sub/d/c.h inc2/b.h",
    ),
}


def test_link_to_a_file_outside_the_project_is_followed(tmp_path):
    files = {name: tmp_path / name for name in ("outside/b.cu", "outside/b.h", "project/a.cu")}
    for path in files.values():
        path.parent.mkdir(exist_ok=True)
    files["outside/b.cu"].write_text('#include "b.h"\n')
    files["outside/b.h"].write_text("")
    files["project/a.cu"].symlink_to(files["outside/b.cu"])
    root = (tmp_path / "project").resolve()
    item = inputs.from_file(root / "a.cu", root, "key")
    assert [path.name for path in Headers([item], root, []).files] == ["b.cu", "b.h"]


@pytest.mark.parametrize("name", FOLLOWED)
def test_includes_are_followed_like_the_compiler(tmp_path, name):
    files, headers = FOLLOWED[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert headers_of(tmp_path, ["inc", "inc2"], "a.cu") == ["a.cu", *headers.split()]


WRITTEN = [
    '#inc\\\nlude "b.h"',
    '#include "b\\\n.h"',
    "%\\\n:include <b.h>",
    '??=include "b.h"',
    '/* of\n a\n */#include "b.h"',
    '# /* of\n a */ include /**/ "b.h" // it',
    "\v#\finclude\t<b.h>",
    '\ufeff#include "b.h"',
    '// a \\ \n#include "b.h"',
    '#include_next "b.h"',
]


@pytest.mark.parametrize("line", WRITTEN, ids=ascii)
def test_include_is_found_in_any_spelling(project, line):
    root = project(csrc__a_cu=f"int one;\n{line}\nint two;\n" if line[0] != "\ufeff" else line, csrc__b_h="")
    assert headers_of(root, ["csrc"]) == ["csrc/a.cu", "csrc/b.h"]


@pytest.mark.parametrize("option", ["-include b.h", "-include=b.h", "--pre-include b.h", "--pre-include=b.h"])
def test_headers_that_options_include_are_found(project, option):
    root = project(
        csrc__a_cu="__device__ int a = VALUE;", inc__b_h="#include <c.h>", inc__c_h="#define VALUE 3"
    ).resolve()
    options = Options(nvrtc_options=("-w", *option.split()))
    assert headers_of(root, ["inc"], options=options) == ["csrc/a.cu", "inc/b.h", "inc/c.h"]
    item = LinkInput(kind="cu", name="csrc/a.cu", data=b"__device__ int a = VALUE;", folder=str(root / "csrc"))
    nvrtc.compile_source(item, arch.parse("sm_80"), options, [str(root / "inc")], lto=True)


@pytest.mark.parametrize(
    "line",
    [
        "#include NAME",
        "# include\\\n NAME",
        "#if __has_\\\ninclude(<b.h>)",
        "#embed <b.h>",
        "#include_next <b.h>",
        "#inc??/\nlude <b.h>",
        "const char *now = __TIME__;",
        "const char *now = __DA\\\nTE__;",
    ],
    ids=ascii,
)
def test_includes_that_cannot_be_followed_are_reported(project, line):
    root = project(csrc__a_cu=f"int one;\n{line}\n", csrc__b_h="")
    item = LinkInput(kind="cu", name="csrc/a.cu", data=(root / "csrc/a.cu").read_bytes(), folder=str(root / "csrc"))
    assert "csrc/a.cu" in Headers([item], root.resolve(), []).uncacheable(Options())


def test_words_in_binaries_are_ignored(project):
    root = project(csrc__a_cu='#include "b.h"', csrc__b_h="").resolve()
    (root / "csrc/c.o").write_text("__TIME__ __FILE__")
    folder = str(root / "csrc")
    source = LinkInput(kind="cu", name="csrc/a.cu", data=b'#include "b.h"', folder=folder)
    binary = LinkInput(kind="object", name="csrc/c.o", data=b"__TIME__ __FILE__", folder=folder)
    headers = Headers([source, binary], root, [])
    assert headers.project_files == {root / "csrc/a.cu", root / "csrc/b.h", root / "csrc/c.o"}
    assert (headers.uncacheable(Options()), headers.may_contain_folder(Options())) == ([], False)


def test_outside_headers_and_searched_places_are_listed(project, tmp_path):
    for name, text in (("outside.h", '#include "beside.h"'), ("beside.h", "")):
        (tmp_path / name).write_text(text)
    root = project(csrc__a_cu='#include <c.h>\n#include "../../outside.h"\n#include "none.h"\n', two__c_h="").resolve()
    path = root / "csrc/a.cu"
    item = LinkInput(kind="cu", name="csrc/a.cu", data=path.read_bytes(), folder=str(path.parent))
    headers = Headers([item], root, ["one", "two", "three"])
    assert headers.outside_files == {root.parent / "outside.h", root.parent / "beside.h"}
    folders = ("csrc", "one", "two", "three")
    assert headers.missing == {root / "csrc/c.h", root / "one/c.h", *(root / folder / "none.h" for folder in folders)}


@pytest.mark.parametrize(
    ("header", "options", "expected"),
    [
        ("const char *name = __FILE__;", Options(), True),
        ("const char *name = __FI\\\nLE__;", Options(), True),
        ("void f(int x) { assert(x); }", Options(), True),
        ("const char *name = NAME;", Options(defines=(("NAME", "__FILE__"),)), True),
        ("static_assert(sizeof(int) == 4);", Options(), False),
        ("", Options(), False),
        ("", Options(lineinfo=True), False),
        ("", Options(debug=True), True),
    ],
    ids=ascii,
)
def test_code_that_may_contain_its_path_is_found(project, header, options, expected):
    root = project(csrc__a_cu='#include "b.h"', csrc__b_h=header).resolve()
    path = root / "csrc/a.cu"
    item = LinkInput(kind="cu", name="csrc/a.cu", data=path.read_bytes(), folder=str(path.parent))
    assert Headers([item], root, [*options.include_dirs]).may_contain_folder(options) is expected


@pytest.mark.parametrize("names_with_mark", [{"k.cu"}, {"sub/a.cuh", "sub/b.cuh", "k.cu"}])
@pytest.mark.parametrize("include_dirs", [[], ["sub"]])
def test_files_may_begin_with_a_byte_order_mark(names_with_mark, include_dirs, tmp_path):
    header = "a.cuh" if include_dirs else "sub/a.cuh"
    files = {
        "k.cu": f'#include "{header}"\nextern "C" __global__ void k(int *x) {{ x[0] = a(); }}',
        "sub/a.cuh": '#include "b.cuh"\n__device__ int a() { return b(); }',
        "sub/b.cuh": "__device__ int b() { return 42; }",
    }
    (tmp_path / "sub").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8-sig" if name in names_with_mark else "utf-8")
    source = LinkInput(kind="cu", name="k.cu", data=(tmp_path / "k.cu").read_bytes(), folder=str(tmp_path))
    folders = [str(tmp_path / path) for path in include_dirs]
    text = nvrtc.compile_source(source, arch.parse("sm_80"), Options(), folders, lto=False)
    assert b".entry k" in text
