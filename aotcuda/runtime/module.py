"""Make the `Module` of a generated module, which reads the manifest and loads the images when needed.

With `load = "first-use"` an import only makes that object; with `load = "import"` it also reads the manifest, starts
the driver and loads the images. The first launch reports what this machine lacks.
"""

from __future__ import annotations

import os
import sys

from . import importing, new_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..common.jit_build import Request
    from ..manifest import Manifest
    from .device_function import DeviceFunction, DeviceFunctionGroup
    from .images.choice import Choice, Tier
    from .images.images import Images
    from .images.kernel_table import KernelTable
    from .images.library import Library
    from .kernel import Kernel
    from .symbol import Symbol

_LOADS = ("import", "first-use")

_UNLISTED = frozenset(["_aotcuda"])
"""Names of a generated module that `dir()` does not show."""


class Module:
    """A packaged module: its manifest, its images and its exports.

    Attributes:
        name: The module's name, `"mypkg.kernels"`.
        path: The file of its manifest.
        editable: Whether it is installed as editable, and checked against its sources.
    """

    def __init__(
        self,
        name: str,
        namespace: dict[str, object],
        path: str,
        sha256: str | None,
        *,
        editable: bool,
        unbuilt: Request | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.editable = editable
        self._namespace = namespace
        self._stored: set[str] = set()  # the names that `attribute` has added to the namespace
        self._sha256 = sha256
        self._unbuilt = unbuilt
        self._lock = new_lock()
        self._made: Images | None = None
        self._kernels: dict[str, Kernel] = {}
        self._functions: dict[str, DeviceFunction] | None = None
        self._groups: dict[str, DeviceFunctionGroup] = {}

    @property
    def manifest(self) -> Manifest:
        """Return the manifest, which is read at the first call.

        Raises:
            ManifestError: It is missing, altered or of a newer format version.
        """
        return self._images.manifest

    @property
    def kernels(self) -> dict[str, Kernel]:
        """Return the kernels by name."""
        self._refuse_simulator()
        return {name: self._kernels.get(name) or self._kernel(name) for name in self._images.kernels}

    @property
    def functions(self) -> dict[str, DeviceFunction]:
        """Return the exported device functions by name."""
        if self._functions is None:
            self._make_functions()
        return dict(self._functions or {})

    @property
    def library(self) -> Library | None:
        """Return the loaded images; None until something needs them."""
        kernel_table = self._made.current if self._made is not None else None
        return kernel_table.library if kernel_table is not None else None

    @property
    def chosen(self) -> dict[int, Choice]:
        """Return the image for each GPU of this machine with the reason, by the GPU's ordinal.

        Raises:
            RuntimeUnavailableError: There is no driver or no GPU.
            CudaError: The driver cannot be started.
        """
        with importing:
            from .reports import module_attributes  # noqa: PLC0415 (few programs ask)

        return module_attributes.choices(self._images)

    @property
    def tiers(self) -> dict[str, list[Tier]]:
        """Return for each kernel the image of each overload on each GPU, with the reason; errors as for `chosen`."""
        with importing:
            from .reports import module_attributes  # noqa: PLC0415 (few programs ask)

        return module_attributes.tiers(self._images)

    @property
    def package_root(self) -> str:
        """Return the folder that holds the module's package."""
        root = os.path.dirname(os.path.dirname(self.path))
        for _ in range(self.name.count(".")):
            root = os.path.dirname(root)
        return root

    @property
    def fast_path(self) -> str:
        """Return "in C" if launches take the fast path, else "none" and the reason.

        Raises:
            ConfigError: `AOTCUDA_SYNCHRONIZE` has an unknown value.
        """
        with importing:
            from .reports import module_attributes  # noqa: PLC0415 (few programs ask)

        return module_attributes.fast_path(self._images)

    def choice_for(self, capability: tuple[int, int] | str, driver: tuple[int, int] | None = None) -> Choice:
        """Return the image for a GPU of a compute capability; this machine need not have such a GPU.

        Args:
            capability: The compute capability, `(9, 0)` or `"sm_90"`.
            driver: The CUDA version of a driver; None means a driver that is new enough.

        Raises:
            ValueError: `capability` is neither a target nor a pair of integers.
        """
        with importing:
            from .reports import module_attributes  # noqa: PLC0415 (few programs ask)

        return module_attributes.choice_for(self._images, capability, driver)

    def symbol(self, name: str) -> Symbol:
        """Return a `__device__` or `__constant__` variable of the images; its first use loads the images.

        Args:
            name: Its name in C++: `"table"`, `"physics::table"`, or a mangled one.
        """
        with importing:
            from .symbol import Symbol  # noqa: PLC0415 (few programs ask)

        return Symbol(name, self._images)

    def attribute(self, name: str) -> object:
        """Return a kernel or function, and store it in the module; the generated module's `__getattr__`.

        In an editable install nothing is stored: the exports may change with the sources.

        Raises:
            AttributeError: The module exports no such name.
            ManifestError: The manifest cannot be read.
        """
        if name.startswith("__") and name.endswith("__") and name != "__all__":  # the import system reads some
            message = f"module {self.name!r} has no attribute {name!r}"
            raise AttributeError(message, name=name)
        value: object = self._exported() if name == "__all__" else self._export(name)
        if value is None:
            raise self._unknown(name)
        if not self.editable:
            self._stored.add(name)
            self._namespace[name] = value
        return value

    def __getattr__(self, name: str) -> object:
        """Raise the error for an export, which is an attribute of the Python module and not of this object."""
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        if not name.startswith("_") and "name" in self.__dict__:
            message += f"; kernels are attributes of the module itself: import {self.name} as k, and launch k.{name}"
        raise AttributeError(message, name=name)

    def names(self) -> list[str]:
        """Return the module's names; the generated module's `__dir__`."""
        return sorted({*self._namespace, *self._exported()} - _UNLISTED)

    def ready(self) -> Library:
        """Load the images if needed, and return them; an editable install is compared with its sources first.

        Raises:
            RuntimeUnavailableError: There is no driver, no GPU, or no image for any GPU.
            ManifestError: The fatbin is missing or altered.
            StaleBuildError: The module is editable and a source changed after the build.
            ForkError: The process forked after CUDA was started.
            CudaError: The driver cannot be started or refuses the images.
        """
        return self._images.use(_load_all)

    def preload(self) -> None:
        """Load everything now: the images, a context if there is none, and the code of every kernel on its GPU.

        Errors as for a launch.
        """
        self._images.preload()

    def unload(self) -> None:
        """Unload the images from the driver; the next launch loads them again.

        Other threads may launch meanwhile: `unload` waits for launches in progress and their kernels. Code that a
        launch of the module runs, such as a setup callback, may call it, too: the images are then unloaded when that
        launch ends. A process that forked after CUDA was started unloads nothing, because the images belong to its
        parent.

        Raises:
            CallbackError: A teardown callback raised; the images were unloaded all the same.
            CudaError: The driver refuses.
        """
        self._images.unload()

    def load_early(self) -> None:
        """Read, check and load, for an import with `load = "import"`; a missing driver or GPU is no error yet.

        Raises:
            ManifestError: The manifest or the fatbin is missing, altered or of a newer format version.
            CallbackError: A setup callback raised.
            DependencyError: The module has callbacks, and the package of their argument is not installed.
        """
        self._images.load_early()

    def forget_names(self) -> None:
        """Remove the attributes that `attribute` stored, because the module is being executed again."""
        # A copy, because another thread may add names. The manifest may have changed, so it need not list all names.
        for name in [*self._stored]:
            self._namespace.pop(name, None)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return load, (self.name,)

    def __repr__(self) -> str:
        if self._made is None or not self._made.source.is_read:
            return f"<aotcuda.Module {self.name}, not read yet>"
        with importing:
            from .reports import module_attributes  # noqa: PLC0415 (few programs ask)

        return module_attributes.describe(self._made)

    @property
    def _images(self) -> Images:
        """Return the images; make it at the first use."""
        return self._made or self._make_images()

    def _make_images(self) -> Images:
        with importing:
            from .images import source  # noqa: PLC0415 (load = "first-use" needs none)
            from .images.images import Images  # noqa: PLC0415 (load = "first-use" needs none)

        with self._lock:
            if self._made is None:
                if self._unbuilt is not None:
                    self._made = Images(source.Unbuilt(self._unbuilt))
                else:
                    kind = source.Editable if self.editable else source.Packaged
                    self._made = Images(kind(self.name, self.path, self._sha256, self.package_root))
            return self._made

    def _exported(self) -> list[str]:
        """Return the names of all exports, in order."""
        return sorted([*self._images.kernels, *self.functions, *self._groups])

    def _export(self, name: str) -> Kernel | DeviceFunction | DeviceFunctionGroup | None:
        """Return the export of a name, None if there is none."""
        self._refuse_simulator()
        if name in self._images.kernels:
            return self._kernels.get(name) or self._kernel(name)
        return self.functions.get(name) or self._groups.get(name)

    def _refuse_simulator(self) -> None:
        """Raise LaunchError in Numba's simulator, which cannot run GPU code."""
        if is_simulated():
            with importing:
                from .reports import module_attributes  # noqa: PLC0415 (few programs run in it)

            raise module_attributes.simulator_error(self.name, self._images.source.origins())

    def _kernel(self, name: str) -> Kernel:
        """Return the object for a kernel, which stays valid when images are loaded again."""
        with importing:
            from .kernel import Kernel  # noqa: PLC0415 (an import makes no kernels)

        kind = Kernel
        if self._images.manifest.get("by_grid"):
            with importing:
                from .launch.grid_kernel import GridKernel  # noqa: PLC0415 (few modules have any)

            kind = GridKernel
        _picklable(kind)
        return self._kernels.setdefault(name, kind(name, self._images))

    def _make_functions(self) -> None:
        with importing:
            from . import device_function  # noqa: PLC0415 (few programs have any)

        _picklable(device_function.DeviceFunction, device_function.DeviceFunctionGroup)
        functions, groups = device_function.read_functions(self.name, self.path, self.manifest)
        with self._lock:
            if self._functions is None:
                self._functions, self._groups = functions, groups

    def _unknown(self, name: str) -> AttributeError:
        exported = self._exported()
        with importing:
            from ..common.suggest import nearest  # noqa: PLC0415 (only errors come here)

            near = nearest(name, exported)  # imports more
        hint = f". Did you mean {near!r}?" if near else ""
        return AttributeError(f"module {self.name!r} has no attribute {name!r}{hint}", name=name)


def is_simulated() -> bool:
    """Return True if Numba's simulator is on in this process, by Numba's environment variable."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "").strip() not in ("", "0")


def load(
    name: str, *, manifest: str | None = None, sha256: str | None = None, load: str = "import", editable: bool = False
) -> Module:
    """Return the `Module` of a packaged module.

    `aotcuda.load("mypkg.kernels")` imports that module and returns its `Module`. In a source tree that was never built,
    it makes the module. The other arguments are for generated modules.

    Args:
        name: The module's name.
        manifest: Path of the manifest, relative to the folder of the generated module.
        sha256: Digest that the manifest must have.
        load: `"import"` or `"first-use"`; the environment variable `AOTCUDA_LOAD` overrides it.
        editable: Whether the first launch checks the sources that the images were built from.

    Raises:
        ImportError: There is no such module.
        ManifestError: The module was not generated by aotcuda, or its manifest or fatbin is missing or altered.
        ConfigError: `AOTCUDA_LOAD` has an unknown value.
    """
    if manifest is None:
        with importing:
            from . import module_registry  # noqa: PLC0415 (an import of a generated module does not need it)

        registered: Module = module_registry.find(name, Module)
        return registered
    generated = sys.modules.get(name)  # None if a program executes the module from its file
    namespace = vars(generated) if generated is not None else sys._getframe(1).f_globals  # noqa: SLF001 (as `warnings`)
    previous = namespace.get("__aotcuda__")
    if isinstance(previous, Module):
        previous.forget_names()
    file = os.path.abspath(namespace["__file__"])
    if editable:
        from ..common import data_folder  # noqa: PLC0415 (other modules do not need it)

        file = data_folder.linked_file(file)
    path = os.path.join(os.path.dirname(file), *manifest.split("/"))
    module = Module(name, namespace, path, sha256, editable=editable)
    setting = os.environ.get("AOTCUDA_LOAD") or load
    if setting not in _LOADS:
        with importing:
            from ..errors import ConfigError  # noqa: PLC0415 (errors.py is not needed for an import)

        message = f"AOTCUDA_LOAD is {setting!r}; write 'import' or 'first-use'"
        raise ConfigError(message)
    if setting == "import" and not is_simulated():
        module.load_early()
    return module


def _load_all(kernel_table: KernelTable) -> Library:
    kernel_table.library.load_all()
    return kernel_table.library


def _picklable(*kinds: type) -> None:
    """Let exports be pickled by module and name; their classes are in lower layers and cannot find modules."""
    for kind in kinds:
        if vars(kind).get("__reduce__") is not _reduced:
            kind.__reduce__ = _reduced  # type: ignore[method-assign, assignment]  # saves the import of copyreg


def _reduced(export: Kernel | DeviceFunction | DeviceFunctionGroup) -> tuple[object, tuple[str, str]]:
    return _find, (export.__module__, export.__name__)


def _find(module: str, name: str) -> object:
    """Return an export by name, for unpickling.

    Raises:
        ImportError: This process lacks the package, or has another version of it.
    """
    try:
        return load(module).attribute(name)
    except (ModuleNotFoundError, AttributeError) as error:
        message = (
            f"{module}.{name} was sent to this process, which does not have it: {error}. Install the package here in "
            "the version that the sender has"
        )
        raise ImportError(message, name=module) from error
