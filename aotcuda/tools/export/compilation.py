"""Let Triton's JIT compile variants into its cache, for a GPU that is not there."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda.builder.frontends.triton import compilation, gpu, source_function
from aotcuda.tools.export import arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aotcuda.arch import Target
    from aotcuda.builder.frontends.triton.config import TritonUnit


class _Driver:
    """Answer what a compilation of the JIT asks; the stand-in of builds answers the rest."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def get_current_stream(self, device: int) -> int:
        del device
        return 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


@contextlib.contextmanager
def for_target(target: Target) -> Iterator[None]:
    """Answer Triton's queries of a GPU in the block for a target."""
    from triton.runtime import driver  # noqa: PLC0415 (only workers have Triton)

    with gpu.compiling(target, compilation.gpu_target(target)):
        driver.set_active(_Driver(driver.active))
        yield


def compile_variant(unit: TritonUnit, function: Any) -> list[Any]:
    """Compile a variant into Triton's cache, as a launch with arguments of its types does; return Triton's kernels.

    Raises:
        ValueError: The JIT compiles another variant for such arguments.
        Exception: Triton refuses the variant.
    """
    constants = source_function.constants(unit, function)
    constexprs = {name: arguments.constant(value) for name, value in constants.items()}
    plain = [parameter for parameter in function.params if not parameter.is_constexpr]
    kernels = []
    hooks, function.pre_run_hooks = function.pre_run_hooks, []  # they expect the arguments of launches
    try:
        for values in arguments.combinations(unit.types, plain):
            named = {parameter.name: value for parameter, value in zip(plain, values, strict=True)}
            kernel = function.run(grid=(1,), warmup=True, **named, **constexprs, **_options(unit))
            _check(unit, kernel, function)
            kernels.append(kernel)
    finally:
        function.pre_run_hooks = hooks
    return kernels


def _options(unit: TritonUnit) -> dict[str, object]:
    return {
        "num_warps": unit.num_warps,
        "num_stages": unit.num_stages,
        "num_ctas": unit.num_ctas,
        **({"maxnreg": unit.maxnreg} if unit.maxnreg else {}),
        **({"enable_fp_fusion": unit.enable_fp_fusion} if unit.enable_fp_fusion is not None else {}),
        **({"launch_pdl": True} if unit.launch_pdl else {}),
        **({"launch_cooperative_grid": True} if unit.launch_cooperative_grid else {}),
    }


def _check(unit: TritonUnit, kernel: Any, function: Any) -> None:
    """Compare the signature that Triton compiled with the types of the variant."""
    compiled = kernel.src.signature
    types = iter(unit.types)
    for parameter in function.params:
        if parameter.is_constexpr:
            continue
        kind = next(types)
        wanted = "constexpr" if kind.scalar == "none" or kind.hint == 1 else kind.plain
        found = compiled[parameter.name]
        if str(found).replace(" ", "").replace("u1", "i1") != wanted.replace(" ", "").replace("u1", "i1"):
            message = f"{parameter.name} is {wanted} in the record, and Triton compiles {found} for it; record it again"
            raise ValueError(message)


def folder_of(kernel: Any) -> str:
    """Return the name of the folder of a kernel's entry in Triton's cache."""
    return Path(next(iter(kernel.metadata_group.values()))).parent.name
