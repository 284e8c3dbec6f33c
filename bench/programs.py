"""Programs that use the Triton kernels of published packages; `packages.py` runs them.

Each returns the tensors that it computes, by name.
"""

from __future__ import annotations

import importlib.machinery
import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

Results = dict[str, Any]


def _gradients(torch: Any, name: str, function: Any, *inputs: Any) -> Results:
    """Return the output of a function and the gradients of its inputs."""
    leaves = [item.detach().clone().requires_grad_() if item.is_floating_point() else item for item in inputs]
    output = function(*leaves)
    output = output[0] if isinstance(output, tuple) else output
    output.backward(torch.ones_like(output) / 8)
    found = {f"{name} {at}": leaf.grad for at, leaf in enumerate(leaves) if leaf.requires_grad}
    return {name: output.detach(), **found}


def liger(torch: Any) -> Results:
    """RMSNorm, LayerNorm, SwiGLU, GEGLU and cross-entropy of liger-kernel, forward and backward."""
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
    from liger_kernel.ops.geglu import LigerGELUMulFunction
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    x, y = (torch.randn(4, 128, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight, bias = torch.randn(1024, device="cuda"), torch.randn(1024, device="cuda")
    logits = torch.randn(512, 4096, device="cuda")
    target = torch.randint(0, 4096, (512,), device="cuda")
    return {
        **_gradients(torch, "RMSNorm", lambda a, w: LigerRMSNormFunction.apply(a, w, 1e-6), x, weight.bfloat16()),
        **_gradients(
            torch, "LayerNorm", lambda a, w, b: LigerLayerNormFunction.apply(a, w, b, 1e-6), x.float(), weight, bias
        ),
        **_gradients(torch, "SwiGLU", LigerSiLUMulFunction.apply, x, y),
        **_gradients(torch, "GEGLU", LigerGELUMulFunction.apply, x, y),
        **_gradients(torch, "cross-entropy", lambda a: LigerCrossEntropyFunction.apply(a, target, None, -100), logits),
    }


def fla(torch: Any) -> Results:
    """Two layers of flash-linear-attention, forward and backward.

    fla refuses the backward pass of GatedDeltaNet on Hopper with Triton 3.4 to 3.7.0.
    """
    stand_in_for_transformers()
    from fla.layers.gated_deltanet import GatedDeltaNet
    from fla.layers.gla import GatedLinearAttention

    found = {}
    for name, made in (
        ("GatedLinearAttention", GatedLinearAttention(hidden_size=512, num_heads=4)),
        ("GatedDeltaNet", GatedDeltaNet(hidden_size=512, head_dim=64, num_heads=4)),
    ):
        layer = made.to("cuda", torch.bfloat16)
        x = torch.randn(2, 512, 512, device="cuda", dtype=torch.bfloat16)
        try:
            found |= _gradients(torch, name, layer, x)
        except RuntimeError as error:
            if "Triton >= 3.4.0" not in str(error):
                raise
            found[name] = layer(x)[0]
        found |= {f"{name} {key}": value.grad for key, value in layer.named_parameters() if value.grad is not None}
    return found


def conch(torch: Any) -> Results:
    """Activations, normalizations, quantization and rotary embedding of conch-triton-kernels."""
    from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
    from conch.ops.activation.silu_and_mul import silu_and_mul
    from conch.ops.embedding.rotary_embedding import rotary_embedding
    from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm
    from conch.ops.normalization.rms_norm import fused_add_rms_norm, rms_norm
    from conch.ops.quantization.fp8 import scaled_fp8_quant
    from conch.ops.quantization.int8 import scaled_int8_quant

    x, residual = (torch.randn(64, 1024, device="cuda", dtype=torch.float16) for _ in range(2))
    weight = torch.randn(1024, device="cuda", dtype=torch.float16)
    scale = torch.full((1,), 0.5, device="cuda")
    query, key = (torch.randn(64, 512, device="cuda", dtype=torch.float16) for _ in range(2))
    rotated = rotary_embedding(
        torch.arange(64, device="cuda"), query, key, 64, torch.randn(128, 64, device="cuda", dtype=torch.float16)
    )
    return {
        "gelu": gelu_tanh_and_mul(x.float()),  # Triton 3.6 has no tanh of float16
        "silu": silu_and_mul(x),
        "RMSNorm": rms_norm(x, weight, 1e-6),
        "added RMSNorm": fused_add_rms_norm(x.clone(), residual.clone(), weight, 1e-6)[0],
        "Gemma's RMSNorm": gemma_rms_norm(x.clone(), weight, 1e-6),
        "fp8": scaled_fp8_quant(x, scale)[0],
        "int8": scaled_int8_quant(x, scale)[0],
        "rotary": rotated[0],
    }


def cut_cross_entropy(torch: Any) -> Results:
    """Linear cross-entropy of cut-cross-entropy, forward and backward."""
    from cut_cross_entropy import linear_cross_entropy

    embeddings = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
    classifier = torch.randn(2048, 256, device="cuda", dtype=torch.bfloat16)
    targets = torch.randint(0, 2048, (256,), device="cuda")
    return _gradients(torch, "cross-entropy", lambda e, c: linear_cross_entropy(e, c, targets), embeddings, classifier)


def bitsandbytes(torch: Any) -> Results:
    """Quantization by blocks in 4 and 8 bits, of bitsandbytes' back end for Triton."""
    from bitsandbytes.backends.triton import ops

    x = torch.randn(64, 1024, device="cuda", dtype=torch.float16)
    code = torch.linspace(-1, 1, 256, device="cuda")
    found = {}
    for kind in ("nf4", "fp4"):
        packed, absmax = ops.quantize_4bit(x, 64, kind, torch.uint8)
        found[kind] = packed
        found[f"{kind} back"] = ops.dequantize_4bit(packed, absmax, 64, kind, x.shape, x.dtype)
    quantized, absmax = ops.quantize_blockwise(x, code, 256)
    return {
        **found,
        "8 bits": quantized,
        "8 bits back": ops.dequantize_blockwise(quantized, absmax, code, 256, x.dtype),
    }


def sageattention(torch: Any) -> Results:
    """Attention of sageattention, causal and not, of sequences of one length and of several."""
    from sageattention import sageattn, sageattn_varlen

    q, k, v = (torch.randn(2, 8, 256, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    packed = [item.transpose(1, 2).reshape(512, 8, 64) for item in (q, k, v)]
    lengths = torch.tensor([0, 256, 512], device="cuda", dtype=torch.int32)
    return {
        "full": sageattn(q, k, v),
        "causal": sageattn(q, k, v, is_causal=True),
        "several lengths": sageattn_varlen(*packed, lengths, lengths, 256, 256),
    }


PROGRAMS = {
    "liger-kernel": liger,
    "fla-core": fla,
    "conch-triton-kernels": conch,
    "cut-cross-entropy": cut_cross_entropy,
    "bitsandbytes": bitsandbytes,
    "sageattention": sageattention,
}


def stand_in_for_transformers() -> None:
    """Let fla's layers be imported without transformers, of which they use nothing here but names of classes."""
    if importlib.machinery.PathFinder.find_spec("transformers") is None:
        sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]


class _Finder:
    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        is_one = name.partition(".")[0] == "transformers"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_one else None  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__version__ = "4.56.0"  # type: ignore[attr-defined]


class _Empty(ModuleType):
    """A module with an empty class, or a decorator that does nothing, under any name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "logging":
            return SimpleNamespace(get_logger=logging.getLogger)
        if name.startswith("is_"):
            return lambda *_, **__: False
        if name[0].islower():
            return lambda *_, **__: lambda function: function
        return type(name, (), {"register": classmethod(lambda *_, **__: None)})
