"""Warn about kernels that compile but do not work: they need too much memory, or meet a fault of the compiler.

Constant arrays that do not fit are refused, since no image can be linked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotcuda import arch
from aotcuda.builder import failures
from aotcuda.errors import CompileError
from aotcuda.gpus import BY_NUMBER, MOST_LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aotcuda import manifest
    from aotcuda.builder.frontends.protocol import CompiledFunction, CompiledKernel, Fault, Unit


CONSTANT_MEMORY = 1 << 16
"""Bytes of constant memory of an image, on every GPU (CUDA C++ Programming Guide, "Compute Capabilities")."""

_MOST_SHOWN = 8
_FAULT_TABLE = 'the page "Front ends", section "Known faults",'


def shared_memory(kernels: Iterable[tuple[Unit, CompiledKernel]]) -> list[str]:
    """Return a warning for each kernel whose compiled-in shared memory exceeds the memory of a target."""
    variants: dict[str, list[dict[str, int]]] = {}
    for unit, built in kernels:
        variants.setdefault(unit.key, []).append({target: launch["shared"] for target, launch in built.launches})
    warnings = []
    for key, needs in variants.items():
        if (excess := _excess(needs, most_shared, "variants")) is not None:
            subject, worst = excess
            sizes = ", ".join(f"{size} bytes for {target}, which has {most_shared(target)}" for target, size in worst)
            problem = f"{subject} more shared memory for a block than there is, and cannot be launched there"
            warnings.append(f"{key}: {problem}: {sizes}; have smaller tiles or fewer stages")
    return warnings


def check_constants(module: str, kernels: Iterable[tuple[Unit, CompiledKernel]]) -> None:
    """Refuse a module whose constant arrays do not fit into the constant memory that the kernels of an image share.

    Raises:
        CompileError: They do not fit; with the kernels that have them, the largest first.
    """
    needs: dict[str, int] = {}
    arrays: dict[str, int] = {}
    for unit, built in kernels:
        arrays.update(built.constants)
        needs[unit.head] = sum(size for _, size in built.constants)
    total = sum(arrays.values())
    if total <= CONSTANT_MEMORY:
        return
    largest = sorted((head for head in needs if needs[head]), key=lambda head: -needs[head])
    examples = ", ".join(f"{head.removeprefix(f'{module}.kernels.')} {needs[head]:,}" for head in largest[:_MOST_SHOWN])
    suffix = f" and {len(largest) - _MOST_SHOWN} more" if len(largest) > _MOST_SHOWN else ""
    message = (
        f"{module}: the constant arrays of its kernels have {total:,} bytes, and an image has {CONSTANT_MEMORY:,} for "
        f"all of them ({examples}{suffix}); pass large arrays as arguments, or make the kernels two modules"
    )
    raise CompileError(message)


def local_memory(module: str, kernels: Iterable[manifest.Kernel]) -> list[str]:
    """Return a warning for each kernel of a module whose threads need more local memory than GPUs have."""
    warnings = []
    for kernel in kernels:
        overloads = [overload["resources"].items() for overload in kernel["overloads"]]
        needs = [{target: resources["local"] or 0 for target, resources in overload} for overload in overloads]
        if (excess := _excess(needs, lambda _target: MOST_LOCAL, "signatures")) is not None:
            subject, worst = excess
            sizes = ", ".join(f"{size} bytes for {target}" for target, size in worst)
            problem = f"{subject} more local memory for a thread than the {MOST_LOCAL} bytes that GPUs have"
            advice = "have smaller local arrays, or arrays in global memory"
            warnings.append(f"{module}.{kernel['name']}: {problem}, and cannot be launched: {sizes}; {advice}")
    return warnings


def most_shared(target: str) -> int:
    """Return the bytes of shared memory that a block may have on a target's GPUs; 2 GiB if it is unknown."""
    row = BY_NUMBER.get(arch.parse(target).capability)
    return row.limits.shared_block if row is not None and row.limits is not None else 1 << 31


def _excess(
    needs: Sequence[Mapping[str, int]], most: Callable[[str], int], noun: str
) -> tuple[str, list[tuple[str, int]]] | None:
    """Return the start of a sentence about variants that need more bytes than a target has, and their largest needs."""
    excesses = [{target: size for target, size in need.items() if size > most(target)} for need in needs]
    count = sum(map(bool, excesses))
    if not count:
        return None
    subject = "it needs" if len(needs) == 1 else f"{count} of its {len(needs)} {noun} need{'s' * (count == 1)}"
    worst: dict[str, int] = {}
    for sizes in excesses:
        worst |= {target: max(size, worst.get(target, 0)) for target, size in sizes.items()}
    return subject, sorted(worst.items())


def known_faults(units: Iterable[tuple[Unit, CompiledKernel | CompiledFunction]], policy: str) -> list[str]:
    """Return a warning for each kernel or function with known faults."""
    faults_by_key: dict[str, dict[Fault, None]] = {}
    for unit, built in units:
        if built.faults:
            faults_by_key.setdefault(unit.key, {}).update(dict.fromkeys(built.faults))
    lines = [
        f"{key}: {_fault_text(list(faults))}; {_FAULT_TABLE} has the table" for key, faults in faults_by_key.items()
    ]
    if lines and policy == "error":
        raise failures.join([CompileError(line) for line in lines])
    return lines


def _fault_text(faults: Sequence[Fault]) -> str:
    texts = [f"{fault.fact} ({fault.place}); {fault.remedy}" for fault in faults]
    return f"{faults[0].compiler} is known to compile this wrongly: {'; and '.join(texts)}"
