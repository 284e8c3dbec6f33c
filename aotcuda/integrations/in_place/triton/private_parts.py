"""List the private parts of Triton that packaged kernels use, and check that the installed release has them."""

from __future__ import annotations

import functools
import inspect
import warnings
from importlib import import_module

from ....errors import FallbackWarning

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_JIT, _TUNER, _COMPILER = "triton.runtime.jit", "triton.runtime.autotuner", "triton.compiler.compiler"

NAMES: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    (_JIT, "JITFunction.run", ("grid", "warmup"), "All launches and compilations of a kernel call it."),
    (_JIT, "KernelInterface.__getitem__", ("grid",), "The result of `kernel[grid]` calls `run`."),
    (_JIT, "JITFunction.__init__", ("debug",), "Triton launches kernels with `debug`."),
    (
        _JIT,
        "JITFunction.add_pre_run_hook",
        ("hook",),
        "It adds to `pre_run_hooks`; Triton launches kernels with hooks.",
    ),
    (_JIT, "JITFunction.preload", ("specialization_data",), "Packaged kernels return packaged variants."),
    (_JIT, "MockTensor.wrap_dtype", ("arg",), "Warm-ups of autotuners have dtypes in the place of tensors."),
    (_COMPILER, "CompiledKernel.__getitem__", ("grid",), "Warm-ups return objects of a subclass."),
    (_COMPILER, "CompiledKernel.launch_metadata", ("grid", "stream"), "It makes what launch hooks get."),
    (_COMPILER, "AsmDict", (), "It disassembles machine code of a variant."),
    (_COMPILER, "ASTSource.__init__", ("fn", "signature", "constexprs", "attrs"), "The source of a variant."),
    (_COMPILER, "make_backend", ("target",), "It has the options of a variant by `parse_options`."),
    (_TUNER, "Autotuner._bench", ("config",), "A warm-up without recorded configs times none."),
    (_TUNER, "Autotuner.warmup", (), "It warms up all configs."),
    (_TUNER, "Autotuner.__init__", ("fn", "configs"), "Autotuners around packaged kernels are adopted when made."),
    (_TUNER, "Autotuner.run", (), "It looks for a key in `cache`, and times configs if there is none."),
    (_TUNER, "Autotuner.prune_configs", ("kwargs",), "A config of another key has to pass the pruning."),
    (_TUNER, "Heuristics.run", (), "It computes constexprs and calls `run` of the kernel."),
    ("triton.runtime._allocation", "_allocator.get", (), "Kernels with scratch memory ask the program's allocator."),
    ("triton.knobs", "runtime.launch_enter_hook.calls", (), "Triton makes launches with hooks, and calls the hooks."),
    ("triton.knobs", "runtime.launch_exit_hook.calls", (), "Triton makes launches with hooks, and calls the hooks."),
    ("triton.knobs", "runtime.debug", (), "Triton compiles other code with it."),
    ("triton.knobs", "runtime.add_stages_inspection_hook", (), "Triton compiles other code with it."),
    ("triton.knobs", "compilation.instrumentation_mode", (), "Triton compiles other code with it."),
)
"""Module, name, required parameters, and the reason for its use."""

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "JITFunction": ("fn", "arg_names", "pre_run_hooks", "debug"),
    "Autotuner": ("fn", "arg_names", "configs", "keys", "cache"),
}
"""Attributes of the objects of each class."""

VARIABLES = (
    "DISABLE_LLVM_OPT",
    "DISABLE_PTXAS_OPT",
    "LLVM_PASS_PLUGIN_PATH",
    "PTXAS_OPTIONS",
    "TRITON_ALWAYS_COMPILE",
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_ENABLE_ASAN",
    "TRITON_F32_DEFAULT",
    "TRITON_FORCE_DISABLE_FP_FUSION",
    "TRITON_FPSAN_HOMOMORPHIC_CASTS",
    "TRITON_INSTRUMENTATION_MODE",
    "TRITON_KERNEL_OVERRIDE",
    "TRITON_LIBDEVICE_PATH",
    "TRITON_MOCK_PTX_VERSION",
    "TRITON_OVERRIDE_ARCH",
)
"""Environment variables that change the code that Triton compiles. If one is set, Triton launches all kernels."""

_ABSENT = object()


@functools.cache
def are_known() -> bool:
    """Return True if the installed Triton has all NAMES; warn once if not."""
    problem = missing(NAMES)
    if problem is not None:
        version = import_module("triton").__version__
        message = (
            f"Triton {version} is not known to aotcuda ({problem}), so packaged kernels are compiled by Triton; "
            "install a newer aotcuda, or Triton 3.6 to 3.9"
        )
        warnings.warn(message, FallbackWarning, stacklevel=2)
    return problem is None


def missing(names: Iterable[tuple[str, str, tuple[str, ...], str]]) -> str | None:
    """Return the first of some names that the installed Triton lacks, or None."""
    for module, path, parameters, _ in names:
        value: Any = import_module(module)
        for part in path.split("."):
            value = getattr(value, part, _ABSENT)  # the value may be None or False
            if value is _ABSENT:
                return f"it has no {module}.{path}"
        if parameters and not set(parameters) <= inspect.signature(value).parameters.keys():
            return f"{module}.{path} has other parameters"
    return None


def has_attributes(kind: str, item: object) -> bool:
    """Return True if an object of a class has the attributes that packaged kernels use."""
    return all(hasattr(item, name) for name in ATTRIBUTES[kind])
