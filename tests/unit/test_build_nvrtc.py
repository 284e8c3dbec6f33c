"""Check the sources that NVRTC compiles."""

from __future__ import annotations

import pytest

from aotcuda import arch
from aotcuda.builder.config.model import Options
from aotcuda.builder.frontends.protocol import LinkInput
from aotcuda.builder.link import nvrtc


@pytest.mark.parametrize("marked", [{"k.cu"}, {"sub/a.cuh", "sub/b.cuh", "k.cu"}])
@pytest.mark.parametrize("include_dirs", [[], ["sub"]])
def test_files_may_begin_with_a_byte_order_mark(marked, include_dirs, tmp_path):
    header = "a.cuh" if include_dirs else "sub/a.cuh"
    files = {
        "k.cu": f'#include "{header}"\nextern "C" __global__ void k(int *x) {{ x[0] = a(); }}',
        "sub/a.cuh": '#include "b.cuh"\n__device__ int a() { return b(); }',
        "sub/b.cuh": "__device__ int b() { return 42; }",
    }
    (tmp_path / "sub").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8-sig" if name in marked else "utf-8")
    source = LinkInput(kind="cu", name="k.cu", data=(tmp_path / "k.cu").read_bytes(), folder=str(tmp_path))
    folders = [str(tmp_path / path) for path in include_dirs]
    text = nvrtc.compile_source(source, arch.parse("sm_80"), Options(), folders, lto=False)
    assert b".entry k" in text
