"""Modules of several fatbins: each is loaded when one of its kernels or variables is used, and once."""

from __future__ import annotations

import importlib
import os

import pytest

from aotcuda.errors import CudaError, ForkError, ManifestError, MissingVariantError
from aotcuda.runtime import driver as drivers
from support import threads
from support.manifests import kernel, write

pytestmark = pytest.mark.usefixtures("path")


@pytest.fixture
def package(cuda):
    def make(load="first-use", **options):
        kernels = [kernel(name, "void(int32)", fatbin=index) for index, name in enumerate("klm")]
        return cuda.package(*kernels, load=load, **options)

    return make


def loads(cuda):
    return len(cuda.calls("cuLibraryLoadData"))


def unloads(cuda):
    return len(cuda.calls("cuLibraryUnload"))


FIRST_USES = {
    "launch": lambda module: module.l[1, 1](1),
    "forall": lambda module: module.l.forall(8)(1),
    "registers": lambda module: module.l.get_regs_per_thread(),
    "occupancy": lambda module: module.l.occupancy(32),
    "variable": lambda module: module.__aotcuda__.symbol("csrc/b.cu:x").address,
}
VARIABLES = {"csrc/b.cu:x": {"symbol": "x", "fatbin": 1}, "csrc/c.cu:x": {"symbol": "x", "fatbin": 2}}


@pytest.mark.parametrize("use", FIRST_USES.values(), ids=FIRST_USES)
def test_second_fatbin_is_loaded_at_its_first_use(cuda, package, use):
    module = package(globals=VARIABLES)
    module.k[1, 1](1)
    assert loads(cuda) == 1
    for _ in range(4):
        use(module)
    assert loads(cuda) == 2
    module.__aotcuda__.unload()
    assert unloads(cuda) == 2
    module.m[1, 1](1)
    assert loads(cuda) - unloads(cuda) == 1, "the image of one kernel is enough for a launch"
    module.__aotcuda__.unload()
    assert loads(cuda) == unloads(cuda)


@pytest.mark.parametrize("load", ["first-use", "import"])
def test_all_fatbins_are_loaded_by_preload_and_import(cuda, package, load):
    module = package(load)
    if load == "first-use":
        module.__aotcuda__.preload()
    assert loads(cuda) == 3
    for name in "klm":
        getattr(module, name)[1, 1](1)
    assert (loads(cuda), len(cuda.launches())) == (3, 3)


def test_threads_load_each_fatbin_once(cuda, package):
    module = package()
    works = [lambda name=name: getattr(module, name)[1, 1](1) for name in "klmklmkl"]
    assert threads.at_once(works) == []
    assert (loads(cuda), len(cuda.launches())) == (3, 8)
    module.__aotcuda__.unload()
    assert unloads(cuda) == 3


def test_launches_of_preloaded_fatbins_load_nothing_during_a_capture(cuda, package):
    module = package()
    module.__aotcuda__.preload()
    cuda.set(capturing="77")
    before = len(cuda.calls("cuLibraryLoadData", "cuKernelGetFunction", "cuLibraryGetKernel"))
    for name in "klm":
        getattr(module, name)[1, 1, 77](1)
    assert len(cuda.calls("cuLibraryLoadData", "cuKernelGetFunction", "cuLibraryGetKernel")) == before
    assert len(cuda.launches()) == 3


def test_forked_child_loads_no_further_fatbin(cuda, package):
    module = package()
    module.k[1, 1](1)
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            module.l[1, 1](1)
        except ForkError:
            os.write(writer, b"refused")
        finally:
            os._exit(0)
    os.close(writer)
    assert os.read(reader, 100) == b"refused"
    os.wait()
    os.close(reader)
    assert loads(cuda) == 1
    module.l[1, 1](1)
    assert loads(cuda) == 2


@pytest.mark.parametrize("load", ["first-use", "import"])
def test_fatbin_without_the_chosen_target_is_a_missing_variant(cuda, package, load):
    module = package(load, targets=("sm_80", "sm_90"), other_targets=("sm_80",))
    for _ in range(3):
        module.k[1, 1](1)
        with pytest.raises(MissingVariantError, match=r"l_0 of mypkg\.kernels, .* is not in the image for GPU 0"):
            module.l[1, 1](1)
    assert (loads(cuda), len(cuda.launches())) == (1, 3)
    module.__aotcuda__.preload()
    assert loads(cuda) == 1


DAMAGE = {
    "altered": (lambda file: file.write_bytes(file.read_bytes()[:-1] + b"!"), "was altered: its SHA-256 is not"),
    "longer": (lambda file: file.write_bytes(file.read_bytes() + b"!"), "has more bytes where the manifest says"),
    "missing": (lambda file: file.unlink(), "install the package again"),
}


@pytest.mark.parametrize(
    ("load", "devices", "loaded"), [("first-use", "9.0", 1), ("import", "9.0", 1), ("first-use", "", 0)]
)
@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_second_fatbin_is_refused(cuda, load, devices, loaded, damage, message):
    """Its digest is compared when it is loaded, its size before; without a GPU the damage is reported all the same."""
    cuda.set(devices=devices)
    kernels = [kernel("k", "void(int32)"), kernel("l", "void(int32)", fatbin=1)]
    damage(write(cuda.packages, kernels, load=load) / "kernels-1.fatbin")
    with pytest.raises(ManifestError, match=rf"kernels-1\.fatbin .*{message}"):
        module = importlib.import_module("mypkg.kernels")
        module.k[1, 1](1)
        module.l[1, 1](1)
    assert loads(cuda) == (loaded if "SHA" in message else 0)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, None], ids=["interrupt", "error"])
def test_failed_load_of_a_second_fatbin_is_tried_again(cuda, package, monkeypatch, raised):
    """The interpreter raises an interrupt when the call of the driver returns."""
    module, call = package(), drivers.get().call
    module.k[1, 1](1)
    load = call["cuLibraryLoadData"]

    def failing_load(*args):
        if raised is None:
            return 2  # out of memory
        load(*args)
        raise raised

    with monkeypatch.context() as patch:
        patch.setitem(call, "cuLibraryLoadData", failing_load)
        with pytest.raises(raised or CudaError):
            module.l[1, 1](1)
    for name in "kl":
        getattr(module, name)[1, 1](1)
    module.__aotcuda__.unload()
    assert loads(cuda) == unloads(cuda)
    assert len(cuda.launches()) == 3
