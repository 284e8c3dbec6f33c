"""Call functions of SGLang's files with Triton kernels, without a server, with three sizes.

Arguments: a kind, which is ignored, and the folder of the results: `done` has a line of text for each file.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (1, 7, 32)
BF16, F32, F8, I32, I64, I8 = (
    torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.int32, torch.int64, torch.int8,
)  # fmt: skip


def new(*shape: int, dtype: Any = BF16) -> Any:
    return torch.zeros(shape, dtype=dtype, device="cuda")


def decode(m: Any, n: int) -> None:
    for heads, kv_heads in ((8, 8), (32, 8)):  # one kernel for each head, and one for groups of heads
        q, cache, out = new(n, heads, 128), new(256, kv_heads, 128), new(n, heads, 128)
        parts, lse = new(n, heads, 8, 128, dtype=F32), new(n, heads, 8, dtype=F32)
        pointers, indices, splits = new(n + 1, dtype=I32), new(256, dtype=I64), new(n, dtype=I32)
        more = (pointers, indices, parts, lse, splits, 8, 0.1, 1.0, 1.0)
        m.decode_attention_fwd(q, cache, cache, out, *more)


def extend(m: Any, n: int) -> None:
    q, kv, out, cache = new(n, 32, 128), new(n, 8, 128), new(n, 32, 128), new(256, 8, 128)
    pointers, indices = torch.tensor([0, n], dtype=I32, device="cuda"), new(256, dtype=I64)
    m.extend_attention_fwd(q, kv, kv, out, cache, cache, pointers, pointers, indices, None, True, None, n, 1.0, 1.0)
    m.build_unified_kv_indices(pointers, indices, pointers, pointers[1:], indices, 1)


def prefill(m: Any, n: int) -> None:
    start, lengths = new(1, dtype=I32), torch.tensor([n], dtype=I32, device="cuda")
    m.context_attention_fwd(new(n, 32, 128), new(n, 8, 128), new(n, 8, 128), new(n, 32, 128), start, lengths, n)


def moe(m: Any, n: int) -> None:
    import triton.language as tl

    experts, top, k, out = 8, 2, 256, 512
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    config |= {"num_warps": 4, "num_stages": 3}
    weights, ids, tokens = new(n, top, dtype=F32), new(n, top, dtype=I32), new(n * top + experts * 16, dtype=I32)
    blocks, padded = new(experts + n, dtype=I32), new(1, dtype=I32)
    for dtype in (BF16, F8):
        scales = (new(n, k // 128, dtype=F32), new(experts, out // 128, k // 128, dtype=F32))
        a, b, c = new(n, k, dtype=dtype), new(experts, out, k, dtype=dtype), new(n, top, out)
        more = (weights, ids, tokens, blocks, padded, False, top, config, tl.bfloat16, dtype == F8)
        block = [128, 128] if dtype == F8 else None
        scales = scales if dtype == F8 else (None, None)
        m.invoke_fused_moe_kernel(a, b, None, c, *scales, None, *more, False, False, False, False, block)
    m.act_and_mul_triton(new(n * top, out), new(n * top, out // 2), config, ids.view(-1), None)
    m.moe_sum_reduce_triton(new(n, top, out), new(n, out), 1.0)


def fp8(m: Any, n: int) -> None:
    m.per_token_group_quant_mla_deep_gemm_masked_fp8(new(4, n, 256))
    m.per_tensor_quant_mla_fp8(new(4, n, 256), new(1, dtype=F32))
    m.static_quant_fp8(new(n, 256), new(1, dtype=F32))


def gemm_fp8(m: Any, n: int) -> None:
    a, b, one = new(n, 256, dtype=F8), new(512, 256, dtype=F8), F32
    m.w8a8_block_fp8_matmul_triton(a, b, new(n, 2, dtype=one), new(4, 2, dtype=one), [128, 128], BF16)


def int8(m: Any, n: int) -> None:
    m.per_token_quant_int8(new(n, 256))
    m.per_token_group_quant_int8(new(n, 256), 128)


def gemm_int8(m: Any, n: int) -> None:
    a, b = new(n, 256, dtype=I8), new(512, 256, dtype=I8)
    m.w8a8_block_int8_matmul(a, b, new(n, 2, dtype=F32), new(4, 2, dtype=F32), [128, 128], BF16)


def _batch(n: int) -> Any:
    from sglang.srt.lora.utils import LoRABatchInfo

    return LoRABatchInfo(
        use_cuda_graph=False,
        bs=1,
        num_segments=1,
        seg_indptr=torch.tensor([0, n], dtype=I32, device="cuda"),
        weight_indices=new(1, dtype=I32),
        lora_ranks=torch.tensor([16], dtype=I32, device="cuda"),
        scalings=new(1, dtype=F32),
        max_len=n,
        seg_lens=torch.tensor([n], dtype=I32, device="cuda"),
    )


def qkv_lora(m: Any, n: int) -> None:
    offsets = torch.tensor([0, 512, 640, 768], dtype=I32, device="cuda")
    m.qkv_lora_b_fwd(new(n, 48), new(2, 768, 16), _batch(n), offsets, 512)


def conv(m: Any, n: int) -> None:
    starts = torch.tensor([0, n], dtype=I32, device="cuda")
    m.causal_conv1d_fn(new(256, n), new(256, 4), new(256), new(4, 3, 256).transpose(1, 2), starts, [n], starts[:1])
    m.causal_conv1d_update(new(n, 256), new(n, 3, 256).transpose(1, 2), new(256, 4), new(256), "silu")


def delta_rule(m: Any, n: int) -> None:
    q, v, g = new(1, n, 4, 128), new(1, n, 8, 128), new(1, n, 8, dtype=F32)
    starts = torch.tensor([0, n], dtype=I64, device="cuda")
    m.chunk_gated_delta_rule(q, q, v, g, new(1, n, 8), 0.1, new(4, 8, 128, 128, dtype=F32), new(1, dtype=I32), starts)


def recurrent(m: Any, n: int) -> None:
    q, v, g = new(1, n, 4, 128), new(1, n, 8, 128), new(1, n, 8, dtype=F32)
    m.fused_recurrent_gated_delta_rule(q, q, v, g, new(1, n, 8), 0.1, new(1, 8, 128, 128, dtype=F32), True)


def invariant(m: Any, n: int) -> None:
    m.matmul_persistent(new(n, 256), new(256, 512))
    m.log_softmax(new(n, 32000))
    m.mean_dim(new(n, 256), 1)
    m.rms_norm(new(n, 256), new(256))


def renorm(m: Any, n: int) -> None:
    m.top_p_renorm_probs_triton(new(n, 32000, dtype=F32), 0.9)
    m.top_k_renorm_probs_triton(new(n, 32000, dtype=F32), 20)


def elementwise(m: Any, n: int) -> None:
    m.fused_sigmoid_mul(new(n, 256), new(n, 256))
    m.fused_gate_sigmoid_mul_add(new(n, 256), new(256), new(n, 256), new(n, 256))


def last_loc(m: Any, n: int) -> None:
    m.get_last_loc_triton(new(n, 256, dtype=I32), new(n, dtype=I64), new(n, dtype=I64))


def mla_buffer(m: Any, n: int) -> None:
    m.set_mla_kv_buffer_triton(new(256, 1, 576), new(n, dtype=I64), new(n, 1, 512), new(n, 1, 64))


def awq(m: Any, _: int) -> None:
    m.awq_dequantize_triton(new(256, 64, dtype=I32), new(2, 512, dtype=torch.float16), new(2, 64, dtype=I32))


OPS = "sglang.kernels.ops."
FILES: dict[str, Callable[[Any, int], object]] = {
    OPS + "attention.decode_attention": decode,
    OPS + "attention.extend_attention": extend,
    OPS + "attention.prefill_attention": prefill,
    OPS + "attention.merge_state": lambda m, n: m.merge_state_triton(
        new(n, 8, 128), new(n, 8, dtype=F32), new(n, 8, 128), new(n, 8, dtype=F32)
    ),
    OPS + "attention.position": lambda m, n: m.compute_position_triton(new(n, dtype=I32), new(n, dtype=I32), n * 16),
    OPS + "attention.fla.chunk": delta_rule,
    OPS + "attention.fla.fused_recurrent": recurrent,
    OPS + "attention.fla.layernorm_gated": lambda m, n: m.layernorm_fn(new(n, 256), new(256), None, new(n, 256)),
    OPS + "attention.linear.fused_gdn_gating": lambda m, n: m.fused_gdn_gating(
        new(8, dtype=F32), new(n, 8), new(n, 8), new(8)
    ),
    OPS + "moe.fused_moe_triton_kernels": moe,
    OPS + "moe.router": lambda m, n: m.fused_moe_router_cudacore(new(n, 256), new(8, 256), 2, 30.0),
    OPS + "moe.moe_fused_mul_sum": lambda m, n: m.moe_fused_mul_sum(new(n, 2, 256), new(n, 2, dtype=F32)),
    OPS + "quantization.fp8_kernel": fp8,
    OPS + "quantization.int8_kernel": int8,
    OPS + "quantization.awq_triton": awq,
    OPS + "gemm.fp8_kernel": gemm_fp8,
    OPS + "gemm.int8_kernel": gemm_int8,
    OPS + "gemm.router_gemv": lambda m, n: m.router_gemv(new(n, 256), new(8, 256)),
    OPS + "lora.dense.sgemm_lora_a": lambda m, n: m.sgemm_lora_a_fwd(new(n, 256), new(2, 16, 256), _batch(n)),
    OPS + "lora.dense.sgemm_lora_b": lambda m, n: m.sgemm_lora_b_fwd(new(n, 16), new(2, 256, 16), _batch(n)),
    OPS + "lora.dense.qkv_lora_b": qkv_lora,
    OPS + "mamba.causal_conv1d_triton": conv,
    OPS + "layernorm.fused_rmsnorm": lambda m, n: m.fused_rmsnorm(new(n, 256), new(256), 1e-5),
    OPS + "layernorm.rmsnorm_fp32": lambda m, n: m.rmsnorm_fp32(new(n, 256), new(256), 1e-5),
    OPS + "sampling.temperature_softmax": lambda m, n: m.temperature_softmax(
        new(n, 32000, dtype=F32), new(n, 1, dtype=F32)
    ),
    OPS + "sampling.renorm_triton": renorm,
    OPS + "sampling.murmur_hash": lambda m, n: m.murmur_hash32(
        new(n, dtype=I64), new(n, dtype=I64), new(32000, dtype=I64)
    ),
    OPS + "grammar.bitmask_ops": lambda m, n: m.apply_token_bitmask_inplace_triton(
        new(n, 32000, dtype=F32), new(n, 1000, dtype=I32)
    ),
    OPS + "kvcache.mla_buffer": mla_buffer,
    OPS + "memory.common": last_loc,
    OPS + "embeddings.vocab_parallel_embedding": lambda m, n: m.vocab_parallel_embedding(
        new(n, dtype=I64), new(32000, 256), 0, 32000, 0, 32000, 32000
    ),
    OPS + "elementwise.elementwise": elementwise,
    OPS + "speculative.topk1": lambda m, n: m.draft_topk1_argmax_only(new(n, 32000, dtype=F32)),
    "sglang.srt.batch_invariant_ops.batch_invariant_ops": invariant,
}


def main(folder: Path) -> None:
    found: dict[str, str] = {}
    for name, call in FILES.items():
        found[name] = _problem(lambda name=name, call=call: [call(importlib.import_module(name), n) for n in SIZES])
    root = Path(importlib.util.find_spec("sglang").origin).parent
    for path in sorted(root.rglob("*.py")):
        name = ".".join(("sglang", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        if name not in found and re.search(r"^\s*@triton\.jit", path.read_text(), re.MULTILINE):
            found[name] = _problem(lambda name=name: importlib.import_module(name)) or "not called"
    (folder / "done").write_text(json.dumps(found, indent=1))


def _problem(call: Callable[[], object]) -> str:
    """Return why a file does not import or run, or an empty text."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 (each fault is a figure)
        return f"{type(error).__name__}: {error}".splitlines()[0][:150]
    return ""


if __name__ == "__main__":
    main(Path(sys.argv[2]))
