"""Light classes with the interface of Triton's decorators, which launch packaged kernels without Triton.

A decorated function is never compiled. `language` has an object for every name that a source may use in kernels and
annotations. Launches use only types and constexprs.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

from ....errors import ArgumentError, DependencyError
from ....runtime.launch import scratch_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

NEEDS = "compiling it here needs Triton: pip install 'aotcuda[triton]'"
"""The remedy for a miss."""

_MOST_DIMENSIONS, _ALIGNMENT = 5, 16
"""The limits of tensor descriptors: dimensions, and bytes of the address."""

_NO_HOOKS = SimpleNamespace(calls=[])
RUNTIME = SimpleNamespace(
    launch_enter_hook=_NO_HOOKS, launch_exit_hook=_NO_HOOKS, debug=False, add_stages_inspection_hook=None
)
"""The settings of Triton that launches read."""

_TYPES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "int1": "int1",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8e5": "fp8e5",
    "float8e4nv": "fp8e4nv",
    "float8e4b15": "fp8e4b15",
}
"""Attributes of `triton.language` that are types, with the `name` of each type."""


class JITFunction:
    """A decorated function.

    Attributes:
        fn: The Python function.
        arg_names: Its parameters.
        pre_run_hooks: Functions that launches call first.
        debug: The option of this name.
    """

    def __init__(self, fn: Any, *, debug: object = None, **options: object) -> None:
        """Store a function and its options, which the packaged code was compiled with."""
        self.fn = self.__wrapped__ = fn
        self.__module__, self.__name__, self.__qualname__ = fn.__module__, fn.__name__, fn.__qualname__
        self.__doc__ = fn.__doc__
        code = fn.__code__
        self.arg_names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        self.pre_run_hooks: list[Callable[..., object]] = []
        self.debug = debug
        self.options = options

    def run(self, *_args: object, grid: object, warmup: bool, **_named: object) -> NoReturn:
        """Raise an error, because nothing can be compiled.

        Raises:
            DependencyError: Always.
        """
        del grid, warmup
        message = f"{self.__module__}.{self.__qualname__}: {NEEDS}"
        raise DependencyError(message)

    def warmup(self, *args: object, grid: object, **named: object) -> Any:
        """Raise an error, as `run`."""
        return self.run(*args, grid=grid, warmup=True, **named)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Return the launcher of the kernel with a grid."""
        return lambda *args, **named: self.run(*args, grid=grid, warmup=False, **named)

    def add_pre_run_hook(self, hook: Callable[..., object]) -> None:
        """Add a function that launches call first."""
        self.pre_run_hooks.append(hook)


class CompiledKernel:
    """The base of packaged variants, as `triton.compiler.CompiledKernel`."""

    run: Callable[..., Any]

    def launch_metadata(self, grid: object, stream: object, *args: object) -> None:
        """Return None: there are no launch hooks."""
        del grid, stream, args

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        """Return the launcher of the variant with a grid."""
        return lambda *args, stream=None: self.run(*grid, stream, None, None, None, None, None, *args)


class Wrapper:
    """The common base of autotuners and heuristics."""

    fn: Any
    run: Callable[..., Any]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Return the launcher of the kernel with a grid."""
        return lambda *args, **named: self.run(*args, grid=grid, warmup=False, **named)


class Config:
    """A config of an autotuner, as `triton.Config`."""

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[..., object] | None = None,
        ir_override: str | None = None,
    ) -> None:
        self.kwargs = kwargs
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.num_ctas = num_ctas
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook
        self.ir_override = ir_override

    def all_kwargs(self) -> dict[str, Any]:
        """Return its constants and options, by name."""
        names = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")
        return self.kwargs | {name: vars(self)[name] for name in names if vars(self)[name] is not None}


class Autotuner(Wrapper):
    """An autotuner that cannot time its configs.

    Attributes:
        cache: The config for each key.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: list[str],
        configs: list[Any],
        key: list[str],
        reset_to_zero: object = None,
        restore_value: object = None,
        *_rest: object,
        prune_configs_by: dict[str, Any] | None = None,
        **_options: object,
    ) -> None:
        """Implement triton.runtime.autotuner.Autotuner.__init__; options for timing are ignored."""
        del reset_to_zero, restore_value
        self.fn, self.arg_names, self.keys = fn, arg_names, key
        self.configs = configs or [Config({})]
        self.cache: dict[Any, Any] = {}
        self.nargs: dict[str, Any] = {}
        self._prune = (prune_configs_by or {}).get("early_config_prune")

    def run(self, *args: Any, **named: Any) -> Any:
        """Launch the kernel with the config for its arguments.

        Raises:
            DependencyError: No config is known for them.
        """
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        config = self.configs[0] if len(self.configs) == 1 else self._choice({**self.nargs, **named})
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **named, **config.all_kwargs()})
        return self.fn.run(*args, **named, **config.all_kwargs())

    def warmup(self, *args: Any, **named: Any) -> list[Any]:
        """Warm up the kernel with each config that passes the pruning."""
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        return [self.fn.warmup(*args, **named, **config.all_kwargs()) for config in self.prune_configs(named)]

    def _bench(self, key: list[Any]) -> Any:
        """Raise an error, because nothing can be timed.

        Raises:
            DependencyError: Always.
        """
        message = f"no config is packaged for {key}, and timing them needs Triton: pip install 'aotcuda[triton]'"
        raise DependencyError(message)

    def prune_configs(self, named: dict[str, Any]) -> list[Any]:
        """Return the configs that pass the pruning for the current launch."""
        return self.configs if self._prune is None else list(self._prune(self.configs, self.nargs, **named))

    def _choice(self, arguments: dict[str, Any]) -> Any:
        arguments = {name: value for name, value in arguments.items() if name in self.arg_names}
        key = [arguments[name] for name in self.keys if name in arguments]
        cache_key = (*key, *[str(value.dtype) for value in arguments.values() if hasattr(value, "dtype")])
        if cache_key not in self.cache:
            self._bench(key)
        return self.cache[cache_key]


class MockTensor:
    """A stand-in for a tensor in warm-ups, as `triton.runtime.jit.MockTensor`."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    @staticmethod
    def wrap_dtype(argument: Any) -> Any:
        """Return an argument of a warm-up, with a stand-in for a dtype of PyTorch."""
        kind = type(argument)
        return MockTensor(argument) if (kind.__module__, kind.__name__) == ("torch", "dtype") else argument

    @staticmethod
    def data_ptr() -> int:
        """Return an aligned address."""
        return 0


class Heuristics(Wrapper):
    """Functions that compute constexprs of a kernel at each launch."""

    def __init__(self, fn: Any, arg_names: list[str], values: dict[str, Callable[..., Any]]) -> None:
        self.fn, self.arg_names, self.values = fn, arg_names, values

    def run(self, *args: Any, **named: Any) -> Any:
        """Launch the kernel with the values of the functions."""
        for name, function in self.values.items():
            named[name] = function({**dict(zip(self.arg_names, args, strict=False)), **named})
        return self.fn.run(*args, **named)


class _Name:
    """A name of Triton that only kernels use."""

    def __getattr__(self, name: str) -> _Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_args: object, **_named: object) -> _Name:
        return self


class dtype(str):  # noqa: N801 (Triton's name, by which launches know it)
    """A type of Triton, `tl.float16`."""

    __slots__ = ()
    __module__ = "triton.language.core"

    @property
    def name(self) -> str:
        """The name of the type in signatures, `fp16`."""
        return str(self)


class constexpr:  # noqa: N801 (as above)
    """A constant for kernels."""

    __module__ = "triton.language.core"

    def __init__(self, value: Any) -> None:
        self.value = value


class TensorDescriptor:
    """A tensor descriptor, as `triton.tools.tensor_descriptor.TensorDescriptor`."""

    __module__ = "triton.tools.tensor_descriptor"  # by which launches know it

    def __init__(
        self,
        base: Any,
        shape: list[int],
        strides: list[int],
        block_shape: list[int],
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> None:
        if not 0 < len(shape) == len(strides) == len(block_shape) <= _MOST_DIMENSIONS or strides[-1] != 1:
            message = (
                f"a tensor descriptor has shape {list(shape)}, strides {list(strides)} and block shape "
                f"{list(block_shape)}; give one to five of each, the last stride 1"
            )
            raise ArgumentError(message)
        if base.data_ptr() % _ALIGNMENT or padding not in ("zero", "nan"):
            message = (
                f"a tensor descriptor has padding {padding!r} and an array at {base.data_ptr():#x}; give zero or nan, "
                "and an array that is aligned to 16 bytes"
            )
            raise ArgumentError(message)
        self.base, self.shape, self.strides, self.block_shape = base, shape, strides, block_shape
        self.padding, self.round_f32_to_tf32 = padding, round_f32_to_tf32

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: list[int], padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> TensorDescriptor:
        """Return the descriptor of a whole tensor."""
        return TensorDescriptor(tensor, tensor.shape, tensor.stride(), block_shape, padding, round_f32_to_tf32)


def language() -> ModuleType:
    """Return a module that replaces `triton.language`."""
    module = ModuleType("triton.language")
    vars(module).update({name: dtype(short) for name, short in _TYPES.items()}, constexpr=constexpr, dtype=dtype)
    vars(module)["__getattr__"] = _name
    return module


def package() -> ModuleType:
    """Return a module that replaces `triton`; `facade.module` adds the `jit` of packaged modules."""
    module = ModuleType("triton")
    vars(module).update(
        jit=JITFunction,
        autotune=lambda configs, key, *args, **named: (
            lambda fn: Autotuner(fn, fn.arg_names, configs, key, *args, **named)
        ),
        heuristics=lambda values: lambda fn: Heuristics(fn, fn.arg_names, values),
        constexpr_function=lambda fn: fn,
        cdiv=lambda x, y: (x + y - 1) // y,
        next_power_of_2=lambda n: 1 << max(n - 1, 0).bit_length() if n > 0 else 0,
        language=language(),
        set_allocator=scratch_memory.set_allocator,
        tools=SimpleNamespace(tensor_descriptor=SimpleNamespace(TensorDescriptor=TensorDescriptor)),
        **{kind.__name__: kind for kind in (JITFunction, Config)},
    )
    vars(module)["__getattr__"] = _absent
    return module


def _name(name: str) -> _Name:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Name()


def _absent(name: str) -> None:
    message = f"module 'triton' has no attribute {name!r} where Triton is not installed: pip install 'aotcuda[triton]'"
    raise AttributeError(message, name=name)
