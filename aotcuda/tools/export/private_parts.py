"""List the private parts of Triton that exports use, and check that the installed release has them."""

from __future__ import annotations

from aotcuda.errors import ToolchainError
from aotcuda.integrations.in_place.triton import private_parts

_TUNER, _BUILD = "triton.runtime.autotuner", "triton.runtime.build"
_DRIVER, _COMPILER = "triton.backends.nvidia.driver", "triton.backends.nvidia.compiler"

NAMES: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("triton.runtime.jit", "JITFunction.run", ("grid", "warmup"), "It compiles a variant for arguments of its types."),
    (_TUNER, "Autotuner.check_disk_cache", ("tuning_key", "configs", "bench_fn"), "It writes timings."),
    ("triton.runtime.cache", "triton_key", (), "Its digest tells if another environment reads the entries."),
    ("triton._C.libtriton", "get_cache_invalidating_env_vars", (), "The variables that are part of each key."),
    (_COMPILER, "get_ptxas_version", ("arch",), "The text of the assembler, which is part of each key."),
    (_BUILD, "_load_module_from_path", ("name", "path"), "Modules of C need a driver to load, so exports load none."),
    ("triton.knobs", "build.impl", (), "Exports compile modules of C with a stub of libcuda, without absolute paths."),
    (_DRIVER, "CudaUtils.__init__", (), "It compiles the functions of the driver that launches call."),
    (_DRIVER, "CudaLauncher.__init__", ("src", "metadata"), "In 3.6, it compiles a launcher for each signature."),
    (_DRIVER, "libcuda_dirs", (), "In newer releases, the driver's folders are part of the key of `cuda_utils`."),
    (_DRIVER, "library_dirs", (), "It caches these folders."),
)
"""Module, name, required parameters, and the reason for its use."""


def check() -> None:
    """Check that the installed Triton has all NAMES.

    Raises:
        ToolchainError: It lacks one of them.
    """
    problem = private_parts.missing(NAMES)
    if problem is not None:
        import triton  # noqa: PLC0415 (only workers have Triton)

        message = (
            f"Triton {triton.__version__} is not known to this aotcuda ({problem}), so its cache cannot be exported; "
            "install Triton 3.6 to 3.9, or a newer aotcuda"
        )
        raise ToolchainError(message)


def ptxas(arch: int) -> str:
    """Return the version text of Triton's assembler for a GPU, which is part of the key of each kernel."""
    from triton.backends.nvidia.compiler import get_ptxas_version  # noqa: PLC0415 (only workers have Triton)

    return str(get_ptxas_version(arch)).strip()
