"""Targets (`sm_90`, `compute_75`) and the rules by which code built for one runs on a GPU.

Rules, from the CUDA Programming Guide, "Binary Compatibility", "PTX Compatibility" and "Feature Set Compiler Targets":

- SASS (`sm_XY`) of desktop GPUs runs on its own compute capability and on later minor versions of the same major one.
  SASS of a Tegra GPU runs only on its own compute capability, and no other SASS runs there.
- The driver compiles PTX (`compute_XY`) for its own and every later compute capability, including Tegra's.
- Code with suffix `a` (architecture-specific) runs only on its own compute capability, SASS and PTX.
- Code with suffix `f` (family-specific) runs only in its own family, from its own minor version on.

`aotcuda.gpus` has the compute capabilities, their families and which of them are Tegra's.
"""

from __future__ import annotations

from .gpus import BY_NUMBER, TEGRA

_SUFFIXES = ("", "a", "f")


class Target:
    """A target: an item of `arch`; immutable and hashable.

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
        return Target, self._fields

    def __str__(self) -> str:
        return f"{'sm' if self.kind == 'sass' else 'compute'}_{self.number}"

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self._fields == other._fields

    def __hash__(self) -> int:
        return hash(self._fields)

    @property
    def _fields(self) -> tuple[str, int, int, str]:
        return (self.kind, self.major, self.minor, self.suffix)

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
        """Return True if code for this target runs on a GPU of `capability`; PTX runs if the driver can compile it."""
        own = self.capability
        if own == capability or self.suffix == "a":
            return own == capability
        if self.kind == "sass" and not TEGRA.isdisjoint((own, capability)):
            return False
        if self.suffix == "f":
            return own < capability and family(own) is not None and family(own) == family(capability)
        return own <= capability and (self.kind == "ptx" or own[0] == capability[0])


def family(capability: tuple[int, int]) -> int | None:
    """Return the family of a compute capability, which shares family-specific features; None without a family."""
    row = BY_NUMBER.get(capability)
    return row.family if row is not None else None


def parse(text: str) -> Target:
    """Read `sm_90`, `sm_90a`, `sm_100f` or `compute_75`.

    Raises:
        ValueError: `text` is not of that form; the message names the expected form.
    """
    prefix, _, number = text.partition("_")
    suffix = number[-1:] if number[-1:] in ("a", "f") else ""
    digits = number.removesuffix(suffix)
    if prefix not in ("sm", "compute") or not (digits.isascii() and digits.isdigit()) or len(digits) not in (2, 3):
        message = f"{text!r} is no target; write sm_XY for machine code or compute_XY for PTX, as in 'sm_90'"
        raise ValueError(message)
    return Target("sass" if prefix == "sm" else "ptx", int(digits[:-1]), int(digits[-1]), suffix)


def preference(target: Target, capability: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """Return a key that sorts targets for a GPU, best first; None if the target cannot run on the GPU.

    SASS for exactly this GPU comes first, then SASS of the same major version (the nearest minor one first), then PTX
    (the newest first). If targets differ only in their suffix, the more specific one comes first.

    The driver uses the same order. On Tegra this is not certain, since NVIDIA does not document if its driver loads
    SASS of desktop GPUs. So that driver receives only the chosen image.
    """
    if not target.runs_on(capability):
        return None
    tier = 2 if target.kind == "ptx" else int(target.capability != capability)
    return (tier, -target.major, -target.minor, ("a", "f", "").index(target.suffix))
