"""The record of a kernel that is launched by its grid alone, as a manifest has it."""

from __future__ import annotations

ARGUMENTS = [
    {"name": "x"},
    {"name": "factor"},
    {"name": "n"},
    {"name": "BLOCK"},
    {"name": "ACT", "default": None},
    {"name": "num_warps", "default": None, "keyword": True},
]


def variant(symbol: str, block: int, *, divisor: int = 1, act: object = None, launches=None, **number: int) -> dict:
    """`void(*fp32, fp32, i32)` for a BLOCK; `number` are keys of the last."""
    hint = {"divisor": divisor} if divisor > 1 else {}
    array = {"name": "x", "type": "*fp32", "kind": "elements", "offset": 0, "dtype": "<f4", **hint}
    launch = {"threads": block // 4, "shared": block * 4}
    return {
        "signature": f"void(*fp32, fp32, i32; BLOCK={block})",
        "symbol": symbol,
        "parameters": [
            array,
            {"name": "factor", "type": "fp32", "kind": "number", "offset": 8, "format": "f"},
            {"name": "n", "type": "i32", "kind": "number", "offset": 12, "format": "i", **hint, **number},
            {"name": "BLOCK", "type": f"BLOCK={block}", "kind": "constant", "offset": 0, "value": block},
            {"name": "ACT", "type": f"ACT={act!r}", "kind": "constant", "offset": 0, "value": act, "optional": False},
            {"name": "num_warps", "type": "", "kind": "constant", "offset": 0, "value": block // 128, "optional": True},
        ],
        "parameter_bytes": 32,
        "cooperative": False,
        "launch_bounds": [],
        "carveout": None,
        "resources": {},
        "launches": launches or {"sm_90": launch},
    }


def kernel(*overloads: dict, arguments=ARGUMENTS) -> dict:
    return {"name": "k", "origin": "mypkg._k:k", "overloads": list(overloads), "arguments": arguments}


PAIR = kernel(
    variant("small_even", 128, divisor=16),
    variant("small", 128),
    variant("large", 1024),
    variant("relu", 1024, act="relu"),
    variant("flag", 1024, act=True),
)
