"""One case of the conformance suite: a kernel, its arguments, and the source of its correct results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = Any
"""A NumPy array, or a NumPy scalar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel and a launch.

    Attributes:
        name: A group and a name in it: `index/uint8`.
        body: The statements of the kernel.
        arguments: The parameters by name; all arrays are compared after the launch.
        threads: Launched threads, in blocks of `block`; fewer than a block are one block.
        block: Threads of a full block.
        oracle: `python`: CPython runs the body with exact integers and NumPy's floats. `numba-cuda`: the arrays after a
            launch of numba-cuda's code, if Numba differs from Python and NumPy on purpose.
        why: The difference, if the oracle is `numba-cuda`.
        reference: Statements that CPython runs in place of the body.
        ulps: The accepted difference of floats, in units in the last place.
        first: The number of the first thread that the reference and the CPU run; earlier threads do nothing.
        gpu: True if the case needs more memory than the CPU's part of the suite has.
    """

    name: str
    body: str
    arguments: Mapping[str, Value]
    threads: int = 1
    block: int = 64
    oracle: Literal["python", "numba-cuda"] = "python"
    why: str = ""
    reference: str = ""
    ulps: int = 0
    first: int = 0
    gpu: bool = False

    @property
    def kernel(self) -> str:
        """Return the kernel's name."""
        return self.name.replace("/", "_").replace("-", "_")

    @property
    def launch(self) -> tuple[int, int]:
        """Return the numbers of blocks and of threads in each."""
        return -(-self.threads // self.block), min(self.block, self.threads)

    @property
    def group(self) -> str:
        """Return the part of the suite that the case belongs to."""
        return self.name.partition("/")[0]

    @property
    def signature(self) -> str:
        """Return the kernel's signature in Numba's notation."""
        return f"void({', '.join(map(_type_of, self.arguments.values()))})"

    @property
    def source(self) -> str:
        """Return the kernel as a Python function."""
        lines = [f"    {line}" for line in self.body.splitlines()]
        return "\n".join([f"def {self.kernel}({', '.join(self.arguments)}):", *lines, ""])


RECORDS: dict[str, np.dtype[Any]] = {
    "particle": np.dtype([("x", "f4"), ("id", "u1"), ("n", "i8")], align=True),
    "packed": np.dtype([("flag", "u1"), ("x", "f8"), ("k", "i2")]),
    "same": np.dtype([("a", "i4"), ("b", "i4"), ("c", "i4")]),
}
"""The record types of cases, by their names in signatures."""


def _type_of(value: Value) -> str:
    dtype = value.dtype
    name = next((name for name, record in RECORDS.items() if record == dtype), dtype.name.replace("bool", "boolean"))
    if not isinstance(value, np.ndarray):
        return name
    if value.flags.c_contiguous:
        return f"{name}[{', '.join([':'] * (value.ndim - 1) + ['::1'])}]"
    return f"{name}[{', '.join([':'] * value.ndim)}]"
