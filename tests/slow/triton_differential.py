"""Compare launches of packaged Triton kernels with launches by Triton's JIT, on the stand-in driver.

A process of the JIT and a process of the package make the same launches, and write the arguments of the driver's calls.
`Differential` lists the differences. A case is a kernel (a path of attributes in its module) and arguments by name: an
array is `f4+4` (a type, and an offset of the address in bytes), a type of Triton is `tl.float16`. As a script this
module makes the launches of one process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import itertools
import json
import operator
import os
import re
import subprocess
import sys
import types
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotcuda import manifest
from aotcuda.binary import cubin, fatbin
from aotcuda.binary.elf import Elf
from aotcuda.builder.frontends.triton import config
from aotcuda.runtime.launch.arguments import argument_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMS = ("name", "position", "run", "function", "name", "position", "run", "function")
"""Forms of a launch of the package: the general path makes the first launches, the fast path the others."""

_DESCRIPTOR = re.compile(r"desc:(\w+):([\dx]+):([\dx]+)((?::\w+)*)")
_ARRAY = re.compile(r"([fiub][1248]|bfloat16|float8_\w+)(\+\d+)?")

_SIZES = {"i1": 1, "u1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "fp32": 4, "map": 128}

OPTIONS = tuple(config.ALL_OPTIONS)

Case = tuple[str, dict[str, Any]]


# -------------------------------------------------------------------------------------------------------- in a process


class Array:
    """Memory of a GPU with the attributes of a tensor that Triton and the reader of PyTorch's tensors use."""

    __module__ = "torch"

    ndim, shape, is_cuda = 1, (16,), True

    def __init__(self, address: int, name: str) -> None:
        self.address, self.dtype = address, _Dtype(name)

    def data_ptr(self) -> int:
        return self.address

    get_device = staticmethod(lambda: 0)
    is_conj = staticmethod(lambda: False)
    is_contiguous = staticmethod(lambda: True)
    stride = staticmethod(lambda: (1,))

    def element_size(self) -> int:
        return self.dtype.itemsize


Array.__name__ = Array.__qualname__ = "Tensor"


@functools.cache
class _Dtype:
    is_complex = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_floating_point = "float" in name
        bits = re.search(r"float(8)_|(\d+)$", name)
        self.itemsize = int(bits[1] or bits[2]) // 8 if bits else 1

    def __str__(self) -> str:
        return f"torch.{self.name}"


_TORCH = {"f": "float", "i": "int", "u": "uint", "b": "bool"}


class Arrays:
    """Arrays by parameter and description, `f4+4`: a type, and an offset of the address in bytes."""

    def __init__(self) -> None:
        self._allocate: Any = ctypes.CDLL("libcuda.so.1").fake_allocate
        self._allocate.restype = ctypes.c_uint64
        self._arrays: dict[tuple[str, str], Array] = {}

    def get(self, parameter: str, value: str | None) -> Array | None:
        """Return the array of a parameter; each parameter has separate memory."""
        if value is None:
            return None
        if (parameter, value) not in self._arrays:
            name, _, offset = value.partition("+")
            if re.fullmatch("[fiub][1248]", name):
                name = "bool" if name == "b1" else f"{_TORCH[name[0]]}{8 * int(name[1])}"
            begin = self._allocate(ctypes.c_uint64(4096), 0)
            self._arrays[parameter, value] = Array(begin + -begin % 256 + int(offset or 0), name)
        return self._arrays[parameter, value]


def _descriptor(arrays: Arrays, parameter: str, match: re.Match[str]) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    shape, block = ([int(each) for each in text.split("x")] for text in (match[2], match[3]))
    strides = [*itertools.accumulate([1, *shape[:0:-1]], operator.mul)][::-1]
    padding = "nan" if "nan" in match[4].split(":") else "zero"
    flags = {"round_f32_to_tf32": True} if "tf32" in match[4].split(":") else {}
    return TensorDescriptor(arrays.get(parameter, match[1]), shape, strides, block, padding, **flags)


def arguments(arrays: Arrays, case: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a case by name."""
    import triton.language

    named = {}
    for name, value in case.items():
        if isinstance(value, str) and (match := _DESCRIPTOR.fullmatch(value)):
            named[name] = _descriptor(arrays, name, match)
            continue
        if isinstance(value, str) and value.startswith("tl."):
            named[name] = getattr(triton.language, value.removeprefix("tl."))
        elif isinstance(value, str) and _ARRAY.fullmatch(value):
            named[name] = arrays.get(name, value)
        elif value is not None or name not in OPTIONS:
            named[name] = value
    return named


def launch(kernel: Any, form: str, named: dict[str, Any]) -> Any:
    """Launch a kernel with arguments by name, written in one of `FORMS`."""
    grid, args = (2, 3), []
    if form == "position" and "num_stages" not in kernel.arg_names:  # by name it is Triton's option, too
        args = [named[name] for name in itertools.takewhile(named.__contains__, kernel.arg_names)]
        named = {name: value for name, value in named.items() if name not in kernel.arg_names[: len(args)]}
    if form == "run":
        return kernel.run(**named, grid=grid, warmup=False)
    return kernel[(lambda _meta: grid) if form == "function" else grid](*args, **named)


def main(mode: str, source: str, cases: str, out: str) -> None:
    """Make launches: in mode `record` for `aotcuda record`, `jit` by the JIT, `packaged` of the package."""
    if mode == "packaged":
        torch: Any = types.ModuleType("torch")
        torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda _device: 0)
        torch.compiler = types.SimpleNamespace(is_compiling=lambda: False)
        sys.modules["torch"] = torch
        _announce_sizes()
    log = Path(os.environ["FAKE_CUDA_LOG"])
    module, arrays = importlib.import_module(source), Arrays()
    requests: list[Any] = []

    def allocate(size: int, alignment: int, stream: int | None) -> Array | None:
        requests.append([size, alignment, stream])
        return arrays.get("scratch", "i1")

    importlib.import_module("triton").set_allocator(allocate)
    jit = _Jit() if mode != "packaged" else None
    entries = []
    for name, case, *settings in json.loads(Path(cases).read_text()):
        kernel = operator.attrgetter(name)(module)
        entry: dict[str, Any] = {"launches": []}
        for form in FORMS if mode == "packaged" else FORMS[:1]:
            log.write_text("")
            requests.clear()
            with jit.launching(kernel, settings, entry) if jit is not None else contextlib.nullcontext():
                try:
                    made = launch(kernel, form, arguments(arrays, case))
                except Exception as error:  # noqa: BLE001 (compared by the caller)
                    entry["launches"].append({"error": type(error).__name__, "text": str(error)[:300]})
                    continue
            calls = [json.loads(line) for line in log.read_text().splitlines() if "cuLaunchKernel" in line]
            entry["launches"] += [{**call, "scratch": [*requests]} for call in calls[-1:]]
            if jit is not None and made is not None:
                entry |= jit.compiled(made)
        tuner = kernel if hasattr(kernel, "configs") else kernel.fn
        if mode == "packaged" and getattr(tuner, "best_config", None) is not None:
            entry["config"] = tuner.configs.index(tuner.best_config)
        entries.append(entry)
    Path(out).write_text(json.dumps(entries))


def _announce_sizes() -> None:
    """Tell the stand-in driver the sizes of parameters that are passed one by one, gaps included."""
    original = argument_layout.PackedOverload.take

    def take(self: argument_layout.PackedOverload) -> argument_layout.Slot:
        if self.starts:
            sizes = [end - start for start, end in itertools.pairwise([*self.starts, self.size])]
            os.environ["FAKE_CUDA_SIZES"] = " ".join(map(str, sizes))
        return original(self)

    argument_layout.PackedOverload.take = take  # type: ignore[method-assign]


class _Jit:
    """Triton's JIT: the key of each launch, which is compiled only where `compiles` is set."""

    def __init__(self) -> None:
        import triton
        from triton.runtime import driver, jit

        self._jit, self.compiles = jit, True
        launcher: Any = driver.active.launcher_cls

        class Launcher(launcher):  # type: ignore[misc]
            def __init__(self, source: Any, metadata: Any) -> None:
                super().__init__(source, metadata)
                kinds = _kinds(source, metadata)
                self.sizes = " ".join(str(_SIZES.get(kind, 8)) for kind in kinds) + " 8 8"

            def __call__(self, *args: Any, **named: Any) -> Any:
                os.environ["FAKE_CUDA_SIZES"] = self.sizes
                return super().__call__(*args, **named)

        driver.active.launcher_cls = Launcher
        self._keys: list[str] = []
        compute_key, do_compile = jit.compute_cache_key, triton.JITFunction._do_compile

        def key(cache: Any, *args: Any) -> str:
            cache.clear()  # its keys do not distinguish 1, 1.0 and True
            self._keys.append(compute_key(cache, *args))
            return self._keys[-1]

        def compile(function: Any, *args: Any, **named: Any) -> Any:  # noqa: A001 (Triton's name)
            return do_compile(function, *args, **named) if self.compiles else None

        jit.compute_cache_key = key
        triton.JITFunction._do_compile = compile

    @contextlib.contextmanager
    def launching(self, kernel: Any, settings: list[Any], entry: dict[str, Any]) -> Iterator[None]:
        """Store the key of a launch; `settings` are `compiles` and the number of the autotuner's config or None."""
        self._keys.clear()
        tuner = kernel if hasattr(kernel, "configs") else kernel.fn
        configs = getattr(tuner, "configs", None)
        if settings:
            self.compiles, number = settings
            if configs is not None and number is not None:
                tuner.configs = [configs[number]]
        try:
            yield
        finally:
            if configs is not None:
                tuner.configs = configs
            entry["key"] = self._keys[-1] if self._keys else None

    def compiled(self, made: Any) -> dict[str, Any]:
        """Return the digest and the parameter types of a compiled kernel."""
        return {
            "code": code_of(made.asm["cubin"], made.metadata.name),
            "signature": _kinds(made.src, made.metadata),
        }


def _kinds(source: Any, metadata: Any) -> list[str]:
    """Return the types of a kernel's parameters; a tensor descriptor has several."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    flags = 1 + ("round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__)
    kinds: list[str] = []
    for kind in source.signature.values():
        if kind.startswith("tensordesc"):
            rank = kind.count(",") + 1
            plain = ["*", *["i64"] * 2 * rank, *["i1"] * flags]
            kinds += ["map"] if getattr(metadata, "tensordesc_meta", None) else plain
            kinds += ["i32"] * rank + ["i64"] * rank
        elif kind != "constexpr":
            kinds.append(kind)
    return kinds


# ------------------------------------------------------------------------------------------------------ the comparison


def code_of(image: bytes, symbol: str) -> str:
    """Return a digest of a kernel's machine code."""
    return sha256(Elf(image, machine=190).content(f".text.{symbol}")).hexdigest()


class Differential:
    """Processes of the JIT and of a package that make the same launches.

    Attributes:
        problems: The differences.
        counts: How many cases were compared, by kind.
    """

    def __init__(self, library: Path, source: str, project: Path, folder: Path) -> None:
        """Store the stand-in driver for Triton, a module, the project with its source, and an empty folder."""
        self._library, self._source, self._project, self._folder = library, source, project, folder
        self.problems: list[str] = []
        self._variants: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.counts: dict[str, int] = {}

    def record(self, cases: list[Case]) -> None:
        """Launch by the JIT under `aotcuda record --write`, which writes the variants."""
        command = [sys.executable, "-m", "aotcuda", "record", "--write", "--"]
        self._launch("record", [[*case, True, None] for case in cases], command)

    def compare(self, wheel: Path, packaged: list[Case], others: list[Case], arch: str = "sm_90a") -> None:
        """Compare launches of a wheel with launches by the JIT; for `others` compare only the JIT's keys."""
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self._folder / "packages")
            folder = f"{self._source.replace('.', '/')}.aotcuda/"
            files = [name for name in archive.namelist() if re.fullmatch(rf"{folder}kernels(-\d+)?\.fatbin", name)]
            codes: dict[str, str] = {}
            for name in files:
                codes |= _codes(archive.read(name), arch)
            kernels: list[Any] = [*manifest.parse(archive.read(f"{folder}manifest.json"), folder)["kernels"]]
        self._variants = {
            overload["symbol"]: (kernel, overload) for kernel in kernels for overload in kernel["overloads"]
        }
        cases = [*packaged, *others]
        by_package = self._launch("packaged", cases)
        settings = [[at < len(packaged), entry.get("config")] for at, entry in enumerate(by_package)]
        by_jit = self._launch("jit", [[*case, *each] for case, each in zip(cases, settings, strict=True)])
        self._compare(cases, len(packaged), by_package, by_jit, codes)

    def _launch(self, mode: str, cases: list[Any], command: list[str] | None = None) -> list[dict[str, Any]]:
        listed, out = self._folder / f"{mode}.json", self._folder / f"{mode}.out.json"
        listed.write_text(json.dumps(cases))
        source = self._folder / "packages" if mode == "packaged" else self._project
        root = Path(__file__).resolve().parents[2]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (source, root, root / "tests"))),
            "LD_LIBRARY_PATH": str(self._library.parent),
            "TRITON_LIBCUDA_PATH": str(self._library.parent),
            "TRITON_CACHE_DIR": str(self._folder / "triton"),
            "TRITON_DISABLE_LINE_INFO": "1",
            "PYTHONSAFEPATH": "1",
            "FAKE_CUDA_LOG": str(self._folder / f"{mode}.log"),
            "AOTCUDA_IN_PLACE": "1" if mode == "packaged" else "0",
            "AOTCUDA_FALLBACK": "error",
        }
        if mode != "packaged":
            environment["TRITON_ALWAYS_COMPILE"] = "1"  # Triton's cache on disk does not distinguish 1 and "1"
        program = [sys.executable, "-m", "slow.triton_differential", mode, self._source, str(listed), str(out)]
        done = subprocess.run(
            [*(command or []), *program],
            cwd=self._project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not out.is_file():
            raise RuntimeError(done.stdout + done.stderr)
        entries: list[dict[str, Any]] = json.loads(out.read_text())
        return entries

    def _compare(
        self, cases: list[Case], variants: int, packaged: list[Any], jit: list[Any], codes: dict[str, str]
    ) -> None:
        by_key: dict[tuple[str, str], str] = {}
        refused = 0
        for at, (case, ours, theirs) in enumerate(zip(cases, packaged, jit, strict=True)):
            key = (case[0], theirs["key"])
            symbols = {launch.get("kernel") for launch in ours["launches"]}
            if len(symbols) != 1 or len(ours["launches"]) != len(FORMS):
                self._report(case, f"launches differ: {ours['launches']}")
                continue
            (symbol,) = symbols
            is_error = theirs["key"] is None or (theirs["launches"] and "error" in theirs["launches"][0])
            refused += bool(is_error)
            if symbol is not None and is_error:
                self._report(case, f"{symbol} was launched, and the JIT raises {theirs['launches']}")
            elif at < variants and not is_error:
                if symbol is None:
                    self._report(case, f"it was missed: {ours['launches'][0]}")
                    continue
                if by_key.setdefault(key, symbol) != symbol:
                    self._report(case, f"{symbol} was launched, and {by_key[key]} for the same key")
                if codes[symbol] != theirs["code"]:
                    self._report(case, f"{symbol} has other machine code")
                self._compare_launches(case, ours["launches"], theirs)
            elif symbol is not None and key in by_key and by_key[key] != symbol:
                self._report(case, f"{symbol} was launched, and {by_key[key]} is compiled for {theirs['key']}")
            elif (
                symbol is not None and key not in by_key and (problem := broken_hint(*self._variants[symbol], case[1]))
            ):
                self._report(case, f"{symbol} was launched, and {problem}")
            elif symbol is None and key in by_key:
                self._report(case, f"it was missed, and {by_key[key]} is packaged: {ours['launches'][0]}")
        launched = sum("kernel" in each["launches"][0] for each in packaged[variants:])
        self.counts = {
            "variants": len(by_key),
            "launches of variants": variants,
            "neighbours": len(cases) - variants,
            "neighbours that are packaged": launched,
            "refused by the JIT": refused,
        }

    def _compare_launches(self, case: Case, ours: list[Any], theirs: dict[str, Any]) -> None:
        expected = _described(theirs["launches"][0], theirs["signature"], is_aligned=False)
        for launch in ours:
            described = _described(launch, theirs["signature"], is_aligned=True)
            for name, value in described.items():
                if value != expected[name]:
                    self._report(case, f"{name}: {value}, and by the JIT {expected[name]}")

    def _report(self, case: Case, problem: str) -> None:
        self.problems.append(f"{case[0]} {case[1]}: {problem}")


def broken_hint(kernel: dict[str, Any], variant: dict[str, Any], case: dict[str, Any]) -> str:
    """Return the first property of a variant that does not hold for the arguments of a case; empty if all hold."""
    from triton.backends.nvidia.compiler import CUDAOptions

    defaults = {name: CUDAOptions.__dataclass_fields__[name].default for name in OPTIONS}
    for argument, parameter in zip(kernel["arguments"], variant["parameters"], strict=True):
        name = parameter["name"]
        if name not in case:
            continue
        value, kind = case[name], parameter["kind"]
        if kind == "constant":
            value, wanted = (defaults.get(name) if each is None else each for each in (value, parameter["value"]))
            if (type(value), value) != (type(wanted), wanted):
                return f"{name} is not {wanted!r}"
            continue
        array = _ARRAY.fullmatch(value) if isinstance(value, str) else None
        is_multiple = (int(array[2] or 0) if array else value if type(value) is int else 1) % 16 == 0
        if parameter.get("divisor") == 16 and not is_multiple:
            return f"{name} is no multiple of 16"
        if kind == "elements" and (array is None or parameter["dtype"].lstrip("<|") != array[1]):
            return f"{name} is no array of {parameter['dtype']}"
        if kind == "elements" and "divisor" not in parameter and "hints" not in argument and is_multiple:
            return f"{name} is aligned, and the variant is slow for that"
        if kind == "number" and isinstance(value, str | None):
            return f"{name} is no number"
    return ""


def _codes(data: bytes, arch: str) -> dict[str, str]:
    """Return the digest of each packaged kernel's machine code, by its symbol."""
    images = [entry.content for entry in fatbin.read(data, "") if entry.kind == "sass" and entry.arch == arch]
    return {kernel.name: code_of(image, kernel.name) for image in images for kernel in cubin.read(image, "").kernels}


def _described(launch: dict[str, Any], signature: list[str], *, is_aligned: bool) -> dict[str, Any]:
    """Return the arguments of a launch call, in a form that does not depend on how parameters are passed."""
    data, at, parameters = bytes.fromhex(launch["parameters"]), 0, []
    for kind in [*signature, "*scratch", "*scratch"]:
        size = _SIZES.get(kind, 8)
        at += -at % min(size, 64) if is_aligned else 0
        value = data[at : at + size]
        if kind == "map":  # with the stand-in driver's record of the address
            value = value[:17] + value[24:]
        parameters.append("address" if kind.startswith("*") else value.hex())
        at += size
    attributes = {name: value if name == "4" else value[:1] for name, value in launch["attributes"].items()}
    return {
        **{name: launch[name] for name in ("grid", "block", "shared", "cooperative", "scratch")},
        "attributes": attributes,
        "parameters": parameters,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
