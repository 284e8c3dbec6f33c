"""The JIT fallback: what happens where nothing in the wheel fits a GPU, a call's arguments, or the sources of today.

The ahead-of-time build runs late, for this one case, and what it makes is loaded like what a wheel brings. Two kinds:

- The whole module for one GPU: where no packaged image runs on it, or where an editable install's sources have changed.
  It is the whole module, and not one kernel of it, because a module's kernels share the globals of what is linked in.
- One kernel for one more signature and one GPU: where a call's types were not packaged. It has globals of its own, as
  each of Numba's own compilations has, and its setup callbacks run for it.

A case is looked for in this process, then in the cache, and is compiled only then.
"""

from __future__ import annotations

import os
from _thread import RLock

from aotcuda.errors import AotcudaError, ArgumentError, ConfigError, NoImageError
from aotcuda.runtime import driver as drivers
from aotcuda.runtime.arguments import signature as signatures
from aotcuda.runtime.arguments.mismatch import refusal
from aotcuda.runtime.arguments.overloads import Dispatch
from aotcuda.runtime.images.program import Program
from aotcuda.runtime.jit.compile import obtain, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotcuda.manifest import Manifest
    from aotcuda.runtime.arguments.layout import Plan
    from aotcuda.runtime.arguments.overloads import Selection
    from aotcuda.runtime.driver import Device
    from aotcuda.runtime.images.choice import Choice
    from aotcuda.runtime.images.program import Entry
    from aotcuda.runtime.jit.cache_files import Artifact
    from aotcuda.runtime.kernel import Kernel
    from aotcuda.runtime.module import Module

    Case = tuple[str | None, str | None]  # kernel and signature; both are None for a whole module

_WHOLE: Case = (None, None)


def allowed(setting: str) -> bool:
    """Whether the fallback may compile: `setting` is the module's own, and `AOTCUDA_FALLBACK` overrides it.

    Raises:
        ConfigError: `AOTCUDA_FALLBACK` has an unknown value.
    """
    given = os.environ.get("AOTCUDA_FALLBACK")
    if given and given not in ("jit", "error"):
        message = f"AOTCUDA_FALLBACK is {given!r}; write 'jit' or 'error'"
        raise ConfigError(message)
    return (given or setting) == "jit"


class Late:
    """Something that the fallback compiled, loaded.

    Attributes:
        program: Its image.
        artifact: What it was loaded from.
        choice: Which GPU it is for, and why it was taken.
    """

    __slots__ = ("artifact", "choice", "program")

    def __init__(self, program: Program, artifact: Artifact, choice: Choice) -> None:
        self.program = program
        self.artifact = artifact
        self.choice = choice


class Fallback:
    """The fallback of one module.

    Attributes:
        module: The module.
        loaded: What was compiled for it and is loaded, by kernel, signature and compute capability.
        replacement: What is launched in place of its own images; None while those are.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.loaded: dict[tuple[Case, tuple[int, int]], Late] = {}
        self.replacement: Late | None = None
        self._dispatches: dict[Case, Dispatch] = {}
        self._cases: dict[int, Case] = {}
        self._entries: dict[tuple[int, int], Entry] = {}
        self._failed: dict[tuple[Case, tuple[int, int]], AotcudaError] = {}
        self._retired: list[Late | Dispatch] = []
        self._lock = RLock()

    def select(self, kernel: Kernel, plans: list[Plan], args: tuple[object, ...], stream: int) -> Selection | None:
        """The overload for arguments that none of the packaged `plans` takes; None if none may be compiled for them.

        Raises:
            ArgumentError: It cannot be compiled.
        """
        signature = signatures.of(args) if self._may() else None
        if signature is None:
            return None
        case = (kernel.__name__, signature)
        dispatch = self._dispatches.get(case)
        if dispatch is None:
            program = self.module.ready()  # before the lock: it takes the module's, and unloading takes both
            with self._lock:
                dispatch = self._dispatches.get(case) or self._widen(
                    program, kernel, case, refusal(str(kernel), plans, args)
                )
        return dispatch.select(args, stream)

    def whole(self, gpu: Device, cause: AotcudaError) -> Late:
        """The whole module, compiled for a GPU.

        Raises:
            AotcudaError: `cause`, if the fallback may not or cannot compile it.
        """
        if not self._may():
            raise cause
        with self._lock:
            return self._late(_WHOLE, gpu, cause)

    def entry(self, plan: Plan, device: int, choice: Choice) -> Entry:
        """An overload on a GPU that the module's own images have nothing for.

        Raises:
            RuntimeUnavailableError: The fallback may not or cannot compile it.
        """
        found = self._entries.get((id(plan), device))
        case = self._cases.get(id(plan), _WHOLE)
        late = self.loaded.get((case, choice.capability))
        if found is None or late is None:
            cause = self._missing(case, choice)
            if not self._may():
                raise cause
            with self._lock:
                gpu = drivers.get().devices[device]
                late = self._late(case, gpu, cause)
                _check_same(plan, late.artifact.manifest, str(gpu))
                found = late.program.entry(plan, device)
                # Those with callbacks must come here at every launch: each context has to see them.
                if late.program.callbacks is not None:
                    del plan.entries[device]
                self._entries[id(plan), device] = found
        if late.program.callbacks is not None:
            late.program.set_up()
        return found

    def replace(self, gpu: Device, cause: AotcudaError) -> Program:
        """Launch, in place of the module's own images, the whole module compiled for a GPU.

        Raises:
            AotcudaError: As for `whole`.
        """
        late = self.whole(gpu, cause)
        self.replacement = late
        self.module.adopt(late.program, late.artifact.manifest["kernels"])
        return late.program

    def manifest(self) -> Manifest:
        """That of the replacement, which says what it was compiled from."""
        assert self.replacement is not None  # noqa: S101 (`replace` has made it)
        return self.replacement.artifact.manifest

    def forget(self) -> None:
        """Drop what was compiled: the sources have changed. It stays loaded, since some of it may be running."""
        with self._lock:
            for dispatch in self._dispatches.values():
                dispatch.retire()
            # Plans are known by their `id`, which must not be given to new ones.
            self._retired += [*self.loaded.values(), *self._dispatches.values()]
            self.replacement = None
            for kept in (self.loaded, self._dispatches, self._cases, self._entries, self._failed):
                kept.clear()

    def withdraw(self) -> tuple[list[Program], list[Dispatch]]:
        """Forget everything: the images that are to be unloaded now, and what they were launched by."""
        with self._lock:
            self.forget()
            retired, self._retired = self._retired, []
        programs = [item.program for item in retired if isinstance(item, Late)]
        return programs, [item for item in retired if isinstance(item, Dispatch)]

    def _missing(self, case: Case, choice: Choice) -> AotcudaError:
        """Why an overload has to be compiled for a GPU."""
        kernel, signature = case
        if kernel is None:
            return choice.error(self.module.name)
        what = f"{self.module.name}.{kernel} for {signature}"
        return NoImageError(f"{what} is not packaged, and was compiled for other GPUs than {choice.gpu}")

    def _may(self) -> bool:
        return allowed(self.module.setting) and self.module.recipe() is not None

    def _widen(self, program: Program, kernel: Kernel, case: Case, error: ArgumentError) -> Dispatch:
        device = program.device if program.device >= 0 else program.driver.current_device() or 0
        late = self._late(case, program.driver.devices[device], error)
        (record,) = late.artifact.manifest["kernels"]
        dispatch = Dispatch(record, str(kernel))
        for plan in dispatch.plans:
            self._cases[id(plan)] = case
            program.late.add(id(plan))
        self._dispatches[case] = dispatch
        return dispatch

    def _late(self, case: Case, gpu: Device, cause: AotcudaError) -> Late:
        key = (case, gpu.capability)
        found = self.loaded.get(key)
        if found is not None:
            return found
        if key in self._failed:
            raise refused(cause, self._failed[key])
        recipe = self.module.recipe()
        assert recipe is not None  # noqa: S101 (_may has looked)
        try:
            artifact = obtain(recipe, *case, gpu, cause)
        except AotcudaError as error:
            self._failed[key] = error
            raise refused(cause, error) from error
        target = artifact.manifest["images"][0]["arch"]
        program = Program(artifact.manifest, artifact.folder, artifact.image)
        packaged = self.module.packaged_choice(gpu)
        why = first_line(cause) if packaged is None or packaged.arch is not None else packaged.why
        choice = (packaged or program.choices[gpu.index]).late(target, f"compiled on this machine: {why}")
        for index in [item.index for item in program.driver.devices if item.capability == gpu.capability]:
            program.choices[index] = choice
        if case == _WHOLE:
            program.rescue = self.entry
        late = self.loaded[key] = Late(program, artifact, choice)
        return late


def first_line(error: BaseException) -> str:
    """What an error says, without the lists below it."""
    return str(error).partition("\n")[0]


def _check_same(plan: Plan, manifest: Manifest, gpu: str) -> None:
    """Raise ArgumentError unless the late build lays this overload's arguments out as the packaged one does."""
    symbol = plan.overload["symbol"]
    for kernel in manifest["kernels"]:
        for overload in kernel["overloads"]:
            if overload["symbol"] == symbol:
                if overload["parameters"] == plan.parameters:
                    return
                message = (
                    f"{manifest['module']}.{kernel['name']}: what was compiled for {gpu} takes its arguments otherwise "
                    "than the packaged images, because the installed compiler is another one; install the versions "
                    f"that the wheel was built with: {manifest['toolchain']}"
                )
                raise ArgumentError(message)
