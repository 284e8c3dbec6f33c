"""A kernel to warm Triton up with: children share what the first compilation loads."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def small_kernel(x, n, block: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton reads annotations as code
    """Halve `n` numbers."""
    places = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x + places, tl.load(x + places, mask=places < n) * 0.5, mask=places < n)
