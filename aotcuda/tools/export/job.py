"""The messages between the command and the processes of an export."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotcuda.arch import Target
    from aotcuda.builder.frontends.triton.config import TritonUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The work of one process.

    Attributes:
        root: The project's folder.
        folders: Folders to import from, before all others.
        prelude: A module to import first; may be empty.
        target: The target.
        units: The variants.
        tuning: By module, the kernels of its tuning file.
        gpu: The name of the GPU whose timings are exported; may be empty.
        stub: An empty folder for the stub of the driver; None if no module of C is compiled.
        processes: The number of processes that compile.
    """

    root: str
    folders: tuple[str, ...]
    prelude: str
    target: Target
    units: tuple[TritonUnit, ...]
    tuning: dict[str, dict[str, Any]]
    gpu: str
    stub: str | None
    processes: int


@dataclass(slots=True)
class Result:
    """The entries of one process.

    Attributes:
        facts: What Triton's keys depend on, by name.
        kernels: Each with `module`, `kernel`, `signature`, `capability`, `entry` (the name of its folder).
        left_out: Variants that are not exported, each with the reason.
        timings: The autotuners' entries, each with `kernel`, `gpu` and `entry`.
        notes: Other lines for the user.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    kernels: list[dict[str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    timings: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
