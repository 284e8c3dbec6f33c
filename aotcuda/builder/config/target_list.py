"""Read lists of targets in the notations of nvcc, PyTorch and CMake, for `arch` and `AOTCUDA_ARCH`.

    sm_90  compute_90a            one target each
    all  all-major  native        nvcc's -arch: the targets of the toolchain, or the GPUs of this machine
    8.0;9.0a+PTX                  PyTorch's TORCH_CUDA_ARCH_LIST: machine code, and with +PTX also PTX
    80-real;90-virtual;90a        CMake's CUDA_ARCHITECTURES: machine code, PTX, and without a suffix both

CMake and PyTorch read a number alone, `90` or `9.0`, differently. It is accepted only in a list where another item
shows the notation. An ambiguous item is an error that names the remedy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotcuda import arch, registry
from aotcuda.arch import Target
from aotcuda.builder.config import keys
from aotcuda.builder.plan import toolkits
from aotcuda.errors import AotcudaError
from aotcuda.gpus import BY_NUMBER, CAPABILITIES, FIRST_CURRENT, by_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aotcuda.builder.config.keys import Key
    from aotcuda.errors import ConfigError

_ITEM = "sm_XY (machine code) or compute_XY (PTX)"
_NUMBER = "[0-9]{2,3}[af]?"
_CAPABILITY = r"[0-9]{1,2}\.[0-9][af]?"
_KEYWORDS = ("all", "all-major", "native")
_ONE = rf"(?:(?:sm|compute)_{_NUMBER}|{_NUMBER}(?:-real|-virtual)?|{_CAPABILITY}(?:\+PTX)?|{'|'.join(_KEYWORDS)})"


@dataclass(frozen=True, slots=True)
class TargetList:
    """The shape of `arch`; see `aotcuda.builder.config.shapes.Shape`."""

    expected: str = "a list of targets"

    def read(self, value: object, key: Key) -> tuple[Target, ...]:
        """Return the targets that a list names, in its order.

        Raises:
            ConfigError: An item is not a target, is ambiguous, or repeats a target in another notation.
        """
        if not isinstance(value, list | tuple) or not value:
            raise key.mismatch(self.expected, value)
        items = []
        for index, item in enumerate(value):
            if not isinstance(item, str):
                raise _no_target(key.item(index), item)
            items += [(key.item(index), part) for part in re.split("[;,]", item)]
        return _read(items)

    def schema(self) -> dict[str, Any]:
        """Implement Shape.schema."""
        pattern = f"^{_ONE}([;,]{_ONE})*$"
        return {"type": "array", "items": {"type": "string", "pattern": pattern}, "minItems": 1}


def from_variable(variable: str, key: Key) -> tuple[Target, ...]:
    """Return the targets in the value of AOTCUDA_ARCH, whose items `;`, `,` or spaces divide."""
    if not variable.strip():
        return ()
    items = [item for item in re.split(r"[;,\s]+", variable) if item]
    if not items:
        problem = "the list names no target"
        raise key.error(problem)
    return _read([(key, item) for item in items])


def _read(items: Sequence[tuple[Key, str]]) -> tuple[Target, ...]:
    texts = [text for _, text in items]
    pytorch = any(re.fullmatch(rf"{_CAPABILITY}\+PTX", text) for text in texts)
    cmake = any(re.fullmatch(rf"{_NUMBER}-(real|virtual)", text) for text in texts)
    target_list: list[Target] = []
    notations: dict[Target, str] = {}
    for key, text in items:
        targets = [*_targets(key, text, pytorch=pytorch, cmake=cmake)]
        for target in targets if text not in _KEYWORDS else ():
            row = BY_NUMBER.get(target.capability)
            if row is not None and row.renamed is not None:
                new = str(Target(target.kind, *row.renamed, target.suffix))
                problem = f"{keys.string(text)} is what CUDA 12.8 and 12.9 called {new}"
                raise key.error(problem, f'write "{new}"')
            if notations.setdefault(target, text) != text:
                problem = f"{target} is listed twice, as {keys.string(notations[target])} and as {keys.string(text)}"
                raise key.error(problem, "leave one of them out")
        target_list += targets
    return tuple(target_list)


def _targets(key: Key, text: str, *, pytorch: bool, cmake: bool) -> Iterator[Target]:
    """Yield the targets that one item represents."""
    if text in _KEYWORDS:
        yield from _keyword(key, text)
        return
    number, _, kind = text.partition("-")
    capability, _, ptx = text.partition("+")
    if re.fullmatch(rf"(sm|compute)_{_NUMBER}", text):
        yield arch.parse(text)
    elif re.fullmatch(_NUMBER, number) and (kind in ("real", "virtual") or (text == number and cmake)):
        if kind != "virtual":
            yield arch.parse(f"sm_{number}")
        if kind != "real":
            yield arch.parse(f"compute_{number}")
    elif re.fullmatch(_CAPABILITY, capability) and (ptx == "PTX" or (text == capability and pytorch)):
        number = capability.replace(".", "")
        yield arch.parse(f"sm_{number}")
        if ptx:
            yield arch.parse(f"compute_{number}")
    elif re.fullmatch(rf"{_NUMBER}|{_CAPABILITY}", text):
        number = text.replace(".", "")
        problem = f"{keys.string(text)} alone may mean machine code, PTX or both"
        raise key.error(problem, f'write "sm_{number}", "compute_{number}" or both')
    else:
        raise _no_target(key, text)


def _no_target(key: Key, value: object) -> ConfigError:
    problem = f"expected {_ITEM}, found {keys.value_text(value)}"
    return key.error(problem, _remedy(str(value)))


def _remedy(text: str) -> str | None:
    """Return the remedy with the most similar target; None if none is similar."""
    if text.strip().lower() in _KEYWORDS:
        return f'write "{text.strip().lower()}"'
    row = by_name(text)
    rows = [row] if row else [row for row in CAPABILITIES if row.architecture.lower() == _lower(text)]
    if rows:
        targets = ", ".join(f'"sm_{row.number[0]}{row.number[1]}"' for row in rows if row.renamed is None)
        return f"write the compute capability of {text.strip()}: {targets}"
    match = re.fullmatch(r"(sm|compute|lto)?[_ -]?([0-9]{1,2})\.?([0-9])([af]?)(\+ptx|-real|-virtual)?", _lower(text))
    if match is None:
        return None
    prefix, major, minor, suffix, ending = match.groups(default="")
    number = f"{major}{minor}{suffix}"
    if len(number.rstrip("af")) < 2:
        return None
    if prefix in ("sm", "compute") and not ending:
        return f'write "{prefix}_{number}"'
    if prefix == "lto":
        return f'device functions have LTOIR for every target: write "sm_{number}"'
    return f'write "sm_{number}" for machine code, "compute_{number}" for PTX'


def _lower(text: str) -> str:
    return text.strip().lower() if text.isascii() else ""


def _keyword(key: Key, text: str) -> Iterator[Target]:
    if text == "native":
        for major, minor in sorted(set(_gpus_here(key))):
            yield Target("sass", major, minor)
        return
    # Targets that a newer toolkit has dropped have to be named.
    numbers = [number for number in _supported(key, text) if number not in BY_NUMBER or BY_NUMBER[number].is_current]
    numbers = [number for number in numbers if number >= FIRST_CURRENT]
    majors = [capability for capability in numbers if capability[1] == 0]
    for major, minor in numbers if text == "all" else sorted({numbers[0], *majors}):
        yield Target("sass", major, minor)
    yield Target("ptx", *(majors or numbers)[-1])


def _supported(key: Key, text: str) -> Iterable[tuple[int, int]]:
    """Return the compute capabilities that the toolchain builds for, in order."""
    if capabilities := toolkits.capabilities(toolkits.installed()):
        return capabilities
    try:
        from aotcuda.builder.plan import toolchain  # noqa: PLC0415 (most lists name their targets, and need no toolchain)

        return toolchain.supported_capabilities()
    except ImportError as error:
        problem = f"{keys.string(text)} means the targets of the toolchain, and {error.name} is not installed"
        raise key.error(problem, f"install {registry.requirement(registry.DEFAULT)}, or name the targets") from None


def _gpus_here(key: Key) -> list[tuple[int, int]]:
    """Return the compute capabilities of this machine's GPUs, as its driver reports them."""
    from aotcuda.runtime import driver  # noqa: PLC0415 (only this keyword needs the driver)

    try:
        return [device.capability for device in driver.get().devices]
    except AotcudaError as error:
        problem = f'"native" means the GPUs of this machine, and none was found: {error}'
        raise key.error(problem, 'name the targets, such as "sm_90"') from None
