"""CUDA C++ files with names in common: each kernel has its own file's code and tables, in one image and in two."""

from __future__ import annotations

import numpy as np
import pytest

from aotcuda.binary import cubin, fatbin
from integration import projects

PRIVATE = {
    "macro": ("#define F(x) ((x) + VALUE)", "F(o[threadIdx.x])"),
    "lambda": ("", "[](float y) { return y + VALUE; }(o[1])"),
    "static_function": ("static __device__ float s(float x) { return x + VALUE; }", "s(o[1])"),
    "static_table": ("static __constant__ float x[2] = {VALUE, 1};", "x[threadIdx.x & 1]"),
    "unnamed_namespace": ("namespace { __device__ float y[2] = {VALUE, 1}; }", "y[threadIdx.x & 1]"),
    "shared_memory": ("extern __shared__ float m[];", "m[threadIdx.x] + VALUE"),
}
"""Code and an expression. Files of one image may have their own code of these kinds."""

PUBLIC = {
    "inline_function": ("inline __device__ __noinline__ float h(float x) { return x + VALUE; }", "h(o[1])"),
    "template": ("template <class T> __device__ T t(T x) { return x + T(VALUE); }", "t(o[1])"),
    "method": ("struct Op { __device__ float f(float x) const { return x + VALUE; } };", "Op().f(o[1])"),
    "virtual": (
        """struct Base { __device__ virtual float f(float x) { return x; } };
        struct Derived : Base { __device__ float f(float x) override { return x + VALUE; } };
        static __device__ __noinline__ float call(Base *b, float x) { return b->f(x); }""",
        "[&]() { Derived d; Base b; return call(o[2] > 0 ? &d : &b, o[1]); }()",
    ),
    "table_of_template": (
        "template <class T> __device__ T u(int i) { static const __device__ T x[2] = {VALUE, 1}; return x[i]; }",
        "u<float>(threadIdx.x & 1)",
    ),
    "constants": ("__constant__ float c[2] = {VALUE, 1};", "c[threadIdx.x & 1]"),
    "namespace": ("namespace n { __device__ float x[2] = {VALUE, 1}; }", "n::x[threadIdx.x & 1]"),
    "inline_variable": ("inline __device__ float v[2] = {VALUE, 1};", "v[threadIdx.x & 1]"),
    "variable_template": ("template <class T> __device__ T w[2] = {VALUE, 1};", "w<float>[threadIdx.x & 1]"),
}
"""Code that only files of different images may have."""

GIVE = "__device__ float give(float x) { return x * 3; }\n"
USES = 'extern __device__ float give(float);\nextern "C" __global__ void uses(float *o) { o[0] = give(o[1]); }\n'
TABLE = """
[project]
name = "mypkg"
version = "1.0"
dependencies = ["aotcuda"]
[build-system]
requires = ["hatchling", "aotcuda"]
build-backend = "hatchling.build"
[tool.hatch.build.targets.wheel.hooks.aotcuda]
[tool.aotcuda]
arch = ["sm_80"]
"""


def value(kind: str, file: int) -> float:
    return [*PRIVATE, *PUBLIC].index(kind) + 100.5 * (file + 1)


def files(kinds: dict[str, tuple[str, str]], prefixes: tuple[str, str]) -> list[str]:
    """Return two files with a kernel of each kind."""
    texts = []
    for file, prefix in enumerate(prefixes):
        text = ""
        for kind, (code, expression) in kinds.items():
            head = f'extern "C" __global__ void {prefix}{kind}(float *o) '
            text += f"{code}\n{head}{{ o[threadIdx.x] = {expression}; }}\n".replace("VALUE", f"{value(kind, file)}f")
        texts.append(text)
    return texts


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    """Return the machine code of the images of two modules, whose files are joined and apart."""
    project = {"mypkg/__init__.py": "", "pyproject.toml": TABLE}
    modules = {"apart": ({**PRIVATE, **PUBLIC}, ("k_", "k_")), "joined": (PRIVATE, ("a_", "b_"))}
    for module, (kinds, prefixes) in modules.items():
        one, other = files(kinds, prefixes)
        if module == "joined":
            one, other = one + USES, other + GIVE
        project |= {f"{module}/a.cu": one, f"{module}/b.cu": other}
        project["pyproject.toml"] += f'[tool.aotcuda.modules."mypkg.{module}"]\nfrontend = "cuda-cpp"\n'
        project["pyproject.toml"] += f'source = ["{module}/a.cu", "{module}/b.cu"]\n'
        for file, prefix in zip("ab", prefixes, strict=True):
            project["pyproject.toml"] += "".join(
                f'kernels.{file}_{kind} = {{ function = "{module}/{file}.cu:{prefix}{kind}" }}\n' for kind in kinds
            )
    content = projects.content(projects.build_wheel(projects.put(tmp_path_factory.mktemp("names"), project)))
    names = [name for name in sorted(content) if name.endswith(".fatbin")]
    found = {name: fatbin.read(content[name], name)[0].content for name in names}
    order = {"apart": ("kernels.fatbin", "kernels-1.fatbin"), "joined": ("kernels.fatbin",)}
    assert {f"mypkg/{module}.aotcuda/{name}" for module in order for name in order[module]} == {*found}
    return {module: [found[f"mypkg/{module}.aotcuda/{name}"] for name in order[module]] for module in order}


@pytest.mark.parametrize("kind", [*PRIVATE, *PUBLIC])
def test_image_of_a_file_has_its_own_code_alone(images: dict[str, list[bytes]], kind: str) -> None:
    for file, image in enumerate(images["apart"]):
        assert f"k_{kind}" in {kernel.name for kernel in cubin.read(image, "image").kernels}
        assert np.float32(value(kind, file)).tobytes() in image
        assert np.float32(value(kind, 1 - file)).tobytes() not in image


@pytest.mark.parametrize("kind", PRIVATE)
def test_one_image_has_the_private_code_of_both_files(images: dict[str, list[bytes]], kind: str) -> None:
    (image,) = images["joined"]
    assert {f"a_{kind}", f"b_{kind}"} <= {kernel.name for kernel in cubin.read(image, "image").kernels}
    assert all(np.float32(value(kind, file)).tobytes() in image for file in (0, 1))
