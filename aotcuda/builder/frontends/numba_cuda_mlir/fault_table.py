"""List the faults in releases of numba-cuda-mlir that a build can recognise.

The module `known_faults` recognises the faults in a kernel. docs/frontends.md, "Known faults", shows the table.
docs/results/conformance_*.json has the results of the conformance suite that show the faults.
"""

from __future__ import annotations

from dataclasses import dataclass

_ALL = ("0.5.3", "0.5.4", "0.6.0")


@dataclass(frozen=True, slots=True)
class KnownFault:
    """One fault of the compiler.

    Attributes:
        fact: The wrong result. `{}` stands for the detail that `known_faults` found in the kernel, such as a type.
        remedy: Code with the right result.
        cases: The groups or cases of the conformance suite that show the fault.
        releases: The releases of the compiler that have the fault.
    """

    fact: str
    remedy: str
    cases: tuple[str, ...]
    releases: tuple[str, ...] = _ALL


FAULTS = {
    "unsigned-index": KnownFault(
        "an index of type {} is read as a signed number",
        "convert the index, as in cuda.int64(i)",
        ("index/read-uint8", "index/write-uint8", "index/two-dimensions-uint8", "index/local-uint8"),
        ("0.6.0",),
    ),
    "atomic-index": KnownFault(
        "an atomic operation reads an index of type {} as a signed number",
        "convert the index, as in cuda.int64(i)",
        ("atomic/index-uint8", "atomic/index-pair-uint8"),
    ),
    "negative-atomic-index": KnownFault(
        "an atomic operation with the index {} writes before the array",
        "add the array's size to the index",
        ("atomic/index-negative-int32",),
    ),
    "atomic-value": KnownFault(
        "an atomic operation extends a value of type {} without regard to its sign",
        "convert the value to the type of the array's elements",
        ("atomic/add-int64-int32", "atomic/min-int32-int8", "atomic/or-int64-int32", "atomic/add-float32-uint8"),
    ),
    "atomic-extreme": KnownFault(
        "an atomic minimum or maximum compares elements of type {} as signed numbers",
        "use a signed type, or cuda.atomic.cas in a loop",
        ("atomic/max-uint32-uint32", "atomic/min-uint64-uint64"),
    ),
    "slice-bound": KnownFault(
        "a slice treats the negative bound {} as an offset from the first element",
        "add the size, as in x[1 : x.shape[0] - 1]",
        ("slice/1_m1", "slice/m3_", "slice/_m3", "slice/fill-m3_"),
    ),
    "slice-step": KnownFault(
        "a slice with the step {} has a wrong size or a wrong start",
        "compute the indices in a loop",
        ("slice/__m1", "slice/__m2", "slice/twice", "slice/grid-__2_and___3"),
    ),
    "unsigned-range": KnownFault(
        "range() reads an argument of type {} as a signed number",
        "convert the argument, as in range(cuda.int64(n))",
        ("loop/range-uint8", "loop/range-down-uint8"),
    ),
    "unsigned-extreme": KnownFault(
        "min() and max() compare a number of type {} as a signed one",
        "write a if a < b else b",
        ("min/uint8-uint8", "max/uint32-uint32", "loop/maximum-uint16"),
    ),
    "unsigned-negation": KnownFault(
        "the negated or inverted number of type {} is extended as a signed one",
        "convert the number first, as in -cuda.int64(x)",
        ("negate/uint8", "invert/uint32"),
    ),
    "mixed-bits": KnownFault(
        "&, | and ^ of {} are computed in 32 bits or fewer, and extended as signed numbers",
        "convert both numbers, as in cuda.int64(a) & cuda.int64(b)",
        ("and/int8-uint8", "or/int32-uint32", "xor/int16-uint32"),
    ),
    "integer-power": KnownFault(
        "a power of {} is computed in the bits of that type",
        "convert the base, as in cuda.int64(x) ** 3",
        ("cube/int32", "square/uint8", "power/int8-int32"),
    ),
    "round": KnownFault(
        "round() of {} rounds halves away from zero, and not to even",
        "use cuda.libdevice.rint, or rintf for float32",
        ("round/round-float32", "round/round-float64"),
    ),
    "integer-math": KnownFault(
        "math.{} is computed in float32, and not in float64",
        "convert the argument, as in math.sqrt(cuda.float64(n))",
        ("math/sqrt-uint32", "math/sqrt-int32", "math/exp-int8", "math/sin-uint16"),
    ),
    "nan-unequal": KnownFault(
        "!= of {} is False where one of the numbers is NaN",
        "write not (a == b), or use math.isnan",
        ("compare/float32", "compare/float64"),
    ),
    "nan-not": KnownFault(
        "not of {} is True for NaN",
        "write x == 0",
        ("not/float32", "not/float64"),
    ),
    "unsigned-compare": KnownFault(
        "a comparison of {} reads the integer as a signed number",
        "convert the integer, as in cuda.float64(n)",
        ("compare/uint64-float64",),
    ),
    "unaligned-field": KnownFault(
        "the field {} of a record is not aligned, and reading or writing it ends the kernel",
        "align the dtype, as in np.dtype(..., align=True)",
        ("record/read-packed", "record/write-packed"),
    ),
}
"""The faults by their names, in the order of the table in docs/frontends.md."""
