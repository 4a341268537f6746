"""Make tests/golden/relative: attention with Transformer-XL's relative term, forward and backward, in float64.

The attention is XLNetRelativeAttention.rel_attn_core of transformers, which finds the distances by its shift trick, with
gradients by autograd of torch. It gives no lse: that comes from scores by index, whose softmax has to be its weights. The
loss is sum(dout * out) + sum(dlse * lse). cases.json lists every case: {"name", "shape", "index", parameters ...}; its
results are NAME[index] of SHAPE.out.npy [cases, B, Hq, N, Dv], SHAPE.lse.npy, SHAPE.dq.npy, SHAPE.dk.npy, SHAPE.dv.npy, and
SHAPE.INDEX.dr.npy, .du.npy and .dv_bias.npy. Inputs are float32 in SHAPE.NAME.npy:

  q [B, Hq, N, D], k [B, Hkv, S, D], v [B, Hkv, S, Dv], dout [B, Hq, N, Dv], dlse [B, Hq, N], u, v_bias [Hq, D],
  r [S + N, Hq, D]; query i stands at position S - N + i, key j at j
  mask            full | causal | window(l, r) | table (table.npy: bool [N, S], true: may look; no row is empty)
  first, count    the vectors of the case are r[:count], for the distances first ... first + count - 1 from key to query
  clamp           larger distances in either direction take the vector of this one; 0: none do
  u, v_bias       true: they are added; else they are not there
  dlse            true: the gradient of lse is dlse.npy; else 0

Results are stored rounded to float32.
Run:  python attention_relative.py
Made with torch 2.15.0, transformers 5.24.0, numpy 2.4.6.
"""


import numpy as np
import torch
from transformers import XLNetConfig
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

from attention_cases import GOLDEN, begin, gauss_of, mask_of, save, save_cases

OUT = GOLDEN / "relative"
RNG = np.random.default_rng(2043)
gauss = gauss_of(RNG)
SHAPES = {
    "short": dict(b=2, hq=4, hkv=2, n=6, s=9, d=8, dv=5, clamp=3, window="window(2, 1)"),
    "long": dict(b=1, hq=2, hkv=1, n=10, s=280, d=3, dv=3, clamp=40, window="window(150, 5)"),
}


def results(shape, a, mask, first, count, clamp, u=False, v_bias=False, dlse=False):
    n, s, hq, d = (shape[x] for x in ("n", "s", "hq", "d"))
    leaf = {name: torch.from_numpy(a[name]).double().requires_grad_() for name in ("q", "k", "v")}
    leaf["r"] = torch.from_numpy(a["r"][:count].copy()).double().requires_grad_()
    for name, wanted in (("u", u), ("v_bias", v_bias)):
        if wanted:
            leaf[name] = torch.from_numpy(a[name]).double().requires_grad_()
    none = torch.zeros(hq, d, dtype=torch.float64)
    content, position = leaf.get("u", none), leaf.get("v_bias", none)
    group = hq // shape["hkv"]
    k, v = leaf["k"].repeat_interleave(group, 1), leaf["v"].repeat_interleave(group, 1)
    visible = mask_of(shape, mask, a)

    module = XLNetRelativeAttention(XLNetConfig(d_model=hq * d, n_head=hq, dropout=0.0)).double().eval()
    del module.r_w_bias, module.r_r_bias
    module.r_w_bias, module.r_r_bias = content, position
    # Its positions fall from klen to 0, or to 1 - qlen where queries look at what comes after them, too.
    distances = torch.arange(s, -1 if first == 0 else -n, -1)
    if clamp:
        distances = distances.clamp(-clamp, clamp)
    heads_last = lambda x: x.permute(2, 0, 1, 3)  # [length, B, H, D]
    rows = leaf["r"][distances - first]
    out, weights = module.rel_attn_core(
        heads_last(leaf["q"]), heads_last(k), heads_last(v), rows[:, None].expand(-1, shape["b"], -1, -1),
        attn_mask=(~visible).double()[:, :, None, None].expand(-1, -1, shape["b"], hq), output_attentions=True)
    out = out.permute(1, 2, 0, 3)

    distance = s - n + torch.arange(n)[:, None] - torch.arange(s)[None]
    if clamp:
        distance = distance.clamp(-clamp, clamp)
    vectors = leaf["r"][torch.where(visible, distance - first, 0)]  # [N, S, Hq, D]
    score = torch.einsum("bhnd,bhsd->bhns", leaf["q"] + content[:, None], k) + torch.einsum(
        "bhnd,nshd->bhns", leaf["q"] + position[:, None], vectors)
    score = torch.where(visible, score / d**0.5, -torch.inf)
    assert torch.allclose(torch.softmax(score, -1), weights.permute(2, 3, 0, 1), rtol=0, atol=1e-13)
    lse = torch.logsumexp(score, -1)
    loss = (out * torch.from_numpy(a["dout"]).double()).sum()
    if dlse:
        loss = loss + (lse * torch.from_numpy(a["dlse"]).double()).sum()
    loss.backward()
    return out.detach().numpy(), lse.detach().numpy(), {name: x.grad.numpy() for name, x in leaf.items()}


def cases(shape):
    both = dict(u=True, v_bias=True)
    behind = dict(first=0, count=shape["s"] + 1, clamp=0)  # the distances that a causal mask allows
    all_of_them = dict(first=1 - shape["n"], count=shape["s"] + shape["n"], clamp=0)
    clamp = shape["clamp"]
    for mask in ("full", "causal", shape["window"], "table"):
        yield "every distance", mask, dict(**all_of_them, **both)
        yield "clamp", mask, dict(first=-clamp, count=2 * clamp + 1, clamp=clamp, dlse=True, **both)
    yield "distances behind", "causal", dict(**behind, **both)
    yield "clamp behind", "causal", dict(first=0, count=clamp + 1, clamp=clamp, **both)
    yield "without u", "table", dict(first=-clamp, count=2 * clamp + 1, clamp=clamp, v_bias=True)
    yield "without v", "causal", dict(**behind, u=True, dlse=True)
    yield "without either", "full", dict(**all_of_them)
    yield "clamp of 1", "full", dict(first=-1, count=3, clamp=1, **both)


def main():
    torch.manual_seed(0)
    begin(OUT)
    entries = []
    for name, shape in SHAPES.items():
        b, hq, hkv, n, s, d, dv = (shape[x] for x in ("b", "hq", "hkv", "n", "s", "d", "dv"))
        table = RNG.random((n, s)) < 0.5
        table[:, 0] = True
        a = dict(q=gauss(b, hq, n, d), k=gauss(b, hkv, s, d), v=gauss(b, hkv, s, dv), dout=gauss(b, hq, n, dv),
                 dlse=gauss(b, hq, n), u=gauss(hq, d), v_bias=gauss(hq, d), r=gauss(s + n, hq, d), table=table)
        save(OUT, name, a)
        stacks = {role: [] for role in ("out", "lse", "dq", "dk", "dv")}
        for term, mask, parameters in cases(shape):
            out, lse, gradients = results(shape, a, mask, **parameters)
            assert all(np.isfinite(x).all() and np.abs(x).max() > 0 for x in gradients.values()), (name, term, mask)
            index = len(stacks["out"])
            for role, value in (("out", out), ("lse", lse), *(("d" + x, gradients[x]) for x in "qkv")):
                stacks[role].append(value.astype(np.float32))
            for role in ("r", "u", "v_bias"):
                if role in gradients:
                    np.save(OUT / f"{name}.{index}.d{role}.npy", gradients[role].astype(np.float32))
            entries.append(dict(name=f"{term}, {mask}, {name}", shape=name, index=index, mask=mask, **parameters))
        save(OUT, name, {role: np.stack(arrays) for role, arrays in stacks.items()})
    save_cases(OUT, entries)


if __name__ == "__main__":
    main()
