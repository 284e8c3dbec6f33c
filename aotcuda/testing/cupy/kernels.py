"""CuPy's kernels in CUDA C++, which nothing compiles: the recorder gets their text, or a launch is refused."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import Hooks, ndarray, to_numpy

_TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float16": "__half",
    "float32": "float",
    "float64": "double",
    "complex64": "cuda::std::complex<float>",
    "complex128": "cuda::std::complex<double>",
}
"""C++'s types by NumPy's names."""

_INCLUDES = {"__half": "cuda_fp16.h", "cuda::": "cuda/std/complex"}
"""The header of each type that C++ has not by itself."""


class _Kernel:
    """A kernel in CUDA C++ that CuPy would compile."""

    kind = "RawKernel"

    def __init__(
        self, name: str, text: str | None, options: tuple[str, ...] = (), *, cooperative: bool = False
    ) -> None:
        self.name, self.text, self.options, self.cooperative = name, text, tuple(options), cooperative
        self.made = Hooks.site() if Hooks.site is not None else ""

    def record(self, name: str, text: str, args: tuple[Any, ...], **facts: Any) -> None:
        """Pass the launch to the recorder.

        Raises:
            NotImplementedError: No launch is recorded here.
        """
        if Hooks.source is None:
            message = (
                f"cupy.{self.kind}: {name}: CuPy's own kernels are CUDA C++, which nothing executes here; "
                '`aotcuda record --dry --write` writes it into a .cu file and packages it (frontend = "cuda-cpp")'
            )
            raise NotImplementedError(message)
        options = list(self.options)
        Hooks.source(text, name, args, options=options, cooperative=self.cooperative, made=self.made, **facts)

    def compile(self, *_: Any, **__: Any) -> None:
        """Do nothing: nothing is compiled."""

    def __getattr__(self, name: str) -> int:
        if name in ("max_threads_per_block", "max_dynamic_shared_size_bytes", "num_regs", "shared_size_bytes"):
            return 1024
        raise AttributeError(name)


class RawKernel(_Kernel):
    """A kernel with its whole text."""

    def __init__(self, code: str, name: str, options: Any = (), *_: Any, **named: Any) -> None:
        super().__init__(name, code, options, cooperative=bool(named.get("enable_cooperative_groups")))

    def __call__(self, grid: Any, block: Any, args: Any, **_: Any) -> None:
        """Record a launch."""
        del grid, block
        if self.text is not None:  # other code is machine code
            self.record(self.name, self.text, tuple(args))


class RawModule(_Kernel):
    """A text with several kernels, or a file with code."""

    kind = "RawModule"

    def __init__(self, *, code: Any = None, path: str | None = None, options: Any = (), **named: Any) -> None:
        if path is not None and str(path).endswith((".cu", ".cuh")):
            code = Path(path).read_text(encoding="utf-8")
        super().__init__("", code, options, cooperative=bool(named.get("enable_cooperative_groups")))

    def get_function(self, name: str) -> RawKernel:
        """Return the kernel of a name or of a template's instance."""
        kernel = RawKernel(self.text or "", name, self.options, enable_cooperative_groups=self.cooperative)
        kernel.text, kernel.kind, kernel.made = self.text, self.kind, self.made
        return kernel

    def get_global(self, name: str) -> Any:
        """Return memory in place of a variable."""
        del name
        from .cuda import alloc

        return alloc(1 << 16)


class ElementwiseKernel(_Kernel):
    """The body of a loop over the elements of arrays."""

    kind = "ElementwiseKernel"

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        **named: Any,
    ) -> None:
        del reduce_dims
        super().__init__(name, None, named.get("options", ()))
        self.inputs, self.outputs = _parameters(in_params), _parameters(out_params)
        self.operation, self.preamble = operation, preamble

    def __call__(self, *args: Any, size: int | None = None, out: Any = (), **options: Any) -> Any:
        """Record a launch, and return the arrays for the results."""
        del options
        parameters = [*self.inputs, *self.outputs]
        values = [*args, *([out] if isinstance(out, ndarray) else out or ())]
        types: dict[str, str] = {}
        for (_, kind, _), value in zip(parameters, values, strict=False):
            if kind not in _TYPES:
                types.setdefault(kind, _dtype(value))
        looped = [value for (raw, *_), value in zip(parameters, values, strict=False) if not raw]
        shape: Any = (size,)
        if size is None:
            shape = np.broadcast_shapes(*(np.shape(to_numpy(value)) for value in looped))
        for _, kind, _ in parameters[len(values) :]:
            values.append(ndarray(np.zeros(shape, types.get(kind, kind))))
        templates = [kind for kind in dict.fromkeys(kind for _, kind, _ in parameters) if kind not in _TYPES]
        instance = f"<{', '.join(_TYPES[types[kind]] for kind in templates)}>" if templates else ""
        last = next((name for raw, _, name in reversed(self.outputs) if not raw), None)
        sizes = {"n": f"{last}.size"} if last is not None and size is None else {}
        text = self._text(templates, values)
        self.record(self.name + instance, text, tuple(values), parameters=sizes)
        results = values[len(self.inputs) :]
        return results[0] if len(results) == 1 else tuple(results)

    def _text(self, templates: list[str], values: list[Any]) -> str:
        """Return the loop as CUDA C++ for contiguous arrays of one size, with the operation in a function."""
        kernel, element, passed = [], [], []
        for at, ((raw, kind, name), value) in enumerate(zip([*self.inputs, *self.outputs], values, strict=True)):
            type_ = f"{'const ' if at < len(self.inputs) else ''}{_TYPES.get(kind, kind)}"
            is_array = isinstance(value, ndarray)
            kernel.append(f"{type_} {'*' * is_array}{name}")
            element.append(f"{type_} {('*' if raw else '&') * is_array}{name}")
            passed.append(f"{name}[i]" if is_array and not raw else name)
        body = re.sub(r"\b_ind\.size\(\)", "n", self.operation.strip())
        template = f"template <{', '.join(f'class {kind}' for kind in templates)}>\n" if templates else ""
        text = (
            f"{self.preamble.strip()}\n{template}"
            f"static __device__ void {self.name}_element({', '.join(element)}, long long i, long long n) {{\n"
            + "".join(f"    {line}\n" for line in (body + ";" * (body[-1:] not in (";", "}"))).splitlines())
            + f"}}\n\n{template}__global__ void {self.name}({', '.join(kernel)}, long long n) {{\n"
            "    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;\n"
            "         i += (long long)gridDim.x * blockDim.x)\n"
            f"        {self.name}_element({', '.join(passed)}, i, n);\n}}\n"
        ).lstrip("\n")
        words = [text, *(_TYPES[_dtype(value)] for value in values)]
        headers = [file for word, file in _INCLUDES.items() if any(word in item for item in words)]
        return "".join(f"#include <{file}>\n" for file in headers) + text


class ReductionKernel(_Kernel):
    """A reduction, which no table can hold."""

    kind = "ReductionKernel"

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(named.get("name") or (args[6] if len(args) > 6 else "reduce_kernel"), None)

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse a launch."""
        message = (
            f"cupy.ReductionKernel: {self.name}: nothing executes or records CuPy's reductions here; write it into a "
            '.cu file and package it (frontend = "cuda-cpp")'
        )
        raise NotImplementedError(message)


@functools.cache
def _parameters(text: str) -> list[tuple[bool, str, str]]:
    """Return for each parameter: True if it is raw, its type, its name."""
    found = []
    for item in filter(None, map(str.strip, text.split(","))):
        words = item.split()
        found.append((("raw" in words[:-2]), words[-2], words[-1]))
    return found


def _dtype(value: Any) -> str:
    return str(value.dtype.name if hasattr(value, "dtype") else np.asarray(value).dtype.name)
