"""CUDA C++ in the build cache: an edit makes what it concerns, and gives what a build without the cache gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.projects import build_with, put

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "pyproject.toml": """\
[tool.aotcuda]
arch = ["sm_80", "sm_90"]
frontend = "cuda-cpp"
fallback = "error"
[tool.aotcuda.modules."pkg.first"]
source = ["csrc/a.cu", "csrc/b.cu"]
options = { include-dirs = ["include"] }
kernels = { one = {}, two = {} }
[tool.aotcuda.modules."pkg.second"]
source = "csrc/c.cu"
options = { include-dirs = ["include"] }
kernels = { three = { instances = ["three<float>"] } }
[tool.aotcuda.modules."pkg.functions"]
source = "csrc/f.cu"
options = { include-dirs = ["include"] }
functions = { scaled = {} }
""",
    "pkg/__init__.py": "",
    "csrc/a.cu": '#include "a.h"\nextern "C" __global__ void one(float *x) { x[0] = A; }\n',
    "csrc/b.cu": 'extern "C" __global__ void two(float *x) { x[0] = 2.0f; }\n',
    # Nothing of it has a name that others see, so NVRTC has to make one up for `held`.
    "csrc/c.cu": "#include <c.h>\nnamespace { __device__ float held; }\n"
    "template <class T> __global__ void three(T *x) { x[0] = C + held++; }\n",
    "csrc/f.cu": '#include <f.h>\nextern "C" __device__ float scaled(float x) { return 4.0f * x * F; }\n',
    "include/a.h": "#define A 1.0f\n",
    "include/c.h": "#define C 3.0f\n",
    "include/f.h": "#define F 5.0f\n",
}

FIRST, SECOND, FUNCTIONS = 1 + 2 + 2, 1 + 2 + 2, 1 + 2 + 1
"""What an edit makes of each module: what one file declares, then the code of all its kernels and the image, for each
of two targets; the functions for each, and as PTX."""

EDITS: dict[str, tuple[str, str, int]] = {
    # The file, what it has then, and how much is made.
    "one of two files": ("csrc/b.cu", FILES["csrc/b.cu"].replace("2.0f", "12.0f"), FIRST),
    "a header": ("include/c.h", "#define C 13.0f\n", SECOND),
    "a header beside the file, which is found before the other": ("csrc/a.h", "#define A 11.0f\n", FIRST),
    "a function": ("csrc/f.cu", FILES["csrc/f.cu"].replace("4.0f", "14.0f"), FUNCTIONS),
    "a function's header": ("include/f.h", "#define F 15.0f\n", FUNCTIONS),
    "an option": (
        "pyproject.toml",
        FILES["pyproject.toml"].replace(
            '["include"] }\nkernels = { three', '["include"], fastmath = true }\nkernels = { three'
        ),
        SECOND,
    ),
    "what no file includes": ("include/other.h", "#define O\n", 0),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return put(tmp_path.resolve() / "project", FILES)


@pytest.mark.matrix  # test_stamp_inputs has edits
def test_an_edit_makes_what_it_concerns(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One build after the other, each with what those before it have kept."""
    cache = str(tmp_path / "cache")
    # Beside that there is the other file, and there are functions' prototypes, which are read from what is declared.
    prototypes = build_with(project, cache, monkeypatch).summary.made - FIRST - SECOND - FUNCTIONS - 1
    said = {}
    for what, (file, text, made) in EDITS.items():
        (project / file).write_text(text)
        built = build_with(project, cache, monkeypatch)
        said[what] = 0 if built.summary.whole else built.summary.made - prototypes
        assert said[what] == made, what
    plain = build_with(project, "0", monkeypatch)
    assert (built.files, built.warnings) == (plain.files, plain.warnings)


@pytest.mark.matrix  # test_stamp_inputs has a header that is found first
def test_two_checkouts_have_each_the_headers_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for name in ("one", "two"):
        root = put(tmp_path.resolve() / name / "project", FILES)
        config = root / "pyproject.toml"
        config.write_text(config.read_text().replace('["include"]', '["include", "../shared"]'))
        (root / "include" / "c.h").unlink()
        (root.parent / "shared").mkdir()
        (root.parent / "shared" / "c.h").write_text(f"#define C {len(made)}.0f\n")
        made.append(build_with(root, str(tmp_path / "cache"), monkeypatch).files)
        assert made[-1] == build_with(root, "0", monkeypatch).files
    assert made[0] != made[1]


@pytest.mark.matrix  # the test before has another folder
def test_a_header_that_knows_where_it_lies_is_compiled_in_each_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = "__device__ inline const char *name() { return __FILE__; }\n#define C (3.0f + name()[held != 0.0f])\n"
    cache = str(tmp_path / "cache")
    for folder in ("one", "another"):
        root = put(tmp_path.resolve() / folder / "project", {**FILES, "include/c.h": header})
        built, plain = build_with(root, cache, monkeypatch), build_with(root, "0", monkeypatch)
        assert built.files == plain.files
    assert (built.summary.whole, built.summary.reused > 0) == (False, True)  # what has no such header
