"""The interpreter of PTX that runs the conformance suite without a GPU."""

from __future__ import annotations

import struct

import pytest

from support import ptx

KERNEL = """
.version 8.0
.target sm_75
.address_size 64

.visible .entry k(
	.param .u64 .ptr .global .align 8 k_param_0,
	.param .u32 k_param_1
)
{{
	.reg .pred %p<3>;
	.reg .b32 %r<9>;
	.reg .f32 %f<9>;
	.reg .b64 %rd<9>;

	ld.param.u64 %rd1, [k_param_0];
	ld.param.u32 %r1, [k_param_1];
	mov.u32 %r2, %tid.x;
	{body}
$L__BB0_1:
	ret;
}}
"""


def run(body: str, *, given: int = 0, size: int = 8, threads: int = 1) -> bytes:
    memory, content = ptx.Memory(), bytearray(size)
    address = memory.add(content)
    program = ptx.Program(KERNEL.format(body=body))
    program.run("k", struct.pack("<QI", address, given & 0xFFFF_FFFF), memory, threads=range(threads), block=32)
    return bytes(content)


STORE = "st.global.u64 [%rd1], %rd2;"

# The name of each row, what computes %rd2 of %r1, the value of %r1, and what %rd2 is then.
RESULTS = {
    "sign extension": ("cvt.s64.s32 %rd2, %r1;", -2, 2**64 - 2),
    "zero extension": ("cvt.u64.u32 %rd2, %r1;", -2, 2**32 - 2),
    "narrow signed": ("cvt.s64.s8 %rd2, %r1;", 0x180, 2**64 - 128),
    "wide product": ("mul.wide.s32 %rd2, %r1, 4;", -3, 2**64 - 12),
    "high half": ("mul.hi.u32 %r3, %r1, 16; cvt.u64.u32 %rd2, %r3;", 0xF000_0000, 15),
    "division truncates": ("div.s32 %r3, %r1, 2; cvt.s64.s32 %rd2, %r3;", -7, 2**64 - 3),
    "remainder has the sign of the dividend": ("rem.s32 %r3, %r1, 4; cvt.s64.s32 %rd2, %r3;", -7, 2**64 - 3),
    "a shift by the width": ("shl.b32 %r3, %r1, 32; cvt.u64.u32 %rd2, %r3;", 5, 0),
    "an arithmetic shift": ("shr.s32 %r3, %r1, 40; cvt.s64.s32 %rd2, %r3;", -5, 2**64 - 1),
    "floats saturate": ("mov.b32 %f1, %r1; cvt.rzi.s32.f32 %r3, %f1; cvt.s64.s32 %rd2, %r3;", 0x7F80_0000, 2**31 - 1),
    "NaN becomes zero": ("mov.b32 %f1, %r1; cvt.rzi.s32.f32 %r3, %f1; cvt.s64.s32 %rd2, %r3;", 0x7FC0_0000, 0),
    "round half even": ("mov.b32 %f1, %r1; cvt.rni.s64.f32 %rd2, %f1;", 0x4020_0000, 2),  # 2.5
    "a fused product is rounded once": (
        # 1 + 2^-12 squared, less 1 + 2^-11, is 2^-24
        "mov.b32 %f1, %r1; fma.rn.f32 %f2, %f1, %f1, 0fBF801000; mov.b32 %r3, %f2; cvt.u64.u32 %rd2, %r3;",
        0x3F80_0800,
        0x3380_0000,
    ),
    "a predicate": ("setp.lt.s32 %p1, %r1, 0; selp.b64 %rd2, 7, 9, %p1;", -1, 7),
    "an unsigned comparison": ("setp.lo.u32 %p1, %r1, 1; selp.b64 %rd2, 7, 9, %p1;", -1, 9),
    "a branch": ("mov.u64 %rd2, 1; setp.ne.s32 %p1, %r1, 0; @!%p1 bra $L__BB0_1; mov.u64 %rd2, 2;", 1, 2),
    "two halves": ("mov.b64 %rd2, {%r1, %r2};", 5, 5),
    "bytes": ("prmt.b32 %r3, %r1, 0, 0x0123; cvt.u64.u32 %rd2, %r3;", 0x01020304, 0x04030201),
}


@pytest.mark.parametrize("name", RESULTS)
def test_instructions_compute_as_the_manual_says(name: str) -> None:
    body, given, wanted = RESULTS[name]
    assert int.from_bytes(run(f"{body} {STORE}", given=given), "little") == wanted


def test_threads_read_and_add_to_one_place() -> None:
    body = "ld.global.u32 %r3, [%rd1]; atom.global.add.u32 %r3, [%rd1], %r2;"
    assert int.from_bytes(run(body, threads=10), "little") == 45


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("st.global.u32 [%rd1+8], %r1;", r"4 bytes at \+8 bytes from the start of 8 bytes"),
        ("ld.global.u32 %r3, [%rd1+-4];", "4 bytes at -4 bytes from the start of 8 bytes"),
        ("st.global.u32 [%rd1+2], %r1;", "4 bytes at an address that is no multiple of 4"),
    ],
)
def test_accesses_outside_of_memory_are_faults(body: str, said: str) -> None:
    with pytest.raises(ptx.FaultError, match=said):
        run(body)


RACES = {
    "two writes": ("st.global.u32 [%rd1], %r1;", "write after write"),
    "a sum": ("ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, 1; st.global.u32 [%rd1], %r3;", "read after write"),
    "a write after a read": ("@!%p1 ld.global.u32 %r3, [%rd1]; @%p1 st.global.u32 [%rd1], %r1;", "write after read"),
    "one byte of four": ("st.global.u8 [%rd2], %r1; ld.global.u32 %r3, [%rd1];", "write after read"),
    "atomic operations after a write": (
        "@!%p1 st.global.u32 [%rd1], %r1; red.global.add.u32 [%rd1], 1;",
        "atomic after write",
    ),
}
OWN = "setp.ne.u32 %p1, %r2, 0; cvt.u64.u32 %rd2, %r2; add.s64 %rd2, %rd2, %rd1; "
"""%p1 is True in every thread but the first, and %rd2 the address of a byte for each thread."""


@pytest.mark.parametrize("name", RACES)
def test_threads_that_race_are_faults(name: str) -> None:
    body, said = RACES[name]
    run(OWN + body)
    with pytest.raises(ptx.FaultError, match=f"thread 1 races with another: {said}"):
        run(OWN + body, threads=2)


def test_threads_may_read_one_place_and_write_their_own() -> None:
    body = "ld.global.u8 %r3, [%rd1+7]; st.global.u8 [%rd2], 5;"
    assert run(OWN + body, threads=3) == bytes([5, 5, 5, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    "body", ["bar.sync 0;", "vote.sync.any.pred %p1, %p1, -1;", "bra $L__BB0_2; $L__BB0_2: bra $L__BB0_2;"]
)
def test_unsupported_instructions_are_refused(body: str) -> None:
    with pytest.raises(ptx.UnsupportedError):
        run(body)
