"""Small programs over published Triton packages; `packages.py` records and runs them.

Each class has the packages to record, three sizes to record and three others, and a function for a size, which returns
the tensors that it computes by name. The sizes are 1, an odd number and a multiple of 16, where a package accepts them.
"""

from __future__ import annotations

from typing import Any

Results = dict[str, Any]

_ROWS = {1: (1, 9, 64), 3: (3, 16, 65), 16: (2, 63, 128), 2: (4, 32, 67), 5: (2, 7, 80), 32: (3, 12, 96)}
"""The rows of gemlite's launches, by size."""


def _gradients(torch: Any, name: str, function: Any, *inputs: Any) -> Results:
    """Return the output of a function and the gradients of its inputs."""
    leaves = [item.detach().clone().requires_grad_() if item.is_floating_point() else item for item in inputs]
    output = function(*leaves)
    output = output[0] if isinstance(output, tuple) else output
    output.backward(torch.ones_like(output) / 8)
    found = {f"{name} {at}": leaf.grad for at, leaf in enumerate(leaves) if leaf.requires_grad}
    return {name: output.detach(), **found}


class torchao:  # noqa: N801 (the package's name, as below)
    """Quantization to float8 in blocks, a float8 product, and a scaled product of integers."""

    packages = "torchao"
    recorded, other = (256, 384, 2048), (640, 768, 4096)

    @staticmethod
    def run(torch: Any, n: int) -> Results:
        from torchao.prototype.blockwise_fp8_training import kernels as blockwise
        from torchao.prototype.quantized_training import int8_mm

        x = torch.randn(n, 256, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
        xq, xs = blockwise.triton_fp8_blockwise_act_quant_lhs(x)
        wq, ws = blockwise.triton_fp8_blockwise_weight_quant_transposed_rhs(w)
        rows = n // 128
        a, b = (torch.randint(-99, 99, s, device="cuda", dtype=torch.int8) for s in ((rows, 256), (256, 256)))
        scales = torch.rand(rows, device="cuda"), torch.rand(256, device="cuda")
        return {
            "xq": xq.view(torch.uint8),
            "xs": xs,
            "wq": wq.view(torch.uint8),
            "ws": ws,
            "float8": blockwise.triton_fp8_gemm_1x128_128x128(xq, wq, xs, ws),
            "int8": int8_mm.scaled_int8_mm(a, b.t().contiguous().t(), *scales),
        }


class gemlite:  # noqa: N801
    """Linear layers with weights of 4 and 8 bits; each size stands for three, which reach kernels of their own."""

    packages = "gemlite"
    recorded, other = (1, 3, 16), (2, 5, 32)

    @staticmethod
    def run(torch: Any, n: int) -> Results:
        import gemlite
        from gemlite.helper import A16W8_INT8

        half = gemlite.DType.FP16
        four = gemlite.GemLiteLinear(
            4, group_size=64, in_features=512, out_features=512, input_dtype=half, output_dtype=half
        )
        weights = torch.randint(0, 15, (512, 512), device="cuda", dtype=torch.uint8)
        scales = torch.rand(512 * 512 // 64, 1, device="cuda", dtype=torch.float16) * 0.01
        four.pack(weights, scales, torch.full_like(scales, 7.0), None)
        linear = torch.nn.Linear(512, 512, bias=False, device="cuda", dtype=torch.float16)
        eight = A16W8_INT8(device="cuda:0", dtype=torch.float16).from_linear(linear)
        found = {}
        for rows in _ROWS[n]:
            x = torch.randn(rows, 512, device="cuda", dtype=torch.float16) / 10
            found |= {f"w4, {rows}": four(x), f"w8, {rows}": eight(x)}
        return found


class flash_kmeans:  # noqa: N801
    """Clusters by two distances."""

    packages = "flash_kmeans"
    recorded, other = (1000, 1001, 4096), (1003, 2000, 8192)

    @staticmethod
    def run(torch: Any, n: int) -> Results:
        import flash_kmeans

        x = torch.randn(2, n, 64, device="cuda", dtype=torch.float16)
        first = x[:, :37].contiguous()
        ids, centroids = flash_kmeans.batch_kmeans_Euclid(x, 37, max_iters=3, init_centroids=first)[:2]
        cosine = flash_kmeans.batch_kmeans_Cosine(x, 37, max_iters=2, init_centroids=first)[0]
        return {"ids": ids, "centroids": centroids, "cosine": cosine}


class liger:  # noqa: N801
    """RMSNorm, LayerNorm, SwiGLU, GEGLU and cross-entropy, forward and backward."""

    packages = "liger_kernel"
    recorded, other = (1, 333, 512), (2, 777, 1024)

    @staticmethod
    def run(torch: Any, n: int) -> Results:
        from liger_kernel.ops import cross_entropy, geglu, layer_norm, rms_norm, swiglu

        def norm(a: Any, w: Any) -> Any:
            return rms_norm.LigerRMSNormFunction.apply(a, w, 1e-6)

        def layer(a: Any, w: Any, b: Any) -> Any:
            return layer_norm.LigerLayerNormFunction.apply(a, w, b, 1e-6)

        x, y = (torch.randn(n, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        w, b = torch.randn(1024, device="cuda"), torch.randn(1024, device="cuda")
        logits, target = torch.randn(n, 4096, device="cuda"), torch.randint(0, 4096, (n,), device="cuda")

        def loss(a: Any) -> Any:
            return cross_entropy.LigerCrossEntropyFunction.apply(a, target, None, -100)

        return {
            **_gradients(torch, "rms", norm, x, w.bfloat16()),
            **_gradients(torch, "layer", layer, x.float(), w, b),
            **_gradients(torch, "swiglu", swiglu.LigerSiLUMulFunction.apply, x, y),
            **_gradients(torch, "geglu", geglu.LigerGELUMulFunction.apply, x, y),
            **_gradients(torch, "cross-entropy", loss, logits),
        }


class xformers:  # noqa: N801
    """RMSNorm, additions by an index, attention by split-K and a tiled product."""

    packages = "xformers"
    recorded, other = (1, 101, 512), (2, 103, 1024)

    @staticmethod
    def run(torch: Any, n: int) -> Results:
        import xformers.ops as xops
        from xformers.ops import rmsnorm
        from xformers.ops.fmha import triton_splitk
        from xformers.ops.tiled_matmul import tiled_matmul

        x, y = (torch.randn(n, 512, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        w = torch.randn(512, device="cuda", dtype=torch.bfloat16)
        rows = max(n, 2)
        a = torch.randn(rows, 16, 64, device="cuda")
        index = torch.randperm(rows, device="cuda")[: rows // 2]
        added = torch.randn(index.shape[0], 16, 64, device="cuda")
        q = torch.randn(1, 1, 8, 64, device="cuda", dtype=torch.bfloat16)
        k, v = (torch.randn(1, n, 8, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        attention = xops.fmha.Inputs(query=q, key=k, value=v, scale=0.125)
        b = torch.randn(512, 256, device="cuda", dtype=torch.bfloat16)
        return {
            "rms": rmsnorm.rms_norm(x, w),
            "rms, added": rmsnorm.rms_norm_add(x.clone(), y, w),
            "index, added": xops.scaled_index_add(a.clone(), index, added, torch.randn(64, device="cuda"), 0.5),
            "index": xops.index_select_cat([torch.cat([x, y]), y.repeat(2, 1)], [index, index[:1]]),
            "split-K": triton_splitk.FwOp.apply(attention, needs_gradient=False)[0],
            "tiled": tiled_matmul([[x]], [[b]])[0][0],
        }


class flag_gems:  # noqa: N801
    """Eight operators."""

    packages = "flag_gems"
    recorded, other = (1, 65, 4096), (2, 1000, 2001)

    @staticmethod
    def run(torch: Any, n: int) -> Results:
        import flag_gems

        x, y = torch.randn(n, 64, device="cuda"), torch.randn(n, 64, device="cuda")
        one, zero = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
        return {
            "abs": flag_gems.abs(x),
            "add": flag_gems.add(x, y),
            "softmax": flag_gems.softmax(x, 1),
            "sum": flag_gems.sum(x),
            "mm": flag_gems.mm(x, y.t().contiguous()),
            "gelu": flag_gems.gelu(x),
            "layer_norm": flag_gems.layer_norm(x, [64], one, zero)[0],
            "cumsum": flag_gems.cumsum(x, 1),
        }


class mamba:  # noqa: N801
    """The chunked scan forward and backward, one step of the state, and RMSNorm."""

    packages = "mamba_ssm"
    recorded, other = (1, 301, 512), (2, 303, 1024)

    @staticmethod
    def run(torch: Any, n: int) -> Results:
        from mamba_ssm.ops.triton import layer_norm, selective_state_update, ssd_combined

        b, h, p, d = 2, 4, 64, 64
        x = torch.randn(b, n, h, p, device="cuda", dtype=torch.bfloat16)
        dt = torch.rand(b, n, h, device="cuda", dtype=torch.float32)
        decay, skip = -torch.rand(h, device="cuda"), torch.randn(h, device="cuda")
        into, out = (torch.randn(b, n, 1, d, device="cuda", dtype=torch.bfloat16) for _ in range(2))

        def scan(x: Any, dt: Any, decay: Any, into: Any, out: Any) -> Any:
            return ssd_combined.mamba_chunk_scan_combined(x, dt, decay, into, out, 64, D=skip, dt_softplus=True)

        state = torch.randn(b, h, p, d, device="cuda")
        wide = skip[:, None].expand(h, p)
        step = selective_state_update.selective_state_update(
            state, x[:, 0], dt[:, 0, :, None].expand(b, h, p), decay[:, None, None].expand(h, p, d), into[:, 0],
            out[:, 0], D=wide, dt_bias=wide, dt_softplus=True,
        )  # fmt: skip
        y, w = torch.randn(n, 192, device="cuda", dtype=torch.bfloat16), torch.ones(192, device="cuda")

        def norm(y: Any, w: Any) -> Any:
            return layer_norm.layer_norm_fn(y, w, None, is_rms_norm=True)

        gradients = _gradients(torch, "scan", scan, x, dt, decay, into, out)
        return {"step": step, **gradients, **_gradients(torch, "norm", norm, y, w)}


class spconv:  # noqa: N801
    """The kernels of sparse convolutions and pools of a number of points, by the functions that launch them.

    Layers choose points by their data, which a dry run does not have.
    """

    packages = "spconv_triton"
    recorded, other = (4096, 5008), (5003, 6000)

    @staticmethod
    def run(torch: Any, n: int) -> Results:
        from spconv_triton.pytorch._impl import gemm, pair_kernels, pool

        places = torch.arange(n, dtype=torch.int32, device="cuda") * 7 % 32768
        points = torch.stack([places * 0, places // 1024, places // 32 % 32, places % 32], 1).contiguous()
        steps = torch.arange(27, dtype=torch.int32, device="cuda")
        offsets = torch.stack([steps // 9 - 1, steps // 3 % 3 - 1, steps % 3 - 1], 1).contiguous()
        cube = [1, 1, 1], [1, 1, 1], [1, 1, 1], [32, 32, 32], 27, False
        places_by_offset, valid = pair_kernels.candidate_out_lin_valid(points, offsets, *cube)
        ordered, order = torch.sort(places)
        rows, found = pair_kernels.subm_membership(places_by_offset, ordered, order, valid)
        forward, backward = (torch.full((27, n), -1, dtype=torch.int32, device="cuda") for _ in range(2))
        pair_kernels.scatter_igemm_pairs(found, rows, forward, backward, True)
        words, by_mask = torch.sort(pair_kernels.pack_mask_words(forward, 27, 1)[:, 0].int(), stable=True)
        masks = words, by_mask.int()

        x, y = (torch.randn(n, width, device="cuda", dtype=torch.float16) for width in (16, 32))
        w = torch.randn(32, 27, 16, device="cuda", dtype=torch.float16) / 20
        bias = torch.randn(32, device="cuda", dtype=torch.float16)
        most = pool.maxpool_forward(x, forward, n)
        mean, count = pool.avgpool_forward(x, forward, n)
        return {
            "rows": pair_kernels.lower_bound_rows(places_by_offset, found, ordered),
            "forward": gemm.conv_forward(x, w, forward, n, None, None, *masks),
            "with bias": gemm.conv_forward(x, w, forward, n, bias),
            "gradient": gemm.conv_backward_input(y, w, backward, n, *masks),
            "gradient, dense": gemm.conv_backward_input(y, w, backward, n),
            "weights": gemm.conv_backward_weight(x, y, forward, (32, 27, 16)),
            "most": most,
            "most, gradient": pool.maxpool_backward(x, most, x, backward),
            "mean": mean,
            "mean, gradient": pool.avgpool_backward(mean, backward, count),
        }


PROGRAMS: dict[str, Any] = {
    each.__name__: each for each in (torchao, gemlite, flash_kmeans, liger, xformers, flag_gems, mamba, spconv)
}
