"""What a generated module calls: `load` makes its `Module`, which reads the manifest and loads the images when needed.

With `load = "first-use"` an import does nothing else than make that object; with `load = "import"` it also reads the
manifest, starts the driver and loads the images. Whatever this machine lacks is left for the first launch to say.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from aotcuda import manifest as manifests
    from aotcuda.manifest import Manifest
    from aotcuda.runtime.arguments.layout import Plan
    from aotcuda.runtime.arguments.overloads import Dispatch
    from aotcuda.runtime.device_function import DeviceFunction
    from aotcuda.runtime.driver import Device
    from aotcuda.runtime.exports import Exports
    from aotcuda.runtime.images.choice import Choice
    from aotcuda.runtime.images.program import Entry, Program
    from aotcuda.runtime.images.tiers import Tier
    from aotcuda.runtime.jit.edits import Editable
    from aotcuda.runtime.jit.fallback import Fallback
    from aotcuda.runtime.jit.recipe import Recipe
    from aotcuda.runtime.kernel import Kernel

_LOADS = ("import", "first-use")
_PATIENCE = 100
"""Milliseconds that an unload waits for launches of other threads."""

_UNLISTED = frozenset(["_aotcuda"])
"""Names of a generated module that `dir()` does not show."""


class Module:
    """A packaged module: its manifest, its images and what they export.

    Attributes:
        name: The module's name, `"mypkg.kernels"`.
        path: The file of its manifest.
        editable: Whether it is installed as editable, and checked against its sources.
        program: The loaded images; None until something needs them.
        lock: Held while something of the module is made or replaced.
        retired: What launched images that were unloaded or replaced since; launches by it may still be under way.
        leaving: Images that are out of use, and stay in the driver until such launches have ended.
    """

    def __init__(
        self, name: str, namespace: dict[str, object], path: str, sha256: str | None, *, editable: bool
    ) -> None:
        self.name = name
        self.path = path
        self.editable = editable
        self._namespace = namespace
        self._sha256 = sha256
        self.lock = RLock()
        self.program: Program | None = None
        self.retired: list[Dispatch] = []
        self.leaving: list[tuple[list[Program], list[Dispatch]]] = []
        self._manifest: Manifest | None = None
        self._exports: Exports | None = None
        self._editable: Editable | None = None
        self._fallback: Fallback | None = None

    @property
    def manifest(self) -> Manifest:
        """The manifest, read when first asked for.

        Raises:
            ManifestError: It is missing, altered or of a newer format version.
        """
        return self._manifest or self._read()

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels by name."""
        return dict(self._exported().kernels)

    @property
    def functions(self) -> dict[str, DeviceFunction]:
        """The exported device functions by name."""
        return dict(self._exported().functions)

    @property
    def chosen(self) -> dict[int, Choice]:
        """What each GPU of this machine takes, and why, by the GPU's ordinal.

        Raises:
            RuntimeUnavailableError: There is no driver or no GPU.
            CudaError: The driver cannot be started.
        """
        loaded = self.program  # another thread may unload it
        if loaded is not None:
            return dict(loaded.choices)
        from aotcuda.runtime import driver  # noqa: PLC0415 (an import must not need ctypes)
        from aotcuda.runtime.images import program  # noqa: PLC0415 (an import must not need ctypes)

        return program.survey(self.manifest, driver.get())

    @property
    def tiers(self) -> dict[str, list[Tier]]:
        """For each kernel what each of its overloads takes on each GPU, and why not something better.

        Errors as for `chosen`.
        """
        from aotcuda.runtime.images import tiers  # noqa: PLC0415 (not before it is asked for)

        return tiers.of(self, self._fallback)

    @property
    def fallback(self) -> Fallback:
        """What compiles where nothing in the package fits."""
        found = self._fallback
        if found is None:
            from aotcuda.runtime.jit.fallback import Fallback  # noqa: PLC0415 (few programs ever need it)

            with self.lock:
                found = self._fallback = self._fallback or Fallback(self)
        return found

    @property
    def setting(self) -> str:
        """Whether the fallback may compile, as the package says: `"jit"` or `"error"`."""
        return self.manifest["fallback"]

    @property
    def package_root(self) -> str:
        """The folder that holds the module's package."""
        root = os.path.dirname(os.path.dirname(self.path))
        for _ in range(self.name.count(".")):
            root = os.path.dirname(root)
        return root

    def recipe(self) -> Recipe | None:
        """What the fallback builds from; None if there is nothing."""
        from aotcuda.runtime.jit import recipe  # noqa: PLC0415 (as in fallback)

        found = recipe.packaged(self.manifest, self.package_root)
        if self.editable and found is not None:
            return recipe.project(self.name, self.package_root, found.files)
        return found

    def packaged_choice(self, device: Device) -> Choice | None:
        """What a GPU takes, or why it takes nothing, going by what is packaged alone; None if nothing was."""
        from aotcuda.runtime import driver  # noqa: PLC0415 (as in chosen)
        from aotcuda.runtime.images.choice import choose  # noqa: PLC0415

        return choose(self.manifest, device.capability, driver=driver.get().version, gpu=str(device))

    def choice_for(self, capability: tuple[int, int] | str, driver: tuple[int, int] | None = None) -> Choice:
        """What a GPU of some compute capability would take; it need not be there.

        Args:
            capability: The compute capability, `(9, 0)` or `"sm_90"`.
            driver: The CUDA version of a driver; None supposes one that is new enough.

        Raises:
            ValueError: A string that is no target.
        """
        from aotcuda import arch  # noqa: PLC0415 (not before it is asked for)
        from aotcuda.runtime.images.choice import choose  # noqa: PLC0415 (likewise)

        pair = arch.parse(capability).capability if isinstance(capability, str) else capability
        return choose(self.manifest, pair, driver=driver)

    def attribute(self, name: str) -> object:
        """The generated module's `__getattr__`: a kernel or function, kept as an ordinary attribute from then on.

        Raises:
            AttributeError: The module exports no such name.
            ManifestError: The manifest cannot be read.
        """
        if name.startswith("__") and name.endswith("__") and name != "__all__":  # the import system asks for some
            message = f"module {self.name!r} has no attribute {name!r}"
            raise AttributeError(message, name=name)
        return self._exported().attribute(name)

    def names(self) -> list[str]:
        """The generated module's `__dir__`."""
        return sorted({*self._namespace, *self._exported().names()} - _UNLISTED)

    def ready(self) -> Program:
        """The images, loaded and up to date; every launch asks for them.

        Raises:
            RuntimeUnavailableError: There is no driver, no GPU, or no image for any GPU.
            ManifestError: The fatbin is missing or altered.
            StaleBuildError: The module is editable and a source changed after the build.
            ForkError: The process forked after CUDA was started.
            CudaError: The driver cannot be started or refuses the images.
        """
        from aotcuda.runtime import driver  # noqa: PLC0415 (an import must not need ctypes)

        driver.check_fork()
        program = self.program or self._load()
        if not self.editable:
            return program
        with self.lock:  # of threads that find an edit, one has it compiled, and the others wait
            return self._of_today().program(self.program or self._load())

    def preload(self) -> None:
        """Load everything now: the images, a context if there is none, and the code of every kernel on its GPU.

        Errors as for a launch.
        """
        if not self.manifest["kernels"]:
            return
        program = self.ready()
        device = self.enter(program, ())
        for kernel in self.kernels.values():
            kernel.preload(program, device)

    def enter(self, program: Program, addresses: Sequence[int]) -> int:
        """`program.enter`; if a setup callback raises, the module is unloaded, and the next launch starts anew."""
        try:
            return program.enter(addresses)
        except Exception as error:
            from aotcuda.errors import CallbackError  # noqa: PLC0415 (an import with load = "first-use" needs none)

            if isinstance(error, CallbackError):
                with self.lock:
                    if self.program is program:
                        self._retire()
                self.sweep()  # or, where a launch has come here, that launch at its end
            raise

    def unload(self) -> None:
        """Take the images out of the driver, once the kernels that were launched have ended. A launch loads them again.

        Other threads may launch meanwhile. Launches that they are in the midst of come first; those that take longer
        than a tenth of a second keep the images loaded, and the next launch or `unload` takes them out.

        Raises:
            CallbackError: A teardown callback raised; the images are gone all the same.
            CudaError: The driver refuses.
        """
        with self.lock:
            self._retire()
        if self.sweep():
            return
        from time import sleep  # noqa: PLC0415 (few come here)

        for _ in range(_PATIENCE):
            sleep(0.001)
            if self.sweep():
                return

    def sweep(self) -> bool:
        """Take images that are out of use out of the driver, unless launches of them are under way; whether all went.

        Errors as for `unload`.
        """
        with self.lock:
            leaving, self.leaving = self.leaving, []
            error: Exception | None = None
            for item in leaving:
                programs, dispatches = item
                if not all([each.is_idle() for each in programs] + [each.is_idle() for each in dispatches]):
                    self.leaving.append(item)
                    continue
                for program in programs:
                    try:
                        program.unload()
                    except Exception as problem:  # noqa: BLE001 (raised below: the others must go too)
                        error = error or problem
            if error is not None:
                raise error
            return not self.leaving

    def load_early(self) -> None:
        """What an import with `load = "import"` does: read, check and load; what the machine lacks is no error yet.

        Raises:
            ManifestError: The manifest or the fatbin is missing, altered or of a newer format version.
            CallbackError: A setup callback raised.
            DependencyError: The module has callbacks, and what they are given is not installed.
        """
        from aotcuda.errors import CudaError, ForkError, RuntimeUnavailableError  # noqa: PLC0415 (first-use needs none)

        if not self.manifest["kernels"]:
            return
        try:
            program = self._load(early=True)
        except (RuntimeUnavailableError, CudaError, ForkError):
            return  # the first launch will say so
        if program.callbacks is not None:
            self.enter(program, ())

    def _retire(self) -> None:
        """Put the images out of use: from now on launches load new ones."""
        program, self.program = self.program, None
        if program is None:
            return
        programs = [program]
        editable, self._editable = self._editable, None
        if editable is not None and editable.packaged is not None:
            programs.append(editable.packaged)
        dispatches: list[Dispatch] = []
        if self._fallback is not None:
            late, dispatches = self._fallback.withdraw()
            programs += late
        programs = list(dict.fromkeys(programs))
        for each in programs:  # before there can be new overloads, so that none of them gets anything of these images
            each.close()
        for kernel in self.kernels.values():
            kernel.forget()
        dispatches += self.retired
        self.retired = []
        self.leaving.append((programs, dispatches))

    def forget_names(self) -> None:
        """Remove what `attribute` kept, because the module is being executed again."""
        if self._exports is not None:
            self._exports.forget_names()

    def __repr__(self) -> str:
        if self._manifest is None:
            return f"<aotcuda.Module {self.name}, not read yet>"
        state = "not loaded"
        loaded = self.program
        if loaded is not None:
            state = "; ".join(map(str, loaded.choices.values()))
        if self.editable and (changed := self._of_today().changed()):
            state += f"; out of date: {changed}"
        counts = f"{len(self._manifest['kernels'])} kernels, {len(self._manifest['functions'])} functions"
        return f"<aotcuda.Module {self.name}: {counts}; {state}>"

    def _read(self) -> Manifest:
        from aotcuda import manifest as manifests  # noqa: PLC0415 (it imports json, which first-use must not pay for)

        with self.lock:
            if self._manifest is None:
                self._manifest = manifests.read(self.path, sha256=self._sha256)
            return self._manifest

    def _exported(self) -> Exports:
        if self._exports is None:
            from aotcuda.runtime.exports import Exports  # noqa: PLC0415 (not before something is asked for)

            _ = self.manifest
            with self.lock:
                if self._exports is None:
                    self._exports = Exports(self, self._namespace)
        return self._exports

    def _load(self, *, early: bool = False) -> Program:
        from aotcuda.runtime import driver  # noqa: PLC0415 (an import must not need ctypes)

        _ = self.manifest  # a damaged one is said before a missing driver
        driver.check_fork()  # before the lock, which a thread of the parent may have held
        with self.lock:
            if self.program is None:
                from aotcuda.errors import DriverTooOldError, NoImageError  # noqa: PLC0415 (as above)

                try:
                    self.program = self.load_packaged()
                except (DriverTooOldError, NoImageError) as error:
                    if early:  # an import never compiles
                        raise
                    return self.fallback.replace(driver.get().devices[0], error)
            return self.program

    def load_packaged(self) -> Program:
        """The packaged images, loaded once more.

        Raises:
            RuntimeUnavailableError: There is no driver, no GPU, or no image for any GPU.
            ManifestError: The fatbin is missing or altered.
            CudaError: The driver refuses the images.
        """
        from aotcuda.runtime.images.program import Program  # noqa: PLC0415 (an import must not need ctypes)

        return Program(self.manifest, os.path.dirname(self.path), rescue=self._rescue)

    def adopt(self, program: Program, records: list[manifests.Kernel]) -> None:
        """From now on launch these images, whose kernels are `records`, in place of the ones launched so far."""
        with self.lock:
            self.program = program
            self.retired = [dispatch for dispatch in self.retired if not dispatch.is_idle()]
            self._exported().replace_kernels(records)

    def _rescue(self, plan: Plan, device: int, choice: Choice) -> Entry:
        return self.fallback.entry(plan, device, choice)

    def _of_today(self) -> Editable:
        found = self._editable
        if found is None:
            from aotcuda.runtime.jit.edits import Editable  # noqa: PLC0415 (only editable installs come here)

            with self.lock:
                found = self._editable = self._editable or Editable(self)
        return found


def load(
    name: str, *, manifest: str | None = None, sha256: str | None = None, load: str = "import", editable: bool = False
) -> Module:
    """The `Module` of a packaged module.

    `aotcuda.load("mypkg.kernels")` imports that module and gives its `Module`; in a source tree that was never built it
    makes the module. Generated modules call this with the other arguments.

    Args:
        name: The module's name.
        manifest: Path of the manifest, relative to the folder of the generated module.
        sha256: Digest that the manifest must have.
        load: `"import"` or `"first-use"`; the environment variable `AOTCUDA_LOAD` overrides it.
        editable: Whether launches check the sources that the images were built from.

    Raises:
        ImportError: There is no such module.
        ManifestError: The module was not generated by aotcuda, or its manifest or fatbin is missing or altered.
        ConfigError: `AOTCUDA_LOAD` has an unknown value.
    """
    if manifest is None:
        return _imported(name)
    generated = sys.modules[name]
    namespace = vars(generated)
    previous = namespace.get("__aotcuda__")
    if isinstance(previous, Module):
        previous.forget_names()
    path = os.path.join(os.path.dirname(os.path.abspath(namespace["__file__"])), *manifest.split("/"))
    module = Module(name, namespace, path, sha256, editable=editable)
    chosen = os.environ.get("AOTCUDA_LOAD") or load
    if chosen not in _LOADS:
        from aotcuda.errors import ConfigError  # noqa: PLC0415 (errors.py is not needed for an import)

        message = f"AOTCUDA_LOAD is {chosen!r}; write 'import' or 'first-use'"
        raise ConfigError(message)
    if chosen == "import":
        module.load_early()
    return module


def _imported(name: str) -> Module:
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        from aotcuda.runtime import unbuilt  # noqa: PLC0415 (few come here)

        made = unbuilt.load(name)
        if made is None:
            from aotcuda import missing_hook as forgotten  # noqa: PLC0415 (likewise)

            package = name.rpartition(".")[0]
            message = (
                f"there is no module {name} in the package {package}. If it was built without aotcuda's hook, "
                f"{forgotten.ADVICE} (HATCH_BUILD_NO_HOOKS leaves hooks out too); or ship its pyproject.toml in the "
                "package, which the module can be made from"
            )
            raise ModuleNotFoundError(message, name=name) from None
        return made
    module = vars(sys.modules[name]).get("__aotcuda__")
    if not isinstance(module, Module):
        from aotcuda.errors import ManifestError  # noqa: PLC0415 (likewise)

        message = f"{name} is no module that aotcuda generated; it has no manifest"
        raise ManifestError(message)
    return module
