"""Choose configs from tables of recorded runs, `tuning.json` in a module's data folder.

A key is the key of Triton's autotuner: the values of its `key` arguments, then the dtypes of all arguments. A table has
numbers, strings, booleans and None as JSON, and other objects by their `str`. 1, 1.0 and true are three values.
"""

from __future__ import annotations

import json
import math
import os

from .... import manifest as manifests
from ....cache import folder
from ....common import triton_files, variables
from ....errors import AotcudaError
from ....runtime import driver as drivers
from ....runtime.jit.compile import warn
from . import bases

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from .kernel import InPlaceKernel

_PLAIN = (type(None), bool, int, float, str)
_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}

_tables: dict[str, dict[str, Any]] = {}
"""The tables of each file's kernels, by the path of the file."""


class Gpu:
    """The choices of one kind of GPU.

    Attributes:
        capability: Its compute capability, `"9.0"`.
        default: The number of the config with the most launches.
        choices: Numbers of configs by key.
    """

    def __init__(self, record: dict[str, Any]) -> None:
        self.capability: str = record["capability"]
        self.default: int = record["default"]
        self.choices: dict[tuple[object, ...], int] = {_exact(key): number for key, number in record["choices"]}

    def nearest(self, key: Sequence[Any]) -> list[int]:
        """Return the numbers of configs of keys that differ only in integers, the nearest key first.

        The distance is that of the logarithms: 4096 is as near to 2048 as to 8192.
        """
        distances = [(_distance(key, other), number) for other, number in self.choices.items()]
        return [number for distance, number in sorted(distances, key=lambda item: item[0]) if distance >= 0]


class Table:
    """The choices for one autotuned kernel."""

    def __init__(self, record: dict[str, Any]) -> None:
        self._configs = [_identity({**_OPTIONS, **config}, config["kwargs"]) for config in record["configs"]]
        self._gpus = {name: Gpu(gpu) for name, gpu in record["gpus"].items()}

    def choose(self, autotuner: Any, key: Any, arguments: dict[str, Any]) -> Any:
        """Return a config of an autotuner for a key; None if the autotuner has to time its configs.

        Args:
            autotuner: The autotuner, in its `run`.
            key: Its key for a launch.
            arguments: The launch's arguments by name.
        """
        gpu = _gpu()
        if gpu is None:
            return None
        name, capability = gpu
        same_name = [self._gpus[name]] if name in self._gpus else []
        same_capability = [gpu for gpu in self._gpus.values() if gpu.capability == capability]
        near = list(dict.fromkeys(same_name + same_capability))
        exact, plain = _exact(key), [_plain(value) for value in key]
        configs = {_identity(vars(config), config.kwargs): config for config in reversed(autotuner.configs)}
        found = self._first(configs, [gpu.choices[exact] for gpu in near if exact in gpu.choices])
        if found is not None or os.environ.get("AOTCUDA_TUNING") == "exact":
            return found
        unpruned = autotuner.prune_configs(arguments)
        configs = {_identity(vars(config), config.kwargs): config for config in reversed(unpruned)}
        numbers = [number for gpu in near for number in gpu.nearest(plain)]
        return self._first(configs, [*numbers, *(gpu.default for gpu in [*near, *self._gpus.values()])])

    def _first(self, configs: dict[object, Any], numbers: Iterable[int]) -> Any:
        """Return the first config that the autotuner has; the source may have changed since the record."""
        candidates = (configs.get(self._configs[number]) for number in numbers)
        return next((config for config in candidates if config is not None), None)


def _gpu() -> tuple[str, str] | None:
    """Return name and compute capability of the current GPU; None if there is none, which Triton reports."""
    try:
        driver = drivers.get()
    except AotcudaError:
        return None
    device = driver.devices[driver.current_device() or 0]
    return device.name, "{}.{}".format(*device.capability)


def store(kernel: InPlaceKernel, autotuner: Any, key: Any, timings: dict[Any, Any]) -> None:
    """Add the times of configs for a key to a tuning file, which `aotcuda record --merge` reads.

    The file is `tuning/MODULE.tuning.json` in the folder of the JIT cache. Nothing is written if there is no such
    folder. Processes that write at the same time may lose the times of one of them.

    Args:
        kernel: The packaged kernel.
        autotuner: The autotuner that timed.
        key: The autotuner's key.
        timings: The times by config.
    """
    gpu, base = _gpu(), folder.folder()
    if gpu is None or base is None or any(type(part) not in _PLAIN for part in key):
        return
    pack = kernel.manifest.get("pack")
    source = kernel.__module__ if pack is None else pack["source"]
    path = os.path.join(base, "tuning", f"{source}.tuning.json")
    try:
        with open(path, "rb") as file:
            kernels = _kernels(file.read(), source)
    except (OSError, ValueError, RecursionError):
        kernels = {}
    record = kernels.get(kernel.__name__, {})
    if record.get("keys") != list(autotuner.keys):
        record = {"keys": list(autotuner.keys), "configs": [], "gpus": {}}
    configs = record["configs"]
    rows = [[_number(configs, config), list(times)] for config, times in timings.items()]
    chosen = _number(configs, autotuner.cache[key])
    name, capability = gpu
    facts = record["gpus"].setdefault(name, {"capability": capability, "default": chosen, "choices": []})
    for field, value in (("choices", chosen), ("timings", rows)):
        facts[field] = [each for each in facts.get(field, []) if each[0] != list(key)] + [[list(key), value]]
    content = {"format": triton_files.TUNING, "version": triton_files.VERSION, "source": source}
    kernels[kernel.__name__] = record
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({**content, "kernels": kernels}, file, indent=1)
        os.replace(temporary, path)
    except OSError as error:
        warn(f"{path}: {error.strerror}; what autotuners timed is not stored")


def _number(configs: list[dict[str, Any]], config: Any) -> int:
    """Return the number of a config in a list of records; a new config is appended."""
    options = {name: value for name, value in config.all_kwargs().items() if name not in config.kwargs}
    record = {"kwargs": {name: _plain(value) for name, value in config.kwargs.items()}, **options}
    if record not in configs:
        configs.append(record)
    return configs.index(record)


def table(kernel: InPlaceKernel) -> Table | None:
    """Return the choices for a kernel; None if its module has none."""
    variables.check("AOTCUDA_TUNE", "AOTCUDA_TUNING")
    file = kernel.manifest["files"].get("tuning")
    if file is None:
        return None
    path = os.path.join(kernel.folder, file["path"])
    if path not in _tables:
        try:
            pack = kernel.manifest.get("pack")
            source = kernel.__module__ if pack is None else pack["source"]
            _tables[path] = _kernels(manifests.read_file(kernel.folder, file), source)
        except (AotcudaError, ValueError, RecursionError) as error:
            _tables[path] = {}
            warn(f"{path}: {_problem(error)}; it is ignored, and autotuners time their configs")
    record = _tables[path].get(kernel.__name__)
    return None if record is None else Table(record)


def _problem(error: Exception) -> str:
    return "it is not JSON" if isinstance(error, json.JSONDecodeError) else str(error).partition("\n")[0]


def _kernels(content: bytes, source: str) -> dict[str, Any]:
    """Read the tables of a module.

    Raises:
        ValueError: The file is damaged, of another version, or for another source.
    """
    data = json.loads(content)
    problem = triton_files.mismatch(data, triton_files.TUNING, [source])
    if problem is not None:
        raise ValueError(problem)
    kernels = data.get("kernels")
    if not isinstance(kernels, dict) or not all(map(_is_table, kernels.values())):
        message = "its tables are damaged"
        raise ValueError(message)
    return kernels


def _is_table(record: Any) -> bool:
    """Return True if `Table` can read a record."""
    if not isinstance(record, dict):
        return False
    configs, gpus = record.get("configs"), record.get("gpus")
    if not isinstance(configs, list) or not isinstance(gpus, dict):
        return False
    if not all(isinstance(config, dict) and isinstance(config.get("kwargs"), dict) for config in configs):
        return False
    numbers = range(len(configs))
    for gpu in gpus.values():
        if not isinstance(gpu, dict) or type(gpu.get("default")) is not int or gpu["default"] not in numbers:
            return False
        choices = gpu.get("choices")
        if not isinstance(gpu.get("capability"), str) or not isinstance(choices, list):
            return False
        for choice in choices:
            is_pair = isinstance(choice, list) and len(choice) == 2 and isinstance(choice[0], list)
            if not is_pair or type(choice[1]) is not int or choice[1] not in numbers:
                return False
    return True


def _plain(value: Any) -> Any:
    """Return a value in the form of a table."""
    return value if type(value) in _PLAIN else str(value)


def _exact(key: Iterable[Any]) -> tuple[object, ...]:
    """Return a key that distinguishes 1, 1.0 and True."""
    return tuple([(type(value), value) for value in map(_plain, key)])


def _identity(options: dict[str, Any], constants: dict[str, Any]) -> object:
    """Return a value that is equal for equal configs."""
    values = _exact(_constant(constants[name]) for name in sorted(constants))
    return tuple(sorted(constants)), values, tuple([options.get(name) for name in _OPTIONS])


def _constant(value: Any) -> Any:
    """Return a constexpr of a config in the form of a key; `{"dtype": "float16"}` is Triton's type float16."""
    if isinstance(value, dict) and "dtype" in value:
        return str(getattr(bases.triton.language, str(value["dtype"]), None))
    return value.value if type(value).__name__ == "constexpr" else value


def _distance(key: Sequence[Any], other: Sequence[Any]) -> float:
    """Return the distance of a key from a key of a table; -1 if values other than integers differ."""
    if len(key) != len(other):
        return -1
    total = 0.0
    for value, (kind, recorded) in zip(key, other, strict=True):
        if type(value) is int and kind is int:
            total += (_logarithm(value) - _logarithm(recorded)) ** 2
        elif type(value) is not kind or value != recorded:
            return -1
    return total


def _logarithm(value: int) -> float:
    return math.copysign(math.log1p(abs(value)), value)
