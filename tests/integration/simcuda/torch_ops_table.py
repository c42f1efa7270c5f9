"""The table of operators that torch_ops_test.py runs on the stand-in and on the CPU: name -> (function, arguments).
Inputs are made with a fixed seed on the CPU; those that require a gradient are also differentiated."""

import torch
from torch import nn
from torch.nn import functional as F


def real(*shape, low=-2.0, high=2.0, dtype=torch.float32, grad=True):
    return (torch.rand(shape, dtype=torch.float64) * (high - low) + low).to(dtype).requires_grad_(grad)


def ints(*shape, low=0, high=10, dtype=torch.int64):
    return torch.randint(low, high, shape, dtype=dtype)


def bools(*shape):
    return torch.rand(shape) > 0.5


UNARY = """abs acos angle asin atan cos cosh erf erfc exp exp2 expm1 floor ceil frac neg positive relu round sigmoid
    sign sgn sin sinc sinh square tan tanh trunc isnan isinf isfinite isposinf isneginf signbit logical_not
    nan_to_num deg2rad rad2deg i0 erfinv asinh atanh""".split()
UNARY_POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma acosh".split()
ACTIVATIONS = """celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu
    softplus softshrink softsign tanhshrink""".split()
BINARY = """add sub mul div atan2 maximum minimum fmax fmin hypot eq ne lt le gt ge copysign floor_divide remainder fmod
    logical_and logical_or logical_xor nextafter logaddexp logaddexp2 heaviside xlogy""".split()
INTEGER_UNARY = "bitwise_not neg abs sign square".split()
INTEGER_BINARY = """add sub mul bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm maximum
    minimum eq lt floor_divide remainder""".split()
REDUCTIONS = "sum mean prod amax amin std var logsumexp norm nansum nanmean median any all argmax argmin".split()
SCANS = "cumsum cumprod cummax cummin logcumsumexp softmax log_softmax sort argsort".split()


def _pointwise(table):
    for name in UNARY:
        low, high = (-0.9, 0.9) if name in ("acos", "asin", "atanh", "erfinv") else (-2.0, 2.0)
        table[name] = (getattr(torch, name), (real(5, 7, low=low, high=high),))
    for name in UNARY_POSITIVE:
        table[name] = (getattr(torch, name), (real(5, 7, low=1.1, high=3.0),))
    for name in ACTIVATIONS:
        table["activation_" + name] = (getattr(F, name), (real(4, 6),))
    no_gradient = ("nextafter", "heaviside", "floor_divide")
    for name in BINARY:
        second = real(7, low=0.5, high=2.0) if name not in no_gradient else real(5, 7, grad=False)
        first = real(5, 7, grad=name not in no_gradient)
        table["binary_" + name] = (getattr(torch, name), (first, second))
    for name in INTEGER_UNARY:
        table["int_" + name] = (getattr(torch, name), (ints(5, 7, low=-5),))
    for name in INTEGER_BINARY:
        table["int_" + name + "_pair"] = (getattr(torch, name), (ints(5, 7, low=1), ints(7, low=1, high=4)))
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        suffix = str(dtype).split(".")[1]
        table["add_" + suffix] = (torch.add, (real(3, 8, dtype=dtype), real(8, dtype=dtype)))
        table["matmul_" + suffix] = (torch.matmul, (real(3, 8, dtype=dtype), real(8, 5, dtype=dtype)))
        table["softmax_" + suffix] = (lambda x: torch.softmax(x, -1), (real(3, 8, dtype=dtype),))
    table["add_alpha"] = (lambda a, b: torch.add(a, b, alpha=3), (real(4, 4), real(4, 4)))
    table["add_host_scalar"] = (lambda a: a + torch.tensor(2.5), (real(4, 4),))
    table["rsub"] = (lambda a: 1.5 - a, (real(4, 4),))
    table["pow_scalar"] = (lambda a: a.pow(3), (real(4, 4),))
    table["pow_tensor"] = (torch.pow, (real(4, 4, low=0.5), real(4, 4)))
    table["clamp"] = (lambda a: a.clamp(-0.5, 0.5), (real(4, 4),))
    table["lerp"] = (torch.lerp, (real(4, 4), real(4, 4), real(4, 4)))
    table["addcmul"] = (lambda a, b, c: torch.addcmul(a, b, c, value=0.3), (real(4, 4), real(4, 4), real(4, 4)))
    table["addcdiv"] = (torch.addcdiv, (real(4, 4), real(4, 4), real(4, 4, low=0.5)))
    table["where"] = (torch.where, (bools(4, 4), real(4, 4), real(4)))
    table["where_scalar"] = (lambda c, a: torch.where(c, a, 0.0), (bools(4, 4), real(4, 4)))
    table["masked_fill"] = (lambda a, m: a.masked_fill(m, -1e9), (real(4, 4), bools(4, 4)))
    table["threshold"] = (lambda a: F.threshold(a, 0.1, 20), (real(4, 4),))
    table["prelu"] = (F.prelu, (real(2, 3, 4), real(3)))
    table["rrelu_eval"] = (lambda a: F.rrelu(a, training=False), (real(4, 4),))
    table["complex_mul"] = (torch.mul, (real(4, 4).detach().to(torch.complex64), real(4).detach().to(torch.complex64)))
    table["conj_matmul"] = (lambda a: a.conj() @ a.mT, (torch.complex(real(4, 4).detach(), real(4, 4).detach()),))
    table["neg_view"] = (lambda a: a.conj().imag + 1, (torch.complex(real(4, 4).detach(), real(4, 4).detach()),))
    table["polar"] = (torch.polar, (real(4), real(4)))


def _reductions(table):
    for name in REDUCTIONS:
        function = getattr(torch, name)
        source = bools(4, 6, 3) if name in ("any", "all") else real(4, 6, 3)
        if name != "logsumexp":
            table["reduce_" + name] = (function, (source,))
        if name not in ("norm", "median"):
            table["reduce_dim_" + name] = (lambda x, f=function: f(x, dim=1), (source.clone().detach(),))
    for name in SCANS:
        table["scan_" + name] = (lambda x, f=getattr(torch, name): f(x, 1), (real(4, 6, 3),))
    table["sum_dtype"] = (lambda x: x.sum(dtype=torch.float64), (real(4, 6),))
    table["var_mean"] = (lambda x: torch.var_mean(x, dim=[0, 2]), (real(4, 6, 3),))
    table["norm_p1"] = (lambda x: x.norm(1, dim=0), (real(4, 6),))
    table["linalg_vector_norm"] = (torch.linalg.vector_norm, (real(4, 6),))
    table["topk"] = (lambda x: x.topk(3, dim=1), (real(4, 6),))
    table["kthvalue"] = (lambda x: x.kthvalue(2, dim=1), (real(4, 6),))
    table["mode"] = (lambda x: x.mode(1)[0], (ints(4, 6, high=3),))
    table["aminmax"] = (lambda x: torch.aminmax(x, dim=1), (real(4, 6, grad=False),))
    table["count_nonzero"] = (torch.count_nonzero, (ints(4, 6, high=2),))
    table["cdist"] = (torch.cdist, (real(4, 6), real(5, 6)))
    table["trace"] = (torch.trace, (real(4, 4),))
    table["renorm"] = (lambda x: x.renorm(2, 0, 1.0), (real(4, 6),))
    table["histc"] = (lambda x: torch.histc(x, 5, -2, 2), (real(40, grad=False),))
    table["bincount"] = (torch.bincount, (ints(40),))
    table["unique"] = (lambda x: torch.unique(x, return_inverse=True, return_counts=True), (ints(40),))
    table["unique_consecutive"] = (torch.unique_consecutive, (ints(40, high=2),))
    table["nonzero"] = (torch.nonzero, (ints(4, 6, high=2),))
    table["searchsorted"] = (torch.searchsorted, (torch.arange(10.0), real(7, low=0, high=9, grad=False)))
    table["bucketize"] = (torch.bucketize, (real(7, low=0, high=9, grad=False), torch.arange(10.0)))


def _indexing(table):
    index = ints(5, high=6)
    table["index_select"] = (lambda x, i: x.index_select(1, i), (real(4, 6), index))
    table["index"] = (lambda x, i: x[:, i], (real(4, 6), index))
    table["index_two"] = (lambda x, i, j: x[i, j], (real(4, 6), ints(5, high=4), index))
    table["index_host"] = (lambda x: x[:, torch.tensor([0, 2])], (real(4, 6),))
    table["index_mask"] = (lambda x, m: x[m], (real(4, 6), bools(4, 6)))
    table["masked_select"] = (torch.masked_select, (real(4, 6), bools(4, 6)))
    table["masked_scatter"] = (lambda x, m, s: x.masked_scatter(m, s), (real(4, 6), bools(4, 6), real(24)))
    table["gather"] = (lambda x, i: x.gather(1, i), (real(4, 6), ints(4, 3, high=6)))
    table["scatter"] = (lambda x, i, s: x.scatter(1, i, s), (real(4, 6), torch.arange(3).expand(4, 3), real(4, 3)))
    table["scatter_add"] = (lambda x, i, s: x.scatter_add(1, i, s), (real(4, 6), ints(4, 3, high=6), real(4, 3)))
    table["scatter_reduce"] = (
        lambda x, i, s: x.scatter_reduce(1, i, s, "amax"), (real(4, 6), ints(4, 3, high=6), real(4, 3)))
    table["index_add"] = (lambda x, i, s: x.index_add(1, i, s), (real(4, 6), index, real(4, 5)))
    table["index_copy"] = (lambda x, i, s: x.index_copy(1, i, s), (real(4, 6), torch.arange(5), real(4, 5)))
    table["index_fill"] = (lambda x, i: x.index_fill(1, i, 2.0), (real(4, 6), index))
    table["index_put"] = (
        lambda x, i, v: x.index_put((i, i), v, accumulate=True), (real(6, 6), index, real(5)))
    table["take"] = (torch.take, (real(4, 6), ints(5, high=24)))
    table["take_along_dim"] = (lambda x, i: torch.take_along_dim(x, i, 1), (real(4, 6), ints(4, 2, high=6)))
    table["put"] = (lambda x, i, v: x.put(i, v), (real(4, 6), torch.arange(5), real(5)))
    table["embedding"] = (F.embedding, (ints(3, 5), real(10, 4)))
    table["embedding_padding"] = (lambda i, w: F.embedding(i, w, padding_idx=0), (ints(3, 5), real(10, 4)))
    table["embedding_bag"] = (lambda i, w: F.embedding_bag(i, w, mode="sum"), (ints(3, 5), real(10, 4)))
    table["one_hot"] = (lambda i: F.one_hot(i, 10), (ints(7),))
    table["tril"] = (torch.tril, (real(5, 5),))
    table["triu"] = (lambda x: x.triu(1), (real(5, 5),))
    table["flip"] = (lambda x: x.flip(0, 1), (real(4, 6),))
    table["roll"] = (lambda x: x.roll(2, 1), (real(4, 6),))
    table["rot90"] = (torch.rot90, (real(4, 6),))
    table["repeat"] = (lambda x: x.repeat(2, 3), (real(4, 6),))
    table["repeat_interleave"] = (lambda x: x.repeat_interleave(3, dim=1), (real(4, 6),))
    table["repeat_interleave_tensor"] = (
        lambda x, n: x.repeat_interleave(n, dim=0), (real(4, 6), ints(4, low=1, high=4)))
    table["cat"] = (lambda a, b: torch.cat([a, b], 1), (real(4, 6), real(4, 2)))
    table["stack"] = (lambda a, b: torch.stack([a, b]), (real(4, 6), real(4, 6)))
    table["split"] = (lambda a: [part * 2 for part in a.split(2, 1)], (real(4, 6),))
    table["unfold"] = (lambda a: a.unfold(1, 3, 2) * 1.5, (real(4, 7),))
    table["diagonal"] = (lambda a: a.diagonal() * 2, (real(5, 5),))
    table["diag_embed"] = (torch.diag_embed, (real(3, 4),))
    table["meshgrid"] = (lambda a, b: [g + 1 for g in torch.meshgrid(a, b, indexing="ij")], (real(3), real(4)))
    table["expand_sum"] = (lambda a: a.expand(5, 4, 6) + 1, (real(4, 6),))
    table["permute_contiguous"] = (lambda a: a.permute(2, 0, 1).contiguous(), (real(3, 4, 5),))
    table["transpose_reshape"] = (lambda a: a.transpose(0, 1).reshape(-1), (real(3, 4, 5),))
    table["pad_constant"] = (lambda a: F.pad(a, (1, 2), value=3.0), (real(2, 3, 4),))
    table["pad_reflect"] = (lambda a: F.pad(a, (1, 2), mode="reflect"), (real(2, 3, 4),))
    table["pad_replicate"] = (lambda a: F.pad(a, (1, 2), mode="replicate"), (real(2, 3, 4),))
    table["pad_circular"] = (lambda a: F.pad(a, (1, 2), mode="circular"), (real(2, 3, 4),))
    table["block_diag"] = (torch.block_diag, (real(2, 3), real(3, 2)))
    table["cartesian_prod"] = (torch.cartesian_prod, (real(3), real(4)))
    table["combinations"] = (torch.combinations, (real(4),))
    table["tensordot"] = (lambda a, b: torch.tensordot(a, b, dims=2), (real(2, 3, 4), real(3, 4, 5)))


def _products(table):
    table["mm"] = (torch.mm, (real(4, 6), real(6, 5)))
    table["bmm"] = (torch.bmm, (real(3, 4, 6), real(3, 6, 5)))
    table["matmul_batched"] = (torch.matmul, (real(2, 3, 4, 6), real(6, 5)))
    table["mv"] = (torch.mv, (real(4, 6), real(6)))
    table["dot"] = (torch.dot, (real(6), real(6)))
    table["outer"] = (torch.outer, (real(6), real(4)))
    table["addmm"] = (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), (real(5), real(4, 6), real(6, 5)))
    table["baddbmm"] = (torch.baddbmm, (real(3, 4, 5), real(3, 4, 6), real(3, 6, 5)))
    table["addbmm"] = (torch.addbmm, (real(4, 5), real(3, 4, 6), real(3, 6, 5)))
    table["addmv"] = (torch.addmv, (real(4), real(4, 6), real(6)))
    table["addr"] = (torch.addr, (real(4, 6), real(4), real(6)))
    table["linear"] = (F.linear, (real(2, 4, 6), real(5, 6), real(5)))
    table["bilinear"] = (F.bilinear, (real(4, 3), real(4, 2), real(5, 3, 2), real(5)))
    table["einsum"] = (lambda a, b: torch.einsum("bij,bjk->bik", a, b), (real(2, 3, 4), real(2, 4, 5)))
    table["kron"] = (torch.kron, (real(2, 3), real(3, 2)))
    table["cross"] = (torch.linalg.cross, (real(4, 3), real(4, 3)))
    table["mm_into_float"] = (
        lambda a, b: torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float(),
        (real(4, 8, dtype=torch.bfloat16, grad=False), real(8, 5, dtype=torch.bfloat16, grad=False)))
    square = real(4, 4, grad=False) + 4 * torch.eye(4)
    spd = (square @ square.mT).requires_grad_()
    table["inverse"] = (torch.linalg.inv, (spd,))
    table["det"] = (torch.linalg.det, (spd,))
    table["slogdet"] = (torch.linalg.slogdet, (spd,))
    table["cholesky"] = (torch.linalg.cholesky, (spd,))
    table["solve"] = (torch.linalg.solve, (spd, real(4, 2)))
    table["eigh"] = (lambda a: torch.linalg.eigh(a)[0], (spd,))
    table["svd"] = (lambda a: torch.linalg.svdvals(a), (real(4, 3),))
    table["qr"] = (torch.linalg.qr, (spd,))
    table["lu"] = (torch.linalg.lu_factor, (spd.detach(),))
    table["triangular_solve"] = (
        lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False), (spd, real(4, 2)))
    table["matrix_exp"] = (torch.linalg.matrix_exp, (real(3, 3),))
    table["matrix_power"] = (lambda a: torch.linalg.matrix_power(a, 3), (real(3, 3),))
    table["fft"] = (lambda a: torch.view_as_real(torch.fft.fft(a)), (real(3, 8),))
    table["rfft"] = (lambda a: torch.view_as_real(torch.fft.rfft(a)), (real(3, 8),))
    table["irfft"] = (torch.fft.irfft, (torch.fft.rfft(real(3, 8, grad=False)),))


def _layers(table):
    table["conv1d"] = (lambda x, w, b: F.conv1d(x, w, b, padding=1), (real(2, 3, 9), real(4, 3, 3), real(4)))
    table["conv2d"] = (
        lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1), (real(2, 3, 9, 8), real(4, 3, 3, 3), real(4)))
    table["conv2d_groups"] = (lambda x, w: F.conv2d(x, w, groups=3), (real(2, 3, 9, 8), real(6, 1, 3, 3)))
    table["conv2d_no_grad_input"] = (F.conv2d, (real(2, 3, 9, 8, grad=False), real(4, 3, 3, 3)))
    table["conv3d"] = (F.conv3d, (real(1, 2, 5, 5, 5), real(3, 2, 3, 3, 3)))
    table["conv_transpose2d"] = (lambda x, w: F.conv_transpose2d(x, w, stride=2), (real(2, 3, 4, 4), real(3, 4, 3, 3)))
    table["max_pool2d"] = (lambda x: F.max_pool2d(x, 2), (real(2, 3, 8, 8),))
    table["max_pool1d"] = (lambda x: F.max_pool1d(x, 2), (real(2, 3, 8),))
    table["avg_pool2d"] = (lambda x: F.avg_pool2d(x, 3, 2, 1), (real(2, 3, 8, 8),))
    table["adaptive_avg_pool2d"] = (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (real(2, 3, 8, 8),))
    table["adaptive_max_pool2d"] = (lambda x: F.adaptive_max_pool2d(x, (3, 2)), (real(2, 3, 8, 8),))
    table["lp_pool2d"] = (lambda x: F.lp_pool2d(x, 2, 2), (real(2, 3, 8, 8, low=0.1),))
    table["fold"] = (lambda x: F.fold(x, (4, 5), (2, 2)), (real(1, 8, 12),))
    table["im2col"] = (lambda x: F.unfold(x, 3), (real(2, 3, 6, 6),))
    for mode in ("nearest", "bilinear", "bicubic", "area"):
        table["interpolate_" + mode] = (lambda x, m=mode: F.interpolate(x, scale_factor=2.0, mode=m), (real(2, 3, 4, 4),))
    table["interpolate_size"] = (lambda x: F.interpolate(x, size=(7, 5), mode="bilinear"), (real(2, 3, 4, 4),))
    table["grid_sample"] = (
        lambda x, g: F.grid_sample(x, g, align_corners=False), (real(2, 3, 4, 4), real(2, 5, 5, 2, low=-1, high=1)))
    table["affine_grid"] = (lambda t: F.affine_grid(t, (2, 3, 4, 4), align_corners=False), (real(2, 2, 3),))
    table["pixel_shuffle"] = (lambda x: F.pixel_shuffle(x, 2), (real(1, 8, 3, 3),))
    table["layer_norm"] = (lambda x, w, b: F.layer_norm(x, (6,), w, b), (real(4, 6), real(6), real(6)))
    table["layer_norm_plain"] = (lambda x: F.layer_norm(x, (6,)), (real(4, 6),))
    table["rms_norm"] = (lambda x, w: F.rms_norm(x, (6,), w, 1e-5), (real(4, 6), real(6)))
    table["rms_norm_plain"] = (lambda x: F.rms_norm(x, (5, 6)), (real(4, 5, 6),))
    table["group_norm"] = (lambda x, w, b: F.group_norm(x, 2, w, b), (real(2, 4, 5), real(4), real(4)))
    table["instance_norm"] = (F.instance_norm, (real(2, 4, 5, 5),))
    table["batch_norm_train"] = (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (real(4, 3, 5), real(3), real(3)))
    table["batch_norm_eval"] = (F.batch_norm, (real(4, 3, 5), real(3, grad=False), real(3, low=0.5, grad=False)))
    table["local_response_norm"] = (lambda x: F.local_response_norm(x, 2), (real(2, 4, 5, 5),))
    table["normalize"] = (F.normalize, (real(4, 6),))
    table["cosine_similarity"] = (F.cosine_similarity, (real(4, 6), real(4, 6)))
    table["pairwise_distance"] = (F.pairwise_distance, (real(4, 6), real(4, 6)))
    table["pdist"] = (F.pdist, (real(4, 6),))
    table["dropout_eval"] = (lambda x: F.dropout(x, 0.5, training=False), (real(4, 6),))
    table["attention"] = (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (real(2, 3, 8, 4), real(2, 3, 8, 4), real(2, 3, 8, 4)))
    table["attention_mask"] = (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        (real(2, 3, 8, 4), real(2, 3, 8, 4), real(2, 3, 8, 4), real(8, 8, grad=False)))
    for name in ("LSTM", "GRU", "RNN"):
        table["module_" + name] = (_recurrent(name), (real(5, 2, 3),))
    table["transformer_layer"] = (_module(lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)), (real(5, 2, 8),))
    table["multihead_attention"] = (
        _module(lambda: nn.MultiheadAttention(8, 2), lambda m, x: m(x, x, x)), (real(5, 2, 8),))


def _module(make, call=lambda module, x: module(x)):
    def function(x):
        torch.manual_seed(7)
        module = make().to(x.device)
        return call(module, x)

    return function


def _recurrent(name):
    return _module(lambda: getattr(nn, name)(3, 4, num_layers=2), lambda module, x: list(module(x)))


def _losses(table):
    scores, target = real(6, 5), ints(6, high=5)
    table["cross_entropy"] = (F.cross_entropy, (scores, target))
    table["cross_entropy_ignore"] = (lambda s, t: F.cross_entropy(s, t, ignore_index=0), (scores, target))
    table["cross_entropy_smooth"] = (lambda s, t: F.cross_entropy(s, t, label_smoothing=0.1), (scores, target))
    table["cross_entropy_soft"] = (F.cross_entropy, (scores, real(6, 5, low=0, high=1, grad=False)))
    table["nll_loss_2d"] = (F.nll_loss, (real(2, 5, 3, 3), ints(2, 3, 3, high=5)))
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss"):
        table[name] = (getattr(F, name), (real(4, 6), real(4, 6)))
    table["bce"] = (F.binary_cross_entropy, (real(4, 6, low=0.1, high=0.9), real(4, 6, low=0, high=1, grad=False)))
    table["bce_logits"] = (
        F.binary_cross_entropy_with_logits, (real(4, 6), real(4, 6, low=0, high=1, grad=False)))
    table["kl_div"] = (
        lambda a, b: F.kl_div(a.log_softmax(1), b, reduction="batchmean"), (real(4, 6), real(4, 6, low=0.1, grad=False)))
    table["hinge_embedding"] = (F.hinge_embedding_loss, (real(6), ints(6, high=2) * 2.0 - 1))
    table["margin_ranking"] = (F.margin_ranking_loss, (real(6), real(6), ints(6, high=2) * 2.0 - 1))
    table["triplet_margin"] = (F.triplet_margin_loss, (real(4, 6), real(4, 6), real(4, 6)))
    table["cosine_embedding"] = (F.cosine_embedding_loss, (real(4, 6), real(4, 6), ints(4, high=2) * 2.0 - 1))
    table["multi_margin"] = (F.multi_margin_loss, (scores, target))
    table["multilabel_margin"] = (F.multilabel_margin_loss, (real(2, 4), torch.tensor([[3, 0, -1, 1], [1, -1, 0, 2]])))
    table["soft_margin"] = (F.soft_margin_loss, (real(6), ints(6, high=2) * 2.0 - 1))
    table["gaussian_nll"] = (F.gaussian_nll_loss, (real(6), real(6), real(6, low=0.5)))
    table["ctc_loss"] = (
        lambda x: F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2, 3], [2, 1, 1]]), (8, 8), (3, 2)), (real(8, 2, 5),))


def _factories(table):
    on = lambda f: (lambda like: f(like.device), (torch.zeros(1),))
    table["arange"] = on(lambda d: torch.arange(3, 30, 4, device=d))
    table["arange_float"] = on(lambda d: torch.arange(0.0, 2.0, 0.3, device=d))
    table["linspace"] = on(lambda d: torch.linspace(0, 1, 7, device=d))
    table["logspace"] = on(lambda d: torch.logspace(0, 1, 7, device=d))
    table["eye"] = on(lambda d: torch.eye(4, 5, device=d))
    table["full"] = on(lambda d: torch.full((3, 4), 2.5, device=d))
    table["zeros_ones"] = on(lambda d: [torch.zeros(3, device=d), torch.ones(3, device=d)])
    table["tril_indices"] = on(lambda d: torch.tril_indices(4, 5, device=d))
    table["hann_window"] = on(lambda d: torch.hann_window(9, device=d))
    table["vander"] = (torch.vander, (real(4, grad=False),))
    table["scalar_results"] = (lambda a: [torch.tensor(float(a.sum())), torch.tensor(a.max().item())], (ints(4, 4),))
    table["equal"] = (lambda a: torch.tensor(torch.equal(a, a.clone())), (ints(4, 4),))
    table["allclose"] = (lambda a: torch.tensor(torch.allclose(a, a + 1e-9)), (real(4, 4),))


def build():
    torch.manual_seed(20)
    table = {}
    for part in (_pointwise, _reductions, _indexing, _products, _layers, _losses, _factories):
        part(table)
    return table
