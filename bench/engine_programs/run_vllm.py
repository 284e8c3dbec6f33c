"""Run vLLM's engine with random weights: arguments are a kind of `KINDS` and the folder of the model's config."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import record_vllm  # noqa: F401 (from docs/packs.md)
from vllm import LLM, SamplingParams

BASE = {
    "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "torch_dtype": "bfloat16", "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA = BASE | {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 1024,
    "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip
MOE = BASE | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 1024,
    "moe_intermediate_size": 384, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
    "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
MLA = BASE | {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 2048,
    "intermediate_size": 1024, "moe_intermediate_size": 384, "n_routed_experts": 16, "n_shared_experts": 1,
    "num_experts_per_tok": 4, "first_k_dense_replace": 1, "num_hidden_layers": 2, "num_attention_heads": 16,
    "num_key_value_heads": 16, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 1, "topk_group": 1, "topk_method": "greedy",
    "scoring_func": "softmax", "norm_topk_prob": False, "routed_scaling_factor": 1.0, "moe_layer_freq": 1,
}  # fmt: skip
MAMBA2 = {
    "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "vocab_size": 32000, "hidden_size": 2048,
    "state_size": 128, "num_hidden_layers": 2, "conv_kernel": 4, "expand": 2, "n_groups": 8, "num_heads": 64,
    "head_dim": 64, "chunk_size": 256, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0, "tie_word_embeddings": False, "norm_before_gate": True, "rms_norm": True, "use_bias": False,
    "use_conv_bias": True, "hidden_act": "silu", "layer_norm_epsilon": 1e-5,
}  # fmt: skip
NEXT = BASE | {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 2048,
    "intermediate_size": 1024, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts": 16,
    "num_experts_per_tok": 8, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "partial_rotary_factor": 0.25,
}  # fmt: skip
TRITON = {"attention_backend": "TRITON_ATTN"}
SPECULATION = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama": (LLAMA, TRITON),
    "fp8_kv": (LLAMA, TRITON | {"kv_cache_dtype": "fp8"}),
    "lora": (LLAMA, TRITON | {"enable_lora": True, "max_loras": 2, "max_lora_rank": 16}),
    "moe": (MOE, TRITON | {"moe_backend": "triton"}),
    "mla": (MLA, {"attention_backend": "TRITON_MLA", "moe_backend": "triton"}),
    "mamba2": (MAMBA2, {}),
    "next": (NEXT, TRITON | {"moe_backend": "triton", "gdn_prefill_backend": "triton"}),
    "ngram": (LLAMA, TRITON | {"speculative_config": SPECULATION}),
}
SIZES = ((7, 40, 300), (1,), (16,) * 16, (1500,), (33,) * 5)
TOP = {"temperature": 0.8, "top_k": 20, "top_p": 0.9}
SAMPLING = [
    {"temperature": 0.0}, TOP, {"temperature": 1.0, "min_p": 0.1, "seed": 7},
    {"temperature": 1.0, "repetition_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.1},
    {"temperature": 1.0, "logprobs": 5}, {"temperature": 1.0, "logit_bias": {5: 1.0}, "min_tokens": 2},
    {"temperature": 1.0, "prompt_logprobs": 2},
]  # fmt: skip


def main(kind: str, folder: Path) -> None:
    config, more = KINDS[kind]
    (folder / "config.json").write_text(json.dumps(config))
    options: dict[str, Any] = {"load_format": "dummy", "skip_tokenizer_init": True, "max_model_len": 2048}
    options |= {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "num_gpu_blocks_override": 1024}
    # No graphs and no torch.compile, as with enforce_eager=True, but vLLM's own warm-up of kernels.
    options["compilation_config"] = {"mode": 0, "cudagraph_mode": "NONE"}
    llm = LLM(model=str(folder), gpu_memory_utilization=0.5, disable_log_stats=True, **{**options, **more})
    refused = {"min_p", "logit_bias"} if "speculative_config" in more else set()  # by vLLM, with speculation
    for sizes in SIZES:
        prompts = [{"prompt_token_ids": [5 + at % 1000 for at in range(size)]} for size in sizes]
        for sampling in SAMPLING if sizes == SIZES[0] else [TOP]:
            if refused & {*sampling}:
                continue
            parameters = SamplingParams(max_tokens=6, detokenize=False, ignore_eos=True, **sampling)
            llm.generate(prompts, parameters, use_tqdm=False)
    (folder / "done").touch()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
