"""Import a packaged module: its exports, the time of loading, and errors for missing or damaged parts."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import pickle
import pydoc
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import aotcuda
from aotcuda.errors import (
    CallError,
    ConfigError,
    CudaError,
    DriverTooOldError,
    LaunchError,
    ManifestError,
    NoDeviceError,
    NoDriverError,
    NoImageError,
)
from aotcuda.runtime import driver
from support import manifests
from support.manifests import kernel

INT = "void(int32)"


class TestExports:
    """The names of a packaged module."""

    @pytest.fixture
    def module(self, cuda):
        return cuda.package(kernel("axpy", INT, "void(float32)"), kernel("tiled", INT), functions=("add_i32",))

    def test_names_can_be_imported_and_listed(self, module):
        namespace = {}
        exec("from mypkg.kernels import *", namespace)
        assert {"axpy", "tiled", "add_i32"} == namespace.keys() - {"__builtins__"}
        assert {"axpy", "tiled", "add_i32", "__aotcuda__"} <= set(dir(module))
        assert "_aotcuda" not in dir(module)

    def test_an_unknown_name_suggests_the_nearest(self, module):
        with pytest.raises(AttributeError) as caught:
            module.axpi  # noqa: B018
        assert str(caught.value) == "module 'mypkg.kernels' has no attribute 'axpi'. Did you mean 'axpy'?"
        assert not hasattr(module, "nothing_like_it")

    def test_a_kernel_shows_its_signatures(self, module):
        assert module.axpy.signatures == [INT, "void(float32)"]
        assert repr(module.axpy) == "<aotcuda kernel mypkg.kernels.axpy: void(int32); void(float32)>"
        assert (module.axpy.__name__, module.axpy.__module__) == ("axpy", "mypkg.kernels")
        assert str(inspect.signature(module.axpy)) == "(a: 'int32 | float32', /)"
        assert inspect.signature(aotcuda.Kernel) is not None

    def test_help_shows_launch_docstring_and_signatures(self, cuda):
        packaged = cuda.package({**kernel("axpy", "void(float32, float32[::1])", INT), "doc": "Add.\n\nIn place."})
        shown = [line.strip() for line in pydoc.render_doc(packaged.axpy, renderer=pydoc.plaintext).splitlines()]
        calls = ["axpy[grid, block](a, b)", "axpy[grid, block](a)", ""]
        assert shown[-11:-5] == [*calls, "Add.", "", "In place."]
        assert shown[-4:] == ["Packaged for::", "", "void(float32, float32[::1])", "void(int32)"]
        assert aotcuda.Kernel.__doc__.startswith("A kernel of a packaged module")
        assert inspect.signature(packaged.axpy) == inspect.signature(lambda *args: None)

    def test_a_call_without_configuration_says_how_to_launch(self, module):
        with pytest.raises(CallError, match=r"axpy needs a configuration: axpy\[grid, block\]") as raised:
            module.axpy(1)
        assert isinstance(raised.value, TypeError)  # as Python has it
        assert isinstance(raised.value, ValueError)  # and Numba

    def test_a_device_function_cannot_be_called_on_the_host(self, module):
        assert module.add_i32.prototype == "int32_t add_i32(int32_t, int32_t)"
        assert module.add_i32.signature == "int32(int32, int32)"
        assert "int32_t add_i32" in repr(module.add_i32)
        shown = pydoc.render_doc(module.add_i32, renderer=pydoc.plaintext)
        assert "int32_t add_i32(int32_t, int32_t)  // int32(int32, int32)" in shown
        for call in (lambda: module.add_i32(1, 2), lambda: module.add_i32(x=1)):
            with pytest.raises(TypeError, match="add_i32 is a device function: kernels call it on the GPU"):
                call()

    def test_a_device_function_has_a_type_for_compilers_alone(self, module):
        message = "add_i32 has no type here; it can be called inside kernels of numba-cuda and numba-cuda-mlir"
        with pytest.raises(AttributeError, match=f"{message}$"):
            _ = module.add_i32._numba_type_

    def test_a_group_of_device_functions_lists_them(self):
        records = [
            {"name": f"add_{kind}", "prototype": f"{kind} add_{kind}({kind})", "signature": f"{kind}({kind})"}
            for kind in ("float", "int")
        ]
        group = aotcuda.DeviceFunctionGroup(SimpleNamespace(name="mypkg.kernels"), "add", records)
        assert (group.functions, group.signatures) == (["add_float", "add_int"], ["float(float)", "int(int)"])
        assert repr(group) == "<aotcuda device functions mypkg.kernels.add: float(float); int(int)>"
        listed = "float add_float(float)  // float(float)\nint add_int(int)  // int(int)\n\nKernels call it"
        assert group.__doc__.startswith(listed)

    def test_a_device_function_cannot_be_launched(self, module):
        with pytest.raises(
            TypeError, match="add_i32 is a device function; to launch a kernel, list it in kernels, not"
        ):
            module.add_i32[1, 32]

    def test_modules_kernels_and_functions_can_be_pickled(self, module):
        assert pickle.loads(pickle.dumps(module.axpy)) is module.axpy
        assert pickle.loads(pickle.dumps(module.add_i32)) is module.add_i32
        assert pickle.loads(pickle.dumps(module.__aotcuda__)) is module.__aotcuda__

    @pytest.mark.parametrize(
        ("is_installed", "reason"),
        [
            (False, "No module named 'mypkg'"),
            (True, "module 'mypkg.kernels' has no attribute 'axpy'. Did you mean 'saxpy'?"),
        ],
        ids=["no package", "another version"],
    )
    def test_a_process_without_the_package_says_what_to_install(self, is_installed, reason, module, cuda):
        data = pickle.dumps(module.axpy)
        manifests.write(cuda.packages, [kernel("saxpy", INT)])
        path = {} if is_installed else {"PYTHONPATH": str(Path(aotcuda.__file__).parents[1])}
        code = f"import pickle\ntry:\n    pickle.loads({data!r})\nexcept ImportError as error:\n    print(error)\n"
        assert cuda.run(code, **path) == (
            f"mypkg.kernels.axpy was sent to this process, which does not have it: {reason}. Install the package "
            "here in the version that the sender has\n"
        )

    def test_load_returns_the_object_of_generated_modules(self, module):
        assert aotcuda.load("mypkg.kernels") is module.__aotcuda__
        assert isinstance(module.__aotcuda__, aotcuda.Module)
        with pytest.raises(ManifestError, match="json is no module that aotcuda generated"):
            aotcuda.load("json")

    def test_the_module_object_shows_its_parts(self, module):
        inside = module.__aotcuda__
        assert inside.name == "mypkg.kernels"
        assert list(inside.kernels) == ["axpy", "tiled"]
        assert list(inside.functions) == ["add_i32"]
        assert inside.manifest["module"] == "mypkg.kernels"
        assert "2 kernels, 1 function; GPU 0 (Stand-in A, compute capability 9.0) takes sm_90" in repr(inside)
        assert inside.choice_for((8, 6)).arch == "sm_80"
        for mistaken in ((8,), 8.6, 86, [8, 6], (8.0, 6)):
            with pytest.raises(ValueError, match=r" is no compute capability; write it as \(9, 0\), or as 'sm_90'"):
                inside.choice_for(mistaken)

    @pytest.mark.parametrize("used", [False, True])
    def test_a_reload_reads_the_new_files_alone(self, cuda, used):
        module = cuda.package(kernel("axpy", "void(float32)"), load="first-use")
        assert not used or module.axpy
        for path in (Path(module.__file__).parent / "kernels.aotcuda").iterdir():
            path.write_bytes(b"{}")
        with pytest.raises(ManifestError) if not used else contextlib.nullcontext():
            assert module.axpy
        manifests.write(cuda.packages, [kernel("other", "void(float64)")])
        importlib.reload(module)
        assert module.other.signatures == ["void(float64)"]
        assert not hasattr(module, "axpy")


class TestLoading:
    """`load = "import"` and `load = "first-use"`."""

    @pytest.mark.parametrize("load", ["import", "first-use"])
    def test_images_are_loaded_once_without_a_context(self, cuda, load):
        launch = cuda.package(kernel("k", INT), load=load).k[1, 1]
        assert [call["call"] for call in cuda.calls()] == ["cuInit", "cuLibraryLoadData"] * (load == "import")
        launch(1)
        launch(2)
        calls = [call["call"] for call in cuda.calls("cuInit", "cuLibraryLoadData", "cuLaunchKernel")]
        assert calls == ["cuInit", "cuLibraryLoadData", "cuLaunchKernel", "cuLaunchKernel"]

    def test_first_use_reads_no_manifest(self, cuda):
        folder = manifests.write(cuda.packages, [kernel("k", INT)], load="first-use")
        (folder / "manifest.json").unlink()
        module = importlib.import_module("mypkg.kernels")
        assert "not read yet" in repr(module.__aotcuda__)
        with pytest.raises(ManifestError, match=r"manifest\.json cannot be read"):
            module.k  # noqa: B018

    @pytest.mark.parametrize(
        ("written", "environment", "loads"), [("first-use", "import", 1), ("import", "first-use", 0)]
    )
    def test_the_environment_overrides_the_package(self, cuda, monkeypatch, written, environment, loads):
        monkeypatch.setenv("AOTCUDA_LOAD", environment)
        cuda.package(kernel("k", INT), load=written)
        assert len(cuda.calls("cuLibraryLoadData")) == loads

    def test_another_value_in_the_environment_is_refused(self, cuda, monkeypatch):
        monkeypatch.setenv("AOTCUDA_LOAD", "lazy")
        with pytest.raises(ConfigError, match="AOTCUDA_LOAD is 'lazy'; write 'import' or 'first-use'"):
            cuda.package(kernel("k", INT))

    def test_a_module_of_functions_alone_needs_no_driver(self, cuda):
        module = cuda.package(functions=("add",))
        module.__aotcuda__.preload()
        assert cuda.calls() == []
        assert module.add.prototype.startswith("int32_t add")

    def test_preload_loads_all_kernels(self, cuda):
        module = cuda.package(kernel("k", INT, "void(float32)"), load="first-use")
        module.__aotcuda__.preload()
        calls = cuda.calls()
        module.k[1, 1](1)
        assert [call["name"] for call in calls if call["call"] == "cuKernelGetFunction"] == ["k_0", "k_1"]
        assert [call["call"] for call in cuda.calls()[len(calls) :]] == ["cuLaunchKernel"]

    def test_a_launch_after_an_unload_loads_the_images_again(self, cuda):
        module = cuda.package(kernel("k", INT))
        launch = module.k[1, 1]
        launch(1)
        module.__aotcuda__.unload()
        module.__aotcuda__.unload()
        assert len(cuda.calls("cuLibraryUnload")) == 1
        launch(2)
        assert [call["parameters"] for call in cuda.launches()] == ["01000000", "02000000"]
        assert len(cuda.calls("cuLibraryLoadData")) == 2


class TestMissingParts:
    """The import succeeds on every machine, and the first launch names the missing part."""

    def launch_error(self, cuda, kind, **options):
        """Return the error of a launch; each attempt gives it, and none reaches the GPU."""
        module = cuda.package(kernel("k", INT), **options)
        for _ in range(2):
            with pytest.raises(kind) as caught:
                module.k[1, 1](1)
        assert cuda.launches() == []
        assert "not loaded" in repr(module.__aotcuda__)
        return str(caught.value)

    @pytest.mark.parametrize("load", ["import", "first-use"])
    def test_a_missing_driver_library_is_named(self, cuda, monkeypatch, load):
        monkeypatch.setattr(driver, "LIBRARY", "libcuda.so.nowhere")
        message = self.launch_error(cuda, NoDriverError, load=load)
        assert "the CUDA driver library libcuda.so.nowhere cannot be loaded" in message
        assert "install NVIDIA's driver" in message

    @pytest.mark.parametrize(
        ("settings", "error", "message"),
        [
            ({"fail": "cuInit=34"}, NoDriverError, "is the toolkit's stub, not a driver"),
            ({"fail": "cuInit=999"}, CudaError, "the CUDA driver could not be started: CUDA_ERROR_UNKNOWN, unknown"),
            ({"devices": ""}, NoDeviceError, "the CUDA driver shows no GPU"),
            ({"version": 11080}, DriverTooOldError, "the driver supports CUDA 11.8; aotcuda needs"),
            ({"version": 12080}, DriverTooOldError, "CUDA 12.8, and the images need CUDA 13.0, which driver 580.65"),
            ({"devices": "7.0"}, NoImageError, "mypkg.kernels has no image for GPU 0 (Stand-in A, compute capability"),
            ({"visible": ""}, NoDeviceError, "CUDA_VISIBLE_DEVICES is ''"),
            (
                {"data": b"not a fatbin"},
                CudaError,
                "the driver refused the images of mypkg.kernels: CUDA_ERROR_INVALID_",
            ),
        ],
    )
    def test_a_missing_driver_gpu_or_image_is_named(self, cuda, monkeypatch, settings, error, message):
        if "visible" in settings:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", settings["visible"])
        cuda.set(**settings)
        assert message in self.launch_error(cuda, error, data=settings.get("data"))

    def test_a_driver_that_starts_later_is_used(self, cuda):
        cuda.set(fail="cuInit=999@1")
        module = cuda.package(kernel("k", INT))
        module.k[1, 1](1)
        assert len(cuda.launches()) == 1

    def test_chosen_lists_gpus_without_an_image(self, cuda):
        cuda.set(devices="7.0")
        choice = cuda.package(kernel("k", INT)).__aotcuda__.chosen[0]
        assert (choice.arch, choice.kind) == (None, None)
        assert "takes no image: none of the packaged images runs on it" in str(choice)


class TestDamage:
    """Files that are truncated or altered."""

    @pytest.fixture
    def damage(self, cuda):
        def damage(file, change, load):
            folder = manifests.write(cuda.packages, [kernel("k", INT)], load=load)
            (folder / file).write_bytes(change((folder / file).read_bytes()))
            return importlib.import_module("mypkg.kernels")

        return damage

    @pytest.mark.parametrize("file", ["manifest.json", "kernels.fatbin"])
    @pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data.replace(b"o", b"a"), lambda _: b""])
    @pytest.mark.parametrize("library", [driver.LIBRARY, "libcuda.so.nowhere"])
    def test_damaged_files_are_refused(self, cuda, monkeypatch, damage, file, change, library):
        monkeypatch.setattr(driver, "LIBRARY", library) if "nowhere" in library else None
        with pytest.raises(ManifestError, match=f"{file}.*nstall the package again"):
            damage(file, change, "import")
        sys.modules.pop("mypkg.kernels", None)
        module = damage(file, change, "first-use")
        with pytest.raises(ManifestError, match=f"{file}.*nstall the package again"):
            module.k[1, 1](1)
        assert cuda.launches() == []


def test_every_public_name_can_be_found():
    assert {name for name in aotcuda.__all__ if getattr(aotcuda, name).__name__ == name} == set(aotcuda.__all__)
    assert set(aotcuda.__all__) <= set(dir(aotcuda))
    with pytest.raises(AttributeError, match="module 'aotcuda' has no attribute 'nothing'"):
        aotcuda.nothing  # noqa: B018


@pytest.mark.parametrize("load", ["import", "first-use"])
def test_a_module_executed_from_its_file_works(cuda, load):
    path = cuda.package(kernel("k", "void(int32)"), load=load).__file__
    spec = importlib.util.spec_from_file_location("by_its_file", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.k[1, 32](7)
    assert cuda.parameters() == (7).to_bytes(4, "little")
    assert module.k is module.k
    assert str(module.k) == "by_its_file.k"
    assert "k" in dir(module)
    spec.loader.exec_module(module)
    module.k[1, 32](8)
    assert cuda.parameters() == (8).to_bytes(4, "little")


@pytest.mark.parametrize("load", ["import", "first-use"])
def test_a_package_in_a_zip_says_that_it_must_be_installed(cuda, tmp_path, load):
    cuda.package(kernel("k", "void(int32)"), load=load)
    archive = tmp_path / "app.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in cuda.packages.rglob("*"):
            file.write(path, path.relative_to(cuda.packages))
    shutil.rmtree(cuda.packages)
    code = f"""
import sys
sys.path.insert(0, {str(archive)!r})
import aotcuda
try:
    import mypkg.kernels
    mypkg.kernels.k[1, 32](7)
except aotcuda.errors.ManifestError as error:
    print(error)
"""
    message = cuda.run(code)
    assert f"{archive} is a file: packages with GPU code cannot run from a zip archive; install the package" in message


ORIGINS = {
    "module": (["mypkg._k:k"], "mypkg._k, or package"),
    "modules": (["mypkg.b:K.k", "mypkg.a:k"], "mypkg.a, mypkg.b, or package"),
    "CUDA C++": (["csrc/raw.cu:k"], "code of csrc/raw.cu, which"),
}


@pytest.mark.parametrize("load", ["import", "first-use"])
@pytest.mark.parametrize(("origins", "expected"), ORIGINS.values(), ids=ORIGINS)
@pytest.mark.parametrize("use", [lambda k: k.k0, lambda k: k.add, lambda k: k.__aotcuda__.kernels])
def test_numbas_simulator_is_refused_with_the_source(cuda, monkeypatch, load, origins, expected, use):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    kernels = [{**kernel(f"k{number}", "void(int32)"), "origin": origin} for number, origin in enumerate(origins)]
    module = cuda.package(*kernels, load=load, functions=("add",))
    for function in module.__aotcuda__.manifest["functions"]:
        function["origin"] = origins[0]
    with pytest.raises(LaunchError) as caught:
        use(module)
    assert str(caught.value).startswith("mypkg.kernels has GPU code")
    assert expected in str(caught.value)
    assert "NUMBA_ENABLE_CUDASIM" in str(caught.value)
    assert cuda.calls() == []
