"""The JIT fallback in the run time: the calls that it compiles, its warnings and its errors."""

from __future__ import annotations

import gc
import hashlib
import importlib
import os
import threading
import warnings
import weakref
from unittest.mock import Mock

import numpy as np
import pytest

import aotcuda
from aotcuda.builder.entry import jit
from aotcuda.cache import compilers
from aotcuda.common.jit_build import Request
from aotcuda.errors import (
    ArgumentError,
    BuildError,
    CallbackError,
    CompileError,
    ConfigError,
    FallbackWarning,
    LinkError,
    NoImageError,
    StaleBuildError,
    ToolchainError,
)
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.jit import compile as jit_compile
from support import jit_builds, threads
from support.manifests import kernel

SAXPY = "void(float32, float32[::1])"
PYPROJECT = '[tool.aotcuda]\narch = ["sm_90"]\n[tool.aotcuda.modules."mypkg.kernels"]\nsource = "mypkg._kernels"\n'


@pytest.fixture
def package(cuda, builder):
    """Write and import a packaged module that the fallback may compile for."""

    def make(*kernels, **options):
        builder.module_kernels = list(kernels)
        changes = {"fallback": "jit", "rebuild": jit_builds.rebuild(), "load": "import", **options}
        module = cuda.package(*kernels, **changes)
        (cuda.packages / "mypkg" / "_kernels.py").write_text("SCALE = 1\n")
        return module

    return make


@pytest.fixture
def with_callbacks(cuda, package, builder, monkeypatch):
    """Return a module whose compiled kernels have a setup callback, and the module of the callbacks."""
    from aotcuda.runtime.images import callbacks

    module = package(kernel("axpy", SAXPY), load="first-use", targets=("sm_90",))
    names = {"setup": "mypkg._hooks:up", "teardown": "mypkg._hooks:down", "origin": "x.cu"}
    builder.changes = {"callbacks": [names], "handle": "x"}
    (cuda.packages / "mypkg" / "_hooks.py").write_text("seen = []\nup, down = seen.append, lambda _: None\n")
    monkeypatch.setattr(callbacks, "open_handle", lambda _manifest, data: ("the handle", cuda.load(data)))
    monkeypatch.setattr(callbacks.atexit, "register", lambda _: None)  # the stand-in does not exist then
    return module, importlib.import_module("mypkg._hooks")


class TestTypes:
    """Launches with types that no packaged signature accepts."""

    @pytest.fixture
    def module(self, package):
        return package(kernel("axpy", SAXPY), kernel("other", "void(int32)"))

    def test_a_kernel_is_compiled_for_the_types_of_the_call(self, cuda, module, builder):
        with pytest.warns(FallbackWarning):
            module.axpy[1, 32](2, cuda.array(np.zeros(8, "<f8")))
        (request,) = builder.requests
        assert (request.kernel, request.signature, request.target) == ("axpy", "void(int64, float64[::1])", "sm_90")
        assert (request.module, request.package_root) == ("mypkg.kernels", str(cuda.packages))
        assert request.root == str(cuda.packages / "mypkg" / "kernels.aotcuda" / "sources")
        assert len(cuda.launches()) == 1
        assert int.from_bytes(cuda.parameters()[:8], "little") == 2

    def test_the_warning_names_kernel_types_and_reason_once(self, cuda, module):
        array = cuda.array(np.zeros(8, "<f8"))
        with pytest.warns(FallbackWarning) as caught:
            for _ in range(3):
                module.axpy[1, 32](2, array)
        (warning,) = caught
        assert str(warning.message) == (
            "mypkg.kernels.axpy for void(int64, float64[::1]): it is compiled on this machine, which takes a few "
            "seconds, because mypkg.kernels.axpy: argument 2, b, is float64[::1] where float32[::1] is packaged"
        )
        assert warning.filename == __file__

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ((2**63, "C"), (3, "C")),
            ((2, "A"), (2, "C")),
            ((2, "F"), (2, "C")),
            ((2, "readonly"), (2, "C")),
        ],
    )
    def test_a_wider_compiled_overload_is_not_taken(self, cuda, package, builder, first, second):
        k = package(kernel("k", "void(float32, float32[:,::1])")).k
        square = np.zeros((4, 4), "<f8")
        arrays = {
            "C": cuda.array(square),
            "F": cuda.array(np.asfortranarray(square)),
            "A": cuda.array(np.zeros((4, 8), "<f8")[:, ::2]),
        }
        arrays["readonly"] = cuda.array(square, data=(arrays["C"].address, True))
        with pytest.warns(FallbackWarning):
            for number, array in (first, first, first, second, second):
                k[1, 32](number, arrays[array])
        assert len({request.signature for request in builder.requests}) == 2
        assert builder.requests[1].signature == "void(int64, float64[:,::1])"

    def test_packaged_code_is_preferred_to_compiled_code(self, cuda, package, builder):
        """The compiled overload fits better, and all launches could run it."""
        k = package(kernel("k", "void(uint8)")).k
        with pytest.warns(FallbackWarning):
            for number in (1 << 40, 7, 1 << 41, 7):
                k[1, 32](number)
        assert [request.signature for request in builder.requests] == ["void(int64)"]
        sizes = [len(bytes.fromhex(launch["parameters"])) for launch in cuda.launches()]
        assert sizes == [8, 1, 8, 1]

    @pytest.mark.parametrize("args", [(2,), (2.0, np.zeros(8)), (2.0, "text"), (2.0, None), (2.0, object())])
    def test_arguments_of_no_kernel_are_never_compiled(self, module, builder, args):
        with pytest.raises(ArgumentError):
            module.axpy[1, 32](*args)
        assert builder.requests == []

    def test_a_failed_compilation_raises_type_error_with_both_reasons(self, cuda, module, builder):
        builder.failure = CompileError("cannot unify float64 and array\n  somewhere")
        array = cuda.array(np.zeros(8, "<f8"))
        for _ in range(2):
            warned = warnings.catch_warnings() if builder.requests else pytest.warns(FallbackWarning)
            with warned, pytest.raises(TypeError) as caught:
                module.axpy[1, 32](2.0, array)
            first, *lists = str(caught.value).splitlines()
            assert first == (
                "mypkg.kernels.axpy: argument 2, b, is float64[::1] where float32[::1] is packaged; and the JIT "
                "fallback failed: cannot unify float64 and array"
            )
            assert lists == ["  passed:   (float, float64[::1])", f"  packaged: {SAXPY}"]
        assert len(builder.requests) == 1  # it is not tried again

    def test_tiers_list_compiled_overloads_until_unload(self, cuda, module):
        assert [tier.tier for tier in module.__aotcuda__.tiers["axpy"]] == ["exact"]
        with pytest.warns(FallbackWarning):
            module.axpy[1, 32](2, cuda.array(np.zeros(8, "<f8")))
        packaged, jit = module.__aotcuda__.tiers["axpy"]
        assert (packaged.tier, packaged.choice.arch) == ("exact", "sm_90")
        assert (jit.tier, jit.choice.arch, jit.choice.kind) == ("jit", "sm_90", "jit")
        assert jit.signature == "void(int64, float64[::1])"
        assert "argument 2, b, is float64[::1] where float32[::1] is packaged" in jit.choice.why
        assert [tier.tier for tier in module.__aotcuda__.tiers["other"]] == ["exact"]
        module.__aotcuda__.unload()
        assert [tier.tier for tier in module.__aotcuda__.tiers["axpy"]] == ["exact"]
        assert len(cuda.calls("cuLibraryUnload")) == 2

    def test_setup_callbacks_run_for_each_context(self, cuda, with_callbacks, monkeypatch, path):
        module, hooks = with_callbacks
        array = cuda.array(np.zeros(8, "<f8"))
        with pytest.warns(FallbackWarning):
            for _ in range(3):
                module.axpy[1, 32](2, array)
        assert hooks.seen == ["the handle"]
        assert len(cuda.launches()) == 3
        monkeypatch.setattr(drivers.Driver, "current_context", lambda _: 0x1234)  # another context on the same GPU
        module.axpy[1, 32](2, array)
        assert hooks.seen == ["the handle"] * 2

    @pytest.mark.filterwarnings("ignore::aotcuda.FallbackWarning")
    @pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
    def test_a_setup_that_raises_runs_again_with_new_images(self, cuda, with_callbacks, raised, path):
        module, hooks = with_callbacks
        array, good = cuda.array(np.zeros(8, "<f8")), hooks.up
        for number in (1, 2):
            hooks.up = Mock(side_effect=raised)
            with pytest.raises(raised if raised is KeyboardInterrupt else CallbackError):
                module.axpy[1, 32](2, array)
            assert hooks.up.call_count == 1
            assert len(cuda.calls("cuLibraryLoadData")) == number
        hooks.up = good
        for _ in range(2):
            module.axpy[1, 32](2, array)
        assert hooks.seen == ["the handle"]
        assert len(cuda.launches()) == 2


class TestGpu:
    """Launches on a GPU that no packaged image runs on."""

    def test_the_first_launch_compiles_the_whole_module(self, cuda, package, builder):
        module = package(kernel("k", "void(int32)"), kernel("l", "void(int32)"), targets=("sm_80",))
        assert builder.requests == []
        with pytest.warns(FallbackWarning) as caught:
            module.k[1, 1](1)
            module.l[1, 1](1)
        (request,) = builder.requests
        assert (request.kernel, request.signature, request.target) == (None, None, "sm_90")
        assert "mypkg.kernels, all of it, for GPU 0 (Stand-in A, compute capability 9.0)" in str(caught[0].message)
        assert "sm_80 is machine code for compute capability 8.0 to 8.x" in str(caught[0].message)
        assert len(cuda.launches()) == 2
        (tier,) = module.__aotcuda__.tiers["k"]
        assert (tier.tier, tier.choice.arch) == ("jit", "sm_90")
        assert tier.choice.rejected == (("sm_80", "is machine code for compute capability 8.0 to 8.x"),)
        assert "compiled on this machine: none of the packaged images runs on it" in repr(module.__aotcuda__)

    @pytest.mark.parametrize(
        ("gpu", "targets", "tier", "arch"),
        [
            ("9.0", ("sm_75", "sm_90", "compute_75"), "exact", "sm_90"),
            ("8.6", ("sm_75", "sm_80", "compute_75"), "same-major", "sm_80"),
            ("9.0", ("sm_75", "compute_75"), "ptx", "compute_75"),
            ("9.0", ("sm_80",), "jit", "sm_90"),
        ],
    )
    def test_tiers_come_in_their_order(self, cuda, package, gpu, targets, tier, arch):
        cuda.set(devices=gpu)
        module = package(kernel("k", "void(int32)"), targets=targets)
        with pytest.warns(FallbackWarning) if tier == "jit" else warnings.catch_warnings():
            module.k[1, 1](1)
        (result,) = module.__aotcuda__.tiers["k"]
        assert (result.tier, result.choice.arch) == (tier, arch)
        assert [name for name, _ in result.choice.rejected] == [name for name in targets if name != arch]

    def test_only_the_gpu_that_needs_it_is_compiled_for(self, cuda, package, builder):
        cuda.set(devices="9.0,7.5")
        module = package(kernel("k", "void(float32[::1])"), targets=("sm_90",))
        module.k[1, 1](cuda.array(8, device=0))
        assert builder.requests == []
        drivers.get().make_current(1)
        with pytest.warns(FallbackWarning):
            module.k[1, 1](cuda.array(8, device=1))
            module.k[1, 1](cuda.array(8, device=1))
        assert [request.target for request in builder.requests] == ["sm_75"]
        assert len(cuda.launches()) == 3
        assert [tier.tier for tier in module.__aotcuda__.tiers["k"]] == ["exact", "jit"]

    def test_another_argument_layout_is_refused(self, cuda, package, builder):
        cuda.set(devices="9.0,7.5")
        module = package(kernel("k", "void(float32[::1])"), targets=("sm_90",))
        builder.module_kernels = [kernel("k", "void(float64[::1])")]
        module.k[1, 1](cuda.array(8))
        drivers.get().make_current(1)
        with pytest.warns(FallbackWarning), pytest.raises(ArgumentError, match="has another argument layout"):
            module.k[1, 1](cuda.array(8, device=1))

    def test_a_failed_compilation_keeps_the_error_and_adds_its_reason(self, package, builder):
        builder.failure = CompileError("sm_90 is not known to the toolchain")
        module = package(kernel("k", "void(int32)"), targets=("sm_80",))
        reasons = "no image for GPU 0 .*and the JIT fallback failed: sm_90 is not known to the toolchain"
        with pytest.warns(FallbackWarning), pytest.raises(NoImageError, match=reasons) as caught:
            module.k[1, 1](1)
        assert isinstance(caught.value.__cause__, CompileError)


class TestError:
    """With `fallback = "error"` nothing is compiled or loaded from the cache."""

    @pytest.fixture(params=["manifest", "environment", "no sources"])
    def strict(self, package, monkeypatch, request):
        def make(*kernels, **options):
            if request.param == "manifest":
                options["fallback"] = "error"
            elif request.param == "environment":
                monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
            else:  # a wheel of a build with "error" has no sources
                monkeypatch.setenv("AOTCUDA_FALLBACK", "jit")
                options |= {"fallback": "error", "rebuild": None}
            return package(*kernels, **options)

        return make

    def test_other_types_are_refused_with_the_packaged_ones(self, cuda, strict, builder):
        module = strict(kernel("axpy", SAXPY))
        with pytest.raises(ArgumentError) as caught:
            module.axpy[1, 32](2, cuda.array(np.zeros(8, "<f8")))
        assert str(caught.value).splitlines() == [
            "mypkg.kernels.axpy: argument 2, b, is float64[::1] where float32[::1] is packaged",
            "  passed:   (int, float64[::1])",
            f"  packaged: {SAXPY}",
        ]
        assert builder.requests == []

    def test_cached_code_is_not_loaded(self, cuda, package, builder, monkeypatch):
        module = package(kernel("axpy", SAXPY))
        array = cuda.array(np.zeros(8, "<f8"))
        with pytest.warns(FallbackWarning):
            module.axpy[1, 32](2, array)
        module.__aotcuda__.unload()
        monkeypatch.setenv("AOTCUDA_FALLBACK", "error")
        with pytest.raises(ArgumentError):
            module.axpy[1, 32](2, array)

    def test_the_environment_may_allow_what_the_package_forbids(self, cuda, package, builder, monkeypatch):
        monkeypatch.setenv("AOTCUDA_FALLBACK", "jit")
        module = package(kernel("axpy", SAXPY), fallback="error")
        with pytest.warns(FallbackWarning):
            module.axpy[1, 32](2, cuda.array(np.zeros(8, "<f8")))
        assert len(builder.requests) == 1

    def test_an_unknown_value_is_refused(self, cuda, package, monkeypatch):
        monkeypatch.setenv("AOTCUDA_FALLBACK", "maybe")
        module = package(kernel("axpy", SAXPY))
        with pytest.raises(ConfigError, match="AOTCUDA_FALLBACK is 'maybe'; write 'jit' or 'error'"):
            module.axpy[1, 32](2, cuda.array(np.zeros(8, "<f8")))

    def test_a_warning_as_an_error_prevents_the_compilation(self, cuda, package, builder):
        module = package(kernel("axpy", SAXPY))
        with warnings.catch_warnings():
            warnings.simplefilter("error", FallbackWarning)
            with pytest.raises(FallbackWarning):
                module.axpy[1, 32](2, cuda.array(np.zeros(8, "<f8")))
        assert builder.requests == []


@pytest.mark.parametrize(
    ("gpu", "dtype", "error", "extra"),
    [
        ("9.0", "<f8", ArgumentError, "jit-cu13"),
        ("7.0", "<f4", NoImageError, "jit-cu12"),
    ],  # CUDA 13 builds none for 7.0
)
def test_without_the_front_end_the_error_says_what_to_install(
    cuda, package, builder, monkeypatch, gpu, dtype, error, extra
):
    monkeypatch.setattr(compilers, "installed", lambda *_: {})
    monkeypatch.setattr(jit_compile, "_is_importable", lambda _: False)
    cuda.set(devices=gpu)
    module = package(kernel("axpy", SAXPY))
    with pytest.raises(error, match=rf"needs numba-cuda, which is not installed: pip install 'aotcuda\[{extra}\]'"):
        module.axpy[1, 32](2, cuda.array(np.zeros(8, dtype)))
    assert builder.requests == []


class TestSeveralImages:
    """A module of several images on a GPU without any."""

    @pytest.fixture
    def make(self, cuda, package, builder):
        def make(devices="7.5"):
            cuda.set(devices=devices)
            variables = {"csrc/c.cu:x": {"symbol": "x", "fatbin": 2}}
            return package(*kernels, targets=("sm_80",), globals=variables)

        kernels = [kernel(name, "void(int32)", fatbin=index) for index, name in enumerate("klm")]
        builder.images = [[kernel(name, "void(int32)")] for name in "klm"]
        builder.module_kernels = kernels
        return make

    @pytest.mark.parametrize("devices", ["7.5", "8.0,7.5"], ids=["only GPU", "second GPU"])
    def test_launch_compiles_the_image_that_it_needs(self, cuda, make, builder, devices):
        module = make(devices)
        drivers.get().make_current(devices.count(","))
        with pytest.warns(FallbackWarning):
            for _ in range(3):
                module.l[1, 1](1)
        assert [request.image for request in builder.requests] == [1]
        with pytest.warns(FallbackWarning, match="image 2"):
            module.__aotcuda__.symbol("csrc/c.cu:x").address  # noqa: B018
            module.m[1, 1](1)
        assert [request.image for request in builder.requests] == [1, 2]
        assert len(cuda.launches()) == 4
        module.__aotcuda__.unload()
        assert len(cuda.calls("cuLibraryLoadData")) == len(cuda.calls("cuLibraryUnload"))

    @pytest.mark.filterwarnings("ignore::aotcuda.FallbackWarning")
    def test_images_of_a_later_process_come_from_the_cache(self, cuda, make, builder):
        module = make()
        for name in "kl":
            getattr(module, name)[1, 1](1)
        module.__aotcuda__.unload()
        for name in "kl":
            getattr(module, name)[1, 1](1)
        assert [request.image for request in builder.requests] == [0, 1]
        module.__aotcuda__.preload()
        assert [request.image for request in builder.requests] == [0, 1, 2]

    @pytest.mark.filterwarnings("ignore::aotcuda.FallbackWarning")
    @pytest.mark.parametrize(
        ("compiled", "problem"),
        [(kernel("other", "void(int32)"), "other kernels"), (kernel("k", "void(float32)"), "other parameters")],
    )
    def test_image_that_differs_from_the_packaged_one_is_refused(self, cuda, make, builder, compiled, problem):
        module = make()
        builder.images[0] = [compiled]
        for _ in range(2):
            with pytest.raises(NoImageError, match=f"has {problem}.*build the package for it"):
                module.k[1, 1](1)
        module.l[1, 1](1)
        assert len(cuda.launches()) == 1

    @pytest.mark.filterwarnings("ignore::aotcuda.FallbackWarning")
    def test_unload_does_not_wait_for_an_image(self, cuda, make, builder, monkeypatch):
        module = make()
        module.k[1, 1](1)
        compiling, unloaded = threading.Event(), threading.Event()

        def build(request):
            compiling.set()
            assert unloaded.wait(30), "the unload waits"
            return builder(request)

        monkeypatch.setattr(jit, "build", build)
        with threads.started(lambda: module.l[1, 1](1)):
            assert compiling.wait(30)
            module.__aotcuda__.unload()
            unloaded.set()
        assert len(cuda.launches()) == 2
        assert cuda.calls("crash") == []


class TestEdited:
    """An editable install whose sources were edited after the build."""

    @pytest.fixture
    def module(self, cuda, package):
        (cuda.packages / "mypkg").mkdir(parents=True)
        source = cuda.packages / "mypkg" / "_kernels.py"
        source.write_text("SCALE = 1\n")
        (cuda.packages / "pyproject.toml").write_text(PYPROJECT)
        sources = [{"path": "mypkg/_kernels.py", "sha256": hashlib.sha256(source.read_bytes()).hexdigest()}]
        return package(kernel("k", "void(int32)"), editable=True, sources=sources, rebuild=jit_builds.rebuild("."))

    def edit(self, cuda, text):
        (cuda.packages / "mypkg" / "_kernels.py").write_text(text)

    def test_an_edited_module_is_compiled_from_the_project(self, cuda, module, builder):
        self.edit(cuda, "SCALE = 22\n")
        with pytest.warns(FallbackWarning, match=r"mypkg.kernels was built before .*_kernels.py was edited"):
            module.k[1, 1](1)
        self.edit(cuda, "SCALE = 3\n")
        module.k[1, 1](1)
        (request,) = builder.requests
        assert (request.root, request.kernel, request.is_project) == (str(cuda.packages), None, True)
        assert request.table["arch"] == ["sm_90"]
        assert len(cuda.calls("cuLibraryLoadData")) == 2
        assert len(cuda.launches()) == 2
        module.__aotcuda__.unload()
        assert len(cuda.calls("cuLibraryUnload")) == 2

    def test_an_edit_adds_and_changes_kernels(self, cuda, module, builder):
        old = module.k
        assert "fresh" not in module.__all__
        self.edit(cuda, "SCALE = 22\n")
        builder.module_kernels = [kernel("k", "void(float64)"), kernel("fresh", "void(int32)")]
        with pytest.warns(FallbackWarning):
            module.__aotcuda__.ready()
        assert module.k is old
        assert old.signatures == ["void(float64)"]
        old[1, 1](2.5)
        module.fresh[1, 1](3)
        assert dir(module).count("fresh") == 1
        assert "fresh" in module.__all__
        assert len(builder.requests) == 1

    def test_a_load_after_an_unload_compares_the_sources_again(self, cuda, module, builder):
        self.edit(cuda, "SCALE = 22\n")
        with pytest.warns(FallbackWarning):
            module.k[1, 1](1)
        module.__aotcuda__.unload()
        self.edit(cuda, "SCALE = 1\n")
        module.k[1, 1](1)
        assert [tier.tier for tier in module.__aotcuda__.tiers["k"]] == ["exact"]
        assert len(builder.requests) == 1
        module.__aotcuda__.unload()
        assert len(cuda.calls("cuLibraryLoadData")) == len(cuda.calls("cuLibraryUnload")) == 3

    def test_a_module_that_the_project_no_longer_has_is_stale(self, cuda, module, builder):
        (cuda.packages / "pyproject.toml").write_text('[tool.aotcuda]\narch = ["sm_90"]\n')
        self.edit(cuda, "SCALE = 22\n")
        with pytest.raises(StaleBuildError):
            module.k[1, 1](1)
        assert builder.requests == []


class TestUnbuilt:
    """A source tree that was never built."""

    @pytest.fixture
    def tree(self, cuda, builder):
        package = cuda.packages / "mypkg"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "_kernels.py").write_text("SCALE = 1\n")
        builder.module_kernels = [kernel("k", "void(int32)")]
        pyproject = cuda.packages.parent / "pyproject.toml"
        pyproject.write_text(PYPROJECT)
        return pyproject

    def test_load_makes_the_module(self, cuda, tree, builder):
        with pytest.raises(ModuleNotFoundError):
            import mypkg.kernels
        module = aotcuda.load("mypkg.kernels")
        import mypkg.kernels

        assert mypkg.kernels.__aotcuda__ is module is aotcuda.load("mypkg.kernels")
        assert builder.requests == []
        with pytest.warns(FallbackWarning, match=r"mypkg.kernels was never built, though .*pyproject.toml names it"):
            mypkg.kernels.k[1, 1](1)
        assert "k" in dir(mypkg.kernels)
        (request,) = builder.requests
        assert (request.target, request.root, request.is_project) == ("sm_90", str(tree.parent), True)
        assert [tier.tier for tier in module.tiers["k"]] == ["jit"]
        assert len(cuda.launches()) == 1

    def test_a_package_that_no_pyproject_names_is_not_found(self, tree):
        tree.write_text("[tool.other]\n")
        with pytest.raises(ModuleNotFoundError) as caught:
            aotcuda.load("mypkg.kernels")
        assert caught.value.name == "mypkg.kernels"
        assert "[tool.hatch.build.targets.wheel.hooks.aotcuda]" in str(caught.value)
        assert "HATCH_BUILD_NO_HOOKS" in str(caught.value)


FAILURES = {
    "no compiler": (None, "<f8"),
    "compiler": (CompileError, "<f8"),
    "linker": (LinkError, "<f8"),
    "toolkit": (ToolchainError, "<f8"),
    "build": (BuildError, "<f8"),
    "compiler, GPU": (CompileError, "<f4"),
    "build, GPU": (BuildError, "<f4"),
}
"""The class of a build's error, None for a compiler that is not installed; and the type of the array."""


def not_installed(monkeypatch):
    monkeypatch.setattr(compilers, "installed", lambda *_: {})
    monkeypatch.setattr(jit_compile, "_is_importable", lambda _: False)


@pytest.mark.filterwarnings("ignore::aotcuda.FallbackWarning")
@pytest.mark.parametrize(("failure", "dtype"), FAILURES.values(), ids=FAILURES)
def test_arrays_of_failed_launches_are_released(cuda, package, builder, monkeypatch, failure, dtype):
    """A stored exception would keep the frames of the launch, and of its callers, with their arrays."""
    builder.failure = failure
    if failure is None:
        not_installed(monkeypatch)
    module = package(kernel("axpy", SAXPY), targets=("sm_80",) if dtype == "<f4" else ("sm_90",))
    arrays = []

    def launch():
        array = cuda.array(np.zeros(8, dtype))
        arrays.append(weakref.ref(array))
        with pytest.raises((ArgumentError, NoImageError)):
            module.axpy[1, 32](2, array)

    for _ in range(3):
        launch()
    gc.collect()
    assert [array() for array in arrays] == [None] * 3


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
def test_arrays_of_failed_setups_are_released(cuda, with_callbacks, raised):
    module, hooks = with_callbacks
    hooks.up = lambda _: (_ for _ in ()).throw(raised)
    array = cuda.array(np.zeros(8, "<f8"))
    with pytest.warns(FallbackWarning), pytest.raises((CallbackError, KeyboardInterrupt)):
        module.axpy[1, 32](2, array)
    array = weakref.ref(array)
    gc.collect()
    assert array() is None


REMEDIES = {
    "no compiler": (None, "install", 1),
    "build": (BuildError, "", 2),
    "toolkit": (ToolchainError, "", 2),
    "compiler": (CompileError, "edit", 2),
    "linker": (LinkError, "edit", 2),
}
"""The error of the first build, the user's remedy, and the builds after the second launch."""


@pytest.mark.filterwarnings("ignore::aotcuda.FallbackWarning")
@pytest.mark.parametrize(("failure", "remedy", "builds"), REMEDIES.values(), ids=REMEDIES)
def test_launch_after_a_remedy_compiles_again(cuda, package, builder, monkeypatch, failure, remedy, builds):
    builder.failure = failure
    module = package(kernel("axpy", SAXPY), sources=[{"path": "mypkg/_kernels.py", "sha256": "0" * 64}])
    array = cuda.array(np.zeros(8, "<f8"))
    with monkeypatch.context() as patch:
        if failure is None:
            not_installed(patch)
        with pytest.raises(ArgumentError):
            module.axpy[1, 32](2, array)
    builder.failure = None
    if remedy == "edit":
        (cuda.packages / "mypkg" / "_kernels.py").write_text("SCALE = 2\n")
    module.axpy[1, 32](2, array)
    assert (len(builder.requests), len(cuda.launches())) == (builds, 1)


def other_types(cuda, package, _monkeypatch):
    module = package(kernel("axpy", SAXPY))
    return module, lambda: module.axpy[1, 32](2, cuda.array(np.zeros(8, "<f8")))


def other_gpu(cuda, package, _monkeypatch):
    module = package(kernel("axpy", SAXPY), targets=("sm_80",))
    return module, lambda: module.axpy[1, 32](2, cuda.array(np.zeros(8, "<f4")))


def second_gpu(cuda, package, _monkeypatch):
    cuda.set(devices="9.0,7.5")
    module = package(kernel("axpy", SAXPY), targets=("sm_90",))

    def launch():
        drivers.get().make_current(1)
        module.axpy[1, 32](2, cuda.array(np.zeros(8, "<f4"), device=1))

    return module, launch


def edited(cuda, package, _monkeypatch):
    (cuda.packages / "mypkg").mkdir(parents=True)
    (cuda.packages / "pyproject.toml").write_text(PYPROJECT)
    sources = [{"path": "mypkg/_kernels.py", "sha256": "0" * 64}]
    module = package(kernel("axpy", SAXPY), editable=True, sources=sources, rebuild=jit_builds.rebuild("."))
    return module, lambda: module.axpy[1, 32](2, cuda.array(np.zeros(8, "<f4")))


@pytest.mark.filterwarnings("ignore::aotcuda.FallbackWarning")
@pytest.mark.parametrize("prepare", [other_types, other_gpu, second_gpu, edited])
def test_unload_does_not_wait_for_a_compilation(cuda, package, builder, monkeypatch, prepare, path):
    """The launch that waits for the compilation works, and so does the next one."""
    module, launch = prepare(cuda, package, monkeypatch)
    compiling, unloaded = threading.Event(), threading.Event()

    def build(request):
        compiling.set()
        assert unloaded.wait(30), "the unload waits"
        return builder(request)

    monkeypatch.setattr(jit, "build", build)
    with threads.started(launch):
        assert compiling.wait(30)
        module.__aotcuda__.unload()
        unloaded.set()
    launch()
    assert len(cuda.launches()) == 2
    assert cuda.calls("crash") == []
    module.__aotcuda__.unload()
    assert len(cuda.calls("cuLibraryLoadData")) == len(cuda.calls("cuLibraryUnload"))


def test_launches_work_where_the_cache_cannot_be_written(cuda, package, builder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AOTCUDA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    module = package(kernel("axpy", SAXPY))
    array = cuda.array(np.zeros(8, "<f8"))
    with pytest.warns(FallbackWarning) as caught:
        module.axpy[1, 32](2, array)
        module.__aotcuda__.unload()
        module.axpy[1, 32](2, array)
    assert sorted("is not stored beyond this process" in str(warning.message) for warning in caught) == [False, True]
    assert len(builder.requests) == 1
    assert len(cuda.launches()) == 2


def test_a_damaged_cache_entry_is_compiled_again(cuda, package, builder, tmp_path, monkeypatch):
    module = package(kernel("axpy", SAXPY))
    array = cuda.array(np.zeros(8, "<f8"))
    with pytest.warns(FallbackWarning):
        module.axpy[1, 32](2, array)
        (image,) = (tmp_path / "cache").rglob("kernels.cubin")
        os.truncate(image, 3)
        jit_builds.forget_cache(monkeypatch)
        module.__aotcuda__.unload()
        module.axpy[1, 32](2, array)
    assert len(builder.requests) == 2
    (image,) = (tmp_path / "cache").rglob("kernels.cubin")
    assert image.stat().st_size > 3


def test_an_older_driver_compiles_again_in_a_shared_cache(builder, tmp_path):
    builder.module_kernels = [kernel("k", "void(int32)")]
    source = Request("mypkg.kernels", jit_builds.TABLE, str(tmp_path), str(tmp_path))

    def obtain(*driver):
        builder.changes = {"toolchain": {"cuda": f"{driver[0]}.0"}}
        result = jit_compile.obtain(source.case(None, None, (9, 0), driver), "GPU 0", NoImageError("there is none"))
        return result.manifest["toolchain"]["cuda"], len(builder.requests)

    with pytest.warns(FallbackWarning):
        assert obtain(13, 1) == ("13.0", 1)
        assert obtain(13, 0) == ("13.0", 1)
        assert obtain(12, 4) == ("12.0", 2)
    assert obtain(13, 0) == ("12.0", 2), "machine code of an older one serves both"
