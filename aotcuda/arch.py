"""Targets (`sm_90`, `compute_75`) and the rules by which code built for one runs on a GPU.

Rules, from the CUDA Programming Guide, "Binary Compatibility", "PTX Compatibility" and "Feature Set Compiler Targets":

- SASS (`sm_XY`) runs on its own compute capability and on later minor versions of the same major one. That holds for
  desktop GPUs; SASS of a Tegra GPU runs on its own compute capability alone, and no other SASS runs there.
- PTX (`compute_XY`) is compiled by the driver for its own compute capability and every later one, Tegra's included.
- A suffix `a` (architecture-specific) binds code to exactly its own compute capability, SASS and PTX alike.
- A suffix `f` (family-specific) binds code to its own family, from its own minor version on.

What the tables below hold is also in common/gpus.toml, with its sources; the run time reads no files for it.
"""

from __future__ import annotations

_SUFFIXES = ("", "a", "f")

FAMILIES = (((10, 0), (10, 3), (10, 7)), ((11, 0),), ((12, 0), (12, 1)))
"""The compute capabilities that share family-specific features, in order. A GPU that is in none has no promise."""

TEGRA = frozenset([(5, 3), (6, 2), (7, 2), (8, 7), (8, 8), (10, 1), (11, 0)])
"""Tegra's compute capabilities. NVIDIA names no GPU of 8.8, so no promise of a desktop GPU is taken to hold for it."""

FIRST_OF_CUDA_13 = (7, 5)
"""The lowest compute capability that CUDA 13's compilers build for. CUDA 12's have some below."""

MOST_LOCAL = (512 << 10) - 512
"""Bytes of local memory that a thread may have. On all GPUs that is 512 KiB, by "Technical Specifications per Compute
Capability" of the CUDA Programming Guide; an H200 launched kernels with 523,600 bytes, and none with 523,800."""

FIRST_WITH = {"": (0, 0), "a": (9, 0), "f": (10, 0)}
"""By suffix, the first compute capability with such code (CUDA C++ Programming Guide, Feature Set Compiler Targets)."""


class Target:
    """One item of `arch`: immutable, hashable, ordered by compute capability.

    Attributes:
        kind: `"sass"` for `sm_*`, `"ptx"` for `compute_*`.
        major: Major version of the compute capability.
        minor: Minor version of the compute capability.
        suffix: `""`, `"a"` or `"f"`.
    """

    __slots__ = ("kind", "major", "minor", "suffix")

    kind: str
    major: int
    minor: int
    suffix: str

    def __init__(self, kind: str, major: int, minor: int, suffix: str = "") -> None:
        for name, value in zip(self.__slots__, (kind, major, minor, suffix), strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        message = "a Target cannot be changed"
        raise AttributeError(message)

    def __reduce__(self) -> tuple[type[Target], tuple[str, int, int, str]]:
        return Target, (self.kind, self.major, self.minor, self.suffix)

    def __str__(self) -> str:
        return f"{'sm' if self.kind == 'sass' else 'compute'}_{self.number}"

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def capability(self) -> tuple[int, int]:
        """Return the compute capability, `(major, minor)`."""
        return (self.major, self.minor)

    @property
    def number(self) -> str:
        """Return the part after `sm_` or `compute_`: `"90"`, `"100a"`."""
        return f"{self.major}{self.minor}{self.suffix}"

    def sort_key(self) -> tuple[int, int, int, int]:
        """Return a sort key: SASS before PTX, then by compute capability, then by suffix."""
        return (self.kind != "sass", self.major, self.minor, _SUFFIXES.index(self.suffix))

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Return True if code for this target runs on a GPU of `capability` (for PTX: can be compiled for it)."""
        own = self.capability
        if own == capability or self.suffix == "a":
            return own == capability
        if self.kind == "sass" and not TEGRA.isdisjoint((own, capability)):
            return False
        if self.suffix == "f":
            return own < capability and any(own in family and capability in family for family in FAMILIES)
        return own <= capability and (self.kind == "ptx" or own[0] == capability[0])


def parse(text: str) -> Target:
    """Read `sm_90`, `sm_90a`, `sm_100f` or `compute_75`.

    Raises:
        ValueError: `text` is not of that form; the message says what was expected.
    """
    prefix, _, number = text.partition("_")
    suffix = number[-1:] if number[-1:] in ("a", "f") else ""
    digits = number.removesuffix(suffix) if suffix else number
    if prefix not in ("sm", "compute") or not (digits.isascii() and digits.isdigit()) or len(digits) not in (2, 3):
        message = f"{text!r} is no target; write sm_XY for machine code or compute_XY for PTX, as in 'sm_90'"
        raise ValueError(message)
    return Target("sass" if prefix == "sm" else "ptx", int(digits[:-1]), int(digits[-1]), suffix)


def preference(target: Target, capability: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """Return a rank of `target` for a GPU of `capability`, the best being smallest; None if it cannot run there.

    SASS for exactly this GPU comes first, then SASS of the same major version (the nearest minor one first), then PTX
    (the newest first). Of targets that differ in their suffix alone the more specific one comes first.

    The driver goes by the same order, but for Tegra: whether it would take a desktop GPU's SASS there, which this never
    does, NVIDIA does not say. What is taken is only sure to be what is launched if the driver is handed nothing else.
    """
    if not target.runs_on(capability):
        return None
    tier = 2 if target.kind == "ptx" else int(target.capability != capability)
    return (tier, -target.major, -target.minor, ("a", "f", "").index(target.suffix))
