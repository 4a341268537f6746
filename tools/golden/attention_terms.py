"""Make tests/golden/terms: attention with score terms in float64.

cases.json lists every case: {"name", "shape", "index", "mask", parameters ...}; its result is out[index], lse[index] of
SHAPE.out.npy [cases, B, Hq, N, Dv] and SHAPE.lse.npy [cases, B, Hq, N]. Inputs are float32 in SHAPE.NAME.npy:

  q [B, Hq, N, D], k [B, Hkv, S, D], v [B, Hkv, S, Dv]; query i stands at position q_begin + i, key j at j
  mask     full | causal | window(l, r) | table (SHAPE.table.npy: bool [N, S], true: may look; its row 1 sees nothing)
  softcap  score = softcap * tanh(scale q.k / softcap), before everything below
  dense    name of an array [B or 1, Hq or 1, N or 1, S or 1] that is added
  alibi    -slope |q - k|, slopes by the published rule
  t5       bidirectional | causal: SHAPE.table_t5.npy [buckets, Hq] looked up by transformers' T5
  xl       clamp length or 0: SHAPE.u.npy, v_bias.npy [Hq, D], r.npy [S, Hq, D] (vector of distance d = q - k is r[d]);
           the relative term is made with the shift trick of the paper's code, not with indexes
  sink     SHAPE.sink.npy [Hq], one more column of the softmax (as transformers' gpt-oss does it)
  dropout  rate, with seed: weights that a counter-based Philox-4x32-10 drops are 0, the others are divided by 1 - rate.
           Row key = first two words of philox((batch, head, q low, q high), (seed low, seed high)); a key at position p
           has word (p / 64) % 4 of philox((c low, c high, 0, 0), row key), c = p / 256 * 64 + p % 64, and is dropped
           when it is below floor(rate * 2^32).

t5_buckets.json: transformers' buckets for distances key - query in [-3000, 3000), as runs [first distance, bucket].

Run:  python attention_terms.py
Made with torch 2.15.0, transformers 5.24.0, numpy 2.4.6.
"""

import json
import math

import numpy as np
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from attention_cases import GOLDEN, begin, gauss_of, mask_of, save, save_cases

OUT = GOLDEN / "terms"
RNG = np.random.default_rng(2027)
gauss = gauss_of(RNG)
SHAPES = {
    "short": dict(b=2, hq=4, hkv=2, n=6, s=9, d=8, dv=5, q_begin=3),
    "long": dict(b=1, hq=3, hkv=3, n=3, s=530, d=4, dv=3, q_begin=527),
}
BUCKETS, MAX_DISTANCE = 32, 128


def wide(x):
    return torch.from_numpy(np.asarray(x)).double()


def philox(counter, key):
    c, k = [int(x) for x in counter], [int(x) for x in key]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


# Known answers of the authors' library, Random123.
assert philox((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
assert philox((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)) == [
    0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def kept(shape, rate, seed):
    low = 0xFFFFFFFF
    keep = np.zeros((shape["b"], shape["hq"], shape["n"], shape["s"]), bool)
    for b, h, i in np.ndindex(keep.shape[:3]):
        q = shape["q_begin"] + i
        key = philox((b, h, q & low, q >> 32), (seed & low, seed >> 32))[:2]
        for j in range(shape["s"]):
            c = j // 256 * 64 + j % 64
            keep[b, h, i, j] = philox((c & low, c >> 32, 0, 0), key)[j // 64 % 4] >= math.floor(rate * 2**32)
    return torch.from_numpy(keep)


def alibi_slopes(heads):
    return build_alibi_tensor(torch.ones(1, 2), heads, torch.float64).reshape(heads, 2)[:, 1]


def relative(shape, q, v_bias, r, clamp):
    """(q + v) . r of the distance, by padding and reshaping."""
    n, s = shape["n"], shape["s"]
    assert shape["q_begin"] + n == s, "the trick is for queries that end the keys"
    rows = r[[min(d, clamp) if clamp else d for d in range(s - 1, -1, -1)]]  # distances s - 1 ... 0
    x = torch.einsum("bhnd,shd->bhns", q + v_bias[:, None], rows)
    padded = torch.cat([torch.zeros_like(x[..., :1]), x], -1).reshape(*x.shape[:2], s + 1, n)
    shifted = padded[:, :, 1:].reshape(x.shape)
    behind = mask_of(shape, "causal", None)
    return torch.where(behind, shifted, torch.nan)  # what lies after the query has no vector


def attention(shape, a, mask, softcap=0, dense=None, alibi=False, t5=None, xl=None, sink=False, dropout=0, seed=0):
    q, k, v = wide(a["q"]), wide(a["k"]), wide(a["v"])
    group = shape["hq"] // shape["hkv"]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scale = 1 / math.sqrt(shape["d"])
    content = q if xl is None else q + wide(a["u"])[:, None]
    score = scale * content @ k.transpose(-1, -2)
    if softcap:
        score = softcap * torch.tanh(score / softcap)
    distance = torch.arange(shape["s"])[None] - (shape["q_begin"] + torch.arange(shape["n"])[:, None])
    visible = mask_of(shape, mask, a).expand(score.shape)
    if alibi:
        slopes = alibi_slopes(shape["hq"])
        bias = -slopes[:, None, None] * distance.abs()
        if mask == "causal":  # the published code adds slope * key and trusts the softmax's invariance
            other = slopes[:, None, None] * torch.arange(shape["s"])
            minus = torch.where(visible, 0.0, -torch.inf)
            assert torch.allclose(torch.softmax(score + bias + minus, -1), torch.softmax(score + other + minus, -1))
        score = score + bias
    if t5:
        bucket = T5Attention._relative_position_bucket(
            distance, bidirectional=t5 == "bidirectional", num_buckets=BUCKETS, max_distance=MAX_DISTANCE)
        score = score + wide(a["table_t5"])[bucket].permute(2, 0, 1)
    if dense:
        score = score + wide(a[dense])
    if xl is not None:
        score = score + scale * relative(shape, q, wide(a["v_bias"]), wide(a["r"]), xl)
    score = torch.where(visible, score, -torch.inf)
    sinks = wide(a["sink"])[:, None, None].expand(*score.shape[:-1], 1) if sink else torch.full_like(score[..., :1], -torch.inf)
    columns = torch.cat([score, sinks], -1)
    lse = torch.logsumexp(columns, -1)
    weights = torch.nan_to_num(torch.softmax(columns, -1), nan=0.0)[..., :-1]  # an empty row is 0
    if dropout:
        weights = torch.where(kept(shape, dropout, seed), weights, 0.0) / (1 - dropout)
    return weights @ v, lse


def cases_of(name):
    everything = dict(dense="dense", alibi=True, t5="bidirectional", sink=True)
    terms = {
        "dense": dict(dense="dense"),
        "dense_keys": dict(dense="dense_keys"),
        "alibi": dict(alibi=True),
        "t5_bidirectional": dict(t5="bidirectional"),
        "t5_causal": dict(t5="causal"),
        "sink": dict(sink=True),
        "everything": everything,
        "everything_capped": dict(**everything, softcap=0.7),
        "dropout": dict(dropout=0.3, seed=2**40 + 7),
        "everything_dropped": dict(**everything, dropout=0.5, seed=1),
    }
    masks = ["full", "causal", "window(2, 1)", "table"] if name == "short" else ["full", "causal", "window(300, 0)"]
    for term, parameters in terms.items():
        for mask in masks:
            yield term, mask, parameters
    for clamp in (0, 4) if name == "short" else (0, 400):
        for mask in ("causal", "window(2, 0)" if name == "short" else "window(300, 0)"):
            yield f"xl_clamp_{clamp}", mask, dict(xl=clamp)
        yield f"xl_clamp_{clamp}_and_all", "causal", dict(xl=clamp, **everything)


def main():
    begin(OUT)
    entries = []
    for name, shape in SHAPES.items():
        b, hq, hkv, n, s, d, dv = (shape[x] for x in ("b", "hq", "hkv", "n", "s", "d", "dv"))
        table = RNG.random((n, s)) < 0.5
        table[1] = False
        a = dict(q=gauss(b, hq, n, d), k=gauss(b, hkv, s, d), v=gauss(b, hkv, s, dv), table=table,
                 dense=gauss(b, hq, n, s) if name == "short" else gauss(1, 1, n, s), dense_keys=gauss(b, 1, 1, s),
                 table_t5=gauss(BUCKETS, hq), u=gauss(hq, d), v_bias=gauss(hq, d), r=gauss(s, hq, d), sink=gauss(hq))
        save(OUT, name, a)
        outs, lses = [], []
        for term, mask, parameters in cases_of(name):
            out, lse = attention(shape, a, mask, **parameters)
            assert out.dtype == torch.float64 and torch.isfinite(out).all(), (name, term, mask)
            entries.append(dict(name=f"{term}, {mask}, {name}", shape=name, index=len(outs), mask=mask,
                                q_begin=shape["q_begin"], **parameters))
            outs.append(out.numpy())
            lses.append(lse.numpy())
        save(OUT, name, {"out": np.stack(outs), "lse": np.stack(lses)})
    save_cases(OUT, entries)

    buckets = []
    for count, far, both in ((32, 128, True), (32, 128, False), (32, 256, True), (64, 128, False), (16, 64, True),
                             (128, 1024, False), (8, 20, True), (32, 1000, False), (12, 50, True), (24, 96, False)):
        distance = torch.arange(-3000, 3000)
        got = T5Attention._relative_position_bucket(distance, bidirectional=both, num_buckets=count, max_distance=far)
        runs = [[int(x), int(y)] for x, y, before in zip(distance, got, [None, *got]) if before is None or y != before]
        buckets.append(dict(buckets=count, max_distance=far, bidirectional=both, runs=runs))
    (OUT / "t5_buckets.json").write_text("[\n" + ",\n".join(json.dumps(x) for x in buckets) + "\n]\n")


if __name__ == "__main__":
    main()
